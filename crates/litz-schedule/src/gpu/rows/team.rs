//! Decides who takes a row, and what they keep of it: what members hand on, and what they read several times.
//!
//! A row is a warp's where all that is kept of it fits into registers, or nothing of a longer one is kept, else a block's. Each thread has the same places in all that lies along
//! the row: single elements in turn with its neighbours, or 16 bytes at once where all accesses allow it. What has no place in registers
//! is in shared memory, and what has none there stays where it is.

use super::super::passed_on;
use super::super::turns::taken_of;
use crate::context::Cx;
use crate::cost::{ceil_div, points, size};
use crate::group::{Group, Member, beside_axes, shared_axes};
use crate::join::own_axes;
use crate::nest;
use litz_analysis::access::{Access, Stride, accesses, bound_places, stride, substitute};
use litz_analysis::apart::is_inside_by_digits;
use litz_ir::loops::{Axis, Buf, BufKind, InstOp, Nest, Stmt};
use litz_ir::schedule::LocalSpace;
use litz_ir::target::{Gpu, Level, Target};
use litz_sym::{Expr, Facts, Rel, Sym};

/// Elements of a row that a warp takes, at most: 32 for each lane.
const WARP_ROW: i64 = 1024;

/// Vectors of a row that each lane of a warp takes, at most, where nothing of the row is kept and there are rows for all units: nobody waits for
/// other warps then. Of 8192 bf16 these are 32.
const WARP_VECTORS: i64 = 32;

/// Warps of a block, each with a row.
pub const WARPS: i64 = 8;

/// Threads of a block that has a row to itself, at most: of a row that these hold in registers, and of a longer one.
const THREADS: i64 = 256;
const MOST_THREADS: i64 = 1024;

/// Elements of a row that a thread keeps in registers, at most.
pub const KEPT: i64 = 32;

/// Elements of a row of constants that a thread keeps, at most, to load them ahead of what it waits for: the bytes of eight loads, of 16 bits.
pub const KEPT_AHEAD: i64 = 64;

/// Vectors of each row of constants that a thread takes where a block has the row, if so many threads are a block's at most: blocks are many then, each at
/// another point of its work, so that loads are under way all the time. On an H200 two rows of 2048 bf16 times a vector, 8192 times, take 16.9 us so
/// (copying as many bytes 18.0), and 19.9 where a warp has both rows.
const VECTORS_AHEAD: i64 = 2;

/// Blocks of a unit, at most, that have few bytes: more are launched no faster than one in 1.2 ns, in which an H200 loads five kilobytes.
const MOST_BLOCKS: i64 = 32;
const FEW_BYTES: i64 = 6 << 10;

/// Eighths of a block's shared memory that rows which are read again take, at most, and where members only reduce rows. A longer row leaves a unit one
/// block, which loads and then computes; rows that are reduced alone are read again from the cache instead, by two blocks in turns. On an H200 log-softmax and its loss of
/// 4096 x 50257 floats takes 335 us so, and 421 with rows in shared memory; softmax of 4096 x 40000, which stores them, 730 and 632.
const SHARED_OF_ROW: [i64; 2] = [7, 4];

/// Registers of a thread for elements of rows, at most: half of those that it may have.
const MOST_REGISTERS: i64 = 128;

/// Bytes of constants that a block multiplies a row with, at least for each byte of the row, where it makes the row for itself: for every element of it a
/// thread loads and rounds as often as it loads and multiplies of each row of constants.
const BYTES_OF_BLOCK: i64 = 4;

/// Who takes a row, and what they keep of it.
pub struct Team {
    /// Lanes of a warp, or threads of a block.
    pub level: Level,
    /// Their number.
    pub width: i64,
    /// Elements side by side that a thread takes at once. Where there are several, whole turns of all threads, or one of some, make a row, unless rows
    /// begin within such runs.
    pub vector: i64,
    /// How many elements of its first run are before a row, where rows begin within runs, in terms of the group's axes. See [`shifted`].
    pub shift: Option<Expr>,
    /// Buffers that only members touch, with where they are.
    pub locals: Vec<(Buf, LocalSpace)>,
    /// What members read of a row, and is loaded once.
    pub copies: Vec<RowCopy>,
    /// Bytes that the threads of a block share for elements of rows.
    pub shared: i64,
    /// Rows that a block takes, of which threads have all at once: one, where members do not make what all rows need.
    pub together: i64,
}

