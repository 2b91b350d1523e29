//! Gives padded images a border, so that reductions over windows load without guards.
//!
//! A window that may leave its image reads `load x[..] if 0 <= y, y < H else 0`. Guards in an inner loop cost more than
//! a border in memory does: filling it touches only the edges. An image that one nest computes is stored inside a
//! larger buffer from the start; any other is copied there, when a product reads it often enough to pay for that.

use super::{Cx, Edits, Names, names};
use litz_analysis::access::accesses;
use litz_analysis::constants::Constants;
use litz_analysis::{Contraction, Uses};
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, BufData, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::{Dtype, Scalar};
use litz_sym::{Cmp, Expr, Facts, Rel};

/// How many times larger than the image a buffer with border may be; the padding of widely dilated windows is mostly
/// border.
const MAX_GROWTH: i64 = 4;

/// Points of a window, at most, whose loads a GPU guards: there a border is a launch that the kernels around it wait for, and rows of an image that has
/// one are no rows of a matrix. On an H200 MobileNetV3 (windows of 3 x 3 and 5 x 5) takes 0.47 ms without borders and 1.03 with them,
/// ConvNeXt (7 x 7) 2.54 and 1.46.
const MOST_GUARDED: i64 = 32;

/// Gives images borders; returns how many.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let most_guarded = if cx.target.gpu().is_some() { MOST_GUARDED } else { 0 };
    let mut change =
        Change { uses: Uses::of(loops), names: Names::of(loops), edits: Edits::default(), most_guarded };
    // Of a constant the copy is made when the model is loaded.
    let constants = Constants::of(loops, &[], &change.uses);
    let images = guarded(loops);
    let pads = |&buf: &Buf| {
        !constants.is_buffer(buf) && in_place(loops, buf, &mut change) || copied(loops, buf, &mut change)
    };
    let count = images.iter().copied().filter(pads).count();
    change.edits.apply(loops);
    count
}

/// What a change of the program needs to know, and leaves behind.
struct Change {
    uses: Uses,
    names: Names,
    edits: Edits,
    /// Points of a window, at most, whose loads stay guarded.
    most_guarded: i64,
}

/// Buffers with a load that a guard may keep from happening, in order: no other asks for a border.
fn guarded(loops: &Loops) -> Vec<Buf> {
    let mut is_guarded = vec![false; loops.bufs.len()];
    for stmt in &loops.stmts {
        let Stmt::Nest(nest) = stmt else { continue };
        for inst in &nest.body {
            if let InstOp::Load { buf, guard, .. } = &inst.op {
                is_guarded[buf.index()] |= !guard.is_empty();
            }
        }
    }
    loops.bufs.ids().filter(|buf| is_guarded[buf.index()]).collect()
}

/// One load of an image.
struct Load {
    stmt: usize,
    inst: usize,
    /// Where in the image, possibly outside of it.
    window: Option<Window>,
    /// What guards give outside of the image, when the load asks for a border of it.
    asks: Option<Scalar>,
    /// The image is the left operand of a product.
    multiplies: bool,
}

/// The coordinates that a load reads, and how far they may be outside.
struct Window {
    coords: Vec<Expr>,
    border: Vec<Border>,
}

/// Elements added before and after those of a dimension.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Border {
    before: i64,
    after: i64,
}

impl Border {
    const fn is_none(&self) -> bool {
        self.before == 0 && self.after == 0
    }
    fn union(self, other: Border) -> Border {
        Border { before: self.before.max(other.before), after: self.after.max(other.after) }
    }
    fn width(&self) -> i64 {
        self.before + self.after
    }
}

