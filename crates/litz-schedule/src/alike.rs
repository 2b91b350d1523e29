//! Plans groups of equal layers once: a group that is like an earlier one gets that one's plan, with its own names.

use std::collections::HashMap;

use litz_analysis::Dependences;
use litz_analysis::alike::{Meaning, Numbers};
use litz_analysis::contraction::Columns;
use litz_ir::loops::{Axis, Buf, Loops, Nest};
use litz_sym::{Expr, Sym};

use crate::draft::{Draft, Recipe as OfFamily};
use crate::group::{Group, Member};
use crate::{Item, nest};

/// All that the plan of a group depends on, with numbers for names.
#[derive(PartialEq)]
struct Recipe {
    meaning: Meaning,
    shape: Shape,
    at_load: bool,
    /// Of each buffer, whether only this group touches it, whether it outlives a call, whether it is made before one, and whether the
    /// caller gives it up.
    lives: Vec<[bool; 4]>,
}

/// How the members of a group share loops.
#[derive(PartialEq)]
struct Shape {
    outer: Vec<Axis>,
    /// For each member its place among all nests, and its binds.
    members: Vec<(usize, Vec<(Sym, Expr)>)>,
    columns: Option<Columns>,
    phases: Vec<Shape>,
    /// Whether the first of the nests packs an operand.
    is_packed: bool,
}

/// Which group stands for each group, and the numbers that lead from the names of the one to those of the other.
pub struct Alike {
    /// The groups that stand for others, or for themselves alone.
    pub first: Vec<usize>,
    /// For each group the position of the one that stands for it in `first`.
    pub place: Vec<usize>,
    numbers: Vec<Option<Numbers>>,
}

impl Alike {
    /// Compares groups.
    pub fn of(loops: &Loops, deps: &Dependences, drafts: &[Draft]) -> Alike {
        let mut known: HashMap<(Vec<Axis>, usize), Vec<(Recipe, usize)>> = HashMap::new();
        let mut alike = Alike { first: Vec::new(), place: Vec::new(), numbers: Vec::new() };
        for (at, draft) in drafts.iter().enumerate() {
            let (place, numbers) = match recipe(loops, deps, draft) {
                None => (None, None),
                Some((recipe, numbers)) => {
                    let known = known.entry((draft.group.outer.clone(), recipe.meaning.size())).or_default();
                    let place = known.iter().find(|known| known.0 == recipe).map(|known| known.1);
                    if place.is_none() {
                        known.push((recipe, alike.first.len()));
                    }
                    (place, Some(numbers))
                }
            };
            alike.place.push(place.unwrap_or(alike.first.len()));
            if place.is_none() {
                alike.first.push(at);
            }
            alike.numbers.push(numbers);
        }
        alike
    }

    /// What runs a group, made of what runs the one that stands for it.
    pub fn item(&self, loops: &Loops, drafts: &[Draft], at: usize, item: &Item) -> Item {
        let first = self.first[self.place[at]];
        let (Some(from), Some(to)) = (&self.numbers[first], &self.numbers[at]) else { return item.clone() };
        if first == at {
            return item.clone();
        }
        let buf = |buf: Buf| from.buf_in(buf, to).expect("invariant: a plan names what its nests touch");
        let bufs: HashMap<&str, Buf> = from.bufs.iter().map(|&buf| (&*loops.bufs[buf].name, buf)).collect();
        let mut kernel = item.kernel.clone();
        if let Some(plan) = &mut kernel {
            plan.each_name_mut(
                &mut |name| {
                    let own = from.nest_in(name, to).expect("invariant: a plan names its nests");
                    own.clone_into(name);
                },
                &mut |name| loops.bufs[buf(bufs[name.as_str()])].name.clone_into(name),
            );
        }
        let overwrites = item.overwrites.iter().map(|&(from, to)| (buf(from), buf(to))).collect();
        Item { stmts: drafts[at].stmts(), kernel, overwrites, ..*item }
    }
}

/// The recipe of a group of nests. None for what strategies plan of which a program has few.
fn recipe(loops: &Loops, deps: &Dependences, draft: &Draft) -> Option<(Recipe, Numbers)> {
    let stmts = draft.stmts();
    let shape = shape_of(draft, &stmts)?;
    let nests: Vec<&Nest> = stmts.iter().map(|&stmt| nest(loops, stmt)).collect();
    let (meaning, numbers) = Meaning::of(loops, nests);
    let life = |&buf: &Buf| {
        let users = &deps.users[buf];
        let is_own = !deps.escapes[buf] && users.iter().all(|user| stmts.contains(user));
        let is_kept = users.iter().any(|&user| deps.stmts[user].at_load);
        [is_own, deps.escapes[buf], is_kept, loops.is_given_up(buf)]
    };
    let lives = numbers.bufs.iter().map(life).collect();
    Some((Recipe { meaning, shape, at_load: draft.at_load, lives }, numbers))
}

fn shape_of(draft: &Draft, stmts: &[usize]) -> Option<Shape> {
    let OfFamily { columns, phases } = draft.family.recipe()?;
    let mut shape = shape(&draft.group, columns, stmts)?;
    let phases = phases.iter().map(|phase| self::shape(&phase.group, phase.columns.as_ref(), stmts));
    shape.phases = phases.collect::<Option<_>>()?;
    shape.is_packed = !draft.family.packing().is_empty();
    Some(shape)
}

fn shape(group: &Group, columns: Option<&Columns>, stmts: &[usize]) -> Option<Shape> {
    let place = |member: &Member| {
        let at = stmts.iter().position(|stmt| *stmt == member.stmt)?;
        Some((at, member.bind.clone()))
    };
    Some(Shape {
        outer: group.outer.clone(),
        members: group.members.iter().map(place).collect::<Option<_>>()?,
        columns: columns.cloned(),
        is_packed: false,
        phases: Vec::new(),
    })
}
