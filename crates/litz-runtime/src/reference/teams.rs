//! Finds how many threads and blocks run a grid point, and which threads an instruction keeps together.

use litz_ir::target::{Gpu, Level};

use super::code::Node;
use super::threads::{ThreadRange, threads_of};
use crate::formula::{Bounds, Formula};

/// The teams of a grid point.
pub(super) struct Teams {
    /// Threads of each block, at least one: as many as its loops over levels have at most.
    pub(super) threads: u32,
    /// Blocks, at least one.
    pub(super) blocks: usize,
    /// Threads of a block that run instructions together.
    joint: Vec<ThreadRange>,
    bounds: Vec<Bounds>,
}

impl Teams {
    /// Those of a kernel's body. `symbols` has the values of sizes and of the axes of the grid; loops set theirs.
    pub(super) fn of(body: &[Node], symbols: &[i64]) -> Teams {
        let bounds = symbols.iter().map(|&value| [value; 2]).collect();
        let mut teams = Teams { threads: 1, blocks: 1, joint: Vec::new(), bounds };
        teams.visit(body);
        teams.threads = teams.threads.min(Gpu::THREADS);
        teams
    }

    /// The threads of a block in parts that can run one without the other: warps, and what instructions keep together.
    pub(super) fn units(&self, block: usize) -> Vec<ThreadRange> {
        let base = ThreadRange::of_block(block).first;
        let mut units: Vec<ThreadRange> = Vec::new();
        for warp in 0..self.threads.div_ceil(Gpu::LANES) {
            let first = warp * Gpu::LANES;
            let warp = ThreadRange { first, end: first + Gpu::LANES };
            let joint = self.joint.iter().find(|joint| joint.contains(warp)).copied().unwrap_or(warp);
            let unit = ThreadRange { first: base + joint.first, end: base + joint.end };
            if units.last() != Some(&unit) {
                units.push(unit);
            }
        }
        units
    }

    fn visit(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Loop { var, extent, body, .. } | Node::Instruction { var, extent, body, .. } => {
                    self.count(*var, extent);
                    self.visit(body);
                }
                Node::Level { team, var, extent, body, .. } => {
                    let count = self.count(*var, extent).max(0);
                    let units = if count > 0 {
                        i64::from(team.from).saturating_add(count.saturating_mul(team.each.into()))
                    } else {
                        0
                    };
                    match team.level {
                        Level::Grid | Level::Block => {
                            self.blocks = self.blocks.max(usize::try_from(units).unwrap_or(usize::MAX));
                            self.visit(body);
                        }
                        level @ (Level::Warpgroup | Level::Warp | Level::Thread | Level::Lane) => {
                            let own = threads_of(level);
                            let units = u32::try_from(units).unwrap_or(Gpu::THREADS).min(Gpu::THREADS);
                            self.threads = self.threads.max(units.saturating_mul(own));
                            if level == Level::Warpgroup && body.iter().any(has_instruction) {
                                let groups = (team.from..units).map(|at| at.saturating_mul(own));
                                let joint =
                                    groups.map(|first| ThreadRange { first, end: first.saturating_add(own) });
                                self.joint.extend(joint);
                            }
                        }
                    }
                }
                Node::If { then, other, .. } => {
                    self.visit(then);
                    self.visit(other);
                }
                Node::Bind { sym, extent, .. } => {
                    self.count(*sym, extent);
                }
                _ => {}
            }
        }
    }

    /// The most that an extent can be. Its variable is below that.
    fn count(&mut self, var: usize, extent: &Formula) -> i64 {
        let most = extent.bounds(&self.bounds).map_or(i64::MAX, |[_, most]| most);
        self.bounds[var] = [0, most.saturating_sub(1).max(0)];
        most
    }
}

/// Whether the threads that run this run an instruction together.
fn has_instruction(node: &Node) -> bool {
    match node {
        Node::Instruction { .. }
        | Node::Products { .. }
        | Node::LoadFragment(_)
        | Node::MultiplyFragments(_) => true,
        Node::Loop { body, .. } => body.iter().any(has_instruction),
        Node::If { then, other, .. } => then.iter().chain(other).any(has_instruction),
        _ => false,
    }
}
