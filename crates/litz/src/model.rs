//! Opens models, which have a graph and weights.

use crate::error::Error;
use crate::host::HostSchemas;
use crate::identity::FileIdentity;
use crate::options::Options;
use litz_import::{Archive, Imported, Input, InputKind, Weight};
use litz_ir::graph::{self, Graph, TensorType, Type};
use litz_ir::{Diag, Diags, verify};
use litz_ops::{Table, seed};
use litz_runtime::Tensor;
use litz_runtime::weights::Weights;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};

/// A graph and its weights: read from a file, where the weights stay, or given.
pub struct Model {
    source: Source,
    /// How often the stages have run for it.
    pub(crate) compilations: AtomicU64,
    /// The program as imported.
    pub imported: Imported,
}

/// A file in memory, and its identity if it can be told from others.
struct MappedFile {
    map: Arc<memmap2::Mmap>,
    identity: Option<FileIdentity>,
}

/// Where the weights of a model are.
enum Source {
    /// In an archive, under the name that the archive gives the model; with the file that it is mapped from.
    Archive { archive: Archive, name: String, file: Option<MappedFile> },
    /// In memory, by name.
    Memory(HashMap<String, Tensor>),
}

impl Model {
    /// Reads the only model of a `.pt2` archive; [`Options::model`] names one of several. Weights are mapped, not copied.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or uses operators that are not supported; all of these are listed.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        Model::open_for(path, &Options::default())
    }

    /// As [`Model::open`]: the model that [`Options::model`] names, with the operators that [`Options::host`] has as well.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open_for(path: impl AsRef<Path>, options: &Options) -> Result<Model, Error> {
        let path = path.as_ref();
        let failed = |source| Error::Io { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(failed)?;
        // Before any of it is read: what changes from here on changes the identity, too.
        let identity = FileIdentity::of(&file);
        if file.metadata().is_ok_and(|m| m.is_dir()) {
            return Err(failed(std::io::ErrorKind::IsADirectory.into()));
        }
        // SAFETY: the mapping is only read. That nobody truncates or rewrites a model's file while it is in use is
        // documented as the caller's business, as for any mapped weights.
        let map = Arc::new(unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?);
        Model::of_archive(map.clone(), Some(MappedFile { map, identity }), options)
    }

    /// Reads the only model of an archive in memory.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_bytes(bytes: litz_import::Bytes) -> Result<Model, Error> {
        Model::from_bytes_for(bytes, &Options::default())
    }

    /// As [`Model::from_bytes`]: the model that [`Options::model`] names, with the operators that [`Options::host`] has as well.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_bytes_for(bytes: litz_import::Bytes, options: &Options) -> Result<Model, Error> {
        Model::of_archive(bytes, None, options)
    }

    fn of_archive(
        bytes: litz_import::Bytes,
        file: Option<MappedFile>,
        options: &Options,
    ) -> Result<Model, Error> {
        let archive = Archive::open(bytes)?;
        let name = archive.model(options.model.as_deref())?.to_owned();
        let mut imported =
            litz_import::import(&archive, &name, &HostSchemas { table: Table::new(), options })?;
        if let Some(value) = seed::seeded(&mut imported.graph).map_err(Error::of_diags)? {
            imported.inputs.push(Input { name: seed::NAME.to_owned(), kind: InputKind::Value(value) });
        }
        let source = Source::Archive { archive, name, file };
        Ok(Model { source, compilations: AtomicU64::new(0), imported })
    }

    /// A model of a graph, and of the tensors that its constants name.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the graph does not verify.
    pub fn from_graph(graph: Graph, weights: HashMap<String, Tensor>) -> Result<Model, Error> {
        let mut diags = verify::graph::verify(&graph);
        diags.extend(litz_ops::check_devices(&graph));
        if !diags.is_empty() {
            return Err(Error::Invalid(diags));
        }
        let imported = Imported::of_graph(graph);
        Ok(Model { source: Source::Memory(weights), compilations: AtomicU64::new(0), imported })
    }

    /// Types of the tensors a call takes, with their names, in order. A number is a tensor without dimensions: of i64, f64 or
    /// bool.
    pub fn inputs(&self) -> Vec<(&str, Cow<'_, TensorType>)> {
        let graph = &self.imported.graph;
        let inputs = self.imported.inputs.iter();
        inputs
            .filter_map(|input| match input.kind {
                InputKind::Value(v) => Some((input.name.as_str(), graph.values[v].ty.stored())),
                InputKind::Fixed(_) => None,
            })
            .collect()
    }

    /// A text that was saved beside the model: `extra_files={name: text}` of `torch.export.save`.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn extra(&self, name: &str) -> Result<Option<&str>, Error> {
        let Some(archive) = self.archive() else { return Ok(None) };
        let path = format!("extra/{name}");
        let text = archive.range(&path).map(|_| archive.text(&path)).transpose();
        Ok(text?)
    }

    /// # Errors
    /// When the model has tensors on several GPUs, or guards that are not supported.
    pub(crate) fn check_supported(&self) -> Result<(), Error> {
        let mut gpus = BTreeMap::new();
        gpus_of(&self.imported.graph, &mut gpus);
        if let [first, .., (other, name)] = &*gpus.into_iter().collect::<Vec<_>>() {
            let message = format!(
                "expected all tensors on one GPU, found `{}` on cuda:{} and `{name}` on cuda:{other}",
                first.1, first.0
            );
            let diag = Diag::new("unsupported-device", message).help("export it on one device");
            return Err(Error::Unsupported(vec![diag]));
        }
        let unknown: Diags = self.imported.unknown_guards.iter().flat_map(|guard| guard.diags()).collect();
        if unknown.is_empty() { Ok(()) } else { Err(Error::Unsupported(unknown)) }
    }

    /// What the archive calls it, else its graph.
    pub fn name(&self) -> &str {
        match &self.source {
            Source::Archive { name, .. } => name,
            Source::Memory(_) => &self.imported.graph.name,
        }
    }

    /// The archive that it was read from.
    pub(crate) fn archive(&self) -> Option<&Archive> {
        match &self.source {
            Source::Archive { archive, .. } => Some(archive),
            Source::Memory(_) => None,
        }
    }

    /// Whether its weights lie in a file that is mapped.
    pub(crate) fn is_of_file(&self) -> bool {
        matches!(&self.source, Source::Archive { file: Some(_), .. })
    }

    /// What tells the file from others and from itself after a change; `None` where nothing does.
    pub(crate) fn file(&self) -> Option<&FileIdentity> {
        match &self.source {
            Source::Archive { file, .. } => file.as_ref().and_then(|file| file.identity.as_ref()),
            Source::Memory(_) => None,
        }
    }
}

