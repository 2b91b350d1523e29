"""Runs operators that Litz does not have by PyTorch's dispatcher."""

import contextlib
import functools
import re
import threading

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from . import _litz, collectives
from .types import NUMBERED_FORMATS, SCALAR_TYPES

# Operators whose results depend on the strides of their operands.
BY_LAYOUT = {
    "as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter", "set_", "resize_", "view", "view_as_real",
    "_embedding_bag", "_embedding_bag_forward_only",
}  # fmt: skip


def overload(name: str):
    """The operator that a text calls `namespace.name.overload`; none where PyTorch has none of that name.

    It is looked up anew each time, as programs may define an operator of theirs once more.
    """
    parts = name.split(".")
    if len(parts) < 3:
        return None
    namespace, packet, which = ".".join(parts[:-2]), parts[-2], parts[-1]
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), which)
    except (AttributeError, RuntimeError):
        return None


def _constraint(op, is_backward) -> str:
    tags = op.tags
    for tag, constraint in (
        ("needs_exact_strides", "exact"),
        ("needs_contiguous_strides", "contiguous"),
        ("needs_fixed_stride_order", "order"),
        ("flexible_layout", "any"),
    ):
        if getattr(torch.Tag, tag, None) in tags:
            return constraint
    if op.namespace != "aten" or op._schema.name.split("::")[1] in BY_LAYOUT:
        return "exact"
    # Kernels of derivatives may take it for granted that the gradient is contiguous, as eager mode, whose formulas see to it, always has it.
    return "contiguous" if is_backward and not op._schema.is_mutable else "any"


class Dispatcher:
    """The host of compiled graphs, which `_litz` calls for operators that Litz does not have."""

    @staticmethod
    def declaration(name: str, is_backward: bool = False):
        """Schema, layout of operands and tags of an operator, as a text of Litz says them. Operands of PyTorch's own are contiguous in backward graphs."""
        op = overload(name)
        if not isinstance(op, torch._ops.OpOverload):
            return None
        # The name of a single result says nothing.
        schema = re.sub(r"-> (\S+) \w+$", r"-> \1", str(op._schema))
        text = f"{name}{schema[schema.index('('):]} {_constraint(op, is_backward)}"
        if torch.Tag.nondeterministic_seeded in op.tags:
            text += " tag nondeterministic_seeded"
        return text

    def __init__(self):
        # Operators of others that were called, and whether one of their calls kept what it was given, as an operator does that notes it.
        self.keeps = {}
        # Operators with effects, and how many calls of these each thread has made.
        self.ordered, self._made = set(), threading.local()

    def effects(self) -> int:
        """How many calls of operators with effects this thread has made."""
        return getattr(self._made, "calls", 0)

    def works_on(self, gpu: int | None) -> None:
        """Has this thread's calls run operators on a GPU, or with `None` on the host."""
        self._made.device = None if gpu is None else torch.device("cuda", gpu)

    @contextlib.contextmanager
    def showing(self, objects: dict):
        """Has the operators that this thread runs find objects by their names."""
        outer = getattr(self._made, "objects", {})
        self._made.objects = objects
        try:
            yield
        finally:
            self._made.objects = outer

    def call(self, name: str, args: list, results: list) -> list:
        """Runs an operator on `args`, one for each of its schema's, and copies what it gives into those of `results` that are wanted. Tensors whose
        sizes the operator decides are returned.

        The memory of `args` is Litz's, and others' from the end of the call on. Operators that keep it get copies, which the first call of an
        operator finds out.
        """
        if name in self.ordered:
            self._made.calls = self.effects() + 1
        op = overload(name)
        given = [_number(arg) if is_number else arg for arg, is_number in zip(map(_object, args), _numbers(op))]
        for at in _objects(op):
            given[at] = self._found(given[at])
        # The caller has no use for them.
        args.clear()
        # Nobody has what a collective was given when it is over.
        is_collective = collectives.is_collective(op)
        is_copied = op.namespace != "aten" and not is_collective and self.keeps.get(name, True)
        # What is written is to be seen by others in the same memory.
        written = [arg for argument, arg in zip(op._schema.arguments, given) if _is_written(argument)]
        shared = {tensor.untyped_storage()._cdata for tensor in _tensors(written)}
        is_own = [is_copied and all(tensor.untyped_storage()._cdata not in shared for tensor in _tensors(arg)) for arg in given]
        del written
        given = [_copied(arg) if is_one else arg for arg, is_one in zip(given, is_own)]
        own, lent = (_storages(arg for arg, is_one in zip(given, is_own) if is_one is kind) for kind in (True, False))
        try:
            decided = _run(op, name, given, results, getattr(self._made, "device", None))
        except BaseException as error:
            # The traceback keeps what the operator was given.
            _forbid(lent, name)
            if isinstance(error, _litz.CheckError):
                # Of a model that the operator has called, and not of the graph that calls the operator.
                error.is_of_operator = True
            raise
        if is_collective:
            return decided
        own, lent = ([storage for storage in storages if not storage.expired()] for storages in (own, lent))
        self.keeps[name] = bool(own or lent) or self.keeps.get(name, False)
        _forbid(lent, name)
        return decided

    def _found(self, arg):
        """An argument with objects in the place of their names. Other strings are what they are, such as the name of a group of processes."""
        if isinstance(arg, list):
            return [self._found(item) for item in arg]
        return getattr(self._made, "objects", {}).get(arg, arg) if isinstance(arg, str) else arg


# The host of all graphs of this process.
HOST = Dispatcher()


