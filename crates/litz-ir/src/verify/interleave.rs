//! Decides whether the unrolled copies of a vector loop's body may be interleaved, and says what prevents it.

use crate::kernel::{Act, Kernel, KernelLoopKind, Loop, Mem, MemorySpace, Stmt};
use litz_sym::{Expr, Sym};

/// Says what prevents copies from being interleaved, if anything does.
///
/// Copies may be interleaved where each is one stretch of instructions, without branches and loops, and where no iteration in
/// flight accesses an element that another one stores: whatever an iteration stores is an element of its own, or of its
/// lane, and what else is accessed of that memory is out of reach of the loop.
pub fn obstacle(kernel: &Kernel, inner: &Loop) -> Option<String> {
    let private = kernel.private_registers(inner);
    for stmt in &inner.body {
        let is_straight = match stmt {
            Stmt::Act(Act::Let { .. } | Act::MulAdd { .. } | Act::ArgStore { .. }) => true,
            Stmt::Act(Act::Store { atomic, .. }) => !atomic,
            Stmt::Act(Act::Prefetch { guard, .. }) => guard.is_empty(),
            Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => false,
        };
        if !is_straight {
            return Some("there is more in it than loads, operations and stores".to_string());
        }
        for (mem, index) in stmt.stored().filter(|(mem, _)| !private.contains(mem)) {
            let obstacle = meeting(kernel, inner, mem, index);
            if obstacle.is_some() {
                return obstacle;
            }
        }
    }
    None
}

/// How iterations in flight may meet at an element that each stores.
fn meeting(kernel: &Kernel, inner: &Loop, mem: Mem, index: &[Expr]) -> Option<String> {
    let data = kernel.mems.get(mem)?;
    let place = data.place(index);
    let stride =
        |var: Sym| place.linear(var).and_then(|(stride, _)| stride.as_int()).filter(|&stride| stride != 0);
    let (lane, in_flight) = match inner.kind {
        KernelLoopKind::Vector { lanes, copies, lane, .. } => (lane, i64::from(lanes) * i64::from(copies)),
        KernelLoopKind::For
        | KernelLoopKind::Unroll
        | KernelLoopKind::Level(_)
        | KernelLoopKind::Chain
        | KernelLoopKind::Pipeline { .. }
        | KernelLoopKind::Search
        | KernelLoopKind::Mma { .. } => (None, 1),
    };
    let (stride, extent) = match (stride(inner.var), lane.and_then(stride)) {
        // Registers that the loop's own variable indexes are those of a loop that is written out.
        (Some(stride), None) if data.space != MemorySpace::Register => (stride, inner.extent.as_int()),
        (None, Some(stride)) if !place.has_sym(inner.var) => (stride, Some(in_flight)),
        (Some(_), Some(_) | None) | (None, Some(_) | None) => {
            return Some(format!("an element of `{}` is not known to be that of one iteration", data.name));
        }
    };
    // Where another access is a constant distance away, an iteration so many later gets there.
    let meets = |other: &[Expr]| {
        let is_within = |iterations: i64| extent.is_none_or(|extent| iterations.abs() < extent);
        let apart = (data.place(other) - place).as_int();
        apart.is_none_or(|apart| apart != 0 && apart % stride == 0 && is_within(apart / stride))
    };
    let mut others = inner.body.iter().flat_map(Stmt::accesses).filter(|access| access.0 == mem);
    let is_met = others.any(|(_, other)| meets(other));
    is_met.then(|| format!("an iteration accesses what another one stores to `{}`", data.name))
}