/// Stores the image inside a larger buffer, when one nest computes it and every reader can follow.
fn in_place(loops: &mut Loops, buf: Buf, change: &mut Change) -> bool {
    if !loops.is_internal(buf) {
        return false;
    }
    let loads = loads(loops, buf, change);
    let Some(fill) = loads.iter().find_map(|l| l.asks) else { return false };
    // The rows of a product without padding merge only when the image is dense.
    let follows = |l: &Load| l.window.is_some() && (l.asks == Some(fill) || !l.multiplies);
    let Some((producer, store)) = single_store(loops, buf, &change.uses) else { return false };
    let is_nest = |&s: &usize| matches!(loops.stmts[s], Stmt::Nest(_));
    if !loads.iter().all(follows) || !change.uses.readers(buf).iter().all(is_nest) {
        return false;
    }
    let Some(border) = border(loops, buf, &loads, fill) else { return false };

    let padded = with_border(&loops.bufs[buf], &border, &loops.facts);
    if let Stmt::Nest(nest) = &mut loops.stmts[producer]
        && let InstOp::Store { index, .. } = &mut nest.body[store].op
    {
        *index = inside_of(&border, index);
    }
    for load in &loads {
        redirect(loops, load, buf, &border, load.asks == Some(fill));
    }
    let size = loops.bufs[buf].sizes.clone();
    loops.bufs[buf] = padded;
    let at = chain_start(loops, producer, &change.uses);
    for fill in border_nests(loops, producer, buf, &size, &border, fill, &mut change.names) {
        change.edits.insert(at, Stmt::Nest(fill));
    }
    true
}

/// The reduction, or first statement, of the chain of statements that leads to the one at `at`. Statements of a chain
/// may share a kernel; a border that is filled in between would part them.
fn chain_start(loops: &Loops, mut at: usize, uses: &Uses) -> usize {
    loop {
        let before = |buf: &Buf| uses.writers(*buf).iter().rev().find(|&&writer| writer < at);
        let reduces = match &loops.stmts[at] {
            Stmt::Nest(nest) => !nest.reduced.is_empty(),
            Stmt::Extern(_) | Stmt::Recurrence(_) => true,
        };
        match uses.reads_of(at).iter().filter_map(before).max() {
            Some(&before) if !reduces => at = before,
            Some(_) | None => return at,
        }
    }
}

/// Copies the image into a larger buffer for the products that read windows of it.
fn copied(loops: &mut Loops, buf: Buf, change: &mut Change) -> bool {
    let mut loads = loads(loops, buf, change);
    loads.retain(|load| load.asks.is_some() && load.multiplies);
    let Some(first) = loads.first() else { return false };
    let (Some(fill), at) = (first.asks, first.stmt) else { return false };
    if change.uses.writers(buf).iter().any(|&writer| writer >= at) {
        return false;
    }
    let Some(border) = border(loops, buf, &loads, fill) else { return false };
    let wide = with_border(&loops.bufs[buf], &border, &loops.facts);
    let to = change.names.add_buf(loops, &format!("{}_pad", wide.name), wide.ty());
    for load in loads.iter().filter(|l| l.asks == Some(fill)) {
        redirect(loops, load, to, &border, true);
        change.uses.update(load.stmt, Some(&loops.stmts[load.stmt]));
    }
    let copy = copy_nest(loops, buf, to, &border, fill, &mut change.names);
    change.edits.insert(at, Stmt::Nest(copy));
    true
}

/// Every load of `buf` by a nest.
fn loads(loops: &Loops, buf: Buf, change: &Change) -> Vec<Load> {
    let mut loads = Vec::new();
    for &s in change.uses.readers(buf) {
        let Stmt::Nest(nest) = &loops.stmts[s] else { continue };
        let facts = nest.facts(&loops.facts);
        let left = Contraction::by_result(loops, nest).map(|columns| columns.contraction.lhs);
        for (i, inst) in nest.body.iter().enumerate() {
            let InstOp::Load { buf: b, index, guard, other } = &inst.op else { continue };
            if *b != buf {
                continue;
            }
            let window = window(&loops.bufs[buf], index, guard, nest, &facts);
            // A wider type could hold a value that the buffer's type rounds.
            let exact = inst.ty == loops.bufs[buf].dtype || other.as_f64() == 0.0;
            let slides = |axis: &&Axis| guard.iter().any(|rel| (rel.lhs - rel.rhs).has_sym(axis.var));
            let sliding = nest.reduced.iter().filter(slides).map(|axis| loops.facts.size_hint(axis.extent));
            let is_large =
                sliding.reduce(i64::saturating_mul).is_some_and(|points| points > change.most_guarded);
            let asks = (is_large && exact && window.is_some()).then_some(*other);
            loads.push(Load { stmt: s, inst: i, window, asks, multiplies: left == Some(i) });
        }
    }
    loads
}

