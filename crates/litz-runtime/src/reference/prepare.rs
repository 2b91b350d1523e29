//! Prepares a kernel for interpretation: symbols, memories and operations are resolved and types are checked.

use std::collections::{HashMap, HashSet};

use litz_ir::kernel::{
    self, Act, BoxCopy, Dot, Element, Fragment, Kernel, KernelLoopKind, LaneReduction, MatrixProduct, Mem,
    MemorySpace, Op, Ring, Rows, Stmt, Sync, Val,
};
use litz_ir::target::{Instruction, Level, Side};
use litz_ir::{Dtype, ReduceOp, ScalarOp};
use litz_sym::{Expr, Rel, Sym};

use super::code::{Code, ElementRef, Lane, Lanes, Memory, Node, Operand, Seen, meeting};
use super::fragments::{LoadOfFragment, OperandRows, OwnFragment, ProductOfFragments, ProductOperand};
use super::scalar::{ScalarFn, function, operation};
use super::threads::threads_of;
use crate::error::RunError;
use crate::formula::{Formula, Relation};
use crate::number::Number;

/// Resolves a kernel; an error names the rule that it breaks.
pub(super) fn prepare(kernel: &Kernel) -> Result<Code, RunError> {
    let mut cx = Context {
        kernel,
        symbols: HashMap::new(),
        bound: HashSet::new(),
        has_levels: false,
        has_blocks: false,
        has_clusters: false,
        needs_units: false,
        levels: Vec::new(),
        sides: 0,
    };
    for &sym in &kernel.sizes {
        cx.define(sym);
    }
    let mems = kernel.mems.values().map(|mem| {
        let is_read_only = mem.space.is_only_read();
        let seen = match mem.space {
            MemorySpace::Shared => Seen::Block,
            space if space.is_shared() => Seen::All,
            _ => Seen::One,
        };
        let seen = (!is_read_only).then_some(seen);
        let extent = cx.formula(mem.span())?;
        let swizzle = mem.swizzle;
        Ok(Memory {
            name: mem.name.clone(),
            extent,
            dtype: mem.dtype,
            space: mem.space,
            is_read_only,
            seen,
            swizzle,
        })
    });
    let mems = mems.collect::<Result<Vec<_>, RunError>>()?;
    let mut grid = Vec::new();
    for axis in &kernel.grid {
        let extent = cx.formula(axis.extent)?;
        grid.push((cx.define(axis.var), extent));
    }
    let body = cx.block(&kernel.body)?;
    Ok(Code {
        grid,
        body,
        mems,
        params: kernel.params,
        symbols: cx.symbols.len(),
        sizes: kernel.sizes.len(),
        values: kernel.vals.len(),
        has_levels: cx.has_levels,
        has_blocks: cx.has_blocks,
        has_clusters: cx.has_clusters || kernel.mems.values().any(|mem| mem.space == MemorySpace::Cluster),
        has_own: kernel.mems.values().any(|mem| mem.space == MemorySpace::Own),
        rings: kernel.rings.clone(),
        needs_units: cx.needs_units,
    })
}

struct Context<'a> {
    kernel: &'a Kernel,
    symbols: HashMap<Sym, usize>,
    /// Those that values are bound to.
    bound: HashSet<Sym>,
    has_levels: bool,
    has_blocks: bool,
    has_clusters: bool,
    needs_units: bool,
    /// The loops over levels around, and how many of an instruction.
    levels: Vec<Level>,
    sides: usize,
}

