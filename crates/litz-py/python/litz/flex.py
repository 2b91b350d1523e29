"""Writes out `flex_attention`: products, the functions of score and mask on all positions at once, and a softmax.

What PyTorch runs where nothing compiles it is traced into the graph. Litz finds attention in it, as it does in other spellings, and leaves out
blocks that the mask function removes: PyTorch's own goes by that alone, too, and not by the table of blocks that was made of it. PyTorch has no
derivative of it on a CPU.
"""

import math

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
    args, spec = tree_flatten((node.args, node.kwargs))
    places = [at for at, arg in enumerate(args) if isinstance(arg, torch.fx.Node) and val(arg) is not None]
    # What is no value is a graph.
    given = [getattr(module, arg.target) if isinstance(arg, torch.fx.Node) and val(arg) is None else arg for arg in args]

    def run(*operands):
        filled = dict(zip(places, operands))
        positional, keywords = tree_unflatten([filled.get(at, arg) for at, arg in enumerate(given)], spec)
        return _dense(*positional, **keywords)

    operands = [args[at] for at in places]
    values = [val(operand) for operand in operands]
    mode = next(value.fake_mode for value in values if isinstance(value, torch.Tensor))
    with mode:
        return make_fx(torch.func.functionalize(run), decomposition_table=dict(table))(*values), operands


def _dense(query, key, value, score_mod, block_mask, scale, kernel_options, score_buffers=(), mask_buffers=()):
    """Attention, the logarithms of its sums, and its largest scores, as PyTorch computes them. Batches and heads are one dimension from end to end, as
    they are to its products: Litz finds attention where what goes on with a product has its coordinates.
    """
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    from torch._higher_order_ops.flex_attention import _permute_strides

    batches, heads, rows = query.shape[:3]
    precise = torch.float64 if query.dtype == torch.float64 else torch.float32
    spread = lambda x: x.repeat_interleave(heads // x.shape[1], 1).expand(batches, heads, *x.shape[2:]).flatten(0, 1)
    queries, keys, values = query.flatten(0, 1), spread(key), spread(value)
    counted = lambda count: torch.arange(count, device=query.device)
    places = (
        counted(batches).view(-1, 1).expand(batches, heads).flatten(),
        counted(heads).expand(batches, heads).flatten(),
        counted(rows),
        counted(keys.shape[1]),
    )
    score_mod, mask_mod = _everywhere(score_mod, (0,), score_buffers), _everywhere(block_mask[-1], (), mask_buffers)
    with TransformGetItemToIndex():
        scores = queries.to(precise).bmm(keys.to(precise).transpose(1, 2)) * scale
        removed = torch.full((), -math.inf, dtype=precise, device=query.device)
        scores = torch.where(mask_mod(*places, *mask_buffers), score_mod(scores, *places, *score_buffers), removed)
    sums = torch.where((scores == -math.inf).all(-1), -math.inf, scores.logsumexp(-1))
    result = torch._safe_softmax(scores, -1).to(query.dtype).bmm(values.to(query.dtype))
    apart = lambda x: x.view(batches, heads, *x.shape[1:])
    # PyTorch has them to base 2.
    return _permute_strides(apart(result), query.stride()), apart(sums / math.log(2)), apart(scores.amax(-1) / math.log(2))


def _everywhere(f, first, others):
    """A function of a batch, a head, a query and a key, with arguments of each place before these and others behind, as one of all places."""
    for dims in ((None, None, None, 0), (None, None, 0, None), (0, 0, None, None)):
        f = torch.vmap(f, in_dims=(*first, *dims, *(None for _ in others)))
    return f
