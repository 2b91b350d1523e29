//! Proves that two accesses touch the same element only in the same iteration of the loops around both.

use crate::inside::{enter, is_inside, loops_where};
use litz_ir::loops::{Axis, BufData, InstOp, Loops, Nest};
use litz_sym::{Expr, Facts, Kind, Known, Range, Rel, Sym};
use std::rc::Rc;

/// A nest in the loops of a kernel: its axes in terms of these, and what is known of them.
#[derive(Clone)]
pub struct Visit<'a> {
    loops: &'a Loops,
    nest: &'a Nest,
    /// Values of the axes, and of what the nest binds to data.
    values: Rc<[(Sym, Expr)]>,
    facts: Rc<Facts>,
    /// Variables of the loops, and names of what no loop gives.
    vars: Rc<[Sym]>,
}

/// A load or store where it happens.
#[derive(Clone)]
pub struct Touch<'a> {
    loops: &'a Loops,
    /// Sizes and strides of the buffer.
    layout: (&'a [Expr], &'a [Expr]),
    /// The place in memory, then the coordinates where they follow from it.
    sides: Vec<Expr>,
    facts: Rc<Facts>,
    vars: Rc<[Sym]>,
}

/// Equations that are kept of two accesses, at most: some for each coordinate are enough for all that a buffer of ten dimensions
/// says.
const MOST_EQUATIONS: usize = 64;

/// Two expressions, one of each access, that are equal where both accesses touch the same element.
type Equation = (Expr, Expr);

impl<'a> Visit<'a> {
    /// The nest at the loops `around` it, outermost first, which give its axes the values `bind`, where all `conds` hold. An
    /// axis without a value may have any. None where the loops have no points of the nest.
    pub fn new(
        loops: &'a Loops,
        nest: &'a Nest,
        bind: &[(Sym, Expr)],
        around: impl Iterator<Item = Axis>,
        conds: impl Iterator<Item = Rel>,
    ) -> Option<Visit<'a>> {
        let mut facts = loops.facts.clone();
        let mut vars = Vec::new();
        for axis in loops_where(around.collect(), conds, &facts)? {
            if axis.extent.as_int().map_or_else(|| facts.known(&Rel::le(axis.extent, 0)).is_yes(), |n| n <= 0)
            {
                return None;
            }
            enter(&mut facts, axis);
            vars.push(axis.var);
        }
        let mut values = Vec::new();
        for axis in nest.indices() {
            match bind.iter().find(|bound| bound.0 == axis.var) {
                None => {
                    let named = Sym::new(&format!("{} of {}", axis.var, nest.name));
                    facts.declare_index(named, axis.extent);
                    vars.push(named);
                    values.push((axis.var, Expr::sym(named)));
                }
                Some(&(_, value)) => {
                    // Points of the loops that are none of the nest do not run.
                    let is_point = Rel::lt(value, axis.extent);
                    let is_known = is_less(value, axis.extent, &facts) || facts.known(&is_point).is_yes();
                    if !is_known && !facts.assume(is_point) {
                        return None;
                    }
                    values.push((axis.var, value));
                }
            }
        }
        Some(Visit { loops, nest, values: values.into(), facts: Rc::new(facts), vars: vars.into() })
    }

    /// The load or store at a position of the nest's body. None where it never happens.
    ///
    /// # Panics
    /// When the instruction there is neither.
    pub fn touch(&self, at: usize) -> Option<Touch<'a>> {
        let Visit { loops, nest, values, vars, .. } = self;
        let value = |sym: Sym| values.iter().find(|bound| bound.0 == sym).map(|bound| bound.1);
        let mut facts = self.facts.clone();
        if let InstOp::Load { guard, .. } = &nest.body[at].op {
            for rel in guard {
                let holds = Rel { cmp: rel.cmp, lhs: rel.lhs.subst(&value), rhs: rel.rhs.subst(&value) };
                if !Rc::make_mut(&mut facts).assume(holds) {
                    return None;
                }
            }
        }
        let here = |e: Expr| {
            let e = e.subst(&value);
            if e.is_polynomial() { e } else { facts.simplify(e) }
        };
        let (buf, index) = nest.body[at].op.element().expect("a load or store");
        // Coordinates that are the digits of one number have that for a place.
        let place = loops.place(nest, buf, index).subst(&value);
        let place = if place.is_polynomial() { place } else { without_remainders(place, &facts) };
        let data = &loops.bufs[buf];
        let coordinates =
            index.iter().filter(|_| has_own_places(data, &loops.facts)).map(|&coordinate| here(coordinate));
        let sides = std::iter::once(place).chain(coordinates).collect();
        let layout = (&data.sizes[..], &data.strides[..]);
        Some(Touch { loops, layout, sides, facts, vars: vars.clone() })
    }

    /// The point of the nest that has these coordinates, as the place of no buffer.
    pub fn point(&self, element: &[Expr]) -> Touch<'a> {
        let Visit { loops, values, facts, vars, .. } = self;
        let value = |sym: Sym| values.iter().find(|bound| bound.0 == sym).map(|bound| bound.1);
        let here = |e: &Expr| without_remainders(e.subst(&value), facts);
        let sides = element.iter().map(here).collect();
        Touch { loops, layout: (&[], &[]), sides, facts: facts.clone(), vars: vars.clone() }
    }
}

