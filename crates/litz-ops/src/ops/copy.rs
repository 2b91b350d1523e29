//! Lowers copies: conversions of element type and layout, and assertions about them.

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, decompose, inplace, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{broadcasts_to, copy_strides, is_channels_last};
use crate::lower::Lower;
use crate::traits::Complex::{Copied, Rewritten};
use crate::traits::Devices::Of;
use crate::traits::Holds::{Always, When};
use crate::view::ValueAccess;
use litz_ir::graph::{Arg, MemoryFormat, Node, TensorType, Type};
use litz_ir::loops::Val;
use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.clone.default", copy_type, copy).identity(Always).complex(Copied),
    lower("aten.contiguous.default", moved_type, copy)
        .identity(Always)
        .alias(When(is_operand))
        .complex(Copied),
    lower("aten._to_copy.default", copy_type, copy).identity(Always).complex(Copied),
    lower("aten.to.dtype", moved_type, copy).identity(Always).alias(When(is_operand)).complex(Copied),
    lower("aten.to.device", moved_type, copy).identity(Always).alias(When(is_operand)).complex(Copied),
    lower("aten.to.dtype_layout", moved_type, copy).identity(Always).alias(When(is_operand)).complex(Copied),
    lower("aten.to.other", moved_type, copy)
        .identity(Always)
        .alias(When(is_operand))
        .complex(Copied)
        .devices(Of("other")),
    lower("aten.type_as.default", moved_type, copy)
        .identity(Always)
        .alias(When(is_operand))
        .complex(Copied)
        .devices(Of("other")),
    lower("prims.convert_element_type.default", copy_type, copy).identity(Always).complex(Copied),
    lower("aten.view.dtype", reread_type, reread).alias(When(|_, _| Ok(true))),
    lower("aten.copy.default", copy_from_type, copy_from).devices(Of("self")),
    inplace("aten.copy_.default", "aten.copy.default"),
    copied("aten.alias_copy.default"),
    copied("aten.as_strided_copy.default"),
    copied("aten.detach_copy.default"),
    copied("aten.diagonal_copy.default"),
    copied("aten.expand_copy.default"),
    copied("aten.lift_fresh_copy.default"),
    copied("aten.narrow_copy.default"),
    copied("aten.permute_copy.default"),
    copied("aten.select_copy.int"),
    copied("aten.slice_copy.Tensor"),
    copied("aten.split_copy.Tensor"),
    copied("aten.split_with_sizes_copy.default"),
    copied("aten.squeeze_copy.default"),
    copied("aten.squeeze_copy.dim"),
    copied("aten.squeeze_copy.dims"),
    copied("aten.t_copy.default"),
    copied("aten.transpose_copy.int"),
    copied("aten.unbind_copy.int"),
    copied("aten.unfold_copy.default"),
    copied("aten.unsqueeze_copy.default"),
    copied("aten.view_copy.default"),
];

/// `aten.select_copy.int`: what `aten.select.int` gives, each result in memory of its own, in row-major order.
const fn copied(name: &'static str) -> OpDef {
    decompose(name, |r| {
        let Node { op, args, .. } = r.args().node;
        let (view, args) = (op.as_str().replacen("_copy.", ".", 1), args.clone());
        let views = r.call_all(&view, args)?;
        let format = Arg::MemoryFormat(MemoryFormat::Contiguous);
        let copy = |view| r.call("aten.clone.default", [Arg::Value(view), format.clone()]);
        views.into_iter().flatten().map(copy).collect()
    })
    .complex(Rewritten)
}

/// The operand's type with the element type and layout that the arguments ask for.
fn copy_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (x, dtype, format) = asked_for(args)?;
    let strides = copy_strides(cx.facts, x, format);
    one(TensorType { dtype, strides, ..x.clone() })
}

/// As [`copy_type`], of operators that return the operand itself when they have nothing to do.
fn moved_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    if is_operand(cx, args)? { one(asked_for(args)?.0.clone()) } else { copy_type(cx, args) }
}

/// Whether the operand has the element type, layout and place asked for, and need not be copied.
fn is_operand(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<bool, OpError> {
    let (x, dtype, format) = asked_for(args)?;
    let is_there = cx.device == x.device;
    Ok(!args.flag("copy")? && is_there && dtype == x.dtype && format.is_none_or(|f| is_in_format(x, f)))
}

/// The operand's type, and the element type and layout of its copy.
fn asked_for<'a>(args: &Args<'a>) -> Result<(&'a TensorType, Dtype, Option<MemoryFormat>), OpError> {
    let x = args.tensor("self").or_else(|_| args.tensor("a"))?.ty;
    let other = if args.has("other") { Some(args.tensor("other")?.ty.dtype) } else { None };
    let dtype = args.dtype("dtype")?.or(other).unwrap_or(x.dtype);
    Ok((x, dtype, args.memory_format("memory_format")?))
}

fn is_in_format(ty: &TensorType, format: MemoryFormat) -> bool {
    match format {
        MemoryFormat::Preserve => true,
        MemoryFormat::Contiguous => ty.is_contiguous(),
        MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d => is_channels_last(ty),
    }
}

