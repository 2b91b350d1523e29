//! Convolutions of any number of dimensions: one nest that reduces channels and taps, padding as guards.

use crate::args::Args;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{format_strides, suggested_format};
use crate::lower::Lower;
use litz_ir::graph::{Arg, MemoryFormat, TensorType, Type};
use litz_ir::{ReduceOp, Scalar};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.conv1d.default", conv_type, conv),
    lower("aten.conv2d.default", conv_type, conv),
    lower("aten.conv3d.default", conv_type, conv),
    lower("aten.conv1d.padding", conv_type, conv),
    lower("aten.conv2d.padding", conv_type, conv),
    lower("aten.conv3d.padding", conv_type, conv),
    lower("aten.convolution.default", conv_type, conv),
    lower("aten.conv_transpose1d.default", conv_type, conv),
    lower("aten.conv_transpose2d.input", conv_type, conv),
    lower("aten.conv_transpose3d.input", conv_type, conv),
    lower("aten.im2col.default", im2col_type, im2col),
    lower("aten.col2im.default", col2im_type, col2im),
];

/// How taps meet the input. One entry for each spatial dimension.
struct Geometry {
    stride: Vec<Expr>,
    dilation: Vec<Expr>,
    /// Rows added before and after.
    padding: Vec<(Expr, Expr)>,
    groups: Expr,
    /// Rows added to the result of a transposed convolution; `None` for an ordinary one.
    transposed: Option<Vec<Expr>>,
}

fn geometry(args: &Args<'_>, kernel: &[Expr]) -> Result<Geometry, OpError> {
    let n = kernel.len();
    let dilation = args.ints_of("dilation", n)?;
    let padding = match args.get("padding") {
        Arg::Str(mode) => named_padding(args, mode, kernel, &dilation)?,
        _ => args.ints_of("padding", n)?.into_iter().map(|p| (p, p)).collect(),
    };
    let transposed = args.op().contains("conv_transpose") || args.flag("transposed")?;
    Ok(Geometry {
        stride: args.ints_of("stride", n)?,
        dilation,
        padding,
        groups: args.int("groups")?,
        transposed: if transposed { Some(args.ints_of("output_padding", n)?) } else { None },
    })
}

/// `same` pads so that the result has the input's size, the odd row at the end; `valid` does not pad.
fn named_padding(
    args: &Args<'_>,
    mode: &str,
    kernel: &[Expr],
    dilation: &[Expr],
) -> Result<Vec<(Expr, Expr)>, OpError> {
    match mode {
        "valid" => Ok(vec![(Expr::zero(), Expr::zero()); kernel.len()]),
        "same" => Ok(kernel
            .iter()
            .zip(dilation)
            .map(|(&k, &d)| {
                let total = d * (k - 1);
                (total.floordiv(2), total - total.floordiv(2))
            })
            .collect()),
        _ => Err(args.bad("padding", "same, valid or integers")),
    }
}

fn conv_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (x, w) = (args.tensor("input")?.ty, args.tensor("weight")?.ty);
    if w.rank() < 3 || !(x.rank() == w.rank() || x.rank() + 1 == w.rank()) {
        return Err(args.invalid(format!(
            "an input of {} and a weight of {} dimensions",
            x.rank(),
            w.rank()
        )));
    }
    if x.dtype != w.dtype {
        return Err(
            args.invalid(format!("expected operands of one element type, found {} and {}", x.dtype, w.dtype))
        );
    }
    let kernel = &w.sizes[2..];
    let g = geometry(args, kernel)?;
    let lead = x.rank() - kernel.len();
    let channels = x.sizes[lead - 1];
    let out_channels = match g.transposed {
        Some(_) => {
            cx.require(Rel::eq(channels, w.sizes[0]), args.op())?;
            w.sizes[1] * g.groups
        }
        None => {
            cx.require(Rel::eq(channels, w.sizes[1] * g.groups), args.op())?;
            w.sizes[0]
        }
    };
    let mut sizes = x.sizes[..lead - 1].to_vec();
    sizes.push(out_channels);
    for (d, &k) in kernel.iter().enumerate() {
        let (before, after) = g.padding[d];
        let (size, reach) = (x.sizes[lead + d], g.dilation[d] * (k - 1) + 1);
        sizes.push(cx.simplify(match &g.transposed {
            Some(extra) => (size - 1) * g.stride[d] - before - after + reach + extra[d],
            None => (size + before + after - reach).floordiv(g.stride[d]) + 1,
        }));
    }
    // Either operand in channels-last order makes the result so.
    let formats = [suggested_format(cx.facts, x), suggested_format(cx.facts, w)];
    let format =
        formats.into_iter().find(|f| *f != MemoryFormat::Contiguous).unwrap_or(MemoryFormat::Contiguous);
    let strides = format_strides(format, &sizes);
    one(TensorType { dtype: x.dtype, sizes, strides })
}

