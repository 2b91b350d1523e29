//! Gives each lane in flight an accumulator of its own where all iterations of a vector loop combine with one element, and
//! combines these accumulators after the loop.
//!
//! ```text
//! vector r in n by 16 copies 4 {  =>  vector r_lane in 64 by 16 { %0 = const 0.0; acc_lanes[r_lane] = %0 }
//!   acc[0] sum= %1                    vector r in n by 16 copies 4 lane r_lane { acc_lanes[r_lane] sum= %1 }
//! }                                   acc[0] sum= lanes of acc_lanes[0] by 16 copies 4
//! ```
//!
//! Where a loop around is of few vectors, and touches the element nowhere else, lanes go on from one of its iterations to the next:
//! combining them takes as long as a few vectors.
//!
//! Elements that the loop itself reads, those that are chosen inside of the loop, and those that only a guard keeps inside of their memory,
//! stay: there the lanes that run are combined each time.

use super::Pass;
use litz_ir::kernel::{
    Act, Dot, Kernel, KernelLoopKind, LaneReduction, Loop, Mem, MemData, MemorySpace, Op, Part, Stmt, visit,
};
use litz_ir::loops::Axis;
use litz_ir::target::Target;
use litz_ir::{Diag, Dtype, ReduceOp};
use litz_sym::{Expr, Range, Sym};
use std::collections::HashSet;

/// The pass.
pub const PASS: Pass = Pass { name: "reduce_lanes", run };

/// Vectors of a loop around which lanes are not combined each time: combining takes a shuffle and an operation for each time that
/// lanes are halved, as long as two to four vectors.
const FEW_VECTORS: i64 = 4;

/// Vectors that the lanes of accumulators add up one after another, if not of one loop: rounding errors grow with their number.
const MOST_VECTORS: i64 = 256;

/// Gives lanes accumulators.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let mut body = std::mem::take(&mut kernel.body);
    let syms = symbols(kernel, &body);
    let loops = kernel.grid.clone();
    let around = Reducer { kernel, syms, loops }.block(&mut body, None);
    debug_assert!(around.is_empty(), "invariant: what is around no loop stays");
    kernel.body = body;
    Ok(())
}

/// All symbols of a kernel.
fn symbols(kernel: &Kernel, body: &[Stmt]) -> HashSet<Sym> {
    let mut syms: HashSet<Sym> = kernel.sizes.iter().copied().collect();
    syms.extend(kernel.grid.iter().map(|axis| axis.var));
    visit(body, &mut |stmt| syms.extend(stmt.defined()));
    syms
}

/// An element that all iterations of a vector loop combine with.
#[derive(Clone, PartialEq)]
struct Shared {
    into: Mem,
    /// Memory of the position of the best value, where that is kept.
    at: Option<Mem>,
    index: Vec<Expr>,
    op: ReduceOp,
    /// The type that arithmetic is done in.
    dtype: Dtype,
    atomic: bool,
    /// The loops inside, written out, whose variables choose the element.
    over: Vec<Axis>,
}

/// The accumulators of an element.
struct Parts {
    shared: Shared,
    mem: Mem,
    at: Option<Mem>,
    /// Where the lanes of the element that `over` chooses begin.
    first: Expr,
}

/// What starts accumulators and combines them.
#[derive(Default)]
struct Around {
    before: Vec<Stmt>,
    after: Vec<Stmt>,
    /// Memories of the elements.
    into: Vec<Mem>,
    /// Vectors that run between the two.
    vectors: i64,
}

impl Around {
    fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    /// Whether it may stand around a loop of a variable with so many iterations instead of in it. `beside` are the memories that
    /// other statements of the loop access.
    fn may_leave(&self, var: Sym, extent: Expr, beside: &HashSet<Mem>) -> bool {
        let vectors = extent.as_int().map(|extent| extent.saturating_mul(self.vectors));
        let mut is_same = true;
        for stmts in [&self.before, &self.after] {
            visit(stmts, &mut |stmt| is_same &= !stmt.exprs().iter().any(|e| e.has_sym(var)));
        }
        is_same
            && !self.is_empty()
            && vectors.is_some_and(|vectors| vectors <= MOST_VECTORS)
            && !self.into.iter().any(|mem| beside.contains(mem))
    }
}