/// A buffer of which the threads of a row keep what they read: each loads its elements once, or has them from where it stored them.
#[derive(Clone)]
pub struct RowCopy {
    /// The buffer.
    pub buf: Buf,
    /// The element, in terms of the group's axes and of [`place_in_row`].
    pub index: Vec<Expr>,
    /// The axis of a row. None where there is one value of the row.
    pub row: Option<Axis>,
    /// Where the copy is.
    pub space: LocalSpace,
    /// The member that stores the buffer, which others need, too.
    pub made_by: Option<usize>,
    /// Whether each turn has its own, as a row that is read once is too long to be kept.
    pub is_of_turn: bool,
    /// Whether it is loaded before all else, as weights are, which are there before the kernel in front has made what they are multiplied with.
    pub is_ahead: bool,
}

/// Stands for the place of an element in its row.
pub fn place_in_row() -> Sym {
    Sym::new("row element")
}

/// How threads share a row.
#[derive(Clone, Copy)]
struct Shape {
    level: Level,
    width: i64,
    vector: i64,
    shift: Option<Expr>,
    together: i64,
}

/// What members hand on, and what they read.
struct Rows {
    /// Each with its bytes at a row, where they are known.
    locals: Vec<(Buf, Passed, Option<i64>)>,
    reads: Vec<Read>,
}

/// A buffer that members read at the same elements of each row.
struct Read {
    copy: RowCopy,
    /// Several members do.
    is_repeated: bool,
    /// It is a constant that is reduced, and others are not there yet when a kernel may start.
    is_ahead: bool,
}

/// How members pass a buffer on.
#[derive(Clone, Copy)]
enum Passed {
    /// One value of a row.
    Row,
    /// So many elements of a row, each to the thread that stored it.
    Elements(i64),
    /// To other threads.
    Others,
}

/// The team of the rows of a group. None where the target has no threads.
pub fn team(cx: &Cx<'_>, group: &Group) -> Option<Team> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let rows = rows(cx, group);
    let (shapes, needs_ahead) = shapes(cx, gpu, group, &rows, 1);
    let mut teams = shapes.into_iter().filter_map(|shape| shape.team((cx, group), gpu, &rows));
    // Whoever keeps all rows of constants has them on the way while others are made.
    let first = teams.next()?;
    if first.has_ahead(&rows) {
        return Some(first);
    }
    let other = teams.find(|team| team.has_ahead(&rows));
    if needs_ahead { other } else { Some(other.unwrap_or(first)) }
}

/// The team of a kernel: that of [`team`], or where somebody times others one of the other shapes, and of narrower blocks. See
/// [`Heuristics::choice`](crate::Heuristics::choice).
pub fn chosen_team(cx: &Cx<'_>, group: &Group) -> Option<Team> {
    let first = team(cx, group)?;
    let (Target::Gpu(gpu), Some(choice)) = (cx.target, cx.heuristics.choice.checked_sub(1)) else {
        return Some(first);
    };
    let rows = rows(cx, group);
    let others = [1, 2, 4].into_iter().flat_map(|narrower| {
        let (shapes, needs_ahead) = shapes(cx, gpu, group, &rows, narrower);
        let teams = shapes.into_iter().filter_map(|shape| shape.team((cx, group), gpu, &rows));
        teams.filter(|team| !needs_ahead || team.has_ahead(&rows)).collect::<Vec<_>>()
    });
    Some(others.filter(|team| team.shape() != first.shape()).nth(choice).unwrap_or(first))
}

/// What members hand on, and what they read.
fn rows(cx: &Cx<'_>, group: &Group) -> Rows {
    let locals = passed_on(cx, group).into_iter().map(|buf| {
        let size = cx.loops.bufs[buf].dtype.size() as i64;
        (buf, passed(cx, group, buf).0, elements_of(cx, group, buf).map(|elements| elements * size))
    });
    Rows { locals: locals.collect(), reads: reads(cx, group) }
}