fn conv(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (x, w) = (lw.access(args.tensor("input")?)?, lw.access(args.tensor("weight")?)?);
    let bias = args.opt_tensor("bias")?.map(|t| lw.access(t)).transpose()?;
    let kernel = w.sizes[2..].to_vec();
    let g = geometry(args, &kernel)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = out.dtype.compute();
    let lead = out.rank() - kernel.len();
    let (in_group, out_group) =
        (x.sizes[lead - 1].floordiv(g.groups), out.sizes[lead - 1].floordiv(g.groups));
    lw.nest(&[], |b, _| {
        let batch = b.axes(&out.sizes[..lead - 1]);
        // Groups have an axis of their own, so that no index divides.
        let (group, channel) = (b.axis(g.groups), b.axis(out_group));
        let place = b.axes(&out.sizes[lead..]);
        let c = b.reduced_axis(in_group);
        let taps: Vec<Expr> = kernel.iter().map(|&k| b.reduced_axis(k)).collect();
        let out_channel = group * out_group + channel;
        let in_channel = group * in_group + c;
        let mut guard = Vec::new();
        let mut x_at = [&batch[..], &[in_channel]].concat();
        for (d, &tap) in taps.iter().enumerate() {
            let reach = tap * g.dilation[d];
            let before = g.padding[d].0;
            let coord = if g.transposed.is_some() {
                let steps = place[d] + before - reach;
                guard.push(Rel::eq(steps.modulo(g.stride[d]), 0));
                steps.floordiv(g.stride[d])
            } else {
                place[d] * g.stride[d] - before + reach
            };
            guard.extend([Rel::ge(coord, 0), Rel::lt(coord, x.sizes[lead + d])]);
            x_at.push(coord);
        }
        let w_at = match g.transposed {
            Some(_) => [&[in_channel, channel], &taps[..]].concat(),
            None => [&[out_channel, c], &taps[..]].concat(),
        };
        let v = b.load_if(&x, &x_at, guard, Scalar::zero(x.dtype));
        let (v, tap) = (b.cast(v, compute), b.read_as(&w, &w_at, compute));
        let term = b.mul(v, tap);
        let mut sum = b.reduce(ReduceOp::Sum, term);
        if let Some(bias) = &bias {
            let bias = b.read_as(bias, &[out_channel], compute);
            sum = b.add(sum, bias);
        }
        b.store(&out, &[&batch[..], &[out_channel], &place].concat(), sum);
        Ok(())
    })
}

// Patches of an image as columns, `[n, c*kh*kw, places]`, and back, overlapping patches added up.

/// Kernel, stride, dilation and padding of both dimensions.
struct Patches {
    kernel: Vec<Expr>,
    stride: Vec<Expr>,
    dilation: Vec<Expr>,
    padding: Vec<Expr>,
}

impl Patches {
    fn of(args: &Args<'_>) -> Result<Patches, OpError> {
        let pair = |name| args.ints_of(name, 2);
        Ok(Patches {
            kernel: pair("kernel_size")?,
            stride: pair("stride")?,
            dilation: pair("dilation")?,
            padding: pair("padding")?,
        })
    }

