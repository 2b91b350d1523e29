//! Makes one dimension of two that lie one within the other in memory, where a nest walks both along one axis.
//!
//! Results of attention come head by head, and the product behind it sums over all heads' elements `r` in one go. It reads
//! `heads[i, floordiv(r, 64), j, mod(r, 64)]`, and the rows of a tile are then no box of the buffer, although they lie in memory
//! as if they were. As `heads[i, j, r]`, with stores to `heads[i, k, 64*j + l]`, a block of a GPU copies them to shared memory.
//! So are the rows that `merge_rows` made of several axes.
//!
//! Results that lie head after head are laid out anew where nothing but their kernels sees them: of each row the heads' elements then lie one behind the
//! other, `[1, 32, 1024, 64]{2097152, 65536, 64, 1}` becomes `{2097152, 64, 2048, 1}`, and `[1, 1024, 2048]`.
//! Buffers of which a contraction reads two such dimensions along two axes that it keeps apart stay as they are.

use super::Cx;
use litz_analysis::{Contraction, Uses};
use litz_ir::loops::{Buf, BufData, Inst, InstOp, Loops, Nest, Stmt};
use litz_ir::target::Target;
use litz_sym::{Expr, Facts, Rel};

/// Whether a target copies boxes of operands.
pub fn wants(target: &Target) -> bool {
    target.gpu().is_some()
}

/// Merges dimensions; returns how many disappeared.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let uses = Uses::of(loops);
    let internal: Vec<Buf> = loops.bufs.ids().filter(|&buf| loops.is_internal(buf)).collect();
    let mut count = 0;
    for buf in internal {
        loop {
            if let Some(pair) = walked_as_one(loops, buf, &uses) {
                merge(loops, buf, pair, &uses);
            } else if let Some((pair, strides)) = laid_anew(loops, buf, &uses) {
                loops.bufs[buf].strides = strides;
                merge(loops, buf, pair, &uses);
            } else {
                break;
            }
            count += 1;
        }
    }
    count
}

/// Two dimensions, of which a step along the outer one is as many elements as the inner one has.
#[derive(Clone, Copy)]
struct Pair {
    outer: usize,
    inner: usize,
}

/// How an access goes through a pair of dimensions.
#[derive(PartialEq, Eq)]
enum Walk {
    /// As the digits of one number.
    Digits,
    /// As two numbers that have no axis in common.
    Apart,
    /// As two numbers neither of which changes, or one of them.
    Single,
    /// Otherwise.
    Other,
}

/// The dimensions of a buffer that a nest walks as the digits of one axis, and nothing in a way that needs both.
fn walked_as_one(loops: &Loops, buf: Buf, uses: &Uses) -> Option<Pair> {
    let data = &loops.bufs[buf];
    let dims = 0..data.sizes.len();
    let pairs = dims.clone().flat_map(|outer| dims.clone().map(move |inner| Pair { outer, inner }));
    let is_within = |pair: &Pair| {
        let inside = data.strides[pair.inner] * data.sizes[pair.inner];
        pair.outer != pair.inner
            && ![pair.outer, pair.inner].iter().any(|&dim| data.sizes[dim].is_one())
            && loops.facts.simplify(data.strides[pair.outer] - inside).is_zero()
    };
    pairs.into_iter().filter(is_within).find(|&pair| suits(loops, buf, pair, uses).is_some_and(|by| by.any))
}

/// The dimensions of a buffer that a contraction walks as the digits of one axis, where elements along the inner one are neighbours, and the steps with
/// which the outer one lies right around it. None of a buffer with holes.
fn laid_anew(loops: &Loops, buf: Buf, uses: &Uses) -> Option<(Pair, Vec<Expr>)> {
    let data = &loops.bufs[buf];
    let mut order = by_strides(data)?;
    let inner = order.pop()?;
    let mut outers = order.clone().into_iter();
    let suits = |&outer: &usize| suits(loops, buf, Pair { outer, inner }, uses).is_some_and(|by| by.operand);
    let outer = outers.find(suits)?;
    order.retain(|&dim| dim != outer);
    order.extend([outer, inner]);
    let (mut strides, mut step) = (data.strides.clone(), Expr::one());
    for dim in order.into_iter().rev() {
        strides[dim] = step;
        step = step * data.sizes[dim];
    }
    Some((Pair { outer, inner }, strides))
}

/// The dimensions of more than one element, the outermost in memory first, if there is nothing between elements.
fn by_strides(data: &BufData) -> Option<Vec<usize>> {
    let mut left: Vec<usize> = (0..data.sizes.len()).filter(|&dim| !data.sizes[dim].is_one()).collect();
    let (mut order, mut step) = (Vec::new(), Expr::one());
    while !left.is_empty() {
        let at = left.iter().position(|&dim| data.strides[dim] == step)?;
        let dim = left.remove(at);
        step = step * data.sizes[dim];
        order.push(dim);
    }
    order.reverse();
    Some(order)
}

