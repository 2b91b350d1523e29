"""PR-1, PR-2, PR-5: programs as graphs of torch.fx and as listings for NumPy: the same bits as of the runtime, and the same steps."""

import ast
import copy
import operator
import re

import numpy
import pytest
import torch
from checks import needs_litz
from consumer_graphs import Example, bits, listed

import litz
from litz import _litz, graphs, listings
from litz.host import HOST
from litz.library import Torch
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = needs_litz
aten = torch.ops.aten

OPTIONS = {"threads": 2, "cache": None, "host": HOST}


def compiled(example, **options):
    return _litz.compile_graph(example.text, Torch, constants=example.constants, options={**OPTIONS, **options})


def as_graph(model, **options):
    text, constants = _litz.module_of(model, "fx")
    return graphs.from_text(text, constants, {"threads": 2, "cache": None, **options})


def as_listing(model):
    text, constants = _litz.module_of(model, "python")
    module = {"__name__": "listing", "__file__": "nowhere.py"}
    exec(text, module)
    return module["build"](constants)


def arrays(value):
    """A tensor as an array, a number as it is."""
    return listings._array(value) if isinstance(value, torch.Tensor) else value


def tensors(value):
    return listings._tensor(value) if isinstance(value, numpy.ndarray) else value


def seen(call, args):
    """All that is seen of a call: results, and what became of the arguments."""
    return [bits(value) for value in [*call(args), *args]]


GRAPHS = [pytest.param(path, id=f"{kind}-{path.stem}") for kind, path in listed()]


@pytest.mark.parametrize("path", GRAPHS)
def test_numbers_are_equal(path, tmp_path):
    """PR-1: from the process, a file, a graph and a listing."""
    example = Example(path)
    model = compiled(example)
    model.save(tmp_path / "model.litzc")
    saved = _litz.load(tmp_path / "model.litzc", Torch, options=OPTIONS)
    graph = as_graph(model)
    interpreted, listing = compiled(example, reference=True), as_listing(model)
    interpreted_graph = as_graph(model, reference=True)
    for call in example.calls:
        expected = seen(model, example.args(call))
        assert seen(saved, example.args(call)) == expected
        assert seen(lambda args: graph(*args), example.args(call)) == expected
        expected = seen(interpreted, example.args(call))
        assert seen(lambda args: interpreted_graph(*args), example.args(call)) == expected
        assert seen(lambda args: [tensors(value) for value in listing(*map(arrays, args))], example.args(call)) == expected


KINDS = {"launch": "launch", "copy": "copy", "routine": "extern", "integer": "size", "call": "call", "branch": "control", "loop": "control", "invoke": "control"}


def names(node):
    """Names of memory in a part of a line, in order."""
    if isinstance(node, ast.Call):
        # A tensor in memory.
        return names(node.args[0])
    if isinstance(node, ast.Tuple):
        # A call of a function.
        return names(node.elts[1]) if len(node.elts) == 3 else []
    if isinstance(node, ast.List):
        return [name for item in node.elts for name in names(item)]
    return [node.id] if isinstance(node, ast.Name) else []


def traced(text):
    """Kind, reads and writes of each step of a module's program."""
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name not in ("build", "load")]
    steps = []
    for statement in functions[-1].body:
        call = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
        method = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "results":
            break
        if method not in KINDS:
            continue
        args = call.args
        if method in ("launch", "routine"):
            reads, writes = names(args[1]), names(args[2])
        elif method == "copy":
            reads, writes = names(args[0]), names(args[1])
        elif method == "integer":
            reads, writes = names(args[0]), []
        elif method == "call":
            reads, writes = names(args[1]), names(args[2])
        elif method == "loop":
            reads, writes = names(args[1]) + names(args[2]), names(args[0]) + names(args[3])
        else:
            reads, writes = [name for arg in args[:-1] for name in names(arg)], names(args[-1])
        steps.append((KINDS[method], reads, writes))
    return steps


def known(steps):
    """The steps of a program that a module has as calls of these. What an operator of the host changes is among what it is given there."""
    word = lambda name: re.sub(r"\W", "_", name)
    kinds = set(KINDS.values())
    return [(kind, [word(name) for name in reads], [word(name) for name in writes]) for kind, reads, writes in steps if kind in kinds]


