//! Spreads what the threads of a GPU hold together over the threads: matrix instructions load and multiply fragments, and each thread has
//! registers of its own.
//!
//! ```text
//! register acc: f32[128]                        own acc: f32[4]
//! warp w in 1 {                                 own acc_left: bf16[8]
//!   mma mi in 16 {                              own acc_right: bf16[4]
//!     mma mj in 8 {                             warp w in 1 {
//!       mma mk in 16 {                  =>        acc_left[0 step 4, 2, 1] left of mma.m16n8k16.bf16= x[32*n] rows n
//!         %0 = load x[32*mi + mk]                 acc_right[0 step 2, 0, 1] right of mma.m16n8k16.bf16= y[32*n] rows n
//!         %1 = load y[32*mj + mk]                 acc[0 step 0, 2, 1] mma.m16n8k16.bf16= fragments acc_left[..] by ..
//!         %2 = mul %0, %1                         lane l in 32 { unroll r in 2 { vector c in 2 by 2 { z[..] = acc[c + 2*r] } } }
//!         acc[8*mi + mj] sum= %2                }
//! ..
//! ```
//!
//! An operand that lies in rows of 16 bytes in shared memory is loaded by all lanes together, and one that threads hold as instructions take it is not
//! loaded. Of any other one each lane computes its own
//! elements, whatever that takes: guards, memory that others see, values that are computed first. Operands are loaded ahead of the written-out loops that
//! repeat them: those of `n` rows and `m` columns of instructions once each, not `n*m` times. Of a kernel with products, accesses that nobody
//! proves to be inside are checked once more.
//!
//! The instruction of a warpgroup reads its right operand in shared memory itself, and its left one where that lies in such rows. It goes on in the
//! background, so that `wait products` stands behind those of a loop.
//!
//! Points past the ends of rows and columns are multiplied as well, into sums that nobody reads. Those past the end of the reduced points
//! would be added to what counts, so that one of two factors that are guarded there is zero, and the other one, too, since it may hold
//! what is no number.

mod operand;
mod own;

use super::{Pass, checked};
use litz_ir::kernel::{
    Act, Fragment, FragmentProduct, Kernel, KernelLoopKind, Loop, Mem, MemData, MemorySpace, Op, Operand,
    Part, Stmt, Sync, Touch, Val, position, visit, visit_mut,
};
use litz_ir::loops::Axis;
use litz_ir::target::{Gpu, Instruction, Level, Side, Target};
use litz_ir::{Diag, Dtype, ReduceOp, ScalarOp};
use litz_sym::{Expr, Facts, Rel, Sym};
use operand::Source;
use std::collections::{HashMap, HashSet};

/// The pass.
pub const PASS: Pass = Pass { name: "fragments", run };

/// Changes the loops and the memories.
///
/// # Errors
/// `no-instruction`, where the points of `mma` loops fit none, and `no-fragments`, where elements that threads hold together are not spread
/// over them by digits of an index.
fn run(kernel: &mut Kernel, target: &Target) -> Result<(), Diag> {
    let Target::Gpu(gpu) = target else { return Ok(()) };
    let mut facts = kernel.facts.clone();
    kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let body = std::mem::take(&mut kernel.body);
    let around = Around { facts: facts.clone(), level: Level::Block };
    let names = Names::of(kernel, &body);
    let mut products = Products { kernel, gpu, names, is_any: false };
    let body = products.block(body, &around)?;
    let has_products = products.is_any;
    kernel.body = body;
    round_boxes(kernel);
    own::spread(kernel, facts)?;
    // What lanes load they load elsewhere than the loops of an instruction said.
    if has_products { (checked::PASS.run)(kernel, target) } else { Ok(()) }
}

