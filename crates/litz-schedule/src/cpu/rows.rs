//! Plans kernels that run several phases for a block of rows: a contraction, nests that read its result row by row, and a
//! contraction of their result.
//!
//! The rows of a result that the following statements read stay in the cache of the core that made them. Attention is
//! the example: scores, their softmax, and the product of that with the values. A phase is a group of its own, either a
//! product with its epilogue or loops; all phases share the variables of batch and rows, and only these.

use crate::context::Cx;
use crate::cost::{footprint, points, size, work};
use crate::cpu::pays::is_less_parallel;
use crate::cpu::product::{self, MTile, Problem, outer_of};
use crate::cpu::{cpu, loops};
use crate::cut::grain;
use crate::draft::{Draft, Family, Planned, Recipe, Relation, Traits};
use crate::group::{Group, Member, Phase};
use crate::heuristics::Heuristics;
use crate::join::{align_members, overwrites, own_axes};
use crate::nest;
use crate::no_fuse::NoFuse;
use litz_analysis::access::substitute;
use litz_analysis::align::DomainMap;
use litz_analysis::contraction::Columns;
use litz_ir::loops::{Axis, Loops};
use litz_ir::schedule::{KernelPlan, LoopKind, Tree};
use litz_ir::target::Cpu;
use litz_sym::Expr;

/// Contractions and the nests between them, one phase after another for a block of rows that all share.
#[derive(Debug)]
pub struct Rows(Vec<Phase>);

impl Family for Rows {
    fn traits(&self) -> Traits {
        Traits { passes_on: true, shares_launch: true, overwrites: true }
    }

    fn take(&self, cx: &Cx<'_>, draft: &Draft, s: usize, relation: Relation) -> Result<Draft, NoFuse> {
        match relation {
            Relation::Beside | Relation::Aligned => Err(refusal(cx, s)),
            // Phases read what members read at points of other tiles, too.
            Relation::Behind if overwrites(cx, &draft.group, s) => Err(NoFuse::OtherPoints),
            Relation::Behind => join(cx, draft, (draft.group.clone(), self.0.clone()), s),
        }
    }

    fn recipe(&self) -> Option<Recipe<'_>> {
        Some(Recipe { columns: None, phases: &self.0 })
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        Some(plan(cx, group, &self.0).into())
    }
}

/// Why a product takes a statement neither at the points of its tiles nor as another phase.
pub fn refusal(cx: &Cx<'_>, s: usize) -> NoFuse {
    if cx.contractions[s].is_some() { NoFuse::ProductConsumer } else { NoFuse::NotAnEpilogue }
}

/// The draft with statement `s` as part of its last phase, or as another one. `start` is what its phases share, and these.
pub fn join(cx: &Cx<'_>, draft: &Draft, start: (Group, Vec<Phase>), s: usize) -> Result<Draft, NoFuse> {
    let refused = refusal(cx, s);
    let (mut joined, mut phases) = start;
    let mut map = DomainMap::default();
    align_members(cx, &joined, s, &joined.outer, &mut map);
    let DomainMap { bind, dropped } = map.clone().drop_unshared(&joined.outer);
    if !dropped.is_empty() || bind.iter().any(|(a, _)| cx.is_ordered(s, *a)) {
        return Err(refused);
    }
    let member = Member { stmt: s, bind };
    match (&cx.contractions[s], phases.last_mut()) {
        (Some(columns), _) => phases.push(product_phase(cx, &joined.outer, member.clone(), columns)),
        (None, Some(last)) if last.columns.is_none() => last.group.members.push(member.clone()),
        (None, last) => match last.and_then(|last| Some((epilogue(cx, &last.group, s, map)?, last))) {
            Some((epilogue, last)) => last.group.members.push(epilogue),
            None => {
                let group = Group { members: vec![member.clone()], outer: joined.outer.clone() };
                phases.push(Phase { group, columns: None });
            }
        },
    }
    joined.members.push(member);
    let rows = rows(&joined.outer, &phases);
    if points(&cx.loops.facts, &rows) < 2 {
        return Err(refused);
    }
    is_profitable(cx, &draft.group, s, &joined, &rows, &phases)?;
    Ok(Draft::new(joined, draft.at_load, Rows(phases)))
}

