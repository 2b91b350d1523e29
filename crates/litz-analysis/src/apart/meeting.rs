//! Solves the equations that hold where two accesses touch one element for the variables of loops.

use std::collections::HashSet;

use super::{Touch, divisions, is_less, range, without_remainders};
use litz_ir::loops::Axis;
use litz_sym::{Expr, Facts, Kind, Rel, Sym};

/// Equations that are kept of two accesses, at most: some for each coordinate are enough for all that a buffer of ten dimensions
/// says.
const MOST_EQUATIONS: usize = 64;

/// Two expressions, one of each access, that are equal where both accesses touch the same element.
type Equation = (Expr, Expr);

/// How much is asked of facts.
#[derive(Clone, Copy, PartialEq)]
enum Effort {
    /// Ranges of symbols.
    Ranges,
    /// All that is known.
    Facts,
}

/// Two accesses where they touch one element.
pub(super) struct Meeting<'m> {
    one: &'m Touch<'m>,
    other: &'m Touch<'m>,
    /// The loops around both, of which they are in the same iteration.
    around: &'m [Axis],
    /// No two are the same.
    equations: Vec<Equation>,
    /// Variables that are not known to be equal.
    left: Vec<Sym>,
    /// What is known not to determine a variable: it is asked for again whenever another is determined, and whenever there are more equations.
    vain: HashSet<(Sym, Equation)>,
}

impl<'m> Meeting<'m> {
    pub(super) fn new(around: &'m [Axis], shared: &[Axis], [one, other]: [&'m Touch<'m>; 2]) -> Meeting<'m> {
        let count = if one.layout == other.layout { one.sides.len() } else { 1 };
        let sides = one.sides.iter().copied().zip(other.sides.iter().copied());
        let is_once = |axis: &Axis| match axis.extent.as_int() {
            Some(extent) => extent <= 1,
            None => one.loops.facts.holds(&Rel::le(axis.extent, 1)),
        };
        // A loop of which one iteration alone has points is as one of one iteration.
        let is_fixed = |axis: &Axis| {
            let [own, others] = [one, other].map(|touch| touch.facts.range_of(axis.var));
            own.lo == own.hi && (own.lo, own.hi) == (others.lo, others.hi)
        };
        let is_left = |axis: &&Axis| !is_once(axis) && !is_fixed(axis);
        let left = shared.iter().filter(is_left).map(|axis| axis.var).collect();
        let mut meeting = Meeting { one, other, around, equations: Vec::new(), left, vain: HashSet::new() };
        meeting.add(sides.take(count));
        meeting.spell_out();
        meeting
    }

    /// Whether there is none but in iterations of which all the variables are equal.
    pub(super) fn is_in_one_iteration(&mut self) -> bool {
        // A loop whose variable no equation has on both sides is determined by none.
        let is_in = |var: Sym, &(a, b): &Equation| a.has_sym(var) && b.has_sym(var);
        if self.left.iter().all(|&var| self.equations.iter().any(|equation| is_in(var, equation))) {
            self.remove_determined(Effort::Ranges);
            self.remove_determined(Effort::Facts);
            if !self.left.is_empty() {
                self.recombine();
                self.remove_determined(Effort::Facts);
            }
            if !self.left.is_empty() {
                self.add(self.without_common());
                self.add(self.remainders());
                self.remove_determined(Effort::Facts);
            }
        }
        self.left.is_empty()
            || self.equations.iter().any(|&equation| self.never_holds(equation, Effort::Facts))
    }

    /// Whether ranges of symbols alone say so. Equations are taken without what is known to be equal, and not as they were besides.
    pub(super) fn is_in_one_iteration_by_ranges(&self) -> bool {
        if self.equations.iter().any(|&equation| self.never_holds(equation, Effort::Ranges)) {
            return true;
        }
        let (mut equations, mut left) = (self.equations.clone(), self.left.clone());
        let is_determined = |var: Sym, equations: &[Equation]| {
            equations.iter().any(|&equation| self.determines(var, equation, Effort::Ranges))
        };
        while let Some(at) = left.iter().position(|&var| is_determined(var, &equations)) {
            let var = left.swap_remove(at);
            for equation in &mut equations {
                *equation = self.without(var, *equation).unwrap_or(*equation);
            }
        }
        left.is_empty()
    }

    fn add(&mut self, equations: impl IntoIterator<Item = Equation>) {
        for equation in equations {
            if !self.equations.contains(&equation) {
                self.equations.push(equation);
            }
        }
    }

    /// Puts variables back into sides of equations that have them no more, since one access has a single value of them where it happens: with
    /// `v` in 0 .. 1 there, `16*v + x == y` is `16*v + x == 16*v + y`.
    fn spell_out(&mut self) {
        let only = |touch: &Touch<'_>, var: Sym| {
            let range = touch.facts.range_of(var);
            (range.lo == range.hi).then(|| Expr::int(range.lo))
        };
        for (a, b) in &mut self.equations {
            for &var in &self.left {
                let put = |side: Expr, from: Expr, value: Option<Expr>| {
                    let (step, _) = from.linear(var).filter(|_| from.has_sym(var) && !side.has_sym(var))?;
                    (!step.has_sym(var)).then_some(side + step * (Expr::sym(var) - value?))
                };
                if let Some(spelled) = put(*b, *a, only(self.other, var)) {
                    *b = spelled;
                } else if let Some(spelled) = put(*a, *b, only(self.one, var)) {
                    *a = spelled;
                }
            }
        }
    }

