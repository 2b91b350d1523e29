//! A nest to the products that it sums: which loads it multiplies, and which axes each of them has.

use super::{Axis, InstOp, Nest};
use crate::ids::Id;
use crate::scalar::{ReduceOp, ScalarOp};
use litz_sym::Sym;

/// A nest read as sums of products of two loads.
///
/// ```text
/// nest n0 [i in 8, j in 32 | k in 16] {
///   %0: f32 = load x[16*i + k]      the left operand, with rows i
///   %1: f32 = load w[16*j + k]      the right one, with columns j
///   %2: f32 = mul %0, %1
///   %3: f32 = reduce.sum %2
///   store y[32*i + j] = %3
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Product {
    /// Position of the left operand's load.
    pub left: usize,
    /// Position of the right operand's load.
    pub right: usize,
    /// Outer axes that only the left operand has, in its index or its guards.
    pub rows: Vec<Axis>,
    /// Outer axes that only the right operand has.
    pub columns: Vec<Axis>,
}

impl Nest {
    /// The sums of products that the nest computes, either factor taken as the left operand. `None` where sums of products
    /// are not all it reduces to, or where a factor is not a load, converted perhaps.
    pub fn products(&self) -> Option<[Product; 2]> {
        let mut reduces = self.body.iter().filter(|inst| inst.op.is_reduction());
        let (Some(reduce), None) = (reduces.next(), reduces.next()) else { return None };
        let InstOp::Reduce(ReduceOp::Sum, value) = reduce.op else { return None };
        let InstOp::Op(ScalarOp::Mul, factors) = &self.body.get(value.index())?.op else { return None };
        let &[a, b] = factors.as_slice() else { return None };
        let (a, b) = (self.source_load(a.index())?, self.source_load(b.index())?);
        let only = |own: usize, other: usize| -> Vec<Axis> {
            let is_own = |axis: &&Axis| self.mentions(own, axis.var) && !self.mentions(other, axis.var);
            self.axes.iter().filter(is_own).copied().collect()
        };
        let product =
            |left, right| Product { left, right, rows: only(left, right), columns: only(right, left) };
        Some([product(a, b), product(b, a)])
    }

    /// Whether an expression of the instruction at position `at` has that symbol.
    pub fn mentions(&self, at: usize, sym: Sym) -> bool {
        self.body[at].op.exprs().iter().any(|e| e.has_sym(sym))
    }

    /// The load that a value comes from, through conversions.
    fn source_load(&self, at: usize) -> Option<usize> {
        match &self.body.get(at)?.op {
            InstOp::Load { .. } => Some(at),
            InstOp::Cast(value) if value.index() < at => self.source_load(value.index()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::{Loops, Stmt};

    fn parsed(text: &str) -> Loops {
        crate::text::loops::parse(text).expect("the text is a program")
    }

    fn products(loops: &Loops) -> Option<[Product; 2]> {
        let Stmt::Nest(nest) = &loops.stmts[0] else { panic!("expected a nest") };
        nest.products()
    }

    const PRODUCT: &str = "loops @l on cpu {
  buf x: bf16[3, 8, 16] = input
  buf w: f32[3, 32, 16] = input
  buf y: f32[3, 8, 32]
  nest n0 [b in 3, i in 8, j in 32 | k in 16] {
    %0: bf16 = load x[b, i, k]
    %1: f32 = cast %0
    %2: f32 = load w[b, j, k]
    %3: f32 = mul %1, %2
    %4: f32 = reduce.sum %3
    store y[b, i, j] = %4
  }
  return y
}
";

    #[test]
    fn either_factor_may_be_the_left_operand() {
        let loops = parsed(PRODUCT);
        let names = |axes: &[Axis]| axes.iter().map(|axis| axis.var.name().to_owned()).collect::<Vec<_>>();
        let all = products(&loops).expect("the nest is a product");
        let seen = all.map(|p| (p.left, p.right, names(&p.rows), names(&p.columns)));
        let [i, j] = ["i", "j"].map(|name| vec![name.to_owned()]);
        assert_eq!(seen, [(0, 2, i.clone(), j.clone()), (2, 0, j, i)]);
    }

    #[test]
    fn sums_of_anything_else_are_none() {
        assert!(products(&parsed(&PRODUCT.replace("reduce.sum", "reduce.max"))).is_none());
        assert!(products(&parsed(&PRODUCT.replace("= mul", "= add"))).is_none());
        assert!(products(&parsed(&PRODUCT.replace("%1: f32 = cast", "%1: f32 = exp"))).is_none());
    }
}