/// A copy where the result differs in element type, layout or place; a value is never written, so an equal copy is itself.
fn copy(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let operand = args.tensor("self").or_else(|_| args.tensor("a"))?;
    let x = lw.access(operand)?;
    let Some(ty) = args.result(0) else { return Ok(()) };
    let same_layout = lw.strides(&x).is_some_and(|(strides, _)| {
        (0..x.rank()).all(|d| strides[d] == ty.strides[d] || ty.sizes[d].is_one())
    });
    if x.dtype == ty.dtype && lw.is_there(&x) && same_layout {
        lw.set_result(args, 0, x);
        return Ok(());
    }
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&ty.sizes, |b, at| {
        let v = b.load(&x, at);
        b.store(&out, at, v);
        Ok(())
    })
}

/// `copy(self, src)`: the contents of `src`, broadcast, in the type of `self`.
fn copy_from_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    broadcasts_to(cx, args, "src", &x.sizes)?;
    one(x.clone())
}

fn copy_from(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let source = lw.access(args.tensor("src")?)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let sizes = out.sizes.clone();
    lw.nest(&sizes, |b, at| {
        let v = b.load(&source.broadcast(&sizes), at);
        b.store(&out, at, v);
        Ok(())
    })
}

/// The operand's memory as elements of another type: several for each, or one of several, along the last dimension.
fn reread_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let dtype = args.dtype("dtype")?.ok_or_else(|| args.bad("dtype", "an element type"))?;
    let (from, to) = (x.dtype.size() as i64, dtype.size() as i64);
    let (mut sizes, mut strides) = (x.sizes.clone(), x.strides.clone());
    if from != to {
        let (Some(last), Some(stride)) = (sizes.last_mut(), strides.last()) else {
            return Err(args.invalid("elements of another size need a dimension"));
        };
        let apart = |_| args.invalid(format!("neighbours of {x} do not lie side by side"));
        cx.require(Rel::eq(*stride, 1), args.op()).map_err(apart)?;
        if from > to {
            *last = *last * (from / to);
        } else {
            let parts = to / from;
            let uneven = |_| args.invalid(format!("{parts} elements of {x} each do not come out even"));
            for &whole in [*last].iter().chain(&strides[..strides.len() - 1]) {
                cx.require(Rel::eq(whole.modulo(parts), 0), args.op()).map_err(uneven)?;
            }
            *last = last.floordiv(parts);
        }
        let outer = strides.len() - 1;
        for stride in &mut strides[..outer] {
            *stride = if from > to { *stride * (from / to) } else { stride.floordiv(to / from) };
        }
    }
    one(TensorType { dtype, sizes, strides, ..x.clone() })
}

/// Reads the bits of elements as those of others, the lowest first.
fn reread(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let Some(ty) = args.result(0) else { return Ok(()) };
    let (dtype, sizes) = (ty.dtype, ty.sizes.clone());
    if x.dtype == dtype {
        lw.set_result(args, 0, x);
        return Ok(());
    }
    if let Some(half) = [x.dtype, dtype].into_iter().find(|dtype| dtype.compute() != *dtype) {
        return Err(args.unsupported(&format!("the bits of {half}, which registers do not have")));
    }
    let out = lw.temp("bits", dtype, &sizes);
    let (from, to) = (x.dtype.size() as i64, dtype.size() as i64);
    lw.nest(&sizes, |b, at| {
        let (outer, last) = at.split_at(at.len() - usize::from(from != to));
        let place = |part: Expr| [outer, &[part]].concat();
        let bits = match last {
            [] => bits_at(b, &x, at),
            &[last] if from > to => {
                let parts = from / to;
                let whole = bits_at(b, &x, &place(last.floordiv(parts)));
                let by = b.index(last.modulo(parts) * (8 * to), word(from));
                let part = b.op(ScalarOp::Shr, &[whole, by]);
                b.cast(part, word(to))
            }
            _ => {
                let mut whole = b.literal(Scalar::Int(0), word(to));
                for part in 0..to / from {
                    let bits = bits_at(b, &x, &place(last[0] * (to / from) + part));
                    let bits = b.cast(bits, word(to));
                    let by = b.literal(Scalar::Int(8 * from * part), word(to));
                    let bits = b.op(ScalarOp::Shl, &[bits, by]);
                    whole = b.op(ScalarOp::Or, &[whole, bits]);
                }
                whole
            }
        };
        let v = of_bits(b, bits, dtype);
        b.store(&out, at, v);
        Ok(())
    })?;
    lw.set_result(args, 0, out);
    Ok(())
}

/// The unsigned integer of as many bytes.
fn word(size: i64) -> Dtype {
    match size {
        1 => Dtype::U8,
        2 => Dtype::U16,
        4 => Dtype::U32,
        _ => Dtype::U64,
    }
}

/// The bits of an element.
fn bits_at(b: &mut Body<'_>, x: &ValueAccess, at: &[Expr]) -> Val {
    let v = b.load(x, at);
    match x.dtype {
        Dtype::Bool => b.cast(v, Dtype::U8),
        _ => b.bitcast(v, word(x.dtype.size() as i64)),
    }
}

/// Bits as a value of a type. Any bit makes a truth value, of which there are two.
fn of_bits(b: &mut Body<'_>, bits: Val, dtype: Dtype) -> Val {
    if dtype == Dtype::Bool {
        let zero = b.literal(Scalar::Int(0), Dtype::U8);
        return b.ne(bits, zero);
    }
    b.bitcast(bits, dtype)
}
