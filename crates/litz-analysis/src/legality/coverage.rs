//! Proves that loops take each point of a nest's axes once, and otherwise only points past the end of an axis.
//!
//! An axis whose value is loop variables in mixed radix (1 times the first, its extent times the next, and so on) takes each of its
//! values once. Merged loops bind axes to quotients and remainders instead, which are digits of the number that the loops count. So
//! axes are rewritten until no division is left. For `0 <= low < n`, these take the same points:
//!
//! - an axis `n*high + low` of `m*n` points, and two axes `high` of `m` points and `low` of `n`, which takes apart digits of
//!   different numbers;
//! - two axes `high` of `m` points and `low` of `n`, and one axis `n*high + low`, which puts digits of one number together.
//!
//! Where an axis has no multiple of `n` points it may be taken for one that has: the points that it has more are past its end.
//! Each point is taken once where each loop is in one axis then, and each axis counts its own loops, up or down.

use std::borrow::Cow;

use litz_sym::{Expr, Facts, Kind, Rel, Sym};

use crate::apart::without_remainders;
use crate::inside::end_of;
use litz_ir::loops::Axis;

/// Rewrites of the axes of a leaf, at most. One of six axes and two merged loops takes ten.
const MOST_REWRITES: usize = 64;

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
            let is_known = |rel: Rel| facts.holds(&rel);
            axis.extent.is_one()
                || axis.extent.as_int().is_none()
                    && is_known(Rel::le(axis.extent, 1))
                    && is_known(Rel::le(1, axis.extent))
        };
        let (ones, mut loops): (Vec<Axis>, Vec<Axis>) = around.partition(is_one);
        let ones = ones.into_iter().map(|axis| axis.var).collect();
        let coverage = Coverage { facts, loops: Vec::new(), ones };
        for axis in &mut loops {
            // A block that is the only one may end where its axis does: min(s0 - 256*0, 256) => s0
            axis.extent = coverage.facts.simplify(coverage.without_ones(end_of(axis.extent)));
        }
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
            facts.to_mut().declare_index(axis.var, axis.extent);
        }
        // Whole sums would mix digits: 4*floordiv(x, 2) + mod(x, 2) => 2*x - mod(x, 2)
        let simplest = |value: Expr| match value.is_polynomial() {
            true => value,
            false => {
                value.terms().map(|(factor, term)| facts.simplify(term) * factor).sum::<Expr>()
                    + value.constant()
            }
        };
        // A digit that counts down takes what one takes that counts up: 31 - mod(v, 32) => mod(v, 32)
        let upwards = |(value, extent): Digit| {
            let is_down = !value.is_polynomial() && value.terms().all(|(factor, _)| factor < 0);
            let is_point = || is_below(value, extent, &facts);
            (if is_down && is_point() { extent - 1 - value } else { value }, extent)
        };
        let digits = bound.iter().map(|bound| upwards((simplest(bound.value), bound.extent)));
        let numbers = numbers(digits.collect(), &facts, &|value| self.varies(value));
        let numbers = self.ending_together(numbers, &facts);
        // A loop whose variable simplifies away repeats all that is taken.
        let is_in_one = |axis: &Axis| {
            let is_bound = bound.iter().any(|bound| bound.value.has_sym(axis.var));
            numbers.iter().filter(|number| number.0.has_sym(axis.var)).count() == usize::from(is_bound)
        };
        self.loops.iter().all(is_in_one) && numbers.iter().all(|&(value, extent)| self.counts(value, extent))
    }

    /// Axes of which one ends early in some iterations of another's loops as one axis: in `16*t + i` for `i in min(16, n - 16*t)`
    /// they end together.
    fn ending_together(&self, mut axes: Vec<Digit>, facts: &Facts) -> Vec<Digit> {
        let ends_in = |low: Expr, high: Expr| {
            let ends = self.loops.iter().filter(|axis| low.has_sym(axis.var)).map(|axis| axis.extent);
            ends.into_iter()
                .any(|end| self.loops.iter().any(|axis| end.has_sym(axis.var) && high.has_sym(axis.var)))
        };
        let pair = |axes: &[Digit]| {
            let pairs = (0..axes.len()).flat_map(|high| (0..axes.len()).map(move |low| (high, low)));
            let is_pair = |&(high, low): &(usize, usize)| {
                high != low && ends_in(axes[low].0, axes[high].0) && is_below(axes[low].0, axes[low].1, facts)
            };
            pairs.into_iter().find(is_pair)
        };
        while let Some((high, low)) = pair(&axes) {
            let ((value, count), (below, radix)) = (axes[high], axes[low]);
            axes[high] = (radix * value + below, count * radix);
            axes.remove(low);
        }
        axes
    }

    /// Whether `number` is a sum of the loop variables in mixed radix, and so takes each of `0 .. extent` once, and otherwise
    /// larger values.
    fn counts(&self, number: Expr, extent: Expr) -> bool {
        let (mut rest, mut digits, mut factors) = (number, Vec::new(), Vec::new());
        for &axis in self.loops.iter().filter(|axis| number.has_sym(axis.var)) {
            let Some((factor, without)) = rest.linear(axis.var) else { return false };
            // A loop that counts down takes what one takes that counts up: v => extent - 1 - v
            let is_down = match factor.as_int() {
                Some(factor) => factor < 0,
                None => self.facts.holds(&Rel::le(factor, -1)),
            };
            let is_down = is_down && !self.varies(axis.extent);
            rest = if is_down { without + factor * (axis.extent - 1) } else { without };
            digits.push((if is_down { Expr::zero() - factor } else { factor }, axis));
            factors.push((factor, axis));
        }
        let is_le = |a: Expr, b: Expr| a == b || self.facts.holds(&Rel::le(a, b));
        // The digits so far count from 0 to `end`, and to those of `early` whose loops are among them at most.
        let (mut end, mut early): (Expr, Vec<Early>) = (Expr::one(), Vec::new());
        // The factor of the next digit is the count of all below it: a smaller one would take numbers twice, a larger one leave
        // numbers out.
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
        // Numbers from `extent` to `end` are past the end of the axis.
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

/// An axis without a name: its value, and its points.
type Digit = (Expr, Expr);

/// The axes that take the points of `axes` and have the fewest divisions.
fn numbers(mut axes: Vec<Digit>, facts: &Facts, varies: &dyn Fn(Expr) -> bool) -> Vec<Digit> {
    for _ in 0..MOST_REWRITES {
        let rewrite = parted(&axes, facts, varies, quotient)
            .or_else(|| joined(&axes, facts))
            .or_else(|| parted(&axes, facts, varies, quotient_above));
        let Some((rewritten, by)) = rewrite else { break };
        let is_left = |(at, axis): (usize, Digit)| (!rewritten.contains(&at)).then_some(axis);
        axes = axes.into_iter().enumerate().filter_map(is_left).chain(by).collect();
    }
    for (value, _) in axes.iter_mut().filter(|axis| !axis.0.is_polynomial()) {
        *value = without_remainders(*value, facts);
    }
    axes
}

/// Positions of axes, and those that can be in their place.
type Rewrite = (Vec<usize>, Vec<Digit>);

/// Whether `0 <= low < radix`.
fn is_below(low: Expr, radix: Expr, facts: &Facts) -> bool {
    facts.proves(&Rel::le(0, low)) && facts.proves(&Rel::lt(low, radix))
}

/// Two axes as one, `n*high + low` for `high` and `low` of `n` points, where a quotient of the one and a remainder of the other
/// cancel.
fn joined(axes: &[Digit], facts: &Facts) -> Option<Rewrite> {
    let divided = || (0..axes.len()).filter(|&at| !axes[at].0.is_polynomial());
    let pairs = divided().flat_map(|high| divided().map(move |low| (high, low)));
    let join = |(high, low): (usize, usize)| {
        let ((upper, count), (lower, points)) = (axes[high], axes[low]);
        let radix = at_least(points, lower, facts);
        let number = without_remainders(radix * upper + lower, facts);
        let alone = [upper, lower].map(|value| without_remainders(value, facts));
        let cancels = quotients(&[number], facts).len() < quotients(&alone, facts).len();
        (cancels && is_below(lower, radix, facts)).then(|| (vec![high, low], vec![(number, count * radix)]))
    };
    pairs.filter(|(high, low)| high != low).find_map(join)
}

/// The points of an axis, or, where its value may be past its end, as many as that has numbers.
fn at_least(points: Expr, value: Expr, facts: &Facts) -> Expr {
    let reach = facts.bounds(value);
    if points.is_zero() || reach.lo < 0 || reach.hi == i64::MAX || is_below(value, points, facts) {
        return points;
    }
    let numbers = Expr::int(reach.hi + 1);
    if facts.holds(&Rel::le(points, numbers)) { numbers } else { points }
}

/// The quotients that values have, if remainders are written as `mod(x, n) => x - n*floordiv(x, n)`.
fn quotients(values: &[Expr], facts: &Facts) -> Vec<Expr> {
    let (mut found, mut inside) = (Vec::new(), values.to_vec());
    while let Some(value) = inside.pop() {
        match value.kind() {
            Kind::Int(_) | Kind::Sym(_) => {}
            Kind::Add(operands) | Kind::Mul(operands) => inside.extend(operands),
            Kind::Min(a, b) | Kind::Max(a, b) => inside.extend([a, b]),
            // A quotient becomes one of another number first, and that simpler afterwards.
            Kind::Mod(a, b) => inside.extend([a, facts.simplify(facts.simplify(a.floordiv(b)))]),
            Kind::FloorDiv(a, _) if !found.contains(&value) => {
                found.push(value);
                inside.push(a);
            }
            Kind::FloorDiv(..) => {}
        }
    }
    found
}

/// `e / radix`, where that is a whole number.
fn quotient(e: Expr, radix: Expr, facts: &Facts) -> Option<Expr> {
    facts.simplify(e.modulo(radix)).is_zero().then(|| facts.simplify(e.floordiv(radix)))
}

/// `e / radix`, rounded up: of an axis that has as many points more, all are past its end.
fn quotient_above(e: Expr, radix: Expr, facts: &Facts) -> Option<Expr> {
    Some(facts.simplify(e.ceildiv(radix)))
}

/// One axis as two: the terms of `n*high + low` that have a factor `n`, and the others, for an axis of so many times `n` points as
/// `times` says.
fn parted(
    axes: &[Digit],
    facts: &Facts,
    varies: &dyn Fn(Expr) -> bool,
    times: fn(Expr, Expr, &Facts) -> Option<Expr>,
) -> Option<Rewrite> {
    let part = |(at, &(value, extent)): (usize, &Digit)| {
        let split = |radix: Expr| {
            let count = times(extent, radix, facts).filter(|_| !radix.is_one())?;
            let (mut high, mut low) = (Expr::zero(), Expr::int(value.constant()));
            for (factor, term) in value.terms() {
                match quotient(term * factor, radix, facts) {
                    Some(multiple) => high = high + multiple,
                    None => low = low + term * factor,
                }
            }
            // A loop that counts on one side has all of its digits there.
            let counts_in = |one: Expr, other: Expr| {
                let counted = one.terms().filter(|(_, term)| term.is_polynomial());
                let is_there = |sym: Sym| varies(Expr::sym(sym)) && other.has_sym(sym);
                counted.into_iter().any(|(_, term)| term.syms().into_iter().any(is_there))
            };
            let is_apart = varies(low) && !counts_in(high, low) && !counts_in(low, high);
            (is_apart && is_below(low, radix, facts)).then(|| (vec![at], vec![(high, count), (low, radix)]))
        };
        value.terms().map(|(factor, term)| factor_of(term, varies) * factor).find_map(split)
    };
    axes.iter().enumerate().filter(|(_, axis)| !axis.0.is_polynomial()).find_map(part)
}

/// What a term has in all iterations.
fn factor_of(term: Expr, varies: &dyn Fn(Expr) -> bool) -> Expr {
    let Kind::Mul(atoms) = term.kind() else { return Expr::one() };
    atoms.iter().filter(|&&atom| !varies(atom)).fold(Expr::one(), |a, &b| a * b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Axes with values in loops.
    struct Binding {
        facts: Facts,
        loops: Vec<Axis>,
        bound: Vec<Bound>,
    }

    /// The axes of a nest, with their extents and values, in `loops`, outermost first.
    fn binding(axes: &[(&str, String, String)], loops: &str) -> Binding {
        let parsed = |list: &str| {
            let text = format!("loops @l on cpu {{ sym s0 in [0, 64] nest n [{list}] {{ }} return }}");
            litz_ir::text::loops::parse(&text).unwrap_or_else(|diags| panic!("{}\n{text}", diags[0]))
        };
        let program = parsed(loops);
        let expr = |text: &str| parsed(&format!("e in {text}")).stmts[0].nests()[0].axes[0].extent;
        let bound = axes.iter().map(|(name, extent, value)| Bound {
            axis: Sym::new(name),
            extent: expr(extent),
            value: expr(value),
        });
        let bound = bound.collect();
        Binding { loops: program.stmts[0].nests()[0].axes.clone(), facts: program.facts, bound }
    }

    impl Binding {
        /// Whether this is proved to take each point once.
        fn is_covered(&self) -> bool {
            let extents = self.bound.iter().map(|bound| bound.extent);
            let coverage =
                Coverage::new(&self.facts, extents, self.loops.iter().copied()).expect("there are points");
            let value = |bound: &Bound| Bound { value: coverage.without_ones(bound.value), ..*bound };
            let groups = coverage.together(&self.bound.iter().map(value).collect::<Vec<_>>());
            groups.iter().all(|group| coverage.is_once(group))
        }

        /// Whether a value has each loop of several iterations; the verifier asks this of each leaf.
        fn has_all_loops(&self) -> bool {
            self.loops.iter().all(|axis| {
                axis.extent.is_one() || self.bound.iter().any(|bound| bound.value.has_sym(axis.var))
            })
        }

        /// Whether each point is taken once where `s0` is `size`.
        fn is_once_for(&self, size: i64) -> bool {
            let number = |e: Expr, point: &[i64]| {
                let at = |sym: Sym| self.loops.iter().position(|axis| axis.var == sym);
                let value = |sym: Sym| at(sym).map_or(Some(size), |at| point.get(at).copied());
                e.eval(&value).expect("all have values")
            };
            let extents: Vec<i64> = self.bound.iter().map(|bound| number(bound.extent, &[])).collect();
            let mut points = vec![Vec::new()];
            for axis in &self.loops {
                let next = |point: Vec<i64>| {
                    let end = number(axis.extent, &point);
                    (0..end).map(move |at| point.iter().copied().chain([at]).collect::<Vec<i64>>())
                };
                points = points.into_iter().flat_map(next).collect();
            }
            let mut taken = vec![0; extents.iter().product::<i64>() as usize];
            for point in points {
                let values: Vec<i64> = self.bound.iter().map(|bound| number(bound.value, &point)).collect();
                if values.iter().any(|value| *value < 0) {
                    return false;
                }
                if values.iter().zip(&extents).all(|(value, extent)| value < extent) {
                    let at = values.iter().zip(&extents).fold(0, |at, (value, extent)| at * extent + value);
                    taken[at as usize] += 1;
                }
            }
            taken.iter().all(|&times| times == 1)
        }
    }

    fn covers(axes: &[(&str, i64, String)], loops: &str) -> bool {
        let axes: Vec<_> =
            axes.iter().map(|(name, extent, value)| (*name, extent.to_string(), value.clone())).collect();
        binding(&axes, loops).is_covered()
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
    fn loops_count_down() {
        assert!(one(4096, "3840 - 256*b + t", "b in 16, t in 256"));
        assert!(one(32, "31 - 8*i - j", "i in 4, j in 8"));
        assert!(one(30, "24 - 8*i + j", "i in 4, j in 8"), "the last points are past the end");
        assert!(!one(32, "16 - 8*i + j", "i in 4, j in 8"), "there are points below 0");
        assert!(!one(4096, "3841 - 256*b + t", "b in 16, t in 256"));
        assert!(!one(4096, "3840 - 255*b + t", "b in 16, t in 256"));
        assert!(!one(4096, "3840 - 256*b - t", "b in 16, t in 256"));
        let symbolic = |first: &str| {
            let axes = [("i", "s0".to_owned(), format!("{first} - 4*b + t"))];
            binding(&axes, "b in ceildiv(s0, 4), t in 4").is_covered()
        };
        assert!(symbolic("4*ceildiv(s0, 4) - 4"));
        assert!(!symbolic("s0 - 4"), "points below 0 where 4 does not divide s0");
        assert!(!one(40, "28 - 14*t + i", "t in 3, i in min(14, 40 - 14*t)"), "12 is taken by none");
        assert!(!one(40, "26 - 14*t + i", "t in 3, i in min(14, 40 - 14*t)"));
        let merged = |low: &str, first: &str| {
            let axes =
                [("i", 4, format!("{first} - floordiv(v, 8)")), ("j", 8, format!("{low} - mod(v, 8)"))];
            covers(&axes, "v in 32")
        };
        assert!(merged("7", "3"));
        assert!(!merged("8", "3") && !merged("6", "3") && !merged("7", "4") && !merged("7", "2"));
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
    fn axes_whose_loops_end_together_are_one() {
        let tile = |end: &str| {
            let axes =
                [("j", 14, "4*g + t + floordiv(i, 14)".to_owned()), ("k", 14, "mod(i, 14)".to_owned())];
            covers(&axes, &format!("g in 4, t in 4, i in min(14, {end} - 14*t - 56*g)"))
        };
        assert!(tile("196"), "there are 14 whole rows");
        assert!(!tile("195"), "the last point is taken by none");
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
        let short = |high: i64, low: i64| {
            let axes = [("i", high, "floordiv(v, 6)".to_owned()), ("j", low, "mod(v, 6)".to_owned())];
            covers(&axes, "v in 48")
        };
        assert!(short(8, 5), "5 is past the end in each row");
        assert!(!short(8, 7), "6 is taken by none");
        assert!(!short(9, 5));
        assert!(!covers(&[("i", 4, "v".into()), ("j", 4, "v".into())], "v in 4"), "the diagonal is not all");
        assert!(covers(&[("j", 6, "mod(v, 6)".into()), ("i", 8, "floordiv(v, 6)".into())], "v in 48"));
    }

    #[test]
    fn digits_of_several_numbers_are_spread_over_axes() {
        let covers = |axes: [(&str, &str, &str); 3], loops: &str| {
            let axes = axes.map(|(name, extent, value)| (name, extent.to_owned(), value.to_owned()));
            binding(&axes, loops).is_covered()
        };
        let x = "ii + 6*io";
        let [high, low] = [format!("floordiv({x}, s0)"), format!("mod({x}, s0)")];
        let rows = "io in ceildiv(s0, 3), ii in min(6, 2*s0 - 6*io), o in";
        let phases = |k: &str, count: &str, loops: &str| {
            covers([("i", "2", &high), ("k", count, k), ("l", "2", "mod(o, 2)")], &format!("{rows} {loops}"))
        };
        let one = format!("{low} + floordiv(o, 2)");
        assert!(phases(&one, "s0", "2"), "the quotient is 0");
        assert!(!phases(&one, "s0", "4"), "s0 - 1 is 0 in the next row");
        assert!(!phases(&one, "s0 + 1", "4"), "the next column is taken twice");
        assert!(phases(&format!("2*({low}) + floordiv(o, 2)"), "2*s0", "4"), "below those of the rows");
        assert!(phases(&format!("{low} + s0*floordiv(o, 2)"), "2*s0", "4"), "above them");
        assert!(
            phases(&format!("{low} + s0*floordiv(o, 2)"), "2*s0", "6"),
            "the last points are past the end"
        );
        assert!(!phases(&format!("{low} + (s0 + 1)*floordiv(o, 2)"), "2*s0", "4"), "s0 is taken by none");
        assert!(!phases(&format!("{low} + 2*floordiv(o, 2)"), "2*s0", "4"));
        assert!(!phases(&low, "s0", "4"), "the quotient is nowhere");
        assert!(!phases(&format!("2*({low}) + mod(o, 2)"), "2*s0", "2"), "the digit is there twice");
        let five = [
            ("l", "s0", "mod(o, s0)"),
            ("k", "3", "mod(floordiv(o, s0), 3)"),
            ("j", "8", "mod(floordiv(o, 3*s0), 8)"),
        ];
        assert!(covers(five, "o in 24*s0"), "the highest digit is not divided again");
        assert!(!covers(five, "o in 24*s0 + 1"), "the first point is taken again");
        let spelled = |rows: &str| {
            let (high, low) = ("floordiv(32*b + v, 96)", "mod(32*b + v, 6)");
            covers(
                [
                    ("i", "16", &format!("mod(floordiv(32*b + v, 6), {rows})")),
                    ("j", "4", high),
                    ("k", "6", low),
                ],
                "b in 12, v in 32",
            )
        };
        assert!(spelled("16"), "the highest is floordiv(b, 3)");
        assert!(!spelled("15"));
        let crossed = |v: &str, w: &str| {
            let (high, low) = (format!("floordiv({v}, 3) + 2*mod({w}, 5)"), format!("mod({v}, 3)"));
            covers(
                [("i", "10", &high), ("j", "3", &low), ("k", "4", &format!("floordiv({w}, 5)"))],
                "v in 6, w in 20",
            )
        };
        assert!(crossed("v", "w"));
        assert!(!crossed("v", "v"));
        assert!(!crossed("v", "2*w"));
    }

    #[test]
    fn a_loop_that_changes_no_value_repeats_all() {
        assert!(!one(1, "floordiv(v, 2)", "v in 2"), "0 is taken twice");
        assert!(!one(4, "i + floordiv(v, 2)", "i in 4, v in 2"));
        assert!(one(4, "2*i + mod(v, 2)", "i in 2, v in 2"));
    }

    /// Of random bindings, those that are proved take each point once; most that do so are proved.
    #[test]
    fn what_is_proved_is_so() {
        let mut random = Random(1);
        let (mut made, mut proved, mut wrong) = (0, 0, 0);
        for _ in 0..BINDINGS {
            let is_changed = random.below(2) == 0;
            let (axes, loops) = random.binding(is_changed);
            let binding = binding(&axes, &loops);
            let is_covered = binding.is_covered() && binding.has_all_loops();
            let is_true = (1..=3).all(|size| binding.is_once_for(size));
            let shown = || format!("{axes:?} in {loops}");
            assert!(is_true || !is_covered, "this is proved and not so: {}", shown());
            assert!(is_changed || is_true, "this should take each point once: {}", shown());
            made += usize::from(!is_changed);
            wrong += usize::from(!is_true);
            proved += usize::from(!is_changed && is_covered);
        }
        assert!(wrong > BINDINGS / 8, "{wrong} bindings are wrong");
        // The others have strips whose end takes more to be found.
        assert!(proved > made * 17 / 20, "{proved} of {made} that are made of digits are proved");
    }

    const BINDINGS: usize = 1000;

    /// A generator of bindings.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % limit
        }

        fn of<'t>(&mut self, choices: &[&'t str]) -> &'t str {
            choices[self.below(choices.len())]
        }

        /// Axes and loops that take each point once, unless something `is_changed`: numbers that loops count are cut into
        /// digits, and digits of several numbers are put together to axes.
        fn binding(&mut self, is_changed: bool) -> (Vec<(&'static str, String, String)>, String) {
            let (mut loops, mut digits) = (Vec::new(), Vec::new());
            for (outer, inner) in [("b", "v"), ("c", "w")] {
                let radices: Vec<&str> = (0..self.below(3)).map(|_| self.of(&["2", "3", "s0"])).collect();
                let top = self.of(&["1", "2", "3", "s0"]);
                let count = radices.iter().fold(top.to_owned(), |count, radix| format!("{count}*{radix}"));
                let number = match self.below(4) {
                    0 => {
                        loops.push(format!("{inner} in {count}"));
                        inner.to_owned()
                    }
                    1 => {
                        let strip = 2 + self.below(3);
                        loops.push(format!("{outer} in ceildiv({count}, {strip}), {inner} in min({strip}, {count} - {strip}*{outer})"));
                        format!("{strip}*{outer} + {inner}")
                    }
                    _ => {
                        let strip = self.of(&["2", "3", "s0"]);
                        loops.push(format!("{outer} in {count}, {inner} in {strip}"));
                        digits.push((inner.to_owned(), strip.to_owned()));
                        outer.to_owned()
                    }
                };
                let mut rest = number;
                for radix in &radices {
                    digits.push((format!("mod({rest}, {radix})"), (*radix).to_owned()));
                    rest = format!("floordiv({rest}, {radix})");
                }
                digits.push((rest, top.to_owned()));
            }
            if is_changed {
                let at = self.below(digits.len());
                let other = digits[self.below(digits.len())].clone();
                match self.below(4) {
                    0 => digits[at] = other,
                    1 => digits[at].1 = other.1,
                    2 => digits[at].0 = format!("{} + 1", digits[at].0),
                    _ => digits[at].0 = other.0,
                }
            }
            let mut axes = Vec::new();
            let mut names = ["i", "j", "k", "l", "m", "n"].into_iter().cycle();
            while !digits.is_empty() {
                let at = self.below(digits.len());
                let (mut value, mut extent) = digits.swap_remove(at);
                while !digits.is_empty() && self.below(2) == 0 {
                    let at = self.below(digits.len());
                    let (low, radix) = digits.swap_remove(at);
                    value = format!("({value})*{radix} + {low}");
                    extent = format!("{extent}*{radix}");
                }
                axes.push((names.next().expect("there is always another"), extent, value));
            }
            (axes, loops.join(", "))
        }
    }
}
