"""Times calls of compiled graphs: python benches/compile_calls.py [--rounds N] [--threads T]

Prints, all of them medians of turns:
  overhead     microseconds of a call of a compiled graph with ten tensors and one result, whose kernel has next to nothing to do: Dynamo's guards
               and AOTAutograd's wrapper apart, and with them
  alternating  milliseconds of a graph of Litz, of one that eager mode runs, and of both in turns, which should take as long as the two together:
               threads of one must not keep those of the other from working
"""

import argparse
import os
import statistics
import time
from unittest import mock

# Seconds of calls in a turn.
TURN = 0.5


def timed(call) -> float:
    """Seconds of one call, of many."""
    count, until, start = 0, time.perf_counter() + TURN, time.perf_counter()
    while (now := time.perf_counter()) < until:
        for _ in range(16):
            call()
        count += 16
    return (now - start) / count


def overhead(rounds):
    import litz.dynamo
    import torch

    graphs, compile_fx = [], litz.dynamo.compile_fx

    def kept(*args, **kwargs):
        graphs.append(compile_fx(*args, **kwargs))
        return graphs[-1]

    tensors = [torch.randn(4) for _ in range(10)]
    fast = torch.compile(lambda *args: sum(args), backend=litz.dynamo.backend)
    with torch.no_grad():
        with mock.patch.object(litz.dynamo, "compile_fx", kept):
            fast(*tensors)
        (graph,) = graphs
        graph_times, times = zip(*[(timed(lambda: graph(list(tensors))), timed(lambda: fast(*tensors))) for _ in range(rounds)])
    print(f"overhead    {1e6 * statistics.median(graph_times):10.2f} us of a graph {1e6 * statistics.median(times):10.2f} us with guards and wrapper")


def alternating(rounds):
    import litz.dynamo
    import torch

    def of(size):
        x = torch.randn(size, size)
        weight = torch.randn(size, size) / size**0.5
        fast = torch.compile(lambda x: (x @ weight).relu() + x, backend=litz.dynamo.backend, dynamic=False)
        eager = lambda x: (x @ weight).relu() + x
        both = lambda: (fast(x), eager(x))
        with torch.no_grad():
            both()
            turns = [(timed(lambda: fast(x)), timed(lambda: eager(x)), timed(both)) for _ in range(rounds)]
        alone, other, together = (1e3 * statistics.median(times) for times in zip(*turns))
        ratio = statistics.median(both / (alone + other) for alone, other, both in turns)
        print(f"alternating {alone:10.3f} ms Litz {other:10.3f} ms eager {together:10.3f} ms in turns {ratio:8.2f} of the two together, {size} x {size}")

    for size in (64, 128, 256, 512, 1024):
        of(size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    overhead(options.rounds)
    alternating(options.rounds)


if __name__ == "__main__":
    main()
