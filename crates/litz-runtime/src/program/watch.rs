//! Watches the memory of calls: that buffers which are in use at the same time lie apart, and that nothing is read which nobody wrote.
//!
//! The verifier of programs proves as much from the text, for all sizes, of whole buffers. This looks at addresses and elements while a call
//! runs, so that it finds what is wrong between the two: in the plan for given sizes, in kernels, and in what these leave out.
//!
//! A buffer lives from the first step that writes to it to the last that uses it. When its life begins, it is filled with a pattern, and
//! what still has that pattern when a step has written to it are *gaps*, if the step leaves them alone a second time, with another pattern
//! there. Buffers may have gaps: lines between the rows of a panel, or parts that later steps write. A step that reads a buffer with gaps
//! is run twice, with other patterns in them, and has to give the same results bit by bit:
//!
//! ```text
//! launch @k0(x, a)     // writes a[0..7] of 8: a[7] is a gap
//! launch @k1(a, y)     // y = a + 1, run twice: y[7] differs, so that a[7] is read
//! ```
//!
//! When its life ends, a buffer is filled once more, so that who still reads it computes nonsense.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use litz_ir::program::Access;

use super::plan::{Address, Begin, WatchedCommand};
use crate::error::RunError;

/// Bytes of which elements are made that nothing has written, in turn: a large number, and one that is none.
pub(super) const PATTERNS: [u8; 2] = [0x7f, 0xff];

/// The buffers that are in use while a call runs.
#[derive(Default)]
pub(super) struct Watch {
    alive: HashMap<usize, Alive>,
}

struct Alive {
    name: String,
    start: *mut u8,
    bytes: usize,
    /// Bytes of an element.
    element: usize,
    /// Bytes that nothing has written, from its start; they hold a pattern.
    gaps: Vec<Range<usize>>,
    /// Which of the patterns.
    pattern: usize,
}

/// A use with its address.
#[derive(Clone, Copy)]
pub(super) struct Touched {
    pub(super) buffer: usize,
    pub(super) start: *mut u8,
    pub(super) bytes: usize,
    pub(super) element: usize,
    pub(super) access: Access,
}

/// Memory that a command writes: a buffer, or where the caller or the model has it, a slot.
struct Region {
    buffer: usize,
    start: *mut u8,
    bytes: usize,
    element: usize,
    /// What it held before; none if its life begins.
    old: Option<Vec<u8>>,
    /// Gaps that it had before.
    gaps: Vec<Range<usize>>,
}

/// What memory held before a command that may be run twice.
pub(super) struct Before {
    written: Vec<Region>,
    /// The first buffer that it reads with gaps.
    reads_gaps: Option<String>,
}

fn wrong(label: &str, what: String) -> RunError {
    RunError::Memory { step: label.to_owned(), what }
}

/// # Safety
/// There are so many bytes, which nothing writes as long as the slice lives.
pub(super) unsafe fn bytes<'a>(start: *const u8, count: usize) -> &'a [u8] {
    match count {
        0 => &[],
        // SAFETY: by the contract.
        count => unsafe { std::slice::from_raw_parts(start, count) },
    }
}

/// # Safety
/// There are so many bytes, which nothing else uses as long as the slice lives.
unsafe fn bytes_mut<'a>(start: *mut u8, count: usize) -> &'a mut [u8] {
    match count {
        0 => &mut [],
        // SAFETY: by the contract.
        count => unsafe { std::slice::from_raw_parts_mut(start, count) },
    }
}

impl Watch {
    /// Begins a call.
    pub(super) fn clear(&mut self) {
        self.alive.clear();
    }

    /// Begins the lives that begin with a command.
    pub(super) fn begin(
        &mut self,
        command: &WatchedCommand,
        address: &dyn Fn(Address) -> *mut u8,
    ) -> Result<(), RunError> {
        for Begin { buffer, name, place, bytes, element, is_given } in &command.begins {
            let (start, bytes) = (address(*place), *bytes);
            let meets = |other: &&Alive| {
                let (from, other_from) = (start.addr(), other.start.addr());
                from < other_from + other.bytes && other_from < from + bytes
            };
            if let Some(other) = self.alive.values().filter(meets).min_by_key(|other| &other.name) {
                let what = format!("`{name}` has bytes of `{}`, which is still in use", other.name);
                return Err(wrong(&command.label, what));
            }
            let gaps = if *is_given { Vec::new() } else { all(bytes) };
            let alive = Alive { name: name.clone(), start, bytes, element: *element, gaps, pattern: 0 };
            // SAFETY: the buffer's memory is the call's, and nothing else is in use there.
            unsafe { alive.fill() };
            self.alive.insert(*buffer, alive);
        }
        Ok(())
    }

