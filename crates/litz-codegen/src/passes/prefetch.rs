//! Fetches large packed operands into the second-level cache before they are used.
//!
//! A panel of a packed operand is read front to back by one tile of rows after another. The first of them would wait for
//! memory, the others find it in the second-level cache. So while tiles use one panel one after another, each fetches its share
//! of the next: with `R` tiles, a tile that is at position `p` of its panel fetches position `p / R` of its share.
//! Memory is read at an even pace then, slower by `R` than tiles read the cache.
//!
//! ```text
//! %1 = load w[ji + 16384*jo + 16*k]  =>  %1 = load w[ji + 16384*jo + 16*k]
//!                                        prefetch w[2048*io + 16384*jo + 2*k + floordiv(ji, 8) + 16384] if ji == 0
//! ```

use super::Pass;
use litz_ir::Diag;
use litz_ir::kernel::{Act, Kernel, KernelLoopKind, Loop, Mem, MemorySpace, Op, Stmt, Val, position, visit};
use litz_ir::loops::Axis;
use litz_ir::target::Target;
use litz_sym::{Expr, Facts, Rel, Sym};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The pass.
pub const PASS: Pass = Pass { name: "prefetch", run };

/// Operands of products from this size on are fetched ahead: the second-level caches of smaller cores hold as much.
const FETCHED_FROM: i64 = 1 << 20;

/// The same for operands that factors are made of, such as integers with scales. These take a quarter or an eighth of the
/// bytes of a factor, and come at the end of as many layers of a model.
const MADE_FETCHED_FROM: i64 = 1 << 18;

/// Most bytes of a panel that is fetched while another of its size is in use: two of them fit most second-level caches.
const PANEL: i64 = 640 << 10;

/// How far ahead, in bytes, where a panel is read once, or is larger: 800 cycles of a register tile of 13 rows. The
/// processor's own streams follow packed panels, but not far enough: with this BERT-base took 165 ms instead of 179 and
/// ResNet-50 55 instead of 60; 2 KiB and 96 KiB help less (Granite Rapids, one thread, CPU time).
const AHEAD: u32 = 8 << 10;

/// Bytes of a cache line.
const LINE: i64 = 64;

/// Places the statements, in kernels that have none.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let mut has_some = false;
    visit(&kernel.body, &mut |stmt| has_some |= matches!(stmt, Stmt::Act(Act::Prefetch { .. })));
    let operands = operands(kernel);
    if has_some || operands.is_empty() {
        return Ok(());
    }
    let mut facts = kernel.facts.clone();
    kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let mut body = std::mem::take(&mut kernel.body);
    let (around, written_out) = (kernel.grid.clone(), Vec::new());
    Placer { kernel, operands, around, written_out, single: Vec::new(), facts }.block(&mut body, None);
    kernel.body = body;
    Ok(())
}

/// Large memory that nothing writes and that factors of fused multiply-adds are loaded from, and whether they are made of what
/// is loaded, rather than it.
fn operands(kernel: &Kernel) -> BTreeMap<Mem, bool> {
    let mut factors: HashSet<Val> = HashSet::new();
    let mut made_of: HashMap<Val, Vec<Val>> = HashMap::new();
    visit(&kernel.body, &mut |stmt| match stmt {
        Stmt::Act(Act::MulAdd { factors: both, .. }) => factors.extend(both),
        Stmt::Act(Act::Let { val, .. }) => {
            let parts = made_of.entry(*val).or_default();
            stmt.each_value(&mut |part| parts.push(part));
        }
        Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => {}
    });
    let (mut parts, mut next) = (HashSet::new(), factors.iter().copied().collect::<Vec<Val>>());
    while let Some(val) = next.pop() {
        for &part in made_of.get(&val).into_iter().flatten() {
            if parts.insert(part) {
                next.push(part);
            }
        }
    }
    let is_large = |mem: Mem, from: i64| {
        let data = &kernel.mems[mem];
        let bytes = data.span().as_int().map(|count| count.saturating_mul(data.dtype.size() as i64));
        data.is_flat() && data.space.is_only_read() && bytes.is_some_and(|bytes| bytes >= from)
    };
    let mut mems = BTreeMap::new();
    visit(&kernel.body, &mut |stmt| {
        if let Stmt::Act(Act::Let { val, op: Op::Load { mem, .. } }) = stmt {
            if factors.contains(val) && is_large(*mem, FETCHED_FROM) {
                mems.insert(*mem, false);
            } else if parts.contains(val) && is_large(*mem, MADE_FETCHED_FROM) {
                mems.entry(*mem).or_insert(true);
            }
        }
    });
    mems
}

