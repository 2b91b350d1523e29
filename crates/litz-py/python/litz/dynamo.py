"""The backend of `torch.compile(model, backend="litz")`."""

import functools
import re
import sys
import time
import warnings

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

from . import _litz, counters, options as option
from .errors import CacheError, InternalError, LitzError, UnsupportedError
from .fx import convert, drops_nothing, writes_to
from .host import Dispatcher
from .library import Torch
from .strides import laid_out
from .types import operator_name
from .writer import val

HOST = Dispatcher()

aten = torch.ops.aten

# What there was a warning of: operators, and reasons why PyTorch runs a graph.
_warned = set()


def backend(module, example_inputs, *, mode=None, options=None, note=None):
    """Compiles a graph of Dynamo's: its forward and backward graphs become kernels of Litz. `note(kind, compiled, reason)` is told of each of
    them: of what Litz made of it, or why PyTorch runs it as a whole.
    """
    chosen = option.read(mode, options)
    tracing = torch._guards.TracingContext.try_get()
    if _has_fake(example_inputs, tracing and tracing.fake_mode):
        # Dynamo compiles once more for tensors of another type.
        if chosen.fallback == "error":
            raise UnsupportedError(_FAKE)
        if note is not None:
            note("forward", None, _FAKE)
        _leave(chosen, _FAKE)
        return module
    # Dynamo does not guard the types of the tensors inside of others.
    is_wrapped = any(isinstance(value, torch.Tensor) and is_traceable_wrapper_subclass(value) for value in example_inputs)
    parameters = _parameters(module, example_inputs) if chosen.freeze and not torch.is_grad_enabled() else {}
    compiler = functools.partial(compile_fx, options=chosen, note=note, pair=_Pair(), is_wrapped=is_wrapped)
    return aot_autograd(
        fw_compiler=functools.partial(compiler, kind="forward"),
        bw_compiler=functools.partial(compiler, kind="backward"),
        inference_compiler=functools.partial(compiler, parameters=parameters, kind="inference"),
        decompositions=decompositions(chosen.random),
        partition_fn=_partition,
        keep_inference_input_mutations=True,
    )(module, example_inputs)


# Why PyTorch runs a graph of tensors that have no memory which a kernel could read.
_FAKE = "fake tensors, which have no data"


def _has_fake(values, tracing=None) -> bool:
    """Whether there are fake tensors among some values, but for those of a mode that Dynamo traces with. They stand for real ones where it compiles
    a graph in parts, as it does for `DistributedDataParallel`.
    """
    return any(isinstance(value, FakeTensor) and value.fake_mode is not tracing for value in values)


def _partition(module, *args, **kwargs):
    """Recomputes in the backward graph what costs less than it takes to keep."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    _keep_random(module.graph)
    return min_cut_rematerialization_partition(module, *args, **kwargs, compiler="inductor")


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


def _parameters(module, example_inputs) -> dict:
    """Parameters and buffers among the inputs of a graph of Dynamo's, by position."""
    inputs = module.graph.find_nodes(op="placeholder")
    is_static = lambda node: node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None
    is_real = lambda value: isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
    given = enumerate(zip(inputs, example_inputs))
    return {at: value.detach() for at, (node, value) in given if is_real(value) and is_static(node)}


def _frozen(module, parameters) -> dict:
    """Those of the parameters that the graph does not write to, by position among the inputs of AOTAutograd's graph. It has inputs of its own, such
    as tokens of effects, and each says which one of Dynamo's it is.
    """
    from torch._functorch._aot_autograd.descriptors import PlainAOTInput

    found = {}
    for position, node in enumerate(module.graph.find_nodes(op="placeholder")):
        origin = node.meta.get("desc")
        if isinstance(origin, PlainAOTInput) and origin.idx in parameters and not any(writes_to(user, node) for user in node.users):
            found[position] = parameters[origin.idx]
    return found


