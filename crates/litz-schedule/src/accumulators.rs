//! Declares the accumulators of a kernel's reductions and scans, and places the leaves that initialize them.
//!
//! What reaches here has leaves for points (`n`, `n.update`, `n.final`), and `n.merge` at the end of the loops whose
//! iterations are blocks of a sum. Accumulators are initialized where the outermost loop along a running axis begins: before
//! that there is nothing to combine, and after it what they hold is wanted.

use litz_ir::loops::{Axis, Loops, Nest, Stmt};
use litz_ir::schedule::{Holds, KernelPlan, Leaf, Local, LocalSpace, LoopKind, Part, Tree};
use litz_sym::Sym;
use std::collections::HashMap;

/// Adds declarations and `init` leaves to a plan that has none.
pub fn place(plan: &mut KernelPlan, loops: &Loops) {
    let nests = loops.stmts.iter().flat_map(Stmt::nests);
    let accumulating = nests.filter(|nest| nest.accumulates()).map(|nest| (nest.name.as_str(), nest));
    let nests: HashMap<&str, &Nest> = accumulating.collect();
    let mut cx = Placing { nests: &nests, path: Vec::new(), locals: Vec::new() };
    cx.place_in(&mut plan.body);
    plan.locals.append(&mut cx.locals);
}

struct Placing<'a> {
    nests: &'a HashMap<&'a str, &'a Nest>,
    /// Loops around, outermost first, without those of the grid.
    path: Vec<Around>,
    locals: Vec<Local>,
}

/// A loop around.
struct Around {
    kind: LoopKind,
    axis: Axis,
    /// Nests that merge at its end what one of its iterations adds up.
    blocks: Vec<String>,
}

impl Placing<'_> {
    fn place_in(&mut self, trees: &mut Vec<Tree>) {
        let mut placed: Vec<Tree> = Vec::with_capacity(trees.len());
        for tree in std::mem::take(trees) {
            let inits =
                updates(&tree).into_iter().filter_map(|(leaf, below)| self.start(&tree, leaf, &below));
            let inits: Vec<Tree> = inits.collect();
            // Leaves beside each other share one run of the loops held back for them.
            let is_leaf = |tree: &Tree| matches!(tree, Tree::Leaf(_));
            let apart = placed.iter().rposition(|tree| !is_leaf(tree)).map_or(0, |last| last + 1);
            let at = if is_leaf(&tree) { apart } else { placed.len() };
            placed.splice(at..at, inits);
            placed.push(match tree {
                Tree::Leaf(_) => tree,
                Tree::Loop { kind, axis, mut body } => {
                    self.path.push(Around { kind, axis, blocks: merged_in(&body) });
                    self.place_in(&mut body);
                    self.path.pop();
                    Tree::Loop { kind, axis, body }
                }
            });
        }
        *trees = placed;
    }

    /// The leaf that initializes the accumulators of `leaf`, in its loops, if they begin with `tree`. `below` are the loops
    /// between the tree and the leaf, the tree's own among them.
    fn start(&mut self, tree: &Tree, leaf: &Leaf, below: &[(LoopKind, Axis)]) -> Option<Tree> {
        let nest = *self.nests.get(leaf.nest.as_str())?;
        let is_along = |var: Sym| leaf.bind.iter().any(|(axis, e)| nest.is_running(*axis) && e.has_sym(var));
        let of_block = |around: &&Around| !around.blocks.contains(&leaf.nest);
        let is_begun = self.path.iter().rev().take_while(of_block).any(|around| is_along(around.axis.var));
        let begins = match tree {
            Tree::Leaf(_) => true,
            Tree::Loop { axis, .. } => is_along(axis.var),
        };
        if is_begun || !begins {
            return None;
        }
        let bind = leaf.bind.iter().filter(|(axis, _)| !nest.is_running(*axis));
        let init =
            Leaf { nest: leaf.nest.clone(), part: Part::Init, bind: bind.cloned().collect(), block: None };
        let spans = |axis: &Axis| init.bind.iter().any(|bind| bind.1.has_sym(axis.var));
        let spanned: Vec<(LoopKind, Axis)> = below.iter().filter(|(_, axis)| spans(axis)).copied().collect();
        // What blocks are added to stays in memory while a block is in the registers, and so do the accumulators of several
        // points that take turns.
        let adds_blocks = matches!(tree, Tree::Loop { body, .. } if merged_in(body).contains(&leaf.nest));
        let space = match adds_blocks || !spanned.is_empty() {
            true => LocalSpace::Scratch,
            false => LocalSpace::Register,
        };
        let scope =
            self.path.iter().rev().find(|around| !around.kind.is_tile()).map(|around| around.axis.var);
        self.locals.push(Local { holds: Holds::Accumulator(leaf.nest.clone()), scope, space });
        Some(spanned.into_iter().rev().fold(Tree::Leaf(init), |inner, (kind, axis)| Tree::Loop {
            kind: init_kind(kind),
            axis,
            body: vec![inner],
        }))
    }
}

/// How a loop runs that only initializes what a loop of `kind` combines into.
fn init_kind(kind: LoopKind) -> LoopKind {
    match kind {
        LoopKind::Mma | LoopKind::Thread | LoopKind::Warp => kind,
        LoopKind::TileVector { lanes } => LoopKind::Vector { lanes, copies: 1 },
        LoopKind::For | LoopKind::Unroll | LoopKind::Vector { .. } | LoopKind::Tile => LoopKind::For,
    }
}

/// The nests whose accumulators are merged directly in a loop's body.
fn merged_in(body: &[Tree]) -> Vec<String> {
    let merged = |tree: &Tree| match tree {
        Tree::Leaf(leaf) if leaf.part == Part::Merge => Some(leaf.nest.clone()),
        Tree::Leaf(_) | Tree::Loop { .. } => None,
    };
    body.iter().filter_map(merged).collect()
}

/// The leaves of a tree that may combine points, with the loops around them, outermost first.
fn updates(tree: &Tree) -> Vec<(&Leaf, Vec<(LoopKind, Axis)>)> {
    fn walk<'t>(
        tree: &'t Tree,
        path: &mut Vec<(LoopKind, Axis)>,
        out: &mut Vec<(&'t Leaf, Vec<(LoopKind, Axis)>)>,
    ) {
        match tree {
            Tree::Leaf(leaf) if leaf.part.is_along_reduced() => out.push((leaf, path.clone())),
            Tree::Leaf(_) => {}
            Tree::Loop { kind, axis, body } => {
                path.push((*kind, *axis));
                body.iter().for_each(|tree| walk(tree, path, out));
                path.pop();
            }
        }
    }
    let mut out = Vec::new();
    walk(tree, &mut Vec::new(), &mut out);
    out
}