/// Who walks a pair of dimensions as digits.
#[derive(Clone, Copy, Default)]
struct ByDigits {
    /// Whether a nest does.
    any: bool,
    /// Whether a contraction does, of an operand.
    operand: bool,
}

/// Who walks the pair as digits. None where something needs the dimensions apart.
fn suits(loops: &Loops, buf: Buf, pair: Pair, uses: &Uses) -> Option<ByDigits> {
    let mut by = ByDigits::default();
    for &user in uses.readers(buf).iter().chain(uses.writers(buf)) {
        let Stmt::Nest(nest) = &loops.stmts[user] else { return None };
        let facts = nest.facts(&loops.facts);
        let operands = Contraction::of(loops, nest).map(|both| [both[0].lhs, both[0].rhs]);
        for (at, inst) in nest.body.iter().enumerate() {
            let Some(index) = index_of(inst, buf) else { continue };
            // A guard says of a dimension that the index is inside, and a window that moves along one of two goes past the other.
            if !is_known_inside(inst, pair, loops, buf, &facts) {
                return None;
            }
            let is_operand = operands.is_some_and(|operands| operands.contains(&at));
            match (walk(index, pair, loops.bufs[buf].sizes[pair.inner], &facts), is_operand) {
                (Walk::Digits, _) => by = ByDigits { any: true, operand: by.operand || is_operand },
                (Walk::Apart, false) | (Walk::Single, _) => {}
                (Walk::Apart, true) | (Walk::Other, _) => return None,
            }
        }
    }
    Some(by)
}

/// Whether a load with guards is known to be inside of the dimension that a pair becomes.
fn is_known_inside(inst: &Inst, pair: Pair, loops: &Loops, buf: Buf, facts: &Facts) -> bool {
    let InstOp::Load { index, guard, .. } = &inst.op else { return true };
    if guard.is_empty() {
        return true;
    }
    let mut facts = facts.clone();
    let is_possible = guard.iter().all(|&rel| facts.assume(rel));
    let [outer, inner] = [pair.outer, pair.inner].map(|dim| loops.bufs[buf].sizes[dim]);
    let at = facts.simplify(index[pair.outer] * inner + index[pair.inner]);
    !is_possible || facts.holds(&Rel::le(0, at)) && facts.holds(&Rel::lt(at, outer * inner))
}

fn index_of(inst: &Inst, buf: Buf) -> Option<&[Expr]> {
    inst.op.element().filter(|(own, _)| *own == buf).map(|(_, index)| index)
}

fn walk(index: &[Expr], pair: Pair, size: Expr, facts: &Facts) -> Walk {
    let (far, near) = (index[pair.outer], index[pair.inner]);
    let is_fixed = |at: Expr| at.syms().is_empty();
    if far.is_polynomial() && near.is_polynomial() {
        let is_apart = !near.syms().iter().any(|&sym| far.has_sym(sym));
        return match is_fixed(far) || is_fixed(near) {
            true => Walk::Single,
            false if is_apart => Walk::Apart,
            false => Walk::Other,
        };
    }
    // n*floordiv(x, n) + mod(x, n) is x, and of digits of digits no longer than the longer one.
    let is_shorter = facts.simplify(far * size + near).size() <= far.size().max(near.size());
    if is_shorter { Walk::Digits } else { Walk::Other }
}

/// Puts one dimension where the inner one was.
fn merge(loops: &mut Loops, buf: Buf, pair: Pair, uses: &Uses) {
    let data = &mut loops.bufs[buf];
    let size = data.sizes[pair.inner];
    data.sizes[pair.inner] = data.sizes[pair.outer] * size;
    data.sizes.remove(pair.outer);
    data.strides.remove(pair.outer);
    let mut users: Vec<usize> = uses.readers(buf).iter().chain(uses.writers(buf)).copied().collect();
    users.sort_unstable();
    users.dedup();
    for user in users {
        let Stmt::Nest(nest) = &mut loops.stmts[user] else { continue };
        merge_in(nest, buf, pair, size, &loops.facts);
    }
}

fn merge_in(nest: &mut Nest, buf: Buf, pair: Pair, size: Expr, facts: &Facts) {
    let facts = nest.facts(facts);
    for inst in &mut nest.body {
        let (InstOp::Load { buf: own, index, .. } | InstOp::Store { buf: own, index, .. }) = &mut inst.op
        else {
            continue;
        };
        if *own != buf {
            continue;
        }
        index[pair.inner] = facts.simplify(index[pair.outer] * size + index[pair.inner]);
        index.remove(pair.outer);
    }
}
