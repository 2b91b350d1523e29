//! Keeps compilations in the cache, for the next process that compiles the same, and says what their keys are made of.

use crate::code::{Code, contents};
use crate::model::Model;
use crate::options::{Options, Verify};
use litz_backend::Backend;
use litz_codegen::Realized;
use litz_import::ImportError;
use litz_runtime::artifact::{self, Artifact};
use litz_runtime::cache::{CacheKey, MemoryKeys, ObjectCache, Record};
use litz_runtime::program::ConstantSource;
use litz_runtime::{GuardPages, Limits};
use std::fmt::Display;
use std::sync::Arc;

/// Tells this compiler from those that may make something else of the same model.
pub const COMPILER: &str = concat!(env!("CARGO_PKG_VERSION"), " (sources ", env!("LITZ_SOURCES"), ")");

/// The kinds of entries, which are the first part of their records.
pub(crate) mod kind {
    /// Program, kernels and machine code.
    pub(crate) const PROGRAM: &str = "program";
    /// What load steps make of the weights.
    pub(crate) const WEIGHTS: &str = "weights";
    /// The hash of a program's loops.
    pub(crate) const LOOPS: &str = "loops";
    /// A schedule that tuning found for loops.
    pub(crate) const SCHEDULE: &str = "schedule";
}

/// The names of parts of records that are read again.
pub(crate) mod part {
    pub(crate) const KIND: &str = "kind";
    pub(crate) const COMPILER: &str = "compiler";
    pub(crate) const MODEL: &str = "model";
    pub(crate) const GRAPH: &str = "graph";
    pub(crate) const TARGET: &str = "target";
    pub(crate) const PROCESSOR: &str = "processor";
    pub(crate) const OPTIONS: &str = "options";
    /// The key of a program.
    pub(crate) const PROGRAM: &str = "program";
    pub(crate) const LOOPS: &str = "loops";
    pub(crate) const CONTENTS: &str = "contents";
    pub(crate) const FILE: &str = "file";
}

/// The places in the cache of one model compiled with one set of options.
pub(crate) struct Kept<'a> {
    cache: &'a ObjectCache,
    program: Record,
    memory: MemoryKeys,
}

impl<'a> Kept<'a> {
    /// `None` where nothing is to be kept, or every stage is to run: to be verified pass by pass, or written down.
    pub fn new(
        model: &Model,
        backend: &dyn Backend,
        options: &Options,
        cache: &'a ObjectCache,
    ) -> Option<Kept<'a>> {
        if runs_every_stage(options) {
            return None;
        }
        let program = program_record(model, backend, options).ok()?;
        Some(Kept { cache, memory: memory_keys(&program, model), program })
    }

    /// Where what load steps make of the weights is kept.
    pub fn memory(&self) -> (&'a ObjectCache, &MemoryKeys) {
        (self.cache, &self.memory)
    }

    /// What an earlier compilation gave. Entries that cannot be read are none.
    pub fn find(&self) -> Option<(Realized, Code)> {
        let artifact = Artifact::from_bytes(Arc::new(self.cache.get(self.program.key())?)).ok()?;
        contents(&artifact).ok()
    }

    /// Keeps what a compilation gave. A full or read-only disk costs the next start its time, nothing else.
    pub fn put(&self, realized: &Realized, code: &Code) {
        let bytes = artifact::to_bytes(&code.parts(realized, ConstantSource::Model));
        let _ = self.cache.put_recorded(&self.program, &bytes);
    }

    /// What [`hash`] says of the program's loops, where [`Kept::put_loops`] has kept it.
    pub fn loops(&self) -> Option<String> {
        String::from_utf8(self.cache.get(loops_record(&self.program).key())?).ok()
    }

    /// Keeps the hash of the program's loops, so that what belongs to them is found without a stage that runs.
    pub fn put_loops(&self, loops: &str) {
        let _ = self.cache.put_recorded(&loops_record(&self.program), loops.as_bytes());
    }
}

/// Whether a compilation is to be verified pass by pass, or written down: what was kept is of no use then.
pub(crate) fn runs_every_stage(options: &Options) -> bool {
    options.verify == Verify::Passes || options.dump.is_some()
}

