//! Judges whether it pays that a statement shares the points of a group, on a CPU.

use crate::context::Cx;
use crate::cost::{LINE_BYTES, footprint, parallel_points, points, shares_lines, work};
use crate::cpu::cpu;
use crate::group::{Group, Member};
use crate::join::{align_members, alone, join, overwrites, own_axes};
use crate::nest;
use crate::no_fuse::NoFuse;
use litz_analysis::access::{Stride, accesses, stride, substitute};
use litz_analysis::align::DomainMap;
use litz_ir::loops::Axis;

/// Chunks of work from which on a kernel is worth sharing out although its last statement has fewer points.
const LONG: i64 = 4;
/// Chunks of work from which on a statement gets a kernel of its own because those before it have fewer points.
const LONG_END: i64 = 16;

/// Whether `together` points at once are too few for all threads in the kernel of a group and statement `s`, where one
/// of them has more on its own and enough to do.
pub fn is_less_parallel(cx: &Cx<'_>, group: &Group, s: usize, joined: &Group, together: i64) -> bool {
    let wanted = 2 * i64::from(cpu(cx).threads);
    if wanted <= 2 || together >= wanted {
        return false;
    }
    let loses = |part: &Group| parallel_points(cx.loops, part) > together;
    let chunks = |part: &Group| work(cx.loops, part) / cx.heuristics.chunk_ops;
    let alone = alone(cx, s);
    loses(group) && chunks(joined) > LONG || loses(&alone) && chunks(&alone) > LONG_END
}

/// The group with statement `s` at the points that all share, if they are enough and what they pass on fits in the cache.
/// Tiles of a product take what has no loops of its own, and loops whose lines of the cache they do not split.
pub fn join_points(cx: &Cx<'_>, group: &Group, s: usize, is_product: bool) -> Result<Group, NoFuse> {
    let mut map = DomainMap::default();
    align_members(cx, group, s, &group.outer, &mut map);
    let joined = join(cx, group, s, map, is_product)?;
    // Where both share no points, all that one reads is read before any of it is overwritten: nothing is gained.
    let is_many = |axis: &Axis| !axis.extent.is_one();
    let has_points = nest(cx.loops, s).all_axes().any(is_many);
    if overwrites(cx, group, s) && has_points && !joined.outer.iter().any(is_many) {
        return Err(NoFuse::OtherPoints);
    }
    if is_less_parallel(cx, group, s, &joined, parallel_points(cx.loops, &joined)) {
        return Err(NoFuse::LessParallel);
    }
    if footprint(cx.loops, cx.deps, &joined) > cpu(cx).l2_bytes / cx.heuristics.local_fraction {
        return Err(NoFuse::Footprint);
    }
    if !is_product && splits_lines(cx, &joined) {
        return Err(NoFuse::SplitLines);
    }
    Ok(joined)
}

/// Whether a member of loops writes lines of the cache piece by piece, since its own loops step from line to line and the elements of
/// one belong to different points of the group, while those of another member lie side by side along its own loops, which are
/// vectors. A line is then read and written for every element, and threads that run different points take it from each other. The
/// outputs of a batch normalisation's 64 channels of 112x112 points, copied with channels innermost, took 6.7 ms on two threads of an
/// Intel Xeon (AVX-512), 0.3 ms and 0.2 ms with a kernel for the copy.
fn splits_lines(cx: &Cx<'_>, group: &Group) -> bool {
    let is_along = |member: &Member| {
        let own = nest(cx.loops, member.stmt);
        accesses(own).any(|access| {
            let place = access.place(cx.loops, own);
            own.all_axes().any(|axis| member.is_own(axis) && stride(place, axis.var) == Stride::Unit)
        })
    };
    let is_split = |member: &Member| {
        let own = nest(cx.loops, member.stmt);
        let lines = points(&cx.loops.facts, own_axes(own, member));
        lines.saturating_mul(LINE_BYTES) > cpu(cx).l1_bytes
            && accesses(own).filter(|access| access.store).any(|access| {
                let size = cx.loops.bufs[access.buf].dtype.size() as i64;
                let place = substitute(access.place(cx.loops, own), &member.bind);
                let shares = |axis: &Axis| shares_lines(stride(place, axis.var), size);
                group.outer.iter().any(shares) && !own_axes(own, member).any(shares)
            })
    };
    group.members.iter().any(is_split) && group.members.iter().any(is_along)
}
