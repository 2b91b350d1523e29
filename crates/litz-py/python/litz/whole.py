"""Keeps operators whole that PyTorch's tracing takes apart by itself, before a table of decompositions is asked."""

import contextlib
import functools

import torch
from torch._C import DispatchKey

from . import _litz
from .types import operator_name


@contextlib.contextmanager
def kept():
    """Lets tracing meet PyTorch's operators of resizing, and not what they are made of, which has other positions than they have: it goes by a scale
    where sizes stay, and they copy. Litz has kernels for them, and PyTorch runs what these do not take, such as 8-bit images. The same goes for
    activations that eager mode refuses for integers, which what they are made of takes, and for attention with a mask on a GPU, of which tracing
    makes products of f32 (`_attention`).
    """
    taken, given = [], []
    try:
        for op in (*_resizing(), *_SHRINKING):
            for key in _KEYS & op.py_kernels.keys():
                taken.append((op, key, op.py_kernels.pop(key)))
                if op._overloadname == "vec":
                    op.py_kernels[key] = _of_sizes(op)
            op._dispatch_cache.clear()
        for op in _derivatives():
            if DispatchKey.Meta not in op.py_kernels:
                given.append(op)
                op.py_kernels[DispatchKey.Meta] = _of_image
                op._dispatch_cache.clear()
        taken.append((_ATTENTION, DispatchKey.CompositeImplicitAutograd, _ATTENTION.py_kernels.get(DispatchKey.CompositeImplicitAutograd)))
        _ATTENTION.py_kernels[DispatchKey.CompositeImplicitAutograd] = _attention
        _ATTENTION._dispatch_cache.clear()
        yield
    finally:
        for op in given:
            del op.py_kernels[DispatchKey.Meta]
            op._dispatch_cache.clear()
        for op, key, kernel in taken:
            if kernel is None:
                del op.py_kernels[key]
            else:
                op.py_kernels[key] = kernel
            op._dispatch_cache.clear()


_SHRINKING = (torch.ops.aten.hardshrink.default, torch.ops.aten.softshrink.default)
_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
_KEYS = {DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd}


@functools.cache
def _resizing():
    """Overloads of operators of resizing that Litz has."""
    from torch._decomp import decomposition_table

    names = {op.overloadpacket for op in decomposition_table if isinstance(op, torch._ops.OpOverload) and "upsample_" in op.name()}
    overloads = [getattr(name, overload) for name in names for overload in name.overloads()]
    return [op for op in overloads if _litz.has_operator(operator_name(op))]


@functools.cache
def _derivatives():
    """Derivatives of operators of resizing."""
    packets = {getattr(torch.ops.aten, f"{op._schema.name.split('::')[1]}_backward", None) for op in _resizing()}
    return [packet.default for packet in packets if packet is not None]


def _of_image(gradient, output_size, input_size, *rest, **keywords):
    """What a derivative gives, for tracing: PyTorch's own, of some operators, takes no sizes that are symbols."""
    return gradient.new_empty(input_size)


def _of_sizes(op):
    """An operator that is given sizes or scales of the result, by the one that is given both, as PyTorch's own kernel of it does, which takes no
    sizes that are symbols.
    """
    from torch._decomp.decompositions import get_scale_value, upsample_compute_output_size

    names, resize = [argument.name for argument in op._schema.arguments], op.overloadpacket.default

    def kernel(*args, **kwargs):
        given = dict(zip(names, args)) | kwargs
        image, size, scales = given.pop("input"), given.pop("output_size"), given.pop("scale_factors")
        size = upsample_compute_output_size(image.size(), size, scales)
        return resize(image, size, *given.values(), *(get_scale_value(scales, at) for at in range(len(size))))

    return kernel


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    """Attention. With a mask, on a GPU, where nobody wants gradients, it is one operator (`attention.FUSED`), also where PyTorch's choice of kernels
    would take it apart.
    """
    given = [tensor for tensor in (query, key, value, attn_mask) if tensor is not None]
    is_whole = (
        attn_mask is not None
        and query.is_cuda
        and query.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and all(tensor.dim() == 4 for tensor in (query, key, value))
        and dropout_p == 0
        and not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given))
    )
    if not is_whole:
        rest = {"scale": scale, "enable_gqa": enable_gqa}
        return _ATTENTION._op_dk(DispatchKey.CompositeImplicitAutograd, query, key, value, attn_mask, dropout_p, is_causal, **rest)
    if attn_mask.dtype == torch.bool:
        nothing = torch.zeros((), dtype=query.dtype, device=query.device)
        attn_mask = torch.where(attn_mask, nothing, float("-inf"))
    mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    return torch.ops.aten._scaled_dot_product_efficient_attention(query, key, value, mask, False, 0.0, is_causal, scale=scale)[0]