def same_steps(found, expected):
    """Compares steps; those of the host by what they touch."""
    # A name that modules have for other things has a number behind it there.
    plain = lambda step: (step[0], *([name.removesuffix("_1") for name in side] for side in step[1:]))
    touched = lambda step: (step[0], sorted(step[1] + step[2])) if step[0] == "call" else step
    return [touched(plain(step)) for step in found] == [touched(plain(step)) for step in expected]


@pytest.mark.parametrize("path", GRAPHS)
def test_steps_are_equal(path, tmp_path):
    """PR-1: kinds, reads and writes."""
    model = compiled(Example(path))
    model.save(tmp_path / "model.litzc")
    saved = _litz.load(tmp_path / "model.litzc", Torch, options=OPTIONS)
    program, kernels = model.text("program"), model.text("kernel")
    expected = known(_litz.steps(program, kernels))
    assert known(_litz.steps(saved.text("program"), saved.text("kernel"))) == expected
    for form in ("fx", "python"):
        assert same_steps(traced(_litz.module_of(model, form)[0]), expected)
    # Nodes are as many as steps, but for copies, which functions have more of.
    nodes = as_graph(model).graph.find_nodes(op="call_function", target=torch.ops.litz.launch.default)
    launched = re.findall(r"^  launch @(\S+)\(", program, re.MULTILINE)
    assert [node.args[1] for node in nodes] == launched


def nodes(graph, target):
    return graph.graph.find_nodes(op="call_function", target=target)


def of_program(text, kernels=""):
    return graphs.from_text(_litz.listing("fx", text, kernels, "cpu(isa=sse2, threads=2)"), {}, {"reference": True})


@pytest.mark.parametrize("name, value", [("i64", 5), ("i32", -3), ("u8", 200), ("bool", True)])
def test_a_size_that_data_decides_is_an_integer(name, value):
    """PR-2: `item`, with `where` before it for bool."""
    text = f"program @p on cpu {{\n  sym u0 in [-inf, inf]\n  param x: {name}[1]\n  size u0 = x\n  return int(u0 + 1)\n}}\n"
    graph = of_program(text)
    (item,) = nodes(graph, aten._local_scalar_dense.default)
    is_chosen = item.args[0].target is aten.where.Scalar
    assert is_chosen == (name == "bool")
    (found,) = graph(torch.tensor([value], dtype=graphs.TYPES[name]))
    assert type(found) is int and found == int(value) + 1


@pytest.mark.parametrize("name, value", [("f32", 2.5), ("f64", -0.125), ("i64", 7), ("bool", True), ("bf16", 1.5)])
def test_a_number_has_the_type_of_its_element(name, value):
    text = f"program @p on cpu {{\n  param x: {name}[2]\n  return number(x)\n}}\n"
    (found,) = of_program(text)(torch.tensor([value, 0], dtype=graphs.TYPES[name]))
    assert type(found) is type(value) and found == value
    module = {"__name__": "listing"}
    exec(_litz.listing("python", text, "", "cpu(isa=sse2, threads=2)"), module)
    (found,) = module["build"]({})(arrays(torch.tensor([value, 0], dtype=graphs.TYPES[name])))
    assert type(found) is type(value) and found == value


def test_a_size_out_of_range_is_an_error():
    text = 'program @p on cpu {\n  sym u0 in [0, 4] multiple 2\n  param x: i64[1]\n  size u0 = x for "too many"\n  return int(u0)\n}\n'
    graph, module = of_program(text), {"__name__": "listing"}
    exec(_litz.listing("python", text, "", "cpu(isa=sse2, threads=2)"), module)
    listing = module["build"]({})
    for call in (graph, lambda x: listing(x.numpy())):
        assert call(torch.tensor([4])) == [4]
        for wrong in (-2, 3, 6):
            with pytest.raises(RuntimeError, match="too many"):
                call(torch.tensor([wrong]))


def example(name):
    return Example(next(path for _, path in listed() if path.stem == name))


def test_a_branch_is_one_node():
    """PR-2: two `get_attr`, one `cond`, `getitem 0`."""
    graph = as_graph(compiled(example("branch")))
    (branch,) = nodes(graph, torch.ops.higher_order.cond)
    arms = branch.args[1:3]
    assert [arm.op for arm in arms] == ["get_attr"] * 2 and len(set(arms)) == 2
    (result,) = branch.users
    assert result.target is operator.getitem and result.args[1] == 0
    # One of the arms has a branch of its own.
    assert sum(len(nodes(getattr(graph, arm.target), torch.ops.higher_order.cond)) for arm in arms) == 1


