//! Makes a row once for each kernel of products that multiplies with it.
//!
//! A product of one row by a matrix is a kernel of many blocks, and the norm ahead of it one of a single block, for which all others wait.
//! Where nobody but one kernel needs what the norm makes, its blocks make it each for itself, beside loading their rows of the matrix (`rows` of
//! `litz-schedule`). Products of several lengths are several kernels, as those of queries, keys and values by groups: the first keeps the nests of the
//! norm, and each of the others gets nests of its own. Products of one length are one kernel, and share them.
//!
//! Nothing is repeated for products whose rows are too few for all units: such a kernel would not make the row for itself.

use super::{Cx, Edits, Names, inline};
use litz_analysis::Uses;
use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest, Stmt};
use litz_ir::target::{Gpu, Target};
use litz_sym::Expr;
use std::collections::{BTreeMap, BTreeSet};

/// Rows of all products of a kernel that a block has, at least, where it makes for itself what they are multiplied with.
const ROWS_OF_BLOCK: i64 = 4;

/// Whether kernels of a target have blocks.
pub fn wants(target: &Target) -> bool {
    matches!(target, Target::Gpu(_))
}

/// Repeats rows; returns how many.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let Target::Gpu(gpu) = cx.target else { return 0 };
    let (uses, mut names, mut edits) = (Uses::of(loops), Names::of(loops), Edits::default());
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        let Some((buf, makers)) = row_of(loops, at, &uses) else { continue };
        let Some(kernels) = kernels(loops, buf, &uses, gpu) else { continue };
        for products in kernels.into_iter().skip(1) {
            let mut own: BTreeMap<Buf, Buf> = BTreeMap::new();
            for &maker in &makers {
                let Stmt::Nest(mut nest) = loops.stmts[maker].clone() else { continue };
                nest.name = names.statement(&nest.name);
                for made in nest.writes() {
                    let data = loops.bufs[made].clone();
                    let buf = names.add_buf(loops, &data.name, data.ty());
                    loops.bufs[buf].stream = data.stream;
                    own.insert(made, buf);
                }
                rename(&mut nest, &own);
                edits.insert(at, Stmt::Nest(nest));
            }
            for product in products {
                if let Stmt::Nest(nest) = &mut loops.stmts[product] {
                    rename(nest, &own);
                }
            }
            count += 1;
        }
    }
    edits.apply(loops);
    count
}

/// The row that the pointwise nest at a position stores, and the nests that make it, some of which reduce, in order: all that is made for it alone.
fn row_of(loops: &Loops, at: usize, uses: &Uses) -> Option<(Buf, BTreeSet<usize>)> {
    let Stmt::Nest(nest) = &loops.stmts[at] else { return None };
    let (buf, _) = inline::single_store(nest)?;
    let is_made_here = |buf: Buf| loops.is_internal(buf) && matches!(uses.writers(buf), [_]);
    if !is_made_here(buf) || nest.axes.iter().filter(|axis| !axis.extent.is_one()).count() != 1 {
        return None;
    }
    let mut makers = BTreeSet::from([at]);
    while let Some(more) = makers.iter().flat_map(|&maker| uses.reads_of(maker)).find_map(|&read| {
        let &[writer] = uses.writers(read) else { return None };
        let Stmt::Nest(nest) = &loops.stmts[writer] else { return None };
        let is_value = nest.axes.iter().all(|axis| axis.extent.is_one()) && nest.reduces();
        let mut made = uses.writes_of(writer).iter();
        let is_for_it = made
            .all(|&buf| is_made_here(buf) && uses.readers(buf).iter().all(|reader| makers.contains(reader)));
        (is_value && is_for_it && !makers.contains(&writer)).then_some(writer)
    }) {
        makers.insert(more);
    }
    // What they read is to be the same where they are repeated, ahead of the last of them.
    let first = *makers.first()?;
    let is_stored = |read: &Buf| {
        uses.writers(*read).iter().any(|writer| (first..at).contains(writer) && !makers.contains(writer))
    };
    let is_same = !makers.iter().flat_map(|&maker| uses.reads_of(maker)).any(is_stored);
    (makers.len() > 1 && is_same).then_some((buf, makers))
}

/// The products that multiply with a row, those of one length together. None where another nest reads it, or one kernel would have too few rows for all
/// units.
fn kernels(loops: &Loops, buf: Buf, uses: &Uses, gpu: &Gpu) -> Option<Vec<Vec<usize>>> {
    let mut kernels: Vec<(Expr, Vec<usize>)> = Vec::new();
    for &reader in uses.readers(buf) {
        let Stmt::Nest(nest) = &loops.stmts[reader] else { return None };
        let length = rows_of_product(loops, nest, buf, uses)?.extent;
        match kernels.iter_mut().find(|kernel| kernel.0 == length) {
            Some(kernel) => kernel.1.push(reader),
            None => kernels.push((length, vec![reader])),
        }
    }
    let is_enough = |(length, products): &(Expr, Vec<usize>)| {
        let rows = length.as_int().unwrap_or(0).saturating_mul(products.len() as i64);
        rows >= i64::from(gpu.units) * ROWS_OF_BLOCK
    };
    kernels.iter().all(is_enough).then(|| kernels.into_iter().map(|kernel| kernel.1).collect())
}

/// The axis of the rows of a matrix that a nest multiplies with all of a row: the matrix is there before the call.
fn rows_of_product<'a>(loops: &Loops, nest: &'a Nest, buf: Buf, uses: &Uses) -> Option<&'a Axis> {
    let mut axes = nest.axes.iter().filter(|axis| !axis.extent.is_one());
    let (&[reduced], Some(rows), None) = (&nest.reduced[..], axes.next(), axes.next()) else { return None };
    let (mut has_row, mut has_matrix) = (false, false);
    for inst in &nest.body {
        let InstOp::Load { buf: read, index, guard, .. } = &inst.op else { continue };
        let has = |axis: &Axis| index.iter().any(|at| at.has_sym(axis.var));
        match *read == buf {
            true if !guard.is_empty() || has(rows) || !has(&reduced) => return None,
            true => has_row = true,
            false => has_matrix |= has(rows) && has(&reduced) && uses.writers(*read).is_empty(),
        }
    }
    let is_whole = loops.bufs[buf].elements() == reduced.extent;
    (nest.reduces() && has_row && has_matrix && is_whole).then_some(rows)
}

/// Has a nest touch other buffers in the place of some.
fn rename(nest: &mut Nest, own: &BTreeMap<Buf, Buf>) {
    for inst in &mut nest.body {
        if let InstOp::Load { buf, .. } | InstOp::Store { buf, .. } = &mut inst.op {
            *buf = own.get(buf).copied().unwrap_or(*buf);
        }
    }
}
