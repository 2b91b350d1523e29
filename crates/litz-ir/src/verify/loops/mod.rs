//! Reports what is wrong with a loops program, statement by statement.

mod body;
mod bounds;

pub use bounds::{Coordinate, Inside, Unproved};

use litz_sym::{Cmp, Expr, Rel, Sym};

use crate::call::CallResult;
use crate::diag::Diags;
use crate::dtype::Dtype;
use crate::graph::TensorType;
use crate::ids::Id;
use crate::loops::{
    Buf, BufKind, Callee, Control, ControlCall, Extern, FunctionCall, HostCall, Loops, Nest, Output,
    Recurrence, Routine, Stmt, View,
};
use crate::verify::Report;

/// What is wrong with a loops program.
///
/// Slugs: `symbol-name`, `empty-range`, `duplicate-symbol`, `undeclared-symbol`, `duplicate-name`, `stride-rank`, `too-large`,
/// `negative-size`, `unknown-buffer`, `unwritten-buffer`, `partial-store`, `writes-input`, `undefined-value`,
/// `operand-count`, `type-mismatch`, `literal-type`, `out-of-bounds`, `reduce-without-axes`, `mixes-reduction`,
/// `scan-axis`, `region-axis`, `region-carry`, `region-idle`, `extern-layout`, `index-rank`, `update-target`, `update-type`,
/// `duplicate-update`, `device`, `written-argument`, `shared-argument`, `undefined-size`, `redefined-size`, `size-operand`,
/// `unknown-function`, `function-type`.
pub fn verify(loops: &Loops) -> Diags {
    let written = loops.bufs.values().map(|buf| buf.kind != BufKind::Temp).collect();
    let points = vec![Points::Some(Expr::zero()); loops.bufs.len()];
    let mut verifier =
        Verifier { report: Report::new(&loops.facts), loops, written, points, inside: Inside::default() };
    verifier.run();
    let mut diags = verifier.report.diags;
    diags.extend(loops.functions.iter().flat_map(verify));
    diags
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
    inside: Inside,
}