/// How much is asked of facts.
#[derive(Clone, Copy, PartialEq)]
enum Effort {
    /// Ranges of symbols.
    Ranges,
    /// All that is known.
    Facts,
}

impl Touch<'_> {
    /// Whether this access and another, of buffers that take one memory, touch the same element of it only where the
    /// variables of the loops `shared` are equal.
    ///
    /// Where both touch one element, the places in memory are equal, and the coordinates, too, of buffers that are laid out
    /// alike; so are the remainders of both by any number, and numbers of which two equations have the quotients and the
    /// remainders. A side of such an equation is read as `step*v + rest`. Where both have the same step for a shared
    /// loop, and no rest reaches a step, they have equal `v` as well.
    pub fn is_apart(&self, shared: &[Axis], other: &Touch<'_>) -> bool {
        self.is_apart_within(&[], shared, other)
    }

    /// As [`Touch::is_apart`], of accesses in the same iteration of the loops `around` both.
    pub fn is_apart_within(&self, around: &[Axis], shared: &[Axis], other: &Touch<'_>) -> bool {
        let count = if self.layout == other.layout { self.sides.len() } else { 1 };
        let sides = self.sides.iter().copied().zip(other.sides.iter().copied());
        let mut equations: Vec<Equation> = sides.take(count).collect();
        let is_once = |axis: &Axis| match axis.extent.as_int() {
            Some(extent) => extent <= 1,
            None => self.loops.facts.known(&Rel::le(axis.extent, 1)).is_yes(),
        };
        // A loop of which one iteration alone has points is as one of one iteration.
        let is_fixed = |axis: &Axis| {
            let [own, others] = [self, other].map(|touch| touch.facts.range_of(axis.var));
            own.lo == own.hi && (own.lo, own.hi) == (others.lo, others.hi)
        };
        let is_left = |axis: &&Axis| !is_once(axis) && !is_fixed(axis);
        let mut left: Vec<Sym> = shared.iter().filter(is_left).map(|axis| axis.var).collect();
        if equations.iter().any(|&equation| self.never_holds(equation, other, Effort::Ranges)) {
            return true;
        }
        self.spell_out(&mut equations, &left, other);
        // A loop whose variable no equation has on both sides is determined by none.
        let is_in = |var: Sym, &(a, b): &Equation| a.has_sym(var) && b.has_sym(var);
        if left.iter().all(|&var| equations.iter().any(|equation| is_in(var, equation))) {
            self.remove_determined(around, &mut equations, &mut left, other, Effort::Ranges);
            self.remove_determined(around, &mut equations, &mut left, other, Effort::Facts);
            if !left.is_empty() {
                self.recombine(around, &mut equations, other);
                self.remove_determined(around, &mut equations, &mut left, other, Effort::Facts);
            }
            if !left.is_empty() {
                equations.extend(self.remainders(around, &equations, other));
                self.remove_determined(around, &mut equations, &mut left, other, Effort::Facts);
            }
        }
        left.is_empty()
            || equations.iter().any(|&equation| self.never_holds(equation, other, Effort::Facts))
            || self.is_apart_in_mixed_radix(around, shared, other)
    }

    /// Puts variables back into sides of equations that have them no more, since one access has a single value of them where it happens: with
    /// `v` in 0 .. 1 there, `16*v + x == y` is `16*v + x == 16*v + y`.
    fn spell_out(&self, equations: &mut [Equation], vars: &[Sym], other: &Touch<'_>) {
        let only = |touch: &Touch<'_>, var: Sym| {
            let range = touch.facts.range_of(var);
            (range.lo == range.hi).then(|| Expr::int(range.lo))
        };
        for (a, b) in equations {
            for &var in vars {
                let put = |side: Expr, from: Expr, value: Option<Expr>| {
                    let (step, _) = from.linear(var).filter(|_| from.has_sym(var) && !side.has_sym(var))?;
                    (!step.has_sym(var)).then_some(side + step * (Expr::sym(var) - value?))
                };
                if let Some(spelled) = put(*b, *a, only(other, var)) {
                    *b = spelled;
                } else if let Some(spelled) = put(*a, *b, only(self, var)) {
                    *a = spelled;
                }
            }
        }
    }

    /// As [`Touch::is_apart_within`], with loops that coordinates have quotients and remainders of as loops of their digits in a
    /// mixed radix system:
    /// `v in 16` of `floordiv(v, 4)` and `mod(v, 4)` is `4*v1 + v0`, each in 4.
    fn is_apart_in_mixed_radix(&self, around: &[Axis], shared: &[Axis], other: &Touch<'_>) -> bool {
        let sides = self.sides.iter().chain(&other.sides);
        let mut radices: Vec<(Sym, i64)> = Vec::new();
        sides.for_each(|side| radices_of(*side, &mut radices));
        radices.sort_unstable();
        radices.dedup();
        radices.retain(|(var, _)| self.vars.contains(var) || other.vars.contains(var));
        let mut split: Vec<(Sym, Vec<Axis>, Expr)> = Vec::new();
        for of_var in radices.chunk_by(|a, b| a.0 == b.0) {
            let var = of_var[0].0;
            let radices = of_var.iter().map(|radix| radix.1);
            // The most that any of both may have.
            let last = self.facts.range_of(var).hi.max(other.facts.range_of(var).hi);
            split.extend(mixed_radix(var, radices, last).map(|(digits, sum)| (var, digits, sum)));
        }
        if split.is_empty() {
            return false;
        }
        let split_up = |touch: &Touch<'_>| {
            let mut facts = (*touch.facts).clone();
            split
                .iter()
                .flat_map(|var| &var.1)
                .for_each(|digit| facts.declare_index(digit.var, digit.extent));
            let value = |sym: Sym| split.iter().find(|var| var.0 == sym).map(|var| var.2);
            let sides = touch.sides.iter().map(|side| substitute_digits(*side, &value, &facts)).collect();
            let vars = touch.vars.iter().copied().chain(split.iter().flat_map(|var| &var.1).map(|d| d.var));
            (sides, vars.collect(), facts)
        };
        let [(sides, vars, facts), (others, other_vars, other_facts)] = [self, other].map(split_up);
        let one = Touch { loops: self.loops, layout: self.layout, sides, facts: Rc::new(facts), vars };
        let two = Touch {
            loops: other.loops,
            layout: other.layout,
            sides: others,
            facts: Rc::new(other_facts),
            vars: other_vars,
        };
        let put = |axes: &[Axis]| -> Vec<Axis> {
            let of = |axis: &Axis| {
                let found = split.iter().find(|var| var.0 == axis.var);
                found.map_or_else(|| vec![*axis], |var| var.1.clone())
            };
            axes.iter().flat_map(of).collect()
        };
        one.is_apart_within(&put(around), &put(shared), &two)
    }

    /// Takes from `left` the variables that are equal where the equations hold.
    fn remove_determined(
        &self,
        around: &[Axis],
        equations: &mut Vec<Equation>,
        left: &mut Vec<Sym>,
        other: &Touch<'_>,
        effort: Effort,
    ) {
        let is_determined = |var: Sym, equations: &[Equation]| {
            equations.iter().any(|&equation| self.determines(around, var, equation, other, effort))
        };
        while let Some(at) = left.iter().position(|&var| is_determined(var, equations)) {
            let var = left.swap_remove(at);
            // What is equal on both sides is in nothing's way without it.
            let without = |&(a, b): &Equation| {
                let ((step, rest), (other_step, other_rest)) = (a.linear(var)?, b.linear(var)?);
                let is_equal = step == other_step && self.is_common(around, step);
                (a.has_sym(var) && is_equal).then_some((rest, other_rest))
            };
            let shorter: Vec<Equation> = equations.iter().filter_map(without).collect();
            equations.extend(shorter);
        }
    }

    /// Whether both sides are `step*var + rest`, and the rests of both are within the same step.
    fn determines(
        &self,
        around: &[Axis],
        var: Sym,
        (a, b): Equation,
        other: &Touch<'_>,
        effort: Effort,
    ) -> bool {
        let (Some((step, rest)), Some((other_step, other_rest))) = (a.linear(var), b.linear(var)) else {
            return false;
        };
        if step != other_step || step.is_zero() || !self.is_common(around, step) {
            return false;
        }
        // Where a loop counts down, rests are within a step all the same: `-32*v + t` for `t` below 32.
        let is_down = match step.as_int() {
            Some(step) => step < 0,
            None => self.facts.known(&Rel::le(step, -1)).is_yes(),
        };
        let step = if is_down { -step } else { step };
        // A step may begin with what neither loops nor data change, or at a whole number of steps.
        let offset = |rest: Expr| {
            let terms = rest.terms().filter(|term| self.is_common(around, term.1)).map(|(n, term)| term * n);
            terms.sum::<Expr>() + rest.constant()
        };
        let is_within = |first: Expr| {
            let is_below = |rest: Expr, facts: &Facts| match effort {
                Effort::Ranges => is_less(rest, step, facts) && range(rest, facts).lo >= 0,
                Effort::Facts => {
                    facts.known(&Rel::le(0, rest)).is_yes() && facts.known(&Rel::lt(rest, step)).is_yes()
                }
            };
            is_below(rest - first, &self.facts) && is_below(other_rest - first, &other.facts)
        };
        // A guard may say of one side alone what its offset is worth: `k - 1` is 0 where it is all that is loaded.
        let (own, others) = (offset(rest), offset(other_rest));
        let is_within_from = |offset: Expr| {
            let whole = match offset.is_zero() {
                true => offset,
                false => step * self.loops.facts.simplify(offset.floordiv(step)),
            };
            is_within(whole) || whole != offset && is_within(offset)
        };
        is_within_from(own) || own != others && is_within_from(others)
    }

    /// Whether an expression has one value at both accesses: of sizes, and of variables of the loops `around` both. Others may differ, though
    /// both accesses call them alike: `(i + 1)*j + i` is 5 for `i` 1 and `j` 2, and for `i` 2 and `j` 1.
    fn is_common(&self, around: &[Axis], e: Expr) -> bool {
        let is_size = |sym: Sym| self.loops.facts.is_symbol_declared(sym);
        e.syms().into_iter().all(|sym| is_size(sym) || around.iter().any(|axis| axis.var == sym))
    }

    /// Adds equations of numbers to those of their digits: where two axes of a nest are the quotient and the remainder of one
    /// loop's variable by `n`, as those of merged loops are, `n` times the one and the other add up to the variable.
    fn recombine(&self, around: &[Axis], equations: &mut Vec<Equation>, other: &Touch<'_>) {
        let mut at = 0;
        while let Some(&lower) = equations.get(at).filter(|_| equations.len() < MOST_EQUATIONS) {
            for radix in radices(lower.0).into_iter().filter(|&radix| self.is_common(around, radix)) {
                for &upper in &equations.clone() {
                    // Of a sum that has as many divisions as the remainder nothing more follows.
                    let simpler = |upper: Expr, lower: Expr, touch: &Touch<'_>| {
                        let sum = without_remainders(radix * upper + lower, &touch.facts);
                        (divisions(sum) < divisions(lower)).then_some(sum)
                    };
                    let sums = (simpler(upper.0, lower.0, self), simpler(upper.1, lower.1, other));
                    if let (Some(a), Some(b)) = sums
                        && !equations.contains(&(a, b))
                    {
                        equations.push((a, b));
                    }
                }
            }
            at += 1;
        }
    }

    /// Remainders of both sides of equations by the steps that either has.
    fn remainders(&self, around: &[Axis], equations: &[Equation], other: &Touch<'_>) -> Vec<Equation> {
        let mut found = Vec::new();
        for &(a, b) in equations {
            let steps = |side: Expr| {
                side.syms().into_iter().filter_map(move |sym| side.linear(sym).map(|linear| linear.0))
            };
            let mut steps: Vec<Expr> = steps(a).chain(steps(b)).collect();
            steps.sort();
            steps.dedup();
            let is_known = |step: Expr| self.facts.known(&Rel::lt(0, step)).is_yes();
            steps.retain(|step| !step.is_one() && self.is_common(around, *step) && is_known(*step));
            for step in steps {
                found.push((self.facts.simplify(a.modulo(step)), other.facts.simplify(b.modulo(step))));
            }
        }
        found
    }

    /// Whether all values of the one side are less than those of the other, or greater.
    fn never_holds(&self, (a, b): Equation, other: &Touch<'_>, effort: Effort) -> bool {
        if effort == Effort::Ranges {
            let (a, b) = (range(a, &self.facts), range(b, &other.facts));
            return a.hi < b.lo || b.hi < a.lo;
        }
        let last = |e: Expr, touch: &Touch<'_>| touch.facts.largest(e, &touch.vars);
        let is_free = |e: Expr| self.vars.iter().chain(&*other.vars).all(|&var| !e.has_sym(var));
        let is_less = |last: Expr, first: Expr| {
            is_free(last) && is_free(first) && self.loops.facts.known(&Rel::lt(last, first)).is_yes()
        };
        is_less(last(a, self), -last(-b, other)) || is_less(last(b, other), -last(-a, self))
    }
}

