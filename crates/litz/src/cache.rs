//! Moves what a cache has of models to other machines, and says why something is not found there.
//!
//! An exported file holds entries with the records that name them: compilations, the hashes of their loops, schedules that tuning found for
//! these, and packed weights. Packed weights are found on this machine by the identity of the model's file, which is nothing elsewhere. They
//! are exported under what the file's directory says of its contents, once its bytes were compared with that.

use crate::backends::backend;
use crate::error::Error;
pub use crate::kept::COMPILER;
use crate::kept::{self, kind, part};
use crate::model::Model;
use crate::options::Options;
use crate::tuned::{self, Tuned, in_table};
use litz_runtime::cache::{
    Access, CacheFile, CacheFileError, FileEntry, Found, MemoryKeys, ObjectCache, OpenError, Payload, Record,
    write_file,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// Why a cache is not exported, imported or looked at.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The options name none.
    #[error("there is no cache\n  = help: LITZ_CACHE_DIR names its folder")]
    None,
    /// It cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its folder cannot be read.
    #[error("cannot read the cache {}: {source}", .folder.display())]
    Read {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Nothing is there to be exported.
    #[error(
        "the cache {} has nothing of this compiler{}\n  = help: `litz run MODEL` keeps what it compiles",
        .folder.display(),
        if *.of_models { " and these models" } else { "" }
    )]
    Nothing {
        /// The folder.
        folder: PathBuf,
        /// Whether models were named.
        of_models: bool,
    },
    /// The file is not written, or not taken.
    #[error(transparent)]
    File(#[from] CacheFileError),
    /// The file is for other machines.
    #[error(
        "{} is for {}, and this machine has {own}\n  = help: export on a machine like this one, or say with --target, --threads or --device \
         which of these is meant",
        .file.display(),
        .found.join(", ")
    )]
    OtherTarget {
        /// The file.
        file: PathBuf,
        /// The targets that it has entries for, with their processors.
        found: Vec<String>,
        /// That of the options.
        own: String,
    },
    /// A model cannot be read, or its target not be compiled for.
    #[error(transparent)]
    Model(#[from] Box<Error>),
}

impl From<Error> for CacheError {
    fn from(error: Error) -> CacheError {
        CacheError::Model(Box::new(error))
    }
}

/// What was exported or imported.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Moved {
    /// Compilations.
    pub programs: usize,
    /// Packed weights.
    pub weights: usize,
    /// Schedules that tuning found.
    pub schedules: usize,
    /// Bytes of all of them.
    pub bytes: u64,
    /// What stayed where it was: packed weights of models that were not named, entries for other targets, schedules that are not faster than
    /// those that are there.
    pub left: usize,
}

impl Moved {
    fn count(&mut self, record: &Record, bytes: u64) {
        let of_kind = |wanted| usize::from(is_of(record, part::KIND, wanted));
        self.programs += of_kind(kind::PROGRAM);
        self.weights += of_kind(kind::WEIGHTS);
        self.schedules += of_kind(kind::SCHEDULE);
        self.bytes += bytes;
    }
}

