//! Proves that a kernel reaches no element outside of the memories that it declares.
//!
//! Native code accesses memory unchecked, so each access has to be *known* to be inside: for all sizes that the kernel's
//! facts allow, wherever the loops and conditions around it and its own guard let it happen. What is unknown counts as
//! outside. Together with a launch that compares what a kernel declares with what it is given, this keeps native code
//! within its memory whoever wrote the kernel.
//!
//! Almost every index of a kernel without symbolic sizes is proved by ranges of numbers; facts, which can do more and
//! cost more, are only made where that fails.

use std::fmt;

use litz_sym::{Expr, Facts, Kind, Range, Rel, Sym};

use crate::kernel::{
    Act, Fragment, FragmentLoad, Kernel, KernelLoopKind, LaneReduction, Loop, MatrixProduct, Mem,
    MemorySpace, Op, Rows, Stmt, Sync,
};
use crate::loops::Axis;
use crate::target::{Instruction, Side};

/// An access that is not known to stay inside of its memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Escape {
    /// Name of the memory.
    pub mem: String,
    /// Dimension in which it may be outside.
    pub dim: usize,
    /// Coordinate in that dimension.
    pub index: Expr,
    /// Size of the dimension.
    pub extent: Expr,
    /// What all has to hold for the access to happen, besides the loops around.
    pub guard: Vec<Rel>,
}

impl fmt::Display for Escape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Escape { mem, dim, index, extent, guard } = self;
        write!(f, "`{mem}`: {index} is not known to stay inside of its {extent} elements")?;
        if *dim > 0 {
            write!(f, " along dimension {dim}")?;
        }
        guard.iter().try_for_each(|rel| write!(f, ", if {rel}"))
    }
}

/// The accesses of a kernel that are not known to stay inside of the memories it declares.
pub fn escapes(kernel: &Kernel) -> Vec<Escape> {
    escapes_of(kernel, |_| true)
}

/// As [`escapes`], of the memories in some spaces alone.
pub fn escapes_of(kernel: &Kernel, is_asked: fn(MemorySpace) -> bool) -> Vec<Escape> {
    let outside = Some(kernel.facts.clone());
    let mut walk = Walk { kernel, is_asked, outside, scopes: Vec::new(), escapes: Vec::new() };
    kernel.grid.iter().for_each(|&axis| walk.enter_axis(axis));
    walk.block(&kernel.body);
    walk.escapes
}

/// What one of the loops, conditions and checks around an access says.
struct Scope {
    says: Says,
    /// What follows from this and the scopes around it, where that was asked for; `Some(None)` where they contradict
    /// each other, so that nothing gets there.
    facts: Option<Option<Facts>>,
    /// The variable of a loop over warps or threads, each of which has a row of a block: indices are told from each other by whole rows
    /// first.
    row: Option<Sym>,
}

enum Says {
    /// The variable of a loop, or a checked index, is in `0 .. extent`; its range as numbers.
    Index(Axis, Range),
    /// All of these hold.
    Condition(Vec<Rel>),
}

impl Says {
    /// `facts` and this; nothing where they contradict each other.
    fn after(&self, mut facts: Facts) -> Option<Facts> {
        let is_possible = match self {
            Says::Condition(rels) => rels.iter().all(|&rel| facts.assume(rel)),
            Says::Index(Axis { var, extent }, _) => {
                // Where the variable has a value, there is one.
                let is_possible = facts.assume(Rel::le(1, *extent));
                facts.declare_index(*var, *extent);
                is_possible
            }
        };
        is_possible.then_some(facts)
    }
}

struct Walk<'a> {
    kernel: &'a Kernel,
    /// Whether accesses of memories in a space are looked at.
    is_asked: fn(MemorySpace) -> bool,
    /// What is known around all scopes.
    outside: Option<Facts>,
    /// Outermost first.
    scopes: Vec<Scope>,
    escapes: Vec<Escape>,
}

