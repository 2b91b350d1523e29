"""Captures compiled calls one behind another in a graph of PyTorch's, and compares what replays give with calls that nothing overlaps.

    python benches/captured_calls.py [--replays N]

The first call makes a matrix, slowly and in few blocks, and the second one multiplies it with a row: as a weight, which its product loads before the
kernel in front has ended. Were that one there before the first call has ended, it would load what is still being made. Each replay has other inputs, and
results have equal bits. And a graph is replayed whose compiled function is gone. Prints a line for each check; exit status 1 where one is wrong.
"""

import argparse
import functools
import gc
import sys

import torch
from torch.nn import functional as F

import checking

ROWS, COLUMNS = 8192, 2048


def long_rows(x):
    """Few blocks, each with a row for long."""
    return torch.softmax(x.view(64, -1).float(), -1).mul(1 << 18).bfloat16().view(ROWS, COLUMNS)


def running(x):
    return x.float().cumsum(0).bfloat16()


def product(x):
    return x @ x[:COLUMNS].t()


def points(x):
    return x.float().sin().bfloat16()


def multiplied(row, weight):
    """The norm is the first kernel of this call, and behind it the product loads the weight early."""
    return F.linear(F.rms_norm(row, (COLUMNS,)), weight)


def compiled(function):
    return torch.compile(function, backend="litz", fullgraph=True, dynamic=False)


def check(make, is_compiled: bool, replays: int):
    """Raises where a replay differs from calls that are waited for."""
    first, second = compiled(make) if is_compiled else make, compiled(multiplied)
    generator = torch.Generator(device="cuda").manual_seed(5)
    normal = lambda *shape: torch.randn(shape, device="cuda", generator=generator).bfloat16()
    x, row = normal(ROWS, COLUMNS), normal(1, COLUMNS)

    def apart():
        weight = first(x)
        torch.cuda.synchronize()
        result = second(row, weight)
        torch.cuda.synchronize()
        return result.clone()

    apart()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = second(row, first(x))
    earlier = None
    for number in range(replays):
        x.copy_(normal(ROWS, COLUMNS))
        row.copy_(normal(1, COLUMNS))
        expected = apart()
        if earlier is not None and torch.equal(expected, earlier):
            raise AssertionError("results of other inputs are the same: nothing is tested")
        # What the replay before this one has made is another matrix.
        result.zero_()
        graph.replay()
        torch.cuda.synchronize()
        if not torch.equal(result, expected):
            raise AssertionError(f"replay {number} differs in {(result != expected).sum().item()} of {ROWS} numbers")
        earlier = expected
    close = F.linear(F.rms_norm(row.float(), (COLUMNS,)), make(x).float())
    if not torch.allclose(result.float(), close, rtol=5e-2, atol=5e-2 * close.abs().max().item()):
        raise AssertionError("results are not eager mode's")


def check_forgotten(replays: int):
    """Raises where a graph's replays are wrong after the compiled function that it has captured is gone, with its code and memory."""
    generator = torch.Generator(device="cuda").manual_seed(7)
    normal = lambda *shape: torch.randn(shape, device="cuda", generator=generator).bfloat16()
    row, weight = normal(1, COLUMNS), normal(ROWS, COLUMNS)
    function = compiled(multiplied)
    function(row, weight)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function(row, weight)
    expected = function(row, weight).clone()
    del function
    torch._dynamo.reset()
    gc.collect()
    # Others take what it had of memory and code.
    other = compiled(lambda x: x.float().sin().cumsum(0))
    rest = [other(normal(ROWS, COLUMNS)) for _ in range(2)]
    for number in range(replays):
        result.zero_()
        graph.replay()
        torch.cuda.synchronize()
        if not torch.equal(result, expected):
            raise AssertionError(f"replay {number} differs in {(result != expected).sum().item()} of {ROWS} numbers")
    del rest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replays", type=int, default=200)
    args = parser.parse_args()
    checks = {"forgotten": lambda: check_forgotten(args.replays)}
    for make in (long_rows, running, product, points):
        for is_compiled in (True, False):
            name = make.__name__ if is_compiled else f"{make.__name__}_of_pytorch"
            checks[name] = functools.partial(check, make, is_compiled, args.replays)
    with torch.no_grad():
        return checking.run(checks)


if __name__ == "__main__":
    sys.exit(main())
