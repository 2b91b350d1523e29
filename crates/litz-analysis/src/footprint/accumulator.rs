//! Computes the shape of accumulators: the points of a nest for which they need an element where they are declared.

use super::strided::StridedSet;
use super::{Around, Declared, Footprints, Path, bound};
use crate::apart::may_be_below;
use crate::inside::{enter, is_inside, longest};
use litz_ir::loops::Axis;
use litz_ir::schedule::{Leaf, LocalSpace, LoopKind, Part, Tree};
use litz_sym::{Expr, Facts, Rel, Sym};

/// Which points accumulators have elements for.
#[derive(Clone, PartialEq)]
pub struct Shape {
    /// Loops whose variables are coordinates. Their extents are those of the memory: of registers whole vectors, so that each
    /// row starts with one.
    loops: Vec<Axis>,
    /// Further coordinates, of axes that leaves count by different loops.
    digits: Vec<Digit>,
}

/// A coordinate `mod(floordiv(axis - first, step), count)`.
#[derive(Clone, PartialEq)]
struct Digit {
    axis: Sym,
    first: Expr,
    step: Expr,
    count: Expr,
    /// The outermost digit of its axis is below its count as it is.
    is_outermost: bool,
}

impl Shape {
    /// The dimensions of the memory.
    pub fn sizes(&self) -> Vec<Expr> {
        self.loops.iter().map(|axis| axis.extent).chain(self.digits.iter().map(|digit| digit.count)).collect()
    }

    /// The coordinates of the element for the point at which `leaf` runs.
    pub fn index(&self, leaf: &Leaf, facts: &Facts) -> Vec<Expr> {
        let along = self.digits.iter().map(|digit| {
            let value = facts.simplify(bound(leaf, digit.axis).unwrap_or(Expr::zero()) - digit.first);
            let value = facts.simplify(value.floordiv(digit.step));
            if digit.is_outermost { value } else { facts.simplify(value.modulo(digit.count)) }
        });
        // A loop of one point has left its leaves.
        let place = |axis: &Axis| if is_counted(leaf, axis.var) { Expr::sym(axis.var) } else { Expr::zero() };
        self.loops.iter().map(place).chain(along).collect()
    }

    /// What guards an access by `leaf` of an element at a point that exists where `guard` holds: there is one for each point of
    /// loops that are dimensions, those past the end of an axis among them, but along other axes only for the points that the axis
    /// has, unless there is room for more; and where a loop has left the leaf, only for the points that the loop has, which may be none.
    pub fn guard_of(&self, leaf: &Leaf, guard: &[Rel], facts: &Facts) -> Vec<Rel> {
        let has_all = guard.is_empty()
            || self.loops.iter().all(|axis| is_counted(leaf, axis.var)) && self.has_room(leaf, facts);
        if has_all { Vec::new() } else { guard.to_vec() }
    }

    /// Whether digits give each point of a leaf an element of its own, those past the ends of axes among them.
    fn has_room(&self, leaf: &Leaf, facts: &Facts) -> bool {
        let has_all_below = |at: usize| {
            let (digit, below) = (&self.digits[at], self.digits.get(at + 1));
            let unit = match below.filter(|below| !below.is_outermost) {
                Some(below) => below.step * below.count,
                None => Expr::one(),
            };
            digit.step == unit
        };
        let index = self.index(leaf, facts);
        let mut places = index[self.loops.len()..].iter().zip(&self.digits);
        (0..self.digits.len()).all(has_all_below)
            && places.all(|(&at, digit)| is_inside(at, digit.count, facts) && !may_be_below(at, facts))
    }
}

/// Whether coordinates of the leaf's points are counted by a loop.
fn is_counted(leaf: &Leaf, var: Sym) -> bool {
    leaf.bind.iter().any(|bind| bind.1.has_sym(var))
}

