//! Puts the loops of a register tile innermost, around the leaves, so that all points of the tile are in flight together, and
//! writes a second version for the last tile where it is cut off.

use crate::nests::Nests;
use crate::remainders::peel;
use litz_analysis::access::accesses;
use litz_analysis::apart::Visit;
use litz_analysis::parts::parts_of;
use litz_ir::loops::{Axis, Loops};
use litz_ir::schedule::{Leaf, LoopKind, Tree};
use litz_sym::{Expr, Facts};

/// The loops of a tile.
pub struct Tile<'a> {
    /// The program.
    pub loops: &'a Loops,
    /// The nests whose leaves are in it.
    pub nests: &'a Nests<'a>,
    /// What is known of the loops around.
    pub facts: &'a Facts,
    /// The loops around.
    pub around: &'a [Axis],
    /// Outermost first: loops that are written out, and vectors.
    pub axes: &'a [(LoopKind, Axis)],
    /// Where the innermost one ends in the last tile, if not where all leaves do.
    pub end: Option<Expr>,
}

impl Tile<'_> {
    /// What `trees` do for a point, for all points of a tile.
    pub fn of(&self, trees: Vec<Tree>) -> Vec<Tree> {
        let mut around = self.around.to_vec();
        let sunk = self.sunk(trees, &mut around);
        let ends = std::iter::once(self.end).chain(std::iter::repeat(None));
        let inner_first = self.axes.iter().rev().zip(ends);
        inner_first.fold(sunk, |trees, (&(_, axis), end)| peel(trees, (axis, end), self.nests, self.facts))
    }

    fn sunk(&self, trees: Vec<Tree>, around: &mut Vec<Axis>) -> Vec<Tree> {
        let mut done = Vec::new();
        let mut run: Vec<Tree> = Vec::new();
        for tree in trees {
            // What an instruction takes together is in one tile.
            let is_run = match &tree {
                Tree::Leaf(leaf) => leaf.part.runs_instructions(),
                Tree::Loop { kind, .. } => *kind == LoopKind::Mma,
                Tree::If { .. } | Tree::Local(_) => false,
            };
            let joins = is_run && run.iter().all(|earlier| self.keeps_to_points(earlier, &tree, around));
            if !joins {
                self.end_run(&mut run, &mut done);
            }
            match tree {
                _ if is_run => run.push(tree),
                Tree::Leaf(leaf) => {
                    let spans = |axis: &Axis| leaf.bind.iter().any(|bind| bind.1.has_sym(axis.var));
                    let axes: Vec<(LoopKind, Axis)> =
                        self.axes.iter().filter(|(_, axis)| spans(axis)).copied().collect();
                    done.extend(in_loops(&axes, vec![Tree::Leaf(leaf)]));
                }
                Tree::Loop { kind, axis, body } => {
                    around.push(axis);
                    done.push(Tree::Loop { kind, axis, body: self.sunk(body, around) });
                    around.pop();
                }
                Tree::If { cond, then, other } => {
                    let [then, other] = [then, other].map(|body| self.sunk(body, around));
                    done.push(Tree::If { cond, then, other });
                }
                Tree::Local(_) => done.push(tree),
            }
        }
        self.end_run(&mut run, &mut done);
        done
    }

    fn end_run(&self, run: &mut Vec<Tree>, done: &mut Vec<Tree>) {
        if !run.is_empty() {
            done.extend(in_loops(self.axes, std::mem::take(run)));
        }
    }

    /// Whether leaves of two trees touch an element of a buffer that one of them stores to only at the same point of the tile,
    /// so that they may share its loops.
    fn keeps_to_points(&self, one: &Tree, other: &Tree, around: &[Axis]) -> bool {
        let leaves = |tree: &'_ Tree| {
            let mut leaves: Vec<Leaf> = Vec::new();
            tree.each_leaf(&mut |leaf| leaves.push(leaf.clone()));
            leaves
        };
        let others = leaves(other);
        leaves(one).iter().all(|one| others.iter().all(|other| self.are_apart(one, other, around)))
    }

    fn are_apart(&self, one: &Leaf, other: &Leaf, around: &[Axis]) -> bool {
        let (Some(nest), Some(other_nest)) = (self.nests.get(one), self.nests.get(other)) else {
            return true;
        };
        let runs = |nest, leaf: &Leaf| {
            let parts = parts_of(nest);
            accesses(nest).filter(|access| parts[access.at].contains(&leaf.part)).collect::<Vec<_>>()
        };
        let shared: Vec<Axis> = around.iter().copied().chain(self.axes.iter().map(|axis| axis.1)).collect();
        let theirs = runs(other_nest, other);
        let mut visits = None;
        runs(nest, one).iter().all(|mine| {
            theirs.iter().filter(|their| their.buf == mine.buf && (their.store || mine.store)).all(|their| {
                let visit = |nest, leaf: &Leaf| {
                    Visit::new(self.loops, nest, &leaf.bind, shared.iter().copied(), std::iter::empty())
                };
                let (mine_at, theirs_at) =
                    visits.get_or_insert_with(|| (visit(nest, one), visit(other_nest, other)));
                let (Some(mine_at), Some(theirs_at)) = (mine_at, theirs_at) else { return true };
                match (mine_at.touch(mine.at), theirs_at.touch(their.at)) {
                    (Some(mine), Some(their)) => mine.is_apart(&shared, &their),
                    // What never happens touches nothing.
                    (None, _) | (_, None) => true,
                }
            })
        })
    }
}

/// Trees in loops, outermost first.
pub fn in_loops(axes: &[(LoopKind, Axis)], body: Vec<Tree>) -> Vec<Tree> {
    axes.iter().rev().fold(body, |body, &(kind, axis)| vec![Tree::Loop { kind, axis, body }])
}