/// The border that all loads with this fill need, if it is worth having.
fn border(loops: &Loops, buf: Buf, loads: &[Load], fill: Scalar) -> Option<Vec<Border>> {
    let data = &loops.bufs[buf];
    let mut border = vec![Border::default(); data.sizes.len()];
    for window in loads.iter().filter(|l| l.asks == Some(fill)).filter_map(|l| l.window.as_ref()) {
        border.iter_mut().zip(&window.border).for_each(|(b, w)| *b = b.union(*w));
    }
    let numel = |sizes: &[Expr]| -> i64 {
        sizes.iter().map(|&s| loops.facts.size_hint(s).max(1)).fold(1, i64::saturating_mul)
    };
    let grown: Vec<Expr> = data.sizes.iter().zip(&border).map(|(&s, b)| s + b.width()).collect();
    let affordable = numel(&grown) <= numel(&data.sizes).saturating_mul(MAX_GROWTH);
    (affordable && !border.iter().all(Border::is_none)).then_some(border)
}

/// A guard as a bound on a sum of axes: `low <= sum`, or `sum <= high`.
struct Bound {
    sum: Expr,
    low: Option<Expr>,
    high: Option<Expr>,
}

/// What a load reads, when its guards say no more than that coordinates are inside of the image.
fn window(data: &BufData, index: &[Expr], guard: &[Rel], nest: &Nest, facts: &Facts) -> Option<Window> {
    let mut bounds: Vec<Bound> = Vec::new();
    for rel in guard {
        let bound = bound(rel, nest, facts)?;
        match bounds.iter_mut().find(|b| b.sum == bound.sum) {
            Some(same) => {
                let clash =
                    same.low.is_some() && bound.low.is_some() || same.high.is_some() && bound.high.is_some();
                if clash {
                    return None;
                }
                same.low = same.low.or(bound.low);
                same.high = same.high.or(bound.high);
            }
            None => bounds.push(bound),
        }
    }
    let mut guarded: Vec<Option<&Bound>> = vec![None; data.sizes.len()];
    for bound in &bounds {
        let dim = (0..index.len()).find(|&d| guarded[d].is_none() && runs_along(index[d], bound.sum))?;
        let start = bound.start(data.sizes[dim], facts)?;
        if !facts.simplify(bound.sum - start - index[dim]).is_zero() {
            return None;
        }
        guarded[dim] = Some(bound);
    }
    // The index is inside where the guards hold, but a coordinate may leave its dimension only where they do not: the
    // index of a guard that never holds leaves dimensions that it does not mention.
    let mut border = Vec::with_capacity(index.len());
    for ((&coord, &size), bound) in index.iter().zip(&data.sizes).zip(guarded) {
        let may_precede = bound.is_some_and(|bound| bound.low.is_some());
        let may_exceed = bound.is_some_and(|bound| bound.high.is_some());
        let before = elements_outside(-coord, may_precede, facts)?;
        border.push(Border { before, after: elements_outside(coord - size + 1, may_exceed, facts)? });
    }
    Some(Window { coords: index.to_vec(), border })
}

/// How many elements beyond its dimension a coordinate is at most, which is there where `distance` is at most 0.
fn elements_outside(distance: Expr, may_leave: bool, facts: &Facts) -> Option<i64> {
    let distance = facts.simplify(distance);
    if facts.holds(&Rel::le(distance, 0)) {
        return Some(0);
    }
    let farthest = facts.bounds(distance).hi;
    (may_leave && farthest != i64::MAX).then_some(farthest.max(0))
}

