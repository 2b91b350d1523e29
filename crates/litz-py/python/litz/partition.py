"""Splits AOTAutograd's joint graphs into forward and backward graphs, and keeps what is to be known of the one to compile the other."""

import operator

import torch

from .converting import Converted, drops_nothing, operand_of_view
from .writer import val


class Pair:
    """A forward graph and its backward graph. What is known of their values is known by name, which both graphs have for what the one saves for the
    other: AOTAutograd counts positions with tokens of effects in one place and without in another.
    """

    def __init__(self):
        # What the forward graph saves and nobody else sees, by PyTorch's word.
        self._saved = frozenset()
        # What the forward graph returns in memory that is new in each call.
        self._owned = frozenset()

    def partition(self, module: torch.fx.GraphModule, *args, num_fwd_outputs: int, **kwargs) -> tuple:
        """Splits a joint graph, so that the backward graph recomputes what costs less than it takes to keep."""
        from torch._functorch.partitioners import min_cut_rematerialization_partition

        _keep_random(module.graph)
        settings = kwargs | {"num_fwd_outputs": num_fwd_outputs, "compiler": "inductor"}
        forward, backward = min_cut_rematerialization_partition(module, *args, **settings)
        # Graphs inside of the joint graph come before it.
        self._saved = _saved_alone(forward, backward, num_fwd_outputs)
        return forward, backward

    def returns(self, forward: torch.fx.GraphModule, converted: Converted) -> None:
        """Notes what a forward graph returns as Litz runs it."""
        outputs = forward.graph.output_node().args[0]
        self._owned = frozenset(
            node.name for node, what in zip(outputs, converted.returned, strict=True) if isinstance(node, torch.fx.Node) and _is_result(what)
        )

    def donated(self) -> frozenset:
        """Names of the arguments of the backward graph that are nobody's when a call is over. AOTAutograd does not learn that they are written to, as
        each call finds out whether it may: AOTAutograd would refuse calls that keep what was saved.
        """
        context = torch._guards.TracingContext.try_get()
        if context is not None and context.fw_metadata is not None:
            context.fw_metadata.bw_donated_idxs = []
        return self._saved & self._owned if torch._functorch.config.donated_buffer else frozenset()


def _is_result(what: tuple) -> bool:
    """Whether a returned value, or what it is a view of, is computed by the program in new memory."""
    return what[0] == "result" or what[0] == "view" and _is_result(what[1])


def _saved_alone(forward, backward, num_fwd_outputs) -> frozenset:
    """Names of the tensors that a forward graph saves and that share memory with nothing else that anybody sees: an argument, a constant, or a result
    of either graph. What is saved may share memory with what else is saved: calls find that out.
    """
    outputs = forward.graph.output_node().args[0]
    given, saved = outputs[:num_fwd_outputs], outputs[num_fwd_outputs:]
    constants = [node for node in forward.graph.find_nodes(op="get_attr") if not isinstance(_attribute(forward, node), torch.nn.Module)]
    if None in map(_storage, constants):
        # Tracing does not say what shares memory with them.
        return frozenset()
    seen = [*forward.graph.find_nodes(op="placeholder"), *constants, *given, *backward.graph.output_node().args[0]]
    storages = {None}.union(*map(_storages, seen))
    return frozenset(node.name for node in saved if storages.isdisjoint(_storages(node)))


def _storages(node) -> set:
    """What the elements of a value may be in: its storage, and those of what it is a view of, which tracing may say are others."""
    storages = set()
    while isinstance(node, torch.fx.Node):
        storages.add(_storage(node))
        node = operand_of_view(node.args[0] if node.target is operator.getitem else node)
    return storages


def _attribute(module, node):
    return getattr(module, node.target, None)


def _storage(node):
    """What the elements of a value are in, by tracing's word; none where it is no tensor with strides."""
    value = val(node) if isinstance(node, torch.fx.Node) else None
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) and value.layout == torch.strided else None


def _keep_random(graph):
    """Has the random numbers of activation checkpoints kept, or their masks, where nothing else uses them. PyTorch would compute them again by
    operators that set the state of its generator, which Litz does not have.
    """
    from torch.utils.checkpoint import CheckpointPolicy

    for node in graph.nodes:
        is_random = isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
        if not is_random or drops_nothing(node) or node.meta.pop("recompute", None) is None:
            continue
        value, users = node.meta.get("val"), list(node.users)
        is_part = not isinstance(value, torch.Tensor) or all(user.meta["val"].dtype is torch.bool for user in users if "val" in user.meta)
        for kept in users if is_part else [node]:
            kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE
