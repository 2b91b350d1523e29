//! Checks that statements which share loops respect what they depend on.
//!
//! Of two statements that touch one buffer, at least one of them writing it, the earlier one has to be done with an element
//! before the later one comes to it. In the text of a kernel it stands first, so within one iteration of the loops that
//! both share it is. What is left to prove is that they never touch an element in different iterations: by the places in
//! memory that both touch, in terms of the loops around each.
//!
//! Two kinds of shared loops need no proof: that of a region around nests that the region repeats, since
//! iteration after iteration is what the region asks for, and one that counts the blocks that both store to.

use std::collections::BTreeMap;

use litz_sym::{Expr, Sym};

use super::intervals::narrowed;
use super::{Around, Occurrence, Verifier};
use super::{example, proofs};
use crate::parts::parts_of;
use litz_ir::loops::{Axis, Buf, InstOp, Nest, Span, Stmt};

/// A load or store of a leaf.
struct Access<'a, 'p> {
    stmt: usize,
    nest: &'a Nest,
    place: &'p Occurrence,
    /// Position of the instruction.
    at: usize,
    is_store: bool,
}

impl<'a> Verifier<'a> {
    /// Reports accesses of statements that share loops, and may touch one element in another order than the program's.
    /// `spans` are the statements of regions.
    pub(super) fn dependences(&mut self, spans: &[Span]) {
        let (mut problems, mut proofs) = (Vec::new(), self.proofs.take());
        for accesses in self.accesses().values() {
            for (number, one) in accesses.iter().enumerate() {
                for other in &accesses[number + 1..] {
                    let is_dependence = (one.is_store || other.is_store) && one.stmt != other.stmt;
                    if !is_dependence || one.place.step != other.place.step {
                        continue;
                    }
                    let places = narrowed(one.place, other.place, &self.loops.facts);
                    let [one, other] = [(one, &places[0]), (other, &places[1])]
                        .map(|(access, place)| Access { place, ..*access });
                    let mut shared = shared(&one, &other, spans);
                    shared.retain(|axis| !counts_blocks_of_both(axis.var, &one, &other));
                    if shared.is_empty() {
                        continue;
                    }
                    let [mine, theirs] = [&one, &other]
                        .map(|&Access { nest, place, at, .. }| proofs::Access { nest, place, at });
                    if !proofs.are_apart(self.loops, &shared, mine, theirs) {
                        problems.push((self.conflict(&shared, &one, &other), other.place.site()));
                    }
                }
            }
        }
        problems.sort_by(|a, b| a.0.cmp(&b.0));
        problems.dedup_by(|a, b| a.0 == b.0);
        self.fail_all("dependence", problems);
        self.proofs.replace(proofs);
    }

    /// The accesses of each buffer that a kernel writes, in the order of the program.
    fn accesses(&self) -> BTreeMap<Buf, Vec<Access<'a, '_>>> {
        let loops = self.loops;
        let mut accesses: BTreeMap<Buf, Vec<Access>> = BTreeMap::new();
        for (stmt, places) in self.placed.iter().enumerate() {
            let Stmt::Nest(nest) = &loops.stmts[stmt] else { continue };
            let runs_in = parts_of(nest);
            for place in places {
                for (at, inst) in
                    nest.body.iter().enumerate().filter(|(at, _)| runs_in[*at].contains(&place.part))
                {
                    if let Some((buf, _)) = inst.op.element() {
                        // What is read of such a buffer is proved to be written.
                        let is_store = matches!(inst.op, InstOp::Store { .. });
                        let held = || if is_store { buf } else { self.held(nest, place, (at, buf)).0 };
                        if !self.recomputed.is_empty() && self.is_proved(held()) {
                            continue;
                        }
                        accesses.entry(buf).or_default().push(Access { stmt, nest, place, at, is_store });
                    }
                }
            }
        }
        accesses.retain(|_, accesses| accesses.iter().any(|access| access.is_store));
        accesses
    }

    /// What may go wrong, and where.
    fn conflict(&self, shared: &[Axis], one: &Access, other: &Access) -> String {
        let access = |access: &Access| {
            let word = if access.is_store { "store" } else { "load" };
            let element = access.nest.body[access.at].op.element();
            let (buf, index) = element.expect("invariant: an access is a load or store");
            let index: Vec<String> = index.iter().map(ToString::to_string).collect();
            format!("`{}`: {word} {}[{}]", access.nest.name, self.loops.bufs[buf].name, index.join(", "))
        };
        let loops: Vec<&str> = shared.iter().map(|axis| axis.var.name()).collect();
        let [mine, theirs] = [one, other].map(|access| self.example_of(access));
        let example = match example::meeting(self.loops, shared, &mine, &theirs) {
            Some(iterations) => format!(", such as {iterations}"),
            None => String::new(),
        };
        format!(
            "{} and {} may touch one element in different iterations of {}{example}",
            access(one),
            access(other),
            loops.join(", ")
        )
    }

    /// An access to look for an example with.
    fn example_of(&self, access: &Access) -> example::Access {
        let Access { nest, place, at, .. } = *access;
        let value = |sym: Sym| place.value(sym);
        let (_, index) = nest.body[at].op.element().expect("invariant: an access is a load or store");
        let bound = nest.all_axes().filter_map(|axis| Some((place.value(axis.var)?, axis.extent)));
        example::Access {
            loops: place.path.iter().map(|around| around.axis).collect(),
            element: index.iter().map(|at| at.subst(&value)).collect(),
            axes: bound.collect(),
        }
    }
}

/// The loops around both of two accesses whose iterations have to be told apart.
fn shared(one: &Access, other: &Access, spans: &[Span]) -> Vec<Axis> {
    let region =
        spans.iter().find(|span| [one.stmt, other.stmt].iter().all(|stmt| span.stmts.contains(stmt)));
    let is_of_region = |around: &Around| {
        let counts = |access: &Access, over| access.place.value(over) == Some(Expr::sym(around.axis.var));
        region.is_some_and(|span| counts(one, span.over.var) && counts(other, span.over.var))
    };
    let both = one.place.shared_loops(other.place).iter();
    both.filter(|around| !is_of_region(around)).map(|around| around.axis).collect()
}

/// Whether a loop counts the blocks of their buffer that both accesses store to: in different iterations these are apart.
fn counts_blocks_of_both(var: Sym, one: &Access, other: &Access) -> bool {
    let block = |access: &Access| {
        let block = access.place.block.filter(|block| access.is_store && block.number == Expr::sym(var));
        block.map(|block| block.width)
    };
    block(one).is_some_and(|width| block(other) == Some(width))
}
