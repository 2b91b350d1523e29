"""Writes lines of a text of Litz: names, types and arguments, for the values and operators of PyTorch's graphs."""

import operator
import re
from dataclasses import dataclass

import torch

from . import _litz
from .errors import NotConverted
from .host import Dispatcher
from .sizes import at_least_one, is_known, solve
from .symbols import SYMBOLIC, Symbols
from .types import DTYPES, MEMORY_FORMATS

# What the seed of a call is called.
SEED = "seed.of.call"


class Named(str):
    """The name of a value of the text."""


@dataclass(frozen=True)
class Given:
    """An object that calls give: of the argument at a position of the whole graph."""

    position: int

    @property
    def name(self) -> str:
        """What texts have in its place. The host knows it by that."""
        return f"argument {self.position}"


class Writer:
    """The lines of one graph's text, and what its values are called. `outer` is the writer of the graph that it is inside of."""

    def __init__(self, module, outer=None, is_seeded=False, is_backward=False):
        self.outer = outer
        self.is_backward = outer.is_backward if outer else is_backward
        self.lines, self.prefix = [], ""
        # Names of values in the text, where they are not those of the nodes.
        self.names = {}
        # Of multiple results: node -> {index: name}.
        self.parts = {}
        # Nodes that stand for a number, a string or None, which texts have as it is.
        self.literals = {}
        # Declarations of operators that PyTorch runs, by name.
        self.declared = {}
        # Objects that operators are given, by the names that the text has for them.
        self.objects = {}
        # How many random operators there are so far; none where PyTorch runs them.
        self.streams = 0 if is_seeded else None
        around = outer.symbols if outer else None
        solved, wholes = (around.solved, around.wholes) if around else solve(*numbers_given(module))
        self.symbols = Symbols(self.lines.append, solved, wholes, around)
        # Names of floats and conditions that are values of the text.
        self.held = set()
        # What symbols are in types, that are strides of an input which calls copy.
        self.rows = outer.rows if outer else {}

    def root(self):
        """The writer of the whole graph."""
        return self.outer.root() if self.outer else self

    def line(self, text, node):
        """Appends a line, with the line of the user's program that a node comes from."""
        self.lines.append(text + "".join(f" {word} {quoted(part)}" for word, part in _origin(node)))

    def declare(self, op, effect=None):
        """Declares an operator that Litz does not have, or that has an effect, so that its calls keep their order."""
        root = self.root()
        if op not in root.declared and (effect or not _litz.has_operator(op)):
            declaration = Dispatcher.declaration(op, self.is_backward)
            if declaration is None:
                raise NotConverted(f"the operator {op}")
            if effect:
                # The effect comes before the tags.
                head, *tags = declaration.split(" tag ")
                declaration = " tag ".join([f"{head} effect {effect}", *tags])
            root.declared[op] = f"op {declaration}"
            self._declare_twin(op)

    def _declare_twin(self, op):
        """Declares the operator that does in place what one does, where PyTorch has it. Litz compares both, and calls it on memory of its own."""
        packet, overload = op.rsplit(".", 1)
        twin = f"{packet}_.{overload}"
        root = self.root()
        if twin not in root.declared and not _litz.has_operator(twin) and (declaration := Dispatcher.declaration(twin, self.is_backward)):
            root.declared[twin] = f"op {declaration}"

    def name(self, node) -> str:
        """The name of a node's value."""
        return self.names.get(node, self.prefix + node.name)

    @staticmethod
    def named(name):
        """A value by its name, as an argument."""
        return Named(name)

    @staticmethod
    def seed() -> str:
        """The name of the seed of a call."""
        return SEED

    def stream(self) -> int:
        """A number for one more random operator."""
        self.streams += 1
        return self.streams - 1

    # Types.

    def expr(self, value) -> str:
        """The text of an integer."""
        return self.symbols.integer(self.symbols.expr(value))

    def _stride(self, value, steps) -> str:
        """The text of a stride. PyTorch's strides are products of sizes that count as 1 at least, for tensors without elements. Litz's are plain
        products, as strides of tensors without elements do not matter.
        """
        return self.symbols.integer(at_least_one(self.symbols.expr(value)).xreplace(steps or {}))

    def type(self, value, steps=None) -> str:
        """The text of a value's type. Of strides, `steps` says what stands for some symbols."""
        if isinstance(value, torch.Tensor):
            sized = self.row_major(value)
            strides = ", ".join(self._stride(stride, steps) for stride in value.stride())
            return sized + (f"{{{strides}}}" if strides else "")
        if isinstance(value, (torch.SymBool, bool)):
            return "bool"
        if isinstance(value, (torch.SymInt, int)):
            return f"int({self.expr(value)})"
        if isinstance(value, (torch.SymFloat, float)):
            return "float"
        raise NotConverted(f"a value of type {type(value).__name__}")

    def _result(self, node, value, steps) -> str:
        """The text of the type of a result. Tracing says of some with memory of their own that elements share it: these lie row by row."""
        owns = isinstance(node.target, torch._ops.OpOverload) and not any(part.alias_info for part in node.target._schema.returns)
        if owns and isinstance(value, torch.Tensor) and any(is_known(stride, 0) and not is_known(size, 1) for size, stride in zip(value.shape, value.stride())):
            return self.row_major(value)
        return self.type(value, steps)

    def row_major(self, value) -> str:
        """The text of a tensor's type, but for its strides."""
        if value.layout != torch.strided or value.is_quantized or value.is_mkldnn:
            raise NotConverted(f"a tensor of layout {value.layout}")
        if not self.is_here(value.device):
            raise NotConverted(f"a tensor on {value.device}")
        dtype = DTYPES.get(value.dtype)
        if dtype is None:
            raise NotConverted(f"elements of type {value.dtype}")
        return f"{dtype}[{', '.join(self.expr(size) for size in value.shape)}]"

    def is_here(self, device) -> bool:
        """Whether what is on a device is where the graph runs. Tensors of the host are brought there, and are computed there."""
        own = self.root().device
        return device.type == "cpu" or device.type == own.type and device.index in (None, own.index)

    # Calls.

    def results(self, node) -> str:
        """The left side of a node's line. Results of a tuple that nothing uses have no names, unless they give symbols their values."""
        value, steps = val(node), self.steps(node)
        if not isinstance(value, (list, tuple)):
            return f"%{self.name(node)}: {self._result(node, value, steps)} = "
        used = {user.args[1] for user in node.users if user.target is operator.getitem}
        whole = any(user.target is not operator.getitem for user in node.users)
        self.parts[node], texts = {}, []
        for index, part in enumerate(value):
            gives = not self.symbols.has(self.symbols.mentioned(part))
            if part is None or not (whole or gives or index in used):
                texts.append("_")
                continue
            name = f"{self.name(node)}.{index}"
            self.parts[node][index] = name
            texts.append(f"%{name}: {self._result(node, part, steps)}")
        return ", ".join(texts) + " = " if texts else ""

    def arguments(self, schema, given, keywords):
        """The texts of an operator's arguments, one for each of its schema's."""
        for position, argument in enumerate(schema.arguments):
            if position < len(given) and not argument.kwarg_only:
                value = given[position]
            elif argument.name in keywords:
                value = keywords[argument.name]
            elif argument.has_default_value():
                value = argument.default_value
            else:
                raise NotConverted(f"{schema.name}: no argument {argument.name}")
            yield self._typed(argument.type, value, argument.N)

    def _typed(self, ty, value, count=None):
        """The text of an argument of a schema's type, converted as PyTorch's dispatcher does. `count` is the length of a list that may be given as
        one element.
        """
        kind = ty.kind()
        if kind == "OptionalType":
            return "none" if value is None else self._typed(ty.getElementType(), value, count)
        if kind == "ListType":
            if not isinstance(value, (list, tuple)):
                value = [value] * (count or 1)
            return "[" + ", ".join(self._typed(ty.getElementType(), item) for item in value) + "]"
        if kind == "FloatType" and isinstance(value, int):
            value = float(value)
        if kind == "IntType" and isinstance(value, bool):
            value = int(value)
        return self.argument(value)

    def argument(self, value) -> str:
        """The text of a node's value, of a number, or of what else an operator takes."""
        if isinstance(value, torch.fx.Node):
            return self._reference(value)
        if isinstance(value, Named):
            return f"%{value}"
        if value is None:
            return "none"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, torch.SymInt)):
            return self.expr(value)
        if isinstance(value, SYMBOLIC):
            return self.symbols.number(self.symbols.expr(value))
        if isinstance(value, float):
            return _float(value)
        if isinstance(value, complex):
            return f"complex({_float(value.real)}, {_float(value.imag)})"
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(self.argument(item) for item in value) + "]"
        if isinstance(value, torch.dtype):
            if value not in DTYPES:
                raise NotConverted(f"elements of type {value}")
            return DTYPES[value]
        if isinstance(value, torch.device):
            if not self.is_here(value):
                raise NotConverted(f"the device {value}")
            # Texts speak of the one device that there is.
            return "cpu"
        if value is torch.strided:
            return "strided"
        if isinstance(value, torch.memory_format):
            return MEMORY_FORMATS[value]
        if isinstance(value, Given):
            return quoted(value.name)
        if is_object(value):
            name = f"object {len(self.root().objects)}"
            self.root().objects[name] = value
            return quoted(name)
        raise NotConverted(f"an argument of type {type(value).__name__}")

    def _reference(self, node) -> str:
        if node in self.literals:
            return self.argument(self.literals[node])
        value, name = val(node), self.name(node)
        if isinstance(value, (int, float, *SYMBOLIC)) and (name not in self.held or isinstance(value, (int, torch.SymInt))):
            return self.argument(value)
        if node in self.parts:
            return "[" + ", ".join(f"%{name}" for name in self.parts[node].values()) + "]"
        return f"%{name}"


