"""Operators with effects, whose calls keep their order, and operators that look at what tensors hold."""

import json
import operator
import os
import subprocess
import sys
from unittest import mock

import pytest
import torch
from checks import compiled, each, needs_litz, same
from effect_programs import FOUND, NOTED, PROGRAMS, argument, compare, printed, seen, with_neighbours
from torch.utils.checkpoint import checkpoint

import litz
import litz.function
from litz.errors import NotConverted
from litz.converting import convert

pytestmark = needs_litz

# Programs of operators that AOTAutograd's cache keeps: those without operators of others.
KEPT = [name for name in PROGRAMS if name not in ("note", "note_twice", "both", "several", "log", "in_place")]


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """What two processes found that have their caches in common, for each program, called and trained."""
    folder = tmp_path_factory.mktemp("caches")
    caches = {"LITZ_CACHE_DIR": f"{folder}/litz", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}

    def run():
        program = [sys.executable, os.path.join(os.path.dirname(__file__), "effect_programs.py")]
        done = subprocess.run(program, capture_output=True, text=True, env=os.environ | caches | {"OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr[-3000:]
        lines = [line.removeprefix(FOUND) for line in done.stdout.splitlines() if line.startswith(FOUND)]
        return {(one["name"], one["train"]): one for one in map(json.loads, lines)}

    return run(), run()


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_operators(processes, name, is_warm, train):
    found = processes[is_warm][name, train]
    assert found["error"] is None, found["error"]
    assert found["left"] == 0
    assert found["hits"] == (is_warm and name in KEPT)


def left():
    """Why PyTorch runs graphs as a whole."""
    return litz.stats()["eager_graphs"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_operators_of_any_size(name):
    litz.reset_stats()
    compare(with_neighbours(PROGRAMS[name]), True, dynamic=True)
    assert not left()


noted, log, several = (getattr(torch.ops.litz_effects, name) for name in ("note", "log", "several"))


@torch.compiler.nested_compile_region
def region(x):
    return noted(x.sin(), "region") * x


@torch.compiler.nested_compile_region
def inverses(x):
    return torch.linalg.inv(x) * x


@pytest.mark.eager_graphs(r"the effects of \S+ inside of ")
@pytest.mark.parametrize("f", [region, inverses], ids=["of_others", "of_pytorch"])
def test_regions(f):
    litz.reset_stats()
    compare(lambda x: (f(x) + f(x.exp()), x.exp()), False)
    assert not left()
    # PyTorch gives wrong gradients.
    compare(lambda x: (f(x) + f(x.exp()), x.exp()), True)
    assert [reason.split(" inside of ")[1] for reason in left()] == ["invoke_subgraph"]


def condition(x):
    return torch.cond(x.sum() > 0, lambda x: noted(x.sin(), "true"), lambda x: noted(x.cos(), "false"), (x,)), x.exp()


def nested_conditions(x):
    inner = lambda x: torch.cond(x.sum() > 100, lambda x: noted(x.sin(), "true"), lambda x: noted(x.cos(), "false"), (x,))
    return torch.cond(x.sum() > 0, inner, lambda x: x.sin(), (x,)), x.exp()


def loop(x):
    body = lambda at, x: (at + 1, noted(x, "loop"))
    return torch._higher_order_ops.while_loop(lambda at, x: at < 3, body, (torch.tensor(0), x))


def scan(x):
    return torch._higher_order_ops.scan(lambda carry, row: (carry + noted(row, "row"), carry * 2), x[0], x)


def inverses_in_a_loop(x):
    return torch._higher_order_ops.map(torch.linalg.inv, torch.stack([x, x + torch.eye(4)]))


def region_in_a_branch(x):
    return torch.cond(x.sum() > 0, region, lambda x: x.sin(), (x,)), x.exp()


CONTROL_FLOW = {
    "condition": condition,
    "nested_conditions": nested_conditions,
    "loop": loop,
    "scan": scan,
    "inverses": inverses_in_a_loop,
    "region_in_a_branch": region_in_a_branch,
    "printed_in_a_branch": lambda x: torch.cond(x.sum() > 0, lambda x: printed(x), lambda x: x.cos(), (x,)),
    "logged_in_a_branch": lambda x: torch.cond(x.sum() > 0, lambda x: (log(x), x.sin())[1], lambda x: (log(x * 2), x.cos())[1], (x,)),
    "nobody_reads": lambda x: (torch.cond(x.sum() > 0, lambda x: noted(x, "true"), lambda x: noted(x, "false"), (x,)), x.exp())[1],
    "same_twice": lambda x: [torch.cond(x.sum() > 0, lambda x: noted(x, "true"), lambda x: noted(x, "false"), (x,)) for _ in range(2)],
    "other_branch": lambda x: torch.cond(x.sum() < 0, lambda x: noted(x, "true"), lambda x: noted(x.cos(), "false"), (x,)),
    "one_branch": lambda x: torch.cond(x.sum() > 0, lambda x: noted(x, "true"), lambda x: x * 2, (x,)),
    "between_others": lambda x: between_others(x),
    "loop_of_conditions": lambda x: loop_of_conditions(x),
    "condition_of_a_loop": lambda x: condition_of_a_loop(x),
    "several": lambda x: torch.cond(x.sum() > 0, lambda x: several([x, x.sin()], 2.0, 2)[1], lambda x: x * 1, (x,)),
    "with_hints": lambda x: torch.cond(x.sum() > 0, lambda x: hinted(lambda x: noted(x, "true"), x), lambda x: x * 1, (x,)),
}


def between_others(x):
    """Calls around a branch and a loop, some of which depend on neither."""
    y = noted(x, "before")
    z = torch.cond(x.sum() > 0, lambda x: noted(x.exp(), "true"), lambda x: noted(x, "false"), (x,))
    y = noted(y, "between")
    _, w = torch._higher_order_ops.while_loop(lambda at, x: at < 2, lambda at, x: (at + 1, noted(x, "loop").sin()), (torch.tensor(0), x))
    log(x)
    return torch.linalg.inv(x), noted(x + 1, "behind"), y, z, w


def loop_of_conditions(x):
    def body(at, x):
        return at + 1, torch.cond(at > 0, lambda x: noted(x, "later"), lambda x: noted(x.sin(), "first"), (x,))

    return torch._higher_order_ops.while_loop(lambda at, x: at < 3, body, (torch.tensor(0), x))


def condition_of_a_loop(x):
    """What decides whether a loop goes on has effects. What it is given is no constant: PyTorch's tracing would call it with that."""
    more = lambda at, x: noted(at + x.sum() * 0, "more") < 5
    return torch._higher_order_ops.while_loop(more, lambda at, x: (at + 1, noted(x, "body").sin()), (torch.tensor(0), x))


def hinted(body, x):
    return torch.ops.higher_order.hints_wrapper(body, (x,), {}, hints={"kernel": "fast"})


@pytest.mark.parametrize("name", CONTROL_FLOW)
def test_control_flow(name):
    litz.reset_stats()
    with torch.no_grad():
        compare(CONTROL_FLOW[name], False)
    assert not left()


@pytest.mark.parametrize("name", ["condition", "nested_conditions", "loop", "scan", "between_others", "loop_of_conditions"])
def test_control_flow_of_any_size(name):
    litz.reset_stats()
    compare(CONTROL_FLOW[name], False, dynamic=True)
    assert not left()


@pytest.mark.eager_graphs(r"the effects of \S+ inside of ")
@pytest.mark.parametrize("name", ["condition", "nested_conditions", "loop", "scan", "inverses", "region_in_a_branch", "between_others"])
def test_control_flow_in_training(name):
    """AOTAutograd has no place for tokens in the graphs that control flow calls, and those of derivatives would call operators once more."""
    f = CONTROL_FLOW[name]
    litz.reset_stats()
    compare(f, True)
    (reason,) = left()
    assert reason.startswith("the effects of ")
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=reason):
        compiled(f, options={"fallback": "error"})(argument().requires_grad_())


def test_control_flow_fails_in_order():
    """What comes before a failure in a branch has happened, and nothing behind it."""

    def f(x):
        y = noted(x, "before")
        z = torch.cond(x.sum() > 1, lambda x: noted(torch.linalg.inv(x), "true"), lambda x: noted(torch.linalg.inv(x * 0), "false"), (x,))
        return noted(z, "behind"), y

    fast = compiled(f)
    seen(lambda x: fast(x), False)
    assert [call for call, *_ in NOTED] == ["before", "true", "behind"]
    with pytest.raises(RuntimeError, match="singular"):
        seen(lambda x: fast(-x), False)
    assert [call for call, *_ in NOTED] == ["before"]


def test_control_flow_beside_effects():
    def f(x):
        y = noted(x.sin(), "before")
        return torch.cond(y.sum() > 0, lambda y: y.cos(), lambda y: y.exp(), (y,)), torch.linalg.inv(x)

    litz.reset_stats()
    compare(f, False)
    compare(f, True)
    assert not left()


@each(
    of_others=lambda x: noted(x.sin(), "checkpoint").cos() * x,
    of_pytorch=lambda x: torch.linalg.inv(x).sin() * torch.linalg.cholesky(x),
)
def test_checkpoints(f):
    """What has effects happens once, and its results are kept: eager mode calls it once more for the gradients."""
    litz.reset_stats()
    whole = lambda x: (checkpoint(f, x, use_reentrant=False), x.exp())
    wanted, _ = seen(whole, True)
    found, calls = seen(compiled(whole), True)
    same(found, wanted)
    assert [call for call, *_ in calls] in ([], ["checkpoint", "backward"])
    assert not left()


def test_checks_fail_in_order():
    """What comes before a check that fails has happened, and nothing behind it."""

    def f(x):
        y = noted(x, "before")
        z = torch.linalg.inv(y)
        return noted(z, "behind")

    fast = compiled(f)
    seen(lambda x: fast(x), False)
    assert [call for call, *_ in NOTED] == ["before", "behind"]
    with pytest.raises(RuntimeError, match="singular"):
        seen(lambda x: fast(x * 0), False)
    assert [call for call, *_ in NOTED] == ["before"]


def test_tokens_are_no_arguments():
    """Positions would be counted with tokens in one place and without in another."""
    graph = torch.fx.Graph()
    token, x = graph.placeholder("token"), graph.placeholder("x")
    call = graph.call_function(torch.ops.higher_order.with_effects, (token, noted.default, x, "one"))
    graph.output((graph.call_function(operator.getitem, (call, 1)),))
    x.meta["val"], token.meta["val"] = argument(), torch.empty(0)
    with pytest.raises(NotConverted, match="a token"):
        convert(torch.fx.GraphModule(torch.nn.Module(), graph))


def test_another_number_of_arguments():
    functions = []
    with mock.patch.object(litz.function.Function, "__init__", lambda *args: functions.append(args[0]) or begin(*args)):
        compiled(lambda x: x.sin())(argument())
    with pytest.raises(litz.InternalError, match="a graph of 1 arguments with 2"):
        functions[0]([None, argument()])


begin = litz.function.Function.__init__
