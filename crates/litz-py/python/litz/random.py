"""Writes random operators as Litz's own, which make numbers of a seed."""

import torch

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
    if target is aten.bernoulli.p:
        chance = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
        return _chances(writer, node, value, f"aten.lt.Scalar(%{{}}, {float(chance)!r})")
    if target is aten.bernoulli.default and _dtype(args[0]) is torch.float32:
        return _chances(writer, node, value, f"aten.lt.Tensor(%{{}}, {writer.argument(args[0])})")
    return False


_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _dtype(node):
    return node.meta["val"].dtype


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
