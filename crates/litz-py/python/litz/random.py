"""Writes random operators as Litz's own, which make numbers of a seed."""

import torch

from .types import DTYPES

aten = torch.ops.aten


def write(writer, node, target, value) -> bool:
    """Appends the lines of a random operator; false where it is none that Litz has.

    Each has a stream of its own, and all have one seed, which a call draws from PyTorch's generator.
    """
    args, kwargs = node.args, node.kwargs
    if kwargs.get("generator") is not None or not isinstance(value, torch.Tensor):
        return False
    if target in (aten.rand.default, aten.rand_like.default, aten.randn.default, aten.randn_like.default):
        if value.dtype not in _FLOATS:
            return False
        kind = "normal" if "randn" in target.name() else "uniform"
        writer.line(f"%{writer.name(node)}: {writer.type(value)} = {_numbers(writer, kind, value, value.dtype)}", node)
        return True
    if target in _INTEGERS:
        return _integers(writer, node, *_INTEGERS[target](*args))
    if target is aten.bernoulli.p:
        chance = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
        return _chances(writer, node, value, f"aten.lt.Scalar(%{{}}, {float(chance)!r})")
    if target is aten.bernoulli.default and value.dtype in _FLOATS:
        chances = f"{writer.name(node)}.chances"
        writer.line(f"%{chances}: {writer.type(args[0].meta['val'])} = litz.within.default({writer.argument(args[0])}, 0.0, 1.0)", node)
        return _chances(writer, node, value, f"aten.lt.Tensor(%{{}}, %{chances})")
    return False


_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


# What random integers are from, and below.
_INTEGERS = {
    aten.randint.default: lambda high, size: (0, high),
    aten.randint.low: lambda low, high, size: (low, high),
    aten.randint_like.default: lambda like, high: (0, high),
    aten.randint_like.low_dtype: lambda like, low, high: (low, high),
}


def _integers(writer, node, low, high) -> bool:
    """Writes a tensor of random integers."""
    value = node.meta["val"]
    if value.dtype not in DTYPES or value.dtype.is_complex or not _has(value.dtype, low, high):
        return False
    given = [f"%{writer.seed()}", *map(writer.argument, (writer.stream(), low, high, list(value.shape), value.dtype))]
    writer.line(f"%{writer.name(node)}: {writer.type(value)} = litz.integers.default({', '.join(given)})", node)
    return True


def _has(dtype, low, high) -> bool:
    """Whether a type has integers from one number to below another. Eager mode refuses others, and does so as it runs the call."""
    if dtype.is_floating_point or not all(isinstance(number, int) for number in (low, high)):
        return True
    least, most = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return least <= low < high <= most + 1


def _numbers(writer, kind, value, dtype) -> str:
    """A call that gives numbers of the sizes of a tensor."""
    sizes = writer.argument(list(value.shape))
    return f"litz.{kind}.default(%{writer.seed()}, {writer.stream()}, {sizes}, {writer.argument(dtype)})"


def _chances(writer, node, value, holds) -> bool:
    """Writes a tensor of ones, where a number in [0, 1) is below a chance, and zeros."""
    name, ty = writer.name(node), writer.type(value)
    sizes = ty[ty.index("[") :].split("{")[0]
    writer.line(f"%{name}.number: f32{sizes} = {_numbers(writer, 'uniform', value, torch.float32)}", node)
    writer.line(f"%{name}.holds: bool{sizes} = {holds.format(f'{name}.number')}", node)
    dtype = writer.argument(value.dtype)
    writer.line(f"%{name}: {ty} = aten._to_copy.default(%{name}.holds, {dtype}, none, none, none, false, none)", node)
    return True
