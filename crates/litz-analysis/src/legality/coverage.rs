//! Proves that loops take each point of a nest's axes once, and otherwise only points past the end of an axis.
//!
//! Axes that depend on no common loop are proved apart from each other. Those that do, such as the quotient and the remainder of the
//! variable of merged loops, are the digits of one number: that of the point among all points, counted in row-major order. Where the
//! number is a sum of loop variables in mixed radix (1 times the first, its extent times the next, and so on) it
//! takes each value below the product of the extents once; and where all digits but the highest are below their
//! extents, each number is one point.

use std::borrow::Cow;
use std::cmp::Reverse;

use litz_sym::{Expr, Facts, Kind, Rel, Sym};

use crate::apart::without_remainders;
use crate::inside::{end_of, longest};
use litz_ir::loops::Axis;

/// Iterations that are looked at to see which of several digits is the higher one.
const MOST_POINTS: usize = 4096;

/// An axis of a nest, bound to a value.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    /// The axis.
    pub(super) axis: Sym,
    /// Points of the axis.
    pub(super) extent: Expr,
    /// Its value, in terms of the loops.
    pub(super) value: Expr,
}

/// The loops around a leaf.
pub(super) struct Coverage<'a> {
    /// What is known where the nest has points.
    facts: Cow<'a, Facts>,
    /// Those of several iterations, or of nobody knows how many.
    loops: Vec<Axis>,
    /// Those of one iteration.
    ones: Vec<Sym>,
}

