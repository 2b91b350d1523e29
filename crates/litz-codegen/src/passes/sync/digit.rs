//! Says which thread or warp accesses an element, where the element tells.

use super::{Access, Barriers};
use litz_sym::{Expr, Facts, Rel, Sym};

/// The number of a thread, or of a warp, as a digit of the elements that it accesses: these are `known + step*thread + low` and a multiple of `modulus`,
/// where `low` is below `step`, and multiples of sizes that the rest is below. Threads that access one element by two such digits are one,
/// where sizes, steps and what is known are the same and both digits fit below a modulus of both.
struct Digit {
    /// In the order in which the multiples are left out.
    sizes: Vec<Sym>,
    /// What has one value at all accesses.
    known: Expr,
    step: i64,
    /// What `step*thread + low` is below.
    end: i64,
    /// 0 where there is nothing above the digit.
    modulus: i64,
}

impl Barriers {
    /// Whether an element says which iteration of the outermost loops over levels accesses it, the same one for both.
    pub(super) fn is_told_by_element(&self, one: &Access, other: &Access) -> bool {
        let (Some(one), Some(other)) = (self.digit(one), self.digit(other)) else { return false };
        let modulus = gcd(one.modulus, other.modulus);
        one.sizes == other.sizes
            && one.known == other.known
            && one.step == other.step
            && (modulus == 0 || one.end.max(other.end) <= modulus)
    }

    /// The number of the thread, or of the warp, in the elements of an access.
    fn digit(&self, access: &Access) -> Option<Digit> {
        let (&[index], &[(_, thread), ..]) = (&access.index[..], &access.threads[..]) else { return None };
        let mut facts = self.facts.clone();
        access.axes.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
        let width = access.width?;
        let (rest, sizes) = self.below_sizes(access, &facts, index, width);
        let (step, rest) = rest.linear(thread)?;
        let step = step.as_int().filter(|&step| step > 0)?;
        let end = step.checked_mul(facts.range_of(thread).hi.checked_add(1)?)?;
        let (mut known, mut low, mut modulus) = (Expr::zero(), Expr::zero(), 0);
        for (coefficient, monomial) in rest.terms() {
            if monomial.syms().iter().all(|sym| self.fixed.contains(sym)) {
                known = known + monomial * coefficient;
            } else if coefficient.checked_abs()? >= end {
                modulus = gcd(modulus, coefficient);
            } else {
                low = low + monomial * coefficient;
            }
        }
        let low = low.range(&|sym| facts.range_of(sym));
        let (constant, most) = (rest.constant(), step.checked_sub(width)?);
        let fits = |more: i64| low.lo.saturating_add(more) >= 0 && low.hi.saturating_add(more) <= most;
        let known = if fits(constant) { known } else { known + constant };
        (fits(constant) || fits(0)).then_some(Digit { sizes, known, step, end, modulus })
    }

    /// An index without multiples of sizes that the rest of it is known to be below, and these sizes.
    fn below_sizes(&self, access: &Access, facts: &Facts, index: Expr, width: i64) -> (Expr, Vec<Sym>) {
        let (mut rest, mut sizes) = (index, Vec::new());
        for sym in index.syms() {
            let Some((times, below)) = rest.linear(sym).filter(|_| self.fixed.contains(&sym)) else {
                continue;
            };
            if times.syms().iter().all(|sym| self.fixed.contains(sym)) {
                continue;
            }
            let mut here = facts.clone();
            let is_possible = access.conds.iter().flatten().all(|&cond| here.assume(cond));
            let is_below =
                here.proves(&Rel::le(0, below)) && here.proves(&Rel::le(below + width, Expr::sym(sym)));
            if is_possible && is_below {
                rest = below;
                sizes.push(sym);
            }
        }
        (rest, sizes)
    }
}

/// The greatest number that divides both; the other one where one is 0.
fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}
