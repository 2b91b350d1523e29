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

use std::ops::Range;
use std::sync::Arc;

use litz_ir::program::Access;
use smallvec::{SmallVec, smallvec};

use super::plan::{Address, Begin, WatchedCommand};
use crate::error::RunError;

/// Bytes of which elements are made that nothing has written, in turn: a large number, and one that is none.
pub(super) const PATTERNS: [u8; 2] = [0x7f, 0xff];

/// The buffers that are in use while a call runs.
#[derive(Default)]
pub(super) struct Watch {
    /// By slot.
    alive: Vec<Option<Alive>>,
    /// The slots that have one.
    in_use: Vec<usize>,
    /// What the regions held that the latest command has written, one behind the other.
    old: Vec<u8>,
    /// What it wrote there the first time.
    first: Vec<u8>,
}

/// Bytes of a buffer that nothing has written, from its start: mostly all of them, or none.
type Gaps = SmallVec<[Range<usize>; 1]>;

struct Alive {
    name: Arc<str>,
    start: *mut u8,
    bytes: usize,
    /// Bytes of an element.
    element: usize,
    /// They hold a pattern.
    gaps: Gaps,
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
    /// Whether its life begins with the command, so that it held nothing before.
    begins: bool,
    /// Gaps that it had before.
    gaps: Gaps,
}