/// How threads may share rows, the best first, by blocks that are so many times `narrower` than is best; and whether they have to keep all that is loaded
/// before all else.
fn shapes(cx: &Cx<'_>, gpu: &Gpu, group: &Group, rows: &Rows, narrower: i64) -> (Vec<Shape>, bool) {
    let along = group.members.iter().filter_map(|member| spread(cx, member));
    let longest = along.map(|row| size(&cx.loops.facts, row.extent)).max().unwrap_or(1);
    let vectors = vectors(cx, group, rows);
    let mut shapes: Vec<Shape> = of_blocks(cx, group, rows, vectors.first().copied()).into_iter().collect();
    if group.members.iter().any(|member| is_for_all(group, member)) {
        return (shapes, true);
    }
    let lanes = i64::from(Gpu::LANES);
    let count = points(&cx.loops.facts, &group.outer);
    let fills_units = count >= i64::from(gpu.units) * WARPS;
    let is_short =
        |&vector: &i64| longest <= WARP_ROW || fills_units && longest <= vector * lanes * WARP_VECTORS;
    let width = |&vector: &i64| longest % (vector * lanes) == 0;
    let of_warp = |vector| Shape { level: Level::Lane, width: lanes, vector, shift: None, together: 1 };
    shapes.extend(vectors.iter().copied().filter(is_short).filter(width).map(of_warp));
    if longest <= WARP_ROW {
        shapes.push(of_warp(1));
    }
    let most = match longest {
        _ if longest <= KEPT * THREADS => (ceil_div(longest, lanes) * lanes).min(THREADS),
        _ if longest <= KEPT * MOST_THREADS / 2 => MOST_THREADS / 2,
        _ => MOST_THREADS,
    };
    let most = (most / narrower / lanes * lanes).max(lanes);
    // Nothing is kept of a row that is longer than all threads hold: two blocks of a unit read in turns then.
    let most_of_vectors = if longest > KEPT * MOST_THREADS { most.min(MOST_THREADS / 2) } else { most };
    for vector in vectors {
        let most = most_of_vectors;
        let runs = longest / vector;
        let whole = (1..=most / lanes).map(|warps| warps * lanes).filter(|width| runs % width == 0).max();
        shapes.extend(whole.filter(|width| width * 2 >= most.min(runs)).map(|width| Shape {
            level: Level::Thread,
            width,
            vector,
            shift: None,
            together: 1,
        }));
    }
    let within = shifted(cx, group, rows).filter(|_| longest > KEPT * MOST_THREADS);
    shapes.extend(within.map(|(vector, shift)| {
        let runs = ceil_div(longest + vector - 1, vector);
        // The threads of which the fewest have nothing to do in the last turns.
        let widths = (most / 2 / lanes..=most / lanes).map(|warps| warps * lanes).rev();
        let idle = |width: &i64| taken_of(ceil_div(runs, *width), (KEPT / vector).max(1)) * width - runs;
        let width = widths.min_by_key(idle).unwrap_or(most);
        Shape { level: Level::Thread, width, vector, shift: Some(shift), together: 1 }
    }));
    shapes.push(Shape { level: Level::Thread, width: most, vector: 1, shift: None, together: 1 });
    (shapes, false)
}

/// Whether a member has none of the points that others share: each block makes for itself what it makes.
pub fn is_for_all(group: &Group, member: &Member) -> bool {
    let mut shared = group.outer.iter().filter(|axis| !axis.extent.is_one());
    shared.any(|axis| !member.bind.iter().any(|bind| bind.1.has_sym(axis.var)))
}

/// Rows that a block takes, so many that it loads far more of them than it makes for itself, and each unit has a block. None where there are none such.
fn together(cx: &Cx<'_>, group: &Group, bytes_of_row: i64, units: i64) -> Option<i64> {
    let made = group.members.iter().filter(|member| is_for_all(group, member));
    let made = made.flat_map(|member| &cx.deps.stmts[member.stmt].writes);
    let bytes = |&buf: &Buf| Some(elements_of(cx, group, buf)? * cx.loops.bufs[buf].dtype.size() as i64);
    let Some(made) = made.map(bytes).max() else { return Some(1) };
    let mut axes = group.outer.iter().filter(|axis| !axis.extent.is_one());
    let (Some(rows), None) = (axes.next(), axes.next()) else { return None };
    let (rows, made) = (rows.extent.as_int()?, made?);
    let count = ceil_div(made * BYTES_OF_BLOCK, bytes_of_row.max(1));
    let count = count.unsigned_abs().next_power_of_two() as i64;
    (rows % count == 0 && rows / count >= units).then_some(count)
}

