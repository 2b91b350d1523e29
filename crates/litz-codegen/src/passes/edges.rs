//! Asks once for all points of a warp's loops, beside products of instructions, what each of its points asks.
//!
//! ```text
//! lane l in 32 { unroll e in 8 { %0 = load s[e]; %1 = cond 32*e + l + 256*j < n; %2 = const -inf; %3 = select %1, %0, %2; m[e] = %3 } }
//!   =>  if 256*j - n + 256 <= 0 {
//!         lane l in 32 { unroll e in 8 { %0 = load s[e]; m[e] = %0 } }
//!       } else { .. }
//! ```
//!
//! So of attention's blocks of columns those alone compute masks that lie on an edge: the last one, or those on the diagonal.

use super::Pass;
use super::clean::drop_unused;
use litz_ir::Diag;
use litz_ir::ScalarOp;
use litz_ir::kernel::{Act, Kernel, KernelLoopKind, Loop, Op, PartMut, Stmt, Val, visit};
use litz_ir::target::{Level, Target};
use litz_sym::{Cmp, Expr, Facts, Rel, Sym};
use std::collections::{HashMap, HashSet};

/// The pass.
pub const PASS: Pass = Pass { name: "edges", run };

/// Gives loops that ask such things a version that does not.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    if !kernel.body.iter().any(has_products) {
        return Ok(());
    }
    let mut facts = kernel.facts.clone();
    kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    // A block that stays comes to other points.
    let points = kernel.grid.iter().filter(|_| kernel.persistent.is_some());
    let repeated = points.map(|axis| axis.var).collect();
    let body = std::mem::take(&mut kernel.body);
    let around = Around { facts, repeated, is_uniform: true, is_of_group: false, is_beside: false };
    kernel.body = block(kernel, body, &around);
    Ok(())
}

/// What is around statements.
#[derive(Clone)]
struct Around {
    facts: Facts,
    /// Variables of loops in order, and of points that a block comes to one after another.
    repeated: Vec<Sym>,
    /// Whether the lanes of a warp have the same variables.
    is_uniform: bool,
    /// Whether they are a warpgroup's.
    is_of_group: bool,
    /// Whether they are those of a warp of a warpgroup, beside products of that.
    is_beside: bool,
}

impl Around {
    /// What is around the body of a loop, which stands beside products or not.
    fn inside(&self, inner: &Loop, is_beside: bool) -> Around {
        let (mut inside, level) = (self.clone(), inner.kind.level());
        inside.facts.declare_index(inner.var, inner.extent);
        if inner.kind == KernelLoopKind::For {
            inside.repeated.push(inner.var);
        }
        inside.is_uniform &= level.is_none_or(Level::has_threads);
        inside.is_beside = is_beside && self.is_of_group && level == Some(Level::Warp);
        inside.is_of_group |= level == Some(Level::Warpgroup);
        inside
    }
}

/// Whether a statement, or one in it, is a product of instructions.
fn has_products(stmt: &Stmt) -> bool {
    let mut found = false;
    visit(std::slice::from_ref(stmt), &mut |stmt| {
        found |= matches!(stmt, Stmt::Act(Act::FragmentProduct(_)));
    });
    found
}

fn block(kernel: &mut Kernel, stmts: Vec<Stmt>, around: &Around) -> Vec<Stmt> {
    let is_beside = around.is_uniform && (around.is_beside || stmts.iter().any(has_products));
    let mut out = Vec::with_capacity(stmts.len());
    for mut stmt in stmts {
        if let Stmt::Loop(inner) = &stmt
            && inner.kind.level() == Some(Level::Lane)
            && is_beside
            && let Some(cond) = conditions(inner, around)
        {
            let then = vec![without(kernel, &stmt, &cond.asked)];
            out.push(Stmt::If { cond: cond.all, then, other: vec![stmt] });
            continue;
        }
        let inside = match &stmt {
            Stmt::Loop(inner) => around.inside(inner, is_beside),
            // What has been asked is not asked again.
            Stmt::If { .. } => Around { is_beside: false, ..around.clone() },
            Stmt::Act(_) => {
                out.push(stmt);
                continue;
            }
        };
        for inner in stmt.blocks_mut() {
            *inner = block(kernel, std::mem::take(inner), &inside);
        }
        out.push(stmt);
    }
    out
}

/// What the points of a loop ask.
struct Conditions {
    /// Conditions of points.
    asked: Vec<Rel>,
    /// What has to hold for these to hold at all points.
    all: Vec<Rel>,
}

