//! Replaces `mma` loops by the target's instructions for dot products and products of matrices.
//!
//! ```text
//! mma kk in 2 { %0 = load x[2*k + kk]; %1 = load w[2*j + kk]; acc[j] fma= %0, %1 }
//!   =>  acc[j] dot.bf16.2= x[2*k] by w[2*j] and x[2*k + 1] by w[2*j + 1]
//! ```
//!
//! A loop of reduced points alone is a dot product. Loops of rows, columns and reduced points are a product of matrices,
//! together with the loops around that add to the same sums, and with the nest that sets the sums to zero before: whatever
//! adds up in registers of its own has to be told when it begins and ends.
//!
//! What fits no instruction of the target is an error: a loop in its place would be slow, and found by nobody.

use super::Pass;
use litz_ir::kernel::{
    Act, Dot, Element, Kernel, KernelLoopKind, Loop, Matrix, MatrixProduct, Mem, MemorySpace, Op, Stmt, Val,
    position, visit,
};
use litz_ir::loops::Axis;
use litz_ir::target::{Instruction, Level, Target};
use litz_ir::{Diag, Dtype, ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Facts, Rel, Sym};

/// The pass.
pub const PASS: Pass = Pass { name: "tensorize", run };

/// Replaces the loops.
///
/// # Errors
/// `no-instruction`, saying which loop fits none, and why.
fn run(kernel: &mut Kernel, target: &Target) -> Result<(), Diag> {
    let mut has_some = false;
    visit(&kernel.body, &mut |stmt| {
        has_some |= matches!(stmt, Stmt::Loop(Loop { kind: KernelLoopKind::Mma { .. }, .. }))
    });
    if !has_some {
        return Ok(());
    }
    let mut facts = kernel.facts.clone();
    kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let body = std::mem::take(&mut kernel.body);
    kernel.body = Tensorizer { kernel, target, facts, is_in_vector: false }.block(body)?;
    Ok(())
}

/// Why something fits no instruction.
type Misfit = String;

struct Tensorizer<'a> {
    kernel: &'a Kernel,
    target: &'a Target,
    facts: Facts,
    /// Whether a loop around is a vector.
    is_in_vector: bool,
}