/// Writes to a file what the cache has of models, for all targets and options; of no models: all compilations and schedules, without packed
/// weights. The file can be read by its owner alone.
///
/// # Errors
/// Where there is nothing to write, and where the bytes of a model's file differ from its checksums.
pub fn export(options: &Options, models: &[Model], path: &Path) -> Result<Moved, CacheError> {
    let cache = open(options, Access::Read)?;
    let records = records(&cache)?;
    let wanted = |model: &Model| {
        let graph = kept::graph_hash(model).map_err(Error::from)?;
        Ok(Record::new([(part::MODEL, model.name()), (part::GRAPH, &*graph)]))
    };
    let wanted: Vec<Record> = models.iter().map(wanted).collect::<Result<_, CacheError>>()?;
    let is_chosen = |record: &&Record| {
        let is_same = |wanted: &Record| wanted.parts().all(|(name, value)| is_of(record, name, value));
        is_of(record, part::COMPILER, COMPILER) && (models.is_empty() || wanted.iter().any(is_same))
    };
    let of_kind = |wanted| records.iter().filter(move |record| is_of(record, part::KIND, wanted));
    let chosen = of_kind(kind::PROGRAM).chain(of_kind(kind::LOOPS)).filter(is_chosen);
    let mut found: Vec<(Record, Payload)> = chosen.filter_map(|record| entry(&cache, record)).collect();
    let loops = found.iter().filter(|(record, _)| is_of(record, part::KIND, kind::LOOPS));
    let loops: BTreeSet<String> =
        loops.map(|(_, payload)| String::from_utf8_lossy(payload.bytes()).into_owned()).collect();
    let schedules = of_kind(kind::SCHEDULE).filter(|record| {
        let is_used = || record.part(part::LOOPS).is_some_and(|of| loops.contains(of));
        is_of(record, part::COMPILER, COMPILER) && (models.is_empty() || is_used())
    });
    let weights = of_kind(kind::WEIGHTS).filter(|record| cache.entry_bytes(record).is_some()).count();
    found.extend(schedules.filter_map(|record| entry(&cache, record)));
    for model in models {
        let more = weights_of(&cache, model, &found)?;
        found.extend(more);
    }
    let folder = cache.folder().to_owned();
    let mut moved = Moved::default();
    found.iter().for_each(|(record, payload)| moved.count(record, payload.bytes().len() as u64));
    if moved.programs + moved.schedules == 0 {
        return Err(CacheError::Nothing { folder, of_models: !models.is_empty() });
    }
    moved.left = if models.is_empty() { weights } else { 0 };
    write_file(path, COMPILER, &found)?;
    Ok(moved)
}

/// The packed weights of a model for the programs among `found`, under the records that other machines find them by.
fn weights_of(
    cache: &ObjectCache,
    model: &Model,
    found: &[(Record, Payload)],
) -> Result<Vec<(Record, Payload)>, CacheError> {
    let programs =
        found.iter().map(|(record, _)| record).filter(|record| is_of(record, part::KIND, kind::PROGRAM));
    let of_program = |program: &Record| {
        let MemoryKeys { own, imported } = kept::memory_keys(program, model);
        let imported = imported?;
        let made = own.and_then(|own| entry(cache, &own));
        let (_, payload) = made.or_else(|| entry(cache, &imported))?;
        Some((imported, payload))
    };
    let weights: Vec<_> = programs.filter_map(of_program).collect();
    if let Some(archive) = model.archive().filter(|_| !weights.is_empty()) {
        archive.paths().try_for_each(|path| archive.check(path)).map_err(Error::from)?;
    }
    Ok(weights)
}

/// Takes from a file what is for the target of these options. Of two schedules for the same loops the faster one stays, where tuning began
/// with the same schedule, else the one that is there.
///
/// # Errors
/// Where the file is damaged, others may have changed it, or it is of another compiler or for other targets: then nothing is taken.
pub fn import(options: &Options, path: &Path) -> Result<Moved, CacheError> {
    let cache = open(options, Access::ReadWrite)?;
    let file = CacheFile::open(path)?;
    file.check_compiler(COMPILER)?;
    let backend = backend(options)?;
    let (target, processor) = (backend.target().to_string(), backend.key());
    let entries: Vec<&FileEntry> = file.entries().iter().collect();
    let is_own = |record: &Record| is_for(record, &target, &processor);
    let programs: BTreeSet<String> = entries
        .iter()
        .map(|entry| &entry.record)
        .filter(|record| is_own(record))
        .map(|it| it.key().to_string())
        .collect();
    let is_wanted = |record: &Record| match record.part(part::PROGRAM) {
        Some(program) => programs.contains(program),
        None => is_own(record),
    };
    let (wanted, others): (Vec<&FileEntry>, Vec<&FileEntry>) =
        entries.into_iter().partition(|entry| is_wanted(&entry.record));
    if wanted.is_empty() {
        let found = targets(others.iter().map(|entry| &entry.record));
        let own = described(&target, Some(&processor));
        return Err(CacheError::OtherTarget { file: path.to_owned(), found, own });
    }
    file.check()?;
    let (taken, kept): (Vec<&FileEntry>, Vec<&FileEntry>) =
        wanted.into_iter().partition(|entry| is_better(&cache, &file, entry));
    let mut moved = Moved { left: others.len() + kept.len(), ..Moved::default() };
    taken.iter().for_each(|entry| moved.count(&entry.record, entry.bytes));
    cache.import(&file, &taken)?;
    Ok(moved)
}