/// What memory held before a command that may be run twice.
pub(super) struct Before {
    written: SmallVec<[Region; 2]>,
    /// The first buffer that it reads with gaps.
    reads_gaps: Option<Arc<str>>,
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
        self.in_use.drain(..).for_each(|buffer| self.alive[buffer] = None);
    }

    /// The buffer of a slot, if it is in use.
    fn alive(&self, buffer: usize) -> Option<&Alive> {
        self.alive.get(buffer)?.as_ref()
    }

    fn alive_mut(&mut self, buffer: usize) -> Option<&mut Alive> {
        self.alive.get_mut(buffer)?.as_mut()
    }

    /// All buffers that are in use.
    fn all_alive(&self) -> impl Iterator<Item = &Alive> {
        self.in_use.iter().filter_map(|&buffer| self.alive(buffer))
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
            if let Some(other) = self.all_alive().filter(meets).min_by_key(|other| &other.name) {
                let what = format!("`{name}` has bytes of `{}`, which is still in use", other.name);
                return Err(wrong(&command.label, what));
            }
            let gaps = if *is_given || bytes == 0 { Gaps::new() } else { smallvec![0..bytes] };
            let alive = Alive { name: Arc::clone(name), start, bytes, element: *element, gaps, pattern: 0 };
            // SAFETY: the buffer's memory is the call's, and nothing else is in use there.
            unsafe { alive.fill() };
            if self.alive.len() <= *buffer {
                self.alive.resize_with(buffer + 1, || None);
            }
            if self.alive[*buffer].replace(alive).is_none() {
                self.in_use.push(*buffer);
            }
        }
        Ok(())
    }

    /// Notes what there is before a command.
    ///
    /// # Safety
    /// Nothing writes to what is touched meanwhile.
    pub(super) unsafe fn before(&mut self, command: &WatchedCommand, touched: &[Touched]) -> Before {
        let mut written: SmallVec<[Region; 2]> = SmallVec::new();
        self.old.clear();
        for used in touched.iter().filter(|used| used.access.is_written()) {
            let buffer = used.buffer;
            let alive = self.alive(buffer);
            let (start, count, element) = alive.map_or((used.start, used.bytes, used.element), |alive| {
                (alive.start, alive.bytes, alive.element)
            });
            if written.iter().any(|region| region.buffer == buffer && region.start == start) {
                continue;
            }
            let gaps = alive.map_or_else(Gaps::new, |alive| alive.gaps.clone());
            let begins = command.begins.iter().any(|begin| begin.buffer == buffer && !begin.is_given);
            if !begins {
                // SAFETY: whoever planned the call found so many bytes there, and by the contract.
                self.old.extend_from_slice(unsafe { bytes(start, count) });
            }
            written.push(Region { buffer, start, bytes: count, element, begins, gaps });
        }
        let reads = touched.iter().filter(|used| used.access.is_read());
        let mut with_gaps =
            reads.filter_map(|used| self.alive(used.buffer).filter(|alive| alive.has_gap(used)));
        Before { reads_gaps: with_gaps.next().map(|alive| Arc::clone(&alive.name)), written }
    }

    /// Whether a command has to run once more, now that it has run: it has read gaps, or may have left some.
    ///
    /// # Safety
    /// As [`Watch::before`].
    pub(super) unsafe fn is_in_doubt(&mut self, before: &Before) -> bool {
        let mut has_left = false;
        for region in &before.written {
            if let Some(alive) = self.alive_mut(region.buffer) {
                // SAFETY: by the contract.
                alive.gaps = unsafe { alive.left(&region.gaps) };
                has_left |= !alive.gaps.is_empty();
            }
        }
        has_left || before.reads_gaps.is_some()
    }

    /// Puts back what there was before a command, with another pattern where nothing is written.
    ///
    /// # Safety
    /// As [`Watch::before`], and nothing reads it either.
    pub(super) unsafe fn again(&mut self, before: &Before, touched: &[Touched]) {
        self.first.clear();
        let mut behind = 0;
        for region in &before.written {
            // SAFETY: by the contract.
            let now = unsafe { bytes_mut(region.start, region.bytes) };
            self.first.extend_from_slice(now);
            if !region.begins {
                now.copy_from_slice(&self.old[behind..behind + region.bytes]);
                behind += region.bytes;
            }
            if let Some(alive) = self.alive_mut(region.buffer) {
                alive.gaps.clone_from(&region.gaps);
            }
        }
        for (at, used) in touched.iter().enumerate() {
            let is_first = touched[..at].iter().all(|other| other.buffer != used.buffer);
            if let Some(alive) = self.alive_mut(used.buffer).filter(|_| is_first) {
                alive.pattern = 1 - alive.pattern;
                // SAFETY: by the contract.
                unsafe { alive.fill() };
            }
        }
    }

    /// Compares what a command has written with what it wrote the first time, and finds the gaps that it left.
    ///
    /// # Safety
    /// As [`Watch::before`].
    pub(super) unsafe fn compare(&mut self, label: &str, before: &Before) -> Result<(), RunError> {
        let mut behind = 0;
        for region in &before.written {
            let first = &self.first[behind..behind + region.bytes];
            behind += region.bytes;
            // SAFETY: by the contract.
            let second = unsafe { bytes(region.start, region.bytes) };
            let Some(left) = self.left_twice(region, first, second) else {
                let what = match &before.reads_gaps {
                    Some(name) => format!("reads elements of `{name}` that nothing has written"),
                    None => "gives other results when it runs once more".to_owned(),
                };
                return Err(wrong(label, what));
            };
            if let Some(alive) = self.alive_mut(region.buffer) {
                alive.gaps = left;
            }
        }
        Ok(())
    }

    /// The gaps that a command has left in what it has written twice, which hold the one pattern and then the other; none if it has written
    /// different bytes.
    fn left_twice(&self, region: &Region, first: &[u8], second: &[u8]) -> Option<Gaps> {
        let pattern = self.alive(region.buffer).map_or(0, |alive| alive.pattern);
        let [before, now] = [PATTERNS[1 - pattern], PATTERNS[pattern]];
        let part = |range: Range<usize>| match (&first[range.clone()], &second[range]) {
            (first, second) if first == second => Part::None,
            (first, second) if is_all(first, before) && is_all(second, now) => Part::All,
            _ => Part::Some,
        };
        let (mut left, mut behind) = (Gaps::new(), 0);
        for gap in &region.gaps {
            if first[behind..gap.start] != second[behind..gap.start] {
                return None;
            }
            collect(gap.clone(), region.element, &part, &mut left)?;
            behind = gap.end;
        }
        (first[behind..] == second[behind..]).then_some(left)
    }

    /// Notes that a command, which is not run twice, has written all that it says.
    pub(super) fn trust(&mut self, touched: &[Touched]) {
        for used in touched.iter().filter(|used| used.access.is_written()) {
            if let Some(alive) = self.alive_mut(used.buffer) {
                alive.gaps.clear();
            }
        }
    }

    /// Ends the lives that end with a command.
    ///
    /// # Safety
    /// Nothing uses these buffers any more.
    pub(super) unsafe fn end(&mut self, command: &WatchedCommand) {
        for &buffer in &command.ends {
            if let Some(alive) = self.alive.get_mut(buffer).and_then(Option::take) {
                // SAFETY: by the contract.
                unsafe { bytes_mut(alive.start, alive.bytes) }.fill(PATTERNS[alive.pattern]);
                self.in_use.retain(|&other| other != buffer);
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
        let Some(alive) = self.all_alive().find(is_in) else { return Ok(()) };
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
    unsafe fn left(&self, gaps: &[Range<usize>]) -> Gaps {
        // SAFETY: there are so many bytes, and by the contract.
        let all = unsafe { bytes(self.start, self.bytes) };
        let part = |range: Range<usize>| part_of(&all[range], self.element, PATTERNS[self.pattern]);
        let mut left = Gaps::new();
        let all_are_told =
            gaps.iter().try_for_each(|gap| collect(gap.clone(), self.element, &part, &mut left));
        debug_assert!(all_are_told.is_some(), "an element holds the pattern, or does not");
        left
    }

    /// Whether a use of it includes a gap.
    fn has_gap(&self, used: &Touched) -> bool {
        let from = used.start.addr() - self.start.addr();
        self.gaps.iter().any(|gap| gap.start < from + used.bytes && from < gap.end)
    }
}

/// How many of some elements are gaps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    None,
    Some,
    All,
}

/// Elements that are looked at together: most are gaps like those beside them, or have been written like them.
const BLOCK: usize = 64;

/// Adds those elements of a range of bytes that are gaps; none if of one alone only a part is. The last element may be cut off.
fn collect(
    range: Range<usize>,
    element: usize,
    part: &dyn Fn(Range<usize>) -> Part,
    gaps: &mut Gaps,
) -> Option<()> {
    let end = range.end;
    let mut blocks = range.step_by(BLOCK * element);
    blocks.try_for_each(|begin| halve(begin..end.min(begin + BLOCK * element), element, part, gaps))
}

/// As [`collect`], of one block: where only some of its elements are gaps, of either half.
fn halve(
    block: Range<usize>,
    element: usize,
    part: &dyn Fn(Range<usize>) -> Part,
    gaps: &mut Gaps,
) -> Option<()> {
    match part(block.clone()) {
        Part::None => Some(()),
        Part::All => {
            add(gaps, block);
            Some(())
        }
        Part::Some if block.len() <= element => None,
        Part::Some => {
            let middle = block.start + block.len().div_ceil(element) / 2 * element;
            halve(block.start..middle, element, part, gaps)?;
            halve(middle..block.end, element, part, gaps)
        }
    }
}

/// How many of some elements consist of a byte. It goes through all of them, so that it becomes vector code.
fn part_of(elements: &[u8], size: usize, byte: u8) -> Part {
    fn part<const N: usize>(elements: &[u8], byte: u8) -> Part {
        let (whole, cut) = elements.as_chunks::<N>();
        let is_cut = (!cut.is_empty()).then(|| is_all(cut, byte));
        // Counted in numbers that are as wide as most elements.
        let found: u32 = whole.iter().map(|element| u32::from(*element == [byte; N])).sum();
        match found as usize + is_cut.map_or(0, usize::from) {
            0 => Part::None,
            found if found == whole.len() + usize::from(is_cut.is_some()) => Part::All,
            _ => Part::Some,
        }
    }
    match size {
        1 => part::<1>(elements, byte),
        2 => part::<2>(elements, byte),
        4 => part::<4>(elements, byte),
        8 => part::<8>(elements, byte),
        _ => part::<16>(elements, byte),
    }
}

/// Whether bytes are all the same one.
fn is_all(bytes: &[u8], byte: u8) -> bool {
    bytes.iter().fold(true, |all, found| all & (*found == byte))
}

/// Whether one of some sorted ranges contains a position.
fn is_within(ranges: &[Range<usize>], at: usize) -> bool {
    let behind = ranges.partition_point(|range| range.start <= at);
    behind > 0 && at < ranges[behind - 1].end
}

/// Adds a range behind others, to the last of them where it touches that.
fn add(ranges: &mut Gaps, next: Range<usize>) {
    match ranges.last_mut() {
        Some(last) if last.end == next.start => last.end = next.end,
        _ => ranges.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements that hold the pattern, one by one.
    fn one_by_one(bytes: &[u8], size: usize) -> Gaps {
        let mut gaps = Gaps::new();
        for (at, _) in bytes.chunks(size).enumerate().filter(|(_, element)| is_all(element, PATTERNS[0])) {
            add(&mut gaps, at * size..bytes.len().min((at + 1) * size));
        }
        gaps
    }

    #[test]
    fn gaps_of_blocks_are_those_of_their_elements() {
        for (size, count) in
            [1, 2, 4, 8, 16].into_iter().flat_map(|size| [(size, 1), (size, 64), (size, 333)])
        {
            // Every so many elements are written, and the last one is cut off.
            for stride in [1, 2, 7, 64, 100, 1000] {
                let mut bytes = vec![PATTERNS[0]; size * count + size / 2];
                bytes.chunks_mut(size).step_by(stride).for_each(|element| element[0] = 1);
                let part = |range: Range<usize>| part_of(&bytes[range], size, PATTERNS[0]);
                let mut gaps = Gaps::new();
                assert_eq!(collect(0..bytes.len(), size, &part, &mut gaps), Some(()));
                assert_eq!(
                    gaps,
                    one_by_one(&bytes, size),
                    "{count} elements of {size} bytes, stride {stride}"
                );
            }
        }
    }

    #[test]
    fn an_element_of_which_a_part_is_a_gap_is_none() {
        let part = |range: Range<usize>| if range.contains(&40) { Part::Some } else { Part::None };
        assert_eq!(collect(0..400, 4, &part, &mut Gaps::new()), None);
    }
}