/// Has boxes rounded that are copied for instructions which take the leading bits of their elements, and for nothing else: these leave bits out, and
/// so all numbers would become smaller.
fn round_boxes(kernel: &mut Kernel) {
    let (mut rounded, mut others) = (HashSet::new(), HashSet::new());
    visit(&kernel.body, &mut |stmt| {
        let Stmt::Act(act) = stmt else { return };
        if let Act::FragmentProduct(FragmentProduct { by, left, right, .. }) = act
            && by.rounds
            && by.dtype == Dtype::F32
        {
            let rows = [left, right].into_iter().filter_map(|operand| match operand {
                Operand::Rows(rows) => Some(rows.mem),
                Operand::Own(_) => None,
            });
            rounded.extend(rows);
            return;
        }
        act.each_part(&mut |part| {
            if let Part::Access { touch: Touch::Load, mem, .. } = part {
                others.insert(*mem);
            }
        });
    });
    visit_mut(&mut kernel.body, &mut |stmt| {
        if let Stmt::Act(Act::BoxCopy(copy)) = stmt {
            copy.rounds = rounded.contains(&copy.to) && !others.contains(&copy.to);
        }
    });
}

/// The symbols by which fragments say where the elements of a thread are, until these are spread: the lane of a warp or thread of a warpgroup,
/// pieces along the sum, rows of eight down, and neighbours in a piece.
const PLACES: [&str; 4] = ["fragment.lane", "fragment.along", "fragment.down", "fragment.inner"];

/// What is around statements.
#[derive(Clone)]
struct Around {
    facts: Facts,
    /// The innermost level.
    level: Level,
}

impl Around {
    fn inside(&self, inner: &Loop) -> Around {
        let mut inside = self.clone();
        inside.facts.declare_index(inner.var, inner.extent);
        inside.level = inner.kind.level().unwrap_or(self.level);
        inside
    }
}

struct Products<'a> {
    kernel: &'a mut Kernel,
    gpu: &'a Gpu,
    names: Names,
    /// Whether there is one so far.
    is_any: bool,
}

/// Variables that nothing else in a kernel has. No two of the loops that are made are inside of each other.
struct Names {
    /// Of a row that is loaded.
    row: Sym,
    /// Of a lane, of pieces along the sum, of rows of eight down, and of neighbours in a piece.
    places: [Sym; 4],
    /// Of a warp of a warpgroup.
    warp: Sym,
}

impl Names {
    fn of(kernel: &Kernel, body: &[Stmt]) -> Names {
        let mut taken: HashSet<Sym> = kernel.facts.symbols().collect();
        taken.extend(kernel.grid.iter().map(|axis| axis.var));
        visit(body, &mut |stmt| taken.extend(stmt.defined()));
        let free = |name: &str| {
            let mut sym = Sym::new(name);
            while taken.contains(&sym) {
                sym = Sym::new(&format!("{sym}_"));
            }
            sym
        };
        Names {
            row: free("row"),
            warp: free("warp_of"),
            places: ["lane", "along", "down", "inner"].map(|name| free(&format!("{name}_of"))),
        }
    }
}

/// Loops that are written out around the loops of an instruction, which are around nothing else.
struct Nest {
    repeated: Vec<Axis>,
    /// Rows, columns and reduced points.
    points: [Axis; 3],
    /// Whether the instruction may be less exact than the type of its sums.
    rounds: bool,
    body: Vec<Stmt>,
}

impl Nest {
    fn of(stmt: &Stmt) -> Option<Nest> {
        let (mut repeated, mut points, mut may_round) = (Vec::new(), Vec::new(), true);
        let mut body = std::slice::from_ref(stmt);
        while let [Stmt::Loop(Loop { kind, var, extent, body: inner })] = body {
            let axis = Axis { var: *var, extent: *extent };
            match kind {
                KernelLoopKind::Unroll if points.is_empty() => repeated.push(axis),
                KernelLoopKind::Mma { rounds } => {
                    points.push(axis);
                    may_round &= rounds;
                }
                KernelLoopKind::For
                | KernelLoopKind::Unroll
                | KernelLoopKind::Vector { .. }
                | KernelLoopKind::Pipeline { .. }
                | KernelLoopKind::Level(_)
                | KernelLoopKind::Chain
                | KernelLoopKind::Search => return None,
            }
            body = inner;
        }
        Some(Nest { repeated, points: points.try_into().ok()?, rounds: may_round, body: body.to_vec() })
    }
}

