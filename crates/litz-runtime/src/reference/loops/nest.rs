//! Walks a nest: its body at every reduced point, then what follows the reductions, for one outer point after another.

use std::collections::HashMap;

use litz_ir::dtype::Kind;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, BindOf, Buf, Inst, InstOp, Loops, Nest, Val};
use litz_ir::{Dtype, ReduceOp, ScalarOp};
use litz_sym::{Expr, Rel, Sym};

use super::doubt::{self, Doubted, Rivals, Running};
use super::{Fault, Memory, bug};
use crate::error::RunError;
use crate::formula::{Formula, Relation, all_hold};
use crate::number::{Bits, Number, cast};
use crate::reference::run::is_better;
use crate::reference::scalar::{ScalarFn, function, operation};

/// A nest, resolved: symbols and values are positions.
pub(super) struct Walk<'a> {
    loops: &'a Loops,
    nest: &'a Nest,
    axes: Vec<Bounds>,
    reduced: Vec<Bounds>,
    body: Vec<Node>,
    /// Values of size symbols, axes and bound symbols, in this order.
    symbols: Vec<i64>,
    values: Vec<Bits>,
    /// How far right values may be from these.
    doubts: Vec<f64>,
    /// Whether a position was used that is in doubt: nothing is certain any more.
    pub(super) is_lost: bool,
    /// Running values of scans, by instruction and the coordinates along the other axes that it depends on.
    running: HashMap<(usize, Vec<i64>), (Bits, Running)>,
    totals: Vec<Total>,
}

/// An axis: where its variable is, and how many points it has.
struct Bounds {
    var: usize,
    extent: Formula,
}

/// What a reduction has come to.
#[derive(Clone, Copy)]
struct Total {
    bits: Bits,
    running: Running,
    /// Of an arg reduction, where, and what else could be there.
    found: Option<(i64, Rivals)>,
}

struct Node {
    ty: Dtype,
    when: When,
    inst: PreparedInst,
}

/// When an instruction runs, for each outer point.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Once, if the body runs at all.
    Before,
    /// Once, even where the reduced axes have no points: what follows the reductions needs it.
    Always,
    /// At every reduced point.
    Inside,
    /// Once, when the reductions are done.
    After,
}

/// An instruction whose operands are positions and whose expressions are formulas.
enum PreparedInst {
    Load {
        buf: usize,
        dtype: Dtype,
        index: Vec<Formula>,
        guard: Vec<Relation>,
        other: Bits,
    },
    Const(Bits),
    Index(Formula),
    Cond(Relation),
    Call {
        op: ScalarOp,
        dtype: Dtype,
        function: ScalarFn,
        args: [usize; 3],
        count: usize,
    },
    Cast {
        from: Dtype,
        value: usize,
    },
    Copy {
        from: Dtype,
        value: usize,
    },
    Bind {
        sym: usize,
        value: usize,
        extent: Formula,
        of: BindOf,
    },
    Reduce(Combination),
    ArgReduce {
        max: bool,
        from: Dtype,
        value: usize,
    },
    Scan {
        combination: Combination,
        axis: usize,
    },
    Store {
        buf: usize,
        index: Vec<Formula>,
        value: usize,
        combine: Option<(ReduceOp, ScalarFn)>,
        is_computed: bool,
    },
}

/// How values are combined: in the compute type of theirs.
struct Combination {
    op: ReduceOp,
    function: ScalarFn,
    value: usize,
    compute: Dtype,
    identity: Bits,
}

/// Why a walk stops.
enum Stop {
    /// At an element of a buffer.
    Element(usize, Fault),
    /// A failed bind.
    Bind(BindOf),
    /// An index expression overflows or divides by zero.
    NoValue,
    NegativeExtent(i64),
}

