"""Compiled graphs as AOTAutograd calls them. They can be pickled, so that AOTAutograd keeps what it made of a model for other processes."""

import io
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch._inductor.output_code import OutputCode
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from . import _litz, collectives, counters, host, keeping
from .caching import options_here, with_frozen, without_frozen
from .errors import InternalError, UnsupportedError
from .converting import Converted
from .folders import folder_of_its_own
from .library import OnGpu, Torch
from .options import Options
from .writer import Given

# What there was a warning of: operators, and reasons why PyTorch runs a graph.
_warned = set()

# Why PyTorch runs a graph of tensors that have no memory which a kernel could read.
FAKE = "fake tensors, which have no data"


class Function(OutputCode):
    """A graph that Litz has compiled: a function of a list of arguments, which it empties."""

    def __init__(self, module: torch.fx.GraphModule, converted: Converted, compiled: Any, options: Options, is_wrapped: bool = False):
        """`compiled` is what Litz made of `converted`, which says the same as `module`. With `is_wrapped`, arguments are tensors from inside of
        others, which may be fake in one call and not in the next.
        """
        super().__init__()
        self.converted, self.options, self.is_wrapped = converted, options, is_wrapped
        self._module, self._kept = module, None
        self._begin(compiled)

    def _begin(self, compiled):
        self.compiled = self._kept_by_options(compiled)
        # AOTAutograd gives the arguments as a list to a function that says so. Wrappers take over what instances say.
        self._boxed_call = True
        # One that leaves all arguments as they are, once a call is to.
        self._keeping = None
        self._offsets = [*self.converted.offsets.items()]
        # Operators that PyTorch runs ask for the device of the calls that they are in.
        self._has_host_operators = bool(compiled.fallbacks)
        # Until the first call, which compares them with those of other processes.
        self._exchanges = self.converted.exchanges
        host.HOST.ordered.update(self.converted.ordered)
        counters.note(self, compiled)

    def _kept_by_options(self, compiled):
        """What is called: with options that keep calls, something that does so."""
        keeps = self.options.keep_failures is not None or self.options.keep_calls is not None
        return keeping.Keeping(compiled, self.converted, self.options) if keeps else compiled

    def __call__(self, args: list) -> list:
        if len(args) != self.converted.arguments:
            # Positions would mean something else than what was compiled.
            raise InternalError(f"AOTAutograd calls a graph of {self.converted.arguments} arguments with {len(args)}")
        if self.is_wrapped and has_fake(args):
            if self.options.fallback == "error":
                raise UnsupportedError(FAKE)
            return self._left(args)
        # Dynamo guards neither levels of forward derivatives nor where tensors begin in their storages.
        if forward_ad._current_level >= 0 and any(map(_is_dual, args)):
            return self._left(args)
        for position, offset in self._offsets:
            if args[position].storage_offset() != offset:
                return self._left(args)
        if self.converted.apart and any(_overlaps(args[position]) for position in self.converted.apart):
            return self._left(args)
        converted, compiled = self.converted, self.compiled
        if converted.donates and torch._C._autograd._get_current_graph_task_keep_graph():
            compiled = self._that_keeps()
        for position in converted.lazy:
            args[position] = _resolved(args[position])
        for position in converted.awaited:
            collectives.finish(args[position])
        if self._exchanges:
            collectives.ORDERS.check(self._exchanges)
            self._exchanges = None
        if converted.is_seeded:
            args.append(torch.empty((), dtype=torch.int64, device="cpu").random_())
        if self._has_host_operators:
            host.HOST.works_on(converted.gpu)
        before = host.HOST.effects() if converted.ordered else 0
        try:
            if converted.objects:
                with self._shown(args):
                    results = compiled(args)
            else:
                results = compiled(args)
        except _litz.CheckError as error:
            # What has effects is not to be run twice.
            if getattr(error, "is_of_operator", False) or converted.ordered and host.HOST.effects() != before:
                raise
            # Sizes that the graph was not compiled for; nothing has been written so far.
            if converted.is_seeded:
                args.pop()
            return self._left(args)
        args.clear()
        return results

    def _shown(self, args):
        """Lets operators of PyTorch's see the objects that they are to be given."""
        objects = self.converted.objects.items()
        return host.HOST.showing({name: args[of.position] if isinstance(of, Given) else of for name, of in objects})

    def _left(self, args):
        """Has PyTorch run the graph in a call that it was not compiled for."""
        counters.TOTALS.eager_calls += 1
        results = self.module(*args)
        args.clear()
        return results

    def _that_keeps(self):
        """The compiled graph for calls of `backward` that keep what the forward graph has saved, for another one."""
        if self._keeping is None:
            compiled = compiled_of(self.converted, self.options, donates=False)
            counters.note(self, compiled)
            self._keeping = self._kept_by_options(compiled)
        return self._keeping

    @property
    def module(self) -> Callable[..., Any]:
        """The graph as PyTorch runs it."""
        if self._module is None:
            with _disable_current_modes():
                self._module = pickle.loads(pickle.loads(self._kept)["module"])
        return self._module

    # The rest is what AOTAutograd's cache asks for.

    def __getstate__(self) -> dict:
        """What another process needs, as bytes: AOTAutograd reads its entries in modes that would make fake tensors of what is in them."""
        if self._kept is None:
            try:
                with _disable_current_modes():
                    converted = replace(self.converted, constants=without_frozen(self.converted.constants))
                    state = {"converted": converted, "module": _Code.of(self._module)}
                    self._kept = pickle.dumps(state)
            except Exception as error:
                raise _bypass()(f"a graph that cannot be pickled: {error}") from error
        return {"_kept": self._kept}

    def prepare_for_serialization(self) -> None:
        """Nothing is left to do for a copy, which has been made by `__getstate__`."""

    def post_compile(self, example_inputs, constants, graph_kwargs) -> None:
        """Compiles the graph that another process has left. Litz's own cache has the code of it."""
        start = time.perf_counter()
        with _disable_current_modes():
            state = pickle.loads(self._kept)
            converted = state["converted"]
            self.converted = replace(converted, constants=with_frozen(converted.constants))
            self.options, self.is_wrapped, self._module = options_here(), False, None
            self._begin(compiled_of(self.converted, self.options))
        counters.TOTALS.seconds += time.perf_counter() - start


