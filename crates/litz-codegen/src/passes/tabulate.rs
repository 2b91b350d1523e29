//! Replaces functions of a few bits of each lane, and of values that lanes share, by tables in registers.
//!
//! ```text
//! vector l in 16 by 16 {                   =>  vector l_entry in 16 by 16 {
//!   %0: i32 = load w[l]                          %5 = index l_entry; %6: f32 = cast %5
//!   %1: i32 = const 15                           %7: f32 = load scale[0]; %8: f32 = mul %6, %7
//!   %2: i32 = and %0, %1                         table[l_entry] = %8
//!   %3: f32 = cast %2                          }
//!   %4: f32 = load scale[0]                    vector l in 16 by 16 {
//!   %9: f32 = mul %3, %4                         %0: i32 = load w[l]
//!   acc[0] fma= %9, %10                          %9: f32 = lookup table[0] of 16 by %0
//! }                                              acc[0] fma= %9, %10
//!                                              }
//! ```
//!
//! Each entry is computed by the operations that it stands for, so that results are the same to the last bit. A table is worth
//! it where it is looked up several times.

use super::{Pass, clean};
use litz_ir::ids::Id;
use litz_ir::kernel::{
    Act, Kernel, KernelLoopKind, Loop, MemData, MemorySpace, Op, Part, PartMut, Stmt, Val, visit, visit_mut,
};
use litz_ir::loops::Axis;
use litz_ir::target::Target;
use litz_ir::{Diag, Dtype, Scalar, ScalarOp};
use litz_sym::{Expr, Sym};
use std::collections::{BTreeMap, BTreeSet};

/// The pass.
pub const PASS: Pass = Pass { name: "tabulate", run };

/// Vectors that are looked up in a table, at least: it is computed as one.
const LEAST_VECTORS: i64 = 2;

/// Operations for each entry of a table, at least: looking it up is one.
const LEAST_OPERATIONS: usize = 2;

/// Makes tables, where the target has an instruction that looks them up.
fn run(kernel: &mut Kernel, target: &Target) -> Result<(), Diag> {
    let Some(entries) = target.table_entries() else { return Ok(()) };
    let mut body = std::mem::take(&mut kernel.body);
    let before = kernel.mems.len();
    block(kernel, &mut body, entries);
    kernel.body = body;
    if kernel.mems.len() > before { (clean::PASS.run)(kernel, target) } else { Ok(()) }
}

/// Makes tables for the vector loops of a block.
fn block(kernel: &mut Kernel, stmts: &mut Vec<Stmt>, lanes: u32) {
    let mut out = Vec::with_capacity(stmts.len());
    for mut stmt in std::mem::take(stmts) {
        if let Stmt::Loop(inner) = &mut stmt
            && matches!(inner.kind, KernelLoopKind::Vector { lanes: n, .. } if n == lanes)
        {
            out.extend(tables(kernel, inner, lanes));
        } else {
            stmt.blocks_mut().into_iter().for_each(|inside| block(kernel, inside, lanes));
        }
        out.push(stmt);
    }
    *stmts = out;
}

/// A value of a vector loop.
struct Defined {
    op: Op,
    /// Loops inside of the vector loop around it.
    around: Vec<(KernelLoopKind, Axis)>,
}

/// Looks up what factors of sums are made of in a vector loop; returns what fills the tables.
fn tables(kernel: &mut Kernel, inner: &mut Loop, lanes: u32) -> Vec<Stmt> {
    let mut values = BTreeMap::new();
    define(&inner.body, &mut Vec::new(), &mut values);
    let mut factors = BTreeSet::new();
    visit(&inner.body, &mut |stmt| {
        if let Stmt::Act(Act::MulAdd { factors: both, .. }) = stmt {
            factors.extend(both);
        }
    });
    let mut filled = Vec::new();
    for factor in factors {
        let Some(table) = Table::of(kernel, inner, &values, factor, lanes) else { continue };
        filled.push(table.fill(kernel, inner, &values));
        let (mem, by) = (Id::new(kernel.mems.len() - 1), table.by);
        let first = vec![table.number() * i64::from(lanes)];
        visit_mut(&mut inner.body, &mut |stmt| {
            if let Stmt::Act(Act::Let { val, op }) = stmt
                && *val == factor
            {
                *op = Op::Lookup { mem, first: first.clone(), count: lanes, by };
            }
        });
    }
    filled
}