/// `rel` as a bound on a sum of the nest's axes with the first coefficient positive.
fn bound(rel: &Rel, nest: &Nest, facts: &Facts) -> Option<Bound> {
    // As `0 <= distance`.
    let distance = match rel.cmp {
        Cmp::Le => rel.rhs - rel.lhs,
        Cmp::Lt => rel.rhs - rel.lhs - 1,
        Cmp::Eq | Cmp::Ne => return None,
    };
    let distance = facts.simplify(distance);
    let mentions = |e: Expr| nest.all_axes().any(|a| e.has_sym(a.var));
    let sum: Expr = distance.terms().filter(|t| mentions(t.1)).map(|t| t.1 * t.0).sum();
    let rest = distance - sum;
    let first = sum.terms().next()?.0;
    Some(match first > 0 {
        true => Bound { sum, low: Some(-rest), high: None },
        false => Bound { sum: -sum, low: None, high: Some(rest) },
    })
}

impl Bound {
    /// The sum at coordinate 0 of a dimension of that size, when the bound is that of the dimension.
    fn start(&self, size: Expr, facts: &Facts) -> Option<Expr> {
        let last = size - 1;
        match (self.low, self.high) {
            (Some(low), Some(high)) => (facts.holds(&Rel::eq(high - low, last))).then_some(low),
            (Some(low), None) => Some(low),
            (None, Some(high)) => Some(high - last),
            (None, None) => None,
        }
    }
}

/// Whether `index` moves by one for each step of `sum`.
fn runs_along(index: Expr, sum: Expr) -> bool {
    let rest = index - sum;
    sum.syms().into_iter().all(|s| !rest.has_sym(s))
}

/// The buffer with a border around it, dense in the same order of dimensions.
fn with_border(data: &BufData, border: &[Border], facts: &Facts) -> BufData {
    let sizes: Vec<Expr> = data.sizes.iter().zip(border).map(|(&s, b)| s + b.width()).collect();
    let mut strides = vec![Expr::one(); sizes.len()];
    let mut next = Expr::one();
    for d in storage_order(data, facts).into_iter().rev() {
        strides[d] = next;
        next = next * sizes[d];
    }
    BufData { sizes, strides, ..data.clone() }
}

/// Dimensions from the largest stride to the smallest; of equal strides the dimension of one element goes first.
fn storage_order(data: &BufData, facts: &Facts) -> Vec<usize> {
    let mut order: Vec<usize> = (0..data.sizes.len()).collect();
    let hint = |d: usize| facts.hint(data.strides[d]).unwrap_or(i64::MAX);
    order.sort_by_key(|&d| (std::cmp::Reverse(hint(d)), !data.sizes[d].is_one(), d));
    order
}

/// Where an image's element is in the buffer with border.
fn inside_of(border: &[Border], coords: &[Expr]) -> Vec<Expr> {
    coords.iter().zip(border).map(|(&at, border)| at + border.before).collect()
}

fn redirect(loops: &mut Loops, load: &Load, to: Buf, border: &[Border], unguarded: bool) {
    let window = load.window.as_ref().expect("invariant: loads that are redirected have windows");
    let at = inside_of(border, &window.coords);
    if let Stmt::Nest(nest) = &mut loops.stmts[load.stmt]
        && let InstOp::Load { buf, index, guard, .. } = &mut nest.body[load.inst].op
    {
        (*buf, *index) = (to, at);
        if unguarded {
            guard.clear();
        }
    }
}

