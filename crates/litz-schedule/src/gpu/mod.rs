//! Lists the families of kernels for GPUs.
//!
//! Threads take points each, also those that all nests of a region share; warps or blocks take rows and columns that are reduced, blocks take
//! rows that are scanned and tiles of contractions, and parts of what scatters store to are those of different blocks. Nests whose points
//! depend on each other along every axis run in order on one thread.

mod attend;
mod blocks;
mod columns;
mod product;
mod region;
mod rows;
mod runs;
mod scatter;
mod stage;
mod threads;
mod transpose;
mod turns;
mod windows;

use litz_analysis::access::substitute;
use litz_analysis::contraction::Columns;
use litz_ir::ScalarOp;
use litz_ir::loops::{Axis, Buf, InstOp, Nest, Span};
use litz_ir::schedule::{Holds, Layout, Local, LocalSpace, LoopKind, Tree};
use litz_sym::{Expr, Sym};

use crate::context::Cx;
use crate::draft::{Draft, Machine};
use crate::group::{Group, beside_axes};
use crate::in_order::InOrder;
use crate::join::alone;
use crate::region::Shared;
use product::Product;
use rows::Rows;
use threads::Threads;

/// The families for GPUs.
pub struct Gpus;

impl Machine for Gpus {
    fn contraction(&self, cx: &Cx<'_>, nest: &Nest) -> Option<Columns> {
        product::columns_of(cx, nest)
    }

    fn alone(&self, cx: &Cx<'_>, s: usize) -> Draft {
        let info = &cx.deps.stmts[s];
        let group = alone(cx, s);
        let product = cx.contractions[s].as_ref().and_then(|columns| Product::new(cx, &group, columns));
        if let Some(product) = product {
            return Draft::new(group, info.at_load, product);
        }
        if let Some(scatter) = scatter::form(cx, s) {
            return scatter;
        }
        if let Some(rows) = rows::rows_of_runs(cx, s) {
            return Draft::new(rows, info.at_load, Rows);
        }
        if rows::reduces_rows(cx, s, &group) {
            return Draft::new(group, info.at_load, Rows);
        }
        if columns::reduces_columns(cx, s, &group) {
            return Draft::new(group, info.at_load, columns::Columns);
        }
        match group.outer.iter().any(|axis| !axis.extent.is_one()) {
            true => Draft::new(group, info.at_load, Threads),
            false => InOrder::nest(cx, s),
        }
    }

    fn region(&self, cx: &Cx<'_>, region: &Span) -> Draft {
        let shared = Shared::of(cx, region);
        attend::form(cx, &shared).unwrap_or_else(|| region::form(region, shared))
    }

    fn gathers(&self, cx: &Cx<'_>, s: usize) -> bool {
        product::gathers(cx, s)
    }

    fn pack(&self, cx: &Cx<'_>, packing: &Draft, product: &Draft) -> Option<Draft> {
        product::pack(cx, packing, product)
    }

    fn repeat_row(&self, cx: &Cx<'_>, row: &Draft, rows: &Draft) -> Option<Draft> {
        rows::repeat_row(cx, row, rows)
    }
}

/// The points that members of a group share, each axis by itself: of the digits of tiles that go over several too little can be proved.
struct Apart {
    /// The axes, without those of one point.
    axes: Vec<Axis>,
    /// The group's axes in terms of these.
    values: Vec<(Sym, Expr)>,
}

impl Apart {
    /// Those of a group. None where an axis of a member is neither one of them nor a number.
    fn of(cx: &Cx<'_>, group: &Group) -> Option<Apart> {
        let (mut axes, mut values) = (Vec::new(), Vec::new());
        for (i, axis) in group.outer.iter().enumerate() {
            if axis.extent.is_one() {
                values.push((axis.var, Expr::zero()));
                continue;
            }
            let var = beside_axes(cx.loops, group, &format!("g{i}"));
            axes.push(Axis { var, extent: axis.extent });
            values.push((axis.var, Expr::sym(var)));
        }
        let is_plain = |value: Expr| value.as_int().is_some() || value.as_sym().is_some();
        let mut bound = group.members.iter().flat_map(|member| &member.bind);
        bound.all(|bind| is_plain(substitute(bind.1, &values))).then_some(Apart { axes, values })
    }
}

