//! Lowers convolutions to a nest that sums products of operand and weight, and one that adds the bias.

use crate::args::{Args, Tensor};
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{format_strides, is_channels_last, suggested_format, vector_of};
use crate::lower::Lower;
use crate::ops::window::{Phase, Phases, Window, reduced_axes};
use crate::traits::{Layout, Role};
use crate::view::{ValueAccess, View, dim};
use litz_ir::graph::{Arg, MemoryFormat, TensorType, Type, contiguous_strides};
use litz_ir::{Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.conv1d.default", result_type, convolution).role(Role::Layer),
    lower("aten.conv1d.padding", result_type, convolution).role(Role::Layer),
    lower("aten.conv2d.default", result_type, convolution).role(Role::Layer).layout(Layout::ChannelsLast),
    lower("aten.conv2d.padding", result_type, convolution).role(Role::Layer).layout(Layout::ChannelsLast),
    lower("aten.conv3d.default", result_type, convolution).role(Role::Layer),
    lower("aten.conv3d.padding", result_type, convolution).role(Role::Layer),
    lower("aten.conv_transpose1d.default", result_type, convolution),
    lower("aten.conv_transpose2d.input", result_type, convolution).layout(Layout::ChannelsLast),
    lower("aten.conv_transpose3d.input", result_type, convolution),
    lower("aten.convolution.default", result_type, convolution)
        .role(Role::Layer)
        .layout(Layout::ChannelsLast),
    lower("aten._convolution.default", result_type, convolution)
        .role(Role::Layer)
        .layout(Layout::ChannelsLast),
    lower("aten._convolution.deprecated", result_type, convolution)
        .role(Role::Layer)
        .layout(Layout::ChannelsLast),
    lower("aten._convolution_mode.default", result_type, convolution)
        .role(Role::Layer)
        .layout(Layout::ChannelsLast),
];

/// What the arguments of a convolution say, apart from the tensors' types.
struct Convolution<'a> {
    x: Tensor<'a>,
    weight: Tensor<'a>,
    bias: Option<Tensor<'a>>,
    /// Whether the weight spreads each element of the operand instead of gathering them.
    transposed: bool,
    groups: i64,
    /// One for each spatial dimension.
    windows: Vec<Window>,
}

impl<'a> Convolution<'a> {
    fn new(args: &Args<'a>) -> Result<Convolution<'a>, OpError> {
        let (x, weight, bias) = (args.tensor("input")?, args.tensor("weight")?, args.opt_tensor("bias")?);
        let spatial = weight.ty.rank().saturating_sub(2);
        let named = spatial_dims(args.op());
        if named.is_some_and(|dims| dims != spatial) {
            return Err(args.bad("weight", &format!("{} dimensions", named.unwrap_or(0) + 2)));
        }
        if spatial == 0 || !matches!(x.ty.rank().checked_sub(spatial), Some(1 | 2)) {
            return Err(args.bad("input", &format!("{} or {} dimensions", spatial + 1, spatial + 2)));
        }
        if named.is_none() && x.ty.rank() != weight.ty.rank() {
            return Err(args.bad("input", &format!("{} dimensions", spatial + 2)));
        }
        if x.ty.dtype != weight.ty.dtype {
            let found = (x.ty.dtype, weight.ty.dtype);
            return Err(args.invalid(format!(
                "expected operands of one element type, found {} and {}",
                found.0, found.1
            )));
        }
        let groups = args.literal("groups")?;
        if groups < 1 {
            return Err(args.bad("groups", "a positive integer"));
        }
        let transposed = args.op().starts_with("aten.conv_transpose") || args.flag("transposed")?;
        let windows = windows(args, &weight.ty.sizes[2..], transposed)?;
        Ok(Convolution { x, weight, bias, transposed, groups, windows })
    }

    fn is_batched(&self) -> bool {
        self.x.ty.rank() == self.weight.ty.rank()
    }

    /// Channels of the operand and of the result, in one group.
    fn channels(&self) -> (Expr, Expr) {
        let (first, second) = (self.weight.ty.sizes[0].floordiv(self.groups), self.weight.ty.sizes[1]);
        if self.transposed { (first, second) } else { (second, first) }
    }

    /// The results of a stride along a dimension by the number of taps that reach them; nothing where all taps are tried.
    fn phases(&self, dimension: usize) -> Vec<Phases> {
        let kernel = self.spatial(&self.weight.ty.sizes)[dimension];
        if self.transposed { self.windows[dimension].phases(kernel) } else { Vec::new() }
    }

    fn spatial<'s>(&self, sizes: &'s [Expr]) -> &'s [Expr] {
        &sizes[sizes.len() - self.windows.len()..]
    }
}

