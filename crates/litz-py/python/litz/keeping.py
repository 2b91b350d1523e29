"""Keeps graphs of which a compilation or a call fails as folders that `litz minify` and `litz bisect` take."""

import os
import platform
import sys

import torch

from . import _litz
from .errors import LitzError
from .folders import folder_of_its_own


class Keeping:
    """A compiled graph that writes down what it is called with: of its first call, of calls that fail, or of both."""

    def __init__(self, compiled, converted, options):
        self._compiled, self._converted, self._options = compiled, converted, options
        self._is_first = options.keep_calls is not None

    def __call__(self, args: list):
        # A call may write over its arguments.
        given = [_copy(args[position]) for position in self._converted.taken]
        if self._is_first:
            self._is_first = False
            write(self._options.keep_calls, self._converted, given, "a call that was to be kept")
        try:
            return self._compiled(args)
        except _litz.CheckError:
            # Sizes that the graph was not compiled for: PyTorch runs that call.
            raise
        except LitzError as error:
            if self._options.keep_failures is not None:
                write(self._options.keep_failures, self._converted, given, str(error))
            raise


def write(folder, converted, given, reason: str) -> None:
    """Writes a graph with its constants, and what it is called with where that is known, to a folder of its own in `folder`. Says so on standard
    error.
    """
    own = folder_of_its_own(folder)
    tensors = {f"const.{name}": constant.detach().cpu() for name, constant in converted.constants.items()}
    tensors |= {f"in.{at}": tensor for at, tensor in enumerate(given)}
    _litz.write_case(os.path.join(own, "graph.litz"), converted.text, tensors)
    versions = f"litz {_litz.__version__}, torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}"
    with open(os.path.join(own, "versions.txt"), "w") as file:
        file.write(f"{versions}\n{reason}\n")
    print(f"litz: kept a graph: litz minify {own}", file=sys.stderr)


def _copy(value) -> torch.Tensor:
    """A tensor of its own in the host's memory that holds what an argument does."""
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else torch.tensor(value)
