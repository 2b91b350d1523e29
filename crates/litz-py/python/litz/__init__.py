"""Litz compiles PyTorch's models to fast native code.

`torch.compile(model, backend="litz")` needs no import of this package. `litz.compile` takes exported models, with PyTorch or without it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._litz import __version__
from .api import Model, cache_info, compile, fx, load
from .errors import CacheError, InternalError, InvalidError, LitzError, RunError, UnsupportedError

if TYPE_CHECKING:
    from .explanation import Explanation

__all__ = [
    "CacheError",
    "InternalError",
    "InvalidError",
    "LitzError",
    "Model",
    "RunError",
    "UnsupportedError",
    "__version__",
    "cache_info",
    "compile",
    "explain",
    "fx",
    "load",
    "reset_stats",
    "stats",
]


def explain(
    fn: Callable,
    /,
    *args: Any,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
    dynamic: bool | None = None,
    **kwargs: Any,
) -> "Explanation":
    """Compiles a function or a module by `torch.compile` with Litz, calls it once with these arguments, and says what became of it: its
    graphs with their texts, kernels and launches, what PyTorch runs and at which lines, and why there are several graphs.

    `options`, `mode` and `dynamic` are those of `torch.compile`; `fallback` is "quiet" and `cache` None unless `options` say otherwise. A
    function that has a parameter of one of these names is called by another one that gives it.

    `print` shows it in short, `.report("report.html")` writes a page. Dynamo is reset first.
    """
    from . import explanation

    return explanation.explain(fn, args, kwargs, options=options, mode=mode, dynamic=dynamic)


def stats() -> dict:
    """What graphs of `torch.compile(.., backend="litz")` have done in this process: see `docs/python.md`."""
    from .counters import stats

    return stats()


def reset_stats() -> None:
    """Forgets what was counted."""
    from .counters import reset

    reset()