def _run(op, name, given, results, device=None) -> list:
    """Runs an operator, on copies where that is to be on a device and tensors are not there, and empties the list of what it was given. Results whose sizes the operator decides."""
    ours = [tensor for argument, arg in zip(op._schema.arguments, given) if _is_written(argument) for tensor in _tensors(arg)]
    if device is not None:
        given[:] = [_moved(arg, device) for arg in given]
    keywords = _keywords(op)
    if name == "aten.view.dtype" and given[0].shape[-1:] == (1,):
        # PyTorch wants the last stride to be 1 even where the dimension has one element, and Litz gives such a stride any value.
        given[0] = given[0].as_strided(given[0].shape, (*given[0].stride()[:-1], 1))
    positional = len(given) - len(keywords)
    written = [tensor for argument, arg in zip(op._schema.arguments, given) if _is_written(argument) for tensor in _tensors(arg)]
    before = [_place(tensor) for tensor in written]
    outcome = op(*given[:positional], **dict(zip(keywords, given[positional:])))
    if op.namespace != "aten":
        # What it has begun is over before anybody reads it, or takes the memory of its operands for other things.
        collectives.finish(outcome)
    if device is not None:
        for tensor, moved in zip(ours, written, strict=True):
            if moved is not tensor:
                tensor.copy_(moved)
    ours.clear()
    if [_place(tensor) for tensor in written] != before:
        raise RuntimeError(f"{name} gave an argument other memory, sizes or strides, which others have no way to see")
    given.clear()
    written.clear()
    if not results:
        # It has written to its arguments.
        return []
    flat, decided = [], []
    _flatten(outcome, flat)
    for at, (result, value) in enumerate(zip(results, flat, strict=True)):
        if result is not None:
            if value is None:
                raise RuntimeError(f"{name} gave no tensor for result {at}, which the graph reads")
            if isinstance(result, tuple):
                _, number = result
                if value.dtype != SCALAR_TYPES[number]:
                    raise RuntimeError(f"{name} gave {value.dtype}, expected {SCALAR_TYPES[number]}")
                decided.append(value.detach().cpu())
            elif isinstance(value, torch.Tensor):
                if value.shape != result.shape:
                    raise RuntimeError(f"{name} gave {tuple(value.shape)}, expected {tuple(result.shape)}")
                result.copy_(value)
            else:
                result.fill_(value)
    return decided


def _moved(arg, device):
    """An argument on another device."""
    if isinstance(arg, list):
        return [_moved(item, device) for item in arg]
    if isinstance(arg, torch.device):
        return device
    return arg.to(device) if isinstance(arg, torch.Tensor) else arg


def _is_written(argument) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _storages(args) -> list:
    """What the tensors among arguments, and in lists among them, have their elements in, without keeping it."""
    return [StorageWeakRef(tensor.untyped_storage()) for arg in args for tensor in _tensors(arg)]


def _tensors(arg) -> list:
    """The tensors that an argument is, or that are in the list that it is."""
    if isinstance(arg, list):
        return [tensor for item in arg for tensor in _tensors(item)]
    return [arg] if isinstance(arg, torch.Tensor) else []


def _place(tensor) -> tuple:
    """Where a tensor has its elements."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _copied(arg):
    """An argument with tensors that have memory of their own, and the same strides."""
    if isinstance(arg, list):
        return [_copied(item) for item in arg]
    if not isinstance(arg, torch.Tensor) or not arg.numel():
        return arg
    last = sum((size - 1) * stride for size, stride in zip(arg.shape, arg.stride()))
    return arg.as_strided((last + 1,), (1,)).clone().as_strided(arg.shape, arg.stride())


def _forbid(kept, name):
    """Has PyTorch raise where somebody reads tensors whose memory is gone."""
    message = f"litz: what {name} was given is gone when its call is over: let it keep a clone"
    for storage in kept:
        torch._C._set_storage_data_ptr_access_error_msg(storage.cdata, message)


@functools.cache
def _numbers(op) -> list[bool]:
    """Which of an operator's arguments are numbers, or lists of these."""
    def of(ty):
        return of(ty.getElementType()) if ty.kind() in ("OptionalType", "ListType") else ty.kind()

    return [of(argument.type) in ("NumberType", "FloatType", "IntType", "BoolType") for argument in op._schema.arguments]


def _number(arg):
    """A number, which is a tensor without dimensions where the graph has computed it."""
    if isinstance(arg, list):
        return [_number(item) for item in arg]
    return arg.item() if isinstance(arg, torch.Tensor) else arg


@functools.cache
def _keywords(op):
    """Which of an operator's arguments go by name."""
    return [argument.name for argument in op._schema.arguments if argument.kwarg_only]


@functools.cache
def _objects(op):
    """Which of an operator's arguments are objects of some class, by position: texts have names of these."""
    of_class = []
    for at, argument in enumerate(op._schema.arguments):
        ty = argument.type
        while ty.kind() in ("OptionalType", "ListType"):
            ty = ty.getElementType()
        if ty.kind() in ("PyObjectType", "ClassType", "GeneratorType", "AnyType", "AnyClassType"):
            of_class.append(at)
    return of_class


def _object(arg):
    """An argument as the dispatcher takes it."""
    if isinstance(arg, list):
        return [_object(item) for item in arg]
    if isinstance(arg, tuple):
        kind, number = arg
        if kind == "dtype":
            return SCALAR_TYPES[number]
        if kind == "device":
            return torch.device("cpu")
        if kind == "layout":
            return torch.strided
        return NUMBERED_FORMATS[number]
    return arg


def _flatten(outcome, flat):
    if isinstance(outcome, (list, tuple)):
        for item in outcome:
            _flatten(item, flat)
    else:
        flat.append(outcome)