/// The memories that statements access.
fn accessed<'k>(stmts: impl IntoIterator<Item = &'k Stmt>) -> HashSet<Mem> {
    let mut mems = HashSet::new();
    for stmt in stmts {
        visit(std::slice::from_ref(stmt), &mut |stmt| mems.extend(stmt.accesses().map(|(mem, _)| mem)));
    }
    mems
}

struct Reducer<'a> {
    /// The kernel, whose body is elsewhere.
    kernel: &'a mut Kernel,
    syms: HashSet<Sym>,
    /// The loops around.
    loops: Vec<Axis>,
}

impl Reducer<'_> {
    /// Gives accumulators to the lanes of loops in a block, which is the body of a loop that counts, if one is given. What is
    /// better around that is returned.
    fn block(&mut self, stmts: &mut Vec<Stmt>, around: Option<(Sym, Expr)>) -> Around {
        let touched: Vec<HashSet<Mem>> = stmts.iter().map(|stmt| accessed([stmt])).collect();
        let (mut out, mut moved) = (Vec::with_capacity(stmts.len()), Around::default());
        for (at, mut stmt) in std::mem::take(stmts).into_iter().enumerate() {
            let depth = self.loops.len();
            if let Stmt::Loop(inner) = &stmt {
                self.loops.push(Axis { var: inner.var, extent: inner.extent });
            }
            let own = if let Stmt::Loop(inner) = &mut stmt
                && matches!(inner.kind, KernelLoopKind::Vector { lanes: 2.., .. })
            {
                self.vector_loop(inner)
            } else if let Stmt::Loop(Loop { kind: KernelLoopKind::For, var, extent, body }) = &mut stmt {
                self.block(body, Some((*var, *extent)))
            } else {
                stmt.blocks_mut().into_iter().for_each(|block| drop(self.block(block, None)));
                Around::default()
            };
            self.loops.truncate(depth);
            let others = touched.iter().enumerate().filter(|other| other.0 != at);
            let beside: HashSet<Mem> = others.flat_map(|(_, mems)| mems.iter().copied()).collect();
            match around {
                Some((var, extent)) if own.may_leave(var, extent, &beside) => {
                    moved.before.extend(own.before);
                    moved.after.extend(own.after);
                    moved.into.extend(own.into);
                    let iterations = extent.as_int().unwrap_or(MOST_VECTORS);
                    moved.vectors = moved.vectors.max(own.vectors.saturating_mul(iterations));
                    out.push(stmt);
                }
                _ => {
                    out.extend(own.before);
                    out.push(stmt);
                    out.extend(own.after);
                }
            }
        }
        *stmts = out;
        moved
    }

    /// Gives the lanes of a loop accumulators; what starts them, and what combines them afterwards.
    fn vector_loop(&mut self, inner: &mut Loop) -> Around {
        let KernelLoopKind::Vector { lanes, copies, interleaved, lane: None } = inner.kind else {
            return Default::default();
        };
        let shared = shared(self.kernel, &self.loops, inner);
        if shared.is_empty() || !lanes.is_power_of_two() {
            return Default::default();
        }
        // In a loop that is shorter than a round, the first copy runs alone.
        let round = i64::from(lanes) * i64::from(copies);
        let copies = if self.kernel.facts.bounds(inner.extent).hi < round { 1 } else { copies.max(1) };
        let lane = self.symbol(&format!("{}_lane", inner.var.name()));
        let in_flight = i64::from(lanes) * i64::from(copies);
        let parts: Vec<Parts> = shared.into_iter().map(|shared| self.parts(shared, in_flight)).collect();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let into = parts.iter().flat_map(|part| [Some(part.shared.into), part.shared.at]).flatten().collect();
        let vectors = inner.extent.as_int().map_or(i64::MAX, |extent| (extent + round - 1) / round);
        // Of a longer loop the lanes are combined seldom enough.
        let vectors = if vectors <= FEW_VECTORS { vectors } else { i64::MAX };
        for part in &parts {
            let starts =
                [(Some(part.mem), part.shared.op, part.shared.dtype), (part.at, ReduceOp::Min, Dtype::I64)];
            for (mem, op, dtype) in starts {
                let Some(mem) = mem else { continue };
                let val = self.kernel.vals.push(dtype);
                let start = Stmt::Act(Act::Let { val, op: Op::Const(op.identity(dtype)) });
                let index = vec![part.first + Expr::sym(lane)];
                let store = Stmt::Act(Act::Store {
                    mem,
                    index,
                    value: val,
                    combine: None,
                    guard: Vec::new(),
                    atomic: false,
                });
                let (kind, extent) = (KernelLoopKind::vector(lanes, 1), Expr::int(in_flight));
                let all = Stmt::Loop(Loop { kind, var: lane, extent, body: vec![start, store] });
                before.push(written_out(&part.shared.over, all));
            }
            let Shared { into, at, index, op, atomic, over, .. } = part.shared.clone();
            let reduction = LaneReduction {
                op,
                into,
                from: part.mem,
                positions: at.zip(part.at).map(|(at, from)| [at, from]),
                index,
                first: vec![part.first],
                lanes,
                copies,
                atomic,
            };
            after.push(written_out(&over, Stmt::Act(Act::Lanes(reduction))));
        }
        inner.kind = KernelLoopKind::Vector { lanes, copies, interleaved, lane: Some(lane) };
        redirect(&mut inner.body, &parts, lane);
        Around { before, after, into, vectors }
    }

    /// A symbol of that name, or a longer one where the kernel has it.
    fn symbol(&mut self, name: &str) -> Sym {
        let mut name = name.to_string();
        while !self.syms.insert(Sym::new(&name)) {
            name.push('_');
        }
        Sym::new(&name)
    }

    /// Declares the accumulators of an element, or of several.
    fn parts(&mut self, shared: Shared, in_flight: i64) -> Parts {
        let count = shared.over.iter().fold(Expr::one(), |count, axis| count * axis.extent);
        let number = shared.over.iter().fold(Expr::zero(), |at, axis| at * axis.extent + Expr::sym(axis.var));
        let extent = count * in_flight;
        let mem = self.register(shared.into, shared.dtype, extent);
        let at = shared.at.map(|at| self.register(at, Dtype::I64, extent));
        Parts { shared, mem, at, first: number * in_flight }
    }

    /// A register array named after a memory.
    fn register(&mut self, of: Mem, dtype: Dtype, extent: Expr) -> Mem {
        let mut name = format!("{}_lanes", self.kernel.mems[of].name);
        while self.kernel.mems.values().any(|data| data.name == name) {
            name.push('_');
        }
        self.kernel.mems.push(MemData::flat(name, dtype, extent, MemorySpace::Register))
    }
}

