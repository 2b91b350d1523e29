//! Says by how much the memory of a call grows where two kernels become one.
//!
//! A kernel needs at one time what two would have needed at a time each: what the one reads waits for what the other reads. Where both
//! are large and share little, that takes more memory than it is worth. By how much it grows is what the order of kernels says that needs
//! least (`order.rs`), with and without: what lives longer beside a higher peak, or in any case, costs nothing.

use crate::context::Cx;
use crate::order::{BYTES_OF_LAUNCH, least_peak};
use litz_ir::loops::{Buf, BufData, BufKind};
use std::collections::BTreeSet;

/// The memory that a call needs at once where its statements are in the kernels formed so far, once that has been asked for. None in it:
/// nobody knows.
#[derive(Default)]
pub struct Pressure(Option<Option<i64>>);

impl Pressure {
    /// Bytes by which the memory in use at once grows where the kernels with the statements `a` and `b` become one, if they are more than
    /// `saved` bytes of traffic and a launch are worth. `kernels` are the statements of each kernel of a call.
    pub fn growth(
        &mut self,
        cx: &Cx<'_>,
        kernels: impl FnOnce() -> Vec<Vec<usize>>,
        (a, b): (&[usize], &[usize]),
        saved: i64,
    ) -> Option<i64> {
        let worth = saved.saturating_mul(cx.heuristics.memory_growth).saturating_add(BYTES_OF_LAUNCH);
        // A simulation takes longer than all else about a pair. Where one of the two waits for the other, or goes ahead of it, what it alone
        // touches does.
        if alone(cx, a, b).min(alone(cx, b, a)) <= worth {
            return None;
        }
        let mut kernels = kernels();
        let before = (*self.0.get_or_insert_with(|| least_peak(cx, &kernels)))?;
        let is_of_both = |stmts: &Vec<usize>| stmts.iter().any(|stmt| a.contains(stmt) || b.contains(stmt));
        let at = kernels.iter().position(is_of_both)?;
        kernels.retain(|stmts| !is_of_both(stmts));
        kernels.insert(at, [a, b].concat());
        Some(least_peak(cx, &kernels)? - before).filter(|&growth| growth > worth)
    }

    /// Forgets what was found: two kernels became one.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

/// Bytes of what a call makes, by examples of sizes, that the statements `own` touch and `others` do not.
fn alone(cx: &Cx<'_>, own: &[usize], others: &[usize]) -> i64 {
    let touched = |stmts: &[usize]| -> BTreeSet<Buf> {
        let of = |&stmt: &usize| cx.deps.stmts[stmt].reads.iter().chain(&cx.deps.stmts[stmt].writes);
        stmts.iter().flat_map(of).copied().collect()
    };
    let (own, others) = (touched(own), touched(others));
    let made = own.difference(&others).map(|&buf| &cx.loops.bufs[buf]);
    let bytes = |data: &BufData| {
        cx.loops.facts.hint(data.span()).unwrap_or(0).saturating_mul(data.dtype.size() as i64)
    };
    made.filter(|data| data.kind == BufKind::Temp).map(bytes).fold(0, i64::saturating_add)
}
