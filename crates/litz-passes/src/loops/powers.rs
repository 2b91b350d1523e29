//! Measures exponents of online reductions in powers of two, for GPUs, which have an instruction for these.
//!
//! ```text
//! s = select(c, 0.125*x, -inf)   m = max(s)   p = exp(s - m)
//!   =>
//! s = select(c, x, -inf)         m = max(s)   p = exp2(fma(s, 0.18, -(0.18*m)))              0.18 = 0.125*log2(e)
//! ```
//!
//! Of attention's scores that leaves a multiply-add and the instruction for each. It holds where the largest of them is all that is asked besides: the
//! order of numbers does not change when a positive one multiplies all. All weights of a row, and what corrects their sums, are off by one
//! factor, that of the rounding of `0.18*m`, which the sum of the weights takes out again; so that results are rounded to half types, and
//! a correction rounds the largest score before as the weights that it corrects did.

use super::{Cx, cse};
use litz_analysis::Uses;
use litz_ir::ids::Id;
use litz_ir::loops::{Buf, BufKind, Inst, InstOp, Loops, Nest, Recurrence, Stmt, Val};
use litz_ir::target::Target;
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use std::collections::{HashMap, HashSet};
use std::f64::consts::LOG2_E;

/// Whether a target has the instruction.
pub fn wants(target: &Target) -> bool {
    target.gpu().is_some()
}

/// Rewrites recurrences; returns how many.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let uses = Uses::of(loops);
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        let Stmt::Recurrence(recurrence) = &loops.stmts[at] else { continue };
        let is_own = |buf: Buf| {
            let users = || uses.readers(buf).iter().chain(uses.writers(buf));
            let data = &loops.bufs[buf];
            data.kind == BufKind::Temp && data.dtype == Dtype::F32 && users().all(|&user| user == at)
        };
        let is_half = |buf: &Buf| matches!(loops.bufs[*buf].dtype, Dtype::BF16 | Dtype::F16);
        if !uses.writes_of(at).iter().any(is_half) {
            continue;
        }
        let Some(scores) = Scores::of(recurrence, &is_own) else { continue };
        let Stmt::Recurrence(recurrence) = &mut loops.stmts[at] else { continue };
        recurrence.nests.iter_mut().for_each(|nest| scores.rewrite(nest));
        count += 1;
    }
    count
}

/// Numbers of which exponentials of differences are taken.
struct Scores {
    /// Buffers of them.
    bufs: HashSet<Buf>,
    /// What multiplies all of them.
    factor: f64,
}

/// Where a score comes from.
enum From {
    /// Another one, by its position in the nest.
    Scores(Vec<Val>),
    /// A buffer.
    Buffer(Buf),
    /// A constant that a factor leaves as it is.
    Neutral,
    /// Anything else, and what multiplies that.
    Origin(f64),
}

impl Scores {
    /// Those of a recurrence. None where there are none, or where something else is asked of them.
    fn of(recurrence: &Recurrence, is_own: &dyn Fn(Buf) -> bool) -> Option<Scores> {
        let nests = &recurrence.nests;
        let mut bufs = HashSet::new();
        for nest in nests {
            for [a, b] in exponents(nest).into_iter().map(|(_, of)| of) {
                trace(nest, a, &mut bufs)?.is_empty().then_some(())?;
                trace(nest, b, &mut bufs)?.is_empty().then_some(())?;
            }
        }
        let mut factors = Vec::new();
        loop {
            let before = bufs.clone();
            factors.clear();
            for nest in nests {
                for inst in &nest.body {
                    let InstOp::Store { buf, value, .. } = &inst.op else { continue };
                    if before.contains(buf) {
                        factors.extend(trace(nest, *value, &mut bufs)?);
                    }
                }
            }
            if bufs == before {
                break;
            }
        }
        let first = *factors.first()?;
        let factor = if factors.iter().all(|&factor| factor == first) { first } else { 1.0 };
        let scores = Scores { bufs, factor };
        let fits =
            scores.bufs.iter().all(|&buf| is_own(buf)) && nests.iter().all(|nest| scores.are_compared(nest));
        fits.then_some(scores)
    }

