"""Compiled functions are called from several threads, from processes that fork, and with other numbers of threads."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import litz
import pytest
import torch
from checks import compiled, same
from torch import nn, randn


def in_threads(f, *argument_lists):
    with ThreadPoolExecutor(len(argument_lists)) as pool:
        futures = [pool.submit(f, *args) for args in argument_lists]
        return [future.result(timeout=120) for future in futures]


def test_several_threads_call_one_function():
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    fast = compiled(model)
    with torch.no_grad():
        fast(randn(4, 32))
    inputs = [randn(4, 32) for _ in range(4)]

    def work(x):
        with torch.no_grad():
            return [fast(x) for _ in range(50)]

    for x, results in zip(inputs, in_threads(work, *((x,) for x in inputs)), strict=True):
        wanted = model(x).detach()
        for result in results:
            same(result, wanted)


def test_several_threads_call_one_large_function():
    fast = compiled(lambda x, y: (x @ y).softmax(-1).sum(0))
    args = [(randn(200, 150), randn(150, 170)) for _ in range(3)]
    fast(*args[0])
    for (x, y), found in zip(args, in_threads(lambda x, y: [fast(x, y) for _ in range(10)][-1], *args), strict=True):
        same(found, (x @ y).softmax(-1).sum(0))


def test_several_threads_compile_one_function():
    fast = compiled(lambda x: (x * 2 + 1).sin().sum())
    barrier = threading.Barrier(4)

    def work(x):
        barrier.wait()
        return fast(x)

    inputs = [randn(9) for _ in range(4)]
    for x, found in zip(inputs, in_threads(work, *((x,) for x in inputs)), strict=True):
        same(found, (x * 2 + 1).sin().sum())


def test_several_threads_compile_functions_of_their_own():
    def work(factor):
        fast = compiled(lambda x: (x * factor).exp())
        x = torch.linspace(-1, 1, 11)
        return fast(x), (x * factor).exp()

    for found, wanted in in_threads(work, (1.0,), (2.0,), (3.0,)):
        same(found, wanted)


def test_threads_differentiate():
    fast = compiled(lambda x, w: (x @ w).tanh().sum())

    def work(x):
        w = torch.ones(4, 3, requires_grad=True)
        for _ in range(5):
            w.grad = None
            fast(x, w).backward()
        return w.grad

    def wanted(x):
        w = torch.ones(4, 3, requires_grad=True)
        (x @ w).tanh().sum().backward()
        return w.grad

    inputs = [randn(5, 4) for _ in range(3)]
    fast(inputs[0], torch.ones(4, 3, requires_grad=True)).backward()
    for x, found in zip(inputs, in_threads(work, *((x,) for x in inputs)), strict=True):
        same(found, wanted(x))


def test_threads_change_tensors_of_their_own():
    fast = compiled(lambda x: x.add_(1).sum())
    fast(torch.zeros(50))

    def work(x):
        for _ in range(40):
            fast(x)
        return x

    for n, found in enumerate(in_threads(work, *((torch.full((50,), float(n)),) for n in range(4)))):
        same(found, torch.full((50,), n + 40.0))


def test_a_call_while_another_thread_compiles():
    fast, other = compiled(lambda x: x * 2), compiled(lambda x: (x.sin() + x.cos()).softmax(0))
    x = randn(100)
    fast(x)
    thread = threading.Thread(target=other, args=(x,))
    thread.start()
    for _ in range(50):
        same(fast(x), x * 2)
    thread.join(60)
    same(other(x), (x.sin() + x.cos()).softmax(0))


def in_child(f):
    """Runs `f` in a process that forks from this one; asserts that it gives true, and in time."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if f() else 2
        finally:
            os._exit(status)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child did not come back")


def test_a_child_calls_what_was_compiled_before():
    fast = compiled(lambda x: (x * 2 + 1).sin())
    x = randn(100)
    wanted = fast(x)
    in_child(lambda: torch.equal(fast(x), wanted))
    same(fast(x), wanted)


def test_a_child_calls_a_large_function():
    fast = compiled(lambda x: (x * 2 + 1).sin() / x.exp())
    x = torch.linspace(0, 1, 100000).view(100, 1000)
    wanted = fast(x)

    def again():
        torch.set_num_threads(1)
        return torch.equal(fast(x), wanted)

    in_child(again)
    same(fast(x), wanted)


def test_a_child_calls_a_large_function_without_its_parents_threads():
    fast = compiled(lambda x: (x * 2 + 1).sin() / x.exp())
    x = torch.linspace(0, 1, 100000).view(100, 1000)
    # Operators of PyTorch that run on several threads wait for ever in a child.
    wanted = fast(x).numpy().tobytes()
    in_child(lambda: fast(x).numpy().tobytes() == wanted)


