//! Reads nests as contractions: sums of products of two operands, with axes that only one of the two has.
//!
//! An operand is a load, converted perhaps, or an expression of narrow elements: numbers that are kept in fewer bytes than
//! they are computed in, such as the integers of a quantised weight, with the scales and zero points that make numbers
//! of them. One load of such an expression goes through all elements of the operand; the others go through fewer.

use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Inst, InstOp, Loops, Nest};
use litz_ir::target::Instruction;
use litz_ir::{Dtype, ReduceOp, ScalarOp};
use litz_sym::{Expr, Facts, Sym};

use crate::access::{Stride, accesses, stride};

/// Terms of a sum below which a contraction is left to generic loops: a register tile would spend its time starting.
pub const MIN_TERMS: i64 = 4;

/// A nest read as sums of products of two operands. Its reduced axes are K; outer axes that both operands have count a
/// batch.
///
/// ```text
/// nest n0 [i in 8, j in 32 | k in 16] {
///   %0: f32 = load x[i, k]          the left operand, with i along M
///   %1: f32 = load w[j, k]          the right one, with j along N
///   %2: f32 = mul %0, %1
///   %3: f32 = reduce.sum %2
///   store y[i, j] = %3
/// }
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Contraction {
    /// Position of the load that goes through the left operand.
    pub lhs: usize,
    /// Position of the load that goes through the right operand.
    pub rhs: usize,
    /// Outer axes that only the left operand has, in its index or its guards.
    pub m: Vec<Axis>,
    /// Outer axes that only the right operand has.
    pub n: Vec<Axis>,
    /// Whether both factors are these loads, converted perhaps, and not expressions of what is loaded.
    pub is_plain: bool,
}

/// The matrix instruction for products of a type, if there is one.
pub type Mma<'a> = &'a dyn Fn(Dtype) -> Option<&'static Instruction>;

/// A contraction, and the axis of N that vectors run along.
#[derive(Clone, PartialEq, Debug)]
pub struct Columns {
    /// Which load is which operand.
    pub contraction: Contraction,
    /// One of N.
    pub column: Axis,
    /// The reduced axis whose neighbours are side by side within each column of the right operand, in groups that matrix
    /// instructions take.
    pub grouped: Option<Sym>,
}

/// A product of one row whose right operand is words along its sum: each lane of a vector has a word, which holds the
/// integers of several points of another reduced axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Words {
    /// Which load is which operand.
    pub contraction: Contraction,
    /// The reduced axis along which words are neighbours: one for each lane.
    pub lane: Axis,
    /// The reduced axis that chooses an integer of a word.
    pub place: Axis,
}

/// Integers of a word: of four bits in one of 32.
const MOST_IN_WORD: i64 = 8;

impl Words {
    /// The words of a nest that is such a product.
    pub fn of(loops: &Loops, nest: &Nest, lanes: i64) -> Option<Words> {
        let Columns { contraction, .. } = Contraction::by_result(loops, nest)?;
        let is_row = nest.axes.iter().all(|axis| contraction.n.contains(axis) || axis.extent.is_one());
        if contraction.is_plain || !is_row {
            return None;
        }
        let InstOp::Load { buf, index, .. } = &nest.body[contraction.rhs].op else { return None };
        let words = loops.place(nest, *buf, index);
        let is_lane =
            |axis: &&Axis| axis.extent.as_int() == Some(lanes) && stride(words, axis.var) == Stride::Unit;
        let is_place = |axis: &&Axis| {
            let is_short = axis.extent.as_int().is_some_and(|extent| extent <= MOST_IN_WORD);
            is_short && stride(words, axis.var) == Stride::Zero
        };
        let lane = nest.reduced.iter().copied().find(|axis| is_lane(&axis))?;
        let place = nest.reduced.iter().copied().find(|axis| is_place(&axis))?;
        Some(Words { contraction, lane, place })
    }
}