/// A sum of the digits of a number as the number, where it is one: `n*floordiv(x, n) + mod(x, n) => x`.
///
/// Simplifying does so where quotients are alike. Those of different spelling are alike once they are in their simplest
/// form, so remainders are written as what they leave: `mod(x, n) => x - n*floordiv(x, n)`.
pub(crate) fn without_remainders(sum: Expr, facts: &Facts) -> Expr {
    let simplest = facts.simplify(sum);
    if simplest.is_polynomial() {
        return simplest;
    }
    let left = |(factor, term): (i64, Expr)| {
        let term = if let Kind::Mod(x, n) = term.kind() { x - n * x.floordiv(n) } else { term };
        term * factor
    };
    // A quotient becomes one of another number first, and that simpler afterwards.
    let spelled = facts.simplify(simplest.terms().map(left).sum::<Expr>() + simplest.constant());
    let spelled = facts.simplify(spelled);
    if divisions(spelled) < divisions(simplest) { spelled } else { simplest }
}

/// How many quotients and remainders an expression has, those inside of others among them.
fn divisions(e: Expr) -> usize {
    match e.kind() {
        Kind::Int(_) | Kind::Sym(_) => 0,
        Kind::Add(operands) | Kind::Mul(operands) => operands.iter().map(|&operand| divisions(operand)).sum(),
        Kind::Min(a, b) | Kind::Max(a, b) => divisions(a) + divisions(b),
        Kind::FloorDiv(a, b) | Kind::Mod(a, b) => 1 + divisions(a) + divisions(b),
    }
}

