"""Finds operators with effects in the graphs that branches and loops call, and has AOTAutograd trace them.

AOTAutograd orders calls with effects by tokens, which it hands from one call to the next. The graphs of branches and loops have no place for tokens,
and what it makes of them cannot be run. Without tokens, calls with effects are nodes like others, which no step of tracing moves, merges or drops;
texts say of them that they keep their order. In training the graphs of derivatives would repeat them, which PyTorch's own run of the graph does not.
Regions that are compiled once have tokens, but no gradients with them.
"""

import contextlib
from dataclasses import dataclass

import torch
from torch._higher_order_ops import effects
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from .hops import CONTROL, CONTROL_OPERATORS


@dataclass(frozen=True)
class Inside:
    """Calls with effects inside of branches or loops."""

    # Which one, and where, in words.
    reason: str
    # Whether AOTAutograd can trace them without tokens.
    is_traced: bool


def in_control_flow(module: torch.fx.GraphModule, is_trained: bool) -> Inside | None:
    """Calls of operators with effects in graphs that branches and loops of Dynamo's graph call; none where there are none."""
    if not hasattr(effects, "has_effects") or not hasattr(effects, "_get_effect"):
        # An older PyTorch.
        return None
    calls_graphs = {*CONTROL, "invoke_subgraph"} if is_trained else CONTROL
    reason, found = None, []
    for one in module.modules():
        for node in one.graph.nodes if isinstance(one, torch.fx.GraphModule) else ():
            if not isinstance(node.target, torch._ops.HigherOrderOperator) or node.target.name() not in calls_graphs:
                continue
            with torch.no_grad(), _tracing(module), _Watch():
                _run_graphs(one, node, found)
            if found and reason is None:
                reason = f"the effects of {found[0].name().replace('::', '.')} inside of {node.target.name()}"
    if reason is None:
        return None
    return Inside(reason, not is_trained and all(isinstance(op, torch._ops.OpOverload) for op in found))


@contextlib.contextmanager
def without_tokens():
    """Lets AOTAutograd trace calls with effects as it traces others, and keep those of branches and loops whose results nobody reads."""
    kept, has_effects = torch.fx.node._side_effectful_functions, effects.has_effects
    added = {op for op in CONTROL_OPERATORS if op not in kept}
    kept.update(added)
    effects.has_effects = lambda op: not isinstance(op, torch._ops.OpOverload) and has_effects(op)
    try:
        yield
    finally:
        effects.has_effects = has_effects
        kept.difference_update(added)


def is_ordered(op) -> bool:
    """Whether an operator has effects, by which its calls keep their order."""
    return hasattr(effects, "_get_effect") and effects._get_effect(op) is not None and not effects.has_aliasing(op)


def _run_graphs(module, call, found):
    """Runs the graphs that a node calls, and those that they call, once more on the fake tensors that Dynamo has noted; notes operators with effects."""
    names = [call.target] if call.op == "call_module" else [node.target for node in call.all_input_nodes if node.op == "get_attr"]
    graphs = [getattr(module, name) for name in names]
    for graph in (graph for graph in graphs if isinstance(graph, torch.fx.GraphModule)):
        for node in graph.graph.nodes:
            try:
                if isinstance(node.target, torch._ops.HigherOrderOperator):
                    _find(node.target)
                    _run_graphs(graph, node, found)
                elif node.op == "call_module":
                    _run_graphs(graph, node, found)
                else:
                    _run(node)
            except _Found as one:
                found.append(one.op)


@contextlib.contextmanager
def _tracing(module):
    """Has operators that make tensors make fake ones, of the mode that Dynamo traced with, and sizes that operators decide forgotten, as nobody is
    told of them.
    """
    values = (node.meta.get("example_value") for one in module.modules() if isinstance(one, torch.fx.GraphModule) for node in one.graph.nodes)
    fake_mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    if fake_mode is None:
        yield
        return
    shape_env = fake_mode.shape_env
    with fake_mode, shape_env.ignore_fresh_unbacked_symbols() if shape_env is not None else contextlib.nullcontext():
        yield


def _run(node):
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda of: of.meta.get("example_value"))
    if node.op == "call_function":
        node.target(*args, **kwargs)
    elif node.op == "call_method":
        getattr(args[0], node.target)(*args[1:], **kwargs)


def _find(op):
    if effects.has_effects(op):
        raise _Found(op)


class _Found(Exception):
    """An operator with effects."""

    def __init__(self, op):
        super().__init__(op.name())
        self.op = op


class _Watch(TorchDispatchMode):
    """Ends what would call an operator with effects, before it is called."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        _find(func)
        return func(*args, **(kwargs or {}))
