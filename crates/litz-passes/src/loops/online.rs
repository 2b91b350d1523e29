//! Fuses chains of reductions over rows that are too long to keep into a sequential loop over blocks of their columns.
//!
//! ```text
//! s = a.b          m = max(s)      e = exp(s - m)      l = sum(e)      y = sum(e*v) / l
//! ```
//! becomes, block by block of the columns, with sums corrected by how much the maximum has grown:
//! ```text
//! s = a.b   n = max(m, max(s))   c = exp(m - n)   m = n   e = exp(s - n)   l = l*c + sum(e)   o = o*c + sum(e*v)
//! ```
//! Which reductions may, and how they are corrected, is for `litz_analysis::online` to say. No more than a block of a row of
//! `s` and `e` is alive at a time. Rounding is that of sums by K blocks.
//!
//! Of few rows, as one new token of attention has, a GPU takes the columns in slabs, which blocks of threads go through side by side. What these
//! have come to is merged behind (`region/slabs.rs`).

mod blocks;
mod idle;
mod region;

use super::{Cx, Edits, Names, inline};
use blocks::Blocks;
use litz_analysis::contraction::Columns;
use litz_analysis::online::{self, Chain, Correction, Member, Reference, Role};
use litz_analysis::{Contraction, Uses};
use litz_ir::Dtype;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest, Stmt};
use litz_ir::target::{BlockNeeds, Gpu, Rounds, Target};
use litz_sym::{Expr, Sym};
use std::collections::BTreeSet;

/// Columns of a block beside products, the first that leaves no rest: correcting the sums costs a row about as much as 16
/// columns at 64 features. Where none does, blocks are as wide as packed panels, which are filled up.
const BLOCKS: [i64; 3] = [256, 128, 64];
/// Columns of a block of rows without products, at least and at most: the maximum is taken of what the first-level cache still
/// holds when exponentials are, and there are enough of these to correct sums for.
const ROW_BLOCK: [i64; 2] = [64, 4096];
/// Of how many bytes of the second-level cache a row's block has a column.
const ROW_BLOCK_SHARE: i64 = 256;
/// How many times the second-level cache a row takes from which on reading it once less pays, where no row of intermediate results
/// is left out: it comes from a third-level cache before. On an Intel Xeon with AVX-512 and 2 MiB (one thread, medians of 3
/// times 20 calls by turns), 32 rows of 600,000 took by blocks 0.75 times as long in softmax and 0.5 in cross entropy, which leave out
/// such a row; log-sum-exp, variance and layer norm took as long either way.
const FAR_CACHES: i64 = 16;
/// Rows that share the columns' operands, or keep threads busy, at least: below, operands are read about as often as scores.
const MIN_ROWS: i64 = 16;
/// Rows that a kernel with products takes at a time, about.
const TILE_ROWS: i64 = 16;

/// Columns of a block that warpgroups of a GPU take, for results of as many columns as warps have at most, and for wider ones.
const WARPGROUP_WIDTHS: [i64; 2] = [128, 64];
/// Columns of a result that they sum, at most.
const WARPGROUP_COLUMNS: i64 = 256;
/// Columns of a panel of theirs, the narrowest.
const PANEL: i64 = 32;
/// Rows that a block of theirs has, and columns that it takes at a time, at most.
const WARPGROUP_ROWS: i64 = 128;
/// Rows and columns from which on they take blocks: those of warps are smaller, so that all units have some sooner. Where each unit has two of theirs they
/// do from more columns on than one block of these has: on an H200 attention of 16 x 12 heads of 197 rows of 64 features takes 14.5 us instead of 18.7, and of
/// 4 x 12 heads of 384 rows 13.4 instead of 12.7.
const LEAST_OF_WARPGROUP: [i64; 2] = [64, 512];
const LEAST_OF_MANY: i64 = 160;