@functools.cache
def decompositions(random: str) -> dict:
    """Decompositions of operators that Litz does not have: those of PyTorch to its core operators, and those of `BESIDES`, which are core
    operators themselves.
    """
    from torch._decomp import core_aten_decompositions, get_decompositions
    from torch._inductor import inductor_prims

    table = {**core_aten_decompositions(), **get_decompositions([getattr(aten, name) for name in BESIDES])}
    # Dynamo makes it of `addcmul_` and `addcdiv_` in optimizers. PyTorch, too, computes it in two steps.
    table[inductor_prims.fma] = lambda a, b, c: a * b + c
    is_overload = lambda op: isinstance(op, torch._ops.OpOverload)
    is_random = lambda op: torch.Tag.nondeterministic_seeded in op.tags
    if random == "eager":
        # Made of others, they would take other numbers from PyTorch's generator.
        is_needed = lambda op: not is_random(op) and not _litz.has_operator(operator_name(op))
    else:
        # Litz has dropout that drops nothing; what drops is made of random numbers.
        is_needed = lambda op: op is aten.native_dropout.default or not _litz.has_operator(operator_name(op))
    return laid_out({op: made_of for op, made_of in table.items() if is_overload(op) and is_needed(op)})


BESIDES = (
    "_batch_norm_with_update",
    "_batch_norm_with_update_functional",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "batch_norm_backward",
    "dist",
    "gcd",
    "hypot",
    "lcm",
    "max_pool2d_with_indices_backward",
    "native_batch_norm",
    "native_dropout",
    "normal_functional",
    "rrelu_with_noise_backward",
    "special_ndtri",
)


class _Pair:
    """What a backward graph has to know of its forward graph."""

    # Whether it may return a tensor that it holds as a constant, in the constant's own memory.
    returns_constants = False


def _returns_constants(module) -> bool:
    """Whether a result of a graph may share memory with a tensor that the graph holds."""
    def storages(nodes):
        values = (val(node) for node in nodes if isinstance(node, torch.fx.Node))
        return {value.untyped_storage()._cdata for value in values if isinstance(value, torch.Tensor) and value.layout == torch.strided}

    attributes = module.graph.find_nodes(op="get_attr")
    constants = [node for node in attributes if not isinstance(getattr(module, node.target, None), torch.nn.Module)]
    held = storages(constants)
    return len(held) < len(constants) or not held.isdisjoint(storages(module.graph.output_node().args[0]))


def _donated() -> frozenset:
    """The arguments of the backward graph that is being compiled, by position, that are nobody's when a call is over: what the forward graph
    saved, unless it is an argument or a result as well. AOTAutograd keeps none where `backward` is to keep its graph.
    """
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return frozenset(metadata.bw_donated_idxs or ()) if metadata is not None else frozenset()


def compile_fx(module, example_inputs, options, parameters=None, kind="inference", note=None, pair=None, is_wrapped=False):
    """Compiles a graph of ATen operators to a function of a list of arguments. PyTorch runs a graph that Litz cannot compile. With `is_wrapped`
    arguments are tensors from inside of others, which may be fake in one call and not in the next.
    """
    start = time.perf_counter()
    pair = pair or _Pair()
    if kind == "forward":
        pair.returns_constants = _returns_constants(module)
    donated = _donated() if kind == "backward" and not pair.returns_constants else frozenset()
    try:
        # Constants are real tensors, and what depends on them alone is computed at once.
        with _disable_current_modes():
            compiled, converted = _compile(module, options, _frozen(module, parameters or {}), kind, donated)
    except LitzError as error:
        if options.fallback == "error" or isinstance(error, CacheError):
            raise
        reason = str(error).splitlines()[0] if isinstance(error, UnsupportedError) else f"a mistake of Litz: {error}"
        if note is not None:
            note(kind, None, reason)
        return _eager(module, options, reason)
    finally:
        counters.TOTALS.seconds += time.perf_counter() - start
    if note is not None:
        note(kind, compiled, None)

    offsets = [*converted.offsets.items()]
    HOST.ordered.update(converted.ordered)

    def run(args):
        if is_wrapped and _has_fake(args):
            if options.fallback == "error":
                raise UnsupportedError(_FAKE)
            return left(args)
        # Dynamo guards neither levels of forward derivatives nor where tensors begin in their storages.
        if forward_ad._current_level >= 0 and any(map(_is_dual, args)):
            return left(args)
        if offsets and any(args[position].storage_offset() != offset for position, offset in offsets):
            return left(args)
        for position in converted.lazy:
            args[position] = _resolved(args[position])
        if converted.is_seeded:
            args.append(torch.empty((), dtype=torch.int64, device="cpu").random_())
        before = HOST.effects() if converted.ordered else 0
        try:
            results = compiled(args)
        except _litz.CheckError as error:
            # What has effects is not to be run twice.
            if getattr(error, "is_of_operator", False) or converted.ordered and HOST.effects() != before:
                raise
            # Sizes that the graph was not compiled for; nothing has been written so far.
            counters.TOTALS.eager_calls += 1
            results = module(*(args[:-1] if converted.is_seeded else args))
        args.clear()
        return results

    def left(args):
        counters.TOTALS.eager_calls += 1
        results = module(*args)
        args.clear()
        return results

    run._boxed_call = True
    run.compiled = compiled
    counters.note(run, compiled)
    return run