/// The numbers that a variable is divided by, or has a remainder by, in an expression.
fn radices_of(e: Expr, found: &mut Vec<(Sym, i64)>) {
    match e.kind() {
        Kind::Int(_) | Kind::Sym(_) => {}
        Kind::Add(operands) | Kind::Mul(operands) => operands.iter().for_each(|&e| radices_of(e, found)),
        Kind::Min(a, b) | Kind::Max(a, b) => [a, b].into_iter().for_each(|e| radices_of(e, found)),
        Kind::FloorDiv(a, b) | Kind::Mod(a, b) => {
            let radix = b.as_int().filter(|radix| *radix > 1);
            let inner = a.as_floordiv().and_then(|(inner, by)| Some((inner.as_sym()?, by.as_int()?)));
            match (a.as_sym(), inner, radix) {
                (Some(var), _, Some(radix)) => found.push((var, radix)),
                (None, Some((var, by)), Some(radix)) => {
                    found.extend(by.checked_mul(radix).map(|radix| (var, radix)));
                    found.push((var, by));
                }
                _ => radices_of(a, found),
            }
        }
    }
}

/// Sums over `axes`, with those that they have quotients and remainders of in mixed radix notation: `4*floordiv(v, 8) + mod(v, 4)` for `v`
/// in 32 is `4*v2 + v0`. None where no axis is written so.
pub fn in_mixed_radix(sums: &[Expr], axes: &[Axis], facts: &Facts) -> Option<(Vec<Expr>, Vec<Axis>)> {
    let mut radices: Vec<(Sym, i64)> = Vec::new();
    sums.iter().for_each(|sum| radices_of(*sum, &mut radices));
    radices.sort_unstable();
    radices.dedup();
    let (mut found, mut values, mut facts) = (axes.to_vec(), Vec::new(), facts.clone());
    for of_var in radices.chunk_by(|a, b| a.0 == b.0) {
        let Some(at) = found.iter().position(|axis| axis.var == of_var[0].0) else { continue };
        let last = found[at].extent.as_int()? - 1;
        let (digits, value) = mixed_radix(found[at].var, of_var.iter().map(|radix| radix.1), last)?;
        values.push((found.remove(at).var, value));
        digits.iter().for_each(|digit| facts.declare_index(digit.var, digit.extent));
        found.extend(digits);
    }
    let value = |sym: Sym| values.iter().find(|var| var.0 == sym).map(|var| var.1);
    (!values.is_empty())
        .then(|| (sums.iter().map(|sum| substitute_digits(*sum, &value, &facts)).collect(), found))
}