struct Placer<'a> {
    kernel: &'a Kernel,
    operands: BTreeMap<Mem, bool>,
    /// The grid's axes and the loops around that count, from the outermost inwards.
    around: Vec<Axis>,
    /// Variables of the loops around that are written out: numbers, once they are.
    written_out: Vec<Sym>,
    /// Variables of loops around that run once: 0.
    single: Vec<Sym>,
    facts: Facts,
}

impl Placer<'_> {
    /// Fetches what loads of whole vectors in a block will be followed by; `lane` is the variable of the vector loop around.
    fn block(&mut self, stmts: &mut Vec<Stmt>, lane: Option<Sym>) {
        let mut out = Vec::with_capacity(stmts.len());
        for mut stmt in std::mem::take(stmts) {
            match &mut stmt {
                Stmt::Loop(inner) => self.enter(inner, lane),
                Stmt::If { .. } | Stmt::Act(_) => {
                    stmt.blocks_mut().into_iter().for_each(|block| self.block(block, lane));
                }
            }
            let fetched = lane.and_then(|lane| self.fetched(&stmt, lane));
            out.push(stmt);
            out.extend(fetched);
        }
        *stmts = out;
    }

    fn enter(&mut self, inner: &mut Loop, lane: Option<Sym>) {
        let depth = self.written_out.len();
        match inner.kind {
            // Matrix instructions load by themselves.
            KernelLoopKind::Mma { .. } => {}
            KernelLoopKind::Unroll => {
                self.written_out.push(inner.var);
                self.block(&mut inner.body, lane);
            }
            KernelLoopKind::Vector { lanes, copies, .. } if lanes > 1 && lane.is_none() => {
                // Loops that index registers are written out as well, and of a single group only the lane is not known.
                let group = i64::from(lanes) * i64::from(copies);
                let is_one_group = inner.extent.as_int().is_some_and(|extent| extent <= group);
                if is_one_group || self.indexes_registers(inner) {
                    self.written_out.push(inner.var);
                }
                self.facts.declare_index(inner.var, inner.extent);
                self.block(&mut inner.body, Some(inner.var));
            }
            KernelLoopKind::For
            | KernelLoopKind::Pipeline { .. }
            | KernelLoopKind::Level(_)
            | KernelLoopKind::Chain
            | KernelLoopKind::Search
            | KernelLoopKind::Vector { .. } => {
                self.facts.declare_index(inner.var, inner.extent);
                self.around.push(Axis { var: inner.var, extent: inner.extent });
                if inner.extent.is_one() {
                    self.single.push(inner.var);
                }
                self.block(&mut inner.body, lane);
                self.single.retain(|&var| var != inner.var);
                self.around.pop();
            }
        }
        self.written_out.truncate(depth);
    }

    fn indexes_registers(&self, inner: &Loop) -> bool {
        let mut found = false;
        visit(&inner.body, &mut |stmt| {
            found |= stmt.accesses().any(|(mem, index)| {
                self.kernel.mems[mem].space == MemorySpace::Register
                    && index.iter().any(|at| at.has_sym(inner.var))
            });
        });
        found
    }

    /// What is fetched when a load happens, of one element for each lane, side by side.
    fn fetched(&self, stmt: &Stmt, lane: Sym) -> Option<Stmt> {
        let Stmt::Act(Act::Let { op: Op::Load { mem, index, guard, .. }, .. }) = stmt else { return None };
        let index = position(index).subst(&|sym| self.single.contains(&sym).then(Expr::zero));
        let is_whole = guard.is_empty() && index.linear(lane)?.0.is_one();
        let is_made = *self.operands.get(mem)?;
        if !is_whole || !self.is_streamed(*mem, index, if is_made { LINE / 2 } else { LINE }) {
            return None;
        }
        let mem = *mem;
        Some(match self.next_panel(mem, index) {
            Some((index, guard)) => Stmt::Act(Act::Prefetch { mem, index: vec![index], ahead: 0, guard }),
            None => {
                let size = self.kernel.mems[mem].dtype.size();
                // Vectors of narrow elements are in the line of the first of them.
                let number = self.number(index).modulo(LINE / size as i64);
                let is_first = Rel::eq(self.facts.simplify(number), Expr::zero());
                let guard = if is_made { vec![is_first] } else { Vec::new() };
                Stmt::Act(Act::Prefetch { mem, index: vec![index], ahead: AHEAD / size as u32, guard })
            }
        })
    }

    /// Whether the innermost loop walks through memory so many bytes or more at every step.
    fn is_streamed(&self, mem: Mem, index: Expr, least: i64) -> bool {
        let size = self.kernel.mems[mem].dtype.size() as i64;
        let step = |var| index.linear(var).and_then(|(step, _)| step.as_int());
        self.innermost().and_then(step).is_some_and(|step| step * size >= least)
    }

    /// Where the share of the next panel lies that belongs to this place of this one, and when a line of it begins there:
    /// of the loads of one step, the others are in the same line. None where panels are not used several times, or are too
    /// large.
    fn next_panel(&self, mem: Mem, index: Expr) -> Option<(Expr, Vec<Rel>)> {
        let mentions = |around: &&Axis| index.has_sym(around.var);
        let inside = self.around.iter().rev().take_while(mentions).count();
        let outside = &self.around[..self.around.len() - inside];
        let sharing = outside.iter().rev().take_while(|around| !mentions(around)).count();
        let (outer, sharing) = outside.split_at(outside.len() - sharing);
        let (panel, _) = index.linear(outer.last()?.var)?;
        let panel = panel.as_int().filter(|&n| n > 0)?;
        let size = self.kernel.mems[mem].dtype.size() as i64;
        let count = self.facts.hint(sharing.iter().fold(Expr::one(), |n, around| n * around.extent))?;
        if count < 2 || panel.saturating_mul(size) > PANEL {
            return None;
        }
        let mut position = index;
        for around in outside {
            position = position.linear(around.var)?.1;
        }
        let start = index - position;
        let number_of_tile =
            sharing.iter().fold(Expr::zero(), |n, around| n * around.extent + Expr::sym(around.var));
        let number = self.number(position);
        // Of the position the largest power of two that all its steps are multiples of: shares may overlap, and lines are
        // fetched again.
        let steps = || position.terms().filter(|(_, term)| !self.is_number(*term));
        let mut divisor = 1 << count.ilog2();
        while steps().any(|(step, _)| step % divisor != 0) {
            divisor /= 2;
        }
        let innermost = index.linear(self.innermost()?)?.0.as_int()?;
        if innermost * size / divisor > LINE {
            return None;
        }
        let scaled = steps().map(|(step, term)| term * (step / divisor));
        let scaled = scaled.fold(number.floordiv(divisor), |sum, term| sum + term);
        let index = start + panel + number_of_tile * ((panel + count - 1) / count) + scaled;
        let into_line = self.facts.simplify(number.modulo(divisor * (LINE / size)));
        let guard = if into_line.is_zero() { Vec::new() } else { vec![Rel::eq(into_line, Expr::zero())] };
        Some((index, guard))
    }

    /// The part of an index that is a number once loops are written out.
    fn number(&self, index: Expr) -> Expr {
        let number = index.terms().filter(|(_, term)| self.is_number(*term));
        number.fold(Expr::int(index.constant()), |sum, (step, term)| sum + term * step)
    }

    fn is_number(&self, e: Expr) -> bool {
        e.syms().iter().all(|sym| self.written_out.contains(sym))
    }

    /// Variable of the innermost loop that counts.
    fn innermost(&self) -> Option<Sym> {
        self.around.get(self.kernel.grid.len()..)?.last().map(|around| around.var)
    }
}
