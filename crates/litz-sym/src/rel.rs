//! Compares expressions and says what can be known about a comparison.

use crate::expr::{Expr, Sym};

/// What facts say about a relation. Where they say nothing, ask the run time, not the hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Known {
    /// It holds for every binding that the facts allow.
    Yes,
    /// It holds for none.
    No,
    /// Neither could be proved.
    Unknown,
}

impl Known {
    /// Whether this is [`Known::Yes`].
    pub fn is_yes(self) -> bool {
        self == Known::Yes
    }

    /// Whether this is [`Known::No`].
    pub fn is_no(self) -> bool {
        self == Known::No
    }
}

/// A comparison; `>` and `>=` are written with swapped sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cmp {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
}

/// A relation between two expressions, such as `s0 < 2*s1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rel {
    /// The comparison.
    pub cmp: Cmp,
    /// Left side.
    pub lhs: Expr,
    /// Right side.
    pub rhs: Expr,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident($lhs:ident, $rhs:ident) = $cmp:ident $a:ident $b:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name($lhs: impl Into<Expr>, $rhs: impl Into<Expr>) -> Rel {
            Rel { cmp: Cmp::$cmp, lhs: $a.into(), rhs: $b.into() }
        }
    )*};
}

impl Rel {
    constructors! {
        /// `lhs == rhs`
        eq(lhs, rhs) = Eq lhs rhs;
        /// `lhs != rhs`
        ne(lhs, rhs) = Ne lhs rhs;
        /// `lhs < rhs`
        lt(lhs, rhs) = Lt lhs rhs;
        /// `lhs <= rhs`
        le(lhs, rhs) = Le lhs rhs;
        /// `lhs > rhs`, kept as `rhs < lhs`
        gt(lhs, rhs) = Lt rhs lhs;
        /// `lhs >= rhs`, kept as `rhs <= lhs`
        ge(lhs, rhs) = Le rhs lhs;
    }

    /// The relation that holds exactly where this one does not.
    pub fn negate(self) -> Rel {
        let Rel { cmp, lhs, rhs } = self;
        match cmp {
            Cmp::Eq => Rel { cmp: Cmp::Ne, lhs, rhs },
            Cmp::Ne => Rel { cmp: Cmp::Eq, lhs, rhs },
            Cmp::Lt => Rel { cmp: Cmp::Le, lhs: rhs, rhs: lhs },
            Cmp::Le => Rel { cmp: Cmp::Lt, lhs: rhs, rhs: lhs },
        }
    }

    /// Substitutes on both sides; see [`Expr::subst`].
    pub fn subst(self, value: &dyn Fn(Sym) -> Option<Expr>) -> Rel {
        Rel { cmp: self.cmp, lhs: self.lhs.subst(value), rhs: self.rhs.subst(value) }
    }

    /// Whether it holds; None where a side has no value, see [`Expr::eval`].
    pub fn eval(self, value: &dyn Fn(Sym) -> Option<i64>) -> Option<bool> {
        let (lhs, rhs) = (self.lhs.eval(value)?, self.rhs.eval(value)?);
        Some(match self.cmp {
            Cmp::Eq => lhs == rhs,
            Cmp::Ne => lhs != rhs,
            Cmp::Lt => lhs < rhs,
            Cmp::Le => lhs <= rhs,
        })
    }
}

/// Relations of which at least one holds, such as `s1 == 1 or s1 == s0`. Most clauses are a single relation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clause {
    alternatives: Vec<Rel>,
}

impl Clause {
    /// Each relation once, in order of first occurrence. Without alternatives it never holds.
    pub fn new(alternatives: impl IntoIterator<Item = Rel>) -> Clause {
        let mut clause = Clause { alternatives: Vec::new() };
        for rel in alternatives {
            if !clause.alternatives.contains(&rel) {
                clause.alternatives.push(rel);
            }
        }
        clause
    }

    /// The relations.
    pub fn alternatives(&self) -> &[Rel] {
        &self.alternatives
    }

    /// Whether one alternative holds; None where none does and one has no value.
    pub fn eval(&self, value: &dyn Fn(Sym) -> Option<i64>) -> Option<bool> {
        let mut holds = Some(false);
        for rel in &self.alternatives {
            match rel.eval(value) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => holds = None,
            }
        }
        holds
    }
}

impl From<Rel> for Clause {
    fn from(rel: Rel) -> Clause {
        Clause { alternatives: vec![rel] }
    }
}
