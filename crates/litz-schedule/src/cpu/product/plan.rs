//! Plans kernels of contractions: matrix products and convolutions by register tiles.

use crate::cost::{points, size};
use crate::cpu::k_blocks::{in_order, sum_in_k_blocks, sum_of_k_block};
use crate::cpu::product::m_tile::MTile;
use crate::cpu::product::panel::Panel;
use crate::cpu::product::problem::Problem;
use crate::cpu::product::tiling::Tiling;
use crate::cpu::tiles::Tile;
use crate::cut::{grain, nested};
use crate::draft::Planned;
use crate::nest;
use crate::nests::Nests;
use litz_analysis::inside::enter;
use litz_ir::loops::{Axis, Nest};
use litz_ir::schedule::{KernelPlan, Leaf, LoopKind, Part, Tree};
use litz_sym::{Expr, Sym};

/// Plans the kernel of a product and its epilogue.
pub fn plan(problem: &Problem<'_>) -> Planned {
    let facts = &problem.loops.facts;
    let tiling = Tiling::new(problem);
    let mut grid = tiling.grid(problem);
    let around: Vec<Axis> = grid.iter().copied().chain(tiling.tiles()).collect();
    let mut work = tiling.points(facts) * problem.terms();
    let panel = Panel::of(problem, &tiling).zip(tiling.grid_column);
    let packing = |panel: &Panel<'_>, column| {
        let columns = tiling.blocks.and_then(|blocks| blocks.columns);
        let around = [&[column], &*panel.k_blocks, columns.as_slice()].concat();
        panel.trees(problem, &around)
    };
    let (whole, of_k_block) = match panel {
        Some((panel, column)) if panel.k_blocks.is_empty() => (Some(packing(&panel, column)), Vec::new()),
        Some((panel, column)) => (None, packing(&panel, column)),
        None => (None, Vec::new()),
    };
    let mut body = tile_trees(problem, &tiling, &around, of_k_block);
    if let Some(axis) = tiling.m_block {
        body = nested(body, &[axis]);
    }
    if let Some(packing) = whole {
        let rows: Vec<Axis> = grid.iter().filter(|axis| tiling.grid_rows().contains(axis)).copied().collect();
        grid.retain(|axis| !rows.contains(axis));
        work = work.saturating_mul(points(facts, &rows));
        body = packing.into_iter().chain(nested(body, &rows)).collect();
    }
    let grain = grain(points(facts, &grid), work, problem.target.threads, problem.heuristics);
    let kernel = KernelPlan::new(grid, grain, body);
    Planned { scope: tiling.tiles().last().map(|axis| axis.var), ..Planned::from(kernel) }
}

/// The trees of a product that is one phase of a kernel for a block of rows. `around` are the loops it runs in.
pub fn phase(problem: &Problem<'_>, rows: MTile, around: &[Axis]) -> Vec<Tree> {
    let tiling = Tiling::of_rows(problem, rows);
    let own = tiling.batch.iter().filter(|a| !around.contains(a)).chain(&tiling.grid_column);
    let own: Vec<Axis> = own.copied().collect();
    let trees = tile_trees(problem, &tiling, &[around, &own].concat(), Vec::new());
    nested(trees, &own)
}

/// What runs for one tile in the loops `around`: its sums, and what follows them. `packing` computes what the tiles of a K block share.
fn tile_trees(problem: &Problem<'_>, tiling: &Tiling, around: &[Axis], packing: Vec<Tree>) -> Vec<Tree> {
    let &Problem { loops, group, head, .. } = problem;
    let mut facts = loops.facts.clone();
    around.iter().for_each(|axis| enter(&mut facts, *axis));
    let facts = &facts;
    let outer_bind = tiling.bind(&group.members[0]);
    let bind = outer_bind.iter().chain(&problem.bind).copied().collect();
    let mut body = vec![leaf(head, Part::Update, bind)];
    let mut terms = problem.chain_in(tiling.rows(facts));
    if let Some(axis) = problem.in_place {
        body = vec![Tree::Loop { kind: LoopKind::Unroll, axis, body }];
        terms = (terms / size(facts, axis.extent)).max(1);
    }
    if let Some(axis) = problem.together {
        body = vec![Tree::Loop { kind: LoopKind::Mma, axis, body }];
        terms /= size(facts, axis.extent);
    }
    let lanes = tiling.lanes(problem);
    let is_matrix = problem.matrix().is_some();
    let nests = Nests::of(loops, problem.packed.into_iter().chain(group.stmts()));
    let axes = tiling.axes(LoopKind::Unroll, LoopKind::Vector { lanes, copies: 1 });
    let tile_of = Tile { loops, nests: &nests, facts, around, axes: &axes, end: None };
    let in_tile = |trees: Vec<Tree>| tile_of.of(trees);
    if is_matrix {
        body = tiling.loops(body, LoopKind::Mma, LoopKind::Mma);
    }
    // Loops over the K blocks that the tiles of a cache block share, and what each tile does by itself before its final part.
    let (mut apart, mut tile) = (Vec::new(), Vec::new());
    match tiling.blocks {
        Some(blocks) if is_matrix => apart = blocks.around(body, packing, &problem.sum, loops, nested),
        Some(blocks) => {
            let k_block = |body, axes: &[Axis]| in_tile(sum_of_k_block(body, axes, loops, terms));
            apart = blocks.around(body, packing, &problem.sum, loops, k_block);
        }
        None => tile = sum_in_k_blocks(body, &in_order(&problem.sum), loops, terms),
    }
    let final_leaf = leaf(head, Part::Final, outer_bind);
    let mut epilogue: Vec<Tree> =
        group.members[1..].iter().map(|m| leaf(nest(loops, m.stmt), Part::Whole, tiling.bind(m))).collect();
    let ending = tiling.ending_with(&epilogue, facts);
    let for_each = |trees: Vec<Tree>, copies| {
        ending.as_ref().unwrap_or(tiling).loops(trees, LoopKind::For, LoopKind::Vector { lanes, copies })
    };
    let mut end = if is_matrix {
        epilogue.insert(0, final_leaf);
        tile.extend(for_each(epilogue, 1));
        tile
    } else if problem.is_inlined() && ending.is_none() {
        tile.push(final_leaf);
        tile.extend(epilogue);
        in_tile(tile)
    } else {
        tile.push(final_leaf);
        let mut body = in_tile(tile);
        // The vectors of a row are interleaved: what takes long is a chain of dependent instructions.
        body.extend(for_each(epilogue, problem.target.tile_columns() / problem.target.lanes()));
        body
    };
    if let Some(blocks) = tiling.blocks {
        end = blocks.for_each_tile(end);
    }
    apart.extend(end);
    apart
}

fn leaf(nest: &Nest, part: Part, bind: Vec<(Sym, Expr)>) -> Tree {
    Tree::Leaf(Leaf { nest: nest.name.clone(), part, bind, masked: false, block: None, by: None })
}
