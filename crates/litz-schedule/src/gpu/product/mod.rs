//! Plans kernels of contractions: the warps of a block sum a tile of the result by instructions, or threads by multiply-adds.
//!
//! What follows at the points of the result goes on with the sums where they are, in registers.

mod few;
mod gather;
mod plan;
mod problem;
mod results;
mod stage;
mod tile;
mod warpgroups;

use crate::context::Cx;
use crate::draft::{Draft, Family, Planned, Relation, Traits};
use crate::group::{Group, Member};
use crate::join::{align_members, bind_like, join, overwrites, same_extents};
use crate::nest;
use crate::no_fuse::NoFuse;
use litz_analysis::align::DomainMap;
use litz_analysis::contraction::Columns;
use litz_ir::loops::{Nest, Stmt};
use problem::{Problem, Unit};
use stage::Operand;
use tile::Tile;

pub use problem::columns_of;

/// Plans of a product: tiles by who is held to be fastest, and by others, at most. See [`Heuristics::choice`](crate::Heuristics::choice).
const MOST_TILES: usize = 9;
const MOST_TILES_OF_OTHERS: usize = 4;

/// Contractions, the first of which is the first member, and what follows at their points.
#[derive(Debug)]
pub struct Product {
    /// The statements, and which of their loads is which operand.
    contractions: Vec<(usize, Columns)>,
    /// Statements that gather an operand each, of which each block has its part alone.
    gathered: Vec<usize>,
}

impl Product {
    /// That of a nest which [`columns_of`] reads as one, if its points have rows and columns.
    pub fn new(cx: &Cx<'_>, group: &Group, columns: &Columns) -> Option<Product> {
        let contractions = vec![(group.members[0].stmt, columns.clone())];
        let problem = problem(cx, group, &contractions, &[])?;
        (problem.has_tiles() || few::plan(&problem).is_some())
            .then_some(Product { contractions, gathered: Vec::new() })
    }

    /// The problem of these contractions and what else a group has.
    fn problem<'a>(&self, cx: &'a Cx<'a>, group: &'a Group) -> Option<Problem<'a>> {
        problem(cx, group, &self.contractions, &self.gathered)
    }

    /// The kernel with another contraction that has the same points and reads one of the operands, if what follows needs both: neither is
    /// in memory then. So is a gate, `silu(x*a) * (x*b)`.
    fn pair(&self, cx: &Cx<'_>, draft: &Draft, s: usize) -> Result<Draft, NoFuse> {
        let (Some(columns), [first]) = (&cx.contractions[s], &self.contractions[..]) else {
            return Err(NoFuse::ProductConsumer);
        };
        let [one, other] = [first.0, s].map(|stmt| nest(cx.loops, stmt));
        let is_alike = same_extents(&one.axes, &other.axes);
        let users = |stmt: usize| cx.deps.stmts[stmt].writes.iter().flat_map(|&buf| &cx.deps.users[buf]);
        let follows = |user: &&usize| **user > s && !nest_of(cx, **user).is_none_or(Nest::accumulates);
        let members = || draft.group.members.iter().flat_map(|member| users(member.stmt));
        let is_needed = users(s).filter(follows).any(|user| members().any(|other| other == user));
        if !is_alike || !is_needed || overwrites(cx, &draft.group, s) {
            return Err(NoFuse::ProductConsumer);
        }
        // The axes of its result are those of the first, by their places.
        let bind = bind_like(cx, &draft.group.members[0], s);
        if bind.len() < other.axes.len() {
            return Err(NoFuse::OtherPoints);
        }
        let mut group = draft.group.clone();
        group.members.push(Member { stmt: s, bind });
        let contractions = vec![first.clone(), (s, columns.clone())];
        let gathered = self.gathered.clone();
        match problem(cx, &group, &contractions, &gathered).filter(|problem| problem.apart.contains(&1)) {
            Some(_) => Ok(Draft::new(group, draft.at_load, Product { contractions, gathered })),
            None => Err(NoFuse::OtherPoints),
        }
    }
}

/// A statement's nest, if it is one.
fn nest_of<'a>(cx: &Cx<'a>, s: usize) -> Option<&'a Nest> {
    if let Stmt::Nest(nest) = &cx.loops.stmts[s] { Some(nest) } else { None }
}

impl Family for Product {
    fn traits(&self) -> Traits {
        Traits { passes_on: false, shares_launch: false, overwrites: false }
    }

    fn take(&self, cx: &Cx<'_>, draft: &Draft, s: usize, relation: Relation) -> Result<Draft, NoFuse> {
        if relation == Relation::Beside {
            return self.pair(cx, draft, s);
        }
        if cx.contractions[s].is_some() {
            return Err(NoFuse::ProductConsumer);
        }
        // Tiles read what members read at points of other tiles, too.
        if relation != Relation::Behind || overwrites(cx, &draft.group, s) {
            return Err(NoFuse::OtherPoints);
        }
        let mut map = DomainMap::default();
        align_members(cx, &draft.group, s, &draft.group.outer, &mut map);
        let joined = draft.with(join(cx, &draft.group, s, map, true)?);
        // Points that all members walk in another order may leave the product no rows.
        match self.problem(cx, &joined.group) {
            Some(_) => Ok(joined),
            None => Err(NoFuse::NotAnEpilogue),
        }
    }

