//! Chooses between registers and scratch memory for the local buffers and accumulators of a kernel, by their sizes.
//!
//! A single element is best kept in a register. Arrays that register tiles want in registers may be larger than these, or of a size that is
//! known at run time alone: they live in scratch memory.

use litz_analysis::footprint::{Footprints, Program, simplest};
use litz_ir::loops::{Buf, Loops, Nest, Stmt};
use litz_ir::schedule::{Holds, KernelPlan, Layout, LocalSpace, Tree};
use litz_ir::target::Target;
use litz_sym::Expr;
use std::collections::HashMap;

/// Nests and buffers of a program by name.
pub struct Names<'a> {
    loops: &'a Loops,
    nests: HashMap<&'a str, &'a Nest>,
    bufs: HashMap<&'a str, Buf>,
}

impl<'a> Names<'a> {
    /// Indexes the nests and buffers of a program by their names.
    pub fn of(loops: &'a Loops) -> Names<'a> {
        let nests = loops.stmts.iter().flat_map(Stmt::nests).map(|nest| (&*nest.name, nest)).collect();
        let bufs = loops.bufs.iter().map(|(buf, data)| (&*data.name, buf)).collect();
        Names { loops, nests, bufs }
    }
}

/// Chooses for all that a finished plan declares in registers or scratch memory.
pub fn choose(plan: &mut KernelPlan, names: &Names<'_>, target: &Target) {
    if plan.locals().is_empty() {
        return;
    }
    let simple = simplest(plan, &names.loops.facts);
    let program = Program { loops: names.loops, nests: &names.nests, bufs: &names.bufs };
    let footprints = Footprints::new(program, &simple);
    let mut chosen = Vec::new();
    for (number, local) in footprints.locals().enumerate() {
        let is_buffer = !matches!(local.holds, Holds::Accumulator(_));
        let is_open = match local.space {
            LocalSpace::Register => true,
            LocalSpace::Scratch => is_buffer,
            LocalSpace::Shared | LocalSpace::Cluster | LocalSpace::Global => false,
        };
        let elements = if is_open { footprints.elements(number).ok().flatten() } else { None };
        let extent = elements.map(|elements| elements.extent());
        chosen.push(extent.map(|extent| match local.space {
            LocalSpace::Register if is_held(extent, target) => LocalSpace::Register,
            LocalSpace::Scratch if extent.is_one() => LocalSpace::Register,
            LocalSpace::Register | LocalSpace::Scratch => LocalSpace::Scratch,
            LocalSpace::Shared | LocalSpace::Cluster | LocalSpace::Global => local.space,
        }));
    }
    let mut chosen = chosen.into_iter();
    plan.body.iter_mut().for_each(|tree| {
        tree.visit_mut(&mut |tree| {
            if let Tree::Local(local) = tree
                && let Some(space) = chosen.next().flatten()
                && space != local.space
            {
                local.space = space;
                if space == LocalSpace::Register {
                    local.layout = Layout::Dense;
                }
            }
        });
    });
}

/// Whether an array of so many elements, of any type, is one that registers hold.
fn is_held(extent: Expr, target: &Target) -> bool {
    extent.as_int().is_some_and(|n| n <= target.register_elements(1))
}
