"""Writes operators that take graphs, and those that wrap others."""

import torch

from . import writes
from .errors import NotConverted
from .types import operator_name

# Operators that call graphs: which of their arguments are graphs, and how many arguments there are.
_CONTROL = {
    "cond": (range(1, 3), 4),
    "while_loop": (range(2), 4),
    "scan": (range(1), 4),
    "map_impl": (range(1), 3),
    "associative_scan": (range(1), 3),
}


def write(writer, node) -> None:
    """Appends the lines of a node whose target is a higher-order operator. Raises `NotConverted` for those that Litz does not know."""
    name = node.target.name() if callable(getattr(node.target, "name", None)) else str(node.target)
    if name in _CONTROL:
        _control(writer, node, name)
    elif name == "invoke_subgraph":
        _inline(writer, node)
    elif name in ("auto_functionalized", "auto_functionalized_v2"):
        writes.write(writer, node, name)
    elif name == "with_effects":
        _ordered(writer, node)
    else:
        raise NotConverted(f"the operator {name}")


def is_ordered(node) -> bool:
    """Whether a node calls an operator that keeps its order by tokens."""
    return isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() == "with_effects"


def takes_token(node, value) -> bool:
    """Whether a value is the token of a node."""
    return is_ordered(node) and node.args[0] is value


def _control(writer, node, name):
    """Writes a branch or a loop, with its graphs as graphs inside of this one."""
    graphs, expected = _CONTROL[name]
    if len(node.args) != expected:
        raise NotConverted(f"{name} with {len(node.args)} arguments")
    args = [f"@{writer.subgraph(arg)}" if at in graphs else writer.argument(arg) for at, arg in enumerate(node.args)]
    results = writer.results(node)
    writer.line(f"{results}higher_order.{name}.default({', '.join(args)})", node)


def _inline(writer, node):
    """Writes the nodes of the graph that is called in the place of the call."""
    callee, _, *operands = node.args
    module = writer.attribute(callee)
    inputs = module.graph.find_nodes(op="placeholder")
    writer.parts[node] = writer.inline(module, dict(zip(inputs, operands, strict=True)), node)


def _ordered(writer, node):
    """An operator whose calls keep their order. PyTorch orders them by tokens, which are None when a graph runs, Litz by an effect of the operator."""
    _, op, *args = node.args
    if not isinstance(op, torch._ops.OpOverload):
        raise NotConverted(f"the effects of {op}")
    name, (_, *values) = operator_name(op), node.meta["val"]
    writer.declare(name, "ordered")
    returned = [value for value in values if value is not None]
    names = [f"{writer.name(node)}.{at}" for at in range(len(returned))]
    results = ", ".join(f"%{result}: {writer.type(value)}" for result, value in zip(names, returned))
    call = f"{name}({', '.join(writer.arguments(op._schema, args, node.kwargs))})"
    writer.line(f"{results} = {call}" if results else call, node)
    writer.parts[node] = dict(enumerate(names, 1))