def _is_dual(value) -> bool:
    """Whether a value is a tensor with a tangent, of which a graph that has been compiled says nothing."""
    return isinstance(value, torch.Tensor) and forward_ad.unpack_dual(value).tangent is not None


def _resolved(tensor):
    """A tensor with the elements and strides of one that may have a pending conjugation or negation.

    `Tensor.resolve_conj` gives other strides where the tensor has gaps.
    """
    if not (tensor.is_conj() or tensor.is_neg()):
        return tensor
    plain = tensor.conj() if tensor.is_conj() else tensor
    plain = torch._neg_view(plain) if plain.is_neg() else plain
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    memory = plain.as_strided((last + 1 if tensor.numel() else 0,), (1,))
    memory = memory.conj_physical() if tensor.is_conj() else memory
    return (-memory if tensor.is_neg() else memory).as_strided(tensor.shape, tensor.stride())


def _compile(module, options, frozen, kind, donated):
    hosted = set()
    while True:
        try:
            is_seeded, is_backward = options.random == "philox", kind == "backward"
            converted = convert(module, frozen, is_seeded=is_seeded, hosted=hosted, is_backward=is_backward, donated=donated)
        except LitzError:
            raise
        except Exception as error:
            # PyTorch runs a graph with which Litz makes a mistake, as where it is the compiler that does.
            raise InternalError(f"{type(error).__name__}: {error}") from error
        try:
            compiled = _compiled(converted, options)
            break
        except LitzError as error:
            # One call that Litz cannot take, of an operator that it has, is no reason to give up all of the graph.
            op = _refused(error)
            if op is None or op in hosted or options.fallback == "error":
                raise
            hosted.add(op)
    _tell(compiled.tuned)
    if options.fallback == "warn":
        for op, count, source in compiled.host_operators:
            at = f", first at {source}" if source else ""
            _warn(op, f"litz: PyTorch runs {op} ({count} in this graph{at})")
    return compiled, converted


def _tell(tuned):
    """Says on standard error what tuning found."""
    if tuned is None:
        return
    gain, tried, kept, why = tuned
    found = f"a graph is not tuned: {why}" if why else f"tuned a graph: {gain:.2f} times as fast, by {kept} of {tried} candidates"
    print(f"litz: {found}", file=sys.stderr)


def _compiled(converted, options):
    return _litz.compile_graph(
        converted.text,
        Torch,
        constants=converted.constants,
        taken=converted.taken,
        returned=converted.returned,
        options=options.native() | {"host": HOST, "fallback": options.fallback != "error"},
    )


def _refused(error) -> str | None:
    """The operator that an error begins with, where PyTorch has it."""
    found = re.match(r"error\[[\w-]+\]: ([\w.]+?\.[\w.]+?\.\w+)(?=[: ])", str(error))
    return found[1] if found and HOST.declaration(found[1]) else None


def _leave(options, reason):
    """Counts, and warns of, a graph that is left to PyTorch as a whole."""
    counters.TOTALS.eager_graphs[reason] += 1
    if options.fallback == "warn":
        _warn(reason, f"litz: PyTorch runs a graph, for {reason}")


def _eager(module, options, reason):
    _leave(options, reason)

    def run(args):
        results = module(*args)
        args.clear()
        return results

    run._boxed_call = True
    return run


def _warn(once, message):
    if once not in _warned:
        _warned.add(once)
        warnings.warn(message, stacklevel=2)
