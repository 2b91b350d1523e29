//! Reports loads and stores outside of their buffers.

use litz_sym::{Expr, Facts, Rel, Sym};

use super::Verifier;
use super::body::{Body, Place};
use crate::ids::Id;
use crate::loops::{Axis, Buf, BufData};

impl Verifier<'_> {
    /// Indices that are outside of the buffer at every point.
    pub(super) fn bounds(&mut self, body: &Body, buf: Buf, index: Expr, place: Place) {
        let Some(data) = self.loops.bufs.get(buf) else { return };
        if self.is_element(body, buf, index) {
            return;
        }
        let facts = body.facts(&self.loops.facts);
        let is_empty = |axis: &Axis| facts.bounds(axis.extent).hi <= 0;
        if data.sizes.len() != data.strides.len() || body.nest.all_axes().any(is_empty) {
            return;
        }
        let never = |rel: Rel| facts.known(&rel).is_no();
        if never(Rel::le(0, index)) || never(Rel::lt(index, data.span())) {
            let message = format_args!("{place}: {index} is never an element of `{}`", data.name);
            self.report.fail("out-of-bounds", message);
        }
    }

    /// Whether the index is an element at the first point of the nest for one choice of sizes. Almost all are, and
    /// numbers are quicker than proofs.
    fn is_element(&self, body: &Body, buf: Buf, index: Expr) -> bool {
        let is_inside = |sym: Sym| {
            body.nest.all_axes().any(|axis| axis.var == sym)
                || body.bound.iter().any(|bound| bound.sym == sym)
        };
        let value = |sym| if is_inside(sym) { Some(0) } else { size_at(sym, &self.loops.facts) };
        let elements = self.spans.get(buf.index()).copied().flatten();
        matches!((index.eval(&value), elements), (Some(at), Some(elements)) if (0..elements).contains(&at))
    }
}

/// One size that a symbol may have: the example, or the smallest one.
fn size_at(sym: Sym, facts: &Facts) -> Option<i64> {
    let lowest = facts.range_of(sym).lo;
    facts.hint_of(sym).or((lowest != i64::MIN).then_some(lowest))
}

/// As [`BufData::span`], for one choice of sizes.
pub(super) fn span_at(buf: &BufData, facts: &Facts) -> Option<i64> {
    let value = |sym| size_at(sym, facts);
    buf.sizes.iter().zip(&buf.strides).try_fold(1i64, |span, (size, stride)| {
        let last = size.eval(&value)?.checked_sub(1)?;
        span.checked_add(last.checked_mul(stride.eval(&value)?)?)
    })
}
