//! Lowers operators that place elements: concatenation, padding, repetition, flips.

use crate::args::{Args, Operand, Tensor};
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, inferred, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{format_strides, not_negative, preserved_strides, same_sizes, suggested_format};
use crate::lower::Lower;
use crate::promote::result_type;
use crate::traits::Complex;
use crate::traits::Holds::When;
use crate::view::{View, dim};
use litz_ir::graph::{Arg, MemoryFormat, TensorType, Type, Value, contiguous_strides};
use litz_ir::{Dtype, Scalar};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.cat.default", cat_type, cat),
    lower("aten.stack.default", stack_type, stack),
    lower("aten.constant_pad_nd.default", pad_type, pad).identity(When(adds_nothing)),
    lower("aten.pad.default", pad_type, pad).identity(When(adds_nothing)),
    lower("aten.reflection_pad1d.default", pad_type, |lw, args| pad_mode(lw, args, "reflect")),
    lower("aten.reflection_pad2d.default", pad_type, |lw, args| pad_mode(lw, args, "reflect")),
    lower("aten.replication_pad1d.default", pad_type, |lw, args| pad_mode(lw, args, "replicate")),
    lower("aten.replication_pad2d.default", pad_type, |lw, args| pad_mode(lw, args, "replicate")),
    lower(
        "aten.repeat.default",
        |cx, args| copied_type(cx, args, repeat),
        |lw, args| copy_view(lw, args, repeat),
    ),
    lower(
        "aten.tile.default",
        |cx, args| copied_type(cx, args, repeat),
        |lw, args| copy_view(lw, args, repeat),
    ),
    lower(
        "aten.repeat_interleave.self_int",
        |cx, args| copied_type(cx, args, interleave),
        |lw, args| copy_view(lw, args, interleave),
    ),
    lower("aten.flip.default", |cx, args| copied_type(cx, args, flip), |lw, args| copy_view(lw, args, flip)),
    lower("aten.roll.default", |cx, args| copied_type(cx, args, roll), |lw, args| copy_view(lw, args, roll)),
    lower("aten.meshgrid.indexing", meshgrid_types, meshgrid).complex(Complex::Lowered),
    lower("aten.meshgrid.default", meshgrid_types, meshgrid).complex(Complex::Lowered),
    decompose("aten.diff.default", diff).complex(Complex::Rewritten),
    decompose("aten.pixel_shuffle.default", pixel_shuffle).complex(Complex::Rewritten),
    inferred("aten.sym_size.int", size_of),
    inferred("aten.sym_stride.int", stride_of),
    inferred("aten.sym_numel.default", numel_of),
    inferred("aten.sym_storage_offset.default", |_, args| Err(args.unsupported("the place of a storage"))),
];

// Concatenation: each operand is copied to its part of the result.

fn cat_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let tensors = args.tensors("tensors")?;
    let dtype = result_type(&tensors.iter().map(|&t| Operand::Tensor(t)).collect::<Vec<_>>())
        .ok_or_else(|| args.invalid("no common element type"))?;
    let parts: Vec<&TensorType> = tensors.iter().map(|t| t.ty).filter(|ty| !is_skipped(ty)).collect();
    let Some(first) = parts.first().or(tensors.first().map(|t| t.ty).as_ref()).copied() else {
        return Err(args.bad("tensors", "at least one tensor"));
    };
    if tensors.iter().any(|t| t.ty.rank() == 0) {
        return Err(args.invalid("zero-dimensional tensors cannot be concatenated"));
    }
    let along = args.dim("dim", first.rank())?;
    let mut sizes = first.sizes.clone();
    for part in &parts[1.min(parts.len())..] {
        let mut expected = first.sizes.clone();
        if let (Some(slot), Some(&own)) = (expected.get_mut(along), part.sizes.get(along)) {
            *slot = own;
        }
        same_sizes(cx, args, "a tensor", &part.sizes, &expected)?;
        sizes[along] = sizes[along] + part.sizes[along];
    }
    let format = suggested_format(cx.facts, first);
    let agree = tensors.iter().all(|t| suggested_format(cx.facts, t.ty) == format);
    let format = if agree { format } else { MemoryFormat::Contiguous };
    let strides = format_strides(format, &sizes);
    one(TensorType::strided(dtype, sizes, strides))
}

/// A vector of size 0 goes with operands of any shape.
fn is_skipped(ty: &TensorType) -> bool {
    matches!(ty.sizes[..], [size] if size.is_zero())
}

