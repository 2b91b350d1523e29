"""Compiles and runs exported models, with PyTorch or without it."""

import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _litz
from .errors import InvalidError

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule
    from torch.nn import Module


# What the last input of a model that makes random numbers is called.
_SEED = "litz.seed"


class Model:
    """A compiled model. Calls take its arguments by position or by name, as tensors of any library that speaks DLPack, which are read where
    they are, and return a list of its results.
    """

    def __init__(self, compiled: Any, title: str, library: Any):
        self._compiled = compiled
        self._title = title
        self._library = library

    @property
    def inputs(self) -> list[str]:
        """Names of the arguments, in order."""
        return self._compiled.inputs

    @property
    def outputs(self) -> list[str]:
        """Names of the results, in order."""
        return self._compiled.outputs

    @property
    def timings(self) -> list[tuple[str, float]]:
        """Seconds that each stage of the compilation took, in order."""
        return self._compiled.timings

    def __call__(self, *args: Any, **kwargs: Any) -> list:
        """Runs the model. Raises `litz.RunError` where arguments do not fit.

        A model that makes random numbers makes those of the integer `seed`, the same ones for the same seed; without one, of a seed that the
        system draws.
        """
        return self._compiled(self._arguments(args, kwargs))

    def _arguments(self, args: Sequence, kwargs: dict[str, Any]) -> list:
        """Arguments by position and by name, in the order of the model's.

        Raises `InvalidError` for tensors whose elements are the conjugates, or the opposites, of those in memory, which DLPack's functions do not tell.
        """
        names = self.inputs
        seed = []
        if names[-1:] == [_SEED] and len(args) < len(names):
            names = names[:-1]
            drawn = kwargs.pop("seed", None) if "seed" not in names else None
            seed = [self._library.number(secrets.randbits(63) if drawn is None else int(drawn))]
        if kwargs:
            rest = names[len(args) :]
            unknown = [name for name in kwargs if name not in rest]
            missing = [name for name in rest if name not in kwargs]
            if unknown or missing:
                raise InvalidError(f"expected {', '.join(rest)} by name, found {', '.join(kwargs)}")
            args = (*args, *(kwargs[name] for name in rest))
        if len(args) != len(names):
            raise TypeError(f"expected {len(names)} arguments, found {len(args)}")
        torch = sys.modules.get("torch")
        for name, arg in zip(names, args) if torch else ():
            if isinstance(arg, torch.Tensor) and (arg.is_conj() or arg.is_neg()):
                raise InvalidError(f"{name} is conjugated or negated when it is read: pass `{name}.resolve_conj().resolve_neg()`")
        return [*args, *seed]

    def text(self, stage: str) -> str | None:
        """The text of a stage: `graph`, `loops`, `schedule`, `kernel` or `program`; none where the cache had the compilation."""
        return self._compiled.text(stage)

    @property
    def fallbacks(self) -> list[tuple[str, int, list[str]]]:
        """Operators that PyTorch runs: each one's name, its calls in one call of the model, and the lines of the model that these are of."""
        return self._compiled.fallbacks

    def statistics(self) -> dict[str, Any]:
        """What calls have done so far: how many there were, for how many sets of sizes, and what memory they took."""
        return self._compiled.statistics()

    def save(self, path: str | os.PathLike) -> None:
        """Writes program, machine code and constants to a file that machines of this kind run without a compiler: `litz.load` reads it."""
        self._compiled.save(os.fspath(path))

    def report(self, path: str | os.PathLike, /, *args: Any, calls: int = 20, **kwargs: Any) -> None:
        """Writes one page about the model, a file of HTML: what its lines became, what that costs, and why.

        The model is compiled for it once more, without a cache, and so many calls are timed, with these arguments or, without any, with
        made-up ones. Raises `litz.UnsupportedError` for a model that `litz.load` read, which has no lines.
        """
        given = self._arguments(args, kwargs) if args or kwargs else None
        _litz.write_report(os.fspath(path), self._title, [(self._title, self._compiled)], args=given, calls=calls)


def load(path: str | os.PathLike, *, options: dict[str, Any] | None = None) -> Model:
    """Reads a program that `Model.save`, or `litz compile -o FILE.litzc`, wrote. Nothing is compiled; of its texts there are `kernel` and `program`.

    The file holds machine code: load only what you would run. `options` are `threads`, `host` and `fallback`.
    """
    path = os.fspath(path)
    library = _library()
    return Model(_litz.load(path, library, options=options), os.path.basename(path), library)


def compile(
    model: "str | os.PathLike | ExportedProgram | Module",
    args: Sequence = (),
    kwargs: dict[str, Any] | None = None,
    *,
    options: dict[str, Any] | None = None,
) -> Model:
    """Compiles the archive at a path that `torch.export.save` wrote, an `ExportedProgram`, or a module with example arguments.

    Operators of a program or module that Litz does not have PyTorch runs, which `Model.fallbacks` lists; with the option `fallback` false, and in
    archives, they raise `litz.UnsupportedError`, which names each and its line.

    `options` are those of the command line by their names, such as `{"threads": 4}`. Results are PyTorch's tensors where the program has
    imported it, else NumPy's arrays.
    """
    library = _library()
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        return Model(_litz.compile_file(path, library, options=options), os.path.basename(path), library)
    # Nobody has a module or a program of PyTorch's without it.
    torch, title = sys.modules.get("torch"), type(model).__name__
    if torch and isinstance(model, torch.nn.Module):
        model = torch.export.export(model, tuple(args), kwargs or {})
    if not torch or not isinstance(model, torch.export.ExportedProgram):
        raise InvalidError(f"expected a path, an ExportedProgram or a module, found {type(model).__name__}")
    from .host import HOST

    options = {"host": HOST, **(options or {})}
    with tempfile.TemporaryDirectory(prefix="litz-") as folder:
        path = os.path.join(folder, "model.pt2")
        torch.export.save(model, path)
        # The compiled model maps the file, which lives on without its name.
        return Model(_litz.compile_file(path, library, options=options), title, library)


def fx(
    model: "str | os.PathLike | ExportedProgram | Module | Model",
    args: Sequence = (),
    kwargs: dict[str, Any] | None = None,
    *,
    options: dict[str, Any] | None = None,
) -> "GraphModule":
    """The program of a model as a graph of torch.fx, whose nodes launch Litz's kernels and call operators of PyTorch. It takes the model's arguments
    by position, and returns a list of its results; constants are buffers.

    What `compile` takes is compiled first, with these `options`. Of a model that was compiled the graph's kernels have the options `threads` and `cache`.
    """
    import torch  # noqa: F401 - the results of models are its tensors then

    from .graphs import from_text

    compiled = model if isinstance(model, Model) else compile(model, args, kwargs, options=options)
    text, constants = _litz.module_of(compiled._compiled, "fx")
    chosen = {name: value for name, value in (options or {}).items() if name in ("threads", "cache", "reference")}
    return from_text(text, constants, chosen)


def cache_info(options: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """Where compilations are kept for other processes, how many files there are, their bytes, and the most that are kept; none where nothing is kept.

    Raises `litz.CacheError` where others may write to the folder, as a compilation would.
    """
    found = _litz.cache_info(options=options)
    return dict(zip(("folder", "entries", "bytes", "limit"), found)) if found else None


def _library() -> Any:
    """Who makes results."""
    if "torch" in sys.modules:
        from .library import Torch

        return Torch
    from .arrays import NumPy

    return NumPy