/// As [`is_inside`], where that does not know it, with the digits of each variable bounded together: in
/// `8*floordiv(mod(k, 8), 2) + 2*floordiv(k, 8) + mod(k, 2)` for `k` in 16 there is no number above 27, and none twice.
///
/// Schedules are held against it. What is computed by [`is_inside`] to make kernels takes less time, and knows enough for what schedulers
/// write.
pub fn is_inside_by_digits(value: Expr, extent: Expr, facts: &Facts) -> bool {
    is_inside(value, extent, facts) || {
        let axes = value.syms().into_iter().filter_map(|var| {
            let range = facts.bounds(Expr::sym(var));
            (range.lo == 0 && range.hi < i64::MAX).then(|| Axis { var, extent: Expr::int(range.hi + 1) })
        });
        let axes: Vec<Axis> = axes.collect();
        in_mixed_radix(&[value], &axes, facts).is_some_and(|(sum, digits)| {
            let mut facts = facts.clone();
            digits.iter().for_each(|digit| facts.declare_index(digit.var, digit.extent));
            facts.known(&Rel::lt(sum[0], extent)) == Known::Yes
        })
    }
}

/// A sum in which variables have values that are sums of digits, each term in its simplest form: whole sums would mix digits.
fn substitute_digits(sum: Expr, value: &impl Fn(Sym) -> Option<Expr>, facts: &Facts) -> Expr {
    let sum = sum.subst(value);
    sum.terms().map(|(n, term)| facts.simplify(term) * n).sum::<Expr>() + sum.constant()
}