impl Contraction {
    /// The sums of products that the nest computes, either factor taken as the left operand. `None` where sums of products
    /// are not all it reduces to, or where a factor is neither a load, converted perhaps, nor an expression of narrow elements.
    pub fn of(loops: &Loops, nest: &Nest) -> Option<[Contraction; 2]> {
        let mut reduces = nest.body.iter().filter(|inst| inst.op.is_reduction());
        let (Some(reduce), None) = (reduces.next(), reduces.next()) else { return None };
        let InstOp::Reduce(ReduceOp::Sum, value) = reduce.op else { return None };
        let InstOp::Op(ScalarOp::Mul, factors) = &nest.body.get(value.index())?.op else { return None };
        let &[a, b] = factors.as_slice() else { return None };
        let (a, b) = (operand(loops, nest, a.index())?, operand(loops, nest, b.index())?);
        let is_plain = a.is_plain && b.is_plain;
        let (a, b) = (a.load, b.load);
        // A factor that all terms of a sum have in common makes a sum of the others, scaled.
        let varies = |load: usize| nest.reduced.iter().any(|axis| mentions(nest, load, axis.var));
        if !varies(a) || !varies(b) {
            return None;
        }
        let only = |own: usize, other: usize| -> Vec<Axis> {
            let is_own = |axis: &&Axis| mentions(nest, own, axis.var) && !mentions(nest, other, axis.var);
            nest.axes.iter().filter(is_own).copied().collect()
        };
        let contraction = |lhs, rhs| Contraction { lhs, rhs, m: only(lhs, rhs), n: only(rhs, lhs), is_plain };
        Some([contraction(a, b), contraction(b, a)])
    }

    /// The contraction that a nest is, with the columns that its right operand is to be laid out for: those whose neighbours are
    /// neighbours in the result, if there are any. None where data chooses elements of an operand, since these differ
    /// from row to row.
    pub fn by_result(loops: &Loops, nest: &Nest) -> Option<Columns> {
        Contraction::all_by_result(loops, nest).into_iter().next()
    }

    /// As [`Contraction::by_result`], with either operand on the right and each of its axes as the column: those whose neighbours are neighbours in
    /// the result come first.
    pub fn all_by_result(loops: &Loops, nest: &Nest) -> Vec<Columns> {
        let Some(both) = Contraction::of(loops, nest) else { return Vec::new() };
        let is_chosen = |at: usize| {
            nest.body
                .iter()
                .any(|inst| matches!(inst.op, InstOp::Bind { sym, .. } if mentions(nest, at, sym)))
        };
        if is_chosen(both[0].lhs) || is_chosen(both[0].rhs) {
            return Vec::new();
        }
        let is_guarded =
            |at: usize| matches!(&nest.body[at].op, InstOp::Load { guard, .. } if !guard.is_empty());
        let is_unit = |column: &Axis| {
            let mut stores = accesses(nest).filter(|access| access.store);
            stores.any(|store| stride(store.place(loops, nest), column.var) == Stride::Unit)
        };
        // A guarded operand is a padded image: it stays on the left. Of N, the axis with the smallest steps in the result
        // becomes the column.
        let mut all = Vec::new();
        for contraction in both.into_iter().filter(|contraction| !is_guarded(contraction.rhs)) {
            let columns = contraction.n.iter().map(|&column| Columns {
                contraction: contraction.clone(),
                column,
                grouped: None,
            });
            all.extend(columns);
        }
        all.sort_by_key(|columns| !is_unit(&columns.column));
        all
    }

    /// The contraction that a nest is, with columns that are contiguous in the right operand in aligned runs of `width`, or
    /// groups of whose terms are, as matrix instructions take them. `mma` is the instruction for operands of a type, and
    /// `suits` says which axes may be columns.
    pub fn by_operand(
        loops: &Loops,
        nest: &Nest,
        width: u32,
        mma: Mma<'_>,
        suits: impl Fn(&Axis) -> bool,
    ) -> Option<Columns> {
        let both = Contraction::of(loops, nest)?;
        let facts = nest.facts(&loops.facts);
        for contraction in both {
            let InstOp::Load { buf, index, guard, .. } = &nest.body[contraction.rhs].op else { return None };
            let place = loops.place(nest, *buf, index);
            let is_guarded = |sym: Sym| guard.iter().any(|rel| rel.lhs.has_sym(sym) || rel.rhs.has_sym(sym));
            let found =
                contraction.n.iter().filter(|axis| !is_guarded(axis.var) && suits(axis)).find_map(|&axis| {
                    if stride_in_runs(place, axis.var, width, &facts) == Stride::Unit {
                        return Some((axis, None));
                    }
                    let grouped = contraction.grouped(loops, nest, axis.var, (width, mma), &facts)?;
                    Some((axis, Some(grouped)))
                });
            if let Some((column, grouped)) = found {
                return Some(Columns { contraction, column, grouped });
            }
        }
        None
    }