impl Tensorizer<'_> {
    fn block(&mut self, stmts: Vec<Stmt>) -> Result<Vec<Stmt>, Diag> {
        let mut out = Vec::with_capacity(stmts.len());
        let mut rest = stmts.into_iter().peekable();
        while let Some(stmt) = rest.next() {
            let fill = Fill::of(&stmt);
            if let Some(fill) = &fill
                && let Some(product) = rest.peek().and_then(|next| self.matrix_product(next).ok())
                && self.starts(fill, &product)
            {
                rest.next();
                out.push(Stmt::Act(Act::MatrixProduct(MatrixProduct { is_from_zero: true, ..product })));
                continue;
            }
            out.push(match fill {
                Some(fill) => self.filled(fill),
                None => self.stmt(stmt)?,
            });
        }
        Ok(out)
    }

    fn stmt(&mut self, mut stmt: Stmt) -> Result<Stmt, Diag> {
        let product = self.matrix_product(&stmt);
        let Stmt::Loop(inner) = &mut stmt else {
            for block in stmt.blocks_mut() {
                *block = self.block(std::mem::take(block))?;
            }
            return Ok(stmt);
        };
        match (inner.kind, product) {
            (_, Ok(product)) => return Ok(Stmt::Act(Act::MatrixProduct(product))),
            (KernelLoopKind::Mma { .. }, Err(misfit)) => {
                let dot = if starts_mma(&inner.body) { Err(misfit) } else { self.dot(inner) };
                let refused = |misfit| {
                    let place = format!("kernel @{}: loop {}", self.kernel.name, inner.var);
                    Diag::new("no-instruction", format!("{place}: {misfit}"))
                };
                return dot.map(|dot| Stmt::Act(Act::Dot(dot))).map_err(refused);
            }
            (
                KernelLoopKind::For
                | KernelLoopKind::Unroll
                | KernelLoopKind::Pipeline { .. }
                | KernelLoopKind::Level(_)
                | KernelLoopKind::Chain
                | KernelLoopKind::Search
                | KernelLoopKind::Vector { .. },
                Err(_),
            ) => {}
        }
        let around = self.is_in_vector;
        self.is_in_vector |= matches!(inner.kind, KernelLoopKind::Vector { .. });
        self.facts.declare_index(inner.var, inner.extent);
        inner.body = self.block(std::mem::take(&mut inner.body))?;
        self.is_in_vector = around;
        Ok(stmt)
    }

    /// A nest that sets sums: its innermost loop as a vector, the others one after the other.
    fn filled(&self, fill: Fill) -> Stmt {
        let lanes = self.target.width(Level::Lane).max(1);
        let mut kind = if self.is_in_vector { KernelLoopKind::For } else { KernelLoopKind::vector(lanes, 1) };
        let mut body = fill.body;
        for Axis { var, extent } in fill.extents.into_iter().rev() {
            body = vec![Stmt::Loop(Loop { kind, var, extent, body })];
            kind = KernelLoopKind::For;
        }
        body.remove(0)
    }

    /// Whether a nest sets all sums of a product to zero. What it sets beside them is padding, which nothing reads: the
    /// loops of a tile that is not whole end where the tile does.
    fn starts(&self, fill: &Fill, product: &MatrixProduct) -> bool {
        let [row, column] = ["matrix.row", "matrix.column"].map(Sym::new);
        let Some((mem, index)) = fill.zeroed() else { return false };
        let [Axis { var: i, extent: rows }, Axis { var: j, extent: columns }] = fill.extents[..] else {
            return false;
        };
        let covers = |all: Expr, part: Expr| self.facts.holds(&Rel::le(part, all));
        let is_sum = |[i, j]: [Sym; 2]| {
            let place = product.sum.place(Expr::sym(row), Expr::sym(column));
            place.replace(row, Expr::sym(i)).replace(column, Expr::sym(j)) == index
        };
        let is_along = is_sum([i, j]) && covers(rows, product.rows) && covers(columns, product.columns);
        let is_across = is_sum([j, i]) && covers(columns, product.rows) && covers(rows, product.columns);
        mem == product.sum.mem && (is_along || is_across)
    }

    /// The products that a body adds up, if it does nothing else.
    fn products(&self, body: &[Stmt]) -> Result<Products, Misfit> {
        let defined = |val: Val| {
            body.iter().find_map(|stmt| match stmt {
                Stmt::Act(Act::Let { val: own, op }) if *own == val => Some(op),
                Stmt::Act(_) | Stmt::Loop(_) | Stmt::If { .. } => None,
            })
        };
        let (last, lets) = body.split_last().ok_or("its body is empty")?;
        let is_let = |stmt: &Stmt| matches!(stmt, Stmt::Act(Act::Let { .. }));
        let sum = match last {
            Stmt::Act(Act::MulAdd { mem, index, factors, guard }) => Some((*mem, index, *factors, guard)),
            Stmt::Act(Act::Store {
                mem,
                index,
                value,
                combine: Some(ReduceOp::Sum),
                guard,
                atomic: false,
            }) => match defined(*value) {
                Some(Op::Call(ScalarOp::Mul, factors)) => match factors[..] {
                    [a, b] => Some((*mem, index, [a, b], guard)),
                    _ => None,
                },
                _ => None,
            },
            Stmt::Act(_) | Stmt::Loop(_) | Stmt::If { .. } => None,
        };
        let Some((mem, index, factors, guard)) = sum.filter(|_| lets.iter().all(is_let)) else {
            return Err("its body is not two loads and the sum of their products".into());
        };
        if !guard.is_empty() {
            return Err("its body does not add up the products everywhere".into());
        }
        let sums = self.kernel.mems[mem].dtype;
        let factor = |val: Val| -> Result<Element, Misfit> {
            if self.kernel.vals[val] != sums {
                return Err(format!("its factors are not converted to {sums}, which they are added up as"));
            }
            // An element as it is in memory, or converted.
            let loaded = match defined(val) {
                Some(Op::Cast(from)) => defined(*from),
                other => other,
            };
            let Some(Op::Load { mem, index, guard, other }) = loaded else {
                return Err("its factors are not elements that it loads".into());
            };
            if !guard.is_empty() && !matches!(other, Scalar::Int(0)) && *other != Scalar::Float(0.0) {
                return Err("where its guard fails, a factor is not zero".into());
            }
            Ok(Element { mem: *mem, index: index.clone(), guard: guard.clone() })
        };
        // In the order of their loads.
        let place = |val: Val| {
            lets.iter().position(|stmt| matches!(stmt, Stmt::Act(Act::Let { val: own, .. }) if *own == val))
        };
        let [a, b] = factors;
        let factors = if place(b) < place(a) { [factor(b)?, factor(a)?] } else { [factor(a)?, factor(b)?] };
        let [left, right] = factors.each_ref().map(|factor| self.kernel.mems[factor.mem].dtype);
        if left != right {
            return Err(format!("its factors are {left} and {right} in memory"));
        }
        Ok(Products { factors, mem, index: index.clone(), types: [left, sums] })
    }

    /// The instruction that takes products of a type and adds them up in another, with one row or with several.
    fn instruction(
        &self,
        [dtype, sums]: [Dtype; 2],
        has_rows: bool,
        depth: i64,
    ) -> Result<&'static Instruction, Misfit> {
        let takes = |by: &&Instruction| {
            let is_deep = (1..=i64::from(by.depth)).contains(&depth) && depth % i64::from(by.group) == 0;
            let is_of_types = by.dtype == dtype && by.sums == sums && !by.rounds;
            by.is_mma() && is_of_types && (by.rows > 1) == has_rows && is_deep
        };
        let shape = if has_rows { "matrices" } else { "vectors" };
        self.target.instructions().iter().find(takes).ok_or_else(|| {
            format!(
                "{} has no instruction for products of {shape} of {dtype} in {sums}, {depth} points deep",
                self.target
            )
        })
    }

    /// A loop of reduced points as a dot product.
    fn dot(&self, inner: &Loop) -> Result<Dot, Misfit> {
        let Products { factors, mem, index, types } = self.products(&inner.body)?;
        let depth = inner.extent.as_int().ok_or("its extent is not constant")?;
        if index.iter().any(|at| at.has_sym(inner.var)) {
            return Err("its iterations add to different sums".into());
        }
        let by = self.instruction(types, false, depth)?;
        let term = |n: i64| {
            let at = |e: &Expr| e.replace(inner.var, Expr::int(n));
            factors.each_ref().map(|Element { mem, index, guard }| Element {
                mem: *mem,
                index: index.iter().map(at).collect(),
                guard: guard.iter().map(|r| Rel { cmp: r.cmp, lhs: at(&r.lhs), rhs: at(&r.rhs) }).collect(),
            })
        };
        Ok(Dot { by, mem, index, terms: (0..depth).map(term).collect() })
    }

    /// Loops of rows, columns and reduced points, and loops around that add to the same sums, as a product of matrices.
    fn matrix_product(&self, stmt: &Stmt) -> Result<MatrixProduct, Misfit> {
        if self.is_in_vector {
            return Err("it is inside of a vector loop".into());
        }
        let mut facts = std::borrow::Cow::Borrowed(&self.facts);
        let (mut over, mut units) = (Vec::new(), Vec::new());
        let mut body = std::slice::from_ref(stmt);
        while let [Stmt::Loop(Loop { kind, var, extent, body: inner })] = body {
            let axis = Axis { var: *var, extent: *extent };
            match kind {
                KernelLoopKind::For if units.is_empty() => over.push(axis),
                KernelLoopKind::Mma { .. } => units.push(axis),
                KernelLoopKind::For
                | KernelLoopKind::Unroll
                | KernelLoopKind::Pipeline { .. }
                | KernelLoopKind::Level(_)
                | KernelLoopKind::Chain
                | KernelLoopKind::Search
                | KernelLoopKind::Vector { .. } => {
                    return Err("it is no product of matrices".into());
                }
            }
            facts.to_mut().declare_index(*var, *extent);
            body = inner;
        }
        let [_, _, _] = units[..] else {
            return Err(format!("{} loops are not rows, columns and reduced points", units.len()));
        };
        let Products { factors: [a, b], mem, index, types } = self.products(body)?;
        // The instructions load whole tiles by address: registers have none, and a guard would have to hold for each element.
        let is_in_registers = |mem: &Mem| self.kernel.mems[*mem].space == MemorySpace::Register;
        if [mem, a.mem, b.mem].iter().any(is_in_registers) || !a.guard.is_empty() || !b.guard.is_empty() {
            return Err("matrices are in memory, and whole".into());
        }
        let [a_index, b_index, sum] = [&a.index, &b.index, &index].map(|index| position(index));
        if over.iter().any(|axis| sum.has_sym(axis.var)) {
            return Err("loops around it add to other sums".into());
        }
        let (sides, depth): (Vec<Axis>, Vec<Axis>) = units.iter().partition(|unit| sum.has_sym(unit.var));
        let (&[mut row, mut column], &[depth]) = (&sides[..], &depth[..]) else {
            return Err("it has no rows, columns and reduced points".into());
        };
        // The columns of the sums are adjacent.
        if sum.linear(row.var).is_some_and(|(step, _)| step.is_one()) {
            (row, column) = (column, row);
        }
        let is_left = |e: Expr| e.has_sym(row.var) && !e.has_sym(column.var);
        let is_right = |e: Expr| e.has_sym(column.var) && !e.has_sym(row.var);
        let [(left_mem, left), (right_mem, right)] = match () {
            () if is_left(a_index) && is_right(b_index) => [(a.mem, a_index), (b.mem, b_index)],
            () if is_left(b_index) && is_right(a_index) => [(b.mem, b_index), (a.mem, a_index)],
            () => return Err("one factor varies along rows, the other one along columns".into()),
        };
        let points = depth.extent.as_int().ok_or("its number of reduced points is not constant")?;
        let by = self.instruction(types, true, points)?;
        let size = i64::from(by.group);
        let [group, element] = ["matrix.group", "matrix.element"].map(Sym::new);
        let facts = facts.to_mut();
        facts.declare_index(group, Expr::int(points / size));
        facts.declare_index(element, Expr::int(size));
        // The instruction takes `group` reduced points of a column from adjacent elements of the right operand.
        let grouped = right.replace(depth.var, Expr::sym(group) * size + Expr::sym(element));
        let grouped = facts.simplify(grouped).linear(element).filter(|(step, _)| step.is_one());
        let units = [row.var, column.var, depth.var, group];
        let matrix = |mem: Mem, place: Expr, row: Sym, inner: Sym, step: i64| -> Option<Matrix> {
            let (across, rest) = place.linear(inner)?;
            let (step_of_rows, first) = rest.linear(row)?;
            let is_fixed = |e: Expr| !units.iter().any(|&unit| e.has_sym(unit));
            let is_fit = across.as_int() == Some(step) && is_fixed(step_of_rows) && is_fixed(first);
            is_fit.then_some(Matrix { mem, first, step: step_of_rows })
        };
        let sum = matrix(mem, sum, row.var, column.var, 1).ok_or("its sums are no matrix")?;
        let left = matrix(left_mem, left, row.var, depth.var, 1).ok_or("its left operand is no matrix")?;
        let right = grouped.and_then(|(_, place)| matrix(right_mem, place, group, column.var, size));
        let right =
            right.ok_or_else(|| format!("its right operand does not have {size} points side by side"))?;
        Ok(MatrixProduct {
            by,
            sum,
            left,
            right,
            rows: row.extent,
            columns: column.extent,
            depth: points as u32,
            over,
            is_from_zero: false,
        })
    }
}