impl<'a> Coverage<'a> {
    /// The loops `around` a leaf, of a nest with these extents. None where the nest has no points: nothing is to be taken.
    pub(super) fn new(
        facts: &'a Facts,
        extents: impl Iterator<Item = Expr>,
        around: impl Iterator<Item = Axis>,
    ) -> Option<Coverage<'a>> {
        let mut facts = Cow::Borrowed(facts);
        for extent in extents {
            let has_points = match extent.as_int() {
                Some(extent) => extent > 0,
                None => facts.to_mut().assume(Rel::le(1, extent)),
            };
            if !has_points {
                return None;
            }
        }
        let is_one = |axis: &Axis| {
            let is_known = |rel: Rel| facts.known(&rel).is_yes();
            axis.extent.is_one()
                || axis.extent.as_int().is_none()
                    && is_known(Rel::le(axis.extent, 1))
                    && is_known(Rel::le(1, axis.extent))
        };
        let (ones, mut loops): (Vec<Axis>, Vec<Axis>) = around.partition(is_one);
        let ones = ones.into_iter().map(|axis| axis.var).collect();
        let coverage = Coverage { facts, loops: Vec::new(), ones };
        loops.iter_mut().for_each(|axis| axis.extent = coverage.without_ones(end_of(axis.extent)));
        Some(Coverage { loops, ..coverage })
    }

    /// A value with 0 for the variables of loops of one iteration.
    pub(super) fn without_ones(&self, value: Expr) -> Expr {
        if self.ones.is_empty() {
            value
        } else {
            value.subst(&|sym| self.ones.contains(&sym).then(Expr::zero))
        }
    }

    /// The axes in groups that have no loop in common.
    pub(super) fn together(&self, bound: &[Bound]) -> Vec<Vec<Bound>> {
        let mut groups: Vec<Vec<Bound>> = Vec::new();
        for &one in bound {
            let meets = |group: &Vec<Bound>| {
                let has_both =
                    |var: Sym| one.value.has_sym(var) && group.iter().any(|other| other.value.has_sym(var));
                self.loops.iter().any(|axis| has_both(axis.var))
            };
            let (common, others): (Vec<Vec<Bound>>, Vec<Vec<Bound>>) = groups.into_iter().partition(meets);
            groups = others;
            groups.push(common.into_iter().flatten().chain([one]).collect());
        }
        groups
    }

    /// Whether the loops take each point of these axes once, and otherwise only points past the end of one.
    pub(super) fn is_once(&self, bound: &[Bound]) -> bool {
        if let [one] = bound
            && self.counts(one.value, one.extent)
        {
            return true;
        }
        let mut facts = self.facts.clone();
        for axis in &self.loops {
            // The variable of a loop of one iteration would go, and with it that the loop may have none.
            let most = Some(longest(axis.extent)).filter(|most| !most.is_one()).unwrap_or(axis.extent);
            facts.to_mut().declare_index(axis.var, most);
        }
        let mut order = bound.to_vec();
        self.is_number(&facts, &order)
            || {
                order.reverse();
                self.is_number(&facts, &order)
            }
            || {
                order.sort_by_cached_key(|bound| Reverse(self.first_change(bound.value)));
                self.is_number(&facts, &order)
            }
    }

    /// After how many iterations of the loops a value is no longer 0, by hints: the higher a digit, the later.
    fn first_change(&self, value: Expr) -> usize {
        let sizes: Vec<i64> =
            self.loops.iter().map(|axis| self.facts.hint(longest(axis.extent)).unwrap_or(1).max(1)).collect();
        let mut point = vec![0; sizes.len()];
        for count in 0..MOST_POINTS {
            let at = |sym: Sym| self.loops.iter().position(|axis| axis.var == sym);
            let here = |sym: Sym| at(sym).map(|at| point[at]).or_else(|| self.facts.hint_of(sym));
            if value.eval(&here) != Some(0) {
                return count;
            }
            let Some(next) = (0..sizes.len()).rev().find(|&at| point[at] + 1 < sizes[at]) else { break };
            point[next] += 1;
            point[next + 1..].fill(0);
        }
        usize::MAX
    }

    /// Whether the axes, the highest first, are digits of a number that the loops count.
    fn is_number(&self, facts: &Facts, digits: &[Bound]) -> bool {
        let (mut number, mut unit) = (Expr::zero(), Expr::one());
        for digit in digits.iter().rev() {
            number = number + unit * digit.value;
            unit = unit * digit.extent;
        }
        let is_digit = |digit: &Bound| {
            facts.known(&Rel::le(0, digit.value)).is_yes()
                && facts.known(&Rel::lt(digit.value, digit.extent)).is_yes()
        };
        self.counts(without_remainders(number, facts), unit) && digits[1..].iter().all(is_digit)
    }

    /// Whether `number` is a sum of the loop variables in mixed radix, and so takes each of `0 .. extent` once, and otherwise
    /// larger values.
    fn counts(&self, number: Expr, extent: Expr) -> bool {
        let (mut rest, mut digits) = (number, Vec::new());
        for &axis in self.loops.iter().filter(|axis| number.has_sym(axis.var)) {
            let Some((factor, without)) = rest.linear(axis.var) else { return false };
            rest = without;
            digits.push((factor, axis));
        }
        let is_le = |a: Expr, b: Expr| a == b || self.facts.known(&Rel::le(a, b)).is_yes();
        let factors = digits.clone();
        // The digits so far count from 0 to `end`, and to those of `early` whose loops are among them at most.
        let (mut end, mut early): (Expr, Vec<Early>) = (Expr::one(), Vec::new());
        while let Some(at) = digits.iter().position(|&(factor, _)| factor == end) {
            let (factor, axis) = digits.swap_remove(at);
            if !self.varies(axis.extent) {
                end = end * axis.extent;
            } else if let Some((full, found)) = self.early(factor, axis, &factors) {
                end = end * full;
                early.push(found);
            } else {
                return false;
            }
            let is_due =
                |early: &Early| early.loops.iter().all(|&var| digits.iter().all(|digit| digit.1.var != var));
            let (due, pending): (Vec<Early>, Vec<Early>) = early.into_iter().partition(is_due);
            early = pending;
            for Early { end: first, .. } in due {
                match is_le(first, end) {
                    true => end = first,
                    false if is_le(end, first) => {}
                    false => return false,
                }
            }
        }
        digits.is_empty() && early.is_empty() && rest.is_zero() && is_le(extent, end)
    }

    /// Of a digit's loop that ends earlier in some iterations of others: its extent where it does not, and where all of them end.
    ///
    /// In a tile that is cut off, `i in min(16, n - 16*t)`, the number `16*t + i` ends at `n` whatever `t`.
    fn early(&self, factor: Expr, axis: Axis, factors: &[(Expr, Axis)]) -> Option<(Expr, Early)> {
        let Kind::Min(a, b) = axis.extent.kind() else { return None };
        let (cut, full) = if self.varies(a) { (a, b) } else { (b, a) };
        let higher = factors.iter().filter(|(_, other)| cut.has_sym(other.var));
        let end =
            higher.clone().fold(factor * cut, |sum, &(factor, other)| sum + factor * Expr::sym(other.var));
        let loops = higher.map(|(_, other)| other.var).collect();
        (!self.varies(full) && !self.varies(end)).then_some((full, Early { end, loops }))
    }

    /// Whether an expression has other values in other iterations.
    fn varies(&self, e: Expr) -> bool {
        self.loops.iter().any(|axis| e.has_sym(axis.var))
    }
}

/// Where loops of which one ends earlier in some iterations of the others end together.
struct Early {
    /// What they count to.
    end: Expr,
    /// The others.
    loops: Vec<Sym>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::loops::Stmt;

    /// Whether loops take each point of axes once: `axes` as a nest has them with their values, `loops` outermost first.
    fn covers(axes: &[(&str, i64, String)], loops: &str) -> bool {
        let parsed = |list: &str| {
            let text = format!("loops @l on cpu {{ sym s0 in [0, 64] nest n [{list}] {{ }} return }}");
            litz_ir::text::loops::parse(&text).unwrap_or_else(|diags| panic!("{}\n{text}", diags[0]))
        };
        let program = parsed(loops);
        let Stmt::Nest(nest) = &program.stmts[0] else { panic!("expected a nest") };
        let bound = axes.iter().map(|(name, extent, value)| {
            let value = parsed(&format!("{name} in {value}"));
            let value = value.stmts[0].nests()[0].axes[0].extent;
            Bound { axis: Sym::new(name), extent: Expr::int(*extent), value }
        });
        let bound: Vec<Bound> = bound.collect();
        let extents = bound.iter().map(|bound| bound.extent);
        let coverage =
            Coverage::new(&program.facts, extents, nest.axes.iter().copied()).expect("there are points");
        let value = |bound: &Bound| Bound { value: coverage.without_ones(bound.value), ..*bound };
        let groups = coverage.together(&bound.iter().map(value).collect::<Vec<_>>());
        groups.iter().all(|group| coverage.is_once(group))
    }

