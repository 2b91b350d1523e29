"""Says what became of a function under `torch.compile(.., backend="litz")`: its graphs, what they run, and why there are several."""

import inspect
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from . import _litz, dynamo, options as option
from .errors import InvalidError


@dataclass(frozen=True)
class Fallback:
    """An operator that PyTorch runs, since Litz does not have it or cannot take the call."""

    # Such as `aten.linalg_inv.default`.
    operator: str
    # In one call of the graph.
    calls: int
    # The user's lines, such as `model.py:12`, as far as they are known.
    lines: list[str]


@dataclass(frozen=True)
class Break:
    """A place where Dynamo ends a graph and lets Python go on."""

    reason: str
    # The user's line; none where it is not known.
    line: str | None


@dataclass(frozen=True)
class Graph:
    """A graph that Dynamo captured."""

    # `forward`, `backward` or `inference`.
    kind: str
    # Seconds that compiling it took, by stage.
    seconds: dict[str, float]
    # Why PyTorch runs it as a whole; none where Litz runs it.
    reason: str | None
    _compiled: Any = field(repr=False)

    @property
    def kernels(self) -> int:
        """Distinct kernels."""
        return self._compiled.statistics()["kernels"] if self._compiled else 0

    @property
    def launches(self) -> int:
        """Launches of kernels in one call."""
        return self._compiled.statistics()["launches"] if self._compiled else 0

    @property
    def bytes(self) -> int:
        """Bytes that one call moves between kernels and memory, by the sizes that the graph was traced with."""
        return self._compiled.bytes_moved() or 0 if self._compiled else 0

    @property
    def fallbacks(self) -> list[Fallback]:
        """Operators that PyTorch runs."""
        return [Fallback(*one) for one in self._compiled.fallbacks] if self._compiled else []

    def text(self, stage: str = "graph") -> str | None:
        """The text of a stage: `graph`, `loops`, `schedule`, `kernel` or `program`; none where PyTorch runs the graph."""
        return self._compiled.text(stage) if self._compiled else None

    def __str__(self) -> str:
        if self._compiled is None:
            return f"{self.kind}, which PyTorch runs as a whole: {self.reason}"
        seconds = sum(self.seconds.values())
        lines = [f"{self.kind}: {_counted(self.kernels, 'kernel')}, {_counted(self.launches, 'launch')}, compiled in {seconds:.2f} s"]
        for one in self.fallbacks:
            at = f" at {', '.join(one.lines)}" if one.lines else ""
            lines.append(f"  PyTorch runs {one.operator}: {_counted(one.calls, 'call')}{at}")
        return "\n".join(lines)


@dataclass
class Explanation:
    """What became of a function. `print` says it in short, `report` writes a page about it."""

    # What the function is called.
    name: str
    # What the call returned.
    result: Any = None
    # In the order in which they were compiled. A backward graph is here once it has run: `explanation.result.backward()`.
    graphs: list[Graph] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)

    @property
    def kernels(self) -> int:
        """Kernels of all graphs."""
        return sum(graph.kernels for graph in self.graphs)

    @property
    def launches(self) -> int:
        """Launches of kernels in one call of each graph."""
        return sum(graph.launches for graph in self.graphs)

    @property
    def fallbacks(self) -> dict[str, Fallback]:
        """Operators that PyTorch runs, by name, in one call of each graph."""
        found: dict[str, Fallback] = {}
        for one in (one for graph in self.graphs for one in graph.fallbacks):
            known = found.get(one.operator, Fallback(one.operator, 0, []))
            lines = list(dict.fromkeys([*known.lines, *one.lines]))
            found[one.operator] = Fallback(one.operator, known.calls + one.calls, lines)
        return found

    def __str__(self) -> str:
        parts = [
            _counted(len(self.graphs), "graph"),
            _counted(len(self.breaks), "graph break"),
            f"{_counted(self.kernels, 'kernel')} in {_counted(self.launches, 'launch')}",
            f"{_counted(len(self.fallbacks), 'operator')} run by PyTorch",
        ]
        lines = [f"{self.name}: {', '.join(parts)}"]
        lines += [f"graph {number}, {graph}" for number, graph in enumerate(self.graphs, 1)]
        lines += [f"break{f' at {one.line}' if one.line else ''}: {_first(one.reason)}" for one in self.breaks]
        return "\n".join(lines)

    def report(self, path: str | os.PathLike, *, calls: int = 20) -> None:
        """Writes a page about all graphs that Litz runs, with times of so many calls with made-up inputs of their sizes."""
        known = [(number, graph) for number, graph in enumerate(self.graphs, 1) if graph._compiled is not None]
        notes = [f"Break{f' at {one.line}' if one.line else ''}: {_first(one.reason)}" for one in self.breaks]
        notes += [f"Graph {number}, {graph}" for number, graph in enumerate(self.graphs, 1) if graph._compiled is None]
        models = [(graph.kind, graph._compiled) for _, graph in known]
        _litz.write_report(os.fspath(path), self.name, models, notes=notes, calls=calls)


