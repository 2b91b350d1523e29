//! Loops to what is wrong with them.

use std::fmt;

use litz_sym::{Expr, Facts, Rel, Sym};

use crate::diag::Diags;
use crate::dtype::Dtype;
use crate::graph::contiguous_strides;
use crate::ids::Id;
use crate::loops::{Axis, Buf, BufData, BufKind, Extern, InstOp, Loops, Nest, Output, Region, Stmt, Val};
use crate::verify::Report;

/// What is wrong with a loops program.
///
/// Slugs: `symbol-name`, `empty-range`, `duplicate-symbol`, `undeclared-symbol`, `duplicate-name`, `stride-rank`,
/// `negative-size`, `unknown-buffer`, `unwritten-buffer`, `partial-store`, `writes-input`, `undefined-value`,
/// `operand-count`, `type-mismatch`, `literal-type`, `out-of-bounds`, `reduce-without-axes`, `mixes-reduction`,
/// `scan-axis`, `region-axis`, `region-carry`, `extern-layout`, `update-target`, `update-type`, `duplicate-update`.
pub fn verify(loops: &Loops) -> Diags {
    let written = loops.bufs.values().map(|buf| buf.kind != BufKind::Temp).collect();
    let points = vec![Points::Some(Expr::zero()); loops.bufs.len()];
    let spans = loops.bufs.values().map(|buf| span_at(buf, &loops.facts)).collect();
    let mut verifier = Verifier { report: Report::new(&loops.facts), loops, written, points, spans };
    verifier.run();
    verifier.report.diags
}

/// How many elements of a buffer may have been written, at most.
#[derive(Clone, Copy)]
enum Points {
    All,
    Some(Expr),
}

struct Verifier<'a> {
    report: Report,
    loops: &'a Loops,
    /// Buffers that have contents so far.
    written: Vec<bool>,
    points: Vec<Points>,
    /// Elements that each buffer spans for one choice of sizes, where that can be told; see [`size_at`].
    spans: Vec<Option<i64>>,
}