/// The digits of a variable that is at most `last` in a mixed radix system, the lowest first, and the variable as their sum. None where one radix does not
/// divide the next.
fn mixed_radix(var: Sym, radices: impl Iterator<Item = i64>, last: i64) -> Option<(Vec<Axis>, Expr)> {
    let (mut axes, mut sum, mut unit) = (Vec::new(), Expr::zero(), 1);
    let mut push = |radix: i64, unit: i64| {
        let axis = Axis { var: Sym::new(&format!("{var} by {unit}")), extent: Expr::int(radix) };
        sum = sum + Expr::sym(axis.var) * unit;
        axes.push(axis);
    };
    for radix in radices.filter(|radix| *radix <= last) {
        if radix % unit != 0 {
            return None;
        }
        push(radix / unit, unit);
        unit = radix;
    }
    if unit == 1 || last == i64::MAX {
        return None;
    }
    push(last / unit + 1, unit);
    Some((axes, sum))
}

/// What an expression's terms are remainders by: `8*mod(x, 7)` is one of `8*x` by 56.
fn radices(e: Expr) -> Vec<Expr> {
    let mut found = Vec::new();
    for (factor, term) in e.terms() {
        if let Kind::Mod(_, radix) = term.kind()
            && factor > 0
            && !found.contains(&(radix * factor))
        {
            found.push(radix * factor);
        }
    }
    found
}

/// Whether no two elements of a buffer share a place: strides are longer than all that shorter ones reach.
fn has_own_places(data: &BufData, facts: &Facts) -> bool {
    if data.is_dense() {
        return true;
    }
    let mut dims: Vec<(Expr, Expr)> = data.strides.iter().copied().zip(data.sizes.iter().copied()).collect();
    dims.sort_by_key(|&(stride, _)| facts.hint(stride));
    let mut reach = Expr::zero();
    dims.into_iter().all(|(stride, size)| {
        let is_longer = size.is_one() || facts.proves(&Rel::lt(reach, stride));
        reach = reach + stride * (size - 1);
        is_longer
    })
}

