"""Writes operators that take graphs, and those that wrap operators which write to their arguments."""

import itertools

import torch

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
        _functionalized(writer, node, name)
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


def _functionalized(writer, node, name):
    """Writes clones of what the operator writes to, and the operator on these."""
    from torch._higher_order_ops.auto_functionalize import get_mutable_args, read_view_information_from_args

    op, kwargs = node.args[0], dict(node.kwargs)
    if not isinstance(op, torch._ops.OpOverload):
        raise NotConverted(f"{name} of {op}")
    written, kinds = get_mutable_args(op)
    prefix, results, numbers = writer.name(node), [], itertools.count()

    def clone(base):
        copy = f"{prefix}.copy{next(numbers)}"
        ty = writer.type(base.meta["val"])
        writer.line(f"%{copy}: {ty} = aten.clone.default(%{writer.name(base)}, none)", node)
        return copy

    if name == "auto_functionalized":
        for arg in written:
            given = kwargs[arg]
            if isinstance(given, (list, tuple)):
                raise NotConverted(f"{op} writes to a list")
            if given is None:
                results.append(None)
                continue
            copy = clone(given)
            kwargs[arg] = writer.named(copy)
            results.append(copy)
    else:
        bases = kwargs.pop("_all_bases")
        views = read_view_information_from_args(written, kinds, kwargs, bases)
        results = [clone(base) for base in bases]
        for arg in written:
            if isinstance(views[arg], list):
                kwargs[arg] = [_view(writer, node, f"{prefix}.{arg}{at}", view, results) for at, view in enumerate(views[arg])]
            else:
                kwargs[arg] = _view(writer, node, f"{prefix}.{arg}", views[arg], results)
    # What the operator returns itself, none where it returns nothing, comes before what it has written.
    own = node.meta["val"][: len(node.meta["val"]) - len(results)]
    returned = own if op._schema.returns else ()
    texts = ", ".join(f"%{prefix}.{at}: {writer.type(value)}" for at, value in enumerate(returned))
    writer.declare(operator_name(op))
    call = f"{operator_name(op)}({', '.join(writer.arguments(op._schema, (), kwargs))})"
    writer.line(f"{texts} = {call}" if texts else call, node)
    names = {at: f"{prefix}.{at}" for at in range(len(returned))}
    writer.parts[node] = names | {len(own) + at: copy for at, copy in enumerate(results) if copy is not None}


def _view(writer, node, name, view, bases):
    """Writes the view of a base that the operator is given, under a name, unless it is the base itself."""
    if view is None:
        return None
    base, kind = bases[view.base_index], type(view).__name__
    if kind in ("NotView", "AliasViewInfo"):
        return writer.named(base)
    if kind == "SliceViewInfo" and isinstance(view.end, int) and isinstance(view.start, int):
        call = f"aten.slice.Tensor(%{base}, {', '.join(writer.argument(x) for x in (view.dim, view.start, view.end, 1))})"
    elif kind == "AsStridedViewInfo":
        # The copy of the base begins where its memory does.
        offset = view.storage_offset - node.kwargs["_all_bases"][view.base_index].meta["val"].storage_offset()
        numbers = ", ".join(writer.argument(x) for x in (list(view.size), list(view.stride), offset))
        call = f"aten.as_strided.default(%{base}, {numbers})"
    else:
        raise NotConverted(f"a view of kind {kind}")
    value = node.kwargs["_all_bases"][view.base_index].meta["val"]
    if kind == "SliceViewInfo":
        size, stride = list(value.shape), value.stride()
        size[view.dim] = view.end - view.start
    else:
        size, stride = view.size, view.stride
    sizes, strides = (", ".join(writer.argument(x) for x in numbers) for numbers in (size, stride))
    dtype = writer.type(value).split("[")[0]
    writer.line(f"%{name}: {dtype}[{sizes}]" + (f"{{{strides}}}" if sizes else "") + f" = {call}", node)
    return writer.named(name)
