"""The backend of `torch.compile(model, backend="litz")`."""

import collections.abc
import contextlib
import functools
import re
import time

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

from . import _litz, caching, counters, effects, flex, hops, host, options as option, refusals, whole
from .errors import CacheError, InternalError, LitzError, UnsupportedError
from .function import FAKE, Function, Left, compiled_of, has_fake, warn
from .converting import OFFSETS, convert, writes_to
from .partition import Pair
from .strides import laid_out
from .types import operator_name

aten = torch.ops.aten


def backend(module, example_inputs, *, mode=None, options=None, note=None):
    """Compiles a graph of Dynamo's: its forward and backward graphs become kernels of Litz. `note(kind, compiled, reason)` is told of each of
    them: of what Litz made of it, or why PyTorch runs it as a whole.
    """
    chosen = option.read(mode, options)
    tracing = torch._guards.TracingContext.try_get()
    if has_fake(example_inputs, tracing and tracing.fake_mode):
        # Dynamo compiles once more for tensors of another type.
        return _left_to_pytorch(module, chosen, FAKE, note)
    hops.without_hints(module)
    inside = effects.in_control_flow(module, _is_trained(module, example_inputs))
    if inside is not None and not inside.is_traced:
        return _left_to_pytorch(module, chosen, inside.reason, note)
    # Dynamo does not guard the types of the tensors inside of others.
    is_wrapped = any(isinstance(value, torch.Tensor) and is_traceable_wrapper_subclass(value) for value in example_inputs)
    parameters = _parameters(module, example_inputs) if chosen.freeze and not torch.is_grad_enabled() else {}
    pair = Pair()
    compiler = functools.partial(compile_fx, options=chosen, note=note, pair=pair, is_wrapped=is_wrapped)
    compilers = {
        "fw_compiler": functools.partial(compiler, kind="forward"),
        "bw_compiler": functools.partial(compiler, kind="backward"),
        "inference_compiler": functools.partial(compiler, parameters=parameters, kind="inference"),
    }
    # What is noted, or found out of views, is what compiling a graph shows.
    retyped = _retyped(module)
    is_kept = not (is_wrapped or note or retyped) and caching.can_keep(module, example_inputs, parameters, chosen)
    keeping = caching.kept(compilers, parameters, chosen) if is_kept else contextlib.nullcontext(compilers)
    tracing_effects = effects.without_tokens() if inside is not None else contextlib.nullcontext()
    # Tokens of effects are no arguments and no results of graphs: what AOTAutograd counts does not always count them, and what it keeps never does.
    with torch._functorch.config.patch(unlift_effect_tokens=True), keeping as compilers, whole.kept(), tracing_effects:
        made = aot_autograd(
            **compilers,
            decompositions=Decompositions(chosen.random, chosen.hosted()),
            partition_fn=pair.partition,
            keep_inference_input_mutations=True,
        )(module, example_inputs)
    if _misreads(retyped):
        return _left_to_pytorch(module, chosen, "a view of an argument as a type of another size", note)
    return made


def _retyped(module) -> list[int]:
    """Results of Dynamo's graph, by position, that are views of an argument as a type of another size."""
    value = lambda node: node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
    is_plain = lambda tensor: isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided
    given = {tensor.untyped_storage()._cdata: tensor for tensor in map(value, module.graph.find_nodes(op="placeholder")) if is_plain(tensor)}
    results = ((at, result) for at, result in enumerate(map(value, module.graph.output_node().args[0])) if is_plain(result))
    return [at for at, result in results if result.itemsize != _counted(given.get(result.untyped_storage()._cdata, result), result)]


def _misreads(retyped) -> bool:
    """Whether AOTAutograd makes one of these results wrongly. Where it cannot apply the operators of a view once more, since sizes that they have are
    symbols, it goes by sizes and strides in elements of the argument's type.
    """
    from torch._functorch._aot_autograd.schemas import OutputType

    for info in (torch._guards.TracingContext.get().fw_metadata.output_info[at] for at in retyped):
        views = info.view_meta_sequence
        is_applied = views is not None and not any(view.has_symbolic_inputs for view in views.sequence)
        if info.output_type is OutputType.alias_of_input and not is_applied:
            return True
    return False


def _counted(base, result) -> int:
    """Bytes of the elements of a tensor in which AOTAutograd counts those of a view, of which another one may hold complex numbers."""
    if base.is_complex() and not result.is_complex():
        return base.itemsize // 2
    is_of_pairs = result.is_complex() and not base.is_complex() and base.dim() > 0 and base.shape[-1] == 2
    return base.itemsize * (2 if is_of_pairs else 1)


def _left_to_pytorch(module, options, reason, note):
    """A graph of Dynamo's that PyTorch runs, which is never traced further."""
    if options.fallback == "error":
        raise UnsupportedError(reason)
    if note is not None:
        note("forward", None, reason)
    _leave(options, reason)
    return module


def _is_trained(module, example_inputs) -> bool:
    """Whether AOTAutograd makes a graph of derivatives, too."""
    tensors = (*module.parameters(), *(value for value in example_inputs if isinstance(value, torch.Tensor)))
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _parameters(module, example_inputs) -> dict:
    """Parameters and buffers among the inputs of a graph of Dynamo's, by position."""
    inputs = module.graph.find_nodes(op="placeholder")
    is_static = lambda node: node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None
    is_real = lambda value: isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
    given = enumerate(zip(inputs, example_inputs))
    return {at: value.detach() for at, (node, value) in given if is_real(value) and is_static(node)}