/// The number of spatial dimensions that an operator's name has in it.
fn spatial_dims(op: &str) -> Option<usize> {
    (1..=3).find(|dims| op.contains(&format!("{dims}d.")))
}

fn windows(args: &Args<'_>, kernel: &[Expr], transposed: bool) -> Result<Vec<Window>, OpError> {
    let n = kernel.len();
    if kernel.iter().any(|size| size.is_zero()) {
        return Err(args.invalid(format!("a kernel of sizes {kernel:?} has no elements")));
    }
    let (strides, dilations) = (args.literals_of("stride", n)?, args.literals_of("dilation", n)?);
    if strides.iter().any(|&s| s < 1) {
        return Err(args.bad("stride", "positive integers"));
    }
    if dilations.iter().any(|&d| d < 1) {
        return Err(args.bad("dilation", "positive integers"));
    }
    let padding: Vec<(Expr, Expr)> = match args.get("padding") {
        Arg::Str(mode) if mode == "valid" => vec![(Expr::zero(), Expr::zero()); n],
        Arg::Str(mode) if mode == "same" && strides.iter().all(|&s| s == 1) => {
            let total = (0..n).map(|d| (kernel[d] - 1) * dilations[d]);
            // An odd total has its greater half at the end.
            total.map(|total| (total.floordiv(2), total.ceildiv(2))).collect()
        }
        Arg::Str(_) => return Err(args.bad("padding", "`valid`, or `same` with strides of 1")),
        _ => args.ints_of("padding", n)?.into_iter().map(|p| (p, p)).collect(),
    };
    if padding.iter().any(|(p, _)| p.as_int().is_some_and(|p| p < 0)) {
        return Err(args.bad("padding", "no negative integers"));
    }
    let extra = if transposed { args.ints_of("output_padding", n)? } else { vec![Expr::zero(); n] };
    let too_large =
        |d: usize| extra[d].as_int().is_none_or(|e| !(0..strides[d].max(dilations[d])).contains(&e));
    if transposed && (0..n).any(too_large) {
        return Err(args.bad("output_padding", "integers below the stride or the dilation"));
    }
    let window = |d: usize| Window {
        stride: strides[d],
        dilation: dilations[d],
        before: padding[d].0,
        after: padding[d].1,
        extra: extra[d],
    };
    Ok((0..n).map(window).collect())
}

pub(crate) fn result_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let conv = Convolution::new(args)?;
    let (x, weight) = (conv.x.ty, conv.weight.ty);
    let (inputs, outputs) = conv.channels();
    let channel = usize::from(conv.is_batched());
    let groups = conv.groups;
    let differs = |_| {
        let sizes = (&x.sizes, &weight.sizes);
        args.invalid(format!(
            "an operand of sizes {:?} and a weight of {:?} in {groups} groups",
            sizes.0, sizes.1
        ))
    };
    cx.require(Rel::eq(x.sizes[channel], inputs * groups), args.op()).map_err(differs)?;
    cx.require(Rel::eq(weight.sizes[0].modulo(groups), 0), args.op()).map_err(differs)?;
    args.of_types("bias", &[x.dtype])?;
    vector_of(cx, args, "bias", outputs * groups)?;
    let mut sizes = x.sizes[..channel].to_vec();
    // As in PyTorch: an image without channels makes one without channels.
    sizes.push(if x.sizes[channel].is_zero() { Expr::zero() } else { outputs * conv.groups });
    for (d, window) in conv.windows.iter().enumerate() {
        let (size, kernel) = (conv.spatial(&x.sizes)[d], weight.sizes[2 + d]);
        let count = if conv.transposed { Window::spread_count } else { Window::count };
        sizes.push(count(window, cx, args, size, kernel)?);
    }
    let strides = result_strides(cx, &conv, &sizes);
    one(TensorType::strided(x.dtype, sizes, strides))
}