/// The elements that all iterations of a vector loop combine with, which is in `loops`, each once, in order.
fn shared(kernel: &Kernel, loops: &[Axis], inner: &Loop) -> Vec<Shared> {
    let varying = HashSet::from([inner.var]);
    let mut search = Search { kernel, loops, varying, around: Vec::new(), found: Vec::new() };
    // Each lane has its own, or reads what others have added so far.
    let mut kept: HashSet<Mem> = kernel.private_registers(inner).into_iter().collect();
    visit(&inner.body, &mut |stmt| kept.extend(stmt.loaded().map(|(mem, _)| mem)));
    search.block(&inner.body, &mut kept);
    let mut found: Vec<Shared> = Vec::new();
    for shared in search.found {
        if found.contains(&shared) {
            continue;
        }
        // One memory is combined with in one way.
        let way = |shared: &Shared| (shared.op, shared.at, shared.atomic);
        if found.iter().any(|other| other.into == shared.into && way(other) != way(&shared)) {
            kept.insert(shared.into);
        }
        found.push(shared);
    }
    found.retain(|shared| [Some(shared.into), shared.at].iter().flatten().all(|mem| !kept.contains(mem)));
    found
}

struct Search<'a> {
    kernel: &'a Kernel,
    /// The loops around the vector loop.
    loops: &'a [Axis],
    /// Symbols that stand for another number in each iteration, or while it runs.
    varying: HashSet<Sym>,
    /// Loops inside of the vector loop that are written out.
    around: Vec<Axis>,
    found: Vec<Shared>,
}