/// What the body of `mma` loops adds up.
struct Products {
    factors: [Element; 2],
    mem: Mem,
    index: Vec<Expr>,
    /// Types of the factors in memory, and of the sums.
    types: [Dtype; 2],
}

/// Whether a number is the zero that sums begin at.
fn is_zero(number: &Scalar) -> bool {
    match number {
        Scalar::Float(number) => number.to_bits() == 0,
        Scalar::Int(number) => *number == 0,
        Scalar::Bool(_) => false,
    }
}

/// Whether a body is an `mma` loop.
fn starts_mma(body: &[Stmt]) -> bool {
    matches!(body, [Stmt::Loop(Loop { kind: KernelLoopKind::Mma { .. }, .. })])
}

/// A nest of `mma` loops that sets elements to a constant.
struct Fill {
    extents: Vec<Axis>,
    body: Vec<Stmt>,
}

impl Fill {
    fn of(stmt: &Stmt) -> Option<Fill> {
        let mut extents = Vec::new();
        let mut body = std::slice::from_ref(stmt);
        while let [Stmt::Loop(Loop { kind: KernelLoopKind::Mma { .. }, var, extent, body: inner })] = body {
            extents.push(Axis { var: *var, extent: *extent });
            body = inner;
        }
        let is_fill = matches!(
            body,
            [Stmt::Act(Act::Let { op: Op::Const(_), .. }), Stmt::Act(Act::Store { combine: None, .. })]
        );
        (is_fill && !extents.is_empty()).then(|| Fill { extents, body: body.to_vec() })
    }

    /// The element that it sets to zero.
    fn zeroed(&self) -> Option<(Mem, Expr)> {
        match &self.body[..] {
            [
                Stmt::Act(Act::Let { val, op: Op::Const(zero) }),
                Stmt::Act(Act::Store { mem, index, value, guard, .. }),
            ] if is_zero(zero) && val == value && guard.is_empty() => Some((*mem, position(index))),
            _ => None,
        }
    }
}
