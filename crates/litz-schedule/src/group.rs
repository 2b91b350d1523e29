//! Defines groups: statements that share loops, and the axes that they share.

use litz_analysis::access::{Stride, bound_places, side_exprs, stride, substitute};
use litz_analysis::contraction::Columns;
use litz_ir::loops::{Axis, Loops};
use litz_sym::{Expr, Facts, Sym};

use crate::axes::{Merged, fresh, is_plain, merge_axes, order_axes};
use crate::nest;

/// Statements that share loops.
#[derive(Clone, Default, Debug)]
pub struct Group {
    /// Members in order.
    pub members: Vec<Member>,
    /// Points that all members share, as variables of the group.
    pub outer: Vec<Axis>,
}

impl Group {
    /// One statement, which shares no points.
    pub fn of(stmt: usize) -> Group {
        Group { members: vec![Member { stmt, bind: Vec::new() }], outer: Vec::new() }
    }

    /// Positions of its statements.
    pub fn stmts(&self) -> Vec<usize> {
        self.members.iter().map(|member| member.stmt).collect()
    }

    /// `facts` with the shared axes declared as indices.
    pub fn facts(&self, facts: &Facts) -> Facts {
        let mut facts = facts.clone();
        self.outer.iter().for_each(|a| facts.declare_index(a.var, a.extent));
        facts
    }
}

/// A statement of a group.
#[derive(Clone, Debug)]
pub struct Member {
    /// Position among the statements.
    pub stmt: usize,
    /// Axes of its nest that the shared points determine; the others are its own.
    pub bind: Vec<(Sym, Expr)>,
}

impl Member {
    /// Whether an axis of its nest is its own: the shared points do not determine it.
    pub fn is_own(&self, axis: &Axis) -> bool {
        !self.bind.iter().any(|bound| bound.0 == axis.var)
    }
}

/// What a kernel does at each of its points, one after another: a product with what follows at the points of its tiles, or loops.
#[derive(Clone, Debug)]
pub struct Phase {
    /// The statements. Where it is a product, the first is.
    pub group: Group,
    /// Of a product which load is which operand, and the axis that vectors run along.
    pub columns: Option<Columns>,
}

/// The axes that members share, in the order of memory, merged where all that members access walks them as one: at least one.
/// `facts` are those of the loops around, the group's axes among them; `name` names the merged ones.
pub fn shared_axes(loops: &Loops, group: &Group, facts: &Facts, name: &dyn Fn(usize) -> Sym) -> Vec<Merged> {
    let (mut indices, mut others) = (Vec::new(), Vec::new());
    let mut weighted = Vec::new();
    for member in &group.members {
        let n = nest(loops, member.stmt);
        for (access, index) in bound_places(loops, n, &member.bind, &n.facts(facts)) {
            indices.push(index);
            // Stores decide ties: they count double.
            weighted.extend(std::iter::repeat_n(index, if access.store { 2 } else { 1 }));
        }
        others.extend(side_exprs(n).into_iter().map(|e| substitute(e, &member.bind)));
        // A binding that is no plain sum would become a division of a division.
        others.extend(member.bind.iter().map(|b| b.1).filter(|e| !is_plain(*e)));
    }
    let (ones, mut axes): (Vec<Axis>, Vec<Axis>) = group.outer.iter().partition(|a| a.extent.is_one());
    order_axes(&mut axes, &weighted, facts);
    let mut shared = merge_axes(&axes, &indices, &others, name);
    if shared.is_empty() {
        let axis = Axis { var: name(0), extent: Expr::one() };
        shared.push(Merged { axis, parts: Vec::new() });
    }
    shared[0].parts.extend(ones.iter().map(|a| (a.var, Expr::zero())));
    shared
}

/// Whether neighbours along an axis are neighbours in all that members store; `values` are the group's axes in terms of it and of others.
pub fn is_stored_along(loops: &Loops, group: &Group, values: &[(Sym, Expr)], axis: Sym) -> bool {
    let facts = group.facts(&loops.facts);
    group.members.iter().all(|member| {
        let own = nest(loops, member.stmt);
        let places = bound_places(loops, own, &member.bind, &own.facts(&facts));
        let place = |place: Expr| facts.simplify(substitute(place, values));
        let mut stores = places.into_iter().filter(|found| found.0.store);
        stores.all(|found| stride(place(found.1), axis) == Stride::Unit)
    })
}

/// A variable that is no size and no axis of a member.
pub fn beside_axes(loops: &Loops, group: &Group, name: &str) -> Sym {
    let is_axis = |s: Sym| {
        let mut nests = group.members.iter().map(|m| nest(loops, m.stmt));
        nests.any(|n| n.all_axes().any(|a| a.var == s))
    };
    fresh(name, |s| is_axis(s) || loops.facts.is_symbol_declared(s))
}