/// Rows from which on instructions of a GPU take those of slabs: most of what they sum is nothing then, but memory is waited for anyway.
const LEAST_TILE_ROWS: i64 = 2;
/// Rows that a block of threads of a GPU takes at most, and a warp.
const BLOCK_ROWS: i64 = 64;
const WARP_ROWS: i64 = 16;
/// Columns of a slab, at least: what merges slabs takes a launch, and a block some microseconds for so many. Of few rows a block is one warp, whose
/// loads wait for each other: it takes three microseconds for a quarter of them.
const LEAST_OF_SLAB: i64 = 256;
const LEAST_OF_WARP: i64 = 64;
/// Buffers in rotation of what is copied of columns.
const BUFFERS: i64 = 2;

/// Blocks that there are at least where some of them are idle: of 8, a causal mask leaves 4.5.
const MIN_BLOCKS: i64 = 8;

/// Rewrites chains; returns how many.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let (mut uses, mut names) = (Uses::of(loops), Names::of(loops));
    let (mut count, mut at) = (0, 0);
    let mut kept: Vec<String> = Vec::new();
    while at < loops.stmts.len() {
        let found = online::find(loops, &uses, at).and_then(|chain| {
            let width = match cx.target {
                Target::Gpu(gpu) if Work::of(loops, &chain)?.has_products => {
                    let slabs = slabs(loops, &chain, gpu);
                    let least = if slabs > 1 { LEAST_TILE_ROWS } else { MIN_ROWS };
                    return tile_width(loops, &chain, gpu, least).map(|width| (slabs, chain, width));
                }
                // Threads of a GPU share a row, and keep it.
                Target::Gpu(_) => None,
                Target::Cpu(_) => block_width(loops, &chain, cx).or_else(|| {
                    let is_idle = |&width: &i64| is_idle_somewhere(loops, &uses, &chain, width);
                    idle_width(loops, &chain).filter(is_idle)
                }),
            };
            width.map(|width| (1, chain, width))
        });
        let Some((slabs, chain, width)) = found else {
            at += 1;
            continue;
        };
        let blocks = Blocks::new(loops, &chain, width, slabs);
        let (region, behind) = region::region(loops, &uses, &chain, &blocks, &mut names);
        kept.extend(chain.kept.iter().map(|&at| loops.stmts[at].name().to_owned()));
        let behind = behind.into_iter().map(Stmt::Nest);
        replace(loops, &chain, std::iter::once(Stmt::Recurrence(region)).chain(behind));
        uses = Uses::of(loops);
        count += 1;
    }
    // What is computed again need not be stored where sums were the other reason to.
    if !kept.is_empty() {
        inline::run_on(loops, cx, &|stmt| kept.iter().any(|name| name == stmt.name()));
    }
    count
}

/// Whether a region of blocks that wide would have idle iterations.
fn is_idle_somewhere(loops: &Loops, uses: &Uses, chain: &Chain, width: i64) -> bool {
    let mut trial = loops.clone();
    let mut names = Names::of(&trial);
    let blocks = Blocks::new(&trial, chain, width, 1);
    let (region, _) = region::region(&mut trial, uses, chain, &blocks, &mut names);
    region.nests.iter().any(|nest| nest.idle.is_some())
}

/// Puts the region where the last member of the chain is, and behind it what comes later for it.
fn replace(loops: &mut Loops, chain: &Chain, region: impl Iterator<Item = Stmt>) {
    let Some(behind) = chain.members.keys().next_back().map(|last| last + 1) else { return };
    let mut edits = Edits::default();
    region.for_each(|stmt| edits.insert(behind, stmt));
    let mut later: Vec<usize> = chain.kept.iter().chain(&chain.delayed).copied().collect();
    later.sort_unstable();
    later.iter().for_each(|&at| edits.insert(behind, loops.stmts[at].clone()));
    chain.members.keys().chain(&chain.delayed).for_each(|&at| edits.remove(at));
    edits.apply(loops);
}

