"""Compiles functions with operators that PyTorch runs in a graph on a GPU, and compares what calls and replays of captured calls give with eager mode.

    python benches/hosted_calls.py [--replays N]

The operators are Python's, so that Litz has none of them: they enqueue their work on PyTorch's stream, where their operands are. Each function
makes what they read and reads what they write by kernels of its own, with memory that is used again, so that work which does not wait for other work
shows. Prints a line for each check; exit status 1 where one is wrong.
"""

import argparse
import functools
import sys

import torch

import checking
import litz

KEPT = []


@torch.library.custom_op("hosted::sines", mutates_args=())
def sines(x: torch.Tensor, times: float) -> torch.Tensor:
    return torch.sin(x) * times


@sines.register_fake
def _(x, times):
    return torch.empty_like(x)


@torch.library.custom_op("hosted::parts", mutates_args=())
def parts(x: torch.Tensor, others: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return x.cumsum(0).to(torch.float64), x.amax(1).long() + sum(other.sum(1).long() for other in others)


@parts.register_fake
def _(x, others):
    return torch.empty_like(x, dtype=torch.float64), x.new_empty(x.shape[0], dtype=torch.int64)


@torch.library.custom_op("hosted::add_rows_", mutates_args=("x",))
def add_rows_(x: torch.Tensor, rows: torch.Tensor) -> None:
    x.add_(rows.flip(0))


@torch.library.custom_op("hosted::keep", mutates_args=())
def keep(x: torch.Tensor) -> torch.Tensor:
    KEPT.append(x)
    return x + 1


@keep.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("hosted::positives", mutates_args=())
def positives(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


@positives.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


def pure(x, y):
    return sines(x * 2 + y, 0.5).relu() @ y


def chain(x, y):
    for step in range(8):
        x = sines(x + y, 1.0 + step % 2 / 4).cos() + y
    return x


def of_parts(x, y):
    first, second = parts(x + y, [x.t().contiguous(), y * 3])
    return first.float() * 2, second + 1


def in_place(x, y):
    z = x * y
    add_rows_(z, y + 1)
    return z.relu(), z.sum(0)


def of_argument(x, y):
    add_rows_(x, y * 2)
    return x + y


def of_view(x, y):
    z = x + y
    add_rows_(z[::2, 1:], y[1::2, 1:])
    return z * z


def strided(x, y):
    return sines((x + y).t()[1:, ::2], 2.0) * 3


def empty(x, y):
    return sines((x + y)[:0], 2.0).sum() + y


def half(x, y):
    return sines((x + y).bfloat16(), 0.25).float() * y


def truth(x, y):
    first, second = parts((x > y).float(), [])
    return first > 3, second


def that_keeps(x, y):
    return keep(x * y) * 2


def by_data(x, y):
    return positives(x + y).sum(), y + 1


def counts(x, y):
    """An operator of PyTorch's own that Litz does not have."""
    return torch.histc((x * y).int(), 16, -8, 8) + 1


def arguments(seed: int):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return [torch.randn(512, 512, device="cuda", generator=generator) for _ in range(2)]


def check(function, replays: int, is_captured: bool):
    """Raises where a call gives something else than eager mode, or leaves something else in its arguments."""
    compiled = torch.compile(function, backend="litz", fullgraph=True, dynamic=False, options={"fallback": "warn"})
    for seed in range(4):
        compare(function, compiled, arguments(seed))
    # Several calls that nobody waits for.
    many = [arguments(seed) for seed in range(4)]
    expected = [function(*(x.clone() for x in args)) for args in many]
    found = [compiled(*(x.clone() for x in args)) for args in many]
    same(found, expected)
    if not is_captured:
        return
    given = arguments(9)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compiled(*given)
    for seed in range(replays):
        fresh = arguments(100 + seed)
        for to, new in zip(given, fresh):
            to.copy_(new)
        expected = function(*fresh)
        graph.replay()
        torch.cuda.synchronize()
        same(result, expected)
        same(given, fresh)


def check_counted(function, replays: int):
    """The same, and that graphs of Litz's have called operators."""
    litz.reset_stats()
    check(function, replays, is_captured=function is not by_data)
    stats = litz.stats()
    if stats["eager_graphs"] or stats["eager_calls"] or not stats["fallbacks"]:
        raise AssertionError(f"expected graphs of Litz's that call operators, found {stats}")


def compare(function, compiled, args):
    own = [x.clone() for x in args]
    same(compiled(*own), function(*args))
    same(own, args)


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


CHECKS = (pure, chain, of_parts, in_place, of_argument, of_view, strided, empty, half, truth, counts, that_keeps, by_data)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replays", type=int, default=20)
    args = parser.parse_args()
    with torch.no_grad():
        return checking.run({function.__name__: functools.partial(check_counted, function, args.replays) for function in CHECKS})


if __name__ == "__main__":
    sys.exit(main())