    /// Which values of a nest are scores.
    fn in_nest(&self, nest: &Nest) -> Vec<bool> {
        let mut scores: Vec<bool> = Vec::with_capacity(nest.body.len());
        for inst in &nest.body {
            let is_score = match &inst.op {
                InstOp::Load { buf, .. } => self.bufs.contains(buf),
                InstOp::Reduce(ReduceOp::Max, of) => scores[of.index()],
                InstOp::Op(ScalarOp::Max, of) => of.iter().any(|of| scores[of.index()]),
                InstOp::Op(ScalarOp::Select, of) => of[1..].iter().any(|of| scores[of.index()]),
                InstOp::Const(_)
                | InstOp::Index(_)
                | InstOp::Cond(_)
                | InstOp::Op(..)
                | InstOp::Cast(_)
                | InstOp::Bitcast(_)
                | InstOp::Bind { .. }
                | InstOp::Reduce(..)
                | InstOp::ArgReduce { .. }
                | InstOp::Scan { .. }
                | InstOp::Store { .. } => false,
            };
            scores.push(is_score);
        }
        scores
    }

    /// Whether a nest asks for the largest of scores, and for exponentials of their differences, and for nothing else.
    fn are_compared(&self, nest: &Nest) -> bool {
        let scores = self.in_nest(nest);
        let exponents = exponents(nest);
        let is_score = |val: &Val| scores[val.index()];
        let is_alike = |val: &Val| is_score(val) || matches!(origin(nest, *val), Some(From::Neutral));
        nest.body.iter().enumerate().all(|(at, inst)| {
            let operands = inst.op.operands();
            if !operands.iter().any(is_score) {
                return true;
            }
            match &inst.op {
                InstOp::Reduce(ReduceOp::Max, _) => true,
                InstOp::Op(ScalarOp::Max | ScalarOp::Eq | ScalarOp::Ne, of) => of.iter().all(is_alike),
                InstOp::Op(ScalarOp::Select, of) => !is_score(&of[0]) && of[1..].iter().all(is_alike),
                InstOp::Op(ScalarOp::Sub, of) => {
                    let users = nest.body.iter().filter(|inst| inst.op.operands().contains(&Val::new(at)));
                    let all = users.count();
                    let known = exponents
                        .iter()
                        .filter(|(exp, _)| nest.body[exp.index()].op.operands() == [Val::new(at)]);
                    of.iter().all(is_score) && all == known.count()
                }
                InstOp::Store { buf, combine: None, .. } => self.bufs.contains(buf),
                InstOp::Load { .. }
                | InstOp::Const(_)
                | InstOp::Index(_)
                | InstOp::Cond(_)
                | InstOp::Op(..)
                | InstOp::Cast(_)
                | InstOp::Bitcast(_)
                | InstOp::Bind { .. }
                | InstOp::Reduce(..)
                | InstOp::ArgReduce { .. }
                | InstOp::Scan { .. }
                | InstOp::Store { .. } => false,
            }
        })
    }

    /// Leaves the factor out of scores, and puts it into exponents.
    fn rewrite(&self, nest: &mut Nest) {
        let exponents: HashMap<Val, [Val; 2]> = exponents(nest).into_iter().collect();
        let plain = self.multiplied(nest);
        let mut places: Vec<Val> = Vec::with_capacity(nest.body.len());
        let mut body: Vec<Inst> = Vec::with_capacity(nest.body.len());
        for (at, inst) in std::mem::take(&mut nest.body).into_iter().enumerate() {
            let mut push = |op: InstOp| {
                body.push(Inst { op, ty: inst.ty });
                Val::new(body.len() - 1)
            };
            let place = match (exponents.get(&Val::new(at)), plain.get(&Val::new(at))) {
                (Some([a, b]), _) => {
                    let [a, b] = [a, b].map(|val| places[val.index()]);
                    let factor = push(InstOp::Const(Scalar::Float(self.factor * LOG2_E)));
                    let largest = push(InstOp::Op(ScalarOp::Mul, vec![b, factor]));
                    let largest = push(InstOp::Op(ScalarOp::Neg, vec![largest]));
                    let exponent = push(InstOp::Op(ScalarOp::Fma, vec![a, factor, largest]));
                    push(InstOp::Op(ScalarOp::Exp2, vec![exponent]))
                }
                (None, Some(of)) => places[of.index()],
                (None, None) => {
                    let mut op = inst.op.clone();
                    op.operands_mut().into_iter().for_each(|val| *val = places[val.index()]);
                    push(op)
                }
            };
            places.push(place);
        }
        nest.body = body;
        cse::clean(nest);
    }