    /// Number of patches along dimension `d` of an image of that size.
    fn count(&self, d: usize, size: Expr) -> Expr {
        (size + self.padding[d] * 2 - self.dilation[d] * (self.kernel[d] - 1) - 1).floordiv(self.stride[d])
            + 1
    }

    /// Image coordinates of tap `k` of the patch at `place`, and what keeps them inside.
    fn coords(&self, place: &[Expr], taps: &[Expr], image: &[Expr]) -> (Vec<Expr>, Vec<Rel>) {
        let coord = |d: usize| place[d] * self.stride[d] - self.padding[d] + taps[d] * self.dilation[d];
        let coords: Vec<Expr> = (0..2).map(coord).collect();
        let guard = (0..2).flat_map(|d| [Rel::ge(coords[d], 0), Rel::lt(coords[d], image[d])]).collect();
        (coords, guard)
    }
}

fn im2col_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let [lead @ .., channels, height, width] = x.sizes.as_slice() else {
        return Err(args.invalid("expected three or four dimensions"));
    };
    let p = Patches::of(args)?;
    let places = p.count(0, *height) * p.count(1, *width);
    let sizes = [lead, &[*channels * p.kernel[0] * p.kernel[1], cx.simplify(places)]].concat();
    one(TensorType::contiguous(x.dtype, sizes))
}

fn im2col(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let p = Patches::of(args)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let lead = x.rank() - 2;
    let image = x.sizes[lead..].to_vec();
    let places: Vec<Expr> = (0..2).map(|d| p.count(d, image[d])).collect();
    let sizes = [&x.sizes[..lead], &p.kernel, &places].concat();
    lw.nest(&sizes, |b, at| {
        let (outer, inner) = at.split_at(lead);
        let (coords, guard) = p.coords(&inner[2..], &inner[..2], &image);
        let v = b.load_if(&x, &[outer, &coords].concat(), guard, Scalar::zero(x.dtype));
        let row = (outer[lead - 1] * p.kernel[0] + inner[0]) * p.kernel[1] + inner[1];
        let column = inner[2] * places[1] + inner[3];
        b.store(&out, &[&outer[..lead - 1], &[row, column]].concat(), v);
        Ok(())
    })
}

fn col2im_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let [lead @ .., rows, _] = x.sizes.as_slice() else {
        return Err(args.invalid("expected two or three dimensions"));
    };
    let p = Patches::of(args)?;
    let channels = rows.floordiv(p.kernel[0] * p.kernel[1]);
    let sizes = [lead, &[channels], &args.ints_of("output_size", 2)?].concat();
    one(TensorType::contiguous(x.dtype, sizes))
}

/// Each image element sums the taps of the patches that cover it.
fn col2im(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let p = Patches::of(args)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let lead = out.rank() - 2;
    let places: Vec<Expr> = (0..2).map(|d| p.count(d, out.sizes[lead + d])).collect();
    lw.nest(&out.sizes, |b, at| {
        let (outer, inner) = at.split_at(lead);
        let taps: Vec<Expr> = p.kernel.iter().map(|&k| b.reduced_axis(k)).collect();
        let (mut guard, mut place) = (Vec::new(), Vec::new());
        for d in 0..2 {
            let steps = inner[d] + p.padding[d] - taps[d] * p.dilation[d];
            let at = steps.floordiv(p.stride[d]);
            guard.extend([Rel::eq(steps.modulo(p.stride[d]), 0), Rel::ge(at, 0), Rel::lt(at, places[d])]);
            place.push(at);
        }
        let row = (outer[lead - 1] * p.kernel[0] + taps[0]) * p.kernel[1] + taps[1];
        let column = place[0] * places[1] + place[1];
        let v = b.load_if(&x, &[&outer[..lead - 1], &[row, column]].concat(), guard, Scalar::zero(x.dtype));
        let v = b.cast(v, x.dtype.compute());
        let sum = b.reduce(ReduceOp::Sum, v);
        b.store(&out, at, sum);
        Ok(())
    })
}
