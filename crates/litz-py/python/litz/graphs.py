"""Makes graphs of torch.fx of the modules that `litz compile --to fx` writes, and defines the operators `litz::launch` and `litz::routine`.

Memory is a vector. Each step of a program becomes the nodes that its method makes; sizes are nodes where they depend on an argument, and
numbers where they do not.
"""

import hashlib
import inspect
import itertools
import math
import operator

import torch
from torch import fx

from . import _litz
from .errors import InvalidError, UnsupportedError
from .host import overload
from .stored import beside
from .types import DTYPES, MEMORY_FORMATS

__all__ = ["Nodes", "beside", "graph_module"]

aten = torch.ops.aten
cond, while_loop = torch.ops.higher_order.cond, torch.ops.higher_order.while_loop

TYPES = {name: dtype for dtype, name in DTYPES.items()}
FORMATS = {name: format for format, name in MEMORY_FORMATS.items()}

# Types whose elements PyTorch sorts.
SORTED = {"bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"}

# Kernels that nodes launch, by what nodes call them.
_KERNELS = {}

_OPERATORS = torch.library.Library("litz", "DEF")
_OPERATORS.define("launch(str kernels, str kernel, Tensor[] reads, Tensor(a!)[] writes, SymInt[] sizes) -> ()")
_OPERATORS.define("routine(str name, Tensor[] reads, Tensor(a!)[] writes, SymInt[] ints, str? message=None) -> ()")


def _launch(kernels, kernel, reads, writes, sizes):
    loaded = _KERNELS.get(kernels)
    if loaded is None:
        raise InvalidError(f"kernels {kernels} are not loaded: call `build` of the module that has them in this process")
    loaded.launch(kernel, _detached(reads), _detached(writes), list(sizes))


def _routine(name, reads, writes, ints, message=None):
    _litz.routine(name, _detached(reads), _detached(writes), list(ints), message=message)


def _detached(tensors):
    return [tensor.detach() for tensor in tensors]


for _name, _run in (("launch", _launch), ("routine", _routine)):
    _OPERATORS.impl(_name, _run, "CPU")
    # Neither gives anything but what it writes.
    _OPERATORS.impl(_name, lambda *args, **kwargs: None, "Meta")


def load_kernels(text: str, target: str, options: dict | None = None) -> str:
    """Makes code of kernels for a target, once for each text; gives what nodes call them."""
    options = {"target": target, **(options or {})}
    handle = hashlib.sha256(repr((text, sorted(options.items()))).encode()).hexdigest()[:16]
    if handle not in _KERNELS:
        _KERNELS[handle] = _litz.Kernels(text, options=options)
    return handle


@fx.node.has_side_effect
def check(condition, message):
    """Fails unless a condition on sizes holds."""
    torch._check(condition, lambda: message)


def as_tensor(x, dtype):
    """A number as a tensor without dimensions; a tensor as it is."""
    return x if isinstance(x, torch.Tensor) else torch.scalar_tensor(x, dtype=dtype)


def graph_module(main, load, kernels: str, target: str, constants: dict, options: dict | None = None) -> fx.GraphModule:
    """The graph of a module's functions. What `load` does is done here, once: its results are buffers."""
    handle = load_kernels(kernels, target, options)
    loading = Nodes(handle)
    loading.given = constants
    loading.graph.output({name: memory.node for name, memory in load(loading).items()})
    with torch.no_grad():
        kept = fx.GraphModule(loading.module, loading.graph)()
    nodes = Nodes(handle)
    nodes.given = {name: (nodes.buffer(name, memory), memory) for name, memory in kept.items()}
    params = list(inspect.signature(main).parameters)[1:]
    nodes.graph.output(_nodes(main(nodes, *(nodes.placeholder(name) for name in params))))
    nodes.graph.lint()
    return fx.GraphModule(nodes.module, nodes.graph, main.__name__)