    fn wants_packing(&self) -> bool {
        self.gathered.len() < 2 * self.contractions.len()
    }

    fn packing(&self) -> Vec<usize> {
        self.gathered.clone()
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        let (problem, other) = problems(cx, group, &self.contractions, &self.gathered)?;
        let (choice, of_few) = (cx.heuristics.choice, few::plan(&problem));
        if of_few.is_some() && (choice == 0 || !problem.has_tiles()) {
            return of_few;
        }
        let tiles = Tile::ranked(&problem).into_iter().take(MOST_TILES).map(|tile| (&problem, tile));
        let others = other.iter().flat_map(|other| {
            Tile::ranked(other).into_iter().take(MOST_TILES_OF_OTHERS).map(move |tile| (other, tile))
        });
        let mut plans = tiles.chain(others).map(|(problem, tile)| plan::plan(problem, tile));
        plans
            .nth(choice - usize::from(of_few.is_some()))
            .or(of_few)
            .or_else(|| Some(plan::plan(&problem, Tile::of(&problem))))
    }
}

/// See [`crate::draft::Machine::gathers`].
pub fn gathers(cx: &Cx<'_>, s: usize) -> bool {
    let (&[buf], Some(nest)) = (&cx.deps.stmts[s].writes[..], nest_of(cx, s)) else { return false };
    let mut readers = cx.deps.users[buf].iter().filter(|&&user| user != s);
    let is_operand = readers.clone().count() == 1 && readers.all(|&user| cx.contractions[user].is_some());
    let is_gathered =
        gather::is_chosen(nest) || gather::is_of_windows(cx.loops, nest) && !cx.deps.stmts[s].at_load;
    is_operand && !cx.deps.escapes[buf] && is_gathered
}

/// See [`crate::draft::Machine::pack`]: with what gathers an operand.
pub fn pack(cx: &Cx<'_>, gathering: &Draft, product: &Draft) -> Option<Draft> {
    let Product { contractions, gathered } = product.family::<Product>()?;
    let &[stmt] = &gathering.stmts()[..] else { return None };
    let is_reader = |user: &usize| *user == stmt || contractions.iter().any(|of| of.0 == *user);
    let &[buf] = &cx.deps.stmts[stmt].writes[..] else { return None };
    let nest = nest_of(cx, stmt).filter(|nest| !gather::is_of_rows(cx.loops, nest))?;
    let is_at_call = !gathering.at_load && !product.at_load;
    let is_own = !cx.deps.escapes[buf] && cx.deps.users[buf].iter().all(is_reader);
    if !is_at_call || !is_own {
        return None;
    }
    let gathered = [&gathered[..], &[stmt]].concat();
    // Of what lies elsewhere in another order blocks gather one operand: they do so again and again.
    let is_reordered =
        |&&stmt: &&usize| nest_of(cx, stmt).is_some_and(|nest| !gather::is_matrix(cx.loops, nest));
    if gathered.iter().filter(is_reordered).count() > contractions.len() {
        return None;
    }
    let before = problem(cx, &product.group, contractions, &gathered[..gathered.len() - 1])?;
    let problem = problem(cx, &product.group, contractions, &gathered)?;
    // What was laid out along the sum for warpgroups is not to be gathered by warps.
    if matches!((before.unit, problem.unit), (Unit::Warpgroup(by), Unit::Warp(_)) if by.rounds) {
        return None;
    }
    let operand = Operand::of(&problem).into_iter().find(|operand| operand.buf() == buf)?;
    let inside = [problem.sides[0].var, problem.sides[1].var, problem.depth.var];
    gather::suits(inside, nest, |axis| operand.value(axis)).then(|| {
        let family = Product { contractions: contractions.clone(), gathered };
        Draft::new(product.group.clone(), product.at_load, family)
    })
}

/// The contractions of a group, what gathers operands of them, and who sums them. None where their points have no rows and columns.
fn problem<'a>(
    cx: &'a Cx<'a>,
    group: &'a Group,
    all: &[(usize, Columns)],
    gathered: &[usize],
) -> Option<Problem<'a>> {
    problems(cx, group, all, gathered).map(|problems| problems.0)
}

/// The same, and how others would sum it, if they can.
fn problems<'a>(
    cx: &'a Cx<'a>,
    group: &'a Group,
    all: &[(usize, Columns)],
    gathered: &[usize],
) -> Option<(Problem<'a>, Option<Problem<'a>>)> {
    let gathered = gathered.iter().filter_map(|&stmt| nest_of(cx, stmt)).collect();
    Some(warpgroups::if_faster(Problem::new(cx, group, all, gathered)?))
}
