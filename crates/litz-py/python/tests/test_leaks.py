"""Memory stays flat over calls and recompilations, and processes share a folder of compiled code.

LITZ_LONG_LEAKS=1 runs 10,000 calls, 5,000 recompilations by Litz alone and 500 of training with all of `torch.compile`.
"""

import ctypes
import gc
import logging
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from checks import BACKEND, compiled, needs_litz
from torch import nn, randn

CALLS, RECOMPILATIONS = (10_000, 5_000) if os.environ.get("LITZ_LONG_LEAKS") else (1_000, 100)

# What resident memory may grow by in the second half, in bytes.
LIMIT = 20 << 20


@pytest.fixture(autouse=True)
def nothing_logged():
    """Pytest keeps whatever PyTorch logs until a test ends: 100 KiB a compilation. `logging.disable` does not stop PyTorch's traces."""
    traces = logging.getLogger("torch.__trace")
    logging.disable(logging.CRITICAL)
    before = traces.level
    traces.setLevel(logging.CRITICAL + 1)
    yield
    logging.disable(logging.NOTSET)
    traces.setLevel(before)


def resident() -> int:
    """Bytes of this process that are in memory, once what the allocator holds for nothing is given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grows_by(step, count) -> int:
    """How much more memory there is after the second half of `count` steps than before it."""
    for at in range(count // 2):
        step(at)
    before = resident()
    for at in range(count // 2, count):
        step(at)
    growth = resident() - before
    print(f"{growth / 2**20:.1f} MiB more after {count} than after {count // 2}")
    return growth


needs_statm = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads Linux's own figures")


@needs_statm
@pytest.mark.parametrize("kind", ["inference", "training", "sizes", "views", "writes"])
def test_memory_is_flat_over_calls(kind):
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.LayerNorm(256), nn.Linear(256, 64))
    if kind == "inference":
        fast, grad = compiled(model), False
    elif kind == "training":
        fast, grad = compiled(model), True
    elif kind == "sizes":
        fast, grad = compiled(lambda x: (x @ x.t()).softmax(-1).sum(0), dynamic=True), False
    elif kind == "views":
        fast, grad = compiled(lambda x: (lambda y: (y.t(), y[1:], y.abs().view(torch.int32), x[2:]))(x.exp()), dynamic=True), False
    else:
        fast, grad = compiled(lambda x: (x[1:].add_(1), x.mul_(0.5).t())), False
    # 16 KiB at least for each argument: a leak of one tensor a call is 16 MiB after a thousand.
    inputs = [randn(64 + 8 * (at % 5 if kind == "sizes" else 0), 64) for at in range(5)]

    def step(at):
        with torch.set_grad_enabled(grad):
            result = fast(inputs[at % len(inputs)])
            if grad:
                model.zero_grad()
                result.sum().backward()

    assert grows_by(step, CALLS) < LIMIT


@needs_statm
@needs_litz
def test_graphs_share_the_memory_of_what_is_between():
    """Ten graphs, each of which needs 32 MiB while it runs, hold no more than a few of them."""
    x, w = randn(2048, 16), randn(16, 4096)
    graphs = [compiled(lambda x, w, scale=scale: ((x @ w) * scale).softmax(0).sum(1)) for scale in range(2, 12)]
    graphs[0](x, w)
    before = resident()
    for graph in graphs[1:]:
        assert graph(x, w).shape == (2048,)
    assert resident() - before < 96 << 20


@needs_statm
@needs_litz
@pytest.mark.parametrize("training", [False, True])
def test_memory_is_flat_over_recompilations(training):
    """Graphs that PyTorch has captured once are compiled by Litz again and again, each time for other constants."""
    import litz.dynamo
    from torch.fx.experimental.proxy_tensor import make_fx

    def f(x, w, scale):
        return (F.layer_norm(torch.relu(x @ w) * scale, (32,)).sum(1),)

    x, w = randn(16, 32), randn(32, 32)
    chosen = litz.dynamo.option.read(None, {"cache": None})

    def step(at):
        graph = make_fx(lambda x, w: f(x, w, float(at)), tracing_mode="fake")(x, w)
        (found,) = litz.dynamo.compile_fx(graph, [x, w], chosen)([x, w])
        assert found.shape == (16,)

    def step_by_dynamo(at):
        torch._dynamo.reset()
        fast = compiled(lambda x, w: f(x, w, float(at) + 0.5), options={"cache": None})
        leaf = w.detach().requires_grad_(True)
        fast(x, leaf)[0].sum().backward()

    # Training goes through Dynamo and AOTAutograd, which take most of the time.
    run, count = (step_by_dynamo, max(40, RECOMPILATIONS // 10)) if training else (step, RECOMPILATIONS)
    assert grows_by(run, count) < LIMIT


PROGRAM = """
import sys

import torch
import torch.nn.functional as F

import litz.dynamo

def f(x, w, b):
    y = F.layer_norm(torch.relu(x @ w + b), (48,))
    return y.softmax(-1) @ w.t(), y.cumsum(0), (y * 2).t()

torch.manual_seed(0)
args = [torch.randn(24, 32), torch.randn(32, 48), torch.randn(48)]
wanted = f(*args)
for _ in range(3):
    torch._dynamo.reset()
    found = torch.compile(f, backend=litz.dynamo.backend, options={"cache": sys.argv[1], "fallback": "error"})(*args)
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert not litz.stats()["eager_graphs"]
print("right", litz.stats()["compile_seconds"])
"""


@needs_litz
def test_processes_share_a_folder(tmp_path):
    def start():
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "cache")]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})

    for processes in (8, 1):
        # The second time all of it is there, and is sound.
        for process in [start() for _ in range(processes)]:
            out, err = process.communicate(timeout=300)
            assert process.returncode == 0 and out.startswith("right"), err[-2000:]
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert kept and not [path for path in kept if "tmp" in path.name or path.stat().st_size == 0], kept