/// What a chain works on, by hints.
struct Work {
    rows: i64,
    columns: i64,
    /// Bytes that are read or written of all columns: with products for a block of rows, beside the operand of a product.
    bytes: i64,
    has_products: bool,
    /// There is an intermediate result for each column.
    has_lines: bool,
    /// Exponentials are wanted, or scores are in memory, in full.
    is_stored: bool,
}

impl Work {
    fn of(loops: &Loops, chain: &Chain) -> Option<Work> {
        let hint = |e: Expr| loops.facts.size_hint(e);
        let extents = |axes: &[Axis]| axes.iter().map(|axis| hint(axis.extent)).product::<i64>();
        let nest = |at: usize| online::chain::nest(loops, at);
        let products: Vec<(usize, Contraction)> = chain
            .members
            .keys()
            .filter_map(|&at| Some((at, Contraction::by_result(loops, nest(at)?)?.contraction)))
            .collect();
        let is_pointwise = |at: usize| matches!(chain.members[&at].role, Role::Pointwise(_));
        let source = products.iter().find(|product| is_pointwise(product.0));
        let reference =
            *chain.members.iter().find(|(_, member)| matches!(member.role, Role::Reduction(_)))?.0;
        let rows = match source {
            Some((_, contraction)) => extents(&contraction.m),
            None => extents(&nest(reference)?.axes),
        };
        let read = |at: usize| nest(at).map_or(Vec::new(), |nest| along(nest, chain.members[&at].column));
        let pointwise = chain.members.values().filter_map(|member| match &member.role {
            Role::Pointwise(pointwise) => Some(pointwise.buf),
            Role::Reduction(_) => None,
        });
        let mut touched: BTreeSet<Buf> = pointwise.collect();
        let has_lines = !touched.is_empty();
        let has_products = !products.is_empty();
        let (tile, operand) = if has_products {
            touched.extend(read(reference));
            (TILE_ROWS, source.and_then(|source| nest(source.0)).map_or(0, |nest| 4 * extents(&nest.reduced)))
        } else {
            chain.members.keys().for_each(|&at| touched.extend(read(at)));
            (1, 0)
        };
        let row: i64 = touched.iter().map(|&buf| loops.bufs[buf].dtype.size() as i64).sum();
        let columns = hint(chain.columns);
        Some(Work {
            rows,
            columns,
            bytes: columns.saturating_mul(tile * row + operand),
            has_products,
            has_lines,
            is_stored: source.is_none() || !chain.kept.is_empty(),
        })
    }
}

/// Columns of a block, where going block by block pays: what is read or written for each column takes more than half the
/// second-level cache, and there are enough rows.
///
/// Beside products that is a block of rows of scores and exponentials, and the operand of a product with them. One head of 2048
/// rows by 2048 columns took 7.2 ms by blocks, 8.2 by whole rows, 7.7 in separate kernels; of 1024 by 1024, 1.4 ms by whole
/// rows and 1.9 in separate kernels (Intel Xeon with AVX-512 and 2 MiB of second-level cache, one thread, shortest of 60
/// calls). Without products it is one row. Scores that are in memory anyway are better weighted in kernels of their own.
fn block_width(loops: &Loops, chain: &Chain, cx: &Cx<'_>) -> Option<i64> {
    let work = Work::of(loops, chain)?;
    let is_apart = work.has_products && work.is_stored;
    let far = if work.has_lines { cx.target.near_bytes() / 2 } else { cx.target.near_bytes() * FAR_CACHES };
    if work.rows < MIN_ROWS || work.bytes <= far || is_apart {
        return None;
    }
    let whole = BLOCKS.into_iter().find(|&width| loops.facts.divides(width, chain.columns));
    Some(match work.has_products {
        true => whole.unwrap_or(i64::from(cx.target.tile_columns()?)),
        false => (cx.target.near_bytes() / ROW_BLOCK_SHARE).clamp(ROW_BLOCK[0], ROW_BLOCK[1]),
    })
}