/// What the points of lanes' loops ask that depends on the iteration of a loop around. None where that is nothing, and where there are
/// branches, or acts of whole warps.
fn conditions(lanes: &Loop, around: &Around) -> Option<Conditions> {
    let mut facts = around.facts.clone();
    let mut inner = vec![lanes.var];
    facts.declare_index(lanes.var, lanes.extent);
    let (mut asked, mut is_plain): (Vec<Rel>, bool) = (Vec::new(), true);
    visit(&lanes.body, &mut |stmt| match stmt {
        Stmt::Loop(Loop { var, extent, kind, .. }) => {
            inner.push(*var);
            facts.declare_index(*var, *extent);
            is_plain &= matches!(kind, KernelLoopKind::Unroll | KernelLoopKind::Vector { .. });
        }
        Stmt::Act(Act::Let { op: Op::Cond(rel), .. }) => asked.push(*rel),
        Stmt::Act(Act::Let { op: Op::Load { guard, .. }, .. }) => asked.extend(guard),
        Stmt::Act(Act::Let { .. } | Act::Store { .. }) => {}
        Stmt::If { .. } | Stmt::Act(_) => is_plain = false,
    });
    asked.retain(|rel| [rel.lhs, rel.rhs].iter().any(|e| around.repeated.iter().any(|&var| e.has_sym(var))));
    let mut all = Vec::new();
    asked.retain(|rel| match everywhere(*rel, &inner, &facts) {
        Some(rel) => {
            all.push(rel);
            true
        }
        None => false,
    });
    all.sort();
    all.dedup();
    (is_plain && !all.is_empty()).then_some(Conditions { asked, all })
}

/// What holds where a relation holds for all values of some variables, which have bounds.
pub(super) fn everywhere(rel: Rel, inner: &[Sym], facts: &Facts) -> Option<Rel> {
    let less = match rel.cmp {
        Cmp::Lt => 1,
        Cmp::Le => 0,
        Cmp::Eq | Cmp::Ne => return None,
    };
    // lhs < rhs  <=>  lhs + 1 <= rhs
    let difference = facts.simplify(rel.lhs - rel.rhs);
    let (mut outer, mut own) = (Expr::int(difference.constant() + less), Expr::zero());
    for (factor, term) in difference.terms() {
        let syms = term.syms();
        match syms.iter().filter(|sym| inner.contains(sym)).count() {
            0 => outer = outer + term * factor,
            count if count == syms.len() => own = own + term * factor,
            _ => return None,
        }
    }
    let largest = facts.bounds(own).hi;
    (largest < i64::from(i32::MAX)).then(|| Rel::le(outer + largest, Expr::zero()))
}

/// The statement where some conditions hold.
pub(super) fn without(kernel: &mut Kernel, stmt: &Stmt, holds: &[Rel]) -> Stmt {
    let mut stmt = vec![stmt.clone()];
    Assume { kernel, holds, copies: HashMap::new(), holding: HashSet::new() }.block(&mut stmt);
    stmt.remove(0)
}

/// Leaves out conditions that hold, and what nothing uses then.
struct Assume<'a> {
    kernel: &'a mut Kernel,
    holds: &'a [Rel],
    /// What is used in place of each value: values have definitions of their own.
    copies: HashMap<Val, Val>,
    /// Conditions that hold.
    holding: HashSet<Val>,
}

impl Assume<'_> {
    fn block(&mut self, stmts: &mut Vec<Stmt>) {
        let mut out = Vec::with_capacity(stmts.len());
        for mut stmt in std::mem::take(stmts) {
            for inner in stmt.blocks_mut() {
                self.block(inner);
            }
            if let Stmt::Act(Act::Let { val, op }) = &stmt
                && let Some(other) = self.known(*val, op)
            {
                self.copies.insert(*val, self.copies.get(&other).copied().unwrap_or(other));
                continue;
            }
            stmt.each_part_mut(&mut |part| match part {
                PartMut::Val(val) => *val = self.copies.get(val).copied().unwrap_or(*val),
                PartMut::Access { .. } | PartMut::Expr(_) | PartMut::Rel(_) => {}
            });
            if let Stmt::Act(
                Act::Let { op: Op::Load { guard, .. }, .. }
                | Act::Store { guard, .. }
                | Act::MulAdd { guard, .. },
            ) = &mut stmt
            {
                guard.retain(|rel| !self.holds.contains(rel));
            }
            if let Stmt::Act(Act::Let { val, .. }) = &mut stmt {
                let copy = self.kernel.vals.push(self.kernel.vals[*val]);
                self.copies.insert(*val, copy);
                *val = copy;
            }
            out.push(stmt);
        }
        drop_unused(&mut out);
        *stmts = out;
    }

    /// The value that another one is, as conditions hold.
    fn known(&mut self, val: Val, op: &Op) -> Option<Val> {
        match op {
            Op::Cond(rel) if self.holds.contains(rel) => {
                self.holding.insert(val);
                None
            }
            Op::Call(ScalarOp::Select, of) => match of[..] {
                [cond, taken, _] => self.holding.contains(&cond).then_some(taken),
                _ => None,
            },
            Op::Call(ScalarOp::And, of) => match of[..] {
                [a, b] if self.holding.contains(&a) => {
                    if self.holding.contains(&b) {
                        self.holding.insert(val);
                    }
                    Some(b)
                }
                [a, b] if self.holding.contains(&b) => Some(a),
                _ => None,
            },
            Op::Load { .. }
            | Op::Transposed { .. }
            | Op::Lookup { .. }
            | Op::Const(_)
            | Op::Index(_)
            | Op::Cond(_)
            | Op::Call(..)
            | Op::Cast(_)
            | Op::Round(..)
            | Op::Bitcast(_) => None,
        }
    }
}
