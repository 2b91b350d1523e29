"""Counts what compiled graphs do."""

import threading
import weakref
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Totals:
    """What this process has compiled so far."""

    graphs: int = 0
    # That compiling took, from PyTorch's graphs to functions.
    seconds: float = 0.0
    # Graphs that PyTorch runs as a whole, by the reason.
    eager_graphs: Counter = field(default_factory=Counter)
    # Calls that PyTorch ran, since sizes were others than the graph was compiled for.
    eager_calls: int = 0
    compile_seconds: Counter = field(default_factory=Counter)


TOTALS = Totals()
_live = weakref.WeakSet()
# Threads compile while others read.
_lock = threading.Lock()


def note(compiled) -> None:
    """Counts one graph that was compiled."""
    with _lock:
        TOTALS.graphs += 1
        for stage, seconds in compiled.timings:
            TOTALS.compile_seconds[stage] += seconds
        _live.add(compiled)


def stats() -> dict:
    """Graphs, kernels, launches and calls of all compiled graphs that are alive, compile seconds by stage, and what PyTorch ran: operators
    by name with calls and seconds, and graphs by reason.
    """
    sums = dict.fromkeys(("calls", "kernels", "launches", "plans"), 0)
    fallbacks = {}
    with _lock:
        live = list(_live)
    for compiled in live:
        one = compiled.statistics()
        for name in sums:
            sums[name] += one[name]
        for op, (calls, seconds) in one["host_calls"].items():
            known = fallbacks.get(op, (0, 0.0))
            fallbacks[op] = (known[0] + calls, known[1] + seconds)
    return {
        "graphs": TOTALS.graphs,
        "seconds": TOTALS.seconds,
        **sums,
        "compile_seconds": dict(TOTALS.compile_seconds),
        "fallbacks": fallbacks,
        "eager_graphs": dict(TOTALS.eager_graphs),
        "eager_calls": TOTALS.eager_calls,
    }


def reset() -> None:
    """Forgets what was counted."""
    with _lock:
        TOTALS.graphs = TOTALS.eager_calls = 0
        TOTALS.seconds = 0.0
        TOTALS.eager_graphs.clear()
        TOTALS.compile_seconds.clear()
        _live.clear()