/// Columns of a block that warps or warpgroups of a GPU take by instructions, where these sum all products: scores and weights are in registers
/// then, and never in memory, and there are at least so many rows. Of results with more columns a thread has more than its registers hold.
fn tile_width(loops: &Loops, chain: &Chain, gpu: &Gpu, least: i64) -> Option<i64> {
    let work = Work::of(loops, chain)?;
    if work.is_stored || work.rows < least {
        return None;
    }
    let hint = |e: Expr| loops.facts.hint(e).unwrap_or(i64::MAX);
    let (mut is_by_warps, mut is_by_warpgroups, mut widest, mut blocks) =
        (true, work.columns >= LEAST_OF_MANY, 0, i64::MAX);
    for (&at, member) in &chain.members {
        let Some(nest) = online::chain::nest(loops, at) else { continue };
        let Some(Columns { contraction, .. }) = Contraction::by_result(loops, nest) else { continue };
        let Contraction { lhs, rhs, ref m, ref n, is_plain, .. } = contraction;
        let dtype = |at: usize| nest.body[at].op.element().map(|(buf, _)| loops.bufs[buf].dtype);
        let dtype = dtype(lhs).filter(|_| dtype(lhs) == dtype(rhs));
        let has_instruction =
            dtype.is_some_and(|dtype| gpu.of_warp(dtype, Dtype::F32, Rounds::Never).next().is_some());
        let points = |axes: &[Axis]| axes.iter().map(|axis| hint(axis.extent)).fold(1, i64::saturating_mul);
        let columns = if let Role::Reduction(_) = member.role { points(n) } else { 0 };
        let others = points(&nest.axes) / points(m).max(1) / points(n).max(1);
        blocks = blocks.min(others.saturating_mul((points(m) - 1) / WARPGROUP_ROWS + 1));
        widest = widest.max(columns);
        is_by_warps &= is_plain && has_instruction && columns <= online::WARP_COLUMNS;
        is_by_warpgroups &= is_plain
            && dtype.is_some_and(|dtype| {
                dtype.size() == 2 && gpu.of_warpgroup(dtype, Dtype::F32, Rounds::Never).is_some()
            })
            && columns <= WARPGROUP_COLUMNS
            && m.iter().any(|axis| hint(axis.extent) >= LEAST_OF_WARPGROUP[0])
            && [lhs, rhs].into_iter().all(|at| has_panels(loops, nest, at, chain));
    }
    let is_enough = work.columns >= LEAST_OF_WARPGROUP[1] || blocks >= 2 * i64::from(gpu.units);
    if is_by_warpgroups && is_enough {
        return Some(WARPGROUP_WIDTHS[usize::from(widest > online::WARP_COLUMNS)]);
    }
    is_by_warps.then_some(online::WARP_WIDTH)
}

/// Whether boxes of an operand may be copied in panels: of what the chain does not compute itself, rows of which an axis has whole panels begin
/// where 16 bytes do.
fn has_panels(loops: &Loops, nest: &Nest, at: usize, chain: &Chain) -> bool {
    let InstOp::Load { buf, index, .. } = &nest.body[at].op else { return false };
    let is_own =
        |member: &Member| matches!(&member.role, Role::Pointwise(pointwise) if pointwise.buf == *buf);
    if chain.members.values().any(is_own) {
        return true;
    }
    let data = &loops.bufs[*buf];
    let mut writers = (0..loops.stmts.len()).filter(|&stmt| loops.stmts[stmt].writes().contains(buf));
    let is_there = |writer: usize| chain.members.keys().next().is_some_and(|&first| writer < first);
    let (Some((last, others)), Some(place)) = (data.strides.split_last(), index.last()) else { return false };
    let is_whole = |axis: &Axis| place.has_sym(axis.var) && loops.facts.divides(PANEL, axis.extent);
    // Rows past the end of an axis that is a part of a dimension are those of something else.
    let is_axis = |place: Expr| {
        let counts = |axis: &&Axis| place.linear(axis.var).is_some_and(|(step, _)| step.is_one());
        place.as_sym().is_some()
            || nest.all_axes().filter(counts).all(|axis| loops.facts.divides(WARPGROUP_ROWS, axis.extent))
    };
    let unit = i64::from(Gpu::VECTOR_BYTES) / data.dtype.size() as i64;
    // What is copied gets no other contents.
    writers.all(is_there)
        && index[..index.len() - 1].iter().all(|&place| is_axis(place))
        && last.is_one()
        && data.sizes.len() <= Gpu::BOX_DIMS
        && others.iter().all(|&stride| loops.facts.divides(unit, stride))
        && nest.all_axes().any(is_whole)
}