    /// Products with the factor that a nest stores as scores, and what is multiplied.
    fn multiplied(&self, nest: &Nest) -> HashMap<Val, Val> {
        let mut found = HashMap::new();
        let stored = nest.body.iter().filter_map(|inst| {
            let InstOp::Store { buf, value, .. } = &inst.op else { return None };
            self.bufs.contains(buf).then_some(*value)
        });
        let mut open: Vec<Val> = stored.collect();
        while let Some(val) = open.pop() {
            match origin(nest, val) {
                Some(From::Scores(of)) => open.extend(of),
                Some(From::Origin(_)) if self.factor != 1.0 => {
                    found.extend(factor_of(nest, val).map(|(of, _)| (val, of)));
                }
                Some(From::Origin(_) | From::Buffer(_) | From::Neutral) | None => {}
            }
        }
        found
    }
}

/// Exponentials of differences, and these.
fn exponents(nest: &Nest) -> Vec<(Val, [Val; 2])> {
    let difference = |val: &Val| {
        let InstOp::Op(ScalarOp::Sub, of) = &nest.body[val.index()].op else { return None };
        <[Val; 2]>::try_from(&of[..]).ok()
    };
    let found = nest.body.iter().enumerate().filter_map(|(at, inst)| {
        let InstOp::Op(ScalarOp::Exp, of) = &inst.op else { return None };
        Some((Val::new(at), difference(&of[0])?))
    });
    found.collect()
}

/// A product with a positive constant: what is multiplied, and that.
fn factor_of(nest: &Nest, val: Val) -> Option<(Val, f64)> {
    let InstOp::Op(ScalarOp::Mul, of) = &nest.body[val.index()].op else { return None };
    let [a, b] = of[..] else { return None };
    let constant = |val: Val| {
        let InstOp::Const(Scalar::Float(of)) = nest.body[val.index()].op else { return None };
        Some(of).filter(|of| *of > 0.0 && of.is_finite())
    };
    constant(b).map(|of| (a, of)).or_else(|| constant(a).map(|of| (b, of)))
}

/// Where a score comes from. None where a constant is a limit of its own.
fn origin(nest: &Nest, val: Val) -> Option<From> {
    let is_neutral = |of: &Scalar| matches!(of, Scalar::Float(of) if *of == 0.0 || of.is_infinite());
    Some(match &nest.body[val.index()].op {
        InstOp::Const(of) => return is_neutral(of).then_some(From::Neutral),
        InstOp::Load { buf, guard, other, .. } => {
            return (guard.is_empty() || is_neutral(other)).then_some(From::Buffer(*buf));
        }
        InstOp::Reduce(ReduceOp::Max, of) => From::Scores(vec![*of]),
        InstOp::Op(ScalarOp::Max, of) => From::Scores(of.clone()),
        InstOp::Op(ScalarOp::Select, of) => From::Scores(of[1..].to_vec()),
        InstOp::Index(_)
        | InstOp::Cond(_)
        | InstOp::Op(..)
        | InstOp::Cast(_)
        | InstOp::Bitcast(_)
        | InstOp::Bind { .. }
        | InstOp::Reduce(..)
        | InstOp::ArgReduce { .. }
        | InstOp::Scan { .. }
        | InstOp::Store { .. } => From::Origin(factor_of(nest, val).map_or(1.0, |of| of.1)),
    })
}

/// Notes the buffers that a score of a nest comes from; the factors of anything else that it comes from.
fn trace(nest: &Nest, val: Val, bufs: &mut HashSet<Buf>) -> Option<Vec<f64>> {
    let (mut open, mut factors) = (vec![val], Vec::new());
    while let Some(val) = open.pop() {
        match origin(nest, val)? {
            From::Scores(of) => open.extend(of),
            From::Buffer(buf) => drop(bufs.insert(buf)),
            From::Neutral => {}
            From::Origin(factor) => factors.push(factor),
        }
    }
    Some(factors)
}
