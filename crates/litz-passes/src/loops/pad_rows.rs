//! Stores rows that a register tile reads side by side in different sets of the first-level cache.
//!
//! A tile of a product loads one number of each of its rows at a time, and the next one of each a step later, so that the lines of all of
//! its rows have to stay in the cache. Rows a multiple of 4096 bytes apart share one set there, which holds fewer lines than tiles with
//! vectors of 512 bits have rows: each number would come from the second-level cache. Where an intermediate result has such rows,
//! each is followed by a line that nothing uses.
//!
//! Products of 128 to 512 rows with sums of 1024, 3072 and 4096 ran 1.02 to 1.17 times as fast with rows apart (two threads of an Intel
//! Xeon, AVX-512, 13 and 14 rows a tile and 12 lines a set).

use super::Cx;
use litz_analysis::{Contraction, Uses};
use litz_ir::loops::{Buf, Loops, Nest, Stmt};
use litz_ir::target::{Cpu, Target};
use litz_sym::Expr;

/// Bytes between lines that share a set: the sets of first-level caches are told apart by the bits of an address that all mappings of
/// pages leave as they are, 64 lines of 64 bytes.
const SETS: i64 = 4096;
/// Bytes of a line.
const LINE: i64 = 64;

/// Whether a target's rows are read through a cache of sets.
pub fn wants(target: &Target) -> bool {
    target.cpu().is_some()
}

/// Puts rows apart; returns of how many buffers.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let cpu = cx.target.cpu().expect("invariant: no other target wants rows apart");
    let uses = Uses::of(loops);
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        let Stmt::Nest(nest) = &loops.stmts[at] else { continue };
        let Some((buf, row)) = rows_in_one_set(loops, nest, cpu) else { continue };
        let mut users = uses.readers(buf).iter().chain(uses.writers(buf));
        if !loops.is_internal(buf) || !users.all(|&user| matches!(loops.stmts[user], Stmt::Nest(_))) {
            continue;
        }
        let pad = LINE / loops.bufs[buf].dtype.size() as i64;
        let Some(strides) = with_rows_apart(&loops.bufs[buf].strides, row, pad) else { continue };
        loops.bufs[buf].strides = strides;
        count += 1;
    }
    count
}

/// The left operand of a product, if more rows of a tile share a set than it has lines, and the elements between its rows.
fn rows_in_one_set(loops: &Loops, nest: &Nest, cpu: &Cpu) -> Option<(Buf, i64)> {
    let Contraction { lhs, m, .. } = Contraction::by_result(loops, nest)?.contraction;
    let (buf, index) = nest.body[lhs].op.element()?;
    let data = &loops.bufs[buf];
    let place = loops.place(nest, buf, index);
    let step = |var| place.linear(var).and_then(|(step, _)| step.as_int()).filter(|&step| step > 0);
    let (step, row) =
        m.iter().filter_map(|axis| Some((step(axis.var)?, axis))).min_by_key(|found| found.0)?;
    let bytes = step.saturating_mul(data.dtype.size() as i64);
    let sets = SETS / SETS.min(1 << bytes.trailing_zeros());
    let known = m.iter().map(|axis| axis.extent.as_int().unwrap_or(i64::MAX));
    let rows = known.fold(1, i64::saturating_mul).min(cpu.tile_rows());
    let dim = index.iter().position(|at| at.has_sym(row.var))?;
    let apart = data.strides[dim].as_int().filter(|&apart| apart > 0)?;
    (rows > sets * (cpu.l1_bytes / SETS)).then_some((buf, apart))
}

/// Strides of a buffer whose rows are `row` elements apart, when each has `pad` elements more. None where that is not all that there is
/// in between.
fn with_rows_apart(strides: &[Expr], row: i64, pad: i64) -> Option<Vec<Expr>> {
    let apart = |stride: &Expr| match stride.as_int()? {
        inside if inside < row => Some(Expr::int(inside)),
        outside => (outside % row == 0).then(|| Expr::int(outside / row * (row + pad))),
    };
    strides.iter().map(apart).collect()
}