impl<'a> Walk<'a> {
    /// Resolves a nest; an error names the rule that it breaks.
    pub(super) fn new(
        loops: &'a Loops,
        sizes: &HashMap<Sym, i64>,
        nest: &'a Nest,
    ) -> Result<Walk<'a>, RunError> {
        let mut cx =
            Context { loops, nest, positions: HashMap::new(), computed: Vec::new(), has_one_place: false };
        let mut symbols = Vec::new();
        for sym in loops.facts.symbols() {
            cx.define(sym)?;
            symbols.push(sizes.get(&sym).copied().unwrap_or_default());
        }
        let extents = |cx: &Context<'_>, axes: &[Axis]| {
            axes.iter().map(|axis| cx.formula(axis.extent)).collect::<Result<Vec<_>, _>>()
        };
        let (outer, inner) = (extents(&cx, &nest.axes)?, extents(&cx, &nest.reduced)?);
        let mut bounds = |axes: &[Axis], extents: Vec<Formula>| {
            let bounds = axes.iter().zip(extents);
            bounds
                .map(|(axis, extent)| Ok(Bounds { var: cx.define(axis.var)?, extent }))
                .collect::<Result<_, RunError>>()
        };
        let (axes, reduced) = (bounds(&nest.axes, outer)?, bounds(&nest.reduced, inner)?);
        let body = cx.body()?;
        symbols.resize(cx.positions.len(), 0);
        let totals = vec![Total { bits: 0, running: Running::default(), found: None }; body.len()];
        let (values, doubts) = (vec![0; body.len()], vec![0.0; body.len()]);
        let (running, is_lost) = (HashMap::new(), false);
        Ok(Walk { loops, nest, axes, reduced, body, symbols, values, doubts, is_lost, running, totals })
    }

    /// Runs all points, or those where the axis `at` names has the value that it gives.
    pub(super) fn run(
        &mut self,
        memories: &mut [Memory],
        run: u32,
        at: Option<(Sym, i64)>,
    ) -> Result<(), RunError> {
        self.points(memories, run, at).map_err(|stop| self.explain(stop))
    }

    fn points(&mut self, memories: &mut [Memory], run: u32, at: Option<(Sym, i64)>) -> Result<(), Stop> {
        let (mut outer, reduced) = (self.ranges(&self.axes)?, self.ranges(&self.reduced)?);
        if let Some((sym, value)) = at {
            let fixed = self.nest.axes.iter().zip(&mut outer).filter(|(axis, _)| axis.var == sym);
            fixed.for_each(|(_, range)| *range = (value, value + 1));
        }
        let has_points = reduced.iter().all(|(first, end)| first < end);
        let mut point = Point::first(&outer);
        while let Some(here) = &mut point {
            self.place(&self.axes.iter().map(|axis| axis.var).collect::<Vec<_>>(), &here.at);
            for (node, total) in self.body.iter().zip(&mut self.totals) {
                if let PreparedInst::Reduce(combination) = &node.inst {
                    (total.bits, total.running) = (combination.identity, Running::default());
                }
                total.found = None;
            }
            self.pass(memories, run, |when| when == When::Always || when == When::Before && has_points)?;
            let vars: Vec<usize> = self.reduced.iter().map(|axis| axis.var).collect();
            let (mut inner, mut position) = (Point::first(&reduced), 0);
            while let Some(there) = &mut inner {
                self.place(&vars, &there.at);
                self.pass(memories, run, |when| when == When::Inside)?;
                self.combine(position);
                position += 1;
                inner = there.next(&reduced);
            }
            self.pass(memories, run, |when| when == When::After)?;
            point = here.next(&outer);
        }
        Ok(())
    }

    fn ranges(&self, axes: &[Bounds]) -> Result<Vec<(i64, i64)>, Stop> {
        let range = |axis: &Bounds| match axis.extent.eval(&self.symbols).ok_or(Stop::NoValue)? {
            extent if extent < 0 => Err(Stop::NegativeExtent(extent)),
            extent => Ok((0, extent)),
        };
        axes.iter().map(range).collect()
    }

    fn place(&mut self, vars: &[usize], point: &[i64]) {
        for (&var, &at) in vars.iter().zip(point) {
            self.symbols[var] = at;
        }
    }

    /// Adds the values of this reduced point to the totals.
    fn combine(&mut self, position: i64) {
        for (node, total) in self.body.iter().zip(&mut self.totals) {
            match &node.inst {
                PreparedInst::Reduce(combination) => {
                    let term = (self.values[combination.value], self.doubts[combination.value]);
                    combination.add(&mut total.bits, &mut total.running, node.ty, term);
                }
                PreparedInst::ArgReduce { max, from, value } => {
                    let (bits, doubt) = (self.values[*value], self.doubts[*value]);
                    let Some((at, rivals)) = &mut total.found else {
                        (total.bits, total.found) = (bits, Some((position, Rivals::none(doubt))));
                        continue;
                    };
                    let is_better = is_better(*max, *from, (bits, position), (total.bits, *at));
                    rivals.meet(*max, *from, total.bits, (bits, doubt), is_better);
                    if is_better {
                        (total.bits, *at) = (bits, position);
                    }
                }
                PreparedInst::Load { .. }
                | PreparedInst::Const(_)
                | PreparedInst::Index(_)
                | PreparedInst::Cond(_)
                | PreparedInst::Call { .. }
                | PreparedInst::Cast { .. }
                | PreparedInst::Copy { .. }
                | PreparedInst::Bind { .. }
                | PreparedInst::Scan { .. }
                | PreparedInst::Store { .. } => {}
            }
        }
    }

    /// Runs, in order, the instructions whose time `is_now`.
    fn pass(&mut self, memories: &mut [Memory], run: u32, is_now: impl Fn(When) -> bool) -> Result<(), Stop> {
        for at in 0..self.body.len() {
            if is_now(self.body[at].when) {
                self.step(at, memories, run)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, at: usize, memories: &mut [Memory], run: u32) -> Result<(), Stop> {
        let node = &self.body[at];
        let doubted = |value: usize| (self.values[value], self.doubts[value]);
        let (bits, doubt) = match &node.inst {
            PreparedInst::Load { buf, dtype, index, guard, other } => {
                if all_hold(guard, &self.symbols).ok_or(Stop::NoValue)? {
                    let place = self.place_of(*buf, index, memories)?;
                    let element = memories[*buf].load(place).map_err(|fault| Stop::Element(*buf, fault))?;
                    (cast(*dtype, node.ty, element.0), element.1)
                } else {
                    (*other, 0.0)
                }
            }
            PreparedInst::Const(bits) => (*bits, 0.0),
            PreparedInst::Index(index) => (Bits::from(self.index(index)? as u64), 0.0),
            PreparedInst::Cond(relation) => {
                (Bits::from(relation.holds(&self.symbols).ok_or(Stop::NoValue)?), 0.0)
            }
            PreparedInst::Call { op, dtype, function, args: [a, b, c], count } => {
                let bits = function(self.values[*a], self.values[*b], self.values[*c]);
                let args = [doubted(*a), doubted(*b), doubted(*c)];
                (bits, doubt::of_operation(*op, *dtype, &args[..*count], (node.ty, bits)))
            }
            PreparedInst::Cast { from, value } => {
                let doubt = doubt::of_cast(*from, node.ty, doubted(*value));
                (cast(*from, node.ty, self.values[*value]), doubt)
            }
            PreparedInst::Copy { from, value } => {
                let (bits, doubt) = doubted(*value);
                // What a small error does to bits is another number.
                (bits, if *from == node.ty || doubt == 0.0 { doubt } else { f64::INFINITY })
            }
            PreparedInst::Bind { sym, value, extent, of } => {
                let ((bits, doubt), extent) = (doubted(*value), self.index(extent)?);
                let mut index = bits as i64;
                if doubt > 0.0 && extent > 0 {
                    self.is_lost = true;
                    index = index.clamp(0, extent - 1);
                }
                if index < 0 || index >= extent {
                    return Err(Stop::Bind(*of));
                }
                self.symbols[*sym] = index;
                (bits, doubt)
            }
            PreparedInst::Reduce(combination) => {
                let total = &self.totals[at];
                combination.total(total.bits, &total.running, node.ty)
            }
            PreparedInst::ArgReduce { max, from, .. } => {
                let total = &self.totals[at];
                total.found.as_ref().map_or((0, 0.0), |(position, rivals)| {
                    (Bits::from(*position as u64), rivals.doubt(*max, *from, total.bits))
                })
            }
            PreparedInst::Scan { combination, axis } => {
                let mut others: Vec<i64> = self.axes.iter().map(|axis| self.symbols[axis.var]).collect();
                others[*axis] = 0;
                if node.when == When::Inside {
                    others.extend(self.reduced.iter().map(|axis| self.symbols[axis.var]));
                }
                let term = doubted(combination.value);
                let first = || (combination.identity, Running::default());
                let (total, running) = self.running.entry((at, others)).or_insert_with(first);
                combination.add(total, running, node.ty, term);
                combination.total(*total, running, node.ty)
            }
            PreparedInst::Store { buf, index, value, combine, is_computed } => {
                let (place, (bits, doubt)) = (self.place_of(*buf, index, memories)?, doubted(*value));
                let stop = |fault| Stop::Element(*buf, fault);
                let memory = &mut memories[*buf];
                let writer = memory.writers[place];
                match combine {
                    // Combining stores of one nest may meet, after a run of another wrote the element.
                    Some((op, combine)) => {
                        let before = memory.load(place).map_err(stop)?;
                        let after = combine(before.0, bits, 0);
                        let doubt = doubt::of_combining_store(*op, node.ty, before, (bits, doubt), after);
                        memory.set(place, (after, doubt), writer);
                    }
                    None if writer == run && !is_computed => return Err(stop(Fault::WrittenTwice { place })),
                    None => memory.set(place, (bits, doubt), run),
                }
                (bits, doubt)
            }
        };
        (self.values[at], self.doubts[at]) = (bits, doubt);
        Ok(())
    }

    /// The place in memory of the element of a buffer with these coordinates.
    fn place_of(&self, buf: usize, index: &[Formula], memories: &[Memory]) -> Result<usize, Stop> {
        index.iter().enumerate().try_fold(0, |place, (dim, formula)| {
            let offset = memories[buf].offset(dim, self.index(formula)?);
            offset.map(|offset| place + offset).map_err(|fault| Stop::Element(buf, fault))
        })
    }

    fn index(&self, formula: &Formula) -> Result<i64, Stop> {
        formula.eval(&self.symbols).ok_or(Stop::NoValue)
    }

    fn explain(&self, stop: Stop) -> RunError {
        let name = &self.nest.name;
        let at = || {
            let axes = self.nest.all_axes().zip(self.axes.iter().chain(&self.reduced));
            let point = axes.map(|(axis, bounds)| format!("{} = {}", axis.var, self.symbols[bounds.var]));
            format!(" (at {})", point.collect::<Vec<_>>().join(", "))
        };
        let what = match stop {
            Stop::Bind(of) => {
                let check = of.failure(&self.nest.from);
                return RunError::BadIndex { kernel: name.clone(), check };
            }
            Stop::Element(buf, fault) => fault.of(&self.loops.bufs[Buf(buf as u32)].name) + &at(),
            Stop::NoValue => "an index expression overflows or divides by zero".to_owned() + &at(),
            Stop::NegativeExtent(extent) => format!("an axis has {extent} points"),
        };
        bug(self.loops, format!("{name}: {what}"))
    }
}

impl Combination {
    /// Adds a term of type `ty`.
    fn add(&self, total: &mut Bits, running: &mut Running, ty: Dtype, term: Doubted) {
        let (before, term) = (*total, (cast(ty, self.compute, term.0), term.1));
        *total = (self.function)(before, term.0, 0);
        running.add(self.op, self.compute, before, term, *total);
    }

    /// The total in type `ty`.
    fn total(&self, total: Bits, running: &Running, ty: Dtype) -> Doubted {
        let doubt = running.doubt(self.op, self.compute, total);
        (cast(self.compute, ty, total), doubt::of_cast(self.compute, ty, (total, doubt)))
    }
}

/// A point of a box.
struct Point {
    at: Vec<i64>,
}

impl Point {
    /// The first one, if there is any.
    fn first(ranges: &[(i64, i64)]) -> Option<Point> {
        let is_empty = ranges.iter().any(|(first, end)| first >= end);
        (!is_empty).then(|| Point { at: ranges.iter().map(|range| range.0).collect() })
    }

    /// The one after it, row-major.
    fn next(&mut self, ranges: &[(i64, i64)]) -> Option<Point> {
        for (at, &(first, end)) in self.at.iter_mut().zip(ranges).rev() {
            *at += 1;
            if *at < end {
                return Some(Point { at: std::mem::take(&mut self.at) });
            }
            *at = first;
        }
        None
    }
}

struct Context<'a> {
    loops: &'a Loops,
    nest: &'a Nest,
    positions: HashMap<Sym, usize>,
    /// Symbols that the body binds.
    computed: Vec<Sym>,
    /// Whether one of them can only be 0: a position that was computed from it need not mention it.
    has_one_place: bool,
}