/// What members of a group alone store and read.
fn passed_on(cx: &Cx<'_>, group: &Group) -> Vec<Buf> {
    let is_inside = |s: &usize| group.members.iter().any(|member| member.stmt == *s);
    let mut passed: Vec<Buf> = Vec::new();
    for &buf in group.members.iter().flat_map(|member| &cx.deps.stmts[member.stmt].writes) {
        if !cx.deps.escapes[buf] && cx.deps.users[buf].iter().all(is_inside) && !passed.contains(&buf) {
            passed.push(buf);
        }
    }
    passed
}

/// Registers for what members of a group alone store and read: at a point that a thread has.
fn registers(cx: &Cx<'_>, group: &Group) -> Vec<Tree> {
    passed_on(cx, group).into_iter().map(|buf| register(cx, buf)).collect()
}

/// Registers for a buffer.
fn register(cx: &Cx<'_>, buf: Buf) -> Tree {
    let holds = Holds::Buffer(cx.loops.bufs[buf].name.clone());
    Tree::Local(Local { holds, space: LocalSpace::Register, layout: Layout::Dense })
}

/// A loop of so many iterations.
fn looped(kind: LoopKind, var: Sym, extent: i64, body: Vec<Tree>) -> Tree {
    Tree::Loop { kind, axis: Axis { var, extent: Expr::int(extent) }, body }
}

/// Whether a nest computes with short functions alone, of which a thread with few registers has several under way. What it computes of a sum is one.
fn is_light(nest: &Nest) -> bool {
    let mut insts = nest.body.iter().zip(nest.after_reduce());
    insts.all(|(inst, is_once)| is_once || !matches!(inst.op, InstOp::Op(op, _) if is_long(op)))
}

/// Whether an operation is a function of many steps: eight of these side by side spill up to a kilobyte where a thread has 32 registers, and
/// logarithms of rows that are kept 20 bytes; others spill nothing (2-byte elements, nvJitLink 13.0).
fn is_long(op: ScalarOp) -> bool {
    match op {
        ScalarOp::FloorDiv
        | ScalarOp::Mod
        | ScalarOp::Rem
        | ScalarOp::Pow
        | ScalarOp::Log
        | ScalarOp::Log2
        | ScalarOp::Log10
        | ScalarOp::Log1p
        | ScalarOp::Sin
        | ScalarOp::Cos
        | ScalarOp::Tan
        | ScalarOp::Asin
        | ScalarOp::Acos
        | ScalarOp::Atan
        | ScalarOp::Atan2
        | ScalarOp::Sinh
        | ScalarOp::Cosh
        | ScalarOp::Asinh
        | ScalarOp::Acosh
        | ScalarOp::Atanh
        | ScalarOp::Erfc
        | ScalarOp::Erfinv
        | ScalarOp::Lgamma
        | ScalarOp::Digamma
        | ScalarOp::Nextafter => true,
        ScalarOp::Add
        | ScalarOp::Sub
        | ScalarOp::Mul
        | ScalarOp::Div
        | ScalarOp::Max
        | ScalarOp::Min
        | ScalarOp::Neg
        | ScalarOp::Abs
        | ScalarOp::Sign
        | ScalarOp::Fma
        | ScalarOp::Sqrt
        | ScalarOp::Rsqrt
        | ScalarOp::Exp
        | ScalarOp::Exp2
        | ScalarOp::Expm1
        | ScalarOp::Tanh
        | ScalarOp::Erf
        | ScalarOp::Floor
        | ScalarOp::Ceil
        | ScalarOp::Round
        | ScalarOp::Trunc
        | ScalarOp::Copysign
        | ScalarOp::And
        | ScalarOp::Or
        | ScalarOp::Xor
        | ScalarOp::Not
        | ScalarOp::Shl
        | ScalarOp::Shr
        | ScalarOp::Eq
        | ScalarOp::Ne
        | ScalarOp::Lt
        | ScalarOp::Le
        | ScalarOp::Gt
        | ScalarOp::Ge
        | ScalarOp::Isnan
        | ScalarOp::Isinf
        | ScalarOp::Select => false,
    }
}
