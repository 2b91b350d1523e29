//! Loads what follows a loop fed through rings ahead of it, where threads have registers for it.
//!
//! ```text
//! for k in 12 { acquire full ring 0 as used; .. }
//! lane l in 32 { unroll v in 20 { vector c in 2 { %1 = load b[c + 8*v + 2*mod(l, 4)]; %2 = add %0, %1; .. } } }
//!   =>  lane l in 32 { unroll v in 20 { vector c in 2 { %3 = load b[c + 8*v + 2*mod(l, 4)]; b_near[c + 2*v] = %3 } } }
//!       for k in 12 { acquire full ring 0 as used; .. }
//!       lane l in 32 { unroll v in 20 { vector c in 2 { %1 = load b_near[c + 2*v]; %2 = add %0, %1; .. } } }
//! ```
//!
//! So a tile's bias is there when its sums are. Where results pass through shared memory a part of the columns after another, each part would wait
//! for its own: an assembler moves no load ahead of what is stored there.

use super::Pass;
use litz_ir::kernel::{Act, Kernel, KernelLoopKind, Loop, Mem, MemData, MemorySpace, Op, Stmt, Sync, Val};
use litz_ir::target::Target;
use litz_ir::{Diag, Scalar};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::collections::HashSet;

/// The pass.
pub const PASS: Pass = Pass { name: "preload", run };

/// Registers of a thread where a kernel does not say how many: those with which a unit runs three warps in each of its parts.
const REGISTERS: i64 = 168;

/// Registers that a thread needs besides sums and what is loaded ahead: addresses, and what it computes with.
const OTHERS: i64 = 40;

fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let Some(first) = kernel.body.iter().position(is_fed) else { return Ok(()) };
    let mut facts = kernel.facts.clone();
    kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let known = kernel.facts.symbols().chain(kernel.grid.iter().map(|axis| axis.var)).collect();
    let mut behind = kernel.body.split_off(first + 1);
    let mut preloads = Preloads { kernel, facts, known, loads: Vec::new() };
    preloads.block(&mut behind, &mut Vec::new());
    let loads = preloads.loads;
    kernel.body.splice(first..first, loads);
    kernel.body.extend(behind);
    Ok(())
}

/// Whether a statement is a loop that other warps copy ahead for.
fn is_fed(stmt: &Stmt) -> bool {
    let Stmt::Loop(Loop { kind: KernelLoopKind::For, body, .. }) = stmt else { return false };
    body.iter().any(|stmt| matches!(stmt, Stmt::Act(Act::Sync(Sync::Acquire { .. }))))
}

/// Registers of one of so many threads for its part of so many elements.
fn registers_for(data: &MemData, threads: i64) -> i64 {
    let count = data.span().as_int().unwrap_or(0);
    let threads = if data.space == MemorySpace::Own { 1 } else { threads.max(1) };
    let is_registers = matches!(data.space, MemorySpace::Own | MemorySpace::Register);
    let count = if is_registers { count / threads } else { 0 };
    (count * data.dtype.size() as i64 + 3) / 4
}

struct Preloads<'k> {
    /// The kernel, whose statements behind the loop are elsewhere.
    kernel: &'k mut Kernel,
    /// What is known of the kernel's sizes and of its grid.
    facts: Facts,
    /// Symbols that have one value in a point of the grid.
    known: HashSet<Sym>,
    /// What loads.
    loads: Vec<Stmt>,
}

/// A loop around a statement.
struct Outer {
    kind: KernelLoopKind,
    var: Sym,
    extent: Expr,
}

impl Outer {
    fn is_level(&self) -> bool {
        self.kind.level().is_some()
    }

    /// A loop like it.
    fn with(&self, body: Vec<Stmt>) -> Stmt {
        Stmt::Loop(Loop { kind: self.kind, var: self.var, extent: self.extent, body })
    }
}

