//! Defines drafts, kernels in the making, and what families of kernels have to say.
//!
//! A family knows which statements a kernel of its kind takes and how the kernel runs. What decides which statements share kernels, in
//! `fuse.rs`, knows drafts by [`Family`] alone, and makes new ones by [`Machine`], the families of a kind of target.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use litz_analysis::contraction::Columns;
use litz_ir::loops::{Nest, Span, Stmt};
use litz_ir::schedule::KernelPlan;
use litz_sym::Sym;

use crate::context::Cx;
use crate::group::{Group, Phase};
use crate::no_fuse::NoFuse;

/// Statements that become one kernel, or a routine of the runtime.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The statements, and the points that they share.
    pub group: Group,
    /// It runs once, when the model is loaded.
    pub at_load: bool,
    /// What plans the kernel.
    pub family: Arc<dyn Family>,
}

/// How a statement is related to a kernel that may take it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Relation {
    /// It depends on a member.
    Behind,
    /// It depends on none, and reads what a member reads at the same points.
    Beside,
    /// The same in another order of axes, or with one axis for several.
    Aligned,
}

/// Members of a kernel at most: the time that planning, proving and compiling one takes grows faster than their number.
pub const MOST_MEMBERS: usize = 64;

impl Draft {
    /// Statements of a family.
    pub fn new(group: Group, at_load: bool, family: impl Family + 'static) -> Draft {
        Draft { group, at_load, family: Arc::new(family) }
    }

    /// The same family with other statements.
    pub fn with(&self, group: Group) -> Draft {
        Draft { group, at_load: self.at_load, family: Arc::clone(&self.family) }
    }

    /// Its family, if it is that one.
    pub fn family<F: Family + 'static>(&self) -> Option<&F> {
        (&*self.family as &dyn Any).downcast_ref()
    }

    /// Positions of its statements.
    pub fn stmts(&self) -> Vec<usize> {
        self.family.packing().into_iter().chain(self.group.stmts()).collect()
    }

    /// Whether all of its statements have become part of another draft.
    pub fn is_empty(&self) -> bool {
        self.group.members.is_empty()
    }

    /// The draft with statement `s`.
    ///
    /// # Errors
    /// Why it does not take the statement.
    pub fn take(&self, cx: &Cx<'_>, s: usize, relation: Relation) -> Result<Draft, NoFuse> {
        let info = &cx.deps.stmts[s];
        match &cx.loops.stmts[s] {
            Stmt::Extern(_) => return Err(NoFuse::Extern),
            Stmt::Nest(_) | Stmt::Recurrence(_) => {}
        }
        if let Some(why) = self.family.closed() {
            return Err(why);
        }
        if cx.in_order[s] {
            return Err(NoFuse::Unproved);
        }
        if self.at_load != info.at_load {
            return Err(NoFuse::LoadTime);
        }
        let queue = |stmt: usize| cx.loops.runs_on(&cx.loops.stmts[stmt]);
        if self.group.members.first().is_some_and(|member| queue(member.stmt) != queue(s)) {
            return Err(NoFuse::Elsewhere);
        }
        let is_scatter = |stmt: usize| cx.deps.stmts[stmt].is_scatter;
        let has_scatter = is_scatter(s) || self.group.members.iter().any(|member| is_scatter(member.stmt));
        if has_scatter && !self.family.takes_scatters() {
            return Err(NoFuse::Scatter);
        }
        if self.group.members.len() >= MOST_MEMBERS {
            return Err(NoFuse::Members);
        }
        self.family.take(cx, self, s, relation)
    }
}

/// A kernel as its family plans it.
pub struct Planned {
    /// The kernel, without a name.
    pub kernel: KernelPlan,
    /// The loop in which local buffers live, if not for a whole point of the grid.
    pub scope: Option<Sym>,
    /// Its loops take whole tiles, and its memory is declared where it is to be: leaves past the end of an axis are masked, and nothing
    /// else is added or changed.
    pub is_whole: bool,
}

impl From<KernelPlan> for Planned {
    fn from(kernel: KernelPlan) -> Planned {
        Planned { kernel, scope: None, is_whole: false }
    }
}