/// Channels last when operand or weight is. PyTorch has no such kernel for f64 in three dimensions, and lays out
/// results of no elements and of operands without a batch contiguously.
fn result_strides(cx: &InferCx<'_>, conv: &Convolution<'_>, sizes: &[Expr]) -> Vec<Expr> {
    let (x, weight) = (conv.x.ty, conv.weight.ty);
    let plain = !conv.is_batched()
        || x.sizes.iter().any(|s| s.is_zero())
        || conv.windows.len() == 3 && x.dtype == Dtype::F64;
    if plain {
        return contiguous_strides(sizes);
    }
    let mut formats = [x, weight].into_iter().map(|ty| suggested_format(cx.facts, ty));
    let format = formats.find(|&f| f != MemoryFormat::Contiguous).unwrap_or(MemoryFormat::Contiguous);
    format_strides(format, sizes)
}

fn convolution(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let conv = Convolution::new(args)?;
    let bias = conv.bias.map(|t| lw.access(t)).transpose()?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let sizes = whole_strides(lw, &conv, &out.sizes);
    if bias.is_none() && sizes == out.sizes {
        return product(lw, &conv, &out);
    }
    let compute = out.dtype.compute();
    let sum = match args.result(0) {
        Some(ty) => temp_in_layout(lw, "sum", compute, ty, &sizes),
        None => lw.temp("sum", compute, &sizes),
    };
    product(lw, &conv, &sum)?;
    let channel = usize::from(conv.is_batched());
    lw.nest(&out.sizes, |b, at| {
        let mut v = b.read(&sum, at);
        if let Some(bias) = &bias {
            let shift = b.read_as(bias, &at[channel..=channel], compute);
            v = b.add(v, shift);
        }
        b.store(&out, at, v);
        Ok(())
    })
}

/// The sizes of a result with as many elements along each dimension as whole strides of a transposed convolution have, where
/// these are computed together.
fn whole_strides(lw: &mut Lower<'_>, conv: &Convolution<'_>, sizes: &[Expr]) -> Vec<Expr> {
    let facts = lw.infer_cx().facts;
    let mut whole = sizes.to_vec();
    let lead = sizes.len() - conv.windows.len();
    for (d, window) in conv.windows.iter().enumerate() {
        let size = &mut whole[lead + d];
        if !conv.phases(d).is_empty() && !facts.divides(window.stride, *size) {
            *size = facts.simplify(size.ceildiv(window.stride) * window.stride);
        }
    }
    whole
}

/// An intermediate buffer of `sizes`, channels last if `ty` is.
fn temp_in_layout(
    lw: &mut Lower<'_>,
    role: &str,
    dtype: Dtype,
    ty: &TensorType,
    sizes: &[Expr],
) -> ValueAccess {
    if ty.is_contiguous() || !is_channels_last(ty) {
        return lw.temp(role, dtype, sizes);
    }
    let rank = ty.rank();
    let order: Vec<usize> = std::iter::once(0).chain(2..rank).chain([1]).collect();
    let ordered: Vec<Expr> = order.iter().map(|&d| sizes[d]).collect();
    let temp = lw.temp(role, dtype, &ordered);
    lw.view(&temp, &View::new(sizes.to_vec(), order.into_iter().map(dim).collect()))
}

