//! Makes all memories of a kernel flat: one dimension of adjacent elements, which coordinates count together.
//!
//! Backends address memory by one index. Here it is put together from the coordinates and the strides, where ranges of loop
//! variables are known: coordinates that are digits of one position add up to that position again.

use litz_ir::kernel::{Kernel, MemData, Op, Stmt};
use litz_sym::{Expr, Facts};
use std::collections::HashMap;

/// Flattens the memories; `facts` says what is known of the symbols that no loop declares.
pub fn flatten(kernel: &mut Kernel, facts: &Facts) {
    if kernel.mems.values().all(MemData::is_flat) {
        return;
    }
    let mut facts = facts.clone();
    kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let mut body = std::mem::take(&mut kernel.body);
    Flattener { kernel, places: HashMap::new() }.block(&mut body, &facts);
    kernel.body = body;
    for mem in kernel.mems.values_mut().filter(|mem| !mem.is_flat()) {
        *mem = MemData::flat(std::mem::take(&mut mem.name), mem.dtype, mem.span(), mem.space);
    }
}

struct Flattener<'a> {
    kernel: &'a Kernel,
    /// Places already simplified in the scope that is visited.
    places: HashMap<Expr, Expr>,
}

impl Flattener<'_> {
    /// Flattens the accesses of a block, of whose symbols `facts` says what is known.
    fn block(&mut self, stmts: &mut [Stmt], facts: &Facts) {
        let around = std::mem::take(&mut self.places);
        let mut facts = std::borrow::Cow::Borrowed(facts);
        for stmt in stmts {
            match stmt {
                Stmt::Loop(inner) => {
                    let mut inside = facts.clone().into_owned();
                    inside.declare_index(inner.var, inner.extent);
                    self.block(&mut inner.body, &inside);
                }
                Stmt::If { then, other, .. } => {
                    self.block(then, &facts);
                    self.block(other, &facts);
                }
                Stmt::Bind { sym, extent, .. } => facts.to_mut().declare_index(*sym, *extent),
                Stmt::Let { op: Op::Load { mem, index, .. }, .. } | Stmt::Store { mem, index, .. } => {
                    let data = &self.kernel.mems[*mem];
                    self.index(data, index, &facts);
                }
                Stmt::ArgStore { best, index, .. } => {
                    let data = &self.kernel.mems[*best];
                    self.index(data, index, &facts);
                }
                Stmt::Let { .. } => {}
            }
        }
        self.places = around;
    }

    fn index(&mut self, data: &MemData, index: &mut Vec<Expr>, facts: &Facts) {
        if data.is_flat() {
            return;
        }
        let place = data.place(index);
        let simple = *self.places.entry(place).or_insert_with(|| {
            // n*floordiv(x, n) + mod(x, n) => x
            if place.is_polynomial() { place } else { facts.simplify(place) }
        });
        *index = vec![simple];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::text::kernel::parse;
    use litz_ir::verify::kernel::verify;

    fn flat(text: &str) -> String {
        let mut kernel = parse(text).expect("parses");
        assert_eq!(verify(&kernel), []);
        flatten(&mut kernel, &Facts::new());
        assert_eq!(verify(&kernel), []);
        kernel.to_string()
    }

    #[test]
    fn digits_of_one_position_are_that_position() {
        let text = "kernel @k { read x: f32[8, 12] write y: f32[8, 12]{1, 8} grid g in 96
          %0: f32 = load x[floordiv(g, 12), mod(g, 12)] y[floordiv(g, 12), mod(g, 12)] = %0 }";
        let flat = flat(text);
        assert!(flat.contains("read x: f32[96]") && flat.contains("load x[g]"), "{flat}");
        assert!(flat.contains("write y: f32[96]"), "{flat}");
        assert!(flat.contains("y[floordiv(g, 12) + 8*mod(g, 12)] = %0"), "{flat}");
    }

    #[test]
    fn memory_without_dimensions_has_one_element() {
        let text = "kernel @k { read x: f32[] write y: f32[2] grid i in 2 %0: f32 = load x[] y[i] = %0 }";
        let flat = flat(text);
        assert!(flat.contains("read x: f32[1]") && flat.contains("load x[0]"), "{flat}");
    }

    #[test]
    fn what_each_loop_counts_is_known_inside_of_it_alone() {
        let text = "kernel @k { read x: f32[4, 16] write y: f32[64]
          for i in 4 { for j in 16 { %0: f32 = load x[i, mod(j, 16)] y[16*i + j] = %0 } }
          for i in 2 { for j in 32 {
            %1: f32 = load x[2*i + floordiv(j, 16), mod(j, 16)] y[32*i + j] = %1 } } }";
        let flat = flat(text);
        assert!(flat.contains("load x[16*i + j]") && flat.contains("load x[32*i + j]"), "{flat}");
    }
}