    /// Whether a matrix instruction adds up these products: both operands are of its type as they lie in memory, and are
    /// converted, multiplied and summed in the type of its sums.
    pub fn is_of(&self, loops: &Loops, nest: &Nest, by: &Instruction) -> bool {
        let is_of = |at: usize| matches!(nest.body[at].op, InstOp::Load { buf, .. } if loops.bufs[buf].dtype == by.dtype);
        let is_exact = |inst: &Inst| {
            let computes =
                matches!(inst.op, InstOp::Cast(_) | InstOp::Op(ScalarOp::Mul, _) | InstOp::Reduce(..));
            !computes || inst.ty == by.sums
        };
        let end = nest.body.iter().position(|inst| inst.op.is_reduction()).unwrap_or(0);
        self.is_plain && is_of(self.lhs) && is_of(self.rhs) && nest.body[..=end].iter().all(is_exact)
    }

    /// The reduced axis of which each column within a run holds a group of neighbours, as large as the matrix instructions
    /// for the operands' type want it. The left operand is contiguous along it.
    fn grouped(
        &self,
        loops: &Loops,
        nest: &Nest,
        column: Sym,
        (width, mma): (u32, Mma<'_>),
        facts: &Facts,
    ) -> Option<Sym> {
        let place = |at: usize| nest.body[at].op.element().map(|(buf, index)| loops.place(nest, buf, index));
        let (a, b) = (place(self.lhs)?, place(self.rhs)?);
        let (right, _) = nest.body[self.rhs].op.element()?;
        let dtype = loops.bufs[right].dtype;
        let by = mma(dtype).filter(|by| self.is_of(loops, nest, by))?;
        let (width, group) = (i64::from(width), i64::from(by.group));
        let [tile, lane, number, element] = ["tile", "lane", "group", "element"].map(Sym::new);
        let mut facts = facts.clone();
        facts.declare_index(lane, Expr::int(width));
        facts.declare_index(element, Expr::int(group));
        facts.declare_index(tile, Expr::int(1 << 40));
        facts.declare_index(number, Expr::int(1 << 40));
        let b = b.replace(column, Expr::sym(tile) * width + Expr::sym(lane));
        let is_grouped = |axis: Sym| {
            let split = facts.simplify(b.replace(axis, Expr::sym(number) * group + Expr::sym(element)));
            stride(split, element) == Stride::Unit
                && stride(split, lane) == Stride::Elements(Expr::int(group))
        };
        let mut contiguous =
            nest.reduced.iter().map(|axis| axis.var).filter(|&axis| stride(a, axis) == Stride::Unit);
        contiguous.find(|&axis| is_grouped(axis))
    }
}

/// The stride of `place` along `var` inside aligned runs of `width`.
fn stride_in_runs(place: Expr, var: Sym, width: u32, facts: &Facts) -> Stride {
    if stride(place, var) == Stride::Unit {
        return Stride::Unit;
    }
    let (tile, lane) = (Sym::new("tile"), Sym::new("lane"));
    let mut facts = facts.clone();
    facts.declare_index(lane, Expr::int(i64::from(width)));
    facts.declare_index(tile, Expr::int(1 << 40));
    let split = Expr::sym(tile) * i64::from(width) + Expr::sym(lane);
    stride(facts.simplify(place.replace(var, split)), lane)
}

/// Whether an expression of the instruction at position `at` has that symbol.
fn mentions(nest: &Nest, at: usize, sym: Sym) -> bool {
    nest.body[at].op.exprs().iter().any(|e| e.has_sym(sym))
}

/// A factor of a product.
struct Operand {
    /// Position of the load that goes through its elements.
    load: usize,
    /// Whether it is this load, converted perhaps.
    is_plain: bool,
}

/// The operand that a value is.
fn operand(loops: &Loops, nest: &Nest, at: usize) -> Option<Operand> {
    match source_load(nest, at) {
        Some(load) => Some(Operand { load, is_plain: true }),
        None => Some(Operand { load: narrow_load(loops, nest, at)?, is_plain: false }),
    }
}

/// The load that a value comes from, through conversions.
fn source_load(nest: &Nest, at: usize) -> Option<usize> {
    let op = &nest.body.get(at)?.op;
    if let InstOp::Cast(value) = op
        && value.index() < at
    {
        return source_load(nest, value.index());
    }
    matches!(op, InstOp::Load { .. }).then_some(at)
}

/// The load that goes through the elements of an expression, where these take fewer bytes than the expression's values: of those
/// with all outer axes that the expression has, the one of the largest buffer. None where a part of the expression is no
/// function of loaded elements and indices, or where data chooses what is loaded.
fn narrow_load(loops: &Loops, nest: &Nest, at: usize) -> Option<usize> {
    let mut parts = vec![at];
    let mut next = 0;
    while let Some(&part) = parts.get(next) {
        let inst = nest.body.get(part)?;
        if !inst.op.is_term() {
            return None;
        }
        for operand in inst.op.operands() {
            if !parts.contains(&operand.index()) {
                parts.push(operand.index());
            }
        }
        next += 1;
    }
    let has = |axis: &Axis, part: usize| mentions(nest, part, axis.var);
    let is_chosen = |inst: &Inst| matches!(inst.op, InstOp::Bind { sym, .. } if parts.iter().any(|&part| mentions(nest, part, sym)));
    if nest.body.iter().any(is_chosen) {
        return None;
    }
    let outer: Vec<&Axis> =
        nest.axes.iter().filter(|axis| parts.iter().any(|&part| has(axis, part))).collect();
    // A scale for each group of elements has all axes, too, but each of its elements is loaded many times.
    let elements = |part: &usize| {
        let InstOp::Load { buf, .. } = nest.body[*part].op else { return None };
        let has_all = outer.iter().all(|axis| has(axis, *part));
        Some((loops.facts.hint(loops.bufs[buf].elements())?, *part)).filter(|_| has_all)
    };
    let mut loads: Vec<(i64, usize)> = parts.iter().filter_map(elements).collect();
    loads.sort_unstable();
    let &(largest, load) = loads.last()?;
    if loads.iter().rev().skip(1).any(|other| other.0 == largest) {
        return None;
    }
    let is_narrow = nest.body[load].ty.size() < nest.body[at].ty.size();
    // One element is loaded for several points: it holds several integers.
    let is_shared = |axis: &Axis| {
        let InstOp::Load { index, .. } = &nest.body[load].op else { return false };
        let is_divided = index.iter().any(|at| at.has_sym(axis.var) && at.linear(axis.var).is_none());
        parts.iter().any(|&part| has(axis, part)) && (is_divided || !has(axis, load))
    };
    (is_narrow || nest.reduced.iter().any(is_shared)).then_some(load)
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::loops::Stmt;

    fn parsed(text: &str) -> Loops {
        litz_ir::text::loops::parse(text).expect("the text is a program")
    }

    fn contractions(loops: &Loops) -> Option<[Contraction; 2]> {
        let Stmt::Nest(nest) = &loops.stmts[0] else { panic!("expected a nest") };
        Contraction::of(loops, nest)
    }

    const PRODUCT: &str = "loops @l on cpu {
  buf x: bf16[3, 8, 16] = input
  buf w: f32[3, 32, 16] = input
  buf y: f32[3, 8, 32]
  nest n0 [b in 3, i in 8, j in 32 | k in 16] {
    %0: bf16 = load x[b, i, k]
    %1: f32 = cast %0
    %2: f32 = load w[b, j, k]
    %3: f32 = mul %1, %2
    %4: f32 = reduce.sum %3
    store y[b, i, j] = %4
  }
  return y
}
";

