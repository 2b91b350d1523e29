//! Counts what a GPU would be slow by: sectors and rounds of banks that accesses of warps take, executed acts, bytes of memory.
//!
//! A warp accesses memory together: the accesses of one act by the lanes of a warp, at the same iterations of the loops around, are one.
//! Adjacent elements of a vector loop, up to 16 bytes of a thread, are one access, too, and what a team copies in the background is one
//! box. Global memory answers in sectors of 32 bytes. Shared memory has 32 banks of 4 bytes, which serve a warp at once: threads that
//! access different words of one bank come one after the other, and those that access one word come together.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use litz_ir::kernel::MemorySpace;
use litz_ir::target::Gpu;

use super::code::{Memory, Node};
use super::threads::{Here, ThreadRange};

/// Bytes of a sector of global memory.
const SECTOR: usize = 32;
/// Bytes of a word of shared memory, and its banks.
const WORD: usize = 4;
const BANKS: usize = 32;
/// Rows and reduced points of a matrix that an instruction loads from shared memory at once: eight rows of 16 bytes.
const ROWS: i64 = 8;

/// What was taken to serve accesses, and what as many bytes take at least.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Served {
    /// What was taken.
    pub taken: u64,
    /// The least for the distinct bytes of each access, wherever they are; where data says which elements these are, for each run of adjacent
    /// ones.
    pub least: u64,
}

impl Served {
    /// How many times the least was taken; 1 where nothing was.
    pub fn ratio(self) -> f64 {
        if self.least == 0 { 1.0 } else { self.taken as f64 / self.least as f64 }
    }

    fn add(&mut self, other: Served) {
        self.taken += other.taken;
        self.least += other.least;
    }
}

/// What launches of a kernel took.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Launches.
    pub launches: u64,
    /// Sectors of global memory that loads touched.
    pub loads: Served,
    /// Sectors of global memory that stores touched.
    pub stores: Served,
    /// Rounds of accesses to shared memory.
    pub banks: Served,
    /// Acts of each kind that threads executed; of an instruction of a team the products.
    pub acts: BTreeMap<&'static str, u64>,
    /// Bytes that were copied in the background.
    pub async_bytes: u64,
    /// Bytes of registers that a thread has stored to, at most.
    pub register_bytes: u64,
    /// Bytes of memory that the threads of a block share.
    pub shared_bytes: u64,
}

impl Counts {
    /// Sectors of all accesses to global memory.
    pub fn sectors(&self) -> Served {
        let mut both = self.loads;
        both.add(self.stores);
        both
    }

    /// Adds what other launches took.
    pub fn add(&mut self, other: &Counts) {
        self.launches += other.launches;
        self.loads.add(other.loads);
        self.stores.add(other.stores);
        self.banks.add(other.banks);
        other.acts.iter().for_each(|(kind, count)| *self.acts.entry(kind).or_default() += count);
        self.async_bytes += other.async_bytes;
        self.register_bytes = self.register_bytes.max(other.register_bytes);
        self.shared_bytes = self.shared_bytes.max(other.shared_bytes);
    }
}

/// What one access of a warp consists of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Access {
    /// The act, by its address.
    act: usize,
    mem: usize,
    is_store: bool,
    warp: u32,
    /// The iterations of the loops around.
    path: u64,
    /// Which part of what a thread accesses there.
    part: [i64; 3],
    /// It is by an instruction of a team, for rows, columns and reduced points.
    is_matrix: bool,
    /// Data says which elements.
    is_chosen: bool,
}

/// Who makes an access.
#[derive(Clone, Copy)]
pub(super) struct By {
    /// The threads around.
    pub(super) range: ThreadRange,
    /// The row, column and reduced point that an instruction of theirs comes to.
    pub(super) at: [Option<i64>; 3],
}

impl By {
    /// The threads that run what is next.
    pub(super) fn of(here: &Here) -> By {
        By { range: here.current(), at: here.at() }
    }
}

/// Which iterations of loops around are running.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    path: u64,
    /// What the path was where the team began that runs.
    team: u64,
    /// The iteration of the vector loop around.
    vector: Option<i64>,
}

/// Counts of a run, and the accesses that are not complete.
#[derive(Default)]
pub(super) struct Counter {
    pub(super) counts: Counts,
    /// Threads of a block.
    threads: u32,
    act: usize,
    is_box: bool,
    is_chosen: bool,
    pub(super) place: Place,
    /// Bytes at which elements begin, by access.
    elements: HashMap<Access, Vec<usize>>,
    /// Where what a thread accesses in a vector loop ends.
    ends: HashMap<(Access, u32), usize>,
}

