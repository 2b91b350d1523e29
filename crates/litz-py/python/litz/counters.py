"""Counts what compiled graphs do."""

import itertools
import threading
import weakref
from collections import Counter, deque
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
# Threads compile while others read.
_lock = threading.Lock()
_numbers = itertools.count()
# Compiled graphs that can be called, by a number.
_live = {}
# What those did that are gone: all of them, and one by one those that are not in that sum yet, with their numbers. A graph may go while a
# thread has the lock, that thread among them.
_gone, _late = {}, deque()


def note(run, compiled) -> None:
    """Counts one graph that was compiled. It counts calls for as long as `run` lives, which makes them."""
    with _lock:
        TOTALS.graphs += 1
        for stage, seconds in compiled.timings:
            TOTALS.compile_seconds[stage] += seconds
        _settle()
        number = next(_numbers)
        _live[number] = weakref.ref(compiled)
    weakref.finalize(run, lambda: _late.append((number, compiled.statistics()))).atexit = False


def stats() -> dict:
    """Graphs, kernels, launches and calls of all compiled graphs, compile seconds by stage, and what PyTorch ran: operators by name with calls,
    seconds and bytes of operands and results, and graphs by reason.
    """
    with _lock:
        held = {number: compiled for number, of in _live.items() if (compiled := of()) is not None}
        # What goes from here on is among those that are held.
        _settle()
        sums = dict.fromkeys(_SUMMED, 0) | {"fallbacks": {}} | _gone
        for number, compiled in held.items():
            if number in _live:
                _add(sums, compiled.statistics())
        return {
            "graphs": TOTALS.graphs,
            "seconds": TOTALS.seconds,
            **sums,
            "compile_seconds": dict(TOTALS.compile_seconds),
            "eager_graphs": dict(TOTALS.eager_graphs),
            "eager_calls": TOTALS.eager_calls,
        }


_SUMMED = ("cache_hits", "calls", "kernels", "launches", "plans")


def _settle():
    """Adds what graphs did that are gone, but for those that were forgotten."""
    while _late:
        number, one = _late.popleft()
        if _live.pop(number, None) is not None:
            _add(_gone, one)


def _add(sums, one):
    """Adds what one graph did."""
    for name in _SUMMED:
        sums[name] = sums.get(name, 0) + one[name]
    fallbacks = dict(sums.get("fallbacks", {}))
    for op, numbers in one["host_calls"].items():
        fallbacks[op] = tuple(map(sum, zip(numbers, fallbacks.get(op, (0, 0.0, 0)))))
    sums["fallbacks"] = fallbacks


def reset() -> None:
    """Forgets what was counted."""
    with _lock:
        TOTALS.graphs = TOTALS.eager_calls = 0
        TOTALS.seconds = 0.0
        TOTALS.eager_graphs.clear()
        TOTALS.compile_seconds.clear()
        _live.clear()
        _gone.clear()
