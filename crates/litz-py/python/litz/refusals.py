"""Says which calls eager mode refuses for the types or the numbers that they have, so that PyTorch runs them and says no.

PyTorch's kernels check this when they run. Tracing runs none of them, and Litz has kernels for more types than they do.
"""

import functools
import pathlib

import torch

from .types import DTYPES, operator_name

aten = torch.ops.aten


def is_refused(op, args, kwargs) -> bool:
    """Whether eager mode refuses a call of an operator. Arguments that are nodes of a graph stand for their values."""
    if any(result.alias_info is not None for result in op._schema.returns):
        return False
    names = (argument.name for argument in op._schema.arguments)
    given = {name: _value(value) for name, value in (*zip(names, args), *kwargs.items())}
    return _has_refused_type(op, given) or op in _CHECKS and _CHECKS[op](given)


def refusing(op, decomposition):
    """A decomposition that leaves calls whole which eager mode refuses."""

    @functools.wraps(decomposition)
    def checked(*args, **kwargs):
        return NotImplemented if is_refused(op, args, kwargs) else decomposition(*args, **kwargs)

    return checked


def _value(argument):
    if isinstance(argument, (list, tuple)):
        return [_value(one) for one in argument]
    return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument


@functools.cache
def _refused_types() -> dict:
    """For operators by name which arguments have their type, the types that eager mode refuses, and those that it refuses where no number gives
    the call another type. `benches/eager_types.py` writes the file.
    """
    dtypes = {name: dtype for dtype, name in DTYPES.items()}
    table = {}
    for line in (pathlib.Path(__file__).parent / "eager_types.txt").read_text().splitlines():
        call, types = line.split(":")
        name, arguments = call[:-1].split("(")
        always, _, plainly = types.partition(";")
        table[name] = (arguments.split(", "), *(frozenset(dtypes[one] for one in some.split()) for some in (always, plainly)))
    return table


def _has_refused_type(op, given) -> bool:
    found = _refused_types().get(operator_name(op))
    if found is None or given.get("dtype") is not None:
        return False
    names, always, plainly = found
    tensors = [leaf for name in names for leaf in _leaves(given.get(name)) if isinstance(leaf, torch.Tensor)]
    # Another operand may give the call a type that is not refused.
    if not tensors or tensors[0].device.type != "cpu" or any(tensor.dtype != tensors[0].dtype for tensor in tensors):
        return False
    dtype = tensors[0].dtype
    return dtype in always or dtype in plainly and not is_raised(op, given, dtype)


@functools.cache
def numbers(op) -> list[str]:
    """The arguments of an operator that are numbers of any kind."""
    return [argument.name for argument in op._schema.arguments if argument.type.kind() == "NumberType"]


def is_raised(op, given, dtype) -> bool:
    """Whether a number is of a higher kind than a type, so that a call may have another type."""
    return any(_kind_of_number(given[name]) > _kind(dtype) for name in numbers(op) if name in given)


def _leaves(value):
    return value if isinstance(value, list) else [value]


def _kind(dtype) -> int:
    """Where a type stands in promotion: truth values, integers, floating-point and complex numbers."""
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype == torch.bool else 1


def _kind_of_number(number) -> int:
    if isinstance(number, (bool, torch.SymBool)):
        return 0
    return 3 if isinstance(number, complex) else 2 if isinstance(number, (float, torch.SymFloat)) else 1


def _overflows(value, dtype) -> bool:
    """Whether eager mode does not convert a number to a type, for its size. It lets negative integers become unsigned."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or dtype is None or dtype == torch.bool or dtype.is_complex:
        return False
    if dtype.is_floating_point:
        return abs(value) != float("inf") and value == value and abs(value) > torch.finfo(dtype).max
    limits = torch.iinfo(dtype)
    least = -limits.max if limits.min == 0 and isinstance(value, int) else limits.min
    return value != value or not least <= value <= limits.max


def _fills(value="value", like="self"):
    """A tensor that is filled with a number, of the type that the call names or of an operand's."""

    def check(given):
        dtype = given.get("dtype") or (given[like].dtype if isinstance(given.get(like), torch.Tensor) else None)
        return _overflows(given.get(value), dtype)

    return check


def _outside(name, default, least=0.0, most=1.0):
    return lambda given: not least <= given.get(name, default) <= most


def _has_bool(given) -> bool:
    """Whether an operand is a tensor of truth values, which are not subtracted."""
    return any(isinstance(value, torch.Tensor) and value.dtype == torch.bool for value in (given["self"], given["other"]))


# What kernels check of numbers, and of types together.
_CHECKS = {
    aten.bernoulli.p: _outside("p", 0.5),
    aten.native_dropout.default: _outside("p", 0.5),
    aten.smooth_l1_loss.default: lambda given: given.get("beta", 1.0) < 0,
    aten.smooth_l1_loss_backward.default: lambda given: given["beta"] < 0,
    aten.huber_loss.default: lambda given: given.get("delta", 1.0) <= 0,
    aten.heaviside.default: lambda given: given["self"].dtype != given["values"].dtype,
    aten.fill.Scalar: _fills(),
    aten.full.default: _fills("fill_value"),
    aten.full_like.default: _fills("fill_value"),
    aten.index_fill.int_Scalar: _fills(),
    aten.masked_fill.Scalar: _fills(),
    aten.new_full.default: _fills("fill_value"),
    aten.rsub.Scalar: _has_bool,
    aten.rsub.Tensor: _has_bool,
    aten.scatter.value: _fills(),
    aten.sub.Tensor: _has_bool,
    aten.constant_pad_nd.default: _fills(),
}