    /// Notes what there is before a command.
    ///
    /// # Safety
    /// Nothing writes to what is touched meanwhile.
    pub(super) unsafe fn before(&self, command: &WatchedCommand, touched: &[Touched]) -> Before {
        let mut written: Vec<Region> = Vec::new();
        for used in touched.iter().filter(|used| used.access.is_written()) {
            let is_new = |region: &Region| region.buffer != used.buffer || region.start != used.start;
            let begins = command.begins.iter().any(|begin| begin.buffer == used.buffer && !begin.is_given);
            let alive = self.alive.get(&used.buffer);
            let (start, count, element) = alive.map_or((used.start, used.bytes, used.element), |alive| {
                (alive.start, alive.bytes, alive.element)
            });
            if alive.map_or(written.iter().all(is_new), |_| {
                written.iter().all(|region| region.buffer != used.buffer)
            }) {
                // SAFETY: whoever planned the call found so many bytes there, and by the contract.
                let old = (!begins).then(|| unsafe { bytes(start, count) }.to_vec());
                let gaps = alive.map_or_else(Vec::new, |alive| alive.gaps.clone());
                written.push(Region { buffer: used.buffer, start, bytes: count, element, old, gaps });
            }
        }
        let reads = touched.iter().filter(|used| used.access.is_read());
        let mut with_gaps =
            reads.filter_map(|used| self.alive.get(&used.buffer).filter(|alive| alive.has_gap(used)));
        Before { reads_gaps: with_gaps.next().map(|alive| alive.name.clone()), written }
    }

    /// Whether a command has to run once more, now that it has run: it has read gaps, or may have left some.
    ///
    /// # Safety
    /// As [`Watch::before`].
    pub(super) unsafe fn is_in_doubt(&mut self, before: &Before) -> bool {
        let mut has_left = false;
        for region in &before.written {
            if let Some(alive) = self.alive.get_mut(&region.buffer) {
                // SAFETY: by the contract.
                alive.gaps = unsafe { alive.left(&region.gaps) };
                has_left |= !alive.gaps.is_empty();
            }
        }
        has_left || before.reads_gaps.is_some()
    }

    /// Puts back what there was before a command, with another pattern where nothing is written. Gives what the command has written.
    ///
    /// # Safety
    /// As [`Watch::before`], and nothing reads it either.
    pub(super) unsafe fn again(&mut self, before: &Before, touched: &[Touched]) -> Vec<Vec<u8>> {
        let mut first = Vec::new();
        for region in &before.written {
            // SAFETY: by the contract.
            let now = unsafe { bytes_mut(region.start, region.bytes) };
            first.push(now.to_vec());
            if let Some(old) = &region.old {
                now.copy_from_slice(old);
            }
            if let Some(alive) = self.alive.get_mut(&region.buffer) {
                alive.gaps.clone_from(&region.gaps);
            }
        }
        let buffers: HashSet<usize> = touched.iter().map(|used| used.buffer).collect();
        for buffer in buffers {
            if let Some(alive) = self.alive.get_mut(&buffer) {
                alive.pattern = 1 - alive.pattern;
                // SAFETY: by the contract.
                unsafe { alive.fill() };
            }
        }
        first
    }

    /// Compares what a command has written with what it wrote the first time, and finds the gaps that it left.
    ///
    /// # Safety
    /// As [`Watch::before`].
    pub(super) unsafe fn compare(
        &mut self,
        label: &str,
        before: &Before,
        first: &[Vec<u8>],
    ) -> Result<(), RunError> {
        for (region, first) in before.written.iter().zip(first) {
            // SAFETY: by the contract.
            let second = unsafe { bytes(region.start, region.bytes) };
            let pattern = self.alive.get(&region.buffer).map(|alive| alive.pattern);
            let mut left = Vec::new();
            for (begin, one, other) in differences(first, second, region.element) {
                let is_gap = is_within(&region.gaps, begin)
                    && pattern.is_some_and(|now| holds(one, 1 - now) && holds(other, now));
                if is_gap {
                    add(&mut left, begin..begin + one.len());
                    continue;
                }
                let what = match &before.reads_gaps {
                    Some(name) => format!("reads elements of `{name}` that nothing has written"),
                    None => "gives other results when it runs once more".to_owned(),
                };
                return Err(wrong(label, what));
            }
            if let Some(alive) = self.alive.get_mut(&region.buffer) {
                alive.gaps = left;
            }
        }
        Ok(())
    }

    /// Notes that a command, which is not run twice, has written all that it says.
    pub(super) fn trust(&mut self, touched: &[Touched]) {
        for used in touched.iter().filter(|used| used.access.is_written()) {
            if let Some(alive) = self.alive.get_mut(&used.buffer) {
                alive.gaps.clear();
            }
        }
    }

    /// Ends the lives that end with a command.
    ///
    /// # Safety
    /// Nothing uses these buffers any more.
    pub(super) unsafe fn end(&mut self, command: &WatchedCommand) {
        for buffer in &command.ends {
            if let Some(mut alive) = self.alive.remove(buffer) {
                alive.gaps = all(alive.bytes);
                // SAFETY: by the contract.
                unsafe { alive.fill() };
            }
        }
    }

