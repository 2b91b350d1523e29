//! Caches proofs about leaves and accesses, since the kernels of equal layers ask the same questions again.
//!
//! A question is all that its answer depends on, besides what the program knows of its symbols. Names of nests and
//! buffers are no part of it.

use std::collections::{HashMap, HashSet};

use litz_ir::loops::{Axis, InstOp, Loops, Nest};
use litz_sym::{Expr, Rel, Sym};

use super::Occurrence;
use super::branches::{Divided, Together};
use crate::apart::{Touch, Visit};
use crate::inside::longest;

/// A load or store of a leaf.
#[derive(Clone, Copy)]
pub(super) struct Access<'a, 'p> {
    pub(super) nest: &'a Nest,
    pub(super) place: &'p Occurrence,
    /// Position of the instruction.
    pub(super) at: usize,
}

/// What is asked of an access.
#[derive(PartialEq, Eq, Hash)]
struct Question<'a> {
    /// Axes and bound symbols with their extents, and with their values if they have one.
    indices: Vec<(Sym, Expr, Option<Expr>)>,
    /// The loops around.
    around: Vec<Axis>,
    /// Sizes and strides of the buffer.
    layout: (&'a [Expr], &'a [Expr]),
    element: &'a [Expr],
    guard: &'a [Rel],
}

/// A point of a nest where it is taken.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Point {
    /// The coordinates that are asked of, in terms of the nest's axes.
    pub(super) element: Vec<Expr>,
    /// Axes and bound symbols with their extents, and with their values if they have one.
    pub(super) indices: Vec<(Sym, Expr, Option<Expr>)>,
    /// The loops around.
    pub(super) around: Vec<Axis>,
    /// What holds there.
    pub(super) conds: Vec<Rel>,
}

/// Two points, whether they are of one nest, the loops around both, and the loops over threads.
type Owned = ([Point; 2], bool, [Vec<Axis>; 2]);

/// The number of a question, among all that were asked.
type Number = usize;

/// Axes with values and extents, the loops around, and whether the leaf is masked.
type Bindings = (Vec<(Expr, Expr)>, Vec<Axis>, bool);

/// Values with extents, the loops around, and what holds there.
type Insides = (Vec<(Expr, Expr)>, Vec<Axis>, Vec<Rel>);

/// Answers to questions.
#[derive(Default)]
pub(super) struct Proofs<'a> {
    numbers: HashMap<Question<'a>, Number>,
    /// Of places, by their positions and the values of axes, in such loops; None where these have no points.
    visits: HashMap<(usize, Vec<(Sym, Expr)>, Vec<Axis>), Option<Visit<'a>>>,
    /// What each access touches; None where it never happens.
    touches: Vec<Option<Touch<'a>>>,
    apart: HashMap<(Number, Number, [Vec<Axis>; 2]), bool>,
    /// Whether points are taken by the same thread alone.
    pub(super) owned: HashMap<Owned, bool>,
    /// Those that take each point once.
    covered: HashSet<Bindings>,
    /// Those that are inside.
    inside: HashSet<Insides>,
    /// Of leaves in bodies of `if`s, those that together take each point once, and the loops in which they do.
    pub(super) divided: HashMap<Divided, Together>,
}

impl<'a> Proofs<'a> {
    /// Whether two accesses only touch one place where the variables of the `shared` loops are equal; see [`Touch::is_apart`].
    ///
    /// Loops that end early are taken as long as the others first. What is equal in form is told apart sooner.
    pub(super) fn are_apart(
        &mut self,
        loops: &'a Loops,
        shared: &[Axis],
        one: Access<'a, '_>,
        other: Access<'a, '_>,
    ) -> bool {
        self.are_apart_within(loops, [&[], shared], one, other)
    }

    /// As [`Proofs::are_apart`], of accesses in the same iteration of the loops `around` both.
    pub(super) fn are_apart_within(
        &mut self,
        loops: &'a Loops,
        [around, shared]: [&[Axis]; 2],
        one: Access<'a, '_>,
        other: Access<'a, '_>,
    ) -> bool {
        let shared = [around, shared];
        let ends_early = |access: Access| {
            let around = access.place.path.iter().map(|around| around.axis.extent);
            around.into_iter().any(|extent| longest(extent) != extent)
        };
        self.are_apart_in(loops, shared, [one, other], longest)
            || (ends_early(one) || ends_early(other))
                && self.are_apart_in(loops, shared, [one, other], std::convert::identity)
    }

    fn are_apart_in(
        &mut self,
        loops: &'a Loops,
        [around, shared]: [&[Axis]; 2],
        accesses: [Access<'a, '_>; 2],
        extent: fn(Expr) -> Expr,
    ) -> bool {
        let [one, other] = accesses.map(|access| self.number(loops, access, extent));
        let touches = &self.touches;
        *self.apart.entry((one, other, [around.to_vec(), shared.to_vec()])).or_insert_with(|| {
            // What never happens touches nothing.
            let [one, other] = [one, other].map(|number| touches[number].as_ref());
            one.is_none_or(|one| other.is_none_or(|other| one.is_apart_within(around, shared, other)))
        })
    }

    fn number(&mut self, loops: &'a Loops, access: Access<'a, '_>, extent: fn(Expr) -> Expr) -> Number {
        let Access { nest, place, at } = access;
        let inst = &nest.body[at].op;
        let (buf, element) = inst.element().expect("invariant: an access is a load or store");
        let guard: &[Rel] = if let InstOp::Load { guard, .. } = inst { guard } else { &[] };
        let data = &loops.bufs[buf];
        let around = place.path.iter().map(|around| around.axis);
        let question = Question {
            indices: nest.indices().map(|axis| (axis.var, axis.extent, place.value(axis.var))).collect(),
            around: around.map(|axis| Axis { extent: extent(axis.extent), ..axis }).collect(),
            layout: (&data.sizes, &data.strides),
            element,
            guard,
        };
        let (visits, touches) = (&mut self.visits, &mut self.touches);
        *self.numbers.entry(question).or_insert_with_key(|question| {
            let known = (place.at, place.bind.clone(), question.around.clone());
            let visit = visits.entry(known).or_insert_with_key(|(_, bind, around)| {
                Visit::new(loops, nest, bind, around.iter().copied(), std::iter::empty())
            });
            touches.push(visit.as_ref().and_then(|visit| visit.touch(at)));
            touches.len() - 1
        })
    }

    /// Whether loops are known to take each point of axes once.
    pub(super) fn is_covered(&self, bindings: &Bindings) -> bool {
        self.covered.contains(bindings)
    }

    /// Whether values are known to be below extents in loops where conditions hold.
    pub(super) fn is_inside(&self, question: &Insides) -> bool {
        self.inside.contains(question)
    }

    /// Remembers that values are below extents.
    pub(super) fn put_inside(&mut self, question: Insides) {
        self.inside.insert(question);
    }

    /// Remembers that loops take each point of axes once.
    pub(super) fn cover(&mut self, bindings: Bindings) {
        self.covered.insert(bindings);
    }
}