/// Slabs of the columns of a chain of products, by hints: as many as one wave of blocks has.
fn slabs(loops: &Loops, chain: &Chain, gpu: &Gpu) -> i64 {
    let hint = |e: Expr| loops.facts.size_hint(e).max(1);
    let points = |axes: &[Axis]| axes.iter().map(|axis| hint(axis.extent)).fold(1, i64::saturating_mul);
    // Only extremes say what slabs are corrected by.
    let is_merged = |member: &Member| match &member.role {
        Role::Reduction(reduction) => {
            reduction.reference != Some(Reference::Mean)
                && reduction.corrections.iter().all(|by| matches!(by, Correction::Exp(..)))
        }
        Role::Pointwise(_) => true,
    };
    if !chain.members.values().all(is_merged) {
        return 1;
    }
    let (mut blocks, mut warps, mut bytes, mut most_rows) = (1, 1, 0, 0);
    for (&at, member) in &chain.members {
        let Some(nest) = online::chain::nest(loops, at) else { continue };
        let Some(Columns { contraction, .. }) = Contraction::by_result(loops, nest) else { continue };
        let Contraction { rhs, m, n, .. } = contraction;
        let size = nest.body[rhs].op.element().map_or(0, |(buf, _)| loops.bufs[buf].dtype.size() as i64);
        bytes += size
            * match member.role {
                Role::Pointwise(_) => points(&nest.reduced),
                Role::Reduction(_) => points(&n),
            };
        let rows = m.iter().map(|axis| hint(axis.extent)).max().unwrap_or(1);
        most_rows = i64::max(most_rows, rows);
        warps = (rows.min(BLOCK_ROWS) + WARP_ROWS - 1) / WARP_ROWS;
        blocks = points(&nest.axes) / points(&n) / rows * ((rows + BLOCK_ROWS - 1) / BLOCK_ROWS);
    }
    let needs = BlockNeeds {
        threads: warps * i64::from(Gpu::LANES),
        registers: i64::from(Gpu::REGISTERS),
        shared_bytes: BUFFERS * online::WARP_WIDTH * bytes,
    };
    let columns = hint(chain.columns);
    let is_of_warps = most_rows <= WARP_ROWS && columns >= LEAST_OF_SLAB;
    let least = if is_of_warps { LEAST_OF_WARP } else { LEAST_OF_SLAB };
    (gpu.resident(needs) / blocks.max(1)).min(columns / least).max(1)
}

/// Columns of a block, where going block by block pays if half of the blocks are idle: there are enough of them.
fn idle_width(loops: &Loops, chain: &Chain) -> Option<i64> {
    let work = Work::of(loops, chain)?;
    let suits =
        |&width: &i64| width * MIN_BLOCKS <= work.columns && loops.facts.divides(width, chain.columns);
    let is_product = work.has_products && !work.is_stored && work.rows >= MIN_ROWS;
    BLOCKS.into_iter().filter(|_| is_product).find(suits)
}

/// Buffers that a nest loads other elements of for other columns.
fn along(nest: &Nest, column: Sym) -> Vec<Buf> {
    let load = |inst: &Inst| {
        let InstOp::Load { buf, index, .. } = &inst.op else { return None };
        index.iter().any(|at| at.has_sym(column)).then_some(*buf)
    };
    nest.body.iter().filter_map(load).collect()
}