def from_text(text: str, constants: dict, options: dict | None = None) -> fx.GraphModule:
    """The graph of the text of a module."""
    module = {"__name__": "litz.graph"}
    exec(compile(text, "<a program of Litz as a graph>", "exec"), module)
    return module["build"](constants, options)


class Nodes:
    """The machine that makes a node, or several, of each step."""

    def __init__(self, handle: str):
        self._handle = handle
        self.graph, self.module = fx.Graph(), torch.nn.Module()
        self._tracer = fx.proxy.GraphAppendingTracer(self.graph)
        # What there is before: constants by their names, or what `load` has made.
        self.given = {}
        # Of memory and of views, by their nodes: the type of the elements, how many there are, and what a view is of.
        self._dtypes, self._extents, self._viewed = {}, {}, {}
        # Of what was passed with its layout: the argument, and a tensor with its new contents.
        self._inputs = {}
        # Tensors whose sizes an operator has decided, by the memory that has the sizes.
        self._decided = {}

    def attribute(self, name: str) -> str:
        """The name of an attribute that the graph's module does not have: this one, or one with a number behind it."""
        names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
        return next(name for name in names if not hasattr(self.module, name))

    def buffer(self, name: str, tensor) -> str:
        """Gives the graph's module a buffer; the name that it has."""
        name = self.attribute(name)
        self.module.register_buffer(name, tensor)
        return name

    def placeholder(self, name: str):
        return fx.Proxy(self.graph.placeholder(name), self._tracer)

    def _node(self, target, *args, **kwargs):
        return self._tracer.create_proxy("call_function", target, args, kwargs)

    def _attribute(self, name):
        return fx.Proxy(self.graph.create_node("get_attr", name, (), {}), self._tracer)

    def _memory(self, proxy, dtype, extent=None):
        self._dtypes[proxy.node], self._extents[proxy.node] = dtype, extent
        return proxy

    # Sizes.

    def min(self, a, b):
        return min(a, b) if _are_known(a, b) else self._node(torch.sym_min, a, b)

    def max(self, a, b):
        return max(a, b) if _are_known(a, b) else self._node(torch.sym_max, a, b)

    def size(self, x, dim, rest=0, coefficient=1, within=(None, None), multiple=1):
        """The symbol of which the size of an argument is `rest + coefficient * symbol`."""
        value = self._node(aten.sym_size.int, x, dim)
        if isinstance(coefficient, fx.Proxy):
            self._node(check, coefficient != 0, f"input {x.node.name}, dimension {dim}: a size that is a multiple of it 0 times has no value")
        if not (_are_known(rest, coefficient) and (rest, coefficient) == (0, 1)):
            value = (value - rest) // coefficient
        self._expect(value, within, multiple, f"input {x.node.name}, dimension {dim}")
        return value

    def check(self, conditions, message):
        """Fails unless one of the conditions holds."""
        if any(condition is True for condition in conditions):
            return
        any_holds = conditions[0] if conditions else False
        for condition in conditions[1:]:
            any_holds = self._node(operator.or_, any_holds, condition)
        self._node(check, any_holds, message)

    def _expect(self, value, within, multiple, what):
        """Fails where the value of a size symbol is none that the program is for."""
        low, high = within
        message = f"{what}: expected a size from {low} to {high}" + (f" that {multiple} divides" if multiple != 1 else "")
        if low is not None:
            self._node(check, value >= low, message)
        if high is not None:
            self._node(check, value <= high, message)
        if multiple != 1:
            self._node(check, value % multiple == 0, message)

    # What comes from outside.

    def constant(self, name, dtype, extent, sizes, strides=None):
        """A constant as a vector."""
        if name not in self.given:
            raise InvalidError(f"there is no constant {name}: pass `build(constants)` one of type {dtype} and sizes {sizes}")
        found = self.given[name]
        if isinstance(found, tuple):
            of, shape, data = found
            found = torch.frombuffer(data, dtype=TYPES[of]) if len(data) else torch.empty(0, dtype=TYPES[of])
            found = found.reshape(shape)
        if found.dtype != TYPES[dtype] or list(found.shape) != sizes:
            raise InvalidError(f"constant {name}: expected {dtype}{sizes}, found {DTYPES[found.dtype]}{list(found.shape)}")
        attribute = self.buffer("constant", found.detach())
        return self._vector(self._attribute(attribute), dtype, extent, sizes, strides)[0]

    def state(self, name, dtype, extent, sizes, strides=None):
        """A constant that calls write to: memory of its own, which lives from call to call."""
        return self.own(self.constant(name, dtype, extent, sizes, strides))

    def kept(self, name):
        """What `load` has made: a buffer."""
        attribute, memory = self.given[name]
        return self._memory(self._attribute(attribute), DTYPES[memory.dtype], memory.shape[0])

    def input(self, name, x, dtype, extent, sizes, strides=None):
        """An argument as a vector, which has its elements where they are in memory that lies so."""
        given = x
        if not sizes:
            x = self._node(as_tensor, x, TYPES[dtype])
        self._node(aten._assert_tensor_metadata.default, x, sizes, None, TYPES[dtype])
        flat, tensor = self._vector(x, dtype, extent, sizes, strides)
        self._inputs[flat.node] = (given, tensor)
        return flat

    def own(self, x):
        """Memory of the program's own with what an argument holds, which stays as it is."""
        return self._memory(self._node(aten.clone.default, x), self._dtypes[x.node], self._extents[x.node])

    def give(self, x):
        """Leaves new contents in an argument."""
        given, tensor = self._inputs[x.node]
        self._node(aten.copy_.default, given, tensor)

    def _vector(self, x, dtype, extent, sizes, strides):
        """A tensor as a vector, and as a tensor in the memory of that."""
        if strides is None:
            tensor = self._node(aten.contiguous.default, x)
        else:
            # Of elements that share memory one is enough.
            shared = [isinstance(stride, int) and stride == 0 for stride in strides]
            for dim in itertools.compress(itertools.count(), shared):
                x = self._node(aten.slice.Tensor, x, dim, 0, 1)
            sizes = [1 if is_one else size for size, is_one in zip(sizes, shared)]
            tensor = self._strided_memory(dtype, sizes, strides)
            self._node(aten.copy_.default, tensor, x)
        flat = self._node(aten.view.default, tensor, [extent]) if strides is None else self._node(aten.as_strided.default, tensor, [extent], [1])
        return self._memory(flat, dtype, extent), tensor

    # Steps.

    def empty(self, dtype, extent):
        """Memory for so many elements."""
        return self._memory(self._strided_memory(dtype, [extent], [1]), dtype, extent)

    def _strided_memory(self, dtype, sizes, strides):
        return self._node(aten.empty_strided.default, sizes, strides, dtype=TYPES[dtype], device=torch.device("cpu"))

    def part(self, base, dtype, extent, offset):
        """The memory so many bytes behind the beginning of another."""
        size = TYPES[dtype].itemsize
        part = self._as_bytes(base)
        part = self._node(aten.slice.Tensor, part, 0, offset, offset + extent * size)
        if dtype != "u8":
            part = self._node(aten.view.dtype, part, TYPES[dtype])
        return self._memory(part, dtype, extent)

    def _as_bytes(self, x):
        return x if self._dtypes[x.node] == "u8" else self._node(aten.view.dtype, x, torch.uint8)

    def launch(self, kernel, reads, writes, sizes):
        """Runs a kernel."""
        self._node(torch.ops.litz.launch.default, self._handle, kernel, reads, writes, sizes)

    def copy(self, source, target):
        """Copies memory."""
        self._node(aten.copy_.default, target, source)

    def routine(self, name, reads, writes, ints, message=None):
        """Runs a routine of the runtime: as an operator of PyTorch's where that gives the same."""
        if name == "assert":
            self._node(aten._assert_async.msg, self._node(aten.all.default, reads[0]), message or "an assertion failed")
        elif name == "sort" and self._dtypes[reads[0].node] in SORTED and isinstance(ints[3], int):
            outer, length, inner, descending = ints
            x, *targets = (self.shaped(memory, [outer, length, inner]) for memory in (*reads, *writes))
            sort = self._node(aten.sort.stable, x, stable=True, dim=1, descending=descending != 0)
            for at, target in enumerate(targets):
                self.copy(self._node(operator.getitem, sort, at), target)
        else:
            self._node(torch.ops.litz.routine.default, name, reads, writes, ints, message)

    def integer(self, x, within=(None, None), multiple=1, message=None):
        """The integer, or truth value, that memory begins with: the value of a size symbol."""
        element = self._first(x)
        if self._dtypes[x.node] == "bool":
            # An integer, where `item` would give a truth value.
            element = self._node(aten.where.Scalar, element, 1, 0)
        value = self._node(aten._local_scalar_dense.default, element)
        self._expect(value, within, multiple, message or "a size")
        return value

    def _first(self, x):
        return self._node(aten.select.int, x, 0, 0)

    # Functions: graphs of their own, of which nothing is changed that they are given.

    def invoke(self, call, writes):
        """Calls a function."""
        operands = self._operands([call])
        result = self._tracer.create_proxy("call_module", self._function(call, operands), tuple(operands.values()), {})
        self._store(result, writes)

    def branch(self, condition, then, other, writes):
        """Calls one of two functions."""
        operands = self._operands([then, other])
        graphs = [self._attribute(self._function(call, operands)) for call in (then, other)]
        self._store(self._node(cond, self._first(condition), *graphs, tuple(operands.values())), writes)

    def loop(self, condition, more, body, writes):
        """Calls a function as long as another one gives a condition that holds."""
        carried = {memory.node: memory for memory in writes}
        operands = {**carried, **self._operands([more, body])}
        names = [self._function(more, operands, is_condition=True), self._function(body, operands)]
        graphs = [self._attribute(name) for name in names]
        others = tuple(operand for node, operand in operands.items() if node not in carried)
        self._store(self._node(while_loop, *graphs, tuple(carried.values()), others), writes)
        self._node(aten.fill_.Scalar, condition, False)

    def _operands(self, calls):
        """What functions are given that is no number, each once, by its node."""
        given = (operand for _, args, sizes in calls for operand in (*args, *sizes))
        return {operand.node: operand for operand in given if isinstance(operand, fx.Proxy)}

    def _function(self, call, operands, is_condition=False):
        """The name of a submodule: the graph of a function, which takes all operands."""
        function, args, sizes = call
        inner = Nodes(self._handle)
        placeholders = {node: inner.placeholder(node.name) for node in operands}
        for node, placeholder in placeholders.items():
            if node in self._dtypes:
                inner._memory(placeholder, self._dtypes[node], self._extents[node])
        given = (placeholders[one.node] if isinstance(one, fx.Proxy) else one for one in (*args, *sizes))
        results = function(inner, *given)
        inner.graph.output(inner._first(results[0]).node if is_condition else tuple(_nodes(results)))
        inner.graph.lint()
        name = self.attribute(function.__name__)
        self.module.add_module(name, fx.GraphModule(inner.module, inner.graph, function.__name__))
        return name

    def _store(self, results, writes):
        """Copies what a function has made to where its caller has it."""
        for at, target in enumerate(writes):
            self.copy(self._node(operator.getitem, results, at), target)

    # Operators of the host.

    def call(self, op, args, results, message=None):
        """Runs an operator that Litz does not have."""
        if op == "litz.take.default":
            self.copy(self._decided[self._viewed[args[0].node]], results[0])
            return
        found = overload(op)
        if found is None:
            raise UnsupportedError(f"there is no operator {op}: import what defines it before the graph is built")
        schema = found._schema
        given = [self._argument(arg, parameter.type) for arg, parameter in zip(args, schema.arguments)]
        keywords = {parameter.name: arg for parameter, arg in zip(schema.arguments, given) if parameter.kwarg_only}
        outcome = self._node(found, *given[: len(given) - len(keywords)], **keywords)
        for (value, ty), target in zip(self._returned(outcome, schema, len(results)), results):
            if target is None:
                continue
            if isinstance(target, tuple):
                self._keep(value, *target)
            elif ty.kind() == "TensorType":
                self.copy(value, target)
            else:
                self._node(aten.fill_.Scalar, target, value)

    def sizes(self, x, dtype):
        """Where the sizes go of a result whose sizes the operator decides."""
        return (x, dtype)

    def _argument(self, arg, ty):
        """An argument as the operator takes it: numbers that steps have computed are in memory."""
        while ty.kind() in ("OptionalType", "ListType"):
            ty = ty.getElementType()
        if isinstance(arg, list):
            return [self._argument(item, ty) for item in arg]
        if isinstance(arg, fx.Proxy) and arg.node in self._viewed and ty.kind() != "TensorType":
            return self._node(aten._local_scalar_dense.default, arg)
        if isinstance(arg, tuple):
            kind, name = arg
            return {"dtype": TYPES.get, "memory_format": FORMATS.get, "device": torch.device, "layout": lambda _: torch.strided}[kind](name)
        return arg

    def _returned(self, outcome, schema, count):
        """What an operator returns, one by one, and the type of each. Of lists there is one at most, which has what is left."""
        types = [result.type for result in schema.returns]
        if len(types) == 1 and types[0].kind() != "ListType":
            return [(outcome, types[0])]
        values = []
        for at, ty in enumerate(types):
            of = outcome if len(types) == 1 else self._node(operator.getitem, outcome, at)
            if ty.kind() != "ListType":
                values.append((of, ty))
                continue
            inside = range(count - len(types) + 1)
            values.extend((self._node(operator.getitem, of, item), ty.getElementType()) for item in inside)
        return values

    def _keep(self, value, x, dtype):
        """Notes a tensor whose sizes an operator has decided, and writes them behind its number, which nobody needs."""
        self._node(aten._assert_tensor_metadata.default, value, None, None, TYPES[dtype])
        self._decided[x.node] = value
        for dim in range(self._extents[x.node] - 1):
            element = self._node(aten.select.int, x, 0, 1 + dim)
            self._node(aten.fill_.Scalar, element, self._node(aten.sym_size.int, value, dim))

    # Results.

    def shaped(self, x, sizes, memory=None):
        """All of memory, or of a part of some other, as a row-major tensor."""
        view = self._node(aten.view.default, x, sizes)
        self._viewed[view.node] = (x if memory is None else memory).node
        return view

    def strided(self, x, sizes, strides=None, offset=0):
        """Elements of memory as a tensor."""
        if strides is None:
            return self.shaped(self._node(aten.slice.Tensor, x, 0, offset, offset + math.prod(sizes)), sizes, x)
        base = x if isinstance(offset, int) and offset == 0 else self._node(aten.slice.Tensor, x, 0, offset, LAST)
        view = self._node(aten.as_strided.default, base, sizes, strides)
        self._viewed[view.node] = x.node
        return view

    def clone(self, x, sizes, strides=None, offset=0):
        """The same, in memory of its own."""
        return self.strided(self.own(x), sizes, strides, offset)

    def number(self, x):
        """The number that memory begins with."""
        return self._node(aten._local_scalar_dense.default, self._first(x))


# Where a slice ends that has all that is left.
LAST = 2**63 - 1


def _are_known(*sizes) -> bool:
    return all(isinstance(size, int) for size in sizes)


def _nodes(results):
    """Results as arguments of nodes."""
    return [result.node if isinstance(result, fx.Proxy) else result for result in results]