/// The nests that give all elements of `out`: of a transposed convolution one for each combination of results that equally many
/// taps reach along every dimension, so that nothing is multiplied by a zero that the stride put between elements.
fn product(lw: &mut Lower<'_>, conv: &Convolution<'_>, out: &ValueAccess) -> Result<(), OpError> {
    let mut combinations = vec![Vec::new()];
    for d in 0..conv.windows.len() {
        let phases = conv.phases(d);
        let choices = match phases.is_empty() {
            true => vec![None],
            false => phases.into_iter().map(Some).collect(),
        };
        let with = |chosen: &Vec<Option<Phases>>| {
            choices.iter().map(|&choice| [&chosen[..], &[choice]].concat()).collect::<Vec<_>>()
        };
        combinations = combinations.iter().flat_map(with).collect();
    }
    combinations.iter().try_for_each(|phases| product_of(lw, conv, out, phases))
}

/// The nest `[batch, group, channel, positions... | channel, taps...]`, most axes of extent 1 left out. With phases it has axes
/// for them behind its positions, which count strides, and `phases` are those that it gives along each dimension.
fn product_of(
    lw: &mut Lower<'_>,
    conv: &Convolution<'_>,
    out: &ValueAccess,
    phases: &[Option<Phases>],
) -> Result<(), OpError> {
    let (x, weight) = (lw.access(conv.x)?, lw.access(conv.weight)?);
    let compute = out.dtype.compute();
    let lead = usize::from(conv.is_batched());
    let (inputs, outputs) = conv.channels();
    let outputs = if out.sizes[lead].is_zero() { Expr::zero() } else { outputs };
    let mut extents = out.sizes[..lead].to_vec();
    extents.extend([Expr::int(conv.groups), outputs]);
    for (d, &count) in conv.spatial(&out.sizes).iter().enumerate() {
        extents.push(if phases[d].is_some() { count.floordiv(conv.windows[d].stride) } else { count });
    }
    extents.extend(phases.iter().map(|phases| Expr::int(phases.map_or(1, |phases| phases.count))));
    let is_reached = phases.iter().flatten().all(|phases| phases.taps > 0);
    lw.nest(&extents, |b, at| {
        let (group, channel, positions) = (at[lead], at[lead + 1], &at[lead + 2..]);
        let (positions, places) = positions.split_at(phases.len());
        let result = |d: usize| match phases[d] {
            Some(Phases { first, .. }) => positions[d] * conv.windows[d].stride + places[d] + first,
            None => positions[d],
        };
        let results: Vec<Expr> = (0..phases.len()).map(result).collect();
        let out_at = [&at[..lead], &[group * outputs + channel], &results].concat();
        if !is_reached {
            let zero = b.literal(Scalar::zero(compute), compute);
            b.store(out, &out_at, zero);
            return Ok(());
        }
        // The channel keeps its axis even if it is the only one: the nest always is a sum of products.
        let input = b.reduced_axis(inputs);
        let taps_of = |d: usize| match phases[d] {
            Some(phases) => Expr::int(phases.taps),
            None => conv.spatial(&weight.sizes)[d],
        };
        let turns = reduced_axes(b, &(0..phases.len()).map(taps_of).collect::<Vec<_>>());
        let mut guard = Vec::new();
        let mut x_at = at[..lead].to_vec();
        x_at.push(group * inputs + input);
        let mut taps = Vec::new();
        for (d, window) in conv.windows.iter().enumerate() {
            let (size, position, turn) = (conv.spatial(&x.sizes)[d], positions[d], turns[d]);
            let (tap, (source, exists)) = match phases[d] {
                Some(Phases { first, .. }) => {
                    let Phase { tap, source, guard } = window.phase(position, places[d] + first, turn, size);
                    (tap, (source, guard))
                }
                None if conv.transposed => (turn, window.spread_source(position, turn, size)),
                None => (turn, window.source(position, turn, size)),
            };
            taps.push(tap);
            x_at.push(source);
            guard.extend(exists);
        }
        let weight_at = if conv.transposed {
            [group * inputs + input, channel]
        } else {
            [group * outputs + channel, input]
        };
        let zero = Scalar::zero(x.dtype);
        let u = b.load_if(&x, &x_at, guard, zero);
        let u = b.cast(u, compute);
        let v = b.read(&weight, &[&weight_at[..], &taps].concat());
        let term = b.mul(u, v);
        let sum = b.reduce(ReduceOp::Sum, term);
        b.store(out, &out_at, sum);
        Ok(())
    })
}