    /// Takes from `left` the variables that are equal where the equations hold.
    fn remove_determined(&mut self, effort: Effort) {
        while let Some(at) = self.find_determined(effort) {
            let var = self.left.swap_remove(at);
            let shorter = self.equations.iter().filter_map(|&equation| self.without(var, equation));
            let shorter: Vec<Equation> = shorter.collect();
            self.add(shorter);
        }
    }

    /// An equation without a variable that is equal on both sides, which is in nothing's way then.
    fn without(&self, var: Sym, (a, b): Equation) -> Option<Equation> {
        if !a.has_sym(var) {
            return None;
        }
        let ((step, rest), (other_step, other_rest)) = (a.linear(var)?, b.linear(var)?);
        (step == other_step && self.is_common(step)).then_some((rest, other_rest))
    }

    /// Where among those that are left a variable is that an equation determines.
    fn find_determined(&mut self, effort: Effort) -> Option<usize> {
        for (at, &var) in self.left.iter().enumerate() {
            for &equation in &self.equations {
                if effort == Effort::Facts && self.vain.contains(&(var, equation)) {
                    continue;
                }
                if self.determines(var, equation, effort) {
                    return Some(at);
                }
                if effort == Effort::Facts {
                    self.vain.insert((var, equation));
                }
            }
        }
        None
    }

    /// Whether both sides are `step*var + rest`, and the rests of both are within the same step.
    fn determines(&self, var: Sym, (a, b): Equation, effort: Effort) -> bool {
        if !a.has_sym(var) || !b.has_sym(var) {
            return false;
        }
        let (Some((step, rest)), Some((other_step, other_rest))) = (a.linear(var), b.linear(var)) else {
            return false;
        };
        if step != other_step || step.is_zero() || !self.is_common(step) {
            return false;
        }
        // Where a loop counts down, rests are within a step all the same: `-32*v + t` for `t` below 32.
        let is_down = match step.as_int() {
            Some(step) => step < 0,
            None => self.one.facts.holds(&Rel::le(step, -1)),
        };
        let step = if is_down { -step } else { step };
        // A step may begin with what neither loops nor data change, or at a whole number of steps.
        let offset = |rest: Expr| {
            let terms = rest.terms().filter(|term| self.is_common(term.1)).map(|(n, term)| term * n);
            terms.sum::<Expr>() + rest.constant()
        };
        let is_within = |first: Expr| {
            let is_below = |rest: Expr, facts: &Facts| match effort {
                Effort::Ranges => is_less(rest, step, facts) && range(rest, facts).lo >= 0,
                Effort::Facts => facts.holds(&Rel::le(0, rest)) && facts.holds(&Rel::lt(rest, step)),
            };
            is_below(rest - first, &self.one.facts) && is_below(other_rest - first, &self.other.facts)
        };
        // A guard may say of one side alone what its offset is worth: `k - 1` is 0 where it is all that is loaded.
        let (own, others) = (offset(rest), offset(other_rest));
        let is_within_from = |offset: Expr| {
            let whole = match offset.is_zero() {
                true => offset,
                false => step * self.one.loops.facts.simplify(offset.floordiv(step)),
            };
            is_within(whole) || whole != offset && is_within(offset)
        };
        is_within_from(own) || own != others && is_within_from(others)
    }