def test_a_loop_is_one_node():
    graph = as_graph(compiled(example("while")))
    (loop,) = nodes(graph, torch.ops.higher_order.while_loop)
    assert [graph_of.op for graph_of in loop.args[:2]] == ["get_attr"] * 2


ACCUMULATING = {
    "index_put": (
        "aten.index_put_.default(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!) any",
        "host aten.index_put_.default(%a, [%i], %v, true)",
        lambda a, i, v: a.index_put_([i], v, accumulate=True),
        aten.index_put_.default,
    ),
    "scatter_reduce": (
        "aten.scatter_reduce_.two(Tensor(a!) self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor(a!) any",
        'host aten.scatter_reduce_.two(%a, 0, %i, %v, "prod", false)',
        lambda a, i, v: a.scatter_reduce_(0, i, v, "prod", include_self=False),
        aten.scatter_reduce_.two,
    ),
}


@pytest.mark.parametrize("name", ACCUMULATING)
def test_operators_that_accumulate_write_in_place(name):
    """PR-2: the overload that writes."""
    declaration, call, eager, target = ACCUMULATING[name]
    text = f"""graph @g on cpu {{
  op {declaration}
  %x: f32[4] = input
  %i: i64[3] = input
  %v: f32[3] = input
  %a: f32[4] = aten.mul.Tensor(%x, 2)
  _ = {call} at "model.py:2"
  %y: f32[4] = aten.add.Tensor(%a, %x, 1)
  return %y
}}
"""
    graph = as_graph(_litz.compile_graph(text, Torch, options=OPTIONS))
    assert len(nodes(graph, target)) == 1
    x, i, v = torch.arange(4.0) + 1, torch.tensor([1, 3, 1]), torch.tensor([0.5, 10, 0.25])
    assert torch.equal(graph(x, i, v)[0], eager(x * 2, i, v) + x)


def test_a_symbol_is_bound_once():
    """PR-2: however many sizes are made of it."""
    text = """graph @g on cpu {
  sym s0 in [2, 64]
  sym s1 in [1, 64]
  %x: f32[s0, 3] = input
  %y: f32[s0, 3] = input
  %z: f32[2*s1 + 1, s0] = input
  %w: f32[s0, 3] = aten.add.Tensor(%x, %y, 1)
  %v: f32[2*s1 + 1, 3] = aten.mm.default(%z, %w)
  return %v, s1
}
"""
    model = _litz.compile_graph(text, Torch, options=OPTIONS)
    graph = as_graph(model)
    bound = nodes(graph, aten.sym_size.int)
    assert [(node.args[0].op, node.args[0].target, node.args[1]) for node in bound] == [("placeholder", "x", 0), ("placeholder", "z", 0)]
    args = [torch.randn(5, 3), torch.randn(5, 3), torch.randn(9, 5)]
    assert [bits(value) for value in graph(*args)] == [bits(value) for value in model(list(args))]
    for wrong in ([args[0], args[1][:4], args[2]], [args[0], args[1], args[2][:8]], [args[0].double(), *args[1:]], [args[0][:1], args[1][:1], args[2][:, :1]]):
        with pytest.raises(RuntimeError):
            graph(*wrong)


def strided(x, sizes, strides, offset=0):
    """A tensor that lies so, with the elements of another."""
    memory = torch.zeros(offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides)), dtype=x.dtype)
    return memory.as_strided(sizes, strides, offset).copy_(x)


def test_arguments_may_lie_anyhow():
    graph_example = example("cache")
    model = compiled(graph_example)
    graph, listing = as_graph(model), as_listing(model)
    (call,) = graph_example.calls
    expected = seen(model, graph_example.args(call))
    cache, row, place = graph_example.args(call)
    for strides in ((1, 16, 2), (40, 5, 1), (4, 8, 1)):
        spread = strided(cache, cache.shape, strides, 3)
        assert seen(lambda args: graph(*args), [spread, row, place]) == expected
        spread = strided(cache, cache.shape, strides, 3)
        found = [tensors(value) for value in listing(*map(arrays, (spread, row, place)))]
        assert [bits(value) for value in [*found, spread, row, place]] == expected


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, x):
        self.calls.add_(1)
        return self.outer(torch.relu(self.inner(x))) + self.calls.sum()


