"""Keeps what AOTAutograd made of a model for other processes, in AOTAutograd's own cache."""

import contextlib
import contextvars
import ctypes
import functools
import hashlib
import pathlib
from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

import torch
from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler
from torch._inductor.output_code import OutputCode
from torch.utils._python_dispatch import _disable_current_modes

from . import _litz
from .options import Options

# Namespaces of operators that PyTorch defines. What others define by a name may be something else the next time.
_OWN = ("aten", "prims", "prim", "higher_order")

# What the way of keeping both graphs of a model asks of AOTAutograd: entries that hold them, which are made when both have been compiled.
_SETTINGS = {"bundled_autograd_cache": True, "force_non_lazy_backward_lowering": True}


# Options that say where things are and what happens around a compilation. What is made is the same, and each process has its own.
_AROUND = ("cache", "cache_read_only", "shared_cache", "dump", "keep_failures", "keep_calls")

# The frozen parameters of the graph that is compiled or taken up, by position among Dynamo's inputs.
_PARAMETERS = contextvars.ContextVar("parameters", default={})

# The options of whoever compiles it or takes it up.
_OPTIONS = contextvars.ContextVar("options")


class Frozen(NamedTuple):
    """Stands for a frozen parameter in what is kept: who takes it up has the parameter."""

    position: int


def without_frozen(constants: dict) -> dict:
    """Constants of a graph, with what stands for those that are frozen parameters."""
    positions = {id(parameter): at for at, parameter in _PARAMETERS.get().items()}
    return {name: Frozen(positions[id(value)]) if id(value) in positions else value for name, value in constants.items()}


def with_frozen(constants: dict) -> dict:
    """What `without_frozen` was given, in the process that takes the graph up."""
    parameters = _PARAMETERS.get()
    return {name: parameters[value.position] if isinstance(value, Frozen) else value for name, value in constants.items()}


def options_here() -> Options:
    """The options that this process has for a graph that another one has left."""
    return _OPTIONS.get()


def can_keep(module: torch.fx.GraphModule, example_inputs: Sequence, parameters: dict, options: Options) -> bool:
    """Whether a graph of Dynamo's may be kept: a later process that finds it has to find what it would have compiled."""
    config = torch._functorch.config
    if not all(hasattr(config, name) for name in (*_SETTINGS, "enable_autograd_cache")) or not hasattr(torch.compiler.config, "cache_key_tag"):
        # An older PyTorch.
        return False
    if not all(map(_is_plain, parameters.values())):
        return False
    return _litz.cache_folder(options=options.native()) is not None and _is_of_pytorch(module) and not _share_memory(example_inputs)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is what its type, sizes, strides and bytes say."""
    is_as_stored = tensor.layout == torch.strided and not (tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type in ("cpu", "cuda") and is_as_stored


def _share_memory(values) -> bool:
    """Whether tensors share memory, of which AOTAutograd's key knows nothing, and what it makes of a graph depends on it."""
    storages = [value.untyped_storage()._cdata for value in values if isinstance(value, torch.Tensor) and value.layout == torch.strided]
    return len({*storages}) < len(storages)


def _is_of_pytorch(module) -> bool:
    """Whether nothing is in a graph but operators and functions of PyTorch's. AOTAutograd's key knows neither the elements of tensors that a graph
    holds nor the code of others' operators.
    """
    for one in module.modules():
        if [*one.parameters(recurse=False), *one.buffers(recurse=False)]:
            return False
        for node in one.graph.nodes if isinstance(one, torch.fx.GraphModule) else ():
            if _namespace(node.target) not in (None, *_OWN):
                return False
            if node.op == "get_attr" and isinstance(_attribute(one, node.target), torch.Tensor):
                return False
    return True


def _namespace(target) -> str | None:
    """Whose an operator is; none where it is no operator but a function of PyTorch's, as AOTAutograd sees to."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        return target._qualified_op_name.split("::")[0]
    return target.namespace if isinstance(target, torch._ops.OperatorBase) else None


def _attribute(module, path):
    return functools.reduce(lambda value, part: getattr(value, part, None), path.split("."), module)


@contextlib.contextmanager
def kept(compilers: dict, parameters: dict, options: Options):
    """The compilers as AOTAutograd takes those whose functions it keeps. What others keep of the same graph is not ours, and neither is that of other
    frozen parameters.
    """
    torch_config = torch.compiler.config
    tag = f"{torch_config.cache_key_tag} litz {_build()} {_said(options)} {_digest(parameters)}"
    tokens = _PARAMETERS.set(parameters), _OPTIONS.set(options)
    try:
        with torch._functorch.config.patch(_SETTINGS), torch_config.patch(cache_key_tag=tag):
            yield {name: SerializableAOTDispatchCompiler(OutputCode, compiler) for name, compiler in compilers.items()}
    finally:
        _PARAMETERS.reset(tokens[0])
        _OPTIONS.reset(tokens[1])


def _said(options: Options) -> dict:
    """Those options that what is made depends on, in one order."""
    ordered = {"settings": sorted(options.settings.items()), "eager": sorted(options.hosted())}
    chosen = [each.name for each in fields(options) if each.name not in _AROUND]
    return {name: ordered.get(name, getattr(options, name)) for name in chosen}


def _digest(parameters: dict) -> str:
    """What tells frozen parameters from others. They are constants of what is compiled, and AOTAutograd's key knows their types alone."""
    digest = hashlib.blake2b(digest_size=32)
    with _disable_current_modes():
        for position, parameter in parameters.items():
            seen = parameter.dtype, tuple(parameter.shape), parameter.stride(), parameter.storage_offset(), parameter.device
            elements = parameter.detach().cpu().contiguous()
            digest.update(f"{position} {seen}".encode())
            digest.update((ctypes.c_char * (elements.numel() * elements.element_size())).from_address(elements.data_ptr()))
    return digest.hexdigest()


@functools.cache
def _build() -> str:
    """What tells this version of Litz from others, wherever it is installed: they may make something else of the same graph."""
    digest = hashlib.sha256(_litz.COMPILER.encode())
    for path in sorted(pathlib.Path(__file__).parent.iterdir()):
        if path.suffix == ".py":
            digest.update(path.read_bytes())
    return digest.hexdigest()