/// The values of an expression by those of its symbols.
fn range(e: Expr, facts: &Facts) -> Range {
    e.range(&|sym| facts.range_of(sym))
}

/// Whether ranges alone say that `a` is less than `b`.
fn is_less(a: Expr, b: Expr, facts: &Facts) -> bool {
    b.as_int().is_some_and(|b| range(a, facts).hi < b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::loops::Stmt;

    fn parsed(text: &str) -> Loops {
        litz_ir::text::loops::parse(text).unwrap_or_else(|diags| panic!("{}\n{text}", diags[0]))
    }

    /// The first nest of a program, in loops over its axes.
    fn visited(program: &Loops) -> (&Nest, Visit<'_>) {
        let Stmt::Nest(nest) = &program.stmts[0] else { panic!("expected a nest") };
        let bind: Vec<(Sym, Expr)> = nest.axes.iter().map(|axis| (axis.var, Expr::sym(axis.var))).collect();
        let visit = Visit::new(program, nest, &bind, nest.axes.iter().copied(), std::iter::empty());
        (nest, visit.expect("there are points"))
    }

    /// Whether two accesses of a buffer `x: f32[64, 512]` are apart in the first `shared` of these loops.
    fn are_apart(loops: &[(&str, i64)], shared: usize, one: &str, other: &str) -> bool {
        are_apart_in("f32[64, 512]", loops, shared, one, other)
    }

    fn are_apart_in(layout: &str, loops: &[(&str, i64)], shared: usize, one: &str, other: &str) -> bool {
        let axes: Vec<String> = loops.iter().map(|(var, extent)| format!("{var} in {extent}")).collect();
        let text = format!(
            "loops @l on cpu {{ buf x: {layout} = input
            nest n [{}] {{ %0: f32 = load x[{one}] %1: f32 = load x[{other}] }} return }}",
            axes.join(", ")
        );
        let program = parsed(&text);
        let (nest, visit) = visited(&program);
        let [one, other] = [0, 1].map(|at| visit.touch(at).expect("there is no guard"));
        one.is_apart(&nest.axes[..shared], &other)
    }

    #[test]
    fn rows_are_apart_whatever_runs_inside_of_them() {
        let loops = [("i", 4), ("j", 8), ("k", 8)];
        assert!(are_apart(&loops, 1, "i, j", "i, k"));
        assert!(are_apart(&loops, 1, "0, 8*i + j", "0, 8*i + k"));
        assert!(
            !are_apart(&loops, 1, "0, 7*i + j", "0, 7*i + k"),
            "a row's last element is the next row's first"
        );
        assert!(are_apart(&loops, 1, "0, 8*i + j + 1", "0, 8*i + k + 1"));
        assert!(!are_apart(&loops, 1, "0, 8*i + j + 1", "0, 8*i + k"));
        assert!(!are_apart(&loops, 1, "i, j", "2*i, k"));
        assert!(!are_apart(&loops, 1, "i, j", "-i + 3, j"));
        assert!(!are_apart(&loops, 1, "0, j", "0, j"), "nothing determines the row");
    }

    #[test]
    fn a_guard_says_what_the_offset_of_one_side_is_worth_in_either_order() {
        let text = "loops @l on cpu { buf x: f32[2, 8] = input
            nest n [g in 2, i in 8, j in 8, k in 3] { %0: f32 = load x[g, i]
            %1: f32 = load x[0, 8*g + j + k - 1] if 0 <= k - 1, k - 1 < 1 else 0.0
            %2: f32 = load x[0, 8*g + j + k - 1] if 0 <= k - 1, k - 1 < 2 else 0.0 } return }";
        let program = parsed(text);
        let (nest, visit) = visited(&program);
        let [plain, one, two] = [0, 1, 2].map(|at| visit.touch(at).expect("the guard may hold"));
        let shared = &nest.axes[..1];
        assert!(plain.is_apart(shared, &one) && one.is_apart(shared, &plain));
        assert!(!plain.is_apart(shared, &two), "8*0 + 7 + 2 - 1 is 8*1 + 0");
        assert!(!two.is_apart(shared, &plain));
    }

    #[test]
    fn coordinates_determine_nothing_where_elements_share_places() {
        let loops = [("i", 4), ("j", 8), ("k", 8)];
        assert!(are_apart_in("f32[4, 8]", &loops, 1, "i, j", "i, k"));
        assert!(
            !are_apart_in("f32[4, 8]{1, 1}", &loops, 1, "i, j", "i, k"),
            "x[0, 1] lies where x[1, 0] does"
        );
    }

    #[test]
    fn every_shared_loop_is_determined() {
        let loops = [("i", 4), ("j", 8), ("k", 8)];
        assert!(are_apart(&loops, 2, "i, j", "i, j"));
        assert!(are_apart(&loops, 2, "0, 64*j + 8*i + k", "0, 64*j + 8*i"));
        assert!(are_apart(&loops, 2, "k, 8*i + j", "0, 8*i + j"), "a longer step is in nobody's way");
        assert!(
            are_apart(&loops, 1, "0, 4*j + i", "0, 4*k + i"),
            "the remainder by a longer step determines it"
        );
        assert!(!are_apart(&loops, 1, "0, 3*j + i", "0, 3*k + i"));
        assert!(!are_apart(&loops, 2, "0, 8*i + j", "0, 8*i + k"));
        assert!(!are_apart(&loops, 2, "i, k", "i, j"));
    }

    #[test]
    fn loops_that_count_down_are_determined_too() {
        let loops = [("i", 4), ("j", 8), ("k", 8)];
        assert!(are_apart(&loops, 1, "0, -8*i + j + 24", "0, -8*i + k + 24"));
        assert!(are_apart(&loops, 1, "0, -8*i - j + 31", "0, -8*i - k + 31"));
        assert!(!are_apart(&loops, 1, "0, -7*i + j + 21", "0, -7*i + k + 21"), "14 + 7 is 21 + 0");
        assert!(!are_apart(&loops, 1, "0, -8*i + j + 24", "0, 8*i + k"));
    }

    #[test]
    fn steps_that_differ_determine_nothing() {
        let loops = [("i", 8), ("j", 8)];
        assert!(!are_apart(&loops, 2, "0, (i + 1)*j + i", "0, (i + 1)*j + i"), "2*2 + 1 is 3*1 + 2");
        assert!(!are_apart(&loops, 1, "0, (i + 1)*j + i", "0, (i + 1)*j + i"));
        assert!(!are_apart(&loops, 1, "0, (j + 1)*i", "0, (j + 1)*i"), "1*4 is 2*2");
    }

    #[test]
    fn digits_of_a_loop_determine_it() {
        let loops = [("b", 6), ("k", 8), ("v", 16), ("w", 16)];
        let of = |v: &str| format!("floordiv(16*b + {v}, 12), mod(16*b + {v}, 12)");
        assert!(
            are_apart(&loops, 1, &of("v"), &of("w")),
            "16*b + v follows from quotient and remainder by 12"
        );
        assert!(!are_apart(&loops, 1, &of("v"), &of("2*w")), "16*1 + 0 is 16*0 + 2*8");
        let shifted = |v: &str| format!("b + floordiv(3*b + {v}, 13), mod(3*b + {v}, 13)");
        assert!(are_apart(&loops, 1, &shifted("v"), &shifted("w")), "so does 13*b + 3*b + v");
        assert!(!are_apart(&loops, 1, "mod(16*b + v, 12), k", "mod(16*b + w, 12), k"));
        assert!(!are_apart(&loops, 1, "floordiv(16*b + v, 12), k", "floordiv(16*b + w, 12), k"));
        let three = |v: &str| {
            format!("floordiv(16*b + {v}, 15), mod(floordiv(16*b + {v}, 3), 5), mod(16*b + {v}, 3)")
        };
        assert!(are_apart_in("f32[8, 5, 3]", &loops, 1, &three("v"), &three("w")));
    }

    #[test]
    fn heads_of_symbolic_matrices_are_apart() {
        let text = "loops @l on cpu { sym s58 in [0, 16] sym s48 in [2, 64] buf x: f32[s58, 4, s48, s48] = input
            nest n [g0 in 4*s58, g1 in s48, r in s48, q in s48] { %0: f32 = load x[floordiv(g0, 4), mod(g0, 4), g1, r]
            %1: f32 = load x[floordiv(g0, 4), mod(g0, 4), g1, q] } return }";
        let program = parsed(text);
        let (nest, visit) = visited(&program);
        let [one, other] = [0, 1].map(|at| visit.touch(at).expect("there is no guard"));
        assert!(one.is_apart(&nest.axes[..2], &other));
    }
}