/// What the points of an instruction add up.
struct Sum {
    mem: Mem,
    index: Expr,
    /// What has to hold for a point to be added.
    guard: Vec<Rel>,
    factors: [Val; 2],
    /// What is computed for each point.
    lets: HashMap<Val, Op>,
    /// Indices that are checked there, by their symbol: the value, what it is below, and the message.
    binds: HashMap<Sym, (Val, Expr, u32)>,
}

impl Sum {
    fn of(body: &[Stmt]) -> Option<Sum> {
        let mut lets = HashMap::new();
        let (last, before) = body.split_last()?;
        let mut binds = HashMap::new();
        for stmt in before {
            match stmt {
                Stmt::Act(Act::Let { val, op }) => drop(lets.insert(*val, op.clone())),
                Stmt::Act(Act::Bind { sym, value, extent, check }) => {
                    binds.insert(*sym, (*value, *extent, *check));
                }
                Stmt::Act(_) | Stmt::Loop(_) | Stmt::If { .. } => return None,
            }
        }
        if let Stmt::Act(Act::MulAdd { mem, index, factors, guard }) = last {
            let (index, guard) = (position(index), guard.clone());
            return Some(Sum { mem: *mem, index, guard, factors: *factors, lets, binds });
        }
        let Stmt::Act(Act::Store { mem, index, value, combine, guard, atomic: false }) = last else {
            return None;
        };
        let Some(Op::Call(ScalarOp::Mul, factors)) = lets.get(value) else { return None };
        let factors = factors[..].try_into().ok().filter(|_| *combine == Some(ReduceOp::Sum))?;
        Some(Sum { mem: *mem, index: position(index), guard: guard.clone(), factors, lets, binds })
    }

    /// Calls `f` with all symbols that a value is computed from, but for those in guards unless these are asked for.
    fn each_sym(&self, val: Val, with_guards: bool, f: &mut dyn FnMut(Sym)) {
        let Some(op) = self.lets.get(&val) else { return };
        let mut syms = Vec::new();
        op.each_part(&mut |part| match part {
            Part::Access { index, guard, .. } => {
                syms.extend(index.iter().flat_map(|at| at.syms()));
                let of = |rel: &Rel| [rel.lhs.syms(), rel.rhs.syms()].concat();
                syms.extend(guard.iter().filter(|_| with_guards).flat_map(of));
            }
            Part::Val(from) => self.each_sym(*from, with_guards, f),
            Part::Expr(e) => syms.extend(e.syms()),
            Part::Rel(rel) => syms.extend([rel.lhs.syms(), rel.rhs.syms()].concat()),
        });
        for sym in syms {
            match self.binds.get(&sym) {
                Some((value, ..)) if with_guards => self.each_sym(*value, true, f),
                Some((value, ..)) => self.each_sym(self.unguarded(*value), false, f),
                None => f(sym),
            }
        }
    }

    /// The index of which a checked one is zero where its access does not happen.
    fn unguarded(&self, val: Val) -> Val {
        match self.choice(val) {
            Some((_, taken)) => self.unguarded(taken),
            None => val,
        }
    }

    /// The condition under which a value is another one, and not a third.
    fn choice(&self, val: Val) -> Option<(Rel, Val)> {
        let Some(Op::Call(ScalarOp::Select, of)) = self.lets.get(&val) else { return None };
        let (Some(Op::Cond(rel)), Some(&taken)) = (self.lets.get(of.first()?), of.get(1)) else {
            return None;
        };
        Some((*rel, taken))
    }

    /// Whether what a value is computed from depends on a variable.
    fn varies(&self, val: Val, var: Sym) -> bool {
        let mut varies = false;
        self.each_sym(val, false, &mut |sym| varies |= sym == var);
        varies
    }
}

