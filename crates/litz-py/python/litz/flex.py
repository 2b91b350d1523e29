"""Writes out `flex_attention`: products, the functions of score and mask on all positions at once, and a softmax.

What PyTorch runs where nothing compiles it is traced into the graph. Litz finds attention in it, as it does in other spellings, and leaves out
blocks that the mask removes. PyTorch has no derivative of it on a CPU.
"""

import importlib

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from .errors import InternalError
from .writer import val

aten = torch.ops.aten


def write_out(module: torch.fx.GraphModule, table) -> None:
    """Replaces the operator in a graph and the graphs inside of it; `table` has the decompositions of what it is made of."""
    for inner in [*module.modules()]:
        if not isinstance(inner, torch.fx.GraphModule):
            continue
        found = [node for node in inner.graph.nodes if isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() == "flex_attention"]
        for node in found:
            _replace(inner, node, table)
        if found:
            inner.recompile()


def _replace(module, node, table):
    """Puts the nodes of what an operator is made of in its place."""
    try:
        traced, operands = _traced(module, node, table)
    except Exception as error:
        # PyTorch runs a graph with which Litz makes a mistake.
        raise InternalError(f"{node.target.name()}: {type(error).__name__}: {error}") from error
    graph, made, copies = module.graph, [], dict(zip(traced.graph.find_nodes(op="placeholder"), operands, strict=True))
    with graph.inserting_before(node):
        for inner in traced.graph.nodes:
            if inner.op == "get_attr":
                # A number that the functions have, such as the score of what is masked out.
                name = f"{node.name}{inner.target}"
                module.register_buffer(name, getattr(traced, inner.target), persistent=False)
                copies[inner] = graph.get_attr(name)
            elif inner.target is aten._to_copy.default and not isinstance(inner.args[0], torch.fx.Node):
                # `vmap` has made a tensor of a number.
                copies[inner] = graph.call_function(aten.full.default, ([], inner.args[0]), {"dtype": val(inner).dtype})
            elif inner.op == "call_function":
                copies[inner] = graph.node_copy(inner, copies.__getitem__)
            else:
                continue
            copies[inner].meta = {**inner.meta, "stack_trace": node.meta.get("stack_trace")}
            made.append(copies[inner])
    # Results, the logarithms of sums, and the largest scores.
    results = torch.fx.map_arg(traced.graph.output_node().args[0], copies.__getitem__)
    for user in [*node.users]:
        user.replace_all_uses_with(results[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(node)
    for one in reversed(made):
        if not one.users:
            graph.erase_node(one)


def _traced(module, node, table):
    """The graph of what an operator is made of, and the nodes that it takes."""
    # The module's name is that of the operator, too, which hides it.
    dense = importlib.import_module("torch._higher_order_ops.flex_attention").sdpa_dense
    args, spec = tree_flatten((node.args, node.kwargs))
    places = [at for at, arg in enumerate(args) if isinstance(arg, torch.fx.Node) and val(arg) is not None]
    # What is no value is a graph.
    given = [getattr(module, arg.target) if isinstance(arg, torch.fx.Node) and val(arg) is None else arg for arg in args]

    def run(*operands):
        filled = dict(zip(places, operands))
        positional, keywords = tree_unflatten([filled.get(at, arg) for at, arg in enumerate(given)], spec)
        return dense(*positional, **keywords)

    operands = [args[at] for at in places]
    values = [val(operand) for operand in operands]
    mode = next(value.fake_mode for value in values if isinstance(value, torch.Tensor))
    with mode:
        return make_fx(torch.func.functionalize(run), decomposition_table=dict(table))(*values), operands