/// Collects the values of a loop that are defined once for each time that it runs, whatever holds.
fn define(stmts: &[Stmt], around: &mut Vec<(KernelLoopKind, Axis)>, values: &mut BTreeMap<Val, Defined>) {
    for stmt in stmts {
        match stmt {
            Stmt::Act(Act::Let { val, op }) => {
                values.insert(*val, Defined { op: op.clone(), around: around.clone() });
            }
            Stmt::Loop(inner) => {
                around.push((inner.kind, Axis { var: inner.var, extent: inner.extent }));
                define(&inner.body, around, values);
                around.pop();
            }
            Stmt::If { .. } | Stmt::Act(_) => {}
        }
    }
}

/// A table for a value.
struct Table {
    value: Val,
    /// The integer that the value is made of, apart from what lanes have in common; and one with the same lowest bits.
    integer: Val,
    by: Val,
    /// What the value is made of besides, and itself, in order.
    made_of: Vec<Val>,
    /// Loops that are written out, for each of whose iterations there is a table.
    over: Vec<Axis>,
    lanes: u32,
}

impl Table {
    fn of(
        kernel: &Kernel,
        inner: &Loop,
        values: &BTreeMap<Val, Defined>,
        value: Val,
        lanes: u32,
    ) -> Option<Table> {
        let all = parts(values, value, None);
        let is_few = |val: &Val| {
            kernel.vals[*val] == Dtype::I32
                && range(values, *val).is_some_and(|(least, most)| 0 <= least && most < i64::from(lanes))
        };
        // The last one: more operations are in the table.
        let integer = all.iter().copied().filter(is_few).rfind(|val| {
            let inside = parts(values, *val, None);
            inside.iter().any(|val| syms(values, *val).contains(&inner.var))
        })?;
        let made_of = parts(values, value, Some(integer));
        let is_entry = |val: &Val| match &values[val].op {
            Op::Load { mem, guard, .. } => guard.is_empty() && kernel.mems[*mem].space.is_only_read(),
            Op::Const(_) | Op::Index(_) | Op::Call(..) | Op::Cast(_) | Op::Round(..) | Op::Bitcast(_) => true,
            Op::Cond(_) | Op::Transposed { .. } | Op::Lookup { .. } => false,
        };
        let is_operation = |val: &&Val| matches!(values[val].op, Op::Call(..) | Op::Cast(_) | Op::Round(..));
        let around = &values[&value].around;
        let used: BTreeSet<Sym> = made_of.iter().flat_map(|val| syms(values, *val)).collect();
        let lane = if let KernelLoopKind::Vector { lane, .. } = inner.kind { lane } else { None };
        let mut vectors = inner.extent.as_int().map_or(LEAST_VECTORS, |n| n.div_euclid(i64::from(lanes)));
        let mut over = Vec::new();
        for (kind, axis) in around {
            match (used.contains(&axis.var), kind, axis.extent.as_int()) {
                (true, KernelLoopKind::Unroll, Some(_)) => over.push(*axis),
                (true, ..) => return None,
                (false, _, extent) => vectors = vectors.saturating_mul(extent.unwrap_or(1)),
            }
        }
        let is_common = !used.contains(&inner.var) && lane.is_none_or(|lane| !used.contains(&lane));
        let is_whole = kernel.vals[value] == Dtype::F32 && made_of.iter().all(is_entry);
        let operations = made_of.iter().filter(is_operation).count();
        if !is_common || !is_whole || operations < LEAST_OPERATIONS || vectors < LEAST_VECTORS {
            return None;
        }
        Some(Table { value, integer, by: unmasked(values, integer, lanes), made_of, over, lanes })
    }

    /// Which of the tables an iteration looks in.
    fn number(&self) -> Expr {
        self.over.iter().fold(Expr::zero(), |at, axis| at * axis.extent + Expr::sym(axis.var))
    }

