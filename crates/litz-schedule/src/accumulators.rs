//! Declares the accumulators of a kernel's reductions and scans, and places the leaves that initialize them.
//!
//! A plan that comes here has the leaves `n`, `n.update` and `n.final` of each nest, and `n.merge` at the end of each loop over
//! K blocks. Accumulators are declared in the block of the tree that reads their results, and initialized right before the
//! first leaf that combines into them; those of a scan before the outermost loop along its axis.

use crate::nests::Nests;
use litz_ir::loops::Axis;
use litz_ir::schedule::{Holds, KernelPlan, Layout, Leaf, Local, LocalSpace, LoopKind, Part, Tree};
use litz_sym::Sym;

/// Adds declarations and `init` leaves to a plan that has none.
pub fn place(plan: &mut KernelPlan, nests: &Nests<'_>) {
    Placing { nests, path: Vec::new(), begun: Vec::new() }.place_in(&mut plan.body);
}

struct Placing<'a> {
    nests: &'a Nests<'a>,
    /// The loops around without those of the grid: how each runs, and the nests that merge at its end what an iteration adds up.
    path: Vec<(LoopKind, Vec<String>)>,
    /// Nests whose accumulators are declared around, once for each time.
    begun: Vec<String>,
}

impl Placing<'_> {
    fn place_in(&mut self, trees: &mut Vec<Tree>) {
        let mut placed: Vec<Tree> = Vec::with_capacity(trees.len());
        for tree in std::mem::take(trees) {
            // Where a nest has one version for whole tiles and one for the remainder, the first has loops over all points of a tile.
            let (mut inits, mut started): (Vec<Tree>, Vec<String>) = (Vec::new(), Vec::new());
            for (leaf, below) in updates(&tree) {
                let starts =
                    if started.contains(&leaf.nest) { None } else { self.start(&tree, leaf, &below) };
                if let Some(trees) = starts {
                    started.push(leaf.nest.clone());
                    inits.extend(trees);
                }
            }
            // Leaves beside each other stay one run of statements.
            let is_leaf = |tree: &Tree| matches!(tree, Tree::Leaf(_));
            let apart = placed.iter().rposition(|tree| !is_leaf(tree)).map_or(0, |last| last + 1);
            let at = if is_leaf(&tree) { apart } else { placed.len() };
            placed.splice(at..at, inits);
            let before = self.begun.len();
            self.begun.extend(started);
            placed.push(match tree {
                Tree::Leaf(_) | Tree::Local(_) => tree,
                Tree::Loop { kind, axis, mut body } => {
                    self.path.push((kind, merged_in(&body)));
                    self.place_in(&mut body);
                    self.path.pop();
                    Tree::Loop { kind, axis, body }
                }
                Tree::If { cond, mut then, mut other } => {
                    self.place_in(&mut then);
                    self.place_in(&mut other);
                    Tree::If { cond, then, other }
                }
            });
            self.begun.truncate(before);
        }
        *trees = placed;
    }

    /// The declaration of the accumulators of `leaf` and the leaf that initializes them, in its loops, if they begin with
    /// `tree`. `below` are the loops between the tree and the leaf, the tree's own among them.
    fn start(&self, tree: &Tree, leaf: &Leaf, below: &[(LoopKind, Axis)]) -> Option<[Tree; 2]> {
        let nest = self.nests.get(leaf).filter(|nest| nest.accumulates())?;
        let begun = self.begun.iter().filter(|begun| **begun == leaf.nest).count();
        let begins = if nest.reduces() {
            // In the block that takes the results, which is that of a loop that merges for blocks of a sum.
            let merging = self.path.iter().filter(|(_, merged)| merged.contains(&leaf.nest)).count();
            let takes = match begun {
                0 => has_part(tree, &leaf.nest, Part::Final),
                // Loops within it may merge blocks of their own.
                _ => merged_in(std::slice::from_ref(tree)).contains(&leaf.nest),
            };
            begun <= merging && !takes
        } else {
            let is_along =
                |var: Sym| leaf.bind.iter().any(|(axis, e)| nest.is_running(*axis) && e.has_sym(var));
            let is_first = match tree {
                Tree::Leaf(_) => true,
                Tree::Loop { axis, .. } => is_along(axis.var),
                Tree::If { .. } => below.iter().any(|(_, axis)| is_along(axis.var)),
                Tree::Local(_) => false,
            };
            is_first && begun == 0
        };
        if !begins {
            return None;
        }
        let bind = leaf.bind.iter().filter(|(axis, _)| !nest.is_running(*axis));
        let (nest, bind) = (leaf.nest.clone(), bind.cloned().collect());
        let init = Leaf { nest, part: Part::Init, bind, masked: leaf.masked, block: None, by: None };
        let spans = |axis: &Axis| init.bind.iter().any(|bind| bind.1.has_sym(axis.var));
        let spanned: Vec<(LoopKind, Axis)> = below.iter().filter(|(_, axis)| spans(axis)).copied().collect();
        // Totals that the sums of blocks are merged into stay in memory while the sums of a block take the registers, unless there is
        // one alone, or one for each lane of a vector loop around, whose lanes have no memory of their own. So do the accumulators of points that a loop goes through one after another: registers cannot be indexed at run
        // time.
        // What threads have is merged when they have all of it.
        let are_threads = below.first().is_some_and(|(kind, _)| kind.level().is_some());
        let are_lanes = self.path.iter().any(|(kind, _)| matches!(kind, LoopKind::Vector { .. }));
        let adds_blocks =
            has_part(tree, &leaf.nest, Part::Merge) && !are_threads && !are_lanes && !spanned.is_empty();
        let is_written_out =
            spanned.iter().all(|(kind, axis)| is_tile(*kind) && axis.extent.as_int().is_some());
        let space = match adds_blocks || !is_written_out {
            true => LocalSpace::Scratch,
            false => LocalSpace::Register,
        };
        let holds = Holds::Accumulator(leaf.nest.clone());
        let local = Local { holds, space, layout: Layout::Dense };
        let init = spanned.into_iter().rev().fold(Tree::Leaf(init), |inner, (kind, axis)| Tree::Loop {
            kind: if space == LocalSpace::Scratch && kind == LoopKind::Unroll {
                LoopKind::For
            } else {
                init_kind(kind)
            },
            axis,
            body: vec![inner],
        });
        Some([Tree::Local(local), init])
    }
}