impl<'p> Footprints<'p> {
    /// The shape of the accumulators of a nest where they are declared: they have elements for the points of the loops around their `init`.
    /// Coordinates are loops where all leaves count the axes by the same ones. None where that never runs.
    pub(super) fn shape(&self, name: &str, declared: &Declared<'p>) -> Result<Option<Shape>, String> {
        let (nest, space) = (self.nest(name)?, declared.local.space);
        let Some(mut facts) = self.facts_at(&declared.path) else { return Ok(None) };
        let mut users = Vec::new();
        users_in(declared.rest, (name, 0), &mut Vec::new(), &mut users);
        // In one body of an `if` loops may have a single point, and have left their leaves.
        let inits = || users.iter().filter(|user| user.leaf.part == Part::Init);
        let spanned = |user: &User| {
            let has_points = user.loops.iter().all(|around| !around.1.extent.is_zero());
            (has_points, user.loops.iter().filter(|around| is_counted(user.leaf, around.1.var)).count())
        };
        let most = inits().map(spanned).max();
        let Some(init) = inits().find(|user| Some(spanned(user)) == most) else {
            return Err(format!("{name} combines before its init"));
        };
        let values = || init.leaf.bind.iter().copied();
        init.loops.iter().for_each(|(_, axis)| facts.declare_index(axis.var, axis.extent));
        // The last iteration of a loop around may have fewer points than the others.
        let outside = self.plan.grid.iter().copied().chain(declared.path.loops());
        let around: Vec<Sym> = outside.chain(init.loops.iter().map(|l| l.1)).map(|axis| axis.var).collect();
        let length = |(kind, axis): &(LoopKind, Axis)| {
            let extent = facts.largest(longest(axis.extent), &around);
            match (kind, space) {
                (LoopKind::Vector { lanes, .. }, LocalSpace::Register) => {
                    extent.ceildiv(i64::from(*lanes)) * i64::from(*lanes)
                }
                _ => extent,
            }
        };
        let spanned =
            init.loops.iter().filter(|(_, axis)| values().any(|(_, value)| value.has_sym(axis.var)));
        // What is masked may come to points past the end of an axis in longer loops than those of `init`.
        let longest_of = |var: Sym| {
            let alike = users.iter().flat_map(|user| &user.loops).filter(|around| around.1.var == var);
            alike
                .map(length)
                .reduce(|one, other| if one == other { one } else { facts.simplify(one.max(other)) })
        };
        let spanned =
            spanned.map(|own| Axis { extent: longest_of(own.1.var).unwrap_or_else(|| length(own)), ..own.1 });
        let spans = |var: Sym| init.loops.iter().any(|around| around.1.var == var);
        let is_same = |(axis, value): (Sym, Expr)| {
            users.iter().all(|user| {
                let is_around = |var: Sym| user.loops.iter().any(|around| around.1.var == var);
                // In the rest of a tile that is one point a loop of the others may be left out.
                let there = value.subst(&|var| (spans(var) && !is_around(var)).then(Expr::zero));
                bound(user.leaf, axis) == Some(there)
            })
        };
        let is_loop = |axis: &Axis| values().filter(|(_, value)| value.has_sym(axis.var)).all(is_same);
        let (loops, inside): (Vec<Axis>, Vec<Axis>) = spanned.partition(is_loop);
        let mut digits = Vec::new();
        for axis in nest.kept_apart() {
            let value =
                bound(init.leaf, axis.var).filter(|value| inside.iter().any(|axis| value.has_sym(axis.var)));
            let Some(value) = value else { continue };
            let set = StridedSet::of(value, &inside, &facts).unwrap_or(StridedSet::whole(axis.extent));
            let steps = set.steps.iter().enumerate();
            digits.extend(steps.map(|(at, &(step, count))| Digit {
                axis: axis.var,
                first: set.base,
                step,
                count,
                is_outermost: at == 0,
            }));
        }
        Ok(Some(Shape { loops, digits }))
    }

    /// What is known where something is. None where that never runs.
    fn facts_at(&self, path: &Path<'_>) -> Option<Facts> {
        let mut facts = self.facts.clone();
        for around in &path.around {
            match *around {
                Around::Loop(axis) => {
                    let axis = Axis { extent: facts.simplify(axis.extent), ..axis };
                    if axis.extent.is_zero() {
                        return None;
                    }
                    enter(&mut facts, axis);
                }
                Around::Cond(cond) => {
                    if !facts.assume(cond) {
                        return None;
                    }
                }
            }
        }
        Some(facts)
    }
}

/// A leaf that touches accumulators, with the loops between it and their declaration, outermost first.
struct User<'a> {
    leaf: &'a Leaf,
    loops: Vec<(LoopKind, Axis)>,
}

/// Gathers the leaves of a nest in trees that touch accumulators which are declared before these, and so many times within
/// them again.
fn users_in<'a>(
    trees: &'a [Tree],
    (nest, mut again): (&str, usize),
    path: &mut Vec<(LoopKind, Axis)>,
    users: &mut Vec<User<'a>>,
) {
    for tree in trees {
        match tree {
            Tree::Local(local) => again += usize::from(local.accumulates() == Some(nest)),
            Tree::Leaf(leaf) => {
                let touches = again == 0 || again == 1 && leaf.part == Part::Merge;
                if leaf.nest == nest && touches {
                    users.push(User { leaf, loops: path.clone() });
                }
            }
            Tree::Loop { kind, axis, body } => {
                path.push((*kind, *axis));
                users_in(body, (nest, again), path, users);
                path.pop();
            }
            Tree::If { then, other, .. } => {
                [then, other].into_iter().for_each(|body| users_in(body, (nest, again), path, users));
            }
        }
    }
}
