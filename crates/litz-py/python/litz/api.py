"""Compiles and runs exported models, with PyTorch or without it."""

import os
import sys
import tempfile

from . import _litz
from .errors import InvalidError


class Model:
    """A compiled model. Calls take its arguments by position or by name, as tensors of any library that speaks DLPack, which are read where
    they are, and return a list of its results.
    """

    def __init__(self, compiled):
        self._compiled = compiled

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

    def __call__(self, *args, **kwargs) -> list:
        """Runs the model. Raises `litz.RunError` where arguments do not fit."""
        names = self.inputs
        if kwargs:
            rest = names[len(args) :]
            unknown = [name for name in kwargs if name not in rest]
            missing = [name for name in rest if name not in kwargs]
            if unknown or missing:
                raise InvalidError(f"expected {', '.join(rest)} by name, found {', '.join(kwargs)}")
            args = (*args, *(kwargs[name] for name in rest))
        if len(args) != len(names):
            raise TypeError(f"expected {len(names)} arguments, found {len(args)}")
        return self._compiled(list(args))

    def text(self, stage: str) -> str | None:
        """The text of a stage: `graph`, `loops`, `schedule`, `kernel` or `program`; none where the cache had the compilation."""
        return self._compiled.text(stage)

    def statistics(self) -> dict:
        """What calls have done so far: how many there were, for how many sets of sizes, and what memory they took."""
        return self._compiled.statistics()

    def save(self, path) -> None:
        """Writes program, machine code and constants to a file that machines of this kind run without a compiler."""
        self._compiled.save(os.fspath(path))


def compile(model, args=(), kwargs=None, *, options=None) -> Model:
    """Compiles the archive at a path that `torch.export.save` wrote, an `ExportedProgram`, or a module with example arguments.

    `options` are those of the command line by their names, such as `{"threads": 4}`. Results are PyTorch's tensors where the program has
    imported it, else NumPy's arrays.
    """
    if isinstance(model, (str, os.PathLike)):
        return Model(_litz.compile_file(os.fspath(model), _library(), options=options))
    # Nobody has a module or a program of PyTorch's without it.
    torch = sys.modules.get("torch")
    if torch and isinstance(model, torch.nn.Module):
        model = torch.export.export(model, tuple(args), kwargs or {})
    if not torch or not isinstance(model, torch.export.ExportedProgram):
        raise InvalidError(f"expected a path, an ExportedProgram or a module, found {type(model).__name__}")
    with tempfile.TemporaryDirectory(prefix="litz-") as folder:
        path = os.path.join(folder, "model.pt2")
        torch.export.save(model, path)
        # The compiled model maps the file, which lives on without its name.
        return Model(_litz.compile_file(path, _library(), options=options))


def cache_info(options=None) -> dict | None:
    """Where compilations are kept for other processes, how many files there are, their bytes, and the most that are kept; none where nothing is kept.

    Raises `litz.CacheError` where others may write to the folder, as a compilation would.
    """
    found = _litz.cache_info(options=options)
    return dict(zip(("folder", "entries", "bytes", "limit"), found)) if found else None


def _library():
    if "torch" in sys.modules:
        from .library import Torch

        return Torch
    from .arrays import NumPy

    return NumPy
