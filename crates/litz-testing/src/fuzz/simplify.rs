//! Compares construction, simplification, bounds and proofs of random expressions with plain arithmetic, for bindings that
//! satisfy random ranges, divisors and guards.

use arbitrary::{Arbitrary, Unstructured};
use litz_sym::{Expr, Facts, Known, Range, Rel, Sym, parse};

/// Sizes, then indices below each of them, then a number of any sign.
const SYMBOLS: [&str; 6] = ["s0", "s1", "i", "j", "k", "n"];

type Binding = [i64; SYMBOLS.len()];

/// An expression as written, with no rules applied.
#[derive(Arbitrary, Debug)]
enum Tree {
    Small(i8),
    Wide(i16),
    Sym(u8),
    Binary(Operator, Box<(Tree, Tree)>),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Operator {
    Add,
    Sub,
    Mul,
    Floordiv,
    Ceildiv,
    Mod,
    Min,
    Max,
}

#[derive(Arbitrary, Debug)]
struct Case {
    /// Least value, width of the range, divisor of each size.
    sizes: [(u8, u8, u8); 2],
    /// Extent of `k`.
    extent: u8,
    /// Range of `n`.
    any: (i8, u8),
    guards: Vec<(Comparison, Tree, Tree)>,
    tree: Tree,
    seed: u64,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
}

/// Nodes of the largest expression, and guards, looked at: more shows nothing that fewer do not.
const MAX_NODES: usize = 60;
const MAX_GUARDS: usize = 3;

impl Tree {
    fn nodes(&self) -> usize {
        match self {
            Tree::Small(_) | Tree::Wide(_) | Tree::Sym(_) => 1,
            Tree::Binary(_, sides) => 1 + sides.0.nodes() + sides.1.nodes(),
        }
    }

    fn build(&self) -> Expr {
        match self {
            Tree::Small(value) => Expr::int(i64::from(*value)),
            Tree::Wide(value) => Expr::int(i64::from(*value)),
            Tree::Sym(at) => Expr::named(SYMBOLS[usize::from(*at) % SYMBOLS.len()]),
            Tree::Binary(operator, sides) => {
                let (a, b) = (sides.0.build(), sides.1.build());
                match operator {
                    Operator::Add => a + b,
                    Operator::Sub => a - b,
                    Operator::Mul => a * b,
                    Operator::Floordiv => a.floordiv(b),
                    Operator::Ceildiv => a.ceildiv(b),
                    Operator::Mod => a.modulo(b),
                    Operator::Min => a.min(b),
                    Operator::Max => a.max(b),
                }
            }
        }
    }

    /// The value; `None` for division by zero, or beyond 40 bits anywhere, where saturation could begin, or where terms of
    /// products that are multiplied out could leave 62 bits.
    fn value(&self, binding: &Binding) -> Option<i64> {
        self.value_and_reach(binding).map(|(value, _)| value as i64)
    }

    /// The value, and a bound on the sum of the magnitudes of all terms once products are multiplied out: terms that cancel
    /// may each be much larger than their sum.
    fn value_and_reach(&self, binding: &Binding) -> Option<(i128, i128)> {
        let of_number = |value: i64| (i128::from(value), i128::from(value.abs()));
        let (value, reach) = match self {
            Tree::Small(value) => of_number(i64::from(*value)),
            Tree::Wide(value) => of_number(i64::from(*value)),
            Tree::Sym(at) => of_number(binding[usize::from(*at) % SYMBOLS.len()]),
            Tree::Binary(operator, sides) => {
                let (a, a_reach) = sides.0.value_and_reach(binding)?;
                let (b, b_reach) = sides.1.value_and_reach(binding)?;
                match operator {
                    Operator::Add => (a + b, a_reach + b_reach),
                    Operator::Sub => (a - b, a_reach + b_reach),
                    Operator::Mul => (a * b, a_reach * b_reach),
                    Operator::Floordiv => (floor_divide(a, b)?, a_reach),
                    Operator::Ceildiv => (floor_divide(a + b - 1, b)?, a_reach + b_reach),
                    Operator::Mod => (a - b * floor_divide(a, b)?, a_reach + b_reach),
                    Operator::Min => (a.min(b), a_reach.max(b_reach)),
                    Operator::Max => (a.max(b), a_reach.max(b_reach)),
                }
            }
        };
        (value.abs() < 1 << 40 && reach < 1 << 62).then_some((value, reach))
    }
}

fn floor_divide(a: i128, b: i128) -> Option<i128> {
    let (quotient, rest) = (a.checked_div(b)?, a.checked_rem(b)?);
    Some(if rest != 0 && (rest < 0) != (b < 0) { quotient - 1 } else { quotient })
}

impl Case {
    fn divisor(&self, size: usize) -> i64 {
        i64::from(self.sizes[size].2 % 5) + 1
    }