impl Context<'_> {
    fn bug(&self, what: impl std::fmt::Display) -> RunError {
        bug(self.loops, format!("{}: {what}", self.nest.name))
    }

    fn define(&mut self, sym: Sym) -> Result<usize, RunError> {
        let next = self.positions.len();
        if self.positions.insert(sym, next).is_some() {
            return Err(self.bug(format!("symbol {sym} is defined twice")));
        }
        Ok(next)
    }

    fn formula(&self, expr: Expr) -> Result<Formula, RunError> {
        let unknown = |sym| self.bug(format!("`{expr}` uses symbol {sym}, which nothing defines"));
        Formula::new(expr, &|sym| self.positions.get(&sym).copied()).map_err(unknown)
    }

    fn formulas(&self, exprs: &[Expr]) -> Result<Vec<Formula>, RunError> {
        exprs.iter().map(|&expr| self.formula(expr)).collect()
    }

    fn relation(&self, rel: &Rel) -> Result<Relation, RunError> {
        let unknown = |sym| self.bug(format!("`{rel}` uses symbol {sym}, which nothing defines"));
        Relation::new(rel, &|sym| self.positions.get(&sym).copied()).map_err(unknown)
    }

    fn body(&mut self) -> Result<Vec<Node>, RunError> {
        let nest = self.nest;
        let mut body: Vec<Node> = Vec::new();
        let after = nest.after_reduce();
        let varies = nest.varying();
        for (at, inst) in nest.body.iter().enumerate() {
            // Without reduced axes there is one pass, in order.
            let when = match (nest.reduced.is_empty(), after[at], varies[at]) {
                (true, ..) => When::Before,
                (false, true, false) => When::After,
                (false, false, true) => When::Inside,
                (false, false, false) => When::Before,
                (false, true, true) => {
                    return Err(self.bug("a reduced value meets one that varies along a reduced axis"));
                }
            };
            let prepared = self.inst(inst, at)?;
            body.push(Node { ty: inst.ty, when, inst: prepared });
        }
        let mut is_needed = vec![false; body.len()];
        for at in (0..body.len()).rev() {
            if body[at].when == When::After || is_needed[at] {
                for needed in self.uses(at) {
                    is_needed[needed] = true;
                }
            }
            if body[at].when == When::Before && is_needed[at] {
                body[at].when = When::Always;
            }
        }
        Ok(body)
    }

    /// Instructions that instruction `at` reads: operands, and those that bind symbols of its indices.
    fn uses(&self, at: usize) -> Vec<usize> {
        let inst = &self.nest.body[at];
        let is_reduction = inst.op.is_reduction();
        let operands = inst.op.operands().into_iter().filter(|_| !is_reduction).map(Val::index);
        let binds = self.nest.body[..at].iter().enumerate().filter_map(|(place, other)| match other.op {
            InstOp::Bind { sym, .. } if inst.op.exprs().iter().any(|e| e.has_sym(sym)) => Some(place),
            _ => None,
        });
        operands.chain(binds).collect()
    }

    fn inst(&mut self, inst: &Inst, at: usize) -> Result<PreparedInst, RunError> {
        let ty = inst.ty;
        Ok(match &inst.op {
            InstOp::Load { buf, index, guard, other } => {
                let dtype = self.buffer(*buf, index)?;
                if ty != dtype && ty != dtype.compute() {
                    return Err(self.bug(format!("a load of {dtype} gives {ty}")));
                }
                PreparedInst::Load {
                    buf: buf.index(),
                    dtype,
                    index: self.formulas(index)?,
                    guard: guard.iter().map(|rel| self.relation(rel)).collect::<Result<_, _>>()?,
                    other: Number::from(*other).encode(ty),
                }
            }
            InstOp::Const(scalar) => PreparedInst::Const(Number::from(*scalar).encode(ty)),
            InstOp::Index(expr) => {
                self.expect(Dtype::I64, ty)?;
                PreparedInst::Index(self.formula(*expr)?)
            }
            InstOp::Cond(rel) => {
                self.expect(Dtype::Bool, ty)?;
                PreparedInst::Cond(self.relation(rel)?)
            }
            InstOp::Op(op, args) => {
                let types = args.iter().map(|&arg| self.ty(arg, at)).collect::<Result<Vec<_>, _>>()?;
                let function = operation(*op, &types, ty).map_err(|what| self.bug(what))?;
                let mut positions = [0; 3];
                positions.iter_mut().zip(args).for_each(|(position, arg)| *position = arg.index());
                let dtype = types[types.len() - 1];
                PreparedInst::Call { op: *op, dtype, function, args: positions, count: args.len() }
            }
            InstOp::Cast(value) => PreparedInst::Cast { from: self.ty(*value, at)?, value: value.index() },
            InstOp::Bitcast(value) => {
                let from = self.ty(*value, at)?;
                if from.size() != ty.size() {
                    return Err(self.bug(format!("bitcast of {from} to {ty}")));
                }
                PreparedInst::Copy { from, value: value.index() }
            }
            InstOp::Bind { sym, value, extent, of } => {
                self.expect(Dtype::I64, self.ty(*value, at)?)?;
                let bounds = self.loops.facts.bounds(*extent);
                let extent = self.formula(*extent)?;
                self.computed.push(*sym);
                self.has_one_place |= bounds.hi <= 1;
                PreparedInst::Bind { sym: self.define(*sym)?, value: value.index(), extent, of: *of }
            }
            InstOp::Reduce(op, value) => {
                self.is_reducing()?;
                PreparedInst::Reduce(self.combination(*op, *value, ty, at)?)
            }
            InstOp::ArgReduce { max, value } => {
                self.is_reducing()?;
                self.expect(Dtype::I64, ty)?;
                let from = self.ty(*value, at)?;
                if from.kind() == Kind::Complex {
                    return Err(self.bug(format!("values of {from} have no order")));
                }
                PreparedInst::ArgReduce { max: *max, from, value: value.index() }
            }
            InstOp::Scan { op, value, axis } => {
                let place = self.nest.axes.iter().position(|outer| outer.var == *axis);
                let axis = place.ok_or_else(|| self.bug(format!("{axis} is no outer axis")))?;
                PreparedInst::Scan { combination: self.combination(*op, *value, ty, at)?, axis }
            }
            InstOp::Store { buf, index, value, combine } => {
                let dtype = self.buffer(*buf, index)?;
                self.expect(dtype, ty)?;
                self.expect(dtype, self.ty(*value, at)?)?;
                let combine = combine.map(|op| Ok::<_, RunError>((op, self.function(op.combine(), dtype)?)));
                let combine = combine.transpose()?;
                let mentions = |sym: Sym| index.iter().any(|at| at.has_sym(sym));
                let is_computed = self.has_one_place || self.computed.iter().any(|&sym| mentions(sym));
                PreparedInst::Store {
                    buf: buf.index(),
                    index: self.formulas(index)?,
                    value: value.index(),
                    combine,
                    is_computed,
                }
            }
        })
    }

    fn combination(&self, op: ReduceOp, value: Val, ty: Dtype, at: usize) -> Result<Combination, RunError> {
        self.expect(ty, self.ty(value, at)?)?;
        let compute = ty.compute();
        let function = self.function(op.combine(), compute)?;
        let identity = Number::from(op.identity(compute)).encode(compute);
        Ok(Combination { op, function, value: value.index(), compute, identity })
    }

    fn is_reducing(&self) -> Result<(), RunError> {
        if self.nest.reduced.is_empty() { Err(self.bug("nothing is reduced")) } else { Ok(()) }
    }

    fn function(&self, op: ScalarOp, dtype: Dtype) -> Result<ScalarFn, RunError> {
        function(op, dtype).ok_or_else(|| self.bug(format!("{} has no meaning for {dtype}", op.name())))
    }

    /// The type of a buffer that is accessed at these coordinates.
    fn buffer(&self, buf: Buf, index: &[Expr]) -> Result<Dtype, RunError> {
        let data = self.loops.bufs.get(buf).ok_or_else(|| self.bug(format!("{buf} is no buffer")))?;
        match (index.len(), data.sizes.len()) {
            (found, rank) if found == rank => Ok(data.dtype),
            (found, rank) => {
                Err(self.bug(format!("{found} coordinates for `{}` of {rank} dimensions", data.name)))
            }
        }
    }

    /// The type of an earlier value.
    fn ty(&self, val: Val, at: usize) -> Result<Dtype, RunError> {
        let earlier = self.nest.body[..at].get(val.index()).filter(|inst| inst.op.has_result());
        earlier.map(|inst| inst.ty).ok_or_else(|| self.bug(format!("{val} is no earlier value")))
    }

    fn expect(&self, expected: Dtype, found: Dtype) -> Result<(), RunError> {
        if expected == found { Ok(()) } else { Err(self.bug(format!("expected {expected}, found {found}"))) }
    }
}