    /// Declares the memory and gives the statement that fills it.
    fn fill(&self, kernel: &mut Kernel, inner: &Loop, values: &BTreeMap<Val, Defined>) -> Stmt {
        let lanes = i64::from(self.lanes);
        let mut name = "table".to_owned();
        while kernel.mems.values().any(|data| data.name == name) {
            name.push('_');
        }
        let extent = self.over.iter().fold(Expr::int(lanes), |extent, axis| extent * axis.extent);
        let mem = kernel.mems.push(MemData::flat(name, Dtype::F32, extent, MemorySpace::Register));
        let entry = Sym::new(&format!("{}_entry", inner.var.name()));
        let mut body = Vec::new();
        let mut define = |kernel: &mut Kernel, ty, op| {
            let val = kernel.vals.push(ty);
            body.push(Stmt::Act(Act::Let { val, op }));
            val
        };
        let number = define(kernel, Dtype::I64, Op::Index(Expr::sym(entry)));
        let number = define(kernel, Dtype::I32, Op::Cast(number));
        let mut copies = BTreeMap::from([(self.integer, number)]);
        for &val in &self.made_of {
            let mut op = values[&val].op.clone();
            // What is made outside of the loop is there before it.
            op.each_part_mut(&mut |part| {
                if let PartMut::Val(operand) = part {
                    *operand = copies.get(operand).copied().unwrap_or(*operand);
                }
            });
            copies.insert(val, define(kernel, kernel.vals[val], op));
        }
        let (index, value) = (vec![self.number() * lanes + Expr::sym(entry)], copies[&self.value]);
        body.push(Stmt::Act(Act::Store {
            mem,
            index,
            value,
            combine: None,
            guard: Vec::new(),
            atomic: false,
        }));
        let all =
            Loop { kind: KernelLoopKind::vector(self.lanes, 1), var: entry, extent: Expr::int(lanes), body };
        self.over.iter().rev().fold(Stmt::Loop(all), |stmt, axis| {
            Stmt::Loop(Loop {
                kind: KernelLoopKind::Unroll,
                var: axis.var,
                extent: axis.extent,
                body: vec![stmt],
            })
        })
    }
}

/// What a value is made of in the loop, itself included, in order; without what only `left_out` is made of, and without that.
fn parts(values: &BTreeMap<Val, Defined>, value: Val, left_out: Option<Val>) -> Vec<Val> {
    let (mut parts, mut next) = (BTreeSet::new(), vec![value]);
    while let Some(val) = next.pop() {
        if Some(val) != left_out && parts.insert(val) {
            let Some(Defined { op, .. }) = values.get(&val) else { continue };
            op.each_part(&mut |part| {
                if let Part::Val(&operand) = part {
                    next.push(operand);
                }
            });
        }
    }
    parts.into_iter().filter(|val| values.contains_key(val)).collect()
}

/// Symbols that an operation mentions itself.
fn syms(values: &BTreeMap<Val, Defined>, val: Val) -> BTreeSet<Sym> {
    let Some(Defined { op, .. }) = values.get(&val) else { return BTreeSet::new() };
    let stmt = Stmt::Act(Act::Let { val, op: op.clone() });
    stmt.exprs().iter().flat_map(|e| e.syms()).collect()
}

/// The least and the greatest value of an integer, where that is known.
fn range(values: &BTreeMap<Val, Defined>, val: Val) -> Option<(i64, i64)> {
    let op = &values.get(&val)?.op;
    if let Op::Const(Scalar::Int(value)) = op {
        return Some((*value, *value));
    }
    let Op::Call(ScalarOp::And, args) = op else { return None };
    let ranges = args.iter().filter_map(|&arg| range(values, arg));
    ranges.filter(|all| all.0 >= 0).map(|all| (0, all.1)).min_by_key(|all| all.1)
}

/// A value with the same lowest bits as an integer: without a mask that leaves them.
fn unmasked(values: &BTreeMap<Val, Defined>, val: Val, lanes: u32) -> Val {
    let low = i64::from(lanes) - 1;
    let Some(Defined { op: Op::Call(ScalarOp::And, args), .. }) = values.get(&val) else { return val };
    let &[a, b] = &args[..] else { return val };
    let keeps = |val: Val| {
        let op = values.get(&val).map(|defined| &defined.op);
        matches!(op, Some(Op::Const(Scalar::Int(mask))) if mask & low == low)
    };
    match (keeps(a), keeps(b)) {
        (_, true) => a,
        (true, false) => b,
        (false, false) => val,
    }
}
