"""Finds operators with effects where PyTorch cannot keep their order: in the graphs that branches and loops call.

AOTAutograd orders calls with effects by tokens, which it hands from one call to the next. The graphs of branches and loops have no place for tokens,
and what it makes of them cannot be run. Regions that are compiled once have one, but no gradients with it.
"""

import contextlib

import torch
from torch._higher_order_ops import effects
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from .hops import CONTROL


def in_control_flow(module: torch.fx.GraphModule) -> str | None:
    """The first operator with effects in a graph that a branch or a loop of Dynamo's graph calls, and where, in words; none where there is none."""
    if not hasattr(effects, "has_effects") or not hasattr(effects, "_get_effect"):
        # An older PyTorch.
        return None
    calls_graphs = {*CONTROL, "invoke_subgraph"} if torch.is_grad_enabled() else CONTROL
    for one in module.modules():
        for node in one.graph.nodes if isinstance(one, torch.fx.GraphModule) else ():
            if not isinstance(node.target, torch._ops.HigherOrderOperator) or node.target.name() not in calls_graphs:
                continue
            try:
                with torch.no_grad(), _tracing(module), _Watch():
                    _run_graphs(one, node)
            except _Found as found:
                return f"the effects of {found} inside of {node.target.name()}"
    return None


def _run_graphs(module, call):
    """Runs the graphs that a node calls, and those that they call, once more on the fake tensors that Dynamo has noted."""
    graphs = [getattr(module, node.target) for node in call.all_input_nodes if node.op == "get_attr"]
    for graph in (graph for graph in graphs if isinstance(graph, torch.fx.GraphModule)):
        for node in graph.graph.nodes:
            if isinstance(node.target, torch._ops.HigherOrderOperator):
                _find(node.target)
                _run_graphs(graph, node)
            else:
                _run(node)


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
        raise _Found(op.name().replace("::", "."))


class _Found(Exception):
    """An operator with effects."""


class _Watch(TorchDispatchMode):
    """Ends what would call an operator with effects, before it is called."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        _find(func)
        return func(*args, **(kwargs or {}))