fn cat(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let tensors = args.tensors("tensors")?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let along = args.dim("dim", out.rank())?;
    let mut start = Expr::zero();
    // Between vectors nothing is skipped: a result of nothing but empty ones is written, too.
    for t in tensors.into_iter().filter(|t| out.rank() == 1 || !is_skipped(t.ty)) {
        let part = lw.access(t)?;
        lw.nest(&part.sizes, |b, at| {
            let v = b.load(&part, at);
            let mut coords = at.to_vec();
            coords[along] = coords[along] + start;
            b.store(&out, &coords, v);
            Ok(())
        })?;
        start = start + t.ty.sizes[along];
    }
    Ok(())
}

fn stack_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let tensors = args.tensors("tensors")?;
    let Some(first) = tensors.first().map(|t| t.ty) else {
        return Err(args.bad("tensors", "at least one tensor"));
    };
    for t in &tensors[1..] {
        same_sizes(cx, args, "a tensor", &t.ty.sizes, &first.sizes)?;
    }
    let dtype = result_type(&tensors.iter().map(|&t| Operand::Tensor(t)).collect::<Vec<_>>())
        .ok_or_else(|| args.invalid("no common element type"))?;
    let along = args.dim("dim", first.rank() + 1)?;
    let mut sizes = first.sizes.clone();
    sizes.insert(along, Expr::int(tensors.len() as i64));
    one(TensorType::contiguous(dtype, sizes))
}

fn stack(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let along = args.dim("dim", out.rank())?;
    for (i, t) in args.tensors("tensors")?.into_iter().enumerate() {
        let part = lw.access(t)?;
        lw.nest(&part.sizes, |b, at| {
            let v = b.load(&part, at);
            let mut coords = at.to_vec();
            coords.insert(along, Expr::int(i as i64));
            b.store(&out, &coords, v);
            Ok(())
        })?;
    }
    Ok(())
}

// Padding.

/// Elements added before and after each padded dimension, the last one first.
fn amounts(args: &Args<'_>) -> Result<Vec<Expr>, OpError> {
    let name = if args.has("padding") { "padding" } else { "pad" };
    let given = args.ints(name)?;
    if given.len() % 2 == 0 {
        Ok(given)
    } else {
        Err(args.bad(name, "a pair of integers for each padded dimension"))
    }
}

/// Elements added before and after each dimension; negative ones are taken away.
fn pads(args: &Args<'_>, rank: usize) -> Result<Vec<(Expr, Expr)>, OpError> {
    let given = amounts(args)?;
    if given.len() / 2 > rank {
        return Err(
            args.invalid(format!("expected at most {rank} dimensions to pad, found {}", given.len() / 2))
        );
    }
    let mut pads = vec![(Expr::zero(), Expr::zero()); rank];
    given.chunks_exact(2).enumerate().for_each(|(i, pair)| pads[rank - 1 - i] = (pair[0], pair[1]));
    Ok(pads)
}

/// Padding with elements of the operand itself is of images, of one batch or none, that have elements before and after.
fn repeats_elements(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    x: &TensorType,
    sizes: &[Expr],
) -> Result<(), OpError> {
    let mode = pad_mode_of(args)?;
    if mode == "constant" {
        return Ok(());
    }
    let dims = amounts(args)?.len() / 2;
    if x.rank() != dims + 1 && x.rank() != dims + 2 {
        let expected = format!("expected {} or {} dimensions", dims + 1, dims + 2);
        return Err(args.invalid(format!("{expected} to pad {dims} of by elements of their own, found {x}")));
    }
    if mode != "circular" {
        let image = x.rank() - dims - 1;
        for &size in x.sizes[image..].iter().chain(&sizes[image..]) {
            let empty = |_| args.invalid(format!("expected elements, found {x} to be made {sizes:?}"));
            cx.require(Rel::ge(size, 1), args.op()).map_err(empty)?;
        }
    }
    Ok(())
}

