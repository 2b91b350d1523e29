//! Defines groups: statements that become one kernel, the axes that they share, and the strategy that plans the kernel.

use crate::region::RecurrencePhases;
use crate::sweep::Sweep;
use litz_analysis::contraction::Columns;
use litz_ir::loops::Axis;
use litz_sym::{Expr, Facts, Sym};

/// Statements that become one kernel.
#[derive(Clone, Debug)]
pub struct Group {
    /// Members in order.
    pub members: Vec<Member>,
    /// Points that all members share, as variables of the group.
    pub outer: Vec<Axis>,
    /// The strategy that plans its kernel.
    pub kind: GroupKind,
    /// Runs once, when the model is loaded.
    pub at_load: bool,
    /// The statement that packs the right operand of the contraction, panel by panel.
    pub packed: Option<usize>,
}

impl Group {
    /// Positions of its statements.
    pub fn stmts(&self) -> Vec<usize> {
        self.packed.into_iter().chain(self.members.iter().map(|member| member.stmt)).collect()
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

/// The strategy that plans the kernel of a group.
#[derive(Clone, Debug)]
pub enum GroupKind {
    /// Loops.
    Loops,
    /// A contraction (a matrix product or convolution), the first member.
    Contraction(Columns),
    /// Contractions and the nests between them, one phase after another for a block of rows that all share.
    Rows(Vec<Group>),
    /// Loops over rows, and sums over the rows of a block, in one pass over these.
    Sweep(Sweep),
    /// A nest whose stores may meet, alone.
    Scatter,
    /// A recurrence, alone.
    Recurrence(RecurrencePhases),
    /// A nest, alone, whose kernel could not be proved legal, or a recurrence with such a nest, whose axis this is.
    InOrder(Option<Axis>),
    /// A routine of the runtime, alone.
    Extern,
}