impl Counter {
    /// A point of the grid begins, whose blocks have so many threads.
    pub(super) fn begin_point(&mut self, threads: u32) {
        (self.threads, self.place) = (threads, Place::default());
    }

    /// What comes next is this act, by these threads.
    pub(super) fn begin(&mut self, node: &Node, by: By) {
        let Some(kind) = kind(node) else { return };
        self.act = std::ptr::from_ref(node).addr();
        self.is_box = matches!(node, Node::Move { is_async: true, .. }) && by.range.single().is_none();
        self.is_chosen =
            matches!(node, Node::Load { place, .. } | Node::Store { place, .. } if place.is_chosen);
        let is_product = matches!(node, Node::Store { .. } | Node::MulAdd { .. });
        let (kind, times) = match by.at {
            [None, None, None] if let Node::MultiplyFragments(product) = node => {
                (kind, product.shape.into_iter().product::<i64>().unsigned_abs())
            }
            [None, None, None] => (kind, u64::from(by.range.within(self.threads))),
            _ if is_product => ("product", 1),
            _ => return,
        };
        *self.counts.acts.entry(kind).or_default() += times;
    }

    /// An iteration of a loop begins, of `width` adjacent ones that belong together. Returns what was around.
    pub(super) fn enter(&mut self, node: usize, iteration: i64, width: i64) -> Place {
        let around = self.place;
        let mut hasher = DefaultHasher::new();
        (around.path, node, iteration / width).hash(&mut hasher);
        self.place.path = hasher.finish();
        if width > 1 {
            self.place.vector = Some(iteration % width);
        }
        around
    }

    /// A team begins to run. Returns what was around.
    pub(super) fn enter_team(&mut self) -> Place {
        let around = self.place;
        self.place.team = around.path;
        around
    }

    /// Threads access an element at a position, which is counted in elements.
    pub(super) fn note(&mut self, mem: usize, memory: &Memory, at: usize, is_store: bool, by: By) {
        let bytes = memory.dtype.size();
        let at = match (memory.space, memory.swizzle) {
            (MemorySpace::Shared, Some(swizzle)) => {
                usize::try_from(swizzle.place(at as i64, bytes)).unwrap_or(at)
            }
            _ => at,
        };
        let is_counted = match memory.space {
            MemorySpace::Read
            | MemorySpace::Constant
            | MemorySpace::Write
            | MemorySpace::Update
            | MemorySpace::Global => true,
            // A box is written by what copies it, not by lanes.
            MemorySpace::Shared => !self.is_box,
            MemorySpace::Number
            | MemorySpace::Register
            | MemorySpace::Scratch
            | MemorySpace::Own
            | MemorySpace::Cluster => false,
        };
        if !is_counted {
            return;
        }
        let path = if self.is_box { self.place.team } else { self.place.path };
        let (act, is_chosen) = (self.act, self.is_chosen);
        let mut access =
            Access { act, mem, is_store, warp: 0, path, part: [0; 3], is_matrix: false, is_chosen };
        let byte = at * bytes;
        if let [Some(row), Some(column), Some(point)] = by.at {
            access.is_matrix = true;
            if memory.space == MemorySpace::Shared {
                access.part = [row / ROWS, column / ROWS, point * bytes as i64 / 16];
            }
            access.warp = by.range.first / Gpu::LANES;
            self.elements.entry(access).or_default().push(byte);
            return;
        }
        // Where a team stores, its first thread does.
        let warps = by.range.warps_within(self.threads);
        let count = if is_store || self.is_box { 1 } else { warps.len() };
        for warp in warps.take(count) {
            access.warp = warp;
            if let Some(iteration) = self.place.vector {
                let most = (16 / bytes).max(1) as i64;
                access.part = [iteration / most, 0, 0];
                let thread = (access, by.range.first);
                let end = self.ends.entry(thread).or_insert(byte);
                if *end != byte {
                    access.part = [iteration / most, iteration + 1, 0];
                }
                *end = byte + bytes;
            }
            self.elements.entry(access).or_default().push(byte);
        }
    }

    /// Bytes are copied in the background.
    pub(super) fn copies(&mut self, bytes: usize) {
        self.counts.async_bytes += bytes as u64;
    }