impl Context<'_> {
    fn bug(&self, what: impl Into<String>) -> RunError {
        RunError::bug(format!("kernel @{}", self.kernel.name), what)
    }

    /// A symbol keeps its position where sibling loops define it again.
    fn define(&mut self, sym: Sym) -> usize {
        let next = self.symbols.len();
        *self.symbols.entry(sym).or_insert(next)
    }

    fn formula(&self, expr: Expr) -> Result<Formula, RunError> {
        let unknown = |sym| self.bug(format!("`{expr}` uses symbol {sym}, which nothing defines"));
        Formula::new(expr, &|sym| self.symbols.get(&sym).copied()).map_err(unknown)
    }

    fn relation(&self, rel: &Rel) -> Result<Relation, RunError> {
        let unknown = |sym| self.bug(format!("`{rel}` uses symbol {sym}, which nothing defines"));
        Relation::new(rel, &|sym| self.symbols.get(&sym).copied()).map_err(unknown)
    }

    fn relations(&self, rels: &[Rel]) -> Result<Vec<Relation>, RunError> {
        rels.iter().map(|rel| self.relation(rel)).collect()
    }

    /// There is a ring of that number, which no order of threads will do for.
    fn ring(&mut self, ring: Ring) -> Result<(), RunError> {
        self.needs_units = true;
        self.kernel.rings.get(ring).map_or_else(|| Err(self.bug(format!("there is no {ring}"))), |_| Ok(()))
    }

    fn block(&mut self, stmts: &[Stmt]) -> Result<Vec<Node>, RunError> {
        stmts.iter().map(|stmt| self.stmt(stmt)).collect()
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Node, RunError> {
        Ok(match stmt {
            Stmt::Loop(inner) => {
                let extent = self.formula(inner.extent)?;
                let var = self.define(inner.var);
                let lane = self.lane(inner.kind);
                let (levels, side) = (self.levels.len(), self.sides);
                self.levels.extend(inner.kind.level());
                self.sides += usize::from(matches!(inner.kind, KernelLoopKind::Mma { .. }));
                let body = self.block(&inner.body)?;
                self.levels.truncate(levels);
                self.sides = side;
                let waits = body.iter().any(Node::waits);
                if let Some(team) = inner.kind.team() {
                    self.has_levels = true;
                    self.has_blocks |= team.level == Level::Block;
                    return Ok(Node::Level { team, var, extent, body, waits });
                }
                match inner.kind {
                    KernelLoopKind::Mma { .. } if levels > 0 => Node::Instruction { side, var, extent, body },
                    KernelLoopKind::For
                    | KernelLoopKind::Unroll
                    | KernelLoopKind::Vector { .. }
                    | KernelLoopKind::Level(_)
                    | KernelLoopKind::Chain
                    | KernelLoopKind::Pipeline { .. }
                    | KernelLoopKind::Search
                    | KernelLoopKind::Mma { .. } => {
                        Node::Loop { var, lane, width: width(inner.kind), extent, body, waits }
                    }
                }
            }
            Stmt::If { cond, then, other } => {
                let cond = self.relations(cond)?;
                let (then, other) = (self.block(then)?, self.block(other)?);
                let waits = then.iter().chain(&other).any(Node::waits);
                Node::If { cond, then, other, waits }
            }
            Stmt::Act(Act::Sync(Sync::Acquire { ring, filling, buffer })) => {
                self.ring(*ring)?;
                Node::Acquire { ring: *ring, filling: *filling, symbol: self.define(*buffer) }
            }
            Stmt::Act(Act::Sync(Sync::Release { ring, filling })) => {
                self.ring(*ring)?;
                Node::Release { ring: *ring, filling: *filling }
            }
            Stmt::Act(Act::Sync(sync @ Sync::Warps(_))) => {
                self.needs_units = true;
                Node::Sync(*sync)
            }
            Stmt::Act(Act::Sync(sync)) => {
                let own = self.levels.last().map_or(u32::MAX, |&level| threads_of(level));
                self.has_clusters |= *sync == Sync::Cluster;
                self.needs_units |= meeting(*sync).is_some_and(|level| own < threads_of(level));
                Node::Sync(*sync)
            }
            Stmt::Act(Act::Let { val, op }) => self.op(*val, op)?,
            Stmt::Act(Act::Bind { sym, value, extent, check }) => {
                self.expect_type(*value, Dtype::I64)?;
                if self.kernel.checks.get(*check as usize).is_none() {
                    return Err(self.bug(format!("bind of {sym} has no message {check}")));
                }
                let extent = self.formula(*extent)?;
                self.bound.insert(*sym);
                Node::Bind { sym: self.define(*sym), value: self.value(*value)?, extent, check: *check }
            }
            Stmt::Act(Act::Store { mem, index, value, combine, guard, atomic }) => {
                let ty = self.ty(*value)?;
                let combine = combine.map(|reduce| self.function(reduce.combine(), ty)).transpose()?;
                let guard = self.relations(guard)?;
                Node::Store {
                    place: self.written(*mem, index)?,
                    value: self.value(*value)?,
                    ty,
                    combine,
                    guard,
                    atomic: *atomic,
                }
            }
            Stmt::Act(Act::MulAdd { mem, index, factors: [a, b], guard }) => {
                let ty = self.ty(*a)?;
                self.expect_type(*b, ty)?;
                Node::MulAdd {
                    place: self.written(*mem, index)?,
                    factors: [self.value(*a)?, self.value(*b)?],
                    ty,
                    function: self.function(ScalarOp::Fma, ty)?,
                    guard: self.relations(guard)?,
                }
            }
            Stmt::Act(Act::ArgStore { max, best, at, index, value, position }) => {
                let ty = self.ty(*value)?;
                if ty.kind() == litz_ir::dtype::Kind::Complex {
                    return Err(self.bug(format!("arg store compares values of {ty}")));
                }
                let at = self.written(*at, index)?;
                if at.dtype != Dtype::I64 {
                    return Err(self.bug(format!("arg store keeps positions as {}", at.dtype)));
                }
                let best = self.written(*best, index)?;
                let (value, position) = (self.value(*value)?, self.formula(*position)?);
                Node::ArgStore { max: *max, best, at: at.mem, value, ty, position }
            }
            Stmt::Act(Act::Lanes(reduction)) => Node::Lanes(self.lanes(reduction)?),
            Stmt::Act(Act::Dot(Dot { by, mem, index, terms })) => Node::Products {
                sum: self.sum(by, *mem, index)?,
                terms: terms.iter().map(|[a, b]| Ok([self.operand(a)?, self.operand(b)?])).collect::<Result<
                    _,
                    RunError,
                >>(
                )?,
                function: self.function(ScalarOp::Fma, by.sums)?,
            },
            Stmt::Act(Act::MatrixProduct(product)) => self.matrix_product(product)?,
            Stmt::Act(Act::FragmentLoad(load)) => {
                let into = self.fragment((load.side, &load.into), (load.by, load.by.columns))?;
                Node::LoadFragment(LoadOfFragment { into, rows: self.operand_rows((load.side, &load.rows))? })
            }
            Stmt::Act(Act::FragmentProduct(product)) => {
                let of = (product.by, product.columns);
                let sum = self.fragment((Side::Sums, &product.sum), of)?;
                let left = self.product_operand((Side::Left, &product.left), of)?;
                let right = self.product_operand((Side::Right, &product.right), of)?;
                let product = ProductOfFragments::new(product, sum, [left, right]);
                Node::MultiplyFragments(product.ok_or_else(|| self.bug("products that have no sums"))?)
            }
            Stmt::Act(Act::Copy { count, from, along: _, to, is_async }) => {
                let (width, count) = (*count, Expr::int(i64::from(*count)));
                let (element, extent) = (Sym::new("copy.element"), self.formula(count)?);
                let var = self.define(element);
                let run = |run: &Element| -> Vec<Expr> {
                    run.index.iter().map(|&at| at * count + Expr::sym(element)).collect()
                };
                let from =
                    Operand { place: self.place(from.mem, &run(from))?, guard: self.relations(&from.guard)? };
                let (to, kept) = (self.written(to.mem, &run(to))?, self.relations(&to.guard)?);
                if from.place.dtype != to.dtype {
                    return Err(self.bug(format!("copy of {} to {}", from.place.dtype, to.dtype)));
                }
                Node::Loop {
                    var,
                    lane: None,
                    width: width.max(1),
                    extent,
                    body: vec![Node::Move { from, to, kept, is_async: *is_async }],
                    waits: false,
                }
            }
            Stmt::Act(Act::BoxCopy(copy)) => self.box_copy(copy)?,
            Stmt::Act(Act::Prefetch { mem, index, ahead: _, guard }) => {
                Node::Prefetch { index: self.place(*mem, index)?.index, guard: self.relations(guard)? }
            }
        })
    }

    /// The loops over the elements of a box.
    fn box_copy(&mut self, copy: &BoxCopy) -> Result<Node, RunError> {
        let axes = copy.axes();
        let vars: Vec<usize> = axes.iter().map(|axis| self.define(axis.var)).collect();
        let (outside, guard) = copy.outside(&axes);
        let from = Operand { place: self.place(copy.from, &[outside])?, guard: self.relations(&guard)? };
        let to = self.written(copy.to, &[copy.inside(&axes)])?;
        if from.place.dtype != to.dtype {
            return Err(self.bug(format!("box of {} to {}", from.place.dtype, to.dtype)));
        }
        let mut node = Node::Move { from, to, kept: Vec::new(), is_async: true };
        for (axis, var) in axes.iter().zip(vars).rev() {
            let extent = self.formula(axis.extent)?;
            node = Node::Loop { var, lane: None, width: 1, extent, body: vec![node], waits: false };
        }
        Ok(node)
    }

    /// What the variable for the lane of a vector loop is.
    fn lane(&mut self, kind: KernelLoopKind) -> Option<Lane> {
        match kind {
            KernelLoopKind::Vector { lanes, copies, lane: Some(lane), .. } => {
                let round = i64::from(lanes) * i64::from(copies);
                Some(Lane { var: self.define(lane), lanes: i64::from(lanes.max(1)), round: round.max(1) })
            }
            KernelLoopKind::For
            | KernelLoopKind::Unroll
            | KernelLoopKind::Vector { .. }
            | KernelLoopKind::Level(_)
            | KernelLoopKind::Chain
            | KernelLoopKind::Pipeline { .. }
            | KernelLoopKind::Search
            | KernelLoopKind::Mma { .. } => None,
        }
    }

    fn lanes(&self, reduction: &LaneReduction) -> Result<Lanes, RunError> {
        let LaneReduction { op, into, from, positions, index, first, lanes, copies, atomic } = reduction;
        if *lanes == 0 || *copies == 0 {
            return Err(self.bug("no lanes to combine"));
        }
        let (into, from) = (self.written(*into, index)?, self.place(*from, first)?);
        let ty = from.dtype;
        let positions = match positions {
            None => None,
            Some([at, places]) => Some([self.written(*at, index)?.mem, self.place(*places, first)?.mem]),
        };
        Ok(Lanes {
            into,
            from,
            positions,
            ty,
            lanes: *lanes as usize,
            copies: *copies as usize,
            combine: self.function(op.combine(), ty)?,
            max: *op == ReduceOp::Max,
            atomic: *atomic,
        })
    }

    /// The loops that a product of matrices stands for.
    fn matrix_product(&mut self, product: &MatrixProduct) -> Result<Node, RunError> {
        let group = i64::from(product.by.group);
        let [row, column, at, element] =
            ["matrix.row", "matrix.column", "matrix.group", "matrix.element"].map(Sym::new);
        let sides = [(row, product.rows), (column, product.columns)];
        let depth = [(at, Expr::int(i64::from(product.depth) / group)), (element, Expr::int(group))];
        let sums = product.over.iter().map(|axis| (axis.var, axis.extent)).chain(depth);
        let repeated: Vec<(usize, Formula)> = sides
            .into_iter()
            .chain(sums)
            .map(|(var, extent)| Ok((self.define(var), self.formula(extent)?)))
            .collect::<Result<_, RunError>>()?;
        let places = product.places(Expr::sym(row), Expr::sym(column), Expr::sym(at), Expr::sym(element));
        let [sum, left, right] = places.map(|place| [place]);
        let whole = |place: ElementRef| Operand { place, guard: Vec::new() };
        let left = whole(self.place(product.left.mem, &left)?);
        let terms = vec![[left, whole(self.place(product.right.mem, &right)?)]];
        let function = self.function(ScalarOp::Fma, product.by.sums)?;
        let place = self.sum(product.by, product.sum.mem, &sum)?;
        let mut body = vec![Node::Products { sum: place, terms, function }];
        for (at, (var, extent)) in repeated.into_iter().enumerate().rev() {
            body = vec![Node::Loop { var, lane: None, width: 1, extent, body, waits: false }];
            if at == sides.len() && product.is_from_zero {
                let place = self.sum(product.by, product.sum.mem, &sum)?;
                body.insert(0, Node::Zero { place });
            }
        }
        Ok(body.remove(0))
    }

    fn fragment(
        &self,
        (side, fragment): (Side, &Fragment),
        (by, columns): (&Instruction, u32),
    ) -> Result<OwnFragment, RunError> {
        let place = self.written(fragment.mem, &[fragment.first])?;
        let own = OwnFragment::new((side, fragment), (by, columns.into()), place.dtype, place.index);
        own.ok_or_else(|| self.bug("a fragment at distances that are no numbers"))
    }

    fn product_operand(
        &mut self,
        (side, operand): (Side, &kernel::Operand),
        of: (&Instruction, u32),
    ) -> Result<ProductOperand, RunError> {
        Ok(match operand {
            kernel::Operand::Own(own) => ProductOperand::Own(self.fragment((side, own), of)?),
            kernel::Operand::Rows(rows) => ProductOperand::Rows(self.operand_rows((side, rows))?),
        })
    }

    fn operand_rows(&mut self, (side, rows): (Side, &Rows)) -> Result<OperandRows, RunError> {
        let row = self.define(rows.row);
        let place = self.place(rows.mem, &[rows.first])?;
        let (mem, dtype, first, is_transposed) = (place.mem, place.dtype, place.index, rows.is_transposed);
        let panels = rows.panels.as_ref().map(|panels| {
            let step = panels.step.as_int();
            step.map(|step| [panels.columns.into(), step])
                .ok_or_else(|| self.bug("panels at no known distance"))
        });
        Ok(OperandRows { mem, dtype, row, first, is_transposed, panels: panels.transpose()?, side })
    }

    /// An element that an instruction adds products to.
    fn sum(&self, by: &Instruction, mem: Mem, index: &[Expr]) -> Result<ElementRef, RunError> {
        let place = self.written(mem, index)?;
        if place.dtype != by.sums {
            return Err(self.bug(format!("products are added up as {}", place.dtype)));
        }
        Ok(place)
    }

    fn operand(&self, Element { mem, index, guard }: &Element) -> Result<Operand, RunError> {
        Ok(Operand { place: self.place(*mem, index)?, guard: self.relations(guard)? })
    }

    fn op(&mut self, target: Val, op: &Op) -> Result<Node, RunError> {
        let (val, ty) = (self.value(target)?, self.ty(target)?);
        Ok(match op {
            Op::Load { mem, index, guard, other } => {
                let guard = self.relations(guard)?;
                let other = Number::from(*other).encode(ty);
                Node::Load { val, ty, place: self.place(*mem, index)?, guard, other }
            }
            Op::Transposed { mem, index, along: _ } => {
                Node::Load { val, ty, place: self.place(*mem, index)?, guard: Vec::new(), other: 0 }
            }
            Op::Lookup { mem, first, count, by } => {
                self.expect_type(*by, Dtype::I32)?;
                let place = self.place(*mem, first)?;
                self.expect_type(target, place.dtype)?;
                if !count.is_power_of_two() {
                    return Err(self.bug(format!("table of {count} elements")));
                }
                Node::Lookup { val, place, count: *count, by: self.value(*by)? }
            }
            Op::Const(scalar) => Node::Const { val, bits: Number::from(*scalar).encode(ty) },
            Op::Index(expr) => {
                self.expect_type(target, Dtype::I64)?;
                Node::Index { val, index: self.formula(*expr)? }
            }
            Op::Cond(rel) => {
                self.expect_type(target, Dtype::Bool)?;
                Node::Cond { val, relation: self.relation(rel)? }
            }
            Op::Call(op, args) => self.call(target, *op, args)?,
            Op::Cast(arg) => Node::Cast { val, arg: self.value(*arg)?, types: vec![self.ty(*arg)?, ty] },
            Op::Round(to, arg) => {
                Node::Cast { val, arg: self.value(*arg)?, types: vec![self.ty(*arg)?, *to, ty] }
            }
            Op::Bitcast(arg) => {
                let from = self.ty(*arg)?;
                if from.size() != ty.size() {
                    return Err(self.bug(format!("bitcast of {from} to {ty}")));
                }
                Node::Copy { val, arg: self.value(*arg)? }
            }
        })
    }

    fn call(&self, target: Val, op: ScalarOp, args: &[Val]) -> Result<Node, RunError> {
        let types = args.iter().map(|&arg| self.ty(arg)).collect::<Result<Vec<_>, _>>()?;
        let function = operation(op, &types, self.ty(target)?).map_err(|what| self.bug(what))?;
        let mut positions = [0; 3];
        for (position, &arg) in positions.iter_mut().zip(args) {
            *position = self.value(arg)?;
        }
        Ok(Node::Call { val: self.value(target)?, function, args: positions })
    }

    fn function(&self, op: ScalarOp, dtype: Dtype) -> Result<ScalarFn, RunError> {
        function(op, dtype).ok_or_else(|| self.bug(format!("{} has no meaning for {dtype}", op.name())))
    }

    fn place(&self, mem: Mem, index: &[Expr]) -> Result<ElementRef, RunError> {
        let data = self.kernel.mems.get(mem).ok_or_else(|| self.bug(format!("no memory {mem}")))?;
        let rank = data.sizes.len();
        if index.len() != rank || data.strides.len() != rank {
            let (name, found) = (&data.name, index.len());
            return Err(self.bug(format!("{found} coordinates for memory {name} of {rank} dimensions")));
        }
        let mut coordinates = Vec::new();
        if !data.is_flat() {
            for (&at, &size) in index.iter().zip(&data.sizes) {
                coordinates.push((self.formula(at)?, self.formula(size)?));
            }
        }
        let position = self.formula(data.place(index))?;
        let is_chosen = index.iter().any(|at| self.bound.iter().any(|&sym| at.has_sym(sym)));
        Ok(ElementRef { mem: mem.0 as usize, index: position, coordinates, dtype: data.dtype, is_chosen })
    }

    fn written(&self, mem: Mem, index: &[Expr]) -> Result<ElementRef, RunError> {
        let place = self.place(mem, index)?;
        if self.kernel.mems[mem].space.is_only_read() {
            return Err(self.bug(format!("store to {}, which is only read", self.kernel.mems[mem].name)));
        }
        Ok(place)
    }

    fn value(&self, val: Val) -> Result<usize, RunError> {
        self.ty(val).map(|_| val.0 as usize)
    }

    fn ty(&self, val: Val) -> Result<Dtype, RunError> {
        self.kernel.vals.get(val).copied().ok_or_else(|| self.bug(format!("no value {val}")))
    }

    fn expect_type(&self, val: Val, expected: Dtype) -> Result<(), RunError> {
        match self.ty(val)? {
            found if found == expected => Ok(()),
            found => Err(self.bug(format!("expected {val} to be {expected}, found {found}"))),
        }
    }
}

/// So many iterations of a loop are one act of a thread.
fn width(kind: KernelLoopKind) -> u32 {
    match kind {
        KernelLoopKind::Vector { lanes, .. } => lanes.max(1),
        KernelLoopKind::For
        | KernelLoopKind::Unroll
        | KernelLoopKind::Level(_)
        | KernelLoopKind::Chain
        | KernelLoopKind::Pipeline { .. }
        | KernelLoopKind::Search
        | KernelLoopKind::Mma { .. } => 1,
    }
}