fn pad_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let pads = pads(args, x.rank())?;
    let sizes: Vec<Expr> =
        x.sizes.iter().zip(&pads).map(|(&n, &(before, after))| n + before + after).collect();
    not_negative(cx, args, &sizes)?;
    repeats_elements(cx, args, x, &sizes)?;
    for (&n, &(before, after)) in x.sizes.iter().zip(&pads) {
        if (before, after) == (Expr::zero(), Expr::zero()) {
            continue;
        }
        let rels = match pad_mode_of(args)? {
            "reflect" => vec![Rel::lt(before, n), Rel::lt(after, n)],
            // What is left repeats: eager copies what was never written where that is too little.
            "circular" => [before, after].map(|amount| Rel::le(amount, kept(n, (before, after)))).to_vec(),
            "replicate" => vec![Rel::ge(n, 1)],
            // Both ends cannot be cut by more than there is.
            _ => vec![Rel::ge(n + before, 0), Rel::ge(n + after, 0)],
        };
        let outside = |_| args.invalid(format!("cannot pad a dimension of {n} by {before} and {after}"));
        rels.into_iter().try_for_each(|rel| cx.require(rel, args.op())).map_err(outside)?;
    }
    // Eager only cuts, and copies what is left, when nothing is added.
    let cuts = |cx: &InferCx<'_>, e: Expr| cx.known(Rel::le(e, 0)) == Some(true);
    let strides = match pad_mode_of(args)? {
        "circular" => contiguous_strides(&sizes),
        "constant" if pads.iter().all(|p| cuts(cx, p.0) && cuts(cx, p.1)) => {
            let cut = TensorType { sizes: sizes.clone(), ..x.clone() };
            preserved_strides(cx.facts, &cut)
        }
        _ => format_strides(suggested_format(cx.facts, x), &sizes),
    };
    one(TensorType::strided(x.dtype, sizes, strides))
}

/// Where padding comes from: the argument `mode`, or the operator's name.
fn pad_mode_of<'a>(args: &Args<'a>) -> Result<&'a str, OpError> {
    Ok(match args.str("mode")? {
        "" if args.op().contains("reflection") => "reflect",
        "" if args.op().contains("replication") => "replicate",
        "" => "constant",
        mode => mode,
    })
}

/// Whether nothing is added at any end, nor taken away.
fn adds_nothing(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<bool, OpError> {
    let rank = args.tensor("self")?.ty.rank();
    Ok(pads(args, rank)?.iter().all(|&pad| pad == (Expr::zero(), Expr::zero())))
}

fn pad(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let mode = args.str("mode")?;
    if !matches!(mode, "" | "constant") {
        return pad_mode(lw, args, mode);
    }
    let fill = args.opt_float("value")?.unwrap_or(0.0);
    let x = lw.access(args.tensor("self")?)?;
    let pads = pads(args, x.rank())?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let coords: Vec<Expr> = at.iter().zip(&pads).map(|(&i, &(before, _))| i - before).collect();
        let inside = |d: usize| [Rel::ge(coords[d], 0), Rel::lt(coords[d], x.sizes[d])];
        let padded = (0..x.rank()).filter(|&d| pads[d] != (Expr::zero(), Expr::zero()));
        let guard = padded.flat_map(inside).collect();
        let v = b.load_if(&x, &coords, guard, Scalar::Float(fill));
        b.store(&out, at, v);
        Ok(())
    })
}

/// How many of `n` elements negative padding leaves.
fn kept(n: Expr, (before, after): (Expr, Expr)) -> Expr {
    n + before.min(0) + after.min(0)
}

/// Padding with elements of the operand itself.
fn pad_mode(lw: &mut Lower<'_>, args: &Args<'_>, mode: &str) -> Result<(), OpError> {
    let coord: fn(Expr, Expr, (Expr, Expr)) -> Expr = match mode {
        // n - 1 - | n - 1 - |i| |
        "reflect" => |i, n, _| {
            let magnitude = |e: Expr| e.max(-e);
            n - 1 - magnitude(n - 1 - magnitude(i))
        },
        "replicate" => |i, n, _| i.max(0).min(n - 1),
        // What is left repeats, not what there was.
        "circular" => |i, n, pads| {
            let cut = (-pads.0).max(0);
            (i - cut).modulo(kept(n, pads)) + cut
        },
        _ => return Err(args.bad("mode", "constant, reflect, replicate or circular")),
    };
    let x = lw.access(args.tensor("self")?)?;
    let pads = pads(args, x.rank())?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let place = |d: usize| match pads[d] {
            (before, after) if before.is_zero() && after.is_zero() => at[d],
            (before, _) => coord(at[d] - before, x.sizes[d], pads[d]),
        };
        let coords: Vec<Expr> = (0..x.rank()).map(place).collect();
        let v = b.load(&x, &coords);
        b.store(&out, at, v);
        Ok(())
    })
}

// Copies through an index function.

type CopiedView = fn(&Args<'_>, &TensorType) -> Result<View, OpError>;

fn copied_type(cx: &mut InferCx<'_>, args: &Args<'_>, view: CopiedView) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let sizes: Vec<Expr> = view(args, x)?.sizes.into_iter().map(|s| cx.simplify(s)).collect();
    not_negative(cx, args, &sizes)?;
    one(TensorType::contiguous(x.dtype, sizes))
}