/// What the phases of a kernel share whose first one is a product, all axes but its column; and that phase.
pub fn first_phase(group: &Group, columns: &Columns) -> Option<(Group, Vec<Phase>)> {
    let column = outer_of(group, columns.column.var)?.var;
    let mut narrowed = group.clone();
    narrowed.outer.retain(|a| a.var != column);
    narrowed.members.iter_mut().for_each(|m| m.bind.retain(|b| !b.1.has_sym(column)));
    Some((narrowed, vec![Phase { group: group.clone(), columns: Some(columns.clone()) }]))
}

/// A product as a phase, with variables of its own for axes that are not shared.
pub fn product_phase(cx: &Cx<'_>, shared: &[Axis], member: Member, columns: &Columns) -> Phase {
    let mut outer = shared.to_vec();
    let mut bind = member.bind.clone();
    for axis in own_axes(nest(cx.loops, member.stmt), &member) {
        bind.push(cx.share(axis, &mut outer));
    }
    let members = vec![Member { bind, ..member }];
    Phase { group: Group { members, outer }, columns: Some(columns.clone()) }
}

/// Statement `s` as part of a product's epilogue, if its points are those of the product. `shared` relates it to what
/// earlier phases store.
fn epilogue(cx: &Cx<'_>, phase: &Group, s: usize, shared: DomainMap) -> Option<Member> {
    let mut map = shared;
    align_members(cx, phase, s, &phase.outer, &mut map);
    let DomainMap { bind, dropped } = map.drop_unshared(&phase.outer);
    let member = Member { stmt: s, bind };
    let consumer = nest(cx.loops, s);
    // A tile takes its points in no order of their own.
    let is_ordered = member.bind.iter().any(|(a, _)| cx.is_ordered(s, *a));
    let is_same = dropped.is_empty() && consumer.reduced.is_empty() && !is_ordered;
    (is_same && own_axes(consumer, &member).next().is_none()).then_some(member)
}

/// Shared axes that are rows of every product.
pub fn rows(shared: &[Axis], phases: &[Phase]) -> Vec<Axis> {
    let is_row = |axis: &Axis, phase: &Phase| match &phase.columns {
        Some(columns) => {
            let mut rows = columns.contraction.m.iter();
            rows.any(|m| outer_of(&phase.group, m.var).is_some_and(|o| o.var == axis.var))
        }
        None => true,
    };
    shared.iter().filter(|axis| phases.iter().all(|phase| is_row(axis, phase))).copied().collect()
}

/// Whether phases in one kernel pay: what a block of rows passes on stays in the cache beside the operand that all blocks
/// read again, which what all blocks pass on would not, and there are blocks enough for all threads.
fn is_profitable(
    cx: &Cx<'_>,
    group: &Group,
    s: usize,
    joined: &Group,
    rows: &[Axis],
    phases: &[Phase],
) -> Result<(), NoFuse> {
    let facts = &cx.loops.facts;
    let height = cpu(cx).tile_rows().min(rows.iter().map(|a| size(facts, a.extent)).max().unwrap_or(1));
    let passed = footprint(cx.loops, cx.deps, joined);
    let operand = phases.iter().map(|phase| operand_bytes(cx.loops, phase, &joined.outer)).max().unwrap_or(0);
    let share = cpu(cx).l2_bytes / cx.heuristics.local_fraction;
    if passed.saturating_mul(height).saturating_add(operand) > share {
        return Err(NoFuse::Footprint);
    }
    // In half of it: the products' operands are there, too. Attention of 12 heads, 128 rows and scores of 768 KiB takes as long
    // either way with a cache of 2 MiB.
    let all = passed.saturating_mul(points(facts, &joined.outer));
    if all <= share / 2 && operand > cpu(cx).l1_bytes / cx.heuristics.local_fraction {
        return Err(NoFuse::NothingGained);
    }
    match is_less_parallel(cx, group, s, joined, points(facts, &joined.outer) / height) {
        true => Err(NoFuse::LessParallel),
        false => Ok(()),
    }
}

