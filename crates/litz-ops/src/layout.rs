//! Computes sizes and strides: broadcasting and the other relations between sizes that PyTorch requires, the strides
//! that eager PyTorch gives to new tensors, and memory formats.

use crate::args::{Args, Operand, Tensor};
use crate::error::OpError;
use crate::infer::InferCx;
use litz_ir::graph::{MemoryFormat, TensorType, contiguous_strides};
use litz_sym::{Expr, Facts, Known, Rel};
use std::borrow::Cow;

/// Whether a relation holds, when known.
pub fn known(facts: &Facts, rel: Rel) -> Option<bool> {
    match facts.known(&rel) {
        Known::Yes => Some(true),
        Known::No => Some(false),
        Known::Unknown => None,
    }
}

/// Whether two sizes are known to be equal.
pub fn same(facts: &Facts, a: Expr, b: Expr) -> bool {
    a == b || (a.as_int().is_none() || b.as_int().is_none()) && known(facts, Rel::eq(a, b)) == Some(true)
}

/// Whether a dimension is known to have one element, so that nothing follows from its stride.
fn is_one(facts: &Facts, size: Expr) -> bool {
    same(facts, size, Expr::one())
}

/// The common shape of several, aligned at the last dimension. Sizes that are not known to agree are required to.
pub fn broadcast(cx: &mut InferCx<'_>, shapes: &[&[Expr]], who: &str) -> Result<Vec<Expr>, OpError> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut result = vec![Expr::one(); rank];
    for shape in shapes {
        for (from_end, &size) in shape.iter().rev().enumerate() {
            let slot = &mut result[rank - 1 - from_end];
            *slot = broadcast_size(cx, *slot, size, who)?;
        }
    }
    Ok(result)
}

fn broadcast_size(cx: &mut InferCx<'_>, a: Expr, b: Expr, who: &str) -> Result<Expr, OpError> {
    if a == b || b.is_one() {
        return Ok(a);
    }
    if a.is_one() {
        return Ok(b);
    }
    if known(cx.facts, Rel::eq(b, 1)) == Some(true) {
        return Ok(a);
    }
    if known(cx.facts, Rel::eq(a, 1)) == Some(true) {
        return Ok(b);
    }
    cx.require(Rel::eq(a, b), who)?;
    Ok(if b.as_int().is_some() { b } else { a })
}

// Relations between sizes. Each makes what its name says hold for an argument of the node: an error that has both sizes
// where it cannot, guards where it is not known to. An argument that was not given satisfies them all.

/// The argument has exactly these sizes.
pub fn same_shape(cx: &mut InferCx<'_>, args: &Args<'_>, name: &str, sizes: &[Expr]) -> Result<(), OpError> {
    let Some(own) = sizes_of(args, name)? else { return Ok(()) };
    same_sizes(cx, args, &format!("argument `{name}`"), own, sizes)
}

/// As [`same_shape`], of what is no argument by itself.
pub fn same_sizes(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    what: &str,
    own: &[Expr],
    sizes: &[Expr],
) -> Result<(), OpError> {
    let rels = (own.len() == sizes.len()).then(|| pairs(own, sizes, Rel::eq));
    relate(cx, args, what, own, &format!("sizes {sizes:?}"), rels)
}

/// The argument is a vector of `n` elements.
pub fn vector_of(cx: &mut InferCx<'_>, args: &Args<'_>, name: &str, n: Expr) -> Result<(), OpError> {
    same_shape(cx, args, name, &[n])
}

/// The argument has as many elements as a tensor of these sizes.
pub fn same_numel(cx: &mut InferCx<'_>, args: &Args<'_>, name: &str, sizes: &[Expr]) -> Result<(), OpError> {
    let Some(own) = sizes_of(args, name)? else { return Ok(()) };
    let total = |sizes: &[Expr]| sizes.iter().copied().product::<Expr>();
    let rels = Some(vec![Rel::eq(total(own), total(sizes))]);
    let expected = format!("as many elements as {sizes:?} has");
    relate(cx, args, &format!("argument `{name}`"), own, &expected, rels)
}

