//! Computes at compile time what index expressions decide: comparisons of indices, choices between them, and checks of
//! indices that are in range anyway.
//!
//! Positions and masks are made of such values: after their producers were taken in, `select(i < 0, i + n, i)` becomes
//! `i`, and the gather by it a plain load.

use super::{Cx, cse};
use litz_ir::ids::Id;
use litz_ir::loops::{InstOp, Loops, Nest, Stmt, Val};
use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_sym::{Expr, Facts, Known, Rel, Sym};

/// Folds every nest; returns how many instructions became simpler.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let facts = loops.facts.clone();
    let mut count = 0;
    for stmt in &mut loops.stmts {
        if let Stmt::Nest(nest) = stmt
            && nest
                .body
                .iter()
                .any(|i| matches!(i.op, InstOp::Index(_) | InstOp::Cond(_) | InstOp::Bind { .. }))
        {
            count += fold(nest, &facts);
        }
    }
    count
}

/// What is known about a value.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fact {
    /// An i64 that equals an index expression.
    Int(Expr),
    /// A truth value.
    Truth(bool),
    /// Whether a relation holds.
    Holds(Rel),
    /// Nothing.
    Nothing,
}

fn fold(nest: &mut Nest, facts: &Facts) -> usize {
    let facts = nest.facts(facts);
    let mut known: Vec<Fact> = Vec::with_capacity(nest.body.len());
    let mut same: Vec<Val> = Vec::with_capacity(nest.body.len());
    let mut bound: Vec<(Sym, Expr)> = Vec::new();
    let mut count = 0;
    for i in 0..nest.body.len() {
        let inst = &mut nest.body[i];
        inst.op.operands_mut().into_iter().for_each(|v| *v = same[v.index()]);
        if !bound.is_empty() {
            inst.op.map_exprs(&mut |e| {
                let moved = e.subst(&|s| bound.iter().find(|b| b.0 == s).map(|b| b.1));
                if moved == e { e } else { facts.simplify(moved) }
            });
        }
        let (fact, stands_for) = learn(&inst.op, inst.ty, &known, &facts);
        let folded = match fact {
            Fact::Int(e) => Some(InstOp::Index(e)),
            Fact::Truth(b) => Some(InstOp::Const(Scalar::Bool(b))),
            Fact::Holds(rel) => Some(InstOp::Cond(rel)),
            Fact::Nothing => None,
        };
        if let InstOp::Bind { sym, value, extent, .. } = &inst.op {
            if let Fact::Int(e) = known[value.index()]
                && in_range(e, *extent, &facts)
            {
                bound.push((*sym, e));
                inst.op = InstOp::Index(e);
                count += 1;
            }
        } else if let Some(op) = folded
            && !matches!(inst.op, InstOp::Const(_))
            && inst.op != op
        {
            inst.op = op;
            count += 1;
        } else if stands_for.is_some() {
            count += 1;
        }
        known.push(fact);
        same.push(stands_for.unwrap_or(Val::new(i)));
    }
    if count > 0 {
        cse::clean(nest);
    }
    count
}

fn in_range(e: Expr, extent: Expr, facts: &Facts) -> bool {
    facts.holds(&Rel::le(Expr::zero(), e)) && facts.holds(&Rel::lt(e, extent))
}

