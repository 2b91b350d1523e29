//! Keeps compilations in the cache, for the next process that compiles the same.

use crate::code::{Code, contents};
use crate::given::GivenSchedule;
use crate::model::Model;
use crate::options::{Options, Verify};
use litz_backend::Backend;
use litz_codegen::Realized;
use litz_import::ImportError;
use litz_runtime::artifact::{self, Artifact};
use litz_runtime::cache::{CacheKey, ObjectCache};
use litz_runtime::program::ConstantSource;
use litz_runtime::{GuardPages, Limits};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::sync::Arc;

/// The places in the cache of one model compiled with one set of options.
pub(crate) struct Kept<'a> {
    cache: &'a ObjectCache,
    key: CacheKey,
    /// Of what load steps make of the weights.
    memory: Option<CacheKey>,
}

impl<'a> Kept<'a> {
    /// `None` where nothing is to be kept, or every stage is to run: to be verified pass by pass, or written down.
    pub fn new(
        model: &Model,
        backend: &dyn Backend,
        options: &Options,
        cache: &'a ObjectCache,
    ) -> Option<Kept<'a>> {
        if options.verify == Verify::Passes || options.dump.is_some() {
            return None;
        }
        let key = key(model, backend, options).ok()?;
        Some(Kept { cache, key, memory: memory_key(&key, model) })
    }

    /// Where what load steps make of the weights is kept.
    pub fn memory(&self) -> Option<(&'a ObjectCache, &CacheKey)> {
        Some((self.cache, self.memory.as_ref()?))
    }

    /// What an earlier compilation gave. Entries that cannot be read are none.
    pub fn find(&self) -> Option<(Realized, Code)> {
        let artifact = Artifact::from_bytes(Arc::new(self.cache.get(&self.key)?)).ok()?;
        contents(&artifact).ok()
    }

    /// Keeps what a compilation gave. A full or read-only disk costs the next start its time, nothing else.
    pub fn put(&self, realized: &Realized, code: &Code) {
        let _ = self.cache.put(&self.key, &artifact::to_bytes(&code.parts(realized, ConstantSource::Model)));
    }

    /// What [`Kept::put_note`] kept under a name.
    pub fn note<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_slice(&self.cache.get(&self.key.and(&[name.as_bytes()]))?).ok()
    }

    /// Keeps something beside the compilation, under a name.
    pub fn put_note<T: Serialize>(&self, name: &str, note: &T) {
        let key = self.key.and(&[name.as_bytes()]);
        let _ = serde_json::to_vec(note).map(|bytes| self.cache.put(&key, &bytes));
    }
}

/// Everything that the result of a compilation depends on. The bytes of weights are not among it.
fn key(model: &Model, backend: &dyn Backend, options: &Options) -> Result<CacheKey, ImportError> {
    let name = model.name();
    let texts = match model.archive() {
        Some(archive) => {
            let described = [
                format!("models/{name}.json"),
                format!("data/weights/{name}_weights_config.json"),
                format!("data/constants/{name}_constants_config.json"),
            ];
            let text = |path: &String| archive.range(path).map_or(Ok(""), |_| archive.text(path));
            described.iter().map(|path| text(path).map(Cow::Borrowed)).collect::<Result<Vec<_>, _>>()?
        }
        None => vec![Cow::Owned(model.imported.graph.to_string())],
    };
    // Every option counts but those that say what happens around the compilation.
    let neutral = Options {
        model: None,
        // The backend's key says which kind of device it is.
        device_number: 0,
        bind: true,
        pool: None,
        verify: Verify::Nothing,
        cache: None,
        cache_bytes: 0,
        dump: None,
        profile: false,
        limits: Limits::default(),
        guard_pages: GuardPages::Off,
        verify_memory: false,
        check_nan: false,
        perf: false,
        schedule: options.schedule.clone().map(|given| GivenSchedule { name: String::new(), ..given }),
        ..options.clone()
    };
    let (target, options) = (format!("{} {:?}", backend.key(), backend.target()), format!("{neutral:?}"));
    let declared: Vec<String> = model.imported.graph.ops.iter().map(ToString::to_string).collect();
    let options = format!("{options}{declared:?}");
    let compiler = [env!("CARGO_PKG_VERSION"), env!("LITZ_SOURCES")];
    // Models of one archive may be equal but for their weights.
    let texts = texts.iter().map(|text| &**text);
    let parts = texts.chain([name, &*target, &*options]).chain(compiler).chain(["program"]);
    Ok(CacheKey::new(&parts.map(str::as_bytes).collect::<Vec<_>>()))
}

/// As [`key`], with what stands for the bytes of weights, which are too many to hash: the identity of the file that they
/// lie in, and where each entry lies there, with the checksum that the file's directory gives.
fn memory_key(key: &CacheKey, model: &Model) -> Option<CacheKey> {
    let (file, archive) = (model.file()?, model.archive()?);
    let entries =
        archive.paths().map(|path| format!("{path} {:?} {:?}", archive.range(path), archive.checksum(path)));
    let parts: Vec<String> = [format!("{file:?}")].into_iter().chain(entries).collect();
    Some(key.and(&parts.iter().map(String::as_bytes).collect::<Vec<_>>()))
}
