"""Runs operators that Litz does not have by PyTorch's dispatcher."""

import functools

import torch

from . import _litz
from .types import NUMBERED_FORMATS, SCALAR_TYPES

# Operators whose results depend on the strides of their operands.
BY_LAYOUT = {"as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter", "set_", "resize_", "view", "view_as_real"}


def overload(name: str):
    """The operator that a text calls `namespace.name.overload`; none where PyTorch has none of that name.

    It is looked up anew each time, as programs may define an operator of theirs once more.
    """
    parts = name.split(".")
    if len(parts) < 3:
        return None
    namespace, packet, which = ".".join(parts[:-2]), parts[-2], parts[-1]
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), which)
    except (AttributeError, RuntimeError):
        return None


def _constraint(op, is_backward) -> str:
    tags = op.tags
    for tag, constraint in (
        ("needs_exact_strides", "exact"),
        ("needs_contiguous_strides", "contiguous"),
        ("needs_fixed_stride_order", "order"),
        ("flexible_layout", "any"),
    ):
        if getattr(torch.Tag, tag, None) in tags:
            return constraint
    if op.namespace != "aten" or op._schema.name.split("::")[1] in BY_LAYOUT:
        return "exact"
    # Kernels of derivatives may take it for granted that the gradient is contiguous, as eager mode, whose formulas see to it, always has it.
    return "contiguous" if is_backward and not op._schema.is_mutable else "any"


class Dispatcher:
    """The host of compiled graphs, which `_litz` calls for operators that Litz does not have."""

    @staticmethod
    def declaration(name: str, is_backward: bool = False):
        """Schema, layout of operands and tags of an operator, as a text of Litz says them, which for PyTorch's own are contiguous in backward graphs."""
        op = overload(name)
        if not isinstance(op, torch._ops.OpOverload):
            return None
        schema = str(op._schema)
        text = f"{name}{schema[schema.index('('):]} {_constraint(op, is_backward)}"
        if torch.Tag.nondeterministic_seeded in op.tags:
            text += " tag nondeterministic_seeded"
        return text

    def call(self, name: str, args: list, results: list) -> None:
        """Runs an operator on `args`, one for each of its schema's, and copies what it gives into those of `results` that are wanted."""
        op = overload(name)
        keywords = _keywords(op)
        args = [_object(arg) for arg in args]
        if name == "aten.view.dtype" and args[0].shape[-1:] == (1,):
            # PyTorch wants the last stride to be 1 even where the dimension has one element, and Litz gives such a stride any value.
            args[0] = args[0].as_strided(args[0].shape, (*args[0].stride()[:-1], 1))
        positional = len(args) - len(keywords)
        try:
            outcome = op(*args[:positional], **dict(zip(keywords, args[positional:])))
        except _litz.CheckError as error:
            # Of a model that the operator has called, and not of the graph that calls the operator.
            error.is_of_operator = True
            raise
        if not results:
            # It has written to its arguments.
            return
        flat = []
        _flatten(outcome, flat)
        for result, value in zip(results, flat, strict=True):
            if result is not None:
                if isinstance(value, torch.Tensor):
                    if value.shape != result.shape:
                        raise RuntimeError(f"{name} gave {tuple(value.shape)}, expected {tuple(result.shape)}")
                    result.copy_(value)
                else:
                    result.fill_(value)


@functools.cache
def _keywords(op):
    """Which of an operator's arguments go by name."""
    return [argument.name for argument in op._schema.arguments if argument.kwarg_only]


def _object(arg):
    """An argument as the dispatcher takes it."""
    if isinstance(arg, list):
        return [_object(item) for item in arg]
    if isinstance(arg, tuple):
        kind, number = arg
        if kind == "dtype":
            return SCALAR_TYPES[number]
        if kind == "device":
            return torch.device("cpu")
        if kind == "layout":
            return torch.strided
        return NUMBERED_FORMATS[number]
    return arg


def _flatten(outcome, flat):
    if isinstance(outcome, (list, tuple)):
        for item in outcome:
            _flatten(item, flat)
    else:
        flat.append(outcome)
