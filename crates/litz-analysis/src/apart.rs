//! Proves that two accesses touch the same element only in the same iteration of the loops around both.

mod meeting;
mod radix;

pub use radix::{InDigits, in_mixed_radix, is_inside_by_digits, may_be_below};

use crate::inside::{enter, loops_where};
use litz_ir::loops::{Axis, BufData, InstOp, Loops, Nest};
use litz_sym::{Expr, Facts, Kind, Range, Rel, Sym};
use meeting::Meeting;
use radix::{mixed_radix, radices_of, substitute_digits};
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
            if axis.extent.as_int().map_or_else(|| facts.holds(&Rel::le(axis.extent, 0)), |n| n <= 0) {
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
                    let is_known = is_less(value, axis.extent, &facts) || facts.holds(&is_point);
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
    ///
    /// Threads have what the digits of their numbers say, so that ranges of digits tell most accesses of GPUs apart. What else is known is
    /// asked for after that: it takes a hundred times as long.
    pub fn is_apart_within(&self, around: &[Axis], shared: &[Axis], other: &Touch<'_>) -> bool {
        let mut whole = Meeting::new(around, shared, [self, other]);
        if whole.is_in_one_iteration_by_ranges() {
            return true;
        }
        let by_digits = self.in_mixed_radix(around, shared, other);
        let is_apart = |digits: &Digits<'_>| {
            let Digits { accesses: [one, other], around, shared } = digits;
            one.is_apart_within(around, shared, other)
        };
        by_digits.as_ref().is_some_and(is_apart) || whole.is_in_one_iteration()
    }

    /// Both accesses with loops that coordinates have quotients and remainders of as loops of their digits in a mixed radix system:
    /// `v in 16` of `floordiv(v, 4)` and `mod(v, 4)` is `4*v1 + v0`, each in 4. None where there are no such loops.
    fn in_mixed_radix<'t>(
        &'t self,
        around: &[Axis],
        shared: &[Axis],
        other: &'t Touch<'_>,
    ) -> Option<Digits<'t>> {
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
            return None;
        }
        let split_up = |touch: &'t Touch<'_>| {
            let mut facts = (*touch.facts).clone();
            split
                .iter()
                .flat_map(|var| &var.1)
                .for_each(|digit| facts.declare_index(digit.var, digit.extent));
            let value = |sym: Sym| split.iter().find(|var| var.0 == sym).map(|var| var.2);
            let sides = touch.sides.iter().map(|side| substitute_digits(*side, &value, &facts)).collect();
            let vars = touch.vars.iter().copied().chain(split.iter().flat_map(|var| &var.1).map(|d| d.var));
            let Touch { loops, layout, .. } = *touch;
            Touch { loops, layout, sides, vars: vars.collect(), facts: Rc::new(facts) }
        };
        let put = |axes: &[Axis]| -> Vec<Axis> {
            let of = |axis: &Axis| {
                let found = split.iter().find(|var| var.0 == axis.var);
                found.map_or_else(|| vec![*axis], |var| var.1.clone())
            };
            axes.iter().flat_map(of).collect()
        };
        let accesses = [self, other].map(split_up);
        Some(Digits { accesses, around: put(around), shared: put(shared) })
    }
}

/// Two accesses in terms of the digits of loops.
struct Digits<'t> {
    accesses: [Touch<'t>; 2],
    around: Vec<Axis>,
    shared: Vec<Axis>,
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
    fn what_all_threads_have_in_common_is_in_nobodys_way() {
        let loops = [("g", 16), ("t", 4), ("u", 2), ("w", 2), ("v", 8), ("q", 8)];
        let axes: Vec<String> = loops.iter().map(|(var, extent)| format!("{var} in {extent}")).collect();
        let is_apart = |around: usize, one: &str, other: &str| {
            let text = format!(
                "loops @l on cpu {{ buf x: f32[16, 512] = input
                nest n [{}] {{ %0: f32 = load x[g, {one}] %1: f32 = load x[g, {other}] }} return }}",
                axes.join(", ")
            );
            let program = parsed(&text);
            let (nest, visit) = visited(&program);
            let [one, other] = [0, 1].map(|at| visit.touch(at).expect("there is no guard"));
            one.is_apart_within(&nest.axes[..around], &nest.axes[around..2], &other)
        };
        let side = |u: &str, v: &str, shift: &str| format!("8*t + 32*{u} + {v} + 32 - mod({shift}, 8)");
        assert!(is_apart(1, &side("u", "v", "5*g"), &side("w", "q", "5*g")));
        assert!(is_apart(1, &side("u", "v", "g"), &side("w", "q", "g")));
        assert!(!is_apart(1, &side("u", "v", "5*g"), &side("w", "q", "3*g")), "rows begin elsewhere");
        assert!(!is_apart(1, &side("u", "v", "t"), &side("w", "q", "t")), "each thread begins elsewhere");
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