/// Whether an entry is to be taken, whatever the cache has: of schedules those that are faster.
fn is_better(cache: &ObjectCache, file: &CacheFile, entry: &FileEntry) -> bool {
    if !is_of(&entry.record, part::KIND, kind::SCHEDULE) {
        return true;
    }
    let Ok(new) = serde_json::from_slice::<Tuned>(file.payload(entry)) else { return false };
    in_table(cache, &entry.record).is_none_or(|old| new.is_faster(&old))
}

/// Entries of one kind, for one target, in a cache or a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// `program`, `weights`, `loops`, `schedule`; `kernels`: machine code of kernels, which compilations look up.
    pub kind: String,
    /// What they are for; of kernels nobody says.
    pub target: String,
    /// Whether this compiler made them; others' are never found.
    pub is_of_this_compiler: bool,
    /// How many.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// What a folder of a cache holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Info {
    /// The folder.
    pub folder: PathBuf,
    /// Whether nothing changes there.
    pub is_read_only: bool,
    /// Bytes that it may hold.
    pub limit: u64,
    /// Its entries.
    pub rows: Vec<Row>,
}

/// What is in each folder of the cache.
///
/// # Errors
/// Where one cannot be read.
pub fn info(options: &Options) -> Result<Vec<Info>, CacheError> {
    let all: Vec<Info> = options
        .cache_folders()
        .map(|(folder, access)| info_of(&ObjectCache::open(folder.to_owned(), options.cache_bytes, access)?))
        .collect::<Result<_, _>>()?;
    if all.is_empty() { Err(CacheError::None) } else { Ok(all) }
}

fn info_of(cache: &ObjectCache) -> Result<Info, CacheError> {
    let records = records(cache)?;
    let sized = records.iter().filter_map(|record| Some((record, cache.entry_bytes(record)?)));
    let mut rows = rows(sized);
    let all =
        cache.info().map_err(|source| CacheError::Read { folder: cache.folder().to_owned(), source })?;
    let (entries, bytes) =
        rows.iter().fold((0, 0), |(entries, bytes), row| (entries + row.entries, bytes + row.bytes));
    rows.push(Row {
        kind: "kernels".to_owned(),
        target: String::new(),
        is_of_this_compiler: true,
        entries: all.entries.saturating_sub(entries),
        bytes: all.bytes.saturating_sub(bytes),
    });
    rows.retain(|row| row.entries > 0);
    Ok(Info {
        folder: cache.folder().to_owned(),
        is_read_only: cache.access() == Access::Read,
        limit: cache.max_bytes(),
        rows,
    })
}

/// What is in an exported file, and the compiler that made it.
///
/// # Errors
/// As [`import`], but for other targets and compilers.
pub fn file_info(path: &Path) -> Result<(String, Vec<Row>), CacheError> {
    let file = CacheFile::open(path)?;
    file.check()?;
    let mut rows = rows(file.entries().iter().map(|entry| (&entry.record, entry.bytes)));
    let is_of_this_compiler = file.check_compiler(COMPILER).is_ok();
    rows.iter_mut().for_each(|row| row.is_of_this_compiler = is_of_this_compiler);
    Ok((file.compiler().to_owned(), rows))
}

fn rows<'a>(entries: impl Iterator<Item = (&'a Record, u64)>) -> Vec<Row> {
    let entries: Vec<(&Record, u64)> = entries.collect();
    let programs: BTreeMap<String, &Record> =
        entries.iter().map(|(record, _)| (record.key().to_string(), *record)).collect();
    let mut counted: BTreeMap<(String, String, bool), (usize, u64)> = BTreeMap::new();
    for (record, bytes) in entries {
        let program = record.part(part::PROGRAM).and_then(|key| programs.get(key).copied());
        let of = |name| record.part(name).or_else(|| program?.part(name)).unwrap_or_default().to_owned();
        let key = (of(part::KIND), of(part::TARGET), of(part::COMPILER) == COMPILER);
        let row = counted.entry(key).or_default();
        *row = (row.0 + 1, row.1 + bytes);
    }
    let row = |((kind, target, is_of_this_compiler), (entries, bytes))| Row {
        kind,
        target,
        is_of_this_compiler,
        entries,
        bytes,
    };
    counted.into_iter().map(row).collect()
}