/// A block for each row, or for several, where these have constants that are loaded ahead.
fn of_blocks(cx: &Cx<'_>, group: &Group, rows: &Rows, vector: Option<i64>) -> Option<Shape> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let (vector, lanes) = (vector?, i64::from(Gpu::LANES));
    let ahead = rows.reads.iter().filter(|read| read.is_ahead && is_of_rows(group, &read.copy.index));
    let lengths: Vec<(i64, i64)> = ahead
        .map(|read| Some((read.copy.row?.extent.as_int()?, cx.loops.bufs[read.copy.buf].dtype.size() as i64)))
        .collect::<Option<_>>()?;
    let runs = lengths.first()?.0 / vector;
    let bytes: i64 = lengths.iter().map(|(length, size)| length * size).sum();
    let units = i64::from(gpu.units);
    let together = together(cx, group, bytes, units)?;
    let is_launched_in_time =
        points(&cx.loops.facts, &group.outer) <= units * MOST_BLOCKS || bytes >= FEW_BYTES;
    let most = (runs / VECTORS_AHEAD).min(THREADS);
    let width = (1..=most / lanes).map(|warps| warps * lanes).rfind(|width| runs % width == 0)?;
    is_launched_in_time.then_some(Shape { level: Level::Thread, width, vector, shift: None, together })
}

impl Team {
    /// Who takes a row, whatever is kept of it.
    fn shape(&self) -> (Level, i64, i64) {
        (self.level, self.width, self.vector)
    }

    /// Elements of a row that a thread takes in written-out turns, at most.
    pub fn written_out(&self) -> i64 {
        if self.copies.iter().any(|copy| copy.is_ahead) { KEPT_AHEAD } else { KEPT }
    }

    /// Whether it keeps all that is loaded before all else.
    fn has_ahead(&self, rows: &Rows) -> bool {
        let ahead = rows.reads.iter().filter(|read| read.is_ahead).count();
        self.copies.iter().filter(|copy| copy.is_ahead).count() == ahead
    }
}