    /// All threads of the teams that were running are done: their accesses are complete.
    pub(super) fn complete(&mut self, mems: &[Memory]) {
        self.ends.clear();
        let mut loaded = HashSet::new();
        for (access, mut begins) in self.elements.drain() {
            begins.sort_unstable();
            begins.dedup();
            let memory = &mems[access.mem];
            let bytes = memory.dtype.size();
            // What an instruction loads for several rows or columns it loads once.
            if access.is_matrix
                && !loaded.insert((access.act, access.mem, access.path, access.warp, begins.clone()))
            {
                continue;
            }
            if memory.space == MemorySpace::Shared {
                self.counts.banks.add(rounds(&begins, bytes));
            } else {
                let served = sectors(&begins, bytes, access.is_chosen);
                if access.is_store { &mut self.counts.stores } else { &mut self.counts.loads }.add(served);
            }
        }
    }
}

/// Parts of so many bytes that elements are in, each one once.
fn parts(begins: &[usize], bytes: usize, of: usize) -> Vec<usize> {
    let mut parts: Vec<usize> = begins.iter().flat_map(|at| at / of..=(at + bytes - 1) / of).collect();
    parts.sort_unstable();
    parts.dedup();
    parts
}

/// Sectors of elements that begin at these bytes, in their order; where data chose them, nobody could have put runs of them side by side.
fn sectors(begins: &[usize], bytes: usize, is_chosen: bool) -> Served {
    let taken = parts(begins, bytes, SECTOR).len() as u64;
    let least = |elements: usize| (elements * bytes).div_ceil(SECTOR) as u64;
    let of_runs = || begins.chunk_by(|one, next| one + bytes == *next).map(|run| least(run.len())).sum();
    let least = if is_chosen { taken.min(of_runs()) } else { least(begins.len()) };
    Served { taken, least }
}

fn rounds(begins: &[usize], bytes: usize) -> Served {
    let words = parts(begins, bytes, WORD);
    let mut of_bank = [0_u64; BANKS];
    words.iter().for_each(|word| of_bank[word % BANKS] += 1);
    Served {
        taken: of_bank.into_iter().max().unwrap_or(0),
        least: (words.len() as u64).div_ceil(BANKS as u64),
    }
}

/// What an act is counted as; none for structure.
fn kind(node: &Node) -> Option<&'static str> {
    Some(match node {
        Node::Loop { .. } | Node::Level { .. } | Node::Instruction { .. } | Node::If { .. } => return None,
        Node::Sync(_) | Node::Acquire { .. } | Node::Release { .. } => "sync",
        Node::Load { .. } | Node::Lookup { .. } => "load",
        Node::Store { .. } | Node::ArgStore { .. } | Node::Zero { .. } => "store",
        Node::MulAdd { .. } | Node::Products { .. } => "product",
        Node::LoadFragment(_) => "fragment",
        Node::MultiplyFragments(_) => "product",
        Node::Lanes(_) => "reduction",
        Node::Move { .. } => "copy",
        Node::Const { .. }
        | Node::Index { .. }
        | Node::Cond { .. }
        | Node::Call { .. }
        | Node::Cast { .. }
        | Node::Copy { .. }
        | Node::Bind { .. } => "compute",
        Node::Prefetch { .. } => "hint",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_take_the_sectors_and_rounds_that_their_bytes_are_in() {
        let every = |count: usize, bytes: usize| -> Vec<usize> { (0..count).map(|at| at * bytes).collect() };
        assert_eq!(sectors(&every(32, 4), 4, false), Served { taken: 4, least: 4 });
        assert_eq!(sectors(&every(32, 32), 4, false), Served { taken: 32, least: 4 });
        assert_eq!(sectors(&every(32, 32), 4, true), Served { taken: 32, least: 32 });
        assert_eq!(sectors(&[0, 4, 28, 32], 4, true), Served { taken: 2, least: 2 });
        assert_eq!(sectors(&[0, 8], 4, true), Served { taken: 1, least: 1 });
        let odd: Vec<usize> = every(32, 4).iter().map(|at| at + 4).collect();
        assert_eq!(sectors(&odd, 4, false), Served { taken: 5, least: 4 });
        assert_eq!(sectors(&[6], 2, false), Served { taken: 1, least: 1 });
        assert_eq!(rounds(&every(32, 4), 4), Served { taken: 1, least: 1 });
        assert_eq!(rounds(&every(32, 128), 4), Served { taken: 32, least: 1 });
        assert_eq!(rounds(&every(32, 2), 2), Served { taken: 1, least: 1 }, "halves of a word come together");
        assert_eq!(rounds(&every(32, 8), 8), Served { taken: 2, least: 2 });
    }
}