/// Whether something of a model is found in the cache, and why not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is there.
    Hit,
    /// Nothing is looked up, or kept.
    NotKept {
        /// Why.
        why: &'static str,
    },
    /// It was kept, and is gone: evicted, or removed because it was damaged.
    Evicted,
    /// It differs from what was written.
    Damaged,
    /// It was kept in another boot of the system.
    OtherBoot,
    /// The nearest entry is of another key.
    Differs(Vec<Difference>),
    /// There is nothing like it.
    NeverSeen,
}

/// A part of a key that differs from the nearest entry's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Its name.
    pub part: String,
    /// What is looked for.
    pub here: String,
    /// What is there.
    pub there: String,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Hit => f.write_str("is there"),
            Answer::NotKept { why } => f.write_str(why),
            Answer::Evicted => {
                f.write_str("was there, and has been evicted, or removed because it was damaged")
            }
            Answer::Damaged => f.write_str("is damaged"),
            Answer::OtherBoot => {
                f.write_str("was kept before the system was started, and may not be complete")
            }
            Answer::Differs(differences) => {
                let all: Vec<String> = differences.iter().map(ToString::to_string).collect();
                write!(f, "the nearest entry has {}", all.join("; "))
            }
            Answer::NeverSeen => f.write_str("there is nothing like it"),
        }
    }
}

/// Parts of keys that say nothing to people.
const HASHED: [&str; 5] = [part::GRAPH, part::PROGRAM, part::CONTENTS, part::FILE, part::LOOPS];

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { part, here, there } = self;
        match HASHED.contains(&&**part) {
            true => write!(f, "another {part}"),
            false => write!(f, "{part} `{there}`, not `{here}`"),
        }
    }
}

/// What a start with a model and these options finds in the cache: its compilation, its packed weights, and a schedule that tuning found.
///
/// # Errors
/// Where there is no cache, and where the model cannot be compiled for the target.
pub fn why(model: &Model, options: &Options) -> Result<[(&'static str, Answer); 3], CacheError> {
    let cache = open(options, Access::Read)?;
    let (options, backend) = (&*model.scheduled(options)?, backend(options)?);
    let records = records(&cache)?;
    let program = kept::program_record(model, &*backend, options).map_err(Error::from)?;
    let keys = kept::memory_keys(&program, model);
    let table = Table { cache: &cache, records: &records };
    let not_kept = kept::runs_every_stage(options).then_some(Answer::NotKept {
        why: "every stage runs, to be verified pass by pass or written down: nothing is looked up",
    });
    let schedule = tuned::record(model, options, &cache)?;
    Ok([
        (kind::PROGRAM, not_kept.clone().unwrap_or_else(|| table.answer(&program, is_near_program))),
        (kind::WEIGHTS, not_kept.unwrap_or_else(|| table.weights(&keys))),
        (kind::SCHEDULE, table.answer(&schedule, is_near_schedule)),
    ])
}

/// Entries, and the records of those that are there or were.
struct Table<'a> {
    cache: &'a ObjectCache,
    records: &'a [Record],
}

impl Table<'_> {
    fn answer(&self, wanted: &Record, is_near: fn(&[Difference]) -> bool) -> Answer {
        match self.cache.find(wanted) {
            Found::Whole(_) => return Answer::Hit,
            Found::Damaged => return Answer::Damaged,
            Found::OtherBoot => return Answer::OtherBoot,
            Found::Nothing if self.records.contains(wanted) => return Answer::Evicted,
            Found::Nothing => {}
        }
        let is_there = |record: &&Record| {
            record.part(part::KIND) == wanted.part(part::KIND) && self.cache.entry_bytes(record).is_some()
        };
        let others = self.records.iter().filter(is_there).map(|record| differences(wanted, record));
        let nearest = others.filter(|found| is_near(found)).min_by_key(Vec::len);
        nearest.map_or(Answer::NeverSeen, Answer::Differs)
    }

    fn weights(&self, keys: &MemoryKeys) -> Answer {
        let Some(imported) = &keys.imported else {
            return Answer::NotKept {
                why: "the model's weights are in memory, and are packed at each start",
            };
        };
        if let Answer::Hit = self.answer(imported, |_| false) {
            return Answer::Hit;
        }
        let Some(own) = &keys.own else {
            return Answer::NotKept { why: "the model's file changed less than two seconds ago" };
        };
        self.answer(own, is_near_weights)
    }
}