    fn one(extent: i64, value: &str, loops: &str) -> bool {
        covers(&[("x", extent, value.to_owned())], loops)
    }

    #[test]
    fn loops_count_in_mixed_radix() {
        assert!(one(32, "8*i + j", "i in 4, j in 8"));
        assert!(one(32, "i + 4*j", "i in 4, j in 8"));
        assert!(one(30, "8*i + j", "i in 4, j in 8"), "the last points are past the end");
        assert!(!one(33, "8*i + j", "i in 4, j in 8"));
        assert!(!one(32, "8*i + j + 1", "i in 4, j in 8"));
        assert!(!one(32, "7*i + j", "i in 4, j in 8"), "7 is taken twice");
        assert!(!one(36, "9*i + j", "i in 4, j in 8"), "8 is taken by none");
        assert!(!one(8, "j", "i in s0, j in 8 - i"));
        assert!(!one(4, "mod(i, 4)", "i in 8"));
    }

    #[test]
    fn a_tile_that_is_cut_off_is_counted_to_where_it_ends() {
        assert!(one(40, "14*t + i", "t in 3, i in min(14, 40 - 14*t)"));
        assert!(one(80, "40*g + 14*t + i", "g in 2, t in 3, i in min(14, 40 - 14*t)"));
        assert!(
            !one(84, "42*g + 14*t + i", "g in 2, t in 3, i in min(14, 40 - 14*t)"),
            "40 and 41 are taken by none"
        );
        assert!(!one(80, "40*g + 14*t + i", "g in 2, t in 3, i in min(14, 41 - 14*t)"), "40 is taken twice");
        assert!(one(17, "16*b + 4*s + u", "b in 2, s in min(5 - 4*b, 4), u in 4"));
        assert!(!one(21, "16*b + 4*s + u", "b in 2, s in min(5 - 4*b, 4), u in 4"));
    }

    #[test]
    fn axes_are_the_digits_of_merged_loops() {
        let digits = |x: &str, extent: i64| {
            [("i", extent, format!("floordiv({x}, 6)")), ("j", 6, format!("mod({x}, 6)"))]
        };
        assert!(covers(&digits("4*b + v", 8), "b in 12, v in 4"));
        assert!(covers(&digits("5*b + v", 8), "b in 10, v in 5"), "the last points are past the end");
        assert!(!covers(&digits("4*b + v", 9), "b in 12, v in 4"));
        assert!(!covers(&digits("4*b + v", 8), "b in 12, v in 5"), "4*1 + 0 is 4*0 + 4");
        assert!(!covers(&[("i", 8, "floordiv(v, 6)".into()), ("j", 5, "mod(v, 6)".into())], "v in 48"));
        assert!(!covers(&[("i", 4, "v".into()), ("j", 4, "v".into())], "v in 4"), "the diagonal is not all");
        assert!(covers(&[("j", 6, "mod(v, 6)".into()), ("i", 8, "floordiv(v, 6)".into())], "v in 48"));
    }

    /// Of random bindings, those that are accepted take each point once.
    #[test]
    fn what_is_proved_is_so() {
        let mut state = 1u64;
        let mut below = |limit: i64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as i64 % limit
        };
        let mut proved = 0;
        for _ in 0..4000 {
            let (b, v) = (1 + below(5), 1 + below(6));
            let factor = if below(3) == 0 { 1 + below(6) } else { v };
            let cut = 1 + below(factor * b);
            let [i, j] = [1 + below(6), 1 + below(5)];
            let radix = if below(3) == 0 { 1 + below(6) } else { j };
            let x = format!("{factor}*b + v");
            let inner = if below(2) == 0 { v.to_string() } else { format!("min({v}, {cut} - {factor}*b)") };
            let loops = format!("b in {b}, v in {inner}");
            let axes = [("i", i, format!("floordiv({x}, {radix})")), ("j", j, format!("mod({x}, {radix})"))];
            if !covers(&axes, &loops) {
                continue;
            }
            proved += 1;
            let mut taken = vec![0; (i * j) as usize];
            for b in 0..b {
                let v = if inner.starts_with("min") { v.min(cut - factor * b) } else { v };
                for x in (0..v).map(|v| factor * b + v) {
                    let (at_i, at_j) = (x.div_euclid(radix), x.rem_euclid(radix));
                    if at_i < i && at_j < j {
                        taken[(at_i * j + at_j) as usize] += 1;
                    }
                }
            }
            assert!(taken.iter().all(|&times| times == 1), "{axes:?} in {loops}: {taken:?}");
        }
        assert!(proved > 100, "{proved} bindings are proved");
    }
}
