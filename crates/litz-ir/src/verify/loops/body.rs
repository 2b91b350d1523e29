//! Reports what is wrong with the body of a nest: types of values, where instructions run, and what they write.

use std::fmt;

use litz_sym::{Expr, Sym};

use super::{Points, Verifier};
use crate::dtype::Dtype;
use crate::ids::Id;
use crate::loops::{Axis, Buf, InstOp, Nest, Val};

impl Verifier<'_> {
    /// Reports what is wrong with a nest, and notes what it reads and writes.
    pub(super) fn nest(&mut self, nest: &Nest) {
        nest.reads().into_iter().for_each(|buf| self.read(buf, &nest.name));
        let (mark, sound) = (self.report.enter(), self.report.diags.len());
        for axis in nest.all_axes() {
            self.report.extent(axis.extent, format_args!("{}, axis {}", nest.name, axis.var));
        }
        for axis in nest.all_axes() {
            self.report.declare(axis.var);
        }
        if let Some(idle) = &nest.idle {
            self.report.rel(idle, &nest.name);
        }
        let mut body =
            Body { nest, types: Vec::new(), varies: Vec::new(), after: Vec::new(), bound: Vec::new() };
        for at in 0..nest.body.len() {
            self.inst(&mut body, at);
        }
        if !self.report.diags[sound..].iter().any(|diag| diag.slug == "undeclared-symbol") {
            self.accesses(nest);
        }
        self.report.leave(mark);
        nest.writes().into_iter().for_each(|buf| self.write(buf, &nest.name));
    }

    fn inst(&mut self, body: &mut Body, at: usize) {
        let nest = body.nest;
        let inst = &nest.body[at];
        let place = InstSite { nest: &nest.name, at };
        for val in inst.op.operands() {
            if body.ty(val).is_none() {
                self.report.fail("undefined-value", format_args!("{place}: {val} is no earlier value"));
            }
        }
        for expr in inst.op.exprs() {
            self.report.expr(expr, place);
        }
        self.inst_types(body, at, place);
        self.inst_scope(body, at, place);
        body.types.push(inst.op.has_result().then_some(inst.ty));
    }

    fn inst_types(&mut self, body: &Body, at: usize, place: InstSite) {
        let nest = body.nest;
        let (op, ty) = (&nest.body[at].op, nest.body[at].ty);
        match op {
            InstOp::Load { buf, guard, other, .. } => {
                let Some(data) = self.loops.bufs.get(*buf) else { return };
                // A load may widen a half type to the type that arithmetic is done in.
                if ty != data.dtype.compute() {
                    self.report.same_type(Some(data.dtype), Some(ty), place);
                }
                if !guard.is_empty() {
                    self.report.literal(*other, ty, place);
                }
            }
            InstOp::Const(value) => self.report.literal(*value, ty, place),
            InstOp::Index(_) => self.report.same_type(Some(Dtype::I64), Some(ty), place),
            InstOp::Cond(_) => self.report.same_type(Some(Dtype::Bool), Some(ty), place),
            InstOp::Op(op, args) => {
                let args: Vec<_> = args.iter().map(|&arg| body.ty(arg)).collect();
                self.report.operation(*op, &args, ty, place);
            }
            InstOp::Cast(_) => {}
            InstOp::Bitcast(value) => self.report.bitcast(body.ty(*value), ty, place),
            InstOp::Bind { value, .. } => self.report.same_type(Some(Dtype::I64), body.ty(*value), place),
            InstOp::Reduce(op, value) | InstOp::Scan { op, value, .. } => {
                self.report.same_type(body.ty(*value), Some(ty), place);
                self.report.combination(*op, ty, place);
            }
            InstOp::ArgReduce { .. } => self.report.same_type(Some(Dtype::I64), Some(ty), place),
            InstOp::Store { buf, value, combine, .. } => {
                let Some(data) = self.loops.bufs.get(*buf) else { return };
                self.report.same_type(Some(data.dtype), body.ty(*value), place);
                self.report.same_type(Some(data.dtype), Some(ty), place);
                if let Some(op) = combine {
                    self.report.combination(*op, ty, place);
                }
            }
        }
    }

    /// Where the instruction runs: at each point, or once per outer point.
    fn inst_scope(&mut self, body: &mut Body, at: usize, place: InstSite) {
        let nest = body.nest;
        let op = &nest.body[at].op;
        let operands = op.operands();
        let is_reduce = matches!(op, InstOp::Reduce(..) | InstOp::ArgReduce { .. });
        let varies = operands.iter().any(|val| body.varies.get(val.index()) == Some(&true))
            || op.exprs().iter().any(|&expr| body.is_varying(expr));
        let after = operands.iter().any(|val| body.after.get(val.index()) == Some(&true));
        let message =
            format_args!("{place}: joins a reduced value with one that varies along a reduced axis");
        self.report.check(!(varies && after), "mixes-reduction", message);
        if is_reduce {
            let message = format_args!("{place}: nothing is reduced in `{}`", nest.name);
            self.report.check(!nest.reduced.is_empty(), "reduce-without-axes", message);
        }
        match op {
            InstOp::Scan { axis, .. } => {
                let is_outer = nest.axes.iter().any(|outer| outer.var == *axis);
                self.report.check(is_outer, "scan-axis", format_args!("{place}: `{axis}` is no outer axis"));
            }
            InstOp::Bind { sym, .. } => {
                self.report.declare(*sym);
                body.bound.push(Bound { sym: *sym, varies });
            }
            InstOp::Store { buf, index, combine: None, .. } => self.count_points(body, *buf, index, varies),
            InstOp::Load { .. }
            | InstOp::Const(_)
            | InstOp::Index(_)
            | InstOp::Cond(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Store { combine: Some(_), .. } => {}
        }
        body.varies.push(varies && !is_reduce);
        body.after.push(after || is_reduce);
    }

    fn count_points(&mut self, body: &Body, buf: Buf, index: &[Expr], varies: bool) {
        let Some(points) = self.points.get_mut(buf.index()) else { return };
        let mentions = |sym: Sym| index.iter().any(|at| at.has_sym(sym));
        let is_bound = body.bound.iter().any(|bound| mentions(bound.sym));
        let counts = |axis: &&Axis| is_bound || mentions(axis.var);
        let outer = body.nest.axes.iter().filter(counts);
        let reduced = body.nest.reduced.iter().filter(|_| varies).filter(counts);
        let stored = outer.chain(reduced).fold(Expr::one(), |n, axis| n * axis.extent);
        if let Points::Some(before) = *points {
            *points = Points::Some(before + stored);
        }
    }
}

/// Names an instruction in diagnostics by its nest and its position in the body.
#[derive(Clone, Copy)]
struct InstSite<'a> {
    nest: &'a str,
    at: usize,
}

impl fmt::Display for InstSite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, instruction {}", self.nest, self.at)
    }
}

/// A nest's body as far as it was read.
struct Body<'a> {
    nest: &'a Nest,
    /// Type of each instruction that has a result.
    types: Vec<Option<Dtype>>,
    /// Whether the value differs along the reduced axes.
    varies: Vec<bool>,
    /// Whether the value depends on a reduction.
    after: Vec<bool>,
    bound: Vec<Bound>,
}

/// A symbol bound to a value.
struct Bound {
    sym: Sym,
    /// It varies along the reduced axes.
    varies: bool,
}

impl Body<'_> {
    fn ty(&self, val: Val) -> Option<Dtype> {
        self.types.get(val.index()).copied().flatten()
    }

    fn is_varying(&self, expr: Expr) -> bool {
        self.nest.reduced.iter().any(|axis| expr.has_sym(axis.var))
            || self.bound.iter().any(|bound| bound.varies && expr.has_sym(bound.sym))
    }
}