impl Preloads<'_> {
    /// Takes loads out of statements in the loops `around`.
    fn block(&mut self, stmts: &mut [Stmt], around: &mut Vec<Outer>) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(Loop { kind, var, extent, body }) => {
                    around.push(Outer { kind: *kind, var: *var, extent: *extent });
                    self.block(body, around);
                    around.pop();
                }
                Stmt::Act(Act::Let { val, op }) => {
                    if let Some(kept) = self.kept(*val, op, around) {
                        *op = kept;
                    }
                }
                Stmt::If { .. } | Stmt::Act(_) => {}
            }
        }
    }

    /// The load of what has been loaded ahead instead of this one. None where it stays.
    fn kept(&mut self, val: Val, op: &Op, around: &[Outer]) -> Option<Op> {
        let Op::Load { mem, index, guard, other } = op else { return None };
        let data = &self.kernel.mems[*mem];
        let is_there = |sym: &Sym| self.known.contains(sym) || around.iter().any(|outer| outer.var == *sym);
        // Each thread runs all iterations of loops that are written out, and those that are not are of levels.
        let is_written_out = |outer: &Outer| {
            let is_of_one = matches!(outer.kind, KernelLoopKind::Unroll | KernelLoopKind::Vector { .. });
            outer.is_level() || is_of_one && outer.extent.as_int().is_some()
        };
        let is_read = matches!(data.space, MemorySpace::Read | MemorySpace::Constant);
        if !is_read || !symbols(index, guard).iter().all(is_there) || !around.iter().all(is_written_out) {
            return None;
        }
        let (early, late) = self.split(*mem, index, guard, around);
        // What is there instead is kept in the type of the memory.
        if !early.is_empty() && *other != Scalar::zero(self.kernel.vals[val]) {
            return None;
        }
        let mentioned = symbols(index, &early);
        let used: Vec<&Outer> =
            around.iter().filter(|outer| outer.is_level() || mentioned.contains(&outer.var)).collect();
        let (mut count, mut number, mut threads) = (1i64, Expr::zero(), 1i64);
        for outer in &used {
            let extent = outer.extent.as_int()?;
            if outer.is_level() {
                threads = threads.checked_mul(extent)?;
            } else {
                count = count.checked_mul(extent)?;
                number = number * extent + Expr::sym(outer.var);
            }
        }
        // What was loaded stays as it is in memory: nobody waits for it to be widened.
        let near = MemData::flat(String::new(), data.dtype, Expr::int(count), MemorySpace::Own);
        let registers = registers_for(&near, threads);
        let others: i64 = self.kernel.mems.values().map(|data| registers_for(data, threads)).sum();
        let most = self.kernel.registers.map_or(REGISTERS, i64::from);
        if others + registers + OTHERS > most {
            return None;
        }
        let name = self.kernel.free_memory_name(&format!("{}_near", data.name));
        let near = self.kernel.mems.push(MemData { name, ..near });
        let loaded = self.kernel.vals.push(self.kernel.vals[val]);
        let load = Op::Load { mem: *mem, index: index.clone(), guard: early, other: *other };
        let index = vec![number];
        let store = Act::Store {
            mem: near,
            index: index.clone(),
            value: loaded,
            combine: None,
            guard: Vec::new(),
            atomic: false,
        };
        let body = vec![Stmt::Act(Act::Let { val: loaded, op: load }), Stmt::Act(store)];
        self.loads.extend(used.into_iter().rev().fold(body, |body, outer| vec![outer.with(body)]));
        Some(Op::Load { mem: near, index, guard: late, other: *other })
    }

    /// The guards of a load that keep it inside of its memory, and those that do not, as of rows that a bias knows nothing of: they choose what of it
    /// counts.
    fn split(&self, mem: Mem, index: &[Expr], guard: &[Rel], around: &[Outer]) -> (Vec<Rel>, Vec<Rel>) {
        let here = |rel: &Rel| {
            let mentions = |outer: &Outer| [rel.lhs, rel.rhs].iter().any(|side| side.has_sym(outer.var));
            let is_of_index = |outer: &Outer| index.iter().any(|at| at.has_sym(outer.var));
            around.iter().all(|outer| outer.is_level() || !mentions(outer) || is_of_index(outer))
        };
        let (early, late): (Vec<Rel>, Vec<Rel>) = guard.iter().partition(|rel| here(rel));
        let mut facts = self.facts.clone();
        around.iter().for_each(|outer| facts.declare_index(outer.var, outer.extent));
        let is_possible = early.iter().all(|&rel| facts.assume(rel));
        let is_inside = index
            .iter()
            .zip(&self.kernel.mems[mem].sizes)
            .all(|(&at, &size)| facts.proves(&Rel::le(0, at)) && facts.proves(&Rel::lt(at, size)));
        if late.is_empty() || is_possible && is_inside { (early, late) } else { (guard.to_vec(), Vec::new()) }
    }
}

/// All that an element and its guard mention.
fn symbols(index: &[Expr], guard: &[Rel]) -> HashSet<Sym> {
    let sides = guard.iter().flat_map(|rel| [rel.lhs, rel.rhs]);
    index.iter().copied().chain(sides).flat_map(Expr::syms).collect()
}