    /// Fails where elements are read that nothing has written: of so many bytes each, at these distances from a start.
    pub(super) fn read(
        &self,
        label: &str,
        start: *const u8,
        element: usize,
        offsets: impl Iterator<Item = usize>,
    ) -> Result<(), RunError> {
        let is_in = |alive: &&Alive| {
            let from = alive.start.addr();
            !alive.gaps.is_empty() && (from..from + alive.bytes).contains(&start.addr())
        };
        let Some(alive) = self.alive.values().find(is_in) else { return Ok(()) };
        let from = start.addr() - alive.start.addr();
        for at in offsets {
            if is_within(&alive.gaps, from + at * element) {
                let what = format!("reads elements of `{}` that nothing has written", alive.name);
                return Err(wrong(label, what));
            }
        }
        Ok(())
    }
}

impl Alive {
    /// # Safety
    /// Nothing else uses the gaps.
    unsafe fn fill(&self) {
        for gap in &self.gaps {
            // SAFETY: gaps lie in the buffer, and by the contract.
            unsafe { bytes_mut(self.start.add(gap.start), gap.len()) }.fill(PATTERNS[self.pattern]);
        }
    }

    /// What is left of some gaps: elements that hold the pattern, because nothing has written them or by chance.
    ///
    /// # Safety
    /// Nothing writes to the buffer meanwhile.
    unsafe fn left(&self, gaps: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut left = Vec::new();
        for gap in gaps {
            // SAFETY: gaps lie in the buffer, and by the contract.
            let inside = unsafe { bytes(self.start.add(gap.start), gap.len()) };
            let block = 1024 * self.element;
            let blocks = inside.chunks(block).enumerate();
            for (first, bytes) in blocks.filter(|(_, bytes)| holds_any(bytes, self.element, self.pattern)) {
                let elements = bytes.chunks(self.element).enumerate();
                for (at, _) in elements.filter(|(_, one)| holds(one, self.pattern)) {
                    let begin = gap.start + first * block + at * self.element;
                    add(&mut left, begin..(begin + self.element).min(gap.end));
                }
            }
        }
        left
    }

    /// Whether a use of it includes a gap.
    fn has_gap(&self, used: &Touched) -> bool {
        let from = used.start.addr() - self.start.addr();
        self.gaps.iter().any(|gap| gap.start < from + used.bytes && from < gap.end)
    }
}

/// Elements that differ, with the bytes ahead of each. Most do not: blocks of many are compared at once.
fn differences<'a>(
    first: &'a [u8],
    second: &'a [u8],
    element: usize,
) -> impl Iterator<Item = (usize, &'a [u8], &'a [u8])> {
    let block = 1024 * element;
    let blocks = first.chunks(block).zip(second.chunks(block)).enumerate();
    blocks.filter(|(_, (one, other))| one != other).flat_map(move |(at, (one, other))| {
        let elements = one.chunks(element).zip(other.chunks(element)).enumerate();
        elements
            .filter(|(_, (one, other))| one != other)
            .map(move |(inner, (one, other))| (at * block + inner * element, one, other))
    })
}

/// So many bytes as one range, or none.
fn all(bytes: usize) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    if bytes > 0 {
        add(&mut ranges, 0..bytes);
    }
    ranges
}

/// Whether any element consists of a pattern. It goes through all of them, so that it becomes vector code.
fn holds_any(elements: &[u8], size: usize, pattern: usize) -> bool {
    fn any<const N: usize>(elements: &[u8], byte: u8) -> bool {
        let (all, rest) = elements.as_chunks::<N>();
        // The last element may be cut off.
        all.iter().fold(!rest.is_empty(), |found, element| found | (*element == [byte; N]))
    }
    let byte = PATTERNS[pattern];
    match size {
        1 => any::<1>(elements, byte),
        2 => any::<2>(elements, byte),
        4 => any::<4>(elements, byte),
        8 => any::<8>(elements, byte),
        16 => any::<16>(elements, byte),
        size => elements.chunks(size).any(|element| holds(element, pattern)),
    }
}

/// Whether an element consists of a pattern.
fn holds(element: &[u8], pattern: usize) -> bool {
    element.iter().all(|&byte| byte == PATTERNS[pattern])
}

/// Whether one of some sorted ranges contains a position.
fn is_within(ranges: &[Range<usize>], at: usize) -> bool {
    let behind = ranges.partition_point(|range| range.start <= at);
    behind > 0 && at < ranges[behind - 1].end
}

/// Adds a range behind others, to the last of them where it touches that.
fn add(ranges: &mut Vec<Range<usize>>, next: Range<usize>) {
    match ranges.last_mut() {
        Some(last) if last.end == next.start => last.end = next.end,
        _ => ranges.push(next),
    }
}
