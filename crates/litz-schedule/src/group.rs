//! Defines groups: statements that share loops, and the axes that they share.

use litz_analysis::contraction::Columns;
use litz_ir::loops::Axis;
use litz_sym::{Expr, Facts, Sym};

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