/// What an instruction's result is, and the earlier value it equals, if any.
fn learn(op: &InstOp, ty: Dtype, known: &[Fact], facts: &Facts) -> (Fact, Option<Val>) {
    let of = |v: &Val| known[v.index()];
    let fact = match op {
        InstOp::Index(e) => Fact::Int(*e),
        InstOp::Const(Scalar::Int(i)) if ty == Dtype::I64 => Fact::Int(Expr::int(*i)),
        InstOp::Const(Scalar::Bool(b)) if ty == Dtype::Bool => Fact::Truth(*b),
        InstOp::Cond(rel) => decide(*rel, facts),
        InstOp::Cast(v) if ty == Dtype::I64 => match of(v) {
            Fact::Int(e) => Fact::Int(e),
            Fact::Truth(_) | Fact::Holds(_) | Fact::Nothing => Fact::Nothing,
        },
        InstOp::Op(ScalarOp::Select, args) => {
            return match of(&args[0]) {
                Fact::Truth(true) => (of(&args[1]), Some(args[1])),
                Fact::Truth(false) => (of(&args[2]), Some(args[2])),
                Fact::Int(_) | Fact::Holds(_) | Fact::Nothing => (Fact::Nothing, None),
            };
        }
        InstOp::Op(op, args) => match args.iter().map(of).collect::<Vec<_>>().as_slice() {
            [Fact::Int(a), Fact::Int(b)] => integers(*op, *a, *b, ty, facts),
            [Fact::Truth(a), b] | [b, Fact::Truth(a)] => {
                let other = if matches!(of(&args[0]), Fact::Truth(_)) { args[1] } else { args[0] };
                return match (op, a) {
                    (ScalarOp::And, true) | (ScalarOp::Or, false) => (*b, Some(other)),
                    (ScalarOp::And, false) => (Fact::Truth(false), None),
                    (ScalarOp::Or, true) => (Fact::Truth(true), None),
                    _ => (Fact::Nothing, None),
                };
            }
            [Fact::Truth(a)] if *op == ScalarOp::Not => Fact::Truth(!a),
            [Fact::Holds(rel)] if *op == ScalarOp::Not => Fact::Holds(rel.negate()),
            _ => Fact::Nothing,
        },
        InstOp::Load { .. }
        | InstOp::Const(_)
        | InstOp::Cast(_)
        | InstOp::Bitcast(_)
        | InstOp::Bind { .. }
        | InstOp::Reduce(..)
        | InstOp::ArgReduce { .. }
        | InstOp::Scan { .. }
        | InstOp::Store { .. } => Fact::Nothing,
    };
    (fact, None)
}

/// Comparisons of two index values, as relations.
const RELATIONS: [(ScalarOp, fn(Expr, Expr) -> Rel); 6] = [
    (ScalarOp::Eq, |a, b| Rel::eq(a, b)),
    (ScalarOp::Ne, |a, b| Rel::ne(a, b)),
    (ScalarOp::Lt, |a, b| Rel::lt(a, b)),
    (ScalarOp::Le, |a, b| Rel::le(a, b)),
    (ScalarOp::Gt, |a, b| Rel::lt(b, a)),
    (ScalarOp::Ge, |a, b| Rel::le(b, a)),
];
/// Arithmetic of two index values.
const ARITHMETIC: [(ScalarOp, fn(Expr, Expr) -> Expr); 3] =
    [(ScalarOp::Add, |a, b| a + b), (ScalarOp::Sub, |a, b| a - b), (ScalarOp::Mul, |a, b| a * b)];

/// An operation on two index values. Arithmetic is exact as long as it does not wrap, which indices do not.
fn integers(op: ScalarOp, a: Expr, b: Expr, ty: Dtype, facts: &Facts) -> Fact {
    if let Some((_, relation)) = RELATIONS.iter().find(|relation| relation.0 == op) {
        return decide(relation(a, b), facts);
    }
    match ARITHMETIC.iter().find(|arithmetic| arithmetic.0 == op) {
        Some((_, arithmetic)) if ty == Dtype::I64 => {
            let value = arithmetic(a, b);
            let range = facts.bounds(value);
            let wraps = range.lo == i64::MIN || range.hi == i64::MAX;
            if wraps { Fact::Nothing } else { Fact::Int(facts.simplify(value)) }
        }
        Some(_) | None => Fact::Nothing,
    }
}

fn decide(rel: Rel, facts: &Facts) -> Fact {
    match facts.known(&rel) {
        Known::Yes => Fact::Truth(true),
        Known::No => Fact::Truth(false),
        Known::Unknown => Fact::Holds(rel),
    }
}