def is_object(value) -> bool:
    """Whether a value is an object that operators take as it is: of a registered class, of one of TorchScript, or a generator."""
    from torch._library.fake_class_registry import FakeScriptObject

    if isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return False
    return isinstance(value, (FakeScriptObject, torch.ScriptObject, torch.Generator)) or _is_registered(type(value))


def _is_registered(of_type) -> bool:
    """Whether objects of a type may be arguments of operators. Versions of PyTorch have other names for that, and early ones none."""
    try:
        from torch._library import opaque_object
    except ImportError:
        return False
    is_registered = getattr(opaque_object, "is_custom_class", None) or getattr(opaque_object, "is_opaque_type", None)
    return is_registered is not None and is_registered(of_type)


def val(node):
    """What a node gives: a tensor without elements, a number, or a list of these; none where PyTorch does not say."""
    return node.meta.get("val")


def numbers_given(module):
    """Expressions of the symbolic sizes of tensors, and of integers, that a graph takes and uses."""
    values = [val(node) for node in module.graph.find_nodes(op="placeholder") if node.users]
    sizes = [size for value in values if isinstance(value, torch.Tensor) for size in value.shape]
    return [[number.node.expr for number in numbers if isinstance(number, torch.SymInt)] for numbers in (sizes, values)]


def reads_data(node) -> bool:
    """Whether a node computes its value from elements of tensors, and not from their sizes alone."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.name in _OF_SIZES:
        return False
    return any(isinstance(val(arg), torch.Tensor) for arg in node.all_input_nodes)


_OF_SIZES = ("aten::sym_size", "aten::sym_stride", "aten::sym_numel", "aten::sym_storage_offset")


def _float(value: float) -> str:
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def quoted(text: str) -> str:
    """A string as texts have it."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(char, char if char.isprintable() else f"\\u{{{ord(char):x}}}") for char in text) + '"'


def _origin(node):
    """Where a node comes from, as texts have it: the user's line, `at "model.py:12"`, and the path of the module, `in "layers.3.mlp.up"`."""
    if line := _source(node):
        yield "at", line
    if module := _module(node):
        yield "in", module


def _source(node) -> str | None:
    """The user's line: `model.py:12`."""
    trace = node.meta.get("stack_trace")
    if not trace:
        return None
    for line in reversed(trace.splitlines()):
        line = line.strip()
        if line.startswith("File ") and ", line " in line:
            path, rest = line[5:].split(", line ", 1)
            return f"{path.strip(chr(34)).rsplit('/', 1)[-1]}:{rest.split(',')[0]}"
    return None


def _module(node) -> str | None:
    """The path of the innermost module, of what Dynamo writes as `L['self'].layers[3].mlp.up`."""
    modules = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not modules:
        return None
    path = str(next(reversed(modules.values()))[0])
    parts = [part.strip("'\"") for part in re.split(r"[.\[\]]", path)]
    parts = [part for part in parts if part]
    # Behind a local variable of whoever calls, or the outermost module itself.
    outermost = {"L": 2, "self": 1}.get(parts[0] if parts else "", 0)
    return ".".join(parts[outermost:]) or None
