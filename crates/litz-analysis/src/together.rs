//! Finds the lanes of a warp that are side by side and have one value together.

use litz_ir::loops::Axis;
use litz_ir::target::Gpu;
use litz_sym::{Expr, Facts, Sym};

/// Of how many iterations side by side, a power of two, all values are the same: 4 for `floordiv(l, 4) + 8*r`. All lanes of a warp where
/// none of them mentions the loop, and 1 where they are told apart.
pub fn lanes_together(axis: Axis, values: &[Expr], facts: &Facts) -> u32 {
    let counts = (0..=Gpu::LANES.ilog2()).rev().map(|power| 1 << power);
    if !values.iter().any(|value| value.has_sym(axis.var)) {
        return Gpu::LANES;
    }
    let [number, inside] = ["number", "inside"].map(|what| Sym::new(&format!("{} {what}", axis.var)));
    let is_same = |count: &u32| {
        let (mut facts, count) = (facts.clone(), i64::from(*count));
        facts.declare_index(inside, Expr::int(count));
        facts.declare_index(number, axis.extent.ceildiv(count));
        let at = Expr::sym(number) * count + Expr::sym(inside);
        let put = |value: Expr| facts.simplify(value.subst(&|sym| (sym == axis.var).then_some(at)));
        !values.iter().any(|&value| put(value).has_sym(inside))
    };
    counts.into_iter().find(is_same).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_lanes_apart_ends_a_group() {
        let (lane, row) = (Sym::new("l"), Expr::sym(Sym::new("r")));
        let (axis, l) = (Axis { var: lane, extent: Expr::int(32) }, Expr::sym(lane));
        let together = |values: &[Expr]| lanes_together(axis, values, &Facts::default());
        assert_eq!(together(&[row]), 32);
        assert_eq!(together(&[l.floordiv(4) + row * 8]), 4);
        assert_eq!(together(&[l.floordiv(4), l.floordiv(8)]), 4);
        assert_eq!(together(&[l.floordiv(4).modulo(2)]), 4);
        assert_eq!(together(&[l.modulo(4)]), 1);
        assert_eq!(together(&[l.floordiv(3)]), 1);
        assert_eq!(together(&[l]), 1);
    }
}
