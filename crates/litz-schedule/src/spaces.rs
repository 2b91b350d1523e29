//! Chooses between registers and scratch memory for the local buffers and accumulators of a kernel, by their sizes.
//!
//! A single element is best kept in a register. Arrays that register tiles want in registers may be larger than these, or of a size that is
//! known at run time alone: they live in scratch memory. Of that a thread of a GPU has little, and of a size that is known ahead: buffers that
//! do not fit are no longer local, but lie in memory of the program as if several kernels used them.

use litz_analysis::footprint::{Footprints, Program, simplest};
use litz_analysis::threads::threads_within;
use litz_ir::loops::{Buf, Loops, Nest, Stmt};
use litz_ir::schedule::{Holds, KernelPlan, Layout, LocalSpace, Tree};
use litz_ir::target::Target;
use litz_sym::Expr;
use std::collections::HashMap;

/// Bytes of a buffer in scratch memory of a GPU's thread, at most. A driver keeps scratch memory for all threads that the units can run: a KiB
/// for each of 2048 threads of 132 units is 264 MiB.
const SCRATCH_BYTES: i64 = 1 << 10;

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
    let mut threads = Vec::new();
    threads_of_locals(&plan.body, &mut threads);
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
        let place = extent.map_or(Place::In(local.space), |extent| match local.space {
            LocalSpace::Register if is_held(extent, target) => Place::In(LocalSpace::Register),
            LocalSpace::Scratch if extent.is_one() => Place::In(LocalSpace::Register),
            LocalSpace::Register | LocalSpace::Scratch => match &local.holds {
                Holds::Buffer(name) if !has_scratch(names, name, (extent, threads[number]), target) => {
                    Place::Program
                }
                Holds::Buffer(_) | Holds::Copy { .. } | Holds::Result { .. } | Holds::Accumulator(_) => {
                    Place::In(LocalSpace::Scratch)
                }
            },
            LocalSpace::Shared | LocalSpace::Cluster | LocalSpace::Global => Place::In(local.space),
        });
        chosen.push(place);
    }
    place(&mut plan.body, &mut chosen.into_iter());
}

/// Where a local buffer or an accumulator is to live.
enum Place {
    /// In this memory of the kernel.
    In(LocalSpace),
    /// In memory of the program.
    Program,
}

/// Changes the declarations of a block in the order of the text.
fn place(trees: &mut Vec<Tree>, chosen: &mut impl Iterator<Item = Place>) {
    trees.retain_mut(|tree| {
        if let Tree::Local(local) = tree {
            match chosen.next() {
                Some(Place::Program) => return false,
                Some(Place::In(space)) if space != local.space => {
                    local.space = space;
                    if space == LocalSpace::Register {
                        local.layout = Layout::Dense;
                    }
                }
                Some(Place::In(_)) | None => {}
            }
        }
        tree.blocks_mut().into_iter().for_each(|block| place(block, chosen));
        true
    });
}

/// Of each memory that is declared, in the order of the text, over how many threads it is spread.
fn threads_of_locals(trees: &[Tree], found: &mut Vec<i64>) {
    let threads = trees.iter().map(threads_within).max().unwrap_or(1);
    for tree in trees {
        if matches!(tree, Tree::Local(_)) {
            found.push(threads);
        }
        tree.blocks().into_iter().for_each(|block| threads_of_locals(block, found));
    }
}

/// Whether so many threads have scratch memory for so many elements of a buffer.
fn has_scratch(names: &Names<'_>, name: &str, (extent, threads): (Expr, i64), target: &Target) -> bool {
    let size = names.bufs.get(name).map_or(1, |&buf| names.loops.bufs[buf].dtype.size() as i64);
    target.cpu().is_some()
        || extent.as_int().is_some_and(|n| n.saturating_mul(size) <= SCRATCH_BYTES.saturating_mul(threads))
}

/// Whether an array of so many elements, of any type, is one that registers hold.
fn is_held(extent: Expr, target: &Target) -> bool {
    extent.as_int().is_some_and(|n| n <= target.register_elements(1))
}