def test_a_child_compiles():
    compiled(lambda x: x + 1)(randn(3))

    def other():
        torch.set_num_threads(1)
        x = torch.arange(5.0)
        return torch.allclose(compiled(lambda x: x * 3 - 1)(x), x * 3 - 1)

    in_child(other)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


ON_THREADS = """
import pathlib
import litz.dynamo
import torch

torch.set_num_threads(3)
x = torch.linspace(-1, 1, 3_000_000).view(3000, 1000)
wanted = x.softmax(-1) * 2
threads = lambda: {thread.name: (thread / "comm").read_text() for thread in pathlib.Path("/proc/self/task").iterdir()}
before = threads()
found = torch.compile(lambda x: x.softmax(-1) * 2, backend=litz.dynamo.backend, options=%s)(x)
torch.testing.assert_close(found, wanted)
print(sum(name.startswith("litz-") for thread, name in threads().items() if thread not in before))
"""


# Threads that wait for work keep others from their cores: Litz has none of its own where PyTorch has as many.
@pytest.mark.parametrize("options, workers", [({}, 0), ({"threads": 2}, 1)])
def test_kernels_run_on_the_threads_of_eager_mode(options, workers):
    program = [sys.executable, "-c", ON_THREADS % options]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, env=os.environ | {"LITZ_CACHE_DIR": "", "OMP_NUM_THREADS": "1"})
    assert (done.stdout, done.returncode) == (f"{workers}\n", 0), done.stderr


@pytest.mark.parametrize("number", [1, 2, 3, 8])
def test_number_of_threads_before_compilation(threads, number):
    torch.set_num_threads(number)
    x = torch.linspace(-1, 1, 60000).view(300, 200)
    same(compiled(lambda x: x.softmax(-1) * 2)(x), x.softmax(-1) * 2)


def test_number_of_threads_after_compilation(threads):
    fast = compiled(lambda x: (x @ x.t()).relu().sum(1))
    x = torch.linspace(-1, 1, 20000).view(100, 200)
    wanted = (x @ x.t()).relu().sum(1)
    for number in (2, 1, 3, 1):
        torch.set_num_threads(number)
        same(fast(x), wanted)


def test_results_do_not_depend_on_the_number_of_calls():
    fast = compiled(lambda x: x.softmax(-1).sum(0))
    x = randn(300, 200)
    first = fast(x)
    for _ in range(20):
        assert torch.equal(fast(x), first)


def test_a_data_loader_of_processes():
    fast = compiled(lambda x: x * 2)
    fast(torch.zeros(3))
    data = torch.utils.data.DataLoader(torch.arange(12.0).view(4, 3), batch_size=1, num_workers=1, collate_fn=lambda rows: fast(rows[0]))
    same(torch.stack(list(data)), torch.arange(12.0).view(4, 3) * 2)


def test_an_exception_in_one_thread_is_its_own():
    fast = compiled(lambda x, i: x[i] * 2)
    x = randn(5)
    fast(x, torch.tensor([0]))

    def work(index):
        try:
            return fast(x, torch.tensor([index]))
        except (IndexError, RuntimeError):
            return None

    results = in_threads(work, (1,), (77,), (4,))
    same(results[0], x[1:2] * 2)
    assert results[1] is None
    same(results[2], x[4:] * 2)


@pytest.fixture
def interruptible():
    # A shell has programs that it starts in the background ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_a_compilation(tmp_path, interruptible):
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(16 + i, 17 + i) for i in range(40))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x).softmax(-1)
            return x

    path, whole = tmp_path / "layers.pt2", {"cache": str(tmp_path / "whole")}
    torch.export.save(torch.export.export(Layers(), (randn(3, 16),)), path)
    begin = time.perf_counter()
    litz.compile(str(path), options=whole)
    seconds = time.perf_counter() - begin

    def interrupt(after):
        time.sleep(after)
        os.kill(os.getpid(), signal.SIGINT)

    # A busy machine may have compiled the first time much more slowly than it does now.
    for share in (4, 16, 64):
        ended, is_done = {"cache": str(tmp_path / f"ended{share}")}, False
        thread = threading.Thread(target=interrupt, args=(seconds / share,))
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            litz.compile(str(path), options=ended)
            is_done = True
            thread.join()
            time.sleep(60)
        thread.join()
        if not is_done:
            break
    assert not is_done
    # What a compilation makes is kept when it is done.
    assert litz.cache_info(ended)["entries"] < litz.cache_info(whole)["entries"]
    [found] = litz.compile(str(path), options=ended)(randn(3, 16))
    assert found.shape == (3, 56)