/// Whether that part of a nest is a leaf of a tree.
fn has_part(tree: &Tree, nest: &str, part: Part) -> bool {
    let mut has_part = false;
    tree.each_leaf(&mut |leaf| has_part |= leaf.nest == nest && leaf.part == part);
    has_part
}

/// Whether the points of a loop of that kind are in flight together.
fn is_tile(kind: LoopKind) -> bool {
    match kind {
        LoopKind::Unroll | LoopKind::Vector { copies: 1, .. } | LoopKind::Mma => true,
        LoopKind::For
        | LoopKind::Vector { .. }
        | LoopKind::Pipeline { .. }
        | LoopKind::Level(_)
        | LoopKind::Chain => false,
    }
}

/// How a loop runs that only initializes what a loop of `kind` combines into.
fn init_kind(kind: LoopKind) -> LoopKind {
    match kind {
        LoopKind::Mma | LoopKind::Level(_) | LoopKind::Chain | LoopKind::Unroll => kind,
        LoopKind::Vector { lanes, .. } => LoopKind::Vector { lanes, copies: 1 },
        LoopKind::For | LoopKind::Pipeline { .. } => LoopKind::For,
    }
}

/// The nests whose accumulators are merged in the body of a loop, once for each of its iterations and each of their points.
fn merged_in(body: &[Tree]) -> Vec<String> {
    fn walk(trees: &[Tree], path: &mut Vec<Sym>, merged: &mut Vec<String>) {
        for tree in trees {
            match tree {
                Tree::Leaf(leaf) => {
                    // A loop along no axis of the merged points is one of blocks itself.
                    let is_own = |var: &Sym| leaf.bind.iter().any(|bind| bind.1.has_sym(*var));
                    let is_merged = leaf.part == Part::Merge && path.iter().all(is_own);
                    merged.extend(is_merged.then(|| leaf.nest.clone()));
                }
                Tree::Loop { axis, body, .. } => {
                    path.push(axis.var);
                    walk(body, path, merged);
                    path.pop();
                }
                Tree::If { .. } | Tree::Local(_) => {
                    tree.blocks().into_iter().for_each(|block| walk(block, path, merged));
                }
            }
        }
    }
    let mut merged = Vec::new();
    walk(body, &mut Vec::new(), &mut merged);
    merged
}

/// The leaves of a tree that may combine points, with the loops around them, outermost first.
fn updates(tree: &Tree) -> Vec<(&Leaf, Vec<(LoopKind, Axis)>)> {
    fn walk<'t>(
        tree: &'t Tree,
        path: &mut Vec<(LoopKind, Axis)>,
        out: &mut Vec<(&'t Leaf, Vec<(LoopKind, Axis)>)>,
    ) {
        match tree {
            Tree::Leaf(leaf) => out.extend(leaf.part.is_along_reduced().then(|| (leaf, path.clone()))),
            Tree::Local(_) => {}
            Tree::Loop { kind, axis, body } => {
                path.push((*kind, *axis));
                body.iter().for_each(|tree| walk(tree, path, out));
                path.pop();
            }
            Tree::If { then, other, .. } => {
                then.iter().chain(other).for_each(|tree| walk(tree, path, out));
            }
        }
    }
    let mut out = Vec::new();
    walk(tree, &mut Vec::new(), &mut out);
    out
}