    /// Whether an expression has one value at both accesses: of sizes, and of variables of the loops `around` both. Others may differ, though
    /// both accesses call them alike: `(i + 1)*j + i` is 5 for `i` 1 and `j` 2, and for `i` 2 and `j` 1.
    fn is_common(&self, e: Expr) -> bool {
        let is_size = |sym: Sym| self.one.loops.facts.is_symbol_declared(sym);
        e.syms().into_iter().all(|sym| is_size(sym) || self.around.iter().any(|axis| axis.var == sym))
    }

    /// Adds equations of numbers to those of their digits: where two axes of a nest are the quotient and the remainder of one
    /// loop's variable by `n`, as those of merged loops are, `n` times the one and the other add up to the variable.
    fn recombine(&mut self) {
        let mut at = 0;
        while let Some(&lower) = self.equations.get(at).filter(|_| self.equations.len() < MOST_EQUATIONS) {
            let mut radices = radices(lower.0);
            radices.retain(|&radix| self.is_common(radix));
            for radix in radices {
                // Of a sum that has as many divisions as the remainder nothing more follows.
                let simpler = |upper: Expr, lower: Expr, touch: &Touch<'_>| {
                    let sum = without_remainders(radix * upper + lower, &touch.facts);
                    (divisions(sum) < divisions(lower)).then_some(sum)
                };
                let sums = self.equations.iter().filter_map(|upper| {
                    let own = simpler(upper.0, lower.0, self.one)?;
                    Some((own, simpler(upper.1, lower.1, self.other)?))
                });
                let sums: Vec<Equation> = sums.collect();
                self.add(sums);
            }
            at += 1;
        }
    }

    /// Equations without what both sides have in common: rows begin within runs at the same place of one for all threads, `8*t + 32*u + v - mod(g, 8)`,
    /// and the remainder by 32 of what may be below 0 says nothing of `t`.
    fn without_common(&self) -> Vec<Equation> {
        let shorter = |&(a, b): &Equation| {
            let is_in_both =
                |term: &(i64, Expr)| self.is_common(term.1) && b.terms().any(|other| other == *term);
            let common: Expr = a.terms().filter(is_in_both).map(|(n, term)| term * n).sum();
            (!common.is_zero()).then_some((a - common, b - common))
        };
        self.equations.iter().filter_map(shorter).collect()
    }

    /// Remainders of both sides of equations by the steps that either has.
    fn remainders(&self) -> Vec<Equation> {
        let mut found = Vec::new();
        for &(a, b) in &self.equations {
            let steps = |side: Expr| {
                side.syms().into_iter().filter_map(move |sym| side.linear(sym).map(|linear| linear.0))
            };
            let mut steps: Vec<Expr> = steps(a).chain(steps(b)).collect();
            steps.sort();
            steps.dedup();
            let is_known = |step: Expr| self.one.facts.holds(&Rel::lt(0, step));
            steps.retain(|step| !step.is_one() && self.is_common(*step) && is_known(*step));
            for step in steps {
                let remainder = |side: Expr, touch: &Touch<'_>| touch.facts.simplify(side.modulo(step));
                found.push((remainder(a, self.one), remainder(b, self.other)));
            }
        }
        found
    }

    /// Whether all values of the one side are less than those of the other, or greater.
    fn never_holds(&self, (a, b): Equation, effort: Effort) -> bool {
        let (one, other) = (self.one, self.other);
        if effort == Effort::Ranges {
            let (a, b) = (range(a, &one.facts), range(b, &other.facts));
            return a.hi < b.lo || b.hi < a.lo;
        }
        let is_free = |e: &Expr| one.vars.iter().chain(&*other.vars).all(|&var| !e.has_sym(var));
        let last = |e: Expr, touch: &Touch<'_>| Some(touch.facts.largest(e, &touch.vars)).filter(is_free);
        let is_less = |(a, of_a): (Expr, &Touch<'_>), (b, of_b): (Expr, &Touch<'_>)| {
            let Some(largest) = last(a, of_a) else { return false };
            last(-b, of_b).is_some_and(|first| one.loops.facts.holds(&Rel::lt(largest, -first)))
        };
        is_less((a, one), (b, other)) || is_less((b, other), (a, one))
    }
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