/// Whether Litz has an operator, such as `aten.add.Tensor`, for graphs without a seed.
pub fn has_operator(name: &str) -> bool {
    static TABLE: LazyLock<Table> = LazyLock::new(Table::new);
    TABLE.op(name).is_some() && !TABLE.needs_seed(name)
}

/// The GPUs that tensors of a graph or its subgraphs are on, each with such a tensor's name.
fn gpus_of<'a>(graph: &'a Graph, found: &mut BTreeMap<u32, &'a str>) {
    for value in graph.values.values() {
        if let Type::Tensor(TensorType { device: graph::Device::Cuda(gpu), .. }) = &value.ty {
            found.entry(*gpu).or_insert(&value.name);
        }
    }
    graph.subgraphs.iter().for_each(|graph| gpus_of(graph, found));
}

impl Weights for Model {
    fn get(&self, name: &str) -> Option<Tensor> {
        let archive = match &self.source {
            Source::Archive { archive, .. } => archive,
            Source::Memory(weights) => return weights.get(name).cloned(),
        };
        let w = self.imported.weights.get(name)?;
        if w.is_missing {
            return Tensor::zeros(w.dtype, &w.sizes, &w.strides).ok();
        }
        let offset = w.storage.start + w.offset * w.dtype.size();
        Tensor::from_shared(w.dtype, &w.sizes, &w.strides, archive.bytes().clone(), offset).ok()
    }

    fn release(&self, name: &str) {
        let Source::Archive { file: Some(file), .. } = &self.source else { return };
        // Only the weight's own elements: others of its storage may be in use, or still to be read.
        let Some(bytes) = self.imported.weights.get(name).and_then(Weight::bytes) else { return };
        // SAFETY: the mapping shows a file that this process does not write: pages that leave it are read from there again,
        // with the same bytes. Where the system refuses, nothing changes.
        let _ = unsafe {
            file.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, bytes.start, bytes.len())
        };
    }
}
