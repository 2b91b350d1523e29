"""Looks at what calls of compiled graphs write to: arguments that the graph updates, and saved tensors that are nobody's when the call is over by
AOTAutograd's own word. Every other byte of the storages that a call is given has to be what it was.

`conftest.py` has this done in all tests, and programs that tests run do so by themselves.
"""

import os
import re

import torch
from torch._functorch._aot_autograd import graph_compile
from torch._subclasses import FakeTensor
from torch.utils._pytree import tree_leaves

import litz.dynamo
import litz.function

_donated, _compile, _call = graph_compile.collect_bw_donated_buffer_idxs, litz.dynamo.compile_fx, litz.function.Function.__call__

# The process that looks at its calls.
_PROCESS = os.getpid()


def install() -> None:
    """Has all calls looked at from here on."""
    graph_compile.collect_bw_donated_buffer_idxs = _noted
    litz.dynamo.compile_fx, litz.function.Function.__call__ = _compiled, _called


def _noted(forward, backward, metadata):
    """Notes at the inputs of a backward graph that AOTAutograd gives them up, which Litz has it forget."""
    donated, outputs = _donated(forward, backward, metadata), forward.graph.output_node().args[0]
    arguments = {node.name for node in _inputs(forward)}
    for node in (_inputs(backward)[at] for at in donated):
        # What AOTAutograd counts may be wrong: what is saved alone is no argument, and returned once.
        if node.name not in arguments and [getattr(output, "name", None) for output in outputs].count(node.name) == 1:
            node.meta["is_given"] = True
    return donated


def _compiled(module, *args, **kwargs):
    function = _compile(module, *args, **kwargs)
    if isinstance(function, litz.function.Function):
        # The positions of arguments that it updates, and of those that it is given.
        given = frozenset(at for at, node in enumerate(_inputs(module)) if "is_given" in node.meta)
        function.writes = _updated(module), given
        # Whether a call writes to what it takes for given depends on how memory is planned.
        assert _donated_in_text(function) <= given, "a graph is given arguments that AOTAutograd does not give up"
    return function


def _called(function, args):
    if os.getpid() != _PROCESS:
        # The threads that PyTorch compares with are gone in a child that was forked.
        return _call(function, args)
    if not hasattr(function, "writes"):
        # A cache had it: what it is given was looked at in the process that compiled it.
        function.writes = _updated(function.module), _donated_in_text(function)
    updated, donated = function.writes
    writes = updated if torch._C._autograd._get_current_graph_task_keep_graph() else updated | donated
    tensors = {at: arg for at, arg in enumerate(args) if _has_memory(arg)}
    storages = {arg.untyped_storage()._cdata: arg.untyped_storage() for arg in tensors.values()}
    before = [(storage, _bytes(storage).clone()) for storage in storages.values()]
    written = [arg for at, arg in tensors.items() if at in writes]
    left = {at: tuple(arg.shape) for at, arg in tensors.items() if at not in writes}
    tensors.clear()
    results = _call(function, args)
    for storage, was in before:
        changed = _bytes(storage) != was
        if changed.any():
            for arg in written:
                if arg.untyped_storage()._cdata == storage._cdata:
                    changed &= ~_covered(arg, len(changed))
            assert not changed.any(), f"a call has written {int(changed.sum())} bytes that it has to leave as they are; it may not write to {left}"
    return results


def _donated_in_text(function) -> frozenset:
    """The positions of arguments that the text takes for given."""
    names = re.findall(r"%(\S+): [^\n]* = input donated", function.converted.text)
    return frozenset(at for at, node in enumerate(_inputs(function.module)) if node.name in names)


def _updated(module) -> frozenset:
    """The positions of a graph's arguments that operators of the graph write to."""
    written = set()
    for node in module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if isinstance(schema, torch.FunctionSchema) and schema.is_mutable:
            for argument, value in [*zip(schema.arguments, node.args), *((argument, node.kwargs.get(argument.name)) for argument in schema.arguments)]:
                if argument.alias_info is not None and argument.alias_info.is_write:
                    written.update(leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.fx.Node))
    return frozenset(at for at, node in enumerate(_inputs(module)) if node in written)


def _inputs(module):
    return module.graph.find_nodes(op="placeholder")


def _has_memory(arg) -> bool:
    return isinstance(arg, torch.Tensor) and not isinstance(arg, FakeTensor) and arg.layout == torch.strided and arg.device.type == "cpu"


def _bytes(storage):
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)


def _covered(arg, size):
    """Which bytes of its storage the elements of a tensor are."""
    covered = torch.zeros(size, dtype=torch.bool, device="cpu")
    begin = arg.storage_offset() * arg.itemsize
    strides = [stride * arg.itemsize for stride in arg.stride()]
    covered.as_strided((*arg.shape, arg.itemsize), (*strides, 1), begin).fill_(True)
    return covered