/// The argument broadcasts to these sizes, which stay as they are.
pub fn broadcasts_to(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    name: &str,
    sizes: &[Expr],
) -> Result<(), OpError> {
    let Some(own) = sizes_of(args, name)? else { return Ok(()) };
    let expands = |size: Expr| size.is_one() || known(cx.facts, Rel::eq(size, 1)) == Some(true);
    let rels = sizes.len().checked_sub(own.len()).map(|lead| {
        let kept = own.iter().zip(&sizes[lead..]).filter(|(own, _)| !expands(**own));
        kept.map(|(&own, &size)| Rel::eq(own, size)).collect()
    });
    let expected = format!("sizes that broadcast to {sizes:?}");
    relate(cx, args, &format!("argument `{name}`"), own, &expected, rels)
}

/// The argument has the rank of `of` and is no larger along any dimension, or any but `except`. PyTorch counts rank 0
/// as 1, and leaves a tensor without elements alone.
pub fn at_most(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    name: &str,
    of: &[Expr],
    except: Option<usize>,
) -> Result<(), OpError> {
    let Some(own) = sizes_of(args, name)? else { return Ok(()) };
    if own.iter().any(|size| size.is_zero()) {
        return Ok(());
    }
    let (raised_own, raised_of) = (raised(own), raised(of));
    let rels = (raised_own.len() == raised_of.len()).then(|| {
        let mut rels = pairs(&raised_own, &raised_of, Rel::le);
        except.map(|d| rels.remove(d));
        rels
    });
    let but = except.map_or(String::new(), |d| format!(" but along dimension {d}"));
    let expected = format!("sizes of at most {of:?}{but}");
    relate(cx, args, &format!("argument `{name}`"), own, &expected, rels)
}

/// Sizes of rank 0 as those of a vector of one element.
fn raised(sizes: &[Expr]) -> Vec<Expr> {
    if sizes.is_empty() { vec![Expr::one()] } else { sizes.to_vec() }
}

/// A storage of `span` elements holds all that a tensor of these sizes and strides at `offset` has.
pub fn storage_holds(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    (sizes, strides): (&[Expr], &[Expr]),
    offset: Expr,
    span: Expr,
) -> Result<(), OpError> {
    let outside = || {
        args.invalid(format!(
            "sizes {sizes:?} with strides {strides:?} at offset {offset} reach outside of a storage of {span} elements"
        ))
    };
    if sizes.len() != strides.len() {
        return Err(
            args.invalid(format!("expected one stride for each size, found {strides:?} for {sizes:?}"))
        );
    }
    for &e in sizes.iter().chain(strides).chain([&offset]) {
        cx.require(Rel::ge(e, 0), args.op()).map_err(|_| outside())?;
    }
    if sizes.iter().any(|size| size.is_zero()) {
        return Ok(());
    }
    let last: Expr = sizes.iter().zip(strides).map(|(&size, &stride)| (size - 1) * stride).sum();
    cx.require(Rel::lt(offset + last, span), args.op()).map_err(|_| outside())
}

/// The sizes are not negative.
pub fn not_negative(cx: &mut InferCx<'_>, args: &Args<'_>, sizes: &[Expr]) -> Result<(), OpError> {
    let negative = |_| args.invalid(format!("sizes {sizes:?} are negative"));
    sizes.iter().try_for_each(|&size| cx.require(Rel::ge(size, 0), args.op()).map_err(negative))
}

fn pairs(own: &[Expr], of: &[Expr], rel: fn(Expr, Expr) -> Rel) -> Vec<Rel> {
    own.iter().zip(of).map(|(&a, &b)| rel(a, b)).collect()
}

fn sizes_of<'a>(args: &Args<'a>, name: &str) -> Result<Option<&'a [Expr]>, OpError> {
    Ok(args.opt_tensor(name)?.map(|t| t.ty.sizes.as_slice()))
}

/// Makes relations hold between `own` sizes and those expected; `None` means that they cannot.
fn relate(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    what: &str,
    own: &[Expr],
    expected: &str,
    rels: Option<Vec<Rel>>,
) -> Result<(), OpError> {
    let differs = || args.invalid(format!("{what}: expected {expected}, found {own:?}"));
    let mut rels = rels.ok_or_else(differs)?.into_iter();
    rels.try_for_each(|rel| cx.require(rel, args.op()).map_err(|_| differs()))
}

/// Strides of a new tensor that a pointwise operator on `operands` returns: TensorIterator's rules.
///
/// All operands of one shape and layout keep it; else dimensions are ordered by the strides of the operands, the
/// first operand that tells two dimensions apart deciding.
pub fn pointwise_strides(facts: &Facts, operands: &[Tensor<'_>], sizes: &[Expr]) -> Vec<Expr> {
    let same_shape = operands.iter().all(|t| t.ty.sizes == sizes);
    if same_shape {
        if operands.iter().all(|t| t.ty.is_contiguous()) {
            return contiguous_strides(sizes);
        }
        if sizes.len() == 4 && operands.iter().all(|t| is_channels_last(t.ty)) {
            return format_strides(MemoryFormat::ChannelsLast, sizes);
        }
        if let [first, rest @ ..] = operands
            && rest.iter().all(|t| t.ty.strides == first.ty.strides)
            && is_dense(facts, first.ty)
        {
            return first.ty.strides.clone();
        }
    }
    let strides: Vec<Vec<Expr>> = operands.iter().map(|t| broadcast_strides(t.ty, sizes)).collect();
    iterated_strides(facts, &strides, sizes)
}

/// Dense strides in the order in which TensorIterator walks operands with these strides, 0 where they are expanded.
pub fn iterated_strides(facts: &Facts, operands: &[Vec<Expr>], sizes: &[Expr]) -> Vec<Expr> {
    let order = iteration_order(facts, operands, sizes);
    // `order` lists dimensions from the fastest; counting up from the end it is row major.
    if order.iter().rev().copied().eq(0..sizes.len()) {
        return contiguous_strides(sizes);
    }
    dense_in_order(sizes, &order)
}

/// Strides without gaps, `order` listing dimensions from the fastest.
fn dense_in_order(sizes: &[Expr], order: &[usize]) -> Vec<Expr> {
    let mut strides = vec![Expr::one(); sizes.len()];
    let mut next = Expr::one();
    for &d in order {
        strides[d] = next;
        next = next * sizes[d];
    }
    strides
}

/// Strides over the broadcast shape: 0 where the operand is expanded.
fn broadcast_strides(ty: &TensorType, sizes: &[Expr]) -> Vec<Expr> {
    let lead = sizes.len() - ty.rank();
    let own = |d: usize| {
        if ty.sizes[d].is_one() && !sizes[lead + d].is_one() { Expr::zero() } else { ty.strides[d] }
    };
    (0..sizes.len()).map(|d| if d < lead { Expr::zero() } else { own(d - lead) }).collect()
}

/// `TensorIteratorBase::reorder_dimensions`: an insertion sort of the dimensions, fastest first.
fn iteration_order(facts: &Facts, strides: &[Vec<Expr>], sizes: &[Expr]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).rev().collect();
    for i in 1..order.len() {
        let mut at = i;
        for before in (0..i).rev() {
            match should_swap(facts, strides, sizes, order[before], order[at]) {
                Some(true) => {
                    order.swap(before, at);
                    at = before;
                }
                Some(false) => break,
                None => {}
            }
        }
    }
    order
}

/// Whether dimension `a` must come after `b`; `None` when the operands do not say.
fn should_swap(facts: &Facts, strides: &[Vec<Expr>], sizes: &[Expr], a: usize, b: usize) -> Option<bool> {
    for operand in strides {
        let (x, y) = (operand[a], operand[b]);
        if x.is_zero() || y.is_zero() {
            continue;
        }
        if x == y {
            if known(facts, Rel::gt(sizes[a], sizes[b])) == Some(true) {
                return Some(true);
            }
        } else if known(facts, Rel::lt(x, y)) == Some(true) {
            return Some(false);
        } else if known(facts, Rel::gt(x, y)) == Some(true) {
            return Some(true);
        }
    }
    None
}

/// Whether elements fill their span, each once, in some order of dimensions.
pub fn is_dense(facts: &Facts, ty: &TensorType) -> bool {
    dense_order(facts, &ty.sizes, &ty.strides, 0..ty.rank()).is_some()
}