/// Stands for a text of any length.
pub(crate) fn hash(text: &impl Display) -> String {
    CacheKey::new(&[text.to_string().as_bytes()]).to_string()
}

/// Everything that the result of a compilation depends on. The bytes of weights are not among it.
///
/// # Errors
/// Where the model's archive is damaged.
pub(crate) fn program_record(
    model: &Model,
    backend: &dyn Backend,
    options: &Options,
) -> Result<Record, ImportError> {
    // Every option counts but those that say what happens around the compilation, and those that have parts of their own.
    let neutral = Options {
        model: None,
        target: None,
        // The backend's key says which kind of device it is.
        device_number: 0,
        bind: true,
        pool: None,
        verify: Verify::Nothing,
        cache: None,
        cache_bytes: 0,
        cache_read_only: false,
        shared_cache: None,
        dump: None,
        profile: false,
        limits: Limits::default(),
        guard_pages: GuardPages::Off,
        verify_memory: false,
        check_nan: false,
        perf: false,
        schedule: None,
        tuned: false,
        stop: None,
        ..options.clone()
    };
    let schedule = options.schedule.as_ref().map_or("the scheduler's".to_owned(), |given| hash(&given.text));
    let declared: Vec<String> = model.imported.graph.ops.iter().map(ToString::to_string).collect();
    Ok(Record::new([
        (part::KIND, kind::PROGRAM),
        (part::COMPILER, COMPILER),
        // Models of one archive may be equal but for their weights.
        (part::MODEL, model.name()),
        (part::GRAPH, &*graph_hash(model)?),
        ("operators", &*format!("{declared:?}")),
        (part::TARGET, &*backend.target().to_string()),
        (part::PROCESSOR, &*backend.key()),
        (part::OPTIONS, &*format!("{neutral:?}")),
        ("schedule", &*schedule),
    ]))
}

/// Stands for a model's graph, and for the types of its weights.
///
/// # Errors
/// Where the model's archive is damaged.
pub(crate) fn graph_hash(model: &Model) -> Result<String, ImportError> {
    let Some(archive) = model.archive() else { return Ok(hash(&model.imported.graph)) };
    let name = model.name();
    let described = [
        format!("models/{name}.json"),
        format!("data/weights/{name}_weights_config.json"),
        format!("data/constants/{name}_constants_config.json"),
    ];
    let text = |path: &String| archive.range(path).map_or(Ok(""), |_| archive.text(path));
    let texts = described.iter().map(|path| text(path).map(str::as_bytes)).collect::<Result<Vec<_>, _>>()?;
    Ok(CacheKey::new(&texts).to_string())
}

/// What stands for the bytes of weights, which are too many to hash: on this machine the identity of the file that they lie in, and
/// anywhere where each entry lies in the file, with the checksum that the file's directory gives.
pub(crate) fn memory_keys(program: &Record, model: &Model) -> MemoryKeys {
    let Some(archive) = model.archive() else { return MemoryKeys { own: None, imported: None } };
    let mut contents = format!("{} bytes\n", (**archive.bytes()).as_ref().len());
    for path in archive.paths() {
        contents += &format!("{path} {:?} {:?}\n", archive.range(path), archive.checksum(path));
    }
    let (program, contents) = (program.key().to_string(), hash(&contents));
    let parts = [(part::KIND, kind::WEIGHTS), (part::PROGRAM, &*program), (part::CONTENTS, &*contents)];
    let own = model.file().map(|file| {
        let file = format!("{file:?}");
        Record::new(parts.into_iter().chain([(part::FILE, &*file)]))
    });
    // What is mapped from nowhere has nothing to be packed for the next start, and what is mapped from a file can be packed elsewhere.
    MemoryKeys { own, imported: model.is_of_file().then(|| Record::new(parts)) }
}

/// Where the hash of a program's loops is kept: as [`program_record`], of another kind.
fn loops_record(program: &Record) -> Record {
    program.with(part::KIND, kind::LOOPS)
}

/// Where the schedule is kept that tuning found for loops, by their hash.
pub(crate) fn schedule_record(loops: &str, target: &str) -> Record {
    Record::new([
        (part::KIND, kind::SCHEDULE),
        (part::COMPILER, COMPILER),
        (part::TARGET, target),
        (part::LOOPS, loops),
    ])
}