impl Products<'_> {
    fn block(&mut self, stmts: Vec<Stmt>, around: &Around) -> Result<Vec<Stmt>, Diag> {
        let mut out = Vec::with_capacity(stmts.len());
        for mut stmt in stmts {
            if let Some(nest) = Nest::of(&stmt) {
                push_products(&mut out, self.product(nest, around)?);
                continue;
            }
            let inside = match &stmt {
                Stmt::Loop(inner) => around.inside(inner),
                Stmt::If { .. } | Stmt::Act(_) => around.clone(),
            };
            for block in stmt.blocks_mut() {
                *block = self.block(std::mem::take(block), &inside)?;
            }
            if let Stmt::Loop(Loop { kind: KernelLoopKind::Unroll, body, .. }) = &mut stmt
                && let [products @ .., last] = &body[..]
                && *last == WAIT
                && products.iter().all(is_in_background)
            {
                body.pop();
                push_products(&mut out, vec![stmt, WAIT]);
                continue;
            }
            out.push(stmt);
        }
        Ok(out)
    }

    fn refused(&self, slug: &'static str, why: impl std::fmt::Display) -> Diag {
        Diag::new(slug, format!("kernel @{}: {why}", self.kernel.name))
    }

    /// The loads of both operands, and the instructions.
    fn product(&mut self, nest: Nest, around: &Around) -> Result<Vec<Stmt>, Diag> {
        let Nest { repeated, points, rounds, body } = nest;
        self.is_any = true;
        let misfit = |this: &Self, why: &str| {
            this.refused("no-instruction", format_args!("loop {}: {why}", points[0].var))
        };
        let sum =
            Sum::of(&body).ok_or_else(|| misfit(self, "its points are not products that are added up"))?;
        let mut around = around.clone();
        repeated.iter().chain(&points).for_each(|axis| around.facts.declare_index(axis.var, axis.extent));
        let [dtype, other] = sum.factors.map(|factor| self.source(&sum.lets, factor));
        let shape = points.map(|axis| axis.extent.as_int().unwrap_or(0));
        let by = (dtype == other).then(|| self.gpu.instruction(around.level, dtype, shape)).flatten();
        let by = by.filter(|by| by.rounds <= rounds && around.level.has_threads());
        let by = by.ok_or_else(|| misfit(self, "no instruction of a warp or warpgroup takes its points"))?;
        let found = self.kernel.mems[sum.mem].dtype;
        if found != by.sums {
            let why = format!("{} sums in {}, expected the accumulators so, found {found}", by.name, by.sums);
            return Err(misfit(self, &why));
        }
        let columns = u32::try_from(shape[1]).unwrap_or(0);
        let [row, column, _] = points.map(|axis| axis.var);
        let mut factors = sum.factors;
        if sum.varies(factors[0], column) {
            factors.reverse();
        }
        let [left, right] = factors;
        if sum.varies(left, column) || sum.varies(right, row) {
            return Err(misfit(self, "one factor varies along rows, the other one along columns"));
        }
        let operands = [(Side::Left, left), (Side::Right, right)]
            .map(|(side, factor)| self.operand(by, side, &points, (&sum, factor)));
        let [left, right] = operands;
        let (left, right) = (left?, right?);
        // Loops that both operands depend on stay around all.
        let is_of = |operand: &Source, axis: &Axis| operand.varies(axis.var);
        let shared = repeated.iter().take_while(|axis| is_of(&left, axis) && is_of(&right, axis)).count();
        let (outer, inner) = repeated.split_at(shared);
        let mut out = Vec::new();
        let operands = [left, right].map(|operand| {
            if by.is_of_warpgroup()
                && let Some(rows) = self.rows_of(&operand, &sum, &around)
            {
                return Operand::Rows(rows);
            }
            let own: Vec<Axis> = inner.iter().copied().filter(|axis| operand.varies(axis.var)).collect();
            Operand::Own(self.loaded(by, operand, (&sum, &own), &around, &mut out))
        });
        let [lane, along, down, beside] = PLACES.map(|name| Expr::sym(Sym::new(name)));
        let at = Side::Sums.of_thread(by, lane, [along, down, beside]);
        let value = |sym: Sym| if sym == row { Some(at[0]) } else { (sym == column).then_some(at[1]) };
        let first = places(&around.facts, Side::Sums, (by, columns)).simplify(sum.index.subst(&value));
        let [left, right] = operands;
        if by.is_of_warpgroup() && !matches!(right, Operand::Rows(_)) {
            return Err(misfit(
                self,
                "the right operand of a warpgroup lies in rows of 16 bytes in shared memory",
            ));
        }
        let sums = Fragment { mem: sum.mem, first, steps: [Expr::zero(); 3] };
        let product = FragmentProduct { by, columns, sum: sums, left, right };
        out.push(nested(inner, vec![Stmt::Act(Act::FragmentProduct(product))]).remove(0));
        let mut all = nested(outer, out);
        if by.is_of_warpgroup() {
            all.push(WAIT);
        }
        Ok(all)
    }

    /// The type in memory of what a value is: that of what it is loaded from, or rounded to.
    fn source(&self, lets: &HashMap<Val, Op>, val: Val) -> Dtype {
        match lets.get(&val) {
            Some(Op::Load { mem, .. }) => self.kernel.mems[*mem].dtype,
            Some(Op::Round(dtype, _)) => *dtype,
            Some(Op::Cast(from)) => self.source(lets, *from),
            _ => self.kernel.vals[val],
        }
    }

    /// Memory for a fragment, under a name that nothing else has: of so many elements a thread, those of one behind each other.
    fn memory(&mut self, of: Mem, side: Side, by: &Instruction, elements: Expr) -> Mem {
        let name = self.kernel.free_memory_name(&format!("{}_{}", self.kernel.mems[of].name, side.name()));
        let extent = elements * i64::from(by.threads());
        self.kernel.mems.push(MemData::flat(name, by.dtype, extent, MemorySpace::Register))
    }
}