impl Shape {
    /// The team of this shape. None where it does not keep in registers what it has to: a warp all that is kept, and threads that take several
    /// elements at once all along the row that is read again.
    fn team(self, (cx, group): (&Cx<'_>, &Group), gpu: &Gpu, rows: &Rows) -> Option<Team> {
        let Shape { level, width, vector, shift, together } = self;
        // Elements of the runs in which rows begin.
        let beside = if shift.is_some() { vector - 1 } else { 0 };
        let threads = if level == Level::Lane { width * WARPS } else { width };
        let room = (i64::from(gpu.unit.registers) / 2 / threads).min(MOST_REGISTERS);
        let (mut registers, mut shared) = (0, 0);
        let mut fits = |count: i64, buf: Buf, most: i64| {
            let elements = ceil_div(count + beside, width * vector) * vector;
            let taken = ceil_div(elements * cx.loops.bufs[buf].dtype.size() as i64, 4);
            let fits = elements <= most && registers + taken <= room;
            registers += if fits { taken } else { 0 };
            fits
        };
        let only_registers = level == Level::Lane || vector > 1 && shift.is_none();
        let mut locals = Vec::new();
        for &(buf, passed, bytes) in &rows.locals {
            let space = match passed {
                Passed::Row => LocalSpace::Register,
                Passed::Elements(count) if fits(count, buf, KEPT) => LocalSpace::Register,
                Passed::Elements(_) | Passed::Others => match bytes {
                    Some(bytes) if shared + bytes <= gpu.shared_bytes / 2 => {
                        shared += bytes;
                        LocalSpace::Shared
                    }
                    // What has no place in the kernel stays in global memory.
                    Some(_) | None => continue,
                },
            };
            if only_registers && space == LocalSpace::Shared {
                return None;
            }
            locals.push((buf, space));
        }
        let mut copies = Vec::new();
        let most_shared = gpu.shared_bytes / 8 * SHARED_OF_ROW[usize::from(only_reduces(cx, group))];
        for read in rows.reads.iter().filter(|read| read.is_repeated || vector > 1) {
            let Read { copy, is_repeated, is_ahead } = read;
            let Some(count) = copy.row.map_or(Some(1), |row| row.extent.as_int()) else { continue };
            // Of runs there is room for all that turns take.
            let turns = || taken_of(ceil_div(count + beside, width * vector), (KEPT / vector).max(1));
            let room = if shift.is_some() { turns() * width * vector } else { count };
            let bytes = room * cx.loops.bufs[copy.buf].dtype.size() as i64;
            let most = if *is_ahead { KEPT_AHEAD } else { KEPT };
            let rows = if is_of_rows(group, &copy.index) { together } else { 1 };
            let is_kept = copy.row.is_none() || fits(count * rows, copy.buf, most);
            // A row that all have in common is in the cache of their unit.
            let is_common = !is_of_rows(group, &copy.index);
            let is_of_turn = !is_kept && vector > 1 && (!is_repeated || is_common);
            let space = if is_kept || is_of_turn {
                LocalSpace::Register
            } else if only_registers {
                return None;
            } else if *is_repeated && shared + bytes <= most_shared {
                shared += bytes;
                LocalSpace::Shared
            } else {
                continue;
            };
            copies.push(RowCopy { space, is_of_turn, is_ahead: *is_ahead && is_kept, ..copy.clone() });
        }
        Some(Team { level, width, vector, shift, locals, copies, shared, together })
    }
}

/// Whether members only reduce what lies along a row.
fn only_reduces(cx: &Cx<'_>, group: &Group) -> bool {
    group.members.iter().all(|member| {
        let is_reduced =
            |row: Axis| nest(cx.loops, member.stmt).reduced.iter().any(|axis| axis.var == row.var);
        spread(cx, member).is_none_or(is_reduced)
    })
}

/// Points of an axis that is reduced beside a row, at most, for which a thread takes what it has of the row: the digits of a byte of packed integers.
pub const MOST_DIGITS: i64 = 8;

/// How many elements side by side a thread may take at once, the most first: where all members go along rows of one length and access what is
/// side by side there, each run of so many begins where as many bytes do, and what is reduced is in registers before. What else a reduction
/// loads, of packed weights what they are multiplied with and their scales, it loads one by one.
fn vectors(cx: &Cx<'_>, group: &Group, rows: &Rows) -> Vec<i64> {
    let (mut starts, mut widest, mut length) = (Vec::new(), 1, None);
    let shared = group.facts(&cx.loops.facts);
    for member in &group.members {
        let own = nest(cx.loops, member.stmt);
        let Some(row) = spread(cx, member) else { continue };
        let mut beside = own.reduced.iter().chain(own_axes(own, member)).filter(|axis| axis.var != row.var);
        let is_digit = |axis: &Axis| axis.extent.as_int().is_some_and(|extent| extent <= MOST_DIGITS);
        let are_digits = beside.all(|axis| is_digit(axis) && own.reduced.contains(axis));
        if !are_digits || *length.get_or_insert(row.extent) != row.extent {
            return Vec::new();
        }
        let facts = own.facts(&shared);
        for (access, place) in bound_places(cx.loops, own, &member.bind, &facts) {
            let is_kept = rows.locals.iter().any(|local| local.0 == access.buf);
            let mut copied = rows.reads.iter().filter(|read| read.copy.row.is_some());
            let is_copied = copied.any(|read| read.copy.buf == access.buf);
            match stride(place, row.var) {
                Stride::Zero => {}
                Stride::Unit if is_kept => {}
                Stride::Unit if is_copied || !own.reduces() => {
                    starts.push(facts.simplify(place.replace(row.var, Expr::zero())));
                    widest = widest.max(cx.loops.bufs[access.buf].dtype.size() as i64);
                }
                // Digits are between its elements: a thread loads as many bytes of it at once.
                Stride::Elements(step) if own.reduces() && !access.store && !is_copied => {
                    let size = cx.loops.bufs[access.buf].dtype.size() as i64;
                    widest = widest.max(step.as_int().map_or(widest, |step| step.saturating_mul(size)));
                }
                Stride::Irregular if own.reduces() && !access.store && !is_copied => {}
                Stride::Unit | Stride::Elements(_) | Stride::Irregular => return Vec::new(),
            }
        }
    }
    let Some(length) = length.and_then(|length: Expr| length.as_int()).filter(|_| !starts.is_empty()) else {
        return Vec::new();
    };
    let most = i64::from(Gpu::VECTOR_BYTES) / widest;
    let is_aligned = |vector: i64| {
        length % vector == 0 && starts.iter().all(|at| shared.simplify(at.modulo(vector)).is_zero())
    };
    std::iter::successors(Some(most), |count| Some(count / 2))
        .take_while(|&count| count > 1)
        .filter(|&count| is_aligned(count))
        .collect()
}

/// How many elements side by side a thread may take at once of rows that begin within a run of so many, with how many of them are before a row: where
/// rows of one length are read of memory that has whole runs, or stored, and all begin at the same place of a run. Of rows of an odd number of bf16
/// each begins elsewhere. A thread that takes them one by one begins an access of 2 bytes for each load and store, and where a block shares what is too
/// long for registers these are so many that a unit begins too few to keep memory busy.
fn shifted(cx: &Cx<'_>, group: &Group, rows: &Rows) -> Option<(i64, Expr)> {
    let shared = group.facts(&cx.loops.facts);
    let mut length = None;
    let (mut starts, mut widest): (Vec<Expr>, i64) = (Vec::new(), 1);
    if rows.locals.iter().any(|local| !matches!(local.1, Passed::Row)) {
        return None;
    }
    for member in &group.members {
        let own = nest(cx.loops, member.stmt);
        let Some(row) = spread(cx, member) else { continue };
        let along = own.reduced.iter().chain(own_axes(own, member)).count();
        if along > 1 || *length.get_or_insert(row.extent) != row.extent {
            return None;
        }
        let facts = own.facts(&shared);
        for (access, place) in bound_places(cx.loops, own, &member.bind, &facts) {
            let mut copied = rows.reads.iter().filter(|read| read.copy.row.is_some());
            let is_copied = copied.any(|read| read.copy.buf == access.buf && read.copy.made_by.is_none());
            match stride(place, row.var) {
                Stride::Zero => {}
                Stride::Unit if is_copied || access.store => {
                    starts.push(place.replace(row.var, Expr::zero()));
                    widest = widest.max(cx.loops.bufs[access.buf].dtype.size() as i64);
                }
                Stride::Unit | Stride::Elements(_) | Stride::Irregular => return None,
            }
        }
    }
    length?.as_int()?;
    // Accesses of 4 bytes keep memory busy.
    let vector = if widest < 4 { i64::from(Gpu::VECTOR_BYTES) / widest } else { return None };
    let is_multiple = |e: Expr| shared.simplify(e.modulo(vector)).is_zero();
    let mut copied = rows.reads.iter().filter(|read| read.copy.row.is_some()).map(|read| read.copy.buf);
    let are_whole = copied.all(|buf| is_multiple(cx.loops.bufs[buf].elements()));
    let first = *starts.first()?;
    let are_alike = starts.iter().all(|&start| is_multiple(start - first));
    let shift = shared.simplify(first.modulo(vector));
    (are_whole && are_alike && !shift.is_zero()).then_some((vector, shift))
}

/// The buffers that members read at the same elements of each row and that have one content: those that several of them read or one reduces,
/// or that one stores for others, too; and values of rows that are wanted along these.
fn reads(cx: &Cx<'_>, group: &Group) -> Vec<Read> {
    let mut found: Vec<Read> = Vec::new();
    // Where there are no points nothing is known of what a leaf copies.
    if group.outer.iter().any(|axis| axis.extent.is_zero()) {
        return found;
    }
    let locals = passed_on(cx, group);
    for buf in group.members.iter().flat_map(|member| &cx.deps.stmts[member.stmt].reads).copied() {
        let is_known = locals.contains(&buf) || found.iter().any(|read| read.copy.buf == buf);
        let is_empty = cx.loops.bufs[buf].sizes.iter().any(|size| size.is_zero());
        if !is_known && !is_empty {
            found.extend(read(cx, group, buf));
        }
    }
    let given = group.members.iter().flat_map(|member| &cx.deps.stmts[member.stmt].reads);
    let made_here = |buf: Buf| maker(cx, group, buf).flatten().is_some();
    if given.copied().all(|buf| cx.is_there_before(buf) || made_here(buf)) {
        found.iter_mut().for_each(|read| read.is_ahead = false);
    }
    found
}

/// A buffer that members read so.
fn read(cx: &Cx<'_>, group: &Group, buf: Buf) -> Option<Read> {
    let made_by = maker(cx, group, buf)?;
    let index = index_in_rows(cx, group, buf)?;
    let is_reader = |member: &&Member| cx.deps.stmts[member.stmt].reads.contains(&buf);
    let readers = group.members.iter().filter(is_reader);
    let rows: Vec<Axis> = readers.clone().filter_map(|member| spread(cx, member)).collect();
    let row = *rows.first()?;
    let is_along = index.iter().any(|at| at.has_sym(place_in_row()));
    let is_repeated = made_by.is_some() || rows.len() > 1 || !is_along;
    let is_reduced = readers.clone().any(|member| nest(cx.loops, member.stmt).reduces());
    // Each block wants what it makes for itself before it can go on.
    let is_for_all = readers.into_iter().all(|member| is_for_all(group, member));
    let has_elements = !is_along || row.extent.as_int().is_some_and(|extent| extent > 0);
    let is_shared = is_repeated || is_reduced || is_for_all;
    let is_wanted = has_elements && is_shared && is_within(cx, group, buf, &index, row);
    let row = is_along.then_some(row);
    let space = LocalSpace::Register;
    let copy = RowCopy { buf, index, row, space, made_by, is_of_turn: false, is_ahead: false };
    let is_constant = made_by.is_none() && cx.is_there_before(buf);
    let is_of_own = is_reduced && is_of_rows(group, &copy.index);
    let is_ahead = is_along && is_constant && (is_of_own || is_for_all);
    is_wanted.then_some(Read { copy, is_repeated, is_ahead })
}

/// Whether each row of a group has elements of its own at an index.
pub fn is_of_rows(group: &Group, index: &[Expr]) -> bool {
    index.iter().any(|at| group.outer.iter().any(|axis| at.has_sym(axis.var)))
}

/// The member that stores a buffer, if there is one. None where the buffer has several contents.
fn maker(cx: &Cx<'_>, group: &Group, buf: Buf) -> Option<Option<usize>> {
    let mut writers = cx.deps.users[buf].iter().filter(|&&user| cx.deps.stmts[user].writes.contains(&buf));
    let contents = writers.clone().count() + usize::from(cx.loops.bufs[buf].kind != BufKind::Temp);
    let writer = writers.next().copied();
    (contents == 1).then(|| writer.filter(|writer| group.members.iter().any(|own| own.stmt == *writer)))
}

/// The one index of a buffer at which all members access it without conditions, with an element of a row that each thread has alone, or none of
/// one, if it is known ahead which row that is.
fn index_in_rows(cx: &Cx<'_>, group: &Group, buf: Buf) -> Option<Vec<Expr>> {
    let mut insts = group.members.iter().flat_map(|member| {
        let body = &nest(cx.loops, member.stmt).body;
        body.iter().filter(move |inst| inst.op.element().is_some_and(|element| element.0 == buf))
    });
    let is_plain = |op: &InstOp| {
        matches!(op, InstOp::Load { guard, .. } if guard.is_empty())
            || matches!(op, InstOp::Store { combine: None, .. })
    };
    if !insts.all(|inst| is_plain(&inst.op)) {
        return None;
    }
    let (Passed::Elements(_) | Passed::Row, index) = passed(cx, group, buf) else { return None };
    let index = index?;
    let is_known = |sym: Sym| {
        sym == place_in_row()
            || group.outer.iter().any(|axis| axis.var == sym)
            || cx.loops.facts.is_symbol_declared(sym)
    };
    let along: Vec<Expr> = index.iter().filter(|at| at.has_sym(place_in_row())).copied().collect();
    let is_step = |at: Expr| at.linear(place_in_row()).is_some_and(|(step, _)| step.is_one());
    let is_plain = matches!(along[..], [] | [_]) && along.iter().all(|&at| is_step(at));
    (is_plain && index.iter().all(|at| at.syms().into_iter().all(is_known))).then_some(index)
}

/// Whether an index of a buffer is known to be an element of it at every place of a row. A copy has an element for each, and nobody may know
/// that of the digits of rows that are windows of an image.
fn is_within(cx: &Cx<'_>, group: &Group, buf: Buf, index: &[Expr], row: Axis) -> bool {
    let mut facts = group.facts(&cx.loops.facts);
    facts.declare_index(place_in_row(), row.extent);
    let has_digits = index.iter().any(|at| !at.is_polynomial());
    let values = if has_digits { rows_of_warps(cx, group, &mut facts) } else { Vec::new() };
    let is_known = |at: Expr, size: Expr| {
        let at = substitute(at, &values);
        facts.holds(&Rel::le(Expr::zero(), at)) && is_inside_by_digits(at, size, &facts)
    };
    index.iter().zip(&cx.loops.bufs[buf].sizes).all(|(&at, &size)| is_known(at, size))
}

/// The axes of a group in terms of what a kernel of warps, each with a row, counts: as [`super::plan::plan`] has them, of which `facts` know then.
fn rows_of_warps(cx: &Cx<'_>, group: &Group, facts: &mut Facts) -> Vec<(Sym, Expr)> {
    let name = |name: &str| beside_axes(cx.loops, group, name);
    let shared = shared_axes(cx.loops, group, &group.facts(&cx.loops.facts), &|i| name(&format!("g{i}")));
    let mut values: Vec<(Sym, Expr)> = shared.iter().flat_map(|merged| merged.parts.clone()).collect();
    shared.iter().for_each(|merged| facts.declare_index(merged.axis.var, merged.axis.extent));
    if let Some(Axis { var, extent }) = shared.last().map(|merged| merged.axis) {
        let [block, warp] = ["block", "warp"].map(name);
        let number = Expr::sym(block) * WARPS + Expr::sym(warp);
        facts.declare_index(block, extent.ceildiv(WARPS));
        facts.declare_index(warp, Expr::int(WARPS));
        if facts.assume(Rel::lt(number, extent)) {
            values.iter_mut().for_each(|(_, value)| *value = value.replace(var, number));
        }
    }
    values
}

/// Elements of a buffer that are stored at each row. None where that is known at run time alone.
pub fn elements_of(cx: &Cx<'_>, group: &Group, buf: Buf) -> Option<i64> {
    let writers = group.members.iter().filter(|member| cx.deps.stmts[member.stmt].writes.contains(&buf));
    writers.map(|member| own_points(cx, member)).try_fold(0, |most, own| Some(i64::max(most, own?)))
}

/// Elements that a member has at each row. None where that is known at run time alone.
fn own_points(cx: &Cx<'_>, member: &Member) -> Option<i64> {
    let mut own = own_axes(nest(cx.loops, member.stmt), member).map(|axis| axis.extent.as_int());
    own.try_fold(1i64, |all, own| all.checked_mul(own?))
}

/// How members pass a buffer on, and the index at which all of them access it, if there is one, in terms of the group's axes and of
/// [`place_in_row`].
fn passed(cx: &Cx<'_>, group: &Group, buf: Buf) -> (Passed, Option<Vec<Expr>>) {
    let place = Expr::sym(place_in_row());
    let mut found: Option<(Vec<Expr>, Option<Expr>)> = None;
    for member in &group.members {
        let own = nest(cx.loops, member.stmt);
        let row = spread(cx, member);
        for access in accesses(own).filter(|access| access.buf == buf) {
            let index: Vec<Expr> = access
                .index
                .iter()
                .map(|&e| cx.loops.facts.simplify(substitute(e, &member.bind)))
                .map(|e| e.subst(&|sym| row.filter(|row| row.var == sym).map(|_| place)))
                .collect();
            let extent =
                row.filter(|_| index.iter().any(|e| e.has_sym(place_in_row()))).map(|row| row.extent);
            // Further axes of the member would be elements of one thread, in no order of their own.
            let has_more =
                own.all_axes().any(|axis| member.is_own(axis) && index.iter().any(|e| e.has_sym(axis.var)));
            let is_same = found.as_ref().is_none_or(|found| *found == (index.clone(), extent));
            if has_more || !is_same {
                return (Passed::Others, None);
            }
            found = Some((index, extent));
        }
    }
    let (index, extent) = found.unzip();
    let how = match extent.flatten() {
        None => Passed::Row,
        Some(extent) => extent.as_int().map_or(Passed::Others, Passed::Elements),
    };
    (how, index)
}

/// The axis of a member whose points threads share: of those that it reduces, or else of its own that are not scanned, the one along which
/// most lies in memory side by side.
pub fn spread(cx: &Cx<'_>, member: &Member) -> Option<Axis> {
    let own = nest(cx.loops, member.stmt);
    let axes: Vec<Axis> = match own.reduces() {
        true => own.reduced.clone(),
        false => own_axes(own, member).filter(|axis| !own.is_running(axis.var)).copied().collect(),
    };
    row_of(cx, own, &axes)
}

/// Bytes of all of the buffer that an access is of.
pub fn bytes_of(cx: &Cx<'_>, access: &Access) -> i64 {
    let data = &cx.loops.bufs[access.buf];
    size(&cx.loops.facts, data.elements()).saturating_mul(data.dtype.size() as i64)
}

/// The axis of some of a nest along which most bytes lie in memory side by side: of weights in groups, not the one that counts the scales.
pub fn row_of(cx: &Cx<'_>, own: &Nest, axes: &[Axis]) -> Option<Axis> {
    let places = bound_places(cx.loops, own, &[], &own.facts(&cx.loops.facts));
    let weight = |axis: &Axis| {
        let beside = places.iter().filter(|place| stride(place.1, axis.var) == Stride::Unit);
        beside.fold(0i64, |sum, (access, _)| sum.saturating_add(bytes_of(cx, access)))
    };
    let wide = |axis: &&Axis| size(&cx.loops.facts, axis.extent) > 1;
    axes.iter().filter(wide).max_by_key(|axis| weight(axis)).or(axes.last()).copied()
}

/// Whether one of some statements scans along the last dimension of a buffer.
pub fn is_of_runs(cx: &Cx<'_>, buf: Buf, stmts: &[usize]) -> bool {
    let scans = |own: &Nest| {
        let mut accesses = accesses(own).filter(|access| access.buf == buf);
        accesses.any(|access| own.scanned().any(|axis| access.index.last() == Some(&Expr::sym(axis))))
    };
    stmts.iter().any(|&s| matches!(&cx.loops.stmts[s], Stmt::Nest(own) if scans(own)))
}