def _frozen(module, parameters) -> dict:
    """Those of the parameters that the graph does not write to, by position among the inputs of AOTAutograd's graph. It may have inputs of its own, and
    each says which one of Dynamo's it is.
    """
    from torch._functorch._aot_autograd.descriptors import PlainAOTInput

    found = {}
    for position, node in enumerate(module.graph.find_nodes(op="placeholder")):
        origin = node.meta.get("desc")
        if isinstance(origin, PlainAOTInput) and origin.idx in parameters and not any(writes_to(user, node) for user in node.users):
            found[position] = parameters[origin.idx]
    return found


class Decompositions(collections.abc.Mapping):
    """The table of `decompositions`, which is made when somebody looks into it: nobody does where AOTAutograd has kept the graphs."""

    def __init__(self, random: str, whole: frozenset):
        self._settings = random, whole

    def __getitem__(self, op):
        return decompositions(*self._settings)[op]

    def __iter__(self):
        return iter(decompositions(*self._settings))

    def __len__(self):
        return len(decompositions(*self._settings))


@functools.cache
def decompositions(random: str, whole: frozenset = frozenset()) -> dict:
    """Decompositions of operators that Litz does not have: those of PyTorch to its core operators, and those of `BESIDES`, which are core
    operators themselves. Those of `whole`, by name, stay as they are.
    """
    from torch._decomp import core_aten_decompositions, get_decompositions
    from torch._inductor import inductor_prims

    table = {**core_aten_decompositions(), **get_decompositions([getattr(aten, name) for name in BESIDES])}
    # Dynamo makes it of `addcmul_` and `addcdiv_` in optimizers. PyTorch, too, computes it in two steps.
    table[inductor_prims.fma] = lambda a, b, c: a * b + c
    # A clone that PyTorch makes when somebody writes; memory that is Litz's cannot be shared until then.
    table[aten._lazy_clone.default] = torch.clone
    is_overload = lambda op: isinstance(op, torch._ops.OpOverload)
    is_random = lambda op: torch.Tag.nondeterministic_seeded in op.tags
    if random == "eager":
        # Made of others, they would take other numbers from PyTorch's generator.
        is_needed = lambda op: not is_random(op) and not _litz.has_operator(operator_name(op))
    else:
        # Litz has dropout that drops nothing; what drops is made of random numbers. `random.py` writes the operator that takes chances.
        is_dropped = lambda op: op is aten.native_dropout.default
        is_needed = lambda op: is_dropped(op) or op is not aten.bernoulli.default and not _litz.has_operator(operator_name(op))
    is_taken = lambda op: is_overload(op) and is_needed(op) and operator_name(op) not in whole
    needed = laid_out({op: made_of for op, made_of in table.items() if is_taken(op)})
    needed[aten._embedding_bag.default] = _bags
    return {op: refusals.refusing(op, made_of) for op, made_of in needed.items()}


def _bags(weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=-1):
    """Sums of bags without the bag of each index, which the derivative finds out where it is not there. PyTorch's fast kernels leave it out, and its
    fake kernel has it where elements are bf16.
    """
    is_fast = weight.stride(1) == 1 and padding_idx < 0 and (per_sample_weights is None or per_sample_weights.stride(0) == 1)
    if mode != 0 or weight.dtype != torch.bfloat16 or not is_fast:
        return NotImplemented
    given = (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
    sums = aten._embedding_bag_forward_only.default(*given)[0]
    nothing = [offsets.new_zeros(sums.shape[0]) for _ in range(2)]
    return sums, indices.new_empty(0), *nothing


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


def compile_fx(module, example_inputs, options, parameters=None, kind="inference", note=None, pair=None, is_wrapped=False):
    """Compiles a graph of ATen operators to a function of a list of arguments. PyTorch runs a graph that Litz cannot compile. With `is_wrapped`
    arguments are tensors from inside of others, which may be fake in one call and not in the next.
    """
    start = time.perf_counter()
    donated = pair.donated() if kind == "backward" else frozenset()
    try:
        # Constants are real tensors, and what depends on them alone is computed at once.
        flex.write_out(module, decompositions(options.random))
        with _disable_current_modes():
            compiled, converted = _compile(module, options, _frozen(module, parameters or {}), kind, donated)
    except LitzError as error:
        if options.fallback == "error" or isinstance(error, CacheError):
            if kind == "backward":
                # It may be compiled together with its forward graph, and never be called.
                return Left(_raising(error))
            raise
        reason = str(error).splitlines()[0] if isinstance(error, UnsupportedError) else f"a mistake of Litz: {error}"
        if note is not None:
            note(kind, None, reason)
        _leave(options, reason)
        return Left(module)
    finally:
        counters.TOTALS.seconds += time.perf_counter() - start
    if kind == "forward":
        pair.returns(module, converted)
    if note is not None:
        note(kind, compiled, None)
    return Function(module, converted, compiled, options, is_wrapped)


def _raising(error):
    def run(*args):
        raise error

    return run


def _compile(module, options, frozen, kind, donated):
    hosted = {*options.hosted()}
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
            compiled = compiled_of(converted, options)
            break
        except LitzError as error:
            # One call that Litz cannot take, of an operator that it has, is no reason to give up all of the graph.
            op = _refused(error)
            if op is None or op in hosted or host.overload(op) in OFFSETS or options.fallback == "error":
                raise
            hosted.add(op)
    return compiled, converted


def _refused(error) -> str | None:
    """The operator that an error begins with, where PyTorch has it."""
    found = re.match(r"error\[[\w-]+\]: ([\w.]+?\.[\w.]+?\.\w+)(?=[: ])", str(error))
    return found[1] if found and host.HOST.declaration(found[1]) else None


def _leave(options, reason):
    """Counts, and warns of, a graph that is left to PyTorch as a whole."""
    counters.TOTALS.eager_graphs[reason] += 1
    if options.fallback == "warn":
        warn(reason, f"litz: PyTorch runs a graph, for {reason}")