/// What products of a warpgroup are waited for by.
pub(super) const WAIT: Stmt = Stmt::Act(Act::Sync(Sync::Products { newest: 0 }));

/// Puts products behind others: those that go on in the background are waited for together with what follows, if that is products alone.
fn push_products(out: &mut Vec<Stmt>, products: Vec<Stmt>) {
    let is_alone =
        products.split_last().is_some_and(|(last, all)| *last == WAIT && all.iter().all(is_in_background));
    if is_alone && out.last() == Some(&WAIT) {
        out.pop();
    }
    out.extend(products);
}

/// Whether a statement is products of operands in shared memory and nothing else.
fn is_in_background(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Loop(Loop { kind: KernelLoopKind::Unroll, body, .. }) => body.iter().all(is_in_background),
        Stmt::Act(Act::FragmentProduct(product)) => {
            product.by.is_of_warpgroup() && matches!(product.left, Operand::Rows(_))
        }
        Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => false,
    }
}

/// What is known of where the elements of a lane are.
fn places(facts: &Facts, side: Side, (by, columns): (&Instruction, u32)) -> Facts {
    let mut facts = facts.clone();
    let [along, down, inner] = side.pieces(by, columns.into());
    for (name, extent) in PLACES.into_iter().zip([i64::from(by.threads()), along, down, inner]) {
        facts.declare_index(Sym::new(name), Expr::int(extent));
    }
    facts
}

/// Statements in loops that are written out.
fn nested(loops: &[Axis], body: Vec<Stmt>) -> Vec<Stmt> {
    loops.iter().rev().fold(body, |body, &Axis { var, extent }| {
        vec![Stmt::Loop(Loop { kind: KernelLoopKind::Unroll, var, extent, body })]
    })
}