impl Verifier<'_> {
    fn run(&mut self) {
        let loops = self.loops;
        for guard in loops.facts.guards() {
            self.report.clause(&guard.clause, "guard");
        }
        self.report.unique(loops.bufs.values().map(|buf| &*buf.name), "buffers");
        let regions = loops.stmts.iter().filter(|stmt| matches!(stmt, Stmt::Recurrence(_)));
        let inside = regions.flat_map(Stmt::nests).map(|nest| &*nest.name);
        self.report.unique(loops.stmts.iter().map(Stmt::name).chain(inside), "statements");
        for buf in loops.bufs.values() {
            self.report.shape(&buf.sizes, &buf.strides, format_args!("buffer `{}`", buf.name));
        }
        for stmt in &loops.stmts {
            if let Some(difference) = loops.mixed_devices(stmt) {
                self.report.fail("device", format_args!("{}: {difference}", stmt.name()));
            }
            match stmt {
                Stmt::Nest(nest) => {
                    let message = format_args!("{}: idle points of a nest that nothing repeats", nest.name);
                    self.report.check(nest.idle.is_none(), "region-idle", message);
                    self.nest(nest);
                }
                Stmt::Extern(call) => self.call(call),
                Stmt::Recurrence(region) => self.region(region),
            }
        }
        self.late_sizes();
        self.coverage();
        for &(target, source) in &loops.updates {
            self.update(target, source);
        }
        self.report.unique_targets(&loops.updates, |buf| name(loops, buf));
        for &buf in &loops.donated {
            let is_input = loops.bufs.get(buf).is_some_and(|data| data.kind == BufKind::Input);
            let is_state = loops.updates.iter().any(|update| update.0 == buf);
            let message =
                format_args!("`{}` is donated: expected an input that is not updated", name(loops, buf));
            self.report.check(is_input && !is_state, "donated", message);
        }
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
        let message = format_args!(
            "{place}: `{}` is written, but it comes from outside, and no update is by itself",
            data.name
        );
        let is_ours = data.kind == BufKind::Temp || self.loops.updates.contains(&(buf, buf));
        self.report.check(is_ours, "writes-input", message);
    }

    /// Buffers that all stores together cannot fill.
    fn coverage(&mut self) {
        for (buf, data) in self.loops.bufs.iter() {
            let Points::Some(points) = self.points[buf.index()] else { continue };
            let elements = data.elements();
            if data.kind == BufKind::Temp
                && !points.is_zero()
                && self.loops.facts.holds(&Rel::lt(points, elements))
            {
                let message =
                    format_args!("`{}`: stores write {points} of {elements} elements at most", data.name);
                self.report.fail("partial-store", message);
            }
        }
    }

    /// Symbols that statements give values: each has one, which comes before all that mentions it.
    fn late_sizes(&mut self) {
        let loops = self.loops;
        let late = loops.late_sizes();
        for (at, &(sym, defined)) in late.iter().enumerate() {
            let is_of_input = loops
                .bufs
                .values()
                .filter(|data| data.kind == BufKind::Input)
                .any(|data| data.sizes.iter().chain(&data.strides).any(|size| size.has_sym(sym)));
            let is_first = !is_of_input && late[..at].iter().all(|&(other, _)| other != sym);
            let message = format_args!("size {sym}: another statement, or an input, gives it a value");
            self.report.check(is_first, "redefined-size", message);
            if !is_first {
                continue;
            }
            for stmt in loops.stmts[..=defined].iter().filter(|stmt| loops.mentions(stmt, sym)) {
                let message = format!("{}: mentions {sym}, which has no value yet", stmt.name());
                self.report.fail("undefined-size", message);
            }
        }
    }

    /// What gives a symbol its value reads one integer or truth value.
    fn size(&mut self, sym: Sym, number: Buf) {
        self.report.expr(Expr::sym(sym), format_args!("size {sym}"));
        let is_size =
            self.loops.bufs.get(number).is_some_and(|data| {
                (data.dtype.is_int() || data.dtype == Dtype::Bool) && data.span().is_one()
            });
        let message = format_args!("size {sym}: expected a buffer of one integer or truth value");
        self.report.check(is_size, "size-operand", message);
    }

    /// Functions are given and give what they say.
    fn control(&mut self, name: &str, call: &ControlCall) {
        let ControlCall { control, reads, writes } = call;
        let bool_at = match control {
            Control::Call(_) => None,
            Control::Branch { .. } => Some(reads.first()),
            Control::While { .. } => Some(writes.first()),
        };
        if let Some(buf) = bool_at {
            let data = buf.and_then(|&buf| self.loops.bufs.get(buf));
            let is_one = data.is_some_and(|data| data.dtype == Dtype::Bool && data.span().is_one());
            let message = format_args!("{name}: expected one truth value to decide");
            self.report.check(is_one, "function-type", message);
        }
        let message = format_args!("{name}: expected as many arguments as the functions have");
        self.report.check(control.reads() == reads.len(), "function-type", message);
        for (call, args, writes) in control.operands(reads, writes) {
            self.function_call(call, args, writes, name);
        }
        writes.iter().for_each(|&buf| self.fill(buf));
    }

    fn function_call(&mut self, call: &FunctionCall, args: &[Buf], writes: &[Buf], name: &str) {
        call.sizes.iter().for_each(|(_, value)| self.report.expr(*value, name));
        let Some(function) = self.loops.function(&call.function) else {
            let message = format_args!("{name}: no function is called @{}", call.function);
            return self.report.fail("unknown-function", message);
        };
        let callee = &call.function;
        for sym in function.given_sizes() {
            let is_given = call.sizes.iter().filter(|(given, _)| *given == sym).count() == 1;
            let message = format_args!("{name}: @{callee} is given no value for {sym}, or several");
            self.report.check(is_given, "function-type", message);
        }
        let has_consts = function.bufs.values().any(|data| matches!(data.kind, BufKind::Const(_)));
        self.report.check(!has_consts, "function-type", format_args!("{name}: @{callee} has constants"));
        let inputs: Vec<Buf> = function.inputs().collect();
        let updated: Vec<usize> = (0..inputs.len())
            .filter(|&at| function.updates.iter().any(|(target, _)| *target == inputs[at]))
            .collect();
        let results = writes.len().checked_sub(updated.len());
        let fits = args.len() == inputs.len() && results == Some(function.outputs.len());
        let message = format_args!(
            "{name}: @{callee} takes {}, gives {} and updates {}",
            inputs.len(),
            function.outputs.len(),
            updated.len()
        );
        self.report.check(fits, "function-type", message);
        if !fits {
            return;
        }
        let (results, changed) = writes.split_at(function.outputs.len());
        let expected: Vec<Buf> = updated.iter().map(|&at| args[at]).collect();
        let message = format_args!("{name}: expected what @{callee} updates behind its results");
        self.report.check(changed == expected, "function-type", message);
        let is_apart = |&at: &usize| {
            let others = args.iter().enumerate().filter(|&(other, _)| other != at).map(|(_, buf)| buf);
            !others.chain(results).any(|buf| *buf == args[at])
        };
        let message = format_args!("{name}: what @{callee} updates is something else's, too");
        self.report.check(updated.iter().all(is_apart), "function-type", message);
        for (&arg, &input) in args.iter().zip(&inputs) {
            self.same_type(call, arg, &function.bufs[input].ty(), name);
        }
        for (&result, output) in results.iter().zip(&function.outputs) {
            match output {
                Output::View { buf, sizes, strides, offset: _ } => {
                    let (sizes, strides) = (sizes.clone(), strides.clone());
                    let ty = TensorType { sizes, strides, ..function.bufs[*buf].ty() };
                    self.same_type(call, result, &ty, name);
                }
                Output::Number(_)
                | Output::Int(_)
                | Output::Literal(_)
                | Output::Text(_)
                | Output::Nothing => {
                    let message = format_args!("{name}: @{callee} gives what is no buffer");
                    self.report.fail("function-type", message);
                }
            }
        }
    }

    /// The buffer has the type that a function says, in terms of the caller's sizes. Strides along one element may be any.
    fn same_type(&mut self, call: &FunctionCall, buf: Buf, inside: &TensorType, name: &str) {
        let Some(data) = self.loops.bufs.get(buf) else { return };
        let facts = &self.loops.facts;
        let is_equal = |own: Expr, inside: Expr| {
            let outside = call.outside(inside);
            own == outside || facts.holds(&Rel::eq(own, outside))
        };
        let sizes = data.sizes.iter().zip(&inside.sizes);
        let mut dims = sizes.zip(data.strides.iter().zip(&inside.strides));
        let fits = (data.dtype, data.device, data.sizes.len())
            == (inside.dtype, inside.device, inside.sizes.len())
            && dims.all(|((&own, &size), (&stride, &other))| {
                is_equal(own, size) && (own.is_one() || is_equal(stride, other))
            });
        let message = format_args!("{name}: `{}`: @{} has {inside} there", data.name, call.function);
        self.report.check(fits, "function-type", message);
    }

    fn call(&mut self, call: &Extern) {
        call.reads().into_iter().for_each(|buf| self.read(buf, &call.name));
        for value in call.exprs() {
            self.report.expr(value, &call.name);
        }
        match &call.callee {
            Callee::Routine(routine) => self.routine(&call.name, routine),
            Callee::Host(host) => self.host_call(&call.name, host),
            Callee::Size { sym, number } => self.size(*sym, *number),
            Callee::Copy { from, to } => self.copy(&call.name, *from, *to),
            Callee::Control(control) => self.control(&call.name, control),
        }
        call.writes().into_iter().for_each(|buf| self.write(buf, &call.name));
    }

    fn routine(&mut self, name: &str, routine: &Routine) {
        for &buf in routine.reads.iter().chain(&routine.writes) {
            let Some(data) = self.loops.bufs.get(buf) else { continue };
            let message = format_args!("{name}: expected `{}` to be dense", data.name);
            self.report.check(data.is_dense(), "extern-layout", message);
        }
        routine.writes.iter().for_each(|&buf| self.fill(buf));
        self.touched(name, routine);
    }

    /// A copy moves bytes: both buffers have one type and layout, and their elements lie side by side.
    fn copy(&mut self, name: &str, from: Buf, to: Buf) {
        self.fill(to);
        let Some((from, to)) = self.loops.bufs.get(from).zip(self.loops.bufs.get(to)) else { return };
        let is_like = (from.dtype, &from.sizes, &from.strides) == (to.dtype, &to.sizes, &to.strides);
        let message = format_args!("{name}: expected `{}` and `{}` to be of one type", from.name, to.name);
        self.report.check(is_like, "type-mismatch", message);
        let message = format_args!("{name}: expected `{}` to be dense", from.name);
        self.report.check(from.is_dense(), "extern-layout", message);
    }

    /// What the host reads is inside of its buffers, and what it writes is apart from all else that it is given.
    fn host_call(&mut self, name: &str, call: &HostCall) {
        let mut touched: Vec<(Buf, Option<&View>, bool)> =
            call.results.iter().filter_map(CallResult::written).map(|&buf| (buf, None, true)).collect();
        for arg in &call.args {
            arg.each_tensor(&mut |view, is_written| touched.push((view.buf, Some(view), is_written)));
        }
        for view in touched.iter().filter_map(|(_, view, _)| *view) {
            self.report.shape(&view.sizes, &view.strides, name);
            self.view(name, (view.buf, &view.sizes, &view.strides, view.offset));
        }
        let facts = &self.loops.facts;
        let is_shared = |buf: Buf, view: Option<&View>| view.is_some() && call.sharing.contains(&buf);
        for (at, &(buf, view, is_written)) in touched.iter().enumerate() {
            let is_alone = touched.iter().enumerate().all(|(other, &(same, part, _))| {
                let is_apart = || view.zip(part).is_some_and(|(view, part)| view.is_apart(part, facts));
                let is_shared = || is_shared(buf, view) && is_shared(buf, part);
                other == at || same != buf || is_apart() || is_shared()
            });
            let message = format!("{name}: `{}` is written and mentioned again", self::name(self.loops, buf));
            self.report.check(!is_written || is_alone, "written-argument", message);
        }
        for &buf in &call.sharing {
            let is_given = touched.iter().any(|&(other, view, _)| other == buf && view.is_some());
            let message = format!(
                "{name}: no argument is a part of `{}`, which it shares",
                self::name(self.loops, buf)
            );
            self.report.check(is_given, "shared-argument", message);
        }
        for result in &call.results {
            let (CallResult::Whole(buf) | CallResult::Sizes(buf, _)) = result else { continue };
            self.fill(*buf);
            let Some(data) = self.loops.bufs.get(*buf) else { continue };
            let is_vector = data.dtype == Dtype::I64
                && data.sizes.len() == 1
                && data.is_dense()
                && data.elements().as_int().is_some_and(|elements| elements >= 1);
            let message = format_args!(
                "{name}: expected a vector of 64-bit integers for sizes, `{}` is none",
                data.name
            );
            self.report.check(is_vector || matches!(result, CallResult::Whole(_)), "size-operand", message);
        }
    }

    /// Notes that all elements of a buffer are written.
    fn fill(&mut self, buf: Buf) {
        if let Some(points) = self.points.get_mut(buf.index()) {
            *points = Points::All;
        }
    }

    /// The nests in order, as they run for the first point of the axis.
    fn region(&mut self, region: &Recurrence) {
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
        self.idle_points(region);
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

    /// Iterations are idle as a whole: each repeated nest says where, or none, and where one is later ones are.
    fn idle_points(&mut self, region: &Recurrence) {
        let has_idle = region.nests.iter().any(|nest| nest.idle.is_some());
        for nest in region.nests.iter().filter(|_| has_idle) {
            let message = match region.repeats(nest) {
                true => {
                    format!("{}: expected idle points, as other nests of `{}` have", nest.name, region.name)
                }
                false => format!("{}: idle points of a nest that nothing repeats", nest.name),
            };
            self.report.check(nest.idle.is_some() == region.repeats(nest), "region-idle", message);
            let Some(idle) = nest.idle else { continue };
            let facts = nest.facts(&self.loops.facts);
            let over = region.over.var;
            let later = |e: Expr| e.replace(over, Expr::sym(over) + 1);
            let grows = Rel::le(later(idle.lhs) - idle.lhs, later(idle.rhs) - idle.rhs);
            let is_bound = matches!(idle.cmp, Cmp::Lt | Cmp::Le) && facts.holds(&grows);
            let is_outer =
                [idle.lhs, idle.rhs].iter().all(|e| nest.reduced.iter().all(|axis| !e.has_sym(axis.var)));
            let message = format_args!("{}: {idle} may fail later along {over}", nest.name);
            self.report.check(is_bound && is_outer, "region-idle", message);
        }
    }

    fn update(&mut self, target: Buf, source: Buf) {
        self.read(source, "update");
        let (Some(target), Some(source)) = (self.loops.bufs.get(target), self.loops.bufs.get(source)) else {
            return;
        };
        let message = format_args!("update of `{}`: expected an input or a constant", target.name);
        self.report.check(target.kind != BufKind::Temp, "update-target", message);
        let message =
            format_args!("update of `{}`: `{}` has another type or layout", target.name, source.name);
        self.report.check(target.ty() == source.ty(), "update-type", message);
    }

    fn output(&mut self, output: &Output) {
        match output {
            Output::View { buf, sizes, strides, offset } => {
                self.read(*buf, "return");
                self.report.shape(sizes, strides, "return");
                self.report.expr(*offset, "return");
                self.view("return", (*buf, sizes, strides, *offset));
            }
            Output::Number(buf) => {
                self.read(*buf, "return");
                let Some(data) = self.loops.bufs.get(*buf) else { return };
                let message =
                    format_args!("return of `{}`: expected a number, found {}", data.name, data.ty());
                self.report.check(data.sizes.is_empty(), "number-type", message);
            }
            Output::Int(value) => self.report.expr(*value, "return"),
            Output::Literal(_) | Output::Text(_) | Output::Nothing => {}
        }
    }
}

fn name(loops: &Loops, buf: Buf) -> &str {
    loops.bufs.get(buf).map_or("?", |data| &data.name)
}