/// Whether an entry that differs so is another compilation of the same graph, or one of a graph that had the same name and options.
fn is_near_program(differences: &[Difference]) -> bool {
    differences.len() == 1 || differences.iter().all(|difference| difference.part != part::GRAPH)
}

/// Whether packed weights that differ so are of the same program or of the same contents.
fn is_near_weights(differences: &[Difference]) -> bool {
    let differs = |name| differences.iter().any(|difference| difference.part == name);
    !(differs(part::PROGRAM) && differs(part::CONTENTS))
}

/// Whether a schedule that differs so is of the same loops.
fn is_near_schedule(differences: &[Difference]) -> bool {
    differences.iter().all(|difference| difference.part != part::LOOPS)
}

/// The parts of a key that another one has otherwise. Of options those that differ are named.
fn differences(here: &Record, there: &Record) -> Vec<Difference> {
    let mut differences = Vec::new();
    for (name, here) in here.parts() {
        let there = there.part(name).unwrap_or_default();
        if here != there {
            let (here, there) = match name == part::OPTIONS {
                true => (without(here, there), without(there, here)),
                false => (here.to_owned(), there.to_owned()),
            };
            differences.push(Difference { part: name.to_owned(), here, there });
        }
    }
    differences
}

/// Those of the fields in a text of options that another one lacks.
fn without(options: &str, other: &str) -> String {
    // `inlining: Inlining { cheap: 4` => `cheap: 4`
    fn fields(text: &str) -> impl Iterator<Item = &str> {
        text.split(", ").map(|item| item.rsplit("{ ").next().unwrap_or(item).trim_end_matches([' ', '}']))
    }
    let other: BTreeSet<&str> = fields(other).collect();
    fields(options).filter(|field| !other.contains(field)).collect::<Vec<_>>().join(", ")
}

/// The cache of these options.
fn open(options: &Options, access: Access) -> Result<ObjectCache, CacheError> {
    options.open_cache(access)?.ok_or(CacheError::None)
}

fn records(cache: &ObjectCache) -> Result<Vec<Record>, CacheError> {
    cache.records().map_err(|source| CacheError::Read { folder: cache.folder().to_owned(), source })
}

/// What is there of a record, with it.
fn entry(cache: &ObjectCache, record: &Record) -> Option<(Record, Payload)> {
    match cache.find(record) {
        Found::Whole(payload) => Some((record.clone(), payload)),
        Found::Nothing | Found::Damaged | Found::OtherBoot => None,
    }
}

fn is_of(record: &Record, name: &str, value: &str) -> bool {
    record.part(name) == Some(value)
}

/// Whether an entry is for a target, and where it says so for its processor. Schedules are for all processors of a target.
fn is_for(record: &Record, target: &str, processor: &str) -> bool {
    is_of(record, part::TARGET, target) && record.part(part::PROCESSOR).is_none_or(|found| found == processor)
}

/// The targets that entries are for.
fn targets<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<String> {
    let of = |record: &Record| Some(described(record.part(part::TARGET)?, record.part(part::PROCESSOR)));
    let targets: BTreeSet<String> = records.filter_map(of).collect();
    targets.into_iter().collect()
}

/// `cpu(isa=avx2, threads=2) on znver3 (3f9a12cd)`: the number tells processors of one name apart, whose features are a long list.
fn described(target: &str, processor: Option<&str>) -> String {
    let Some(processor) = processor else { return target.to_owned() };
    let name = processor.split_once("cpu: \"").and_then(|(_, rest)| rest.split('"').next());
    let number = kept::hash(&processor);
    format!("{target} on {} ({number:.8})", name.unwrap_or("a processor"))
}
