//! Writes the kernel of which each block sorts a segment of a row, or finds the pairs that come first in it.
//!
//! A segment that is too long to be sorted is read once by all threads, each of which keeps the first pair of a few groups: places that are
//! a fixed number apart. What comes first among all is in the groups whose first pairs come first, as many as are wanted: each of them has
//! one pair at least that comes before all of any other group. So these groups alone are read again, and sorted. Nothing of that depends on data
//! but which groups they are: all blocks do the same, and always the same.

use litz_ir::ScalarOp;
use litz_ir::kernel::{Kernel, MemorySpace};
use litz_ir::target::Level;
use litz_sym::{Expr, Rel};

use super::ends::{Ends, Round};
use super::network::{Turns, sort_first};
use super::pairs::{LAST_POSITION, POSITION, Pairs, Row, last_pair};
use super::writer::Writer;
use super::{Call, THREADS, multiple, power_of_two};

/// How segments are taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segments {
    /// How many a row has.
    pub(super) count: Expr,
    /// Elements of each, a multiple of the groups; the last one may have less.
    pub(super) length: i64,
    /// Groups of elements, a power of two; none where all are sorted.
    pub(super) groups: Option<i64>,
    /// Pairs that are wanted of each.
    pub(super) wanted: i64,
}

/// Loads that a thread has under way.
const LOADS: i64 = 8;

/// Registers of a thread: three blocks are on a unit. Code would keep more of what addresses have in common.
const REGISTERS: u32 = 80;

/// The kernel.
pub(super) fn kernel(name: &str, call: &Call<'_>, round: Round, segments: Segments) -> Kernel {
    let mut writer = Writer::new(name, call.facts);
    let w = &mut writer;
    w.limit_registers(REGISTERS);
    let ends = Ends::declare(w, call, round);
    let line = call.line(w);
    let segment = w.axis("segment", segments.count);
    let row = ends.row(call, line);
    let Segments { length, groups, wanted, .. } = segments;
    let (first, kept) = (segment * length, power_of_two(wanted));
    let found = groups.map_or(length, |groups| wanted * (length / groups));
    let slots = multiple(found, kept);
    let local = |w: &mut Writer, names, extent, space| Pairs::local(w, names, call.key, extent, space);
    let sorted = local(w, ["key", "at"], slots, MemorySpace::Shared);
    let mut turns = Turns::default();
    match groups {
        None => {
            let is_whole = segments.count.is_one() && row.length == Expr::int(slots);
            w.spread(slots, THREADS, |w, slot| {
                let pair = row.load(w, first + slot, is_whole);
                sorted.store(w, slot, pair);
            });
        }
        Some(groups) => {
            // Whole runs are sorted. These slots nobody else stores to.
            if found < slots {
                w.spread(slots - found, THREADS, |w, slot| {
                    let none = last_pair(w, row.key, Expr::int(LAST_POSITION));
                    sorted.store(w, slot + found, none);
                });
            }
            let of_groups = local(w, ["group_key", "group_at"], groups, MemorySpace::Shared);
            let whole = match row.length.as_int() {
                Some(length) if segments.count.is_one() => length / groups,
                Some(_) | None => 0,
            };
            find_first(w, &row, (first, length), of_groups, (groups, whole));
            sort_first(w, of_groups, (kept, groups), THREADS, &mut turns);
            w.spread(found, THREADS, |w, slot| {
                let found = w.load(of_groups.at, slot.modulo(wanted), Vec::new());
                let last = w.int(POSITION, groups - 1);
                let group = w.op(ScalarOp::And, [found, last]);
                let group = w.bind(group, Expr::int(groups));
                let pair = row.load(w, first + slot.floordiv(wanted) * groups + group, false);
                sorted.store(w, slot, pair);
            });
        }
    }
    sort_first(w, sorted, (kept, slots), THREADS, &mut turns);
    w.spread(wanted, THREADS, |w, rank| {
        // Of a size that is no constant, some may be too many.
        let is_certain = round.to.is_some() || call.wanted.as_int().is_some();
        let is_wanted = if is_certain { Vec::new() } else { vec![Rel::lt(rank, call.wanted)] };
        w.when(is_wanted, |w| {
            let pair = sorted.load(w, rank);
            let position = ends.position(w, &row, pair.at);
            ends.put(w, call, line, segment * wanted + rank, (pair.key, position));
        });
    });
    writer.finish()
}

/// Finds the first pair of each group of a segment, of whose rounds over all groups the first `whole` are inside of the row.
fn find_first(
    w: &mut Writer,
    row: &Row,
    (first, length): (Expr, i64),
    found: Pairs,
    (groups, whole): (i64, i64),
) {
    let threads = THREADS.min(groups);
    let own = groups / threads;
    let best = Pairs::local(w, ["first_key", "first_at"], row.key, own, MemorySpace::Own);
    w.each(Level::Thread, threads, |w, thread| {
        let place = |group: Expr| group * threads + thread;
        w.unroll("group", own, |w, group| {
            let none = last_pair(w, row.key, first + place(group));
            best.store(w, group, none);
        });
        let visit = |w: &mut Writer, round: Expr, is_inside: bool| {
            w.unroll("group", own, |w, group| {
                let next = row.load(w, first + round * groups + place(group), is_inside);
                let earlier = best.load(w, group);
                // Of equal keys the first wins, which is never one to come.
                let is_better = w.op(ScalarOp::Lt, [next.key, earlier.key]);
                let better = next.or(w, is_better, earlier);
                best.store(w, group, better);
            });
        };
        let at_once = (LOADS / own).max(1);
        for (begin, end, is_inside) in [(0, whole, true), (whole, length / groups, false)] {
            let turns = (end - begin) / at_once;
            w.sequence("turn", turns, |w, turn| {
                w.unroll("round", at_once, |w, round| visit(w, turn * at_once + round + begin, is_inside));
            });
            (begin + turns * at_once..end).for_each(|round| visit(w, Expr::int(round), is_inside));
        }
        w.unroll("group", own, |w, group| {
            let pair = best.load(w, group);
            found.store(w, place(group), pair);
        });
    });
}