/// Of these dimensions those of more than one element, the fastest first, where elements fill their span, each once.
fn dense_order(
    facts: &Facts,
    sizes: &[Expr],
    strides: &[Expr],
    dims: impl Iterator<Item = usize>,
) -> Option<Vec<usize>> {
    let mut left: Vec<usize> = dims.filter(|&d| !is_one(facts, sizes[d])).collect();
    let (mut order, mut expected) = (Vec::with_capacity(left.len()), Expr::one());
    while !left.is_empty() {
        let next = left.swap_remove(left.iter().position(|&d| same(facts, strides[d], expected))?);
        expected = expected * sizes[next];
        order.push(next);
    }
    Some(order)
}

/// The coordinates of the element at a place in memory, counted in elements, of a buffer that fills its span; along a stride
/// of 0 the first. None where that is not known to fill it. `facts` bound the symbols of `place`.
pub fn coordinates_at(place: Expr, sizes: &[Expr], strides: &[Expr], facts: &Facts) -> Option<Vec<Expr>> {
    let steps = (0..sizes.len()).filter(|&d| !strides[d].is_zero());
    let order = dense_order(facts, sizes, strides, steps)?;
    let mut coordinates = vec![Expr::zero(); sizes.len()];
    for &d in &order {
        let at = place.floordiv(strides[d]);
        let is_slowest = order.last() == Some(&d);
        coordinates[d] = facts.simplify(if is_slowest { at } else { at.modulo(sizes[d]) });
    }
    Some(coordinates)
}

/// Whether no two elements are known to share memory.
pub fn is_distinct(facts: &Facts, ty: &TensorType) -> bool {
    steps_over(facts, ty) == Some(true)
}

/// Whether some stride is known to step into what smaller strides reach.
pub fn is_overlapping(facts: &Facts, ty: &TensorType) -> bool {
    steps_over(facts, ty) == Some(false)
}

/// What holds where each stride steps over all that smaller strides reach, which are those that are smaller for the example sizes; None
/// where they do not step over it then. Nothing is asked of strides without examples: those of inputs have some.
pub fn distinct_where(facts: &Facts, ty: &TensorType) -> Option<Vec<Rel>> {
    let dims = (0..ty.rank()).filter(|&d| !is_one(facts, ty.sizes[d]));
    let dims: Option<Vec<(i64, usize)>> = dims.map(|d| Some((facts.hint(ty.strides[d])?, d))).collect();
    let Some(mut dims) = dims else { return Some(Vec::new()) };
    dims.sort_unstable();
    let mut reach = Expr::one();
    let step = |(hint, d): (i64, usize)| {
        let steps_over = Rel::le(reach, ty.strides[d]);
        let holds = facts.hint(reach).is_none_or(|reach| reach <= hint);
        reach = reach + (ty.sizes[d] - 1) * ty.strides[d];
        holds.then_some(steps_over)
    };
    dims.into_iter().map(step).collect()
}

/// Whether each stride steps over all that smaller strides reach, where there are elements at all; None when not known.
fn steps_over(facts: &Facts, ty: &TensorType) -> Option<bool> {
    let mut facts = Cow::Borrowed(facts);
    for &size in &ty.sizes {
        let some = Rel::ge(size, 1);
        if known(&facts, some) != Some(true) && !facts.to_mut().assume(some) {
            return Some(true);
        }
    }
    let facts = &*facts;
    let mut left: Vec<usize> = (0..ty.rank()).filter(|&d| !is_one(facts, ty.sizes[d])).collect();
    let mut reach = Expr::one();
    while !left.is_empty() {
        let smallest = |&d: &usize| {
            left.iter().all(|&e| known(facts, Rel::le(ty.strides[d], ty.strides[e])) == Some(true))
        };
        let d = left.swap_remove(left.iter().position(smallest)?);
        if !known(facts, Rel::le(reach, ty.strides[d]))? {
            return Some(false);
        }
        reach = reach + (ty.sizes[d] - 1) * ty.strides[d];
    }
    Some(true)
}

/// NHWC order, size-1 dimensions with any stride.
pub fn is_channels_last(ty: &TensorType) -> bool {
    let order: &[usize] = match ty.rank() {
        4 => &[1, 3, 2, 0],
        5 => &[1, 4, 3, 2, 0],
        _ => return false,
    };
    let mut expected = Expr::one();
    for &d in order {
        if !ty.sizes[d].is_one() {
            if ty.strides[d] != expected {
                return false;
            }
            expected = expected * ty.sizes[d];
        }
    }
    true
}

