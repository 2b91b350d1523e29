"""Writes operators that take graphs, and those that wrap others."""

import torch

from . import writes
from .errors import NotConverted
from .types import operator_name

# Operators that call graphs: which of their arguments are graphs, and how many arguments there are.
CONTROL = {
    "cond": (range(1, 3), 4),
    "while_loop": (range(2), 4),
    "scan": (range(1), 4),
    "map_impl": (range(1), 3),
    "associative_scan": (range(1), 3),
}

CONTROL_OPERATORS = [getattr(torch.ops.higher_order, name) for name in CONTROL if hasattr(torch.ops.higher_order, name)]


def without_hints(module: torch.fx.GraphModule) -> None:
    """Has Dynamo's graph, and those inside of it, call what they wrap in hints for other compilers. PyTorch's tracing of `hints_wrapper` takes no
    sizes that are symbols, and gives no gradients.
    """
    for one in module.modules():
        for node in [*one.graph.nodes] if isinstance(one, torch.fx.GraphModule) else ():
            if isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() == "hints_wrapper":
                body, operands, *_ = node.args
                with one.graph.inserting_before(node):
                    call = one.graph.call_module(body.target, tuple(operands))
                call.meta = node.meta
                node.replace_all_uses_with(call)
                one.graph.erase_node(node)
                one.recompile()


def write(writer, node) -> None:
    """Appends the lines of a node whose target is a higher-order operator. Raises `NotConverted` for those that Litz does not know."""
    name = node.target.name() if callable(getattr(node.target, "name", None)) else str(node.target)
    if name in CONTROL:
        _control(writer, node, name)
    elif name == "invoke_subgraph":
        _inline(writer, node, node.args)
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
    graphs, expected = CONTROL[name]
    if len(node.args) != expected:
        raise NotConverted(f"{name} with {len(node.args)} arguments")
    args = [f"@{writer.subgraph(arg)}" if at in graphs else writer.argument(arg) for at, arg in enumerate(node.args)]
    results = writer.results(node)
    writer.line(f"{results}higher_order.{name}.default({', '.join(args)})", node)


def _inline(writer, node, args, first=0):
    """Writes the nodes of the graph that is called in the place of the call. Its results are the node's from the position `first` on."""
    callee, _, *operands = args
    module = writer.attribute(callee)
    inputs = module.graph.find_nodes(op="placeholder")
    writer.parts[node] = writer.inline(module, dict(zip(inputs, operands, strict=True)), node, first)


def _ordered(writer, node):
    """An operator whose calls keep their order, or a graph that has such operators. PyTorch orders them by tokens, Litz by an effect of the operator."""
    _, op, *args = node.args
    if op is torch.ops.higher_order.invoke_subgraph:
        _inline(writer, node, args, first=1)
        return
    if not isinstance(op, torch._ops.OpOverload):
        raise NotConverted(f"the effects of {op}")
    name, (_, *values) = operator_name(op), node.meta["val"]
    writer.declare(name, "ordered")
    prefix, results, parts = writer.name(node), [], {}

    def named(value, at):
        results.append(f"%{prefix}.{at}: {writer.type(value)}")
        return f"{prefix}.{at}"

    for at, value in enumerate(values, 1):
        if isinstance(value, (list, tuple)):
            parts[at] = {index: named(item, f"{at}.{index}") for index, item in enumerate(value)}
        elif value is not None:
            parts[at] = named(value, at)
    call = f"{name}({', '.join(writer.arguments(op._schema, args, node.kwargs))})"
    writer.line(f"{', '.join(results)} = {call}" if results else call, node)
    writer.parts[node] = parts