impl Walk<'_> {
    fn enter(&mut self, says: Says) {
        self.scopes.push(Scope { says, facts: None, row: None });
    }

    fn enter_axis(&mut self, axis: Axis) {
        let last = self.most(axis.extent).saturating_sub(1).max(0);
        self.enter(Says::Index(axis, Range::new(0, last)));
    }

    fn block(&mut self, stmts: &[Stmt]) {
        let depth = self.scopes.len();
        for stmt in stmts {
            match stmt {
                Stmt::Loop(Loop { kind, var, extent, body }) => {
                    let depth = self.scopes.len();
                    self.enter_axis(Axis { var: *var, extent: *extent });
                    if let (KernelLoopKind::Level(_), Some(scope)) = (kind, self.scopes.last_mut()) {
                        scope.row = matches!(extent.kind(), Kind::Min(..)).then_some(*var);
                    }
                    if let KernelLoopKind::Vector { lanes, copies, lane: Some(lane), .. } = *kind {
                        self.enter_axis(Axis { var: lane, extent: in_flight(lanes, copies) });
                    }
                    self.block(body);
                    self.scopes.truncate(depth);
                }
                Stmt::If { cond, then, other } => {
                    self.conditional(cond.clone(), then);
                    // Of several relations it is not known which one fails.
                    let not = if let [rel] = cond[..] { vec![rel.negate()] } else { Vec::new() };
                    self.conditional(not, other);
                }
                Stmt::Act(
                    Act::Let { op: Op::Load { guard, .. }, .. }
                    | Act::Store { guard, .. }
                    | Act::MulAdd { guard, .. },
                ) => {
                    stmt.accesses().for_each(|(mem, index)| self.access(mem, index, guard));
                }
                Stmt::Act(Act::Let { op: Op::Transposed { .. }, .. } | Act::ArgStore { .. }) => {
                    stmt.accesses().for_each(|(mem, index)| self.access(mem, index, &[]));
                }
                Stmt::Act(Act::Let { op: Op::Lookup { mem, first, count, .. }, .. }) => {
                    let entry = Axis { var: Sym::new("lookup.entry"), extent: Expr::int(i64::from(*count)) };
                    self.enter_axis(entry);
                    let mut reached = first.clone();
                    if let Some(last) = reached.last_mut() {
                        *last = *last + Expr::sym(entry.var);
                    }
                    self.access(*mem, &reached, &[]);
                    self.scopes.pop();
                }
                Stmt::Act(Act::Dot(dot)) => {
                    let factors = dot.terms.iter().flatten();
                    factors.for_each(|factor| self.access(factor.mem, &factor.index, &factor.guard));
                    self.access(dot.mem, &dot.index, &[]);
                }
                Stmt::Act(Act::MatrixProduct(product)) => self.matrix_product(product),
                Stmt::Act(Act::FragmentLoad(load)) => self.fragment_load(load),
                Stmt::Act(Act::FragmentProduct(product)) => {
                    let (by, columns) = (product.by, i64::from(product.columns));
                    product.fragments().into_iter().for_each(|own| self.fragment(own, by, columns));
                    product.rows().into_iter().for_each(|rows| self.fragment_rows(rows, by, columns));
                }
                Stmt::Act(Act::Lanes(LaneReduction { first, lanes, copies, .. })) => {
                    stmt.stored().for_each(|(mem, index)| self.access(mem, index, &[]));
                    let is_own =
                        |mem: Mem| self.kernel.mems.get(mem).is_some_and(|m| m.space == MemorySpace::Own);
                    // Of what each thread has of its own, each lane has one element.
                    let is_spread = !stmt.loaded().any(|(mem, _)| is_own(mem));
                    let extent = if is_spread { in_flight(*lanes, *copies) } else { Expr::one() };
                    let lane = Axis { var: Sym::new("lanes.lane"), extent };
                    self.enter_axis(lane);
                    let mut reached = first.clone();
                    if let Some(last) = reached.last_mut() {
                        *last = *last + Expr::sym(lane.var);
                    }
                    stmt.loaded().for_each(|(mem, _)| self.access(mem, &reached, &[]));
                    self.scopes.pop();
                }
                Stmt::Act(Act::Copy { count, from, to, .. }) => {
                    let count = Expr::int(i64::from(*count));
                    let element = Axis { var: Sym::new("copy.element"), extent: count };
                    self.enter_axis(element);
                    for run in [from, to] {
                        let index = run.index.iter().map(|&at| at * count + Expr::sym(element.var));
                        self.access(run.mem, &index.collect::<Vec<_>>(), &run.guard);
                    }
                    self.scopes.pop();
                }
                Stmt::Act(Act::BoxCopy(copy)) => {
                    let axes = copy.axes();
                    axes.iter().for_each(|&axis| self.enter_axis(axis));
                    self.access(copy.to, &[copy.inside(&axes)], &[]);
                    let (outside, there, guard) = copy.reached(&axes);
                    there.iter().for_each(|&axis| self.enter_axis(axis));
                    self.access(copy.from, &[outside], &guard);
                    self.scopes.truncate(self.scopes.len() - there.len() - axes.len());
                }
                Stmt::Act(Act::Bind { sym, extent, .. }) => {
                    self.enter_axis(Axis { var: *sym, extent: *extent });
                }
                Stmt::Act(Act::Sync(Sync::Acquire { ring, buffer, .. })) => {
                    let buffers = self.kernel.rings.get(*ring).map_or(0, |ring| ring.buffers);
                    self.enter_axis(Axis { var: *buffer, extent: Expr::int(i64::from(buffers)) });
                }
                // A prefetch may be outside.
                Stmt::Act(Act::Let { .. } | Act::Sync(_) | Act::Prefetch { .. }) => {}
            }
        }
        self.scopes.truncate(depth);
    }

    /// Checks the accesses of a product of matrices as those of the loops that it stands for.
    fn matrix_product(&mut self, product: &MatrixProduct) {
        let depth = self.scopes.len();
        let group = i64::from(product.by.group);
        let axes = [
            ("matrix.row", product.rows),
            ("matrix.column", product.columns),
            ("matrix.group", Expr::int(i64::from(product.depth) / group)),
            ("matrix.element", Expr::int(group)),
        ];
        let [row, column, groups, element] = axes.map(|(name, extent)| Axis { var: Sym::new(name), extent });
        let [sum, left, right] = product.places(
            Expr::sym(row.var),
            Expr::sym(column.var),
            Expr::sym(groups.var),
            Expr::sym(element.var),
        );
        [row, column].into_iter().for_each(|axis| self.enter_axis(axis));
        self.access(product.sum.mem, &[sum], &[]);
        product.over.iter().copied().chain([groups, element]).for_each(|axis| self.enter_axis(axis));
        self.access(product.left.mem, &[left], &[]);
        self.access(product.right.mem, &[right], &[]);
        self.scopes.truncate(depth);
    }

    fn fragment_load(&mut self, load: &FragmentLoad) {
        let columns = i64::from(load.by.columns);
        self.fragment((load.side, &load.into), load.by, columns);
        self.fragment_rows((load.side, &load.rows), load.by, columns);
    }

    /// Checks the rows of an operand that lie in shared memory.
    fn fragment_rows(&mut self, (side, rows): (Side, &Rows), by: &Instruction, columns: i64) {
        let around = self.scopes.len();
        let [count, beside] = rows.extents(by, side, columns).map(Expr::int);
        let element = Sym::new("fragment.element");
        self.enter_axis(Axis { var: rows.row, extent: count });
        self.enter_axis(Axis { var: element, extent: beside });
        self.access(rows.mem, &[rows.first + rows.beside(Expr::sym(element))], &[]);
        self.scopes.truncate(around);
    }

    /// Checks what each lane has of a matrix.
    fn fragment(&mut self, (side, fragment): (Side, &Fragment), by: &Instruction, columns: i64) {
        let depth = self.scopes.len();
        let names = ["fragment.along", "fragment.down", "fragment.inner"];
        let pieces = side.pieces(by, columns);
        let axes: [Axis; 3] =
            std::array::from_fn(|at| Axis { var: Sym::new(names[at]), extent: Expr::int(pieces[at]) });
        axes.into_iter().for_each(|axis| self.enter_axis(axis));
        self.access(fragment.mem, &[fragment.place(axes.map(|axis| Expr::sym(axis.var)))], &[]);
        self.scopes.truncate(depth);
    }

    fn conditional(&mut self, condition: Vec<Rel>, body: &[Stmt]) {
        if !body.is_empty() {
            self.enter(Says::Condition(condition));
            self.block(body);
            self.scopes.pop();
        }
    }

    fn access(&mut self, mem: Mem, index: &[Expr], guard: &[Rel]) {
        let Some(data) = self.kernel.mems.get(mem).filter(|data| (self.is_asked)(data.space)) else { return };
        for (dim, (&index, &extent)) in index.iter().zip(&data.sizes).enumerate() {
            if !self.is_inside(index, extent, guard) {
                let (mem, guard) = (data.name.clone(), guard.to_vec());
                self.escapes.push(Escape { mem, dim, index, extent, guard });
            }
        }
    }

    fn is_inside(&mut self, index: Expr, extent: Expr, guard: &[Rel]) -> bool {
        let reached = self.range(index);
        let [is_above, is_below] = [reached.lo >= 0, reached.hi < self.range(extent).lo];
        if is_above && is_below {
            return true;
        }
        let around = self.facts(self.scopes.len());
        let guarded = match guard {
            [] => around.clone(),
            [..] => around.clone().and_then(|facts| Says::Condition(guard.to_vec()).after(facts)),
        };
        let Some(facts) = guarded else { return true };
        let is_proved = |facts: &Facts| {
            (is_above || facts.proves(&Rel::le(0, index)))
                && (is_below || facts.proves(&Rel::lt(index, extent)))
        };
        let row = self.scopes.iter().rev().find_map(|scope| scope.row).filter(|&row| index.has_sym(row));
        let in_whole_rows = row.and_then(|row| facts.with_whole_row(row));
        in_whole_rows.is_some_and(|facts| is_proved(&facts)) || is_proved(&facts)
    }

    /// The values of an expression, each symbol taken by itself: numbers alone, which are much quicker than proofs.
    fn range(&self, e: Expr) -> Range {
        e.range(&|sym| self.range_of(sym))
    }

    fn range_of(&self, sym: Sym) -> Range {
        let index = self.scopes.iter().rev().find_map(|scope| match scope.says {
            Says::Index(axis, range) if axis.var == sym => Some(range),
            Says::Index(..) | Says::Condition(_) => None,
        });
        index.unwrap_or_else(|| self.kernel.facts.range_of(sym))
    }

    /// The most iterations of a loop; a clipped one has those of the smaller operand.
    fn most(&self, extent: Expr) -> i64 {
        if let Kind::Min(a, b) = extent.kind() {
            self.most(a).min(self.most(b))
        } else {
            self.range(extent).hi
        }
    }

    /// What is known inside of the `depth` outermost scopes.
    fn facts(&mut self, depth: usize) -> &Option<Facts> {
        let known = self.scopes[..depth].iter().rposition(|scope| scope.facts.is_some());
        let from = known.map_or(0, |at| at + 1);
        let mut facts = match known {
            Some(at) => self.scopes[at].facts.clone().expect("invariant: it was just found"),
            None => self.outside.clone(),
        };
        for scope in &mut self.scopes[from..depth] {
            facts = facts.and_then(|facts| scope.says.after(facts));
            scope.facts = Some(facts.clone());
        }
        match depth.checked_sub(1) {
            Some(last) => self.scopes[last].facts.as_ref().expect("invariant: it was just put there"),
            None => &self.outside,
        }
    }
}

/// Lanes that run at once, of all copies.
fn in_flight(lanes: u32, copies: u32) -> Expr {
    Expr::int(i64::from(lanes) * i64::from(copies))
}
