//! Adds up in a sum what was added up in zeros first, to be added to it.
//!
//! ```text
//! nest n0 { store e[i] = 0.0 }                              nest n2 { %0 = load x[i] .. store y[i] = %0 }
//! nest n1 { bind t = %k in N .. store.sum e[t] = %v }  =>   nest n1 { bind t = %k in N .. store.sum y[t] = %v }
//! nest n2 { %2 = add %x, load e[i] .. store y[i] = %2 }
//! ```
//!
//! The gradient of an embedding whose table is the last layer's weight as well is the sum of a product and of rows that are added at
//! the words of the input: of 50257 rows at most a few hundred. The zeros are as large as the table.

use super::{Cx, Edits, cse, inline};
use litz_analysis::{Dependences, Uses};
use litz_ir::ids::Id;
use litz_ir::loops::{Buf, BufKind, Inst, InstOp, Loops, Stmt, Val};
use litz_ir::{ReduceOp, ScalarOp};
use std::cell::OnceCell;

/// Rewrites sums; returns how many.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let uses = Uses::of(loops);
    let deps = OnceCell::new();
    let found: Vec<Accumulated> = (0..loops.stmts.len())
        .filter_map(|at| Accumulated::ending_at(loops, at, &uses))
        .filter(|sum| {
            let deps = deps.get_or_init(|| Dependences::of(loops, &[]));
            // What depends on the model alone is added up when it is loaded.
            sum.stores.iter().all(|&at| deps.stmts[at].at_load == deps.stmts[sum.end].at_load)
        })
        .collect();
    let mut edits = Edits::default();
    for sum in &found {
        sum.rewrite(loops, &mut edits);
    }
    edits.apply(loops);
    found.len()
}

/// A sum of a value and of what statements add to zeros.
struct Accumulated {
    /// The statement that stores the zeros.
    fill: usize,
    /// Those that add to it, in order.
    stores: Vec<usize>,
    /// The one that stores the sum, and where.
    end: usize,
    result: Buf,
    /// The other term.
    term: Val,
}

impl Accumulated {
    fn ending_at(loops: &Loops, end: usize, uses: &Uses) -> Option<Accumulated> {
        let Stmt::Nest(nest) = &loops.stmts[end] else { return None };
        let (result, index) = inline::single_store(nest)?;
        let stored = nest.body.iter().find_map(|inst| {
            let InstOp::Store { value, .. } = &inst.op else { return None };
            Some(*value)
        })?;
        let (&InstOp::Op(ScalarOp::Add, ref terms), dtype) =
            (&nest.body[stored.index()].op, nest.body[stored.index()].ty)
        else {
            return None;
        };
        let &[one, other] = &terms[..] else { return None };
        let of_zeros = |val: Val| {
            let InstOp::Load { buf, index: at, guard, .. } = &nest.body[val.index()].op else { return None };
            (guard.is_empty() && at == index).then_some(*buf)
        };
        let candidates = [(one, other), (other, one)];
        candidates.into_iter().find_map(|(val, term)| {
            let zeros = of_zeros(val).filter(|_| one != other)?;
            let found = Accumulated::of(loops, uses, zeros, (end, result, term))?;
            let loads =
                nest.body.iter().filter(|inst| inst.op.element().is_some_and(|(buf, _)| buf == zeros));
            let used = nest.body.iter().flat_map(|inst| inst.op.operands()).filter(|operand| *operand == val);
            let is_whole = inline::axis_of_dims(&loops.bufs[result], index, nest, &loops.facts).is_some();
            let is_exact = dtype == loops.bufs[zeros].dtype
                && dtype == loops.bufs[result].dtype
                && dtype.compute() == dtype;
            (loads.count() == 1 && used.count() == 1 && is_whole && is_exact).then_some(found)
        })
    }

    /// That of zeros which nothing else reads, if whoever stores to them may do so at the end.
    fn of(
        loops: &Loops,
        uses: &Uses,
        zeros: Buf,
        (end, result, term): (usize, Buf, Val),
    ) -> Option<Accumulated> {
        let (&fill, stores) = uses.writers(zeros).split_first()?;
        let is_ours = |at: &usize| *at == end || stores.contains(at);
        let is_alone = loops.is_internal(zeros) && uses.readers(zeros).iter().all(is_ours);
        let is_first =
            uses.writers(result) == [end] && uses.readers(result).iter().all(|&reader| reader > end);
        let is_alike =
            loops.bufs[zeros].sizes == loops.bufs[result].sizes && loops.bufs[result].kind == BufKind::Temp;
        let keeps = |&at: &usize| {
            let is_overwritten = |buf: &Buf| {
                *buf != zeros && uses.writers(*buf).iter().any(|&writer| writer > at && writer <= end)
            };
            at < end && !uses.reads_of(at).iter().any(is_overwritten) && !uses.reads_of(at).contains(&result)
        };
        let fits = is_alone && is_first && is_alike && !stores.is_empty();
        let is_sum = |&at: &usize| adds_to(&loops.stmts[at], zeros) && uses.writes_of(at) == [zeros];
        (fits && fills(loops, fill, zeros) && stores.iter().all(keeps) && stores.iter().all(is_sum))
            .then(|| Accumulated { fill, stores: stores.to_vec(), end, result, term })
    }

    fn rewrite(&self, loops: &mut Loops, edits: &mut Edits) {
        edits.remove(self.fill);
        for &at in &self.stores {
            edits.remove(at);
            if let Stmt::Nest(nest) = &loops.stmts[at] {
                let mut nest = nest.clone();
                nest.body.iter_mut().for_each(|inst| {
                    if let InstOp::Store { buf, .. } = &mut inst.op {
                        *buf = self.result;
                    }
                });
                edits.insert(self.end + 1, Stmt::Nest(nest));
            }
        }
        if let Stmt::Nest(nest) = &mut loops.stmts[self.end] {
            for inst in &mut nest.body {
                if let InstOp::Store { value, .. } = &mut inst.op {
                    *value = self.term;
                }
            }
            cse::clean(nest);
        }
    }
}

/// Whether a statement stores zero to each element of a buffer.
fn fills(loops: &Loops, at: usize, buf: Buf) -> bool {
    let Stmt::Nest(nest) = &loops.stmts[at] else { return false };
    let Some((_, index)) = inline::single_store(nest).filter(|(stored, _)| *stored == buf) else {
        return false;
    };
    let is_whole = inline::axis_of_dims(&loops.bufs[buf], index, nest, &loops.facts).is_some();
    let is_zero = |inst: &Inst| {
        if let InstOp::Const(value) = &inst.op {
            value.as_f64() == 0.0
        } else {
            matches!(inst.op, InstOp::Store { .. })
        }
    };
    is_whole && nest.body.iter().all(is_zero)
}

/// Whether a statement is a nest that does nothing to a buffer but add to its elements.
fn adds_to(stmt: &Stmt, buf: Buf) -> bool {
    let Stmt::Nest(nest) = stmt else { return false };
    nest.body.iter().all(|inst| {
        if let InstOp::Store { buf: stored, combine, .. } = &inst.op {
            *stored == buf && *combine == Some(ReduceOp::Sum)
        } else {
            inst.op.element().is_none_or(|(read, _)| read != buf)
        }
    })
}