    /// Least and largest value of a size, both multiples of its divisor.
    fn range(&self, size: usize) -> (i64, i64) {
        let (lo, width, _) = self.sizes[size];
        let divisor = self.divisor(size);
        let lo = (i64::from(lo % 16) + 1) * divisor;
        (lo, lo + i64::from(width) * divisor)
    }

    fn extent(&self) -> i64 {
        i64::from(self.extent) + 1
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        for (size, name) in SYMBOLS.iter().take(self.sizes.len()).enumerate() {
            let (sym, (lo, hi)) = (Sym::new(name), self.range(size));
            facts.declare(sym, Range::new(lo, hi), Some(lo));
            facts.declare_divisor(sym, self.divisor(size));
        }
        facts.declare_index(Sym::new("i"), Expr::named("s0"));
        facts.declare_index(Sym::new("j"), Expr::named("s1"));
        facts.declare_index(Sym::new("k"), Expr::int(self.extent()));
        let lo = i64::from(self.any.0);
        facts.declare(Sym::new("n"), Range::new(lo, lo + i64::from(self.any.1)), None);
        facts
    }

    /// Bindings that satisfy the ranges, the ends of ranges often.
    fn bindings(&self) -> Vec<Binding> {
        let mut state = self.seed;
        let mut pick = |lo: i64, hi: i64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match state >> 60 {
                0..4 => lo,
                4..8 => hi,
                _ => lo + (state >> 33) as i64 % (hi - lo + 1),
            }
        };
        let size = |n: usize, pick: &mut dyn FnMut(i64, i64) -> i64| {
            let ((lo, hi), divisor) = (self.range(n), self.divisor(n));
            divisor * pick(lo / divisor, hi / divisor)
        };
        let any = i64::from(self.any.0);
        (0..32)
            .map(|_| {
                let (s0, s1) = (size(0, &mut pick), size(1, &mut pick));
                let (i, j, k) = (pick(0, s0 - 1), pick(0, s1 - 1), pick(0, self.extent() - 1));
                [s0, s1, i, j, k, pick(any, any + i64::from(self.any.1))]
            })
            .collect()
    }
}

fn look_up(binding: &Binding, sym: Sym) -> Option<i64> {
    SYMBOLS.iter().position(|&name| name == sym.name()).map(|at| binding[at])
}

/// The expression and facts that the bytes describe.
pub fn any_expression(bytes: &[u8]) {
    if let Ok(case) = Case::arbitrary_take_rest(Unstructured::new(bytes)) {
        check(&case);
    }
}

fn check(case: &Case) {
    let guards = &case.guards[..case.guards.len().min(MAX_GUARDS)];
    let trees = guards.iter().flat_map(|(_, a, b)| [a, b]).chain([&case.tree]);
    if trees.map(Tree::nodes).sum::<usize>() > MAX_NODES {
        return;
    }
    let mut bindings = case.bindings();
    let mut facts = case.facts();
    for (comparison, a, b) in guards {
        let (x, y) = (a.build(), b.build());
        let rel = match comparison {
            Comparison::Eq => Rel::eq(x, y),
            Comparison::Ne => Rel::ne(x, y),
            Comparison::Lt => Rel::lt(x, y),
            Comparison::Le => Rel::le(x, y),
        };
        bindings.retain(|binding| match (a.value(binding), b.value(binding)) {
            (Some(x), Some(y)) => match comparison {
                Comparison::Eq => x == y,
                Comparison::Ne => x != y,
                Comparison::Lt => x < y,
                Comparison::Le => x <= y,
            },
            _ => false,
        });
        if facts.require(rel, "fuzz").is_err() {
            assert!(bindings.is_empty(), "{rel} was refused, but holds for {:?}", bindings[0]);
            return;
        }
    }
    let e = case.tree.build();
    assert_eq!(parse(&e.to_string()), Ok(e), "text of {e}");
    let (simple, bounds) = (facts.simplify(e), facts.bounds(e));
    let (positive, zero) = (Rel::gt(e, 0), Rel::eq(e, 0));
    let known = [(positive, facts.known(&positive)), (zero, facts.known(&zero))];
    for binding in &bindings {
        let Some(expected) = case.tree.value(binding) else { continue };
        let value = |e: Expr| e.eval(&|sym| look_up(binding, sym));
        assert_eq!(value(e), Some(expected), "construction of {e} at {binding:?}");
        assert_eq!(value(simple), Some(expected), "{e} => {simple} at {binding:?}");
        assert!(bounds.contains(expected), "{e} in {bounds} at {binding:?}");
        for (rel, known) in known {
            let holds = rel.eval(&|sym| look_up(binding, sym));
            assert!(known != Known::Yes || holds == Some(true), "{rel} at {binding:?}");
            assert!(known != Known::No || holds == Some(false), "{rel} at {binding:?}");
        }
    }
}