/// What is true of all kernels of a family.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// Buffers that no other kernel touches are memory of a point of the grid.
    pub passes_on: bool,
    /// Several kernels may share a launch.
    pub shares_launch: bool,
    /// Points are independent, so that one may store over what it alone has read.
    pub overwrites: bool,
}

/// What the plan of a kernel depends on besides the statements, and the points that they share.
pub struct Recipe<'a> {
    /// Of a product which load is which operand, and the axis that vectors run along.
    pub columns: Option<&'a Columns>,
    /// What it runs one after another, where it says so.
    pub phases: &'a [Phase],
}

/// A family of kernels: what one takes, and how it runs.
pub trait Family: Any + fmt::Debug + Send + Sync {
    /// What is true of its kernels.
    fn traits(&self) -> Traits;

    /// Why kernels of the family take no statement at all, where they take none.
    fn closed(&self) -> Option<NoFuse> {
        None
    }

    /// Whether its kernels may have stores that combine, or that may meet, beside other statements.
    fn takes_scatters(&self) -> bool {
        false
    }

    /// A draft of the family with statement `s`, which is a nest that runs when the draft does.
    ///
    /// # Errors
    /// Why it does not take the statement.
    fn take(&self, cx: &Cx<'_>, draft: &Draft, s: usize, relation: Relation) -> Result<Draft, NoFuse> {
        let _ = (cx, draft, s, relation);
        Err(self.closed().unwrap_or(NoFuse::OtherPoints))
    }

    /// Whether its statements, one by one, may be taken by another kernel.
    fn is_dissolvable(&self) -> bool {
        false
    }

    /// Whether it waits for a statement that packs an operand: see [`Machine::pack`].
    fn wants_packing(&self) -> bool {
        false
    }

    /// The statements that pack operands.
    fn packing(&self) -> Vec<usize> {
        Vec::new()
    }

    /// What plans depend on, where groups that are alike are planned once.
    fn recipe(&self) -> Option<Recipe<'_>> {
        None
    }

    /// Plans the kernel of a draft of the family. None: a routine of the runtime.
    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned>;
}

/// The families of kernels of a kind of target.
pub trait Machine {
    /// Which load of a nest is which operand, if it is a contraction that a family plans as one.
    fn contraction(&self, cx: &Cx<'_>, nest: &Nest) -> Option<Columns>;

    /// The kernel of a nest by itself.
    fn alone(&self, cx: &Cx<'_>, s: usize) -> Draft;

    /// The kernel of a region.
    fn region(&self, cx: &Cx<'_>, region: &Span) -> Draft;

    /// Whether a statement may add up rows while another kernel goes over them.
    fn adds_up(&self, cx: &Cx<'_>, s: usize) -> bool {
        let _ = (cx, s);
        false
    }

    /// The kernel that adds up `sums` while it goes over `rows`, which saves so many bytes of traffic.
    ///
    /// # Errors
    /// Why there is none.
    fn sweep(&self, cx: &Cx<'_>, rows: &Draft, sums: &Draft, bytes: i64) -> Result<Draft, NoFuse> {
        let _ = (cx, rows, sums, bytes);
        Err(NoFuse::OtherShape)
    }

    /// Whether a statement gathers an operand of a product by indices that are data: it has points of its own, and joins nothing before it.
    fn gathers(&self, cx: &Cx<'_>, s: usize) -> bool {
        let _ = (cx, s);
        false
    }

    /// The kernel of a product with the one statement of `packing`, if that packs its right operand and nothing else reads it.
    fn pack(&self, cx: &Cx<'_>, packing: &Draft, product: &Draft) -> Option<Draft> {
        let _ = (cx, packing, product);
        None
    }

    /// The kernel of rows that alone need what the kernel of one `row` makes, if each of its blocks may as well make that for itself.
    fn repeat_row(&self, cx: &Cx<'_>, row: &Draft, rows: &Draft) -> Option<Draft> {
        let _ = (cx, row, rows);
        None
    }
}
