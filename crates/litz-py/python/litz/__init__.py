"""Litz compiles PyTorch's models to fast native code.

`torch.compile(model, backend="litz")` needs no import of this package. `litz.compile` takes exported models, with PyTorch or without it.
"""

from ._litz import __version__
from .api import Model, cache_info, compile
from .errors import CacheError, InternalError, InvalidError, LitzError, RunError, UnsupportedError

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
    "reset_stats",
    "stats",
]


def stats() -> dict:
    """What graphs of `torch.compile(.., backend="litz")` have done in this process: see `docs/python.md`."""
    from .counters import stats

    return stats()


def reset_stats() -> None:
    """Forgets what was counted."""
    from .counters import reset

    reset()