impl Search<'_> {
    /// Finds elements that statements combine with; memories that they store to in other ways are `kept`.
    fn block(&mut self, stmts: &[Stmt], kept: &mut HashSet<Mem>) {
        for stmt in stmts {
            match self.shared(stmt) {
                Some(shared) => self.found.push(shared),
                None => kept.extend(stmt.stored().map(|(mem, _)| mem)),
            }
            let depth = self.around.len();
            if let Stmt::Loop(Loop { kind: KernelLoopKind::Unroll, var, extent, .. }) = stmt
                && extent.as_int().is_some()
            {
                self.around.push(Axis { var: *var, extent: *extent });
            } else {
                self.varying.extend(stmt.defined());
            }
            stmt.blocks().into_iter().for_each(|block| self.block(block, kept));
            self.around.truncate(depth);
        }
    }

    /// The element that a statement combines with, if it is that of all lanes.
    fn shared(&self, stmt: &Stmt) -> Option<Shared> {
        let (into, at, index, op, dtype, is_atomic) = match stmt {
            Stmt::Act(Act::Store { mem, index, value, combine, atomic, .. }) => {
                (*mem, None, index, (*combine)?, self.kernel.vals[*value], *atomic)
            }
            Stmt::Act(Act::MulAdd { mem, index, factors: [a, _], .. }) => {
                (*mem, None, index, ReduceOp::Sum, self.kernel.vals[*a], false)
            }
            Stmt::Act(Act::Dot(Dot { by, mem, index, .. })) => {
                (*mem, None, index, ReduceOp::Sum, by.sums, false)
            }
            Stmt::Act(Act::ArgStore { max, best, at, index, value, .. }) => {
                let op = if *max { ReduceOp::Max } else { ReduceOp::Min };
                (*best, Some(*at), index, op, self.kernel.vals[*value], false)
            }
            Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => return None,
        };
        let mentions = |sym: Sym| index.iter().any(|e| e.has_sym(sym));
        if self.varying.iter().any(|&sym| mentions(sym)) {
            return None;
        }
        let mut is_chosen = false;
        stmt.each_part(&mut |part| {
            if let Part::Access { mem, guard, .. } = part
                && *mem == into
            {
                let sides = guard.iter().flat_map(|rel| [rel.lhs, rel.rhs]);
                is_chosen |= sides.flat_map(Expr::syms).any(mentions);
            }
        });
        if is_chosen && !self.is_inside(into, index) {
            return None;
        }
        let over = self.around.iter().copied().filter(|axis| mentions(axis.var)).collect();
        Some(Shared { into, at, index: index.clone(), op, dtype, atomic: is_atomic, over })
    }

    /// Whether all iterations of the loops have an element there, as the numbers of their iterations say.
    fn is_inside(&self, mem: Mem, index: &[Expr]) -> bool {
        let kernel_range = |sym: Sym| self.kernel.facts.range_of(sym);
        let range_of = |sym: Sym| {
            let axis = self.around.iter().chain(self.loops).rfind(|axis| axis.var == sym);
            axis.map_or_else(
                || kernel_range(sym),
                |axis| Range { lo: 0, hi: axis.extent.range(&kernel_range).hi - 1 },
            )
        };
        index.iter().zip(&self.kernel.mems[mem].sizes).all(|(at, size)| {
            let reached = at.range(&range_of);
            reached.lo >= 0 && reached.hi < size.range(&kernel_range).lo
        })
    }
}

/// Makes statements combine with the accumulators of their lane.
fn redirect(stmts: &mut [Stmt], parts: &[Parts], lane: Sym) {
    for stmt in stmts {
        let part_of = |mem: Mem, index: &[Expr]| {
            let part = parts.iter().find(|part| part.shared.into == mem && part.shared.index == index)?;
            Some((part, vec![part.first + Expr::sym(lane)]))
        };
        match stmt {
            Stmt::Act(Act::Store { mem, index, atomic, .. }) => {
                if let Some((part, own)) = part_of(*mem, index) {
                    (*mem, *index, *atomic) = (part.mem, own, false);
                }
            }
            Stmt::Act(Act::MulAdd { mem, index, .. } | Act::Dot(Dot { mem, index, .. })) => {
                if let Some((part, own)) = part_of(*mem, index) {
                    (*mem, *index) = (part.mem, own);
                }
            }
            Stmt::Act(Act::ArgStore { best, at, index, .. }) => {
                if let Some((part, own)) = part_of(*best, index) {
                    (*best, *at, *index) = (part.mem, part.at.unwrap_or(*at), own);
                }
            }
            Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => {}
        }
        stmt.blocks_mut().into_iter().for_each(|block| redirect(block, parts, lane));
    }
}

/// A statement in loops that are written out.
fn written_out(over: &[Axis], stmt: Stmt) -> Stmt {
    over.iter().rev().fold(stmt, |stmt, axis| {
        Stmt::Loop(Loop {
            kind: KernelLoopKind::Unroll,
            var: axis.var,
            extent: axis.extent,
            body: vec![stmt],
        })
    })
}
