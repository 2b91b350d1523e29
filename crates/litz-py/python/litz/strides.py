"""Gives results of some operators the strides of eager mode, where PyTorch's tracing says others.

Each such operator is decomposed into itself on operands whose memory format is changed, so that tracing and eager mode agree. Where the
operands have that format already it stays as it is. `tests/test_strides.py` compares them with eager mode.
"""

import torch
from torch._prims_common import compute_elementwise_output_strides, is_contiguous_for_memory_format, suggest_memory_format
from torch.fx.experimental.symbolic_shapes import guard_or_false

from .sizes import is_dense, is_known

aten = torch.ops.aten


def laid_out(table: dict) -> dict:
    """A table of decompositions, to which those of such operators are added."""
    return table | {op: _decomposed(op, rule, table.get(op)) for op, rule in RULES.items()}


def _decomposed(op, rule, made_of):
    def decomposition(*args, **kwargs):
        result = rule(op, args, kwargs)
        if result is NotImplemented and made_of is not None:
            return made_of(*args, **kwargs)
        return result

    return decomposition


def _form(x):
    """The memory format of a tensor as normalisations see it, which overlook dimensions of one element."""
    forms = (torch.contiguous_format, *{4: (torch.channels_last,), 5: (torch.channels_last_3d,)}.get(x.dim(), ()))
    held = (form for form in forms if is_contiguous_for_memory_format(x, memory_format=form))
    return next(held, None) or suggest_memory_format(x)


def _in_form(*positions, form=None):
    """On the host results have the memory format of the last one of the operands at these positions, or `form`. Tracing gives them all of its strides,
    as kernels of GPUs do.
    """

    def rule(op, args, kwargs):
        if args[0].device.type != "cpu":
            return NotImplemented
        wanted = form or _form(args[positions[-1]])
        has_format = lambda operand: is_contiguous_for_memory_format(operand, memory_format=wanted)
        if all(has_format(args[at]) for at in positions):
            return NotImplemented
        moved = lambda at, arg: arg.contiguous(memory_format=wanted) if at in positions else arg
        return op(*(moved(at, arg) for at, arg in enumerate(args)), **kwargs)

    return rule


def _dense(op, args, kwargs):
    """The result has the strides of a clone of the operand. Tracing says row-major where the operand has gaps."""
    if args[0].layout != torch.strided or is_dense(args[0]):
        return NotImplemented
    return op(args[0].clone(), *args[1:], **kwargs)


def _zeros(op, args, kwargs):
    """The result has the strides of a clone of the operand. PyTorch 2.11 traces row-major ones."""
    if args[0].layout != torch.strided or is_contiguous_for_memory_format(args[0], memory_format=torch.contiguous_format):
        return NotImplemented
    return aten.zeros_like.default(args[0])


def _elementwise(op, args, kwargs):
    """The result has the strides of other operators of two tensors: an operand without dimensions has no say in them, and of two orders it is the
    first one's. Tracing says row-major, or the other one's.
    """
    one, other = args
    if one.dim() == 0 or other.dim() == 0:
        # With another type it would have a say in the result's type.
        if one.dtype != other.dtype or one.dim() == other.dim():
            return NotImplemented
        spread = lambda number, like: aten.copy.default(torch.empty_like(like), number)
        return op(one, spread(other, one), **kwargs) if one.dim() else op(spread(one, other), other, **kwargs)
    one, other = torch.broadcast_tensors(one, other)
    if all(map(is_known, one.stride(), other.stride())):
        return NotImplemented
    strides = compute_elementwise_output_strides(one, other)
    return op(_laid(one, strides), _laid(other, strides), **kwargs)


def _indexed(op, args, kwargs):
    """Dimensions of one element lie where the strides of the operand and of the indices have them. Tracing asks the operand's alone."""
    x, indices = args[0], list(args[1])
    is_plain = any(is_known(size, 1) for size in x.shape) and all(index is None or index.dtype in (torch.int32, torch.int64) for index in indices)
    if not is_plain or is_contiguous_for_memory_format(x, memory_format=torch.contiguous_format):
        return NotImplemented
    indices += [None] * (x.dim() - len(indices))
    named = [dim for dim, index in enumerate(indices) if index is not None]
    if named != [*range(named[0], named[-1] + 1)]:
        order = [*named, *(dim for dim, index in enumerate(indices) if index is None)]
        x, named = x.permute(order), [*range(len(named))]
    given = torch.broadcast_tensors(*(index for index in indices if index is not None))
    before, after = named[0], x.dim() - 1 - named[-1]
    shape = (*x.shape[:before], *given[0].shape, *x.shape[x.dim() - after :])
    strides = (*x.stride()[:before], *(0 for _ in given[0].shape), *x.stride()[x.dim() - after :])
    around = lambda index: index.reshape((1,) * before + tuple(index.shape) + (1,) * after).expand(shape)
    laid = compute_elementwise_output_strides(x.as_strided(shape, strides), *map(around, given))
    return _laid(aten.index.Tensor(args[0].contiguous(), args[1]), laid)


def _laid(x, strides):
    """A copy of a tensor with these strides."""
    return aten.copy.default(torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device), x)


def _padded(op, args, kwargs):
    """Where nothing is added the result has the strides of a clone of what is left. Tracing says so of numbers alone, so that symbols need a
    guard, but where the memory format says as much. PyTorch 2.9 takes `-size % 4 <= 0` for true, and `-size % 4 == 0` for what it is.
    """
    x, pad = args[:2]
    is_same = is_contiguous_for_memory_format(x, memory_format=suggest_memory_format(x))
    adds_nothing = lambda p: p <= 0 if isinstance(p, int) else guard_or_false(p == 0) or guard_or_false(p < 0)
    if is_same or all(isinstance(p, int) for p in pad) or not all(map(adds_nothing, pad)):
        return NotImplemented
    for at, (before, after) in enumerate(zip(pad[::2], pad[1::2])):
        dim = x.dim() - 1 - at
        x = x.narrow(dim, -before, x.shape[dim] + before + after)
    return x.clone()


def _roll(op, args, kwargs):
    """The result keeps the memory format. Tracing says row-major."""
    x, shifts, *dims = args
    if not (dims and dims[0]) or suggest_memory_format(x) is torch.contiguous_format:
        return NotImplemented
    order = [0, *range(2, x.dim()), 1]
    rows = x.permute(order)
    result = op(rows.contiguous(), shifts, [order.index(dim % x.dim()) for dim in dims[0]])
    return result.permute([order.index(dim) for dim in range(x.dim())])


RULES = {
    aten._native_batch_norm_legit.default: _in_form(0),
    aten._native_batch_norm_legit.no_stats: _in_form(0),
    aten._native_batch_norm_legit_functional.default: _in_form(0),
    aten._native_batch_norm_legit_no_training.default: _in_form(0),
    aten.native_batch_norm.default: _in_form(0),
    aten.native_batch_norm_backward.default: _in_form(0, 1),
    aten.log_sigmoid_forward.default: _in_form(0, form=torch.contiguous_format),
    aten.index.Tensor: _indexed,
    aten.index_fill.int_Scalar: _dense,
    aten.index_fill.int_Tensor: _dense,
    aten.constant_pad_nd.default: _padded,
    aten.roll.default: _roll,
    aten.zero.default: _zeros,
    aten.copysign.Tensor: _elementwise,
    aten.heaviside.default: _elementwise,
    aten.logaddexp.default: _elementwise,
    aten.logaddexp2.default: _elementwise,
}