/// Nests that store `fill` to each element of the border once: for each dimension with a border the slabs before and
/// after the image, as long as the image along the dimensions before it and as the buffer along those after it.
fn border_nests(
    loops: &Loops,
    producer: usize,
    buf: Buf,
    image: &[Expr],
    border: &[Border],
    fill: Scalar,
    names: &mut Names,
) -> Vec<Nest> {
    let data = &loops.bufs[buf];
    let order = storage_order(data, &loops.facts);
    let from = nest(loops, producer).from.clone();
    let mut nests = Vec::new();
    let mut done = vec![false; border.len()];
    for &slab in order.iter().filter(|&&d| !border[d].is_none()) {
        let extent = |d: usize| match d {
            _ if d == slab => Expr::int(border[d].width()),
            _ if done[d] => image[d],
            _ => data.sizes[d],
        };
        let (axes, points) = axes(loops, &order, &extent);
        let facts = declared(&loops.facts, &axes);
        let coord = |d: usize| match d {
            // Counts from behind the image, past the end, to before it.
            _ if d == slab => (points[d] + image[d] + border[d].before).modulo(data.sizes[d]),
            _ if done[d] => points[d] + border[d].before,
            _ => points[d],
        };
        let index = (0..border.len()).map(|d| facts.simplify(coord(d))).collect();
        let name = names.statement(&format!("{}_border", data.name));
        let value = Inst { op: InstOp::Const(fill.to(data.dtype)), ty: data.dtype };
        let body = vec![value, store(buf, index, data.dtype)];
        nests.push(Nest::new(name, from.clone(), axes, body));
        done[slab] = true;
    }
    nests
}

/// A nest that fills `to` with the image `buf` and its border.
fn copy_nest(loops: &Loops, buf: Buf, to: Buf, border: &[Border], fill: Scalar, names: &mut Names) -> Nest {
    let (image, data) = (&loops.bufs[buf], &loops.bufs[to]);
    let order = storage_order(data, &loops.facts);
    let (axes, points) = axes(loops, &order, &|d| data.sizes[d]);
    let (mut from, mut guard) = (Vec::new(), Vec::new());
    for (d, &point) in points.iter().enumerate() {
        from.push(point - border[d].before);
        if border[d].before > 0 {
            guard.push(Rel::le(border[d].before, point));
        }
        if border[d].after > 0 {
            guard.push(Rel::lt(point, image.sizes[d] + border[d].before));
        }
    }
    let load = InstOp::Load { buf, index: from, guard, other: fill.to(data.dtype) };
    let body = vec![Inst { op: load, ty: data.dtype }, store(to, points, data.dtype)];
    let name = names.statement(&data.name);
    Nest::new(name, vec![image.name.clone()], axes, body)
}

fn store(buf: Buf, index: Vec<Expr>, ty: Dtype) -> Inst {
    Inst { op: InstOp::Store { buf, index, value: Val::new(0), combine: None }, ty }
}

/// An axis for each dimension that has more than one point, in storage order; and the point along each dimension.
fn axes(loops: &Loops, order: &[usize], extent: &dyn Fn(usize) -> Expr) -> (Vec<Axis>, Vec<Expr>) {
    let (mut axes, mut points) = (Vec::<Axis>::new(), vec![Expr::zero(); order.len()]);
    for &d in order.iter().filter(|&&d| !extent(d).is_one()) {
        let var = names::symbol(&format!("p{d}"), &loops.facts, axes.iter());
        axes.push(Axis { var, extent: extent(d) });
        points[d] = Expr::sym(var);
    }
    (axes, points)
}

fn declared(facts: &Facts, axes: &[Axis]) -> Facts {
    let mut facts = facts.clone();
    axes.iter().for_each(|a| facts.declare_index(a.var, a.extent));
    facts
}

/// The only store to `buf` in the whole program, if it is a plain one by a nest: its statement and instruction.
fn single_store(loops: &Loops, buf: Buf, uses: &Uses) -> Option<(usize, usize)> {
    let &[at] = uses.writers(buf) else { return None };
    let Stmt::Nest(nest) = &loops.stmts[at] else { return None };
    let stores = accesses(nest).filter(|access| access.store && access.buf == buf);
    let stores = stores.map(|store| (store.at, !store.combines));
    match stores.collect::<Vec<_>>()[..] {
        [(store, true)] => Some((at, store)),
        _ => None,
    }
}

fn nest(loops: &Loops, at: usize) -> &Nest {
    match &loops.stmts[at] {
        Stmt::Nest(nest) => nest,
        stmt @ (Stmt::Extern(_) | Stmt::Recurrence(_)) => {
            unreachable!("invariant: {} is no nest", stmt.name())
        }
    }
}
