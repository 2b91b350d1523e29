//! Describes which elements of its buffers a call of a runtime routine touches.

use litz_sym::Expr;

use super::Routine;

impl Routine {
    /// How many elements the call touches of each buffer that it reads and then of each that it writes. None for calls
    /// that no routine takes: the runtime refuses these by itself.
    ///
    /// Integers: `sort` takes outer, length, inner and direction, `topk`
    /// outer, length, inner, k and direction, `nonzero` the number of elements, `nms` that of boxes; see the table of routines in `litz-runtime`.
    pub fn touched(&self) -> Option<Vec<Expr>> {
        if let ("nonzero", &[elements]) = (&*self.name, &self.ints[..]) {
            let is_call = self.reads.len() == 1 && self.writes.len() == 2;
            return is_call.then(|| vec![elements, elements, Expr::one()]);
        }
        if let ("nms", &[boxes]) = (&*self.name, &self.ints[..]) {
            let is_call = self.reads.len() == 3 && self.writes.len() == 2;
            return is_call.then(|| vec![boxes * 4, boxes, Expr::one(), boxes, Expr::one()]);
        }
        let (lines, length, kept) = match (&*self.name, &self.ints[..]) {
            ("sort", &[outer, length, inner, _]) => (outer * inner, length, length),
            ("topk", &[outer, length, inner, k, _]) => (outer * inner, length, k),
            _ => return None,
        };
        let is_call = self.reads.len() == 1 && self.writes.len() == 2;
        is_call.then(|| vec![lines * length, lines * kept, lines * kept])
    }
}