def test_a_module_becomes_a_graph():
    torch.manual_seed(0)
    x = torch.randn(3, 8)
    model = litz.compile(Layers(), (x,), options={"threads": 2, "cache": None})
    graph = litz.fx(model, options={"threads": 2, "cache": None})
    assert isinstance(graph, torch.fx.GraphModule)
    first, second = [graph(x)[0].clone() for _ in range(2)]
    assert torch.equal(first, model(x)[0]) and torch.equal(second, model(x)[0]) and not torch.equal(first, second)


class Item(torch.nn.Module):
    def forward(self, x, y):
        return y * x.item()


@pytest.mark.parametrize("x", [torch.tensor([2.5]), torch.tensor([3]), torch.tensor([True])], ids=str)
def test_numbers_of_exported_modules_are_equal(x):
    y = torch.arange(3.0)
    graph = litz.fx(torch.export.export(Item(), (x, y)), options={"threads": 2, "cache": None})
    for value in (x, x - x if x.dtype != torch.bool else ~x):
        assert torch.equal(graph(value, y)[0], Item()(value, y))


def test_a_graph_can_be_traced_again():
    torch.manual_seed(0)
    module, x = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Softmax(-1)), torch.randn(3, 8)
    graph = litz.fx(module, (x,), options={"threads": 2, "cache": None})
    (expected,) = graph(x)
    again = make_fx(graph, tracing_mode="fake", _allow_non_fake_inputs=True)(x)
    launches = again.graph.find_nodes(op="call_function", target=torch.ops.litz.launch.default)
    assert len(launches) == len(nodes(graph, torch.ops.litz.launch.default)) > 0
    assert torch.equal(again(x)[0], expected)
    assert torch.equal(torch.compile(graph, backend="aot_eager", fullgraph=True)(x)[0], expected)
    assert torch.equal(copy.deepcopy(graph)(x)[0], expected)
    assert (expected - module(x)).abs().max() < 1e-5


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("sizes", [(), (8,), (9,)], ids=str)
def test_constants_of_any_size_are_buffers(sizes, freeze):
    """PR-5: none is a literal, as ADR 0080 says with figures."""
    text = f"""graph @g on cpu {{
  %c: f32[{", ".join(map(str, sizes))}] = const "scale.value"
  %x: f32[3, 9] = input
  %w: f32[3, {sizes[0] if sizes else 9}] = aten.slice.Tensor(%x, 1, 0, {sizes[0] if sizes else 9}, 1)
  %y: f32[3, {sizes[0] if sizes else 9}] = aten.mul.Tensor(%w, %c)
  return %y
}}
"""
    value, x = torch.rand(sizes), torch.randn(3, 9)
    model = _litz.compile_graph(text, Torch, constants={"scale.value": value}, options={**OPTIONS, "freeze": freeze})
    graph, listing = as_graph(model), as_listing(model)
    (buffer,) = graph.buffers()
    assert torch.equal(buffer, value.reshape(-1))
    for form in ("fx", "python"):
        assert _litz.module_of(model, form)[0].count("m.constant(") == 1
    expected = x[:, : value.numel()] * value if sizes else x * value
    assert torch.equal(graph(x)[0], expected) and torch.equal(tensors(listing(x.numpy())[0]), expected)


@pytest.mark.parametrize("name", ["branch", "while", "sizes_of_branches", "nonzero", "cache", "between_sorts", "foreign_writes"])
def test_graphs_of_every_kind_can_be_traced_again(name):
    one = example(name)
    model = compiled(one)
    expected = seen(model, one.args(one.calls[0]))
    args = one.args(one.calls[0])
    again = make_fx(as_graph(model), tracing_mode="symbolic", _allow_non_fake_inputs=True)(*copy.deepcopy(args))
    assert seen(lambda args: again(*args), args) == expected


def test_a_graph_without_its_kernels_says_so():
    graph = as_graph(compiled(example("zero_dim")))
    launches = nodes(graph, torch.ops.litz.launch.default)
    for launch in launches:
        launch.args = ("0123456789abcdef", *launch.args[1:])
    graph.recompile()
    (call,) = example("zero_dim").calls[:1]
    with pytest.raises(litz.InvalidError, match="kernels 0123456789abcdef are not loaded"):
        graph(*call)