    #[test]
    fn either_factor_may_be_the_left_operand() {
        let loops = parsed(PRODUCT);
        let names = |axes: &[Axis]| axes.iter().map(|axis| axis.var.name().to_owned()).collect::<Vec<_>>();
        let all = contractions(&loops).expect("the nest is a contraction");
        let seen = all.map(|c| (c.lhs, c.rhs, names(&c.m), names(&c.n)));
        let [i, j] = ["i", "j"].map(|name| vec![name.to_owned()]);
        assert_eq!(seen, [(0, 2, i.clone(), j.clone()), (2, 0, j, i)]);
    }

    #[test]
    fn sums_of_anything_else_are_none() {
        assert!(contractions(&parsed(&PRODUCT.replace("reduce.sum", "reduce.max"))).is_none());
        assert!(contractions(&parsed(&PRODUCT.replace("= mul", "= add"))).is_none());
    }

    #[test]
    fn an_operand_may_be_made_of_narrow_elements() {
        let made = PRODUCT.replace(
            "%1: f32 = cast %0",
            "%5: f32 = cast %0
    %6: f32 = load s[i]
    %1: f32 = mul %5, %6",
        );
        let made = made.replace("buf y", "buf s: f32[8] = input\n  buf y");
        let made = renumbered(&made);
        let both = contractions(&parsed(&made)).expect("the nest is a contraction");
        assert_eq!(both.map(|c| (c.lhs, c.is_plain)), [(0, false), (4, false)]);
        assert!(contractions(&parsed(&made.replace("bf16", "f32"))).is_none());
    }

    /// The text with the results of instructions numbered in order.
    fn renumbered(text: &str) -> String {
        let order = ["%0", "%5", "%6", "%1", "%2", "%3", "%4"];
        let marked = order
            .iter()
            .enumerate()
            .fold(text.to_owned(), |text, (number, name)| text.replace(name, &format!("%<{number}>")));
        marked.replace("%<", "%").replace('>', "")
    }
}