def explain(
    fn: Callable, args: Sequence, kwargs: dict[str, Any], *, options: dict | None = None, mode: str | None = None, dynamic: bool | None = None
) -> Explanation:
    """Compiles a function or a module by `torch.compile` with Litz, calls it once with these arguments, and says what became of it.

    What Dynamo has compiled in this process so far is forgotten (`torch._dynamo.reset`), so that all of the function is compiled. Raises
    `InvalidError` for wrong options, and where a setting may be meant for the function.
    """
    plain = getattr(fn, "_orig_mod", None) or getattr(fn, "_torchdynamo_orig_callable", None) or fn
    given = {name for name, value in (("options", options), ("mode", mode), ("dynamic", dynamic)) if value is not None}
    for name in sorted(given & _parameters(plain)):
        raise InvalidError(f"the function has a parameter `{name}` of its own: explain one that calls it, such as `lambda x: f(x, {name}=...)`")
    # What is in a cache has no texts but the last two; what PyTorch runs is said here.
    options = {"cache": None, "fallback": "quiet", **(options or {})}
    option.read(mode, options)
    explanation = Explanation(getattr(plain, "__qualname__", None) or type(plain).__qualname__)

    def note(kind: str, compiled: Any, reason: str | None) -> None:
        seconds = Counter()
        for stage, taken in compiled.timings if compiled else ():
            seconds[stage] += taken
        explanation.graphs.append(Graph(kind, dict(seconds), reason, compiled))

    def backend(module, example_inputs):
        why = getattr(module, "compile_subgraph_reason", None)
        if why is not None and why.graph_break:
            explanation.breaks.append(Break(why.reason, _line(why.user_stack)))
        return dynamo.backend(module, example_inputs, mode=mode, options=options, note=note)

    torch._dynamo.reset()
    before = Counter(torch._dynamo.utils.counters["graph_break"])
    explanation.result = torch.compile(plain, backend=backend, dynamic=dynamic)(*args, **kwargs)
    # Where a break has no graph before it, there is its reason and no line.
    known = {one.reason for one in explanation.breaks}
    for reason in Counter(torch._dynamo.utils.counters["graph_break"]) - before:
        if reason not in known:
            explanation.breaks.append(Break(reason, None))
    return explanation


def _parameters(fn) -> set[str]:
    """Names of a function's parameters, as far as they are known."""
    try:
        return set(inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).parameters)
    except (TypeError, ValueError):
        return set()


def _line(stack) -> str | None:
    """The innermost line of a stack: `model.py:12`."""
    if not stack:
        return None
    frame = stack[-1]
    return f"{os.path.basename(frame.filename)}:{frame.lineno}"


def _first(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else ""


def _counted(number: int, what: str) -> str:
    plural = "es" if what.endswith("ch") else "s"
    return f"{number} {what}{'' if number == 1 else plural}"