fn copy_view(lw: &mut Lower<'_>, args: &Args<'_>, view: CopiedView) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let view = view(args, x.ty)?;
    let access = lw.access(x)?;
    let source = lw.view(&access, &view);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let v = b.load(&source, at);
        b.store(&out, at, v);
        Ok(())
    })
}

fn repeat(args: &Args<'_>, x: &TensorType) -> Result<View, OpError> {
    let mut times = args.ints(if args.has("dims") { "dims" } else { "repeats" })?;
    if times.len() < x.rank() {
        if args.has("repeats") {
            return Err(args.bad("repeats", "one number for each dimension"));
        }
        times.splice(0..0, vec![Expr::one(); x.rank() - times.len()]);
    }
    let lead = times.len() - x.rank();
    let own = |d: usize| if d < lead { Expr::one() } else { x.sizes[d - lead] };
    let sizes = (0..times.len()).map(|d| own(d) * times[d]).collect();
    let coord =
        |d: usize| if times[lead + d].is_one() { dim(lead + d) } else { dim(lead + d).modulo(x.sizes[d]) };
    Ok(View::new(sizes, (0..x.rank()).map(coord).collect()))
}

fn interleave(args: &Args<'_>, x: &TensorType) -> Result<View, OpError> {
    let times = args.int("repeats")?;
    if !args.has("dim") {
        return Ok(View::new(vec![x.numel() * times], unflattened(&x.sizes, dim(0).floordiv(times))));
    }
    let along = args.dim("dim", x.rank())?;
    let mut view = View::identity(&x.sizes);
    view.sizes[along] = view.sizes[along] * times;
    view.coords[along] = dim(along).floordiv(times);
    Ok(view)
}

/// The coordinates of the element at a position in row-major order.
fn unflattened(sizes: &[Expr], place: Expr) -> Vec<Expr> {
    let strides = contiguous_strides(sizes);
    let coord =
        |d: usize| if sizes[d].is_one() { Expr::zero() } else { place.floordiv(strides[d]).modulo(sizes[d]) };
    (0..sizes.len()).map(coord).collect()
}

fn flip(args: &Args<'_>, x: &TensorType) -> Result<View, OpError> {
    let mut view = View::identity(&x.sizes);
    for d in args.dims("dims", x.rank())? {
        view.coords[d] = x.sizes[d] - 1 - dim(d);
    }
    Ok(view)
}

fn roll(args: &Args<'_>, x: &TensorType) -> Result<View, OpError> {
    let (shifts, dims) = (args.ints("shifts")?, args.dims("dims", x.rank())?);
    let mut view = View::identity(&x.sizes);
    if let ([shift], []) = (shifts.as_slice(), dims.as_slice()) {
        let places = contiguous_strides(&x.sizes);
        let place: Expr = (0..x.rank()).map(|d| dim(d) * places[d]).sum();
        view.coords = unflattened(&x.sizes, (place - *shift).modulo(x.numel()));
        return Ok(view);
    }
    if dims.len() != shifts.len() {
        return Err(args.bad("dims", "one dimension for each shift"));
    }
    for (d, shift) in dims.into_iter().zip(shifts) {
        view.coords[d] = (dim(d) - shift).modulo(x.sizes[d]);
    }
    Ok(view)
}

/// Differences that are taken one after another.
const MOST_DIFFERENCES: i64 = 1 << 10;

/// Differences of neighbours, `n` times over; of truth values, whether they differ.
fn diff(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    let (n, at, mut x) = (r.args().literal("n")?, r.args().dim("dim", x.ty.rank())?, x.value);
    if r.ty(x)?.rank() == 0 {
        return Err(r.args().invalid("a zero-dimensional tensor has no neighbours"));
    }
    if n < 0 {
        return Err(r.args().bad("n", "an integer that is not negative"));
    }
    let (dim, own) = (Arg::Int(Expr::int(at as i64)), x);
    let around = [r.args().get("prepend").clone(), Arg::Value(x), r.args().get("append").clone()];
    let parts: Vec<Arg> = around.into_iter().filter(|a| *a != Arg::None).collect();
    if parts.len() > 1 {
        x = r.call("aten.cat.default", [Arg::List(parts), dim.clone()])?;
    }
    if n == 0 {
        return Ok(vec![own]);
    }
    // Nothing is left of as many differences as there are elements.
    let n = r.ty(x)?.sizes[at].as_int().map_or(n, |size| n.min(size));
    if n > MOST_DIFFERENCES {
        return Err(r.args().unsupported(&format!("more than {MOST_DIFFERENCES} differences")));
    }
    for _ in 0..n {
        let ty = r.ty(x)?;
        let size = ty.sizes[at];
        let slice = |start, end| [Arg::Value(x), dim.clone(), Arg::Int(start), Arg::Int(end)];
        let later = r.call("aten.slice.Tensor", slice(Expr::one(), size))?;
        let earlier = r.call("aten.slice.Tensor", slice(Expr::zero(), size - 1))?;
        let op = if ty.dtype == Dtype::Bool { "aten.logical_xor.default" } else { "aten.sub.Tensor" };
        x = r.call(op, [Arg::Value(later), Arg::Value(earlier)])?;
    }
    Ok(vec![x])
}