/// The memory format that convolutions, pooling, normalisation and `cat` read off a tensor: channels last when its
/// strides are in that order. Follows `is_channels_last_strides_2d` of c10.
pub fn suggested_format(facts: &Facts, ty: &TensorType) -> MemoryFormat {
    let (order, format): (&[usize], _) = match ty.rank() {
        4 => (&[1, 3, 2, 0], MemoryFormat::ChannelsLast),
        5 => (&[1, 4, 3, 2, 0], MemoryFormat::ChannelsLast3d),
        _ => return MemoryFormat::Contiguous,
    };
    if ty.strides[1].is_zero() {
        return MemoryFormat::Contiguous;
    }
    let mut min = Expr::zero();
    for &d in order {
        let in_order = known(facts, Rel::le(min, ty.strides[d])) == Some(true);
        // N111 with strides C111 reads as contiguous.
        if ty.sizes[d].is_zero() || !in_order || (d == 0 && min == ty.strides[1]) {
            return MemoryFormat::Contiguous;
        }
        min = if ty.sizes[d].is_one() { ty.strides[d] } else { ty.strides[d] * ty.sizes[d] };
    }
    format
}

/// Strides of a new tensor in a given format; `Preserve` counts as contiguous here.
pub fn format_strides(format: MemoryFormat, sizes: &[Expr]) -> Vec<Expr> {
    match (format, sizes.len()) {
        (MemoryFormat::ChannelsLast, 4) => dense_in_order(sizes, &[1, 3, 2, 0]),
        (MemoryFormat::ChannelsLast3d, 5) => dense_in_order(sizes, &[1, 4, 3, 2, 0]),
        _ => contiguous_strides(sizes),
    }
}

/// Strides of a copy that keeps the layout, as `empty_like`: those of a dense tensor, else dense ones in their order.
pub fn preserved_strides(facts: &Facts, ty: &TensorType) -> Vec<Expr> {
    if is_dense(facts, ty) {
        return ty.strides.clone();
    }
    iterated_strides(facts, std::slice::from_ref(&ty.strides), &ty.sizes)
}

/// Strides of a copy of `ty` in the format asked for; none asked for keeps the layout.
pub fn copy_strides(facts: &Facts, ty: &TensorType, format: Option<MemoryFormat>) -> Vec<Expr> {
    match format {
        None | Some(MemoryFormat::Preserve) => preserved_strides(facts, ty),
        Some(format) => format_strides(format, &ty.sizes),
    }
}

/// The strides with which `ty` can be seen as `sizes` without a copy, if it can: `at::detail::computeStride`.
pub fn view_strides(facts: &Facts, ty: &TensorType, sizes: &[Expr]) -> Option<Vec<Expr>> {
    if ty.sizes.iter().any(|s| s.is_zero()) {
        return Some(if ty.sizes == sizes { ty.strides.clone() } else { contiguous_strides(sizes) });
    }
    let mut strides = vec![Expr::one(); sizes.len()];
    let mut view = sizes.len();
    // `chunk` is the run of input dimensions that is contiguous in itself, `base` its innermost stride.
    let (mut chunk, mut base) = (Expr::one(), ty.strides.last().copied().unwrap_or(Expr::one()));
    for d in (0..ty.rank()).rev() {
        chunk = chunk * ty.sizes[d];
        let ends = d == 0 || !ty.sizes[d - 1].is_one() && !same(facts, ty.strides[d - 1], chunk * base);
        if !ends {
            continue;
        }
        let mut covered = Expr::one();
        while view > 0 && (sizes[view - 1].is_one() || !same(facts, covered, chunk)) {
            view -= 1;
            strides[view] = covered * base;
            covered = covered * sizes[view];
        }
        if !same(facts, covered, chunk) {
            return None;
        }
        if d > 0 {
            (chunk, base) = (Expr::one(), ty.strides[d - 1]);
        }
    }
    if ty.rank() == 0 {
        return Some(strides);
    }
    (view == 0).then_some(strides)
}

/// The tensors among operands.
pub fn tensors_of<'a>(operands: &[Operand<'a>]) -> Vec<Tensor<'a>> {
    let tensor = |o: &Operand<'a>| match o {
        Operand::Tensor(t) => Some(*t),
        Operand::Number(_) | Operand::Late(..) => None,
    };
    operands.iter().filter_map(tensor).collect()
}