/// Bytes of a product's right operand that one block reads.
fn operand_bytes(loops: &Loops, Phase { group, columns }: &Phase, shared: &[Axis]) -> i64 {
    if columns.is_none() {
        return 0;
    }
    let own = group.outer.iter().filter(|a| !shared.contains(a));
    let head = nest(loops, group.members[0].stmt);
    points(&loops.facts, own.chain(&head.reduced)).saturating_mul(4)
}

/// Plans the kernel: a grid of blocks, each running the phases in order.
fn plan(cx: &Cx<'_>, group: &Group, phases: &[Phase]) -> KernelPlan {
    let &Cx { loops, heuristics, .. } = cx;
    let blocks = RowGrid::new(loops, group, rows(&group.outer, phases), cpu(cx));
    let body = blocks.trees(loops, phases, &[], cpu(cx), heuristics);
    blocks.kernel(loops, group, body, cpu(cx), heuristics)
}

/// The grid of a kernel for blocks of rows.
pub struct RowGrid {
    block: MTile,
    grid: Vec<Axis>,
}

impl RowGrid {
    /// The grid of blocks of the shared axes `rows`.
    pub fn new(loops: &Loops, group: &Group, rows: Vec<Axis>, target: &Cpu) -> RowGrid {
        let block = MTile::new(loops, group, rows, target);
        let is_placed = |o: &Axis| block.value.iter().any(|v| v.0 == o.var);
        let mut grid: Vec<Axis> = group.outer.iter().filter(|o| !is_placed(o)).copied().collect();
        grid.extend(&block.grid);
        RowGrid { block, grid }
    }

    /// An expression of the shared axes, at a row of a block.
    pub fn at(&self, e: Expr) -> Expr {
        substitute(e, &self.block.value)
    }

    /// The axes of a block.
    pub fn inside(&self) -> impl Iterator<Item = Axis> {
        self.block.rows.into_iter().chain(self.block.outer_rows)
    }

    /// The axes of the grid and of a block.
    pub fn axes(&self) -> impl Iterator<Item = Axis> {
        self.grid.iter().copied().chain(self.inside())
    }

    /// What the phases do for one block, in loops `around` besides the grid.
    pub fn trees(
        &self,
        program: &Loops,
        phases: &[Phase],
        around: &[Axis],
        target: &Cpu,
        heuristics: &Heuristics,
    ) -> Vec<Tree> {
        let RowGrid { block, grid } = self;
        let around: Vec<Axis> = grid.iter().chain(around).chain(&block.rows).copied().collect();
        let mut body = Vec::new();
        for Phase { group, columns } in phases {
            match columns {
                Some(columns) => {
                    let problem = Problem::new(program, group, (columns, None), target, heuristics);
                    body.extend(product::phase(&problem, block.clone(), grid));
                }
                None => {
                    let mut inside = Group { outer: Vec::new(), ..group.clone() };
                    let bound = inside.members.iter_mut().flat_map(|m| &mut m.bind);
                    bound.for_each(|b| b.1 = substitute(b.1, &block.value));
                    let trees = loops::phase(program, &inside, &around, target, heuristics);
                    body.extend(in_rows(trees, block.rows));
                }
            }
        }
        body
    }

    /// The kernel whose blocks run `body`.
    pub fn kernel(
        self,
        loops: &Loops,
        group: &Group,
        body: Vec<Tree>,
        target: &Cpu,
        heuristics: &Heuristics,
    ) -> KernelPlan {
        let all = points(&loops.facts, &self.grid);
        let grain = grain(all, work(loops, group) / all.max(1), target.threads, heuristics);
        KernelPlan::new(self.grid, grain, body)
    }
}

fn in_rows(body: Vec<Tree>, rows: Option<Axis>) -> Vec<Tree> {
    match rows {
        Some(axis) => vec![Tree::Loop { kind: LoopKind::For, axis, body }],
        None => body,
    }
}