/// `[.., c*r*r, h, w]` to `[.., c, h*r, w*r]`.
fn pixel_shuffle(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, factor) = (r.args().tensor("self")?.value, r.args().int("upscale_factor")?);
    let sizes = r.ty(x)?.sizes;
    let [lead @ .., channels, h, w] = sizes.as_slice() else {
        return Err(r.args().invalid("expected at least three dimensions"));
    };
    let groups = channels.floordiv(factor * factor);
    let n = lead.len();
    let split = [lead, &[groups, factor, factor, *h, *w]].concat();
    let order = (0..n).chain([n, n + 3, n + 1, n + 4, n + 2]).map(|d| Expr::int(d as i64));
    let joined = [lead, &[groups, *h * factor, *w * factor]].concat();
    let split = r.call("aten.view.default", [Arg::Value(x), Arg::ints(split)])?;
    let moved = r.call("aten.permute.default", [Arg::Value(split), Arg::ints(order)])?;
    Ok(vec![r.call("aten.reshape.default", [Arg::Value(moved), Arg::ints(joined)])?])
}

// Grids of coordinates: each vector expanded along the dimensions of the others.

/// The vectors' views in a grid; `xy` swaps the first two dimensions.
fn meshgrid_views<'a>(args: &Args<'a>) -> Result<Vec<(Tensor<'a>, View)>, OpError> {
    let vectors = args.tensors("tensors")?;
    let mut order: Vec<usize> = (0..vectors.len()).collect();
    match args.str("indexing")? {
        "" | "ij" => {}
        "xy" if order.len() > 1 => order.swap(0, 1),
        "xy" => {}
        _ => return Err(args.bad("indexing", "ij or xy")),
    }
    let size = |t: &Tensor<'_>| t.ty.sizes.first().copied().unwrap_or(Expr::one());
    let sizes: Vec<Expr> = order.iter().map(|&i| size(&vectors[i])).collect();
    let place = |i: usize| order.iter().position(|&o| o == i).unwrap_or(i);
    let view = |(i, t): (usize, &Tensor<'_>)| View::new(sizes.clone(), vec![dim(place(i)); t.ty.rank()]);
    Ok(vectors.iter().enumerate().map(|(i, t)| (*t, view((i, t)))).collect())
}

fn meshgrid_types(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let vectors = args.tensors("tensors")?;
    let is_vector = |t: &Tensor<'_>| t.ty.rank() < 2 && t.ty.dtype == vectors[0].ty.dtype;
    if let Some(other) = vectors.iter().find(|t| !is_vector(t)) {
        return Err(args.invalid(format!("expected vectors of one element type, found {}", other.ty)));
    }
    let views = meshgrid_views(args)?;
    Ok(views.into_iter().map(|(t, v)| Type::Tensor(v.result_type(t.ty.dtype, &t.ty.strides))).collect())
}

fn meshgrid(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    for (i, (t, view)) in meshgrid_views(args)?.into_iter().enumerate() {
        let access = lw.view(&lw.access(t)?, &view);
        lw.set_result(args, i, access);
    }
    Ok(())
}

// Sizes as values.

fn size_of(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let at = args.dim("dim", x.rank())?;
    let size = x.sizes.get(at).ok_or_else(|| args.invalid("a zero-dimensional tensor has no sizes"))?;
    Ok(vec![Type::Int(*size)])
}

fn stride_of(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let at = args.dim("dim", x.rank())?;
    let stride = x.strides.get(at).ok_or_else(|| args.invalid("a zero-dimensional tensor has no strides"))?;
    Ok(vec![Type::Int(*stride)])
}

fn numel_of(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    Ok(vec![Type::Int(args.tensor("self")?.ty.numel())])
}