impl Verifier<'_> {
    fn run(&mut self) {
        let loops = self.loops;
        for guard in loops.facts.guards() {
            self.report.rel(&guard.rel, "guard");
        }
        self.report.unique(loops.bufs.values().map(|buf| &*buf.name), "buffers");
        let regions = loops.stmts.iter().filter(|stmt| matches!(stmt, Stmt::Region(_)));
        let inside = regions.flat_map(Stmt::nests).map(|nest| &*nest.name);
        self.report.unique(loops.stmts.iter().map(Stmt::name).chain(inside), "statements");
        for buf in loops.bufs.values() {
            self.report.shape(&buf.sizes, &buf.strides, format_args!("buffer `{}`", buf.name));
        }
        for stmt in &loops.stmts {
            match stmt {
                Stmt::Nest(nest) => self.nest(nest),
                Stmt::Extern(call) => self.call(call),
                Stmt::Region(region) => self.region(region),
            }
        }
        self.coverage();
        for &(target, source) in &loops.updates {
            self.update(target, source);
        }
        self.report.unique_targets(&loops.updates, |buf| name(loops, buf));
        for output in &loops.outputs {
            self.output(output);
        }
    }

    fn read(&mut self, buf: Buf, place: &str) {
        match self.written.get(buf.index()) {
            None => self.report.fail("unknown-buffer", format_args!("{place}: {buf} is no buffer")),
            Some(true) => {}
            Some(false) => {
                let message =
                    format!("{place}: `{}` is read before any statement writes it", name(self.loops, buf));
                self.report.fail("unwritten-buffer", message);
            }
        }
    }

    fn write(&mut self, buf: Buf, place: &str) {
        let Some(data) = self.loops.bufs.get(buf) else {
            return self.report.fail("unknown-buffer", format_args!("{place}: {buf} is no buffer"));
        };
        self.written[buf.index()] = true;
        let message = format_args!("{place}: `{}` is written, but it comes from outside", data.name);
        self.report.check(data.kind == BufKind::Temp, "writes-input", message);
    }

    /// Buffers that all stores together cannot fill.
    fn coverage(&mut self) {
        for (buf, data) in self.loops.bufs.iter() {
            let Points::Some(points) = self.points[buf.index()] else { continue };
            let elements = data.sizes.iter().fold(Expr::one(), |n, &size| n * size);
            if data.kind == BufKind::Temp
                && !points.is_zero()
                && self.loops.facts.known(&Rel::lt(points, elements)).is_yes()
            {
                let message =
                    format_args!("`{}`: stores write {points} of {elements} elements at most", data.name);
                self.report.fail("partial-store", message);
            }
        }
    }

    fn call(&mut self, call: &Extern) {
        call.reads.iter().for_each(|&buf| self.read(buf, &call.name));
        for &buf in call.reads.iter().chain(&call.writes) {
            let Some(data) = self.loops.bufs.get(buf) else { continue };
            let message = format_args!("{}: expected `{}` to be contiguous", call.name, data.name);
            self.report.check(data.strides == contiguous_strides(&data.sizes), "extern-layout", message);
        }
        for &buf in &call.writes {
            if let Some(points) = self.points.get_mut(buf.index()) {
                *points = Points::All;
            }
        }
        for &value in &call.ints {
            self.report.expr(value, &call.name);
        }
        call.writes.iter().for_each(|&buf| self.write(buf, &call.name));
    }

    /// The nests in order, as they run for the first point of the axis.
    fn region(&mut self, region: &Region) {
        let name = &region.name;
        let is_repeated: Vec<bool> = region.nests.iter().map(|nest| region.repeats(nest)).collect();
        let changes = is_repeated.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let has_ends = is_repeated.first() == Some(&false) || is_repeated.last() == Some(&false);
        let is_run = changes <= 1 || changes == 2 && has_ends && is_repeated.first() == is_repeated.last();
        let message = format_args!("{name}: the nests along {} do not stand together", region.over.var);
        self.report.check(is_run && is_repeated.contains(&true), "region-axis", message);
        let repeated: Vec<&Nest> = region.nests.iter().filter(|nest| region.repeats(nest)).collect();
        for nest in &repeated {
            let has_extent = nest.axes.contains(&region.over);
            let message = format_args!("{}: expected the axis {} of `{name}`", nest.name, region.over);
            self.report.check(has_extent, "region-axis", message);
        }
        let mut carried = Vec::new();
        let mut written: Vec<Buf> = Vec::new();
        for nest in &repeated {
            let is_later =
                |buf: &Buf| !written.contains(buf) && repeated.iter().any(|n| n.writes().contains(buf));
            carried.extend(nest.reads().into_iter().filter(is_later));
            written.extend(nest.writes());
        }
        for &buf in carried.iter().filter(|buf| !region.carry.contains(buf)) {
            let message = format!("{name}: `{}` is carried, but not named", self::name(self.loops, buf));
            self.report.fail("region-carry", message);
        }
        for &buf in region.carry.iter().filter(|buf| !carried.contains(buf)) {
            let message = format!("{name}: `{}` is named, but not carried", self::name(self.loops, buf));
            self.report.fail("region-carry", message);
        }
        region.nests.iter().for_each(|nest| self.nest(nest));
    }

    fn update(&mut self, target: Buf, source: Buf) {
        self.read(source, "update");
        let (Some(target), Some(source)) = (self.loops.bufs.get(target), self.loops.bufs.get(source)) else {
            return;
        };
        let message = format_args!("update of `{}`: expected an input or a constant", target.name);
        self.report.check(target.kind != BufKind::Temp, "update-target", message);
        let layout = |buf: &crate::loops::BufData| (buf.dtype, buf.sizes.clone(), buf.strides.clone());
        let message =
            format_args!("update of `{}`: `{}` has another type or layout", target.name, source.name);
        self.report.check(layout(target) == layout(source), "update-type", message);
    }

    fn output(&mut self, output: &Output) {
        match output {
            Output::View { buf, sizes, strides, offset } => {
                self.read(*buf, "return");
                self.report.shape(sizes, strides, "return");
                self.report.expr(*offset, "return");
            }
            Output::Int(value) => self.report.expr(*value, "return"),
            Output::Literal(_) | Output::Nothing => {}
        }
    }

    fn nest(&mut self, nest: &Nest) {
        nest.reads().into_iter().for_each(|buf| self.read(buf, &nest.name));
        let mark = self.report.enter();
        for axis in nest.all_axes() {
            self.report.extent(axis.extent, format_args!("{}, axis {}", nest.name, axis.var));
        }
        for axis in nest.all_axes() {
            self.report.declare(axis.var);
        }
        let mut body =
            Body { nest, types: Vec::new(), varies: Vec::new(), after: Vec::new(), bound: Vec::new() };
        for at in 0..nest.body.len() {
            self.inst(&mut body, at);
        }
        self.report.leave(mark);
        nest.writes().into_iter().for_each(|buf| self.write(buf, &nest.name));
    }

    fn inst(&mut self, body: &mut Body, at: usize) {
        let nest = body.nest;
        let inst = &nest.body[at];
        let place = Place { nest: &nest.name, at };
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

    fn inst_types(&mut self, body: &Body, at: usize, place: Place) {
        let nest = body.nest;
        let (op, ty) = (&nest.body[at].op, nest.body[at].ty);
        match op {
            InstOp::Load { buf, index, guard, other } => {
                let Some(data) = self.loops.bufs.get(*buf) else { return };
                // A load may widen a half type to the type that arithmetic is done in.
                if ty != data.dtype.compute() {
                    self.report.same_type(Some(data.dtype), Some(ty), place);
                }
                if guard.is_empty() {
                    self.bounds(body, *buf, *index, place);
                } else {
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
            InstOp::Store { buf, index, value, combine } => {
                let Some(data) = self.loops.bufs.get(*buf) else { return };
                self.report.same_type(Some(data.dtype), body.ty(*value), place);
                self.report.same_type(Some(data.dtype), Some(ty), place);
                if let Some(op) = combine {
                    self.report.combination(*op, ty, place);
                }
                self.bounds(body, *buf, *index, place);
            }
        }
    }

    /// Indices that are outside of the buffer at every point.
    fn bounds(&mut self, body: &Body, buf: Buf, index: Expr, place: Place) {
        let Some(data) = self.loops.bufs.get(buf) else { return };
        if self.is_element(body, buf, index) {
            return;
        }
        let facts = body.facts(&self.loops.facts);
        let is_empty = |axis: &Axis| facts.bounds(axis.extent).hi <= 0;
        if data.sizes.len() != data.strides.len() || body.nest.all_axes().any(is_empty) {
            return;
        }
        let never = |rel: Rel| facts.known(&rel).is_no();
        if never(Rel::le(0, index)) || never(Rel::lt(index, data.span())) {
            let message = format_args!("{place}: {index} is never an element of `{}`", data.name);
            self.report.fail("out-of-bounds", message);
        }
    }

    /// Whether the index is an element at the first point of the nest for one choice of sizes. Almost all are, and
    /// numbers are quicker than proofs.
    fn is_element(&self, body: &Body, buf: Buf, index: Expr) -> bool {
        let is_inside = |sym: Sym| {
            body.nest.all_axes().any(|axis| axis.var == sym)
                || body.bound.iter().any(|bound| bound.sym == sym)
        };
        let value = |sym| if is_inside(sym) { Some(0) } else { size_at(sym, &self.loops.facts) };
        let elements = self.spans.get(buf.index()).copied().flatten();
        matches!((index.eval(&value), elements), (Some(at), Some(elements)) if (0..elements).contains(&at))
    }

    /// Where the instruction runs: at each point, or once per outer point.
    fn inst_scope(&mut self, body: &mut Body, at: usize, place: Place) {
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
            InstOp::Bind { sym, extent, .. } => {
                self.report.declare(*sym);
                body.bound.push(Bound { sym: *sym, extent: *extent, varies });
            }
            InstOp::Store { buf, index, combine: None, .. } => self.count_points(body, *buf, *index, varies),
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

    fn count_points(&mut self, body: &Body, buf: Buf, index: Expr, varies: bool) {
        let Some(points) = self.points.get_mut(buf.index()) else { return };
        let is_bound = body.bound.iter().any(|bound| index.has_sym(bound.sym));
        let counts = |axis: &&Axis| is_bound || index.has_sym(axis.var);
        let outer = body.nest.axes.iter().filter(counts);
        let reduced = body.nest.reduced.iter().filter(|_| varies).filter(counts);
        let stored = outer.chain(reduced).fold(Expr::one(), |n, axis| n * axis.extent);
        if let Points::Some(before) = *points {
            *points = Points::Some(before + stored);
        }
    }
}

fn name(loops: &Loops, buf: Buf) -> &str {
    loops.bufs.get(buf).map_or("?", |data| &data.name)
}

/// One size that a symbol may have: the example, or the smallest one.
fn size_at(sym: Sym, facts: &Facts) -> Option<i64> {
    let lowest = facts.range_of(sym).lo;
    facts.hint_of(sym).or((lowest != i64::MIN).then_some(lowest))
}

/// As [`BufData::span`], for one choice of sizes.
fn span_at(buf: &BufData, facts: &Facts) -> Option<i64> {
    let value = |sym| size_at(sym, facts);
    buf.sizes.iter().zip(&buf.strides).try_fold(1i64, |span, (size, stride)| {
        let last = size.eval(&value)?.checked_sub(1)?;
        span.checked_add(last.checked_mul(stride.eval(&value)?)?)
    })
}

/// Where an instruction is.
#[derive(Clone, Copy)]
struct Place<'a> {
    nest: &'a str,
    at: usize,
}

impl fmt::Display for Place<'_> {
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
    extent: Expr,
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

    /// Those of the program, and the ranges of axes and bound symbols.
    fn facts(&self, facts: &Facts) -> Facts {
        let mut facts = facts.clone();
        self.nest.all_axes().for_each(|axis| facts.declare_index(axis.var, axis.extent));
        self.bound.iter().for_each(|bound| facts.declare_index(bound.sym, bound.extent));
        facts
    }
}
