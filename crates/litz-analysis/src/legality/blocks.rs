//! Checks leaves that store to one block of their buffer at a time: every element is in one block, and every block is stored
//! to once.

use litz_sym::{Expr, Rel};

use super::{Around, Verifier};
use crate::access::accesses;
use litz_ir::loops::Nest;
use litz_ir::schedule::{Block, Leaf, LoopKind, Part, ScheduleStep};

impl Verifier<'_> {
    pub(super) fn block(&mut self, block: Block, leaf: &Leaf, nest: &Nest, step: usize) {
        let (name, Block { number, width }) = (&leaf.nest, block);
        self.report.expr(number, format_args!("`{name}`, block"));
        self.report.expr(width, format_args!("`{name}`, width of a block"));
        if !self.report.has_declared(number) || !self.report.has_declared(width) {
            return;
        }
        let mut stores = accesses(nest).filter(|access| access.store).map(|store| store.buf);
        let (Some(buf), None, Part::Whole) = (stores.next(), stores.next(), leaf.part) else {
            let message = format_args!("`{name}`: expected a whole nest with one store");
            return self.report.fail("block-store", message);
        };
        let scans = nest.scanned().next().is_some();
        let message = format_args!("`{name}`: a scan takes all points, those outside of the block, too");
        self.report.check(!scans, "block-store", message);
        let Some(data) = self.loops.bufs.get(buf) else { return };
        let is_local = match &self.schedule.steps[step] {
            ScheduleStep::Kernel(plan) => plan.has_local(&data.name),
            ScheduleStep::Extern { .. } => false,
        };
        let message =
            format_args!("`{name}`: what it stores to, `{}`, lives inside of the kernel", data.name);
        self.report.check(!is_local, "block-store", message);
        let counts = |around: &&Around| Expr::sym(around.axis.var) == number;
        let loop_ = self.path.iter().find(counts).filter(|around| match around.kind {
            None | Some(LoopKind::For) => !leaf.bind.iter().any(|bind| bind.1.has_sym(around.axis.var)),
            Some(
                LoopKind::Unroll
                | LoopKind::Vector { .. }
                | LoopKind::Pipeline { .. }
                | LoopKind::Level(_)
                | LoopKind::Chain
                | LoopKind::Mma,
            ) => false,
        });
        let Some(loop_) = loop_ else {
            let message =
                format_args!("`{name}`: {number} is no loop of the grid or in order that counts blocks");
            return self.report.fail("block-coverage", message);
        };
        // Blocks of one width follow each other from the first element on, so that none overlap, and only where the last one ends
        // is in question. A condition around could leave blocks out.
        let is_fixed = self.path.iter().all(|around| !width.has_sym(around.axis.var));
        let blocks = loop_.axis.extent;
        let is_covered = is_fixed
            && self.sides.is_empty()
            && self.loops.facts.holds(&Rel::le(data.span(), width * blocks));
        let message =
            format_args!("`{name}`: {blocks} blocks of {width} elements may not cover `{}`", data.name);
        self.report.check(is_covered, "block-coverage", message);
    }
}