class Left(OutputCode):
    """A graph that PyTorch runs as a whole, or a function that takes its place. Each process finds out anew why."""

    def __init__(self, run: Callable[..., Any]):
        super().__init__()
        self._run, self._boxed_call = run, True

    def __call__(self, args: list) -> list:
        results = self._run(*args)
        args.clear()
        return results

    def __getstate__(self) -> dict:
        raise _bypass()("a graph that Litz leaves to PyTorch")


class _Code(pickle.Pickler):
    """Pickles graphs without what is noted about them, such as fake tensors."""

    @staticmethod
    def of(module: torch.fx.GraphModule) -> bytes:
        stream = io.BytesIO()
        _Code(stream).dump(module)
        return stream.getvalue()

    def reducer_override(self, obj):
        if not isinstance(obj, torch.fx.GraphModule):
            return NotImplemented
        make, (state, *rest) = obj.__reduce__()
        return make, (state | {"meta": {}}, *rest)


def _bypass() -> type[Exception]:
    """What tells AOTAutograd not to keep a graph."""
    from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache

    return BypassAOTAutogradCache


def compiled_of(converted: Converted, options: Options, donates: bool = True) -> Any:
    """What Litz makes of a graph. Without `donates`, calls leave all arguments as they are. Says what tuning found, and warns, once an operator, of
    what PyTorch runs.
    """
    native = options.native() | {"host": host.HOST, "fallback": options.fallback != "error"}
    if options.dump is not None:
        native["dump"] = folder_of_its_own(options.dump)
    if converted.gpu is not None:
        native["gpu"] = converted.gpu
    try:
        compiled = _litz.compile_graph(
            converted.text,
            Torch if converted.gpu is None else OnGpu(converted.gpu),
            constants={name: constant.cpu() for name, constant in converted.constants.items()},
            taken=converted.taken,
            returned=converted.returned,
            options=native,
            donates=donates,
        )
    except InternalError as error:
        if options.keep_failures is not None:
            keeping.write(options.keep_failures, converted, (), str(error))
        raise
    _tell(compiled.tuned)
    if options.fallback == "warn":
        for op, count, source in compiled.host_operators:
            at = f", first at {source}" if source else ""
            warn(op, f"litz: PyTorch runs {op} ({count} in this graph{at})")
    return compiled


def _tell(tuned):
    """Says on standard error what tuning found."""
    if tuned is None:
        return
    gain, tried, kept, why = tuned
    found = f"a graph is not tuned: {why}" if why else f"tuned a graph: {gain:.2f} times as fast, by {kept} of {tried} candidates"
    print(f"litz: {found}", file=sys.stderr)


def warn(once: str, message: str) -> None:
    """Warns of something, once."""
    if once not in _warned:
        _warned.add(once)
        warnings.warn(message, stacklevel=2)


def has_fake(values, tracing=None) -> bool:
    """Whether there are fake tensors among some values, but for those of a mode that Dynamo traces with. They stand for real ones where it compiles
    a graph in parts, as it does for `DistributedDataParallel`.
    """
    return any(isinstance(value, FakeTensor) and value.fake_mode is not tracing for value in values)


def _overlaps(tensor) -> bool:
    """Whether a stride steps into what smaller strides reach, but for those that repeat elements."""
    reach = 1
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1):
        if 0 < stride < reach:
            return True
        reach += (size - 1) * stride
    return False


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
