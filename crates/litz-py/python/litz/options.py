"""Reads the options of `torch.compile(model, backend="litz", options={...})`."""

import os
from dataclasses import dataclass, field, fields

import torch

from . import _litz
from .errors import InvalidError
from .types import overloads


@dataclass
class Options:
    """What can be chosen. Each field but the last is an option of its name."""

    # Threads that run kernels; none: as many as PyTorch has (`torch.get_num_threads()`).
    threads: int | None = None
    # Parameters are constants: folded and packed once, when the model is compiled for inference. They must not change from then on.
    freeze: bool = False
    # What becomes of what Litz does not have: "warn" and "quiet" let PyTorch run it, with one warning an operator or without; "error"
    # raises `litz.UnsupportedError`.
    fallback: str = "warn"
    # Operators that PyTorch runs although Litz has them, by name: "aten.addmm" or "aten.addmm.default", or as PyTorch's own objects.
    eager: tuple = ()
    # Who makes random numbers: "philox", Litz by a seed that each call draws from PyTorch's generator, or "eager", PyTorch, the same
    # numbers as without `torch.compile`, and slower.
    random: str = "philox"
    # Seconds to look for a faster schedule of each graph, at most; `mode="max-autotune"` looks for a minute. What was found is kept in
    # the cache.
    tune: float = 0.0
    # Whose roundings of what lies between operators count: there are only eager's.
    numerics: str = "eager"
    # A folder that the text of every stage is written to.
    dump: str | os.PathLike | None = None
    # A folder of compiled code that processes share; none: nothing is kept. "default" is that of the command line.
    cache: str | os.PathLike | None = "default"
    # Whether nothing in that folder changes: what it has is used, and nothing is kept; none: as `LITZ_CACHE_READ_ONLY` says.
    cache_read_only: bool | None = None
    # Another such folder, in which nothing changes: what is not in the first is looked for there. "default" is that of the command line.
    shared_cache: str | os.PathLike | None = "default"
    # Run on the interpreter that defines what is right.
    reference: bool = False
    # Verify after every pass.
    verify: bool = False
    # Whether a step that makes a NaN or an infinite number of numbers that are none is an error, which names it; none: as `LITZ_CHECK_NAN` says.
    check_nan: bool | None = None
    # A folder for graphs of which a compilation or a call fails, for `litz minify`: of a call all tensors, which are copied before each.
    keep_failures: str | os.PathLike | None = field(default_factory=lambda: os.environ.get("LITZ_KEEP_FAILURES") or None)
    # A folder for all graphs, each with the tensors of its first call.
    keep_calls: str | os.PathLike | None = None
    # Thresholds of the scheduler and of the rewrites, each of which is an option of its own name: `_litz.settings` lists them.
    settings: dict[str, int | str] = field(default_factory=dict)

    def hosted(self) -> frozenset:
        """Names of the operators that PyTorch is to run."""
        return frozenset(name for operator in self.eager for name in overloads(operator))

    def native(self) -> dict:
        """The options of `_litz`."""
        options = {"threads": self.threads or torch.get_num_threads(), "freeze": True}
        options |= {"reference": self.reference, "verify": self.verify, "tune": self.tune}
        if self.dump is not None:
            options["dump"] = self.dump
        if self.check_nan is not None:
            options["check_nan"] = self.check_nan
        if self.cache != "default":
            options["cache"] = self.cache
        if self.cache_read_only is not None:
            options["cache_read_only"] = self.cache_read_only
        if self.shared_cache != "default":
            options["shared_cache"] = self.shared_cache
        return options | self.settings


def _one_of(*names):
    return f"one of {', '.join(names)}", lambda value: value in names


def _operators(value) -> bool:
    """Whether a value is a list of operators that PyTorch has."""
    return isinstance(value, (list, tuple)) and all(overloads(operator) for operator in value)


_TRUTH = "True or False", lambda value: isinstance(value, bool)
_TRUTH_OR_NONE = "True, False or None", lambda value: value is None or isinstance(value, bool)
_FOLDER = "a folder or None", lambda value: value is None or isinstance(value, (str, os.PathLike))

# What each option may be, in words and as a predicate.
VALUES = {
    "threads": ("a number from 1 or None", lambda value: value is None or type(value) is int and value > 0),
    "freeze": _TRUTH,
    "fallback": _one_of("warn", "quiet", "error"),
    "eager": ("a list of operators", _operators),
    "random": _one_of("philox", "eager"),
    "tune": ("seconds, from 0", lambda value: type(value) in (int, float) and 0 <= value < float("inf")),
    "numerics": _one_of("eager"),
    "dump": _FOLDER,
    "cache": _FOLDER,
    "cache_read_only": _TRUTH_OR_NONE,
    "shared_cache": _FOLDER,
    "reference": _TRUTH,
    "verify": _TRUTH,
    "check_nan": _TRUTH_OR_NONE,
    "keep_failures": _FOLDER,
    "keep_calls": _FOLDER,
}

# What each mode chooses. Calls have little overhead to reduce: there is no Python in them.
MODES = {
    "default": {},
    "reduce-overhead": {},
    "max-autotune": {"tune": 60.0},
    "max-autotune-no-cudagraphs": {"tune": 60.0},
}


def _are_products_rounded() -> bool:
    """Whether PyTorch's own products of float32 numbers on a GPU are of tf32, as `torch.set_float32_matmul_precision("high")` wants it. Dynamo compiles
    once more where that changes.
    """
    products = torch.backends.cuda.matmul
    try:
        return products.fp32_precision == "tf32"
    except AttributeError:
        # Before PyTorch 2.9 there is but this.
        return products.allow_tf32


def read(mode: str | None, options: dict | None) -> Options:
    """Options of what `torch.compile` passes on. Raises `litz.InvalidError` for what is not known."""
    chosen = MODES.get(mode or "default")
    if chosen is None:
        raise InvalidError(f"no such mode: {mode}; there are {', '.join(MODES)}")
    names = [each.name for each in fields(Options) if each.name != "settings"]
    own = {name: value for name, value in (options or {}).items() if name in names}
    settings = {name: value for name, value in (options or {}).items() if name not in names}
    for name, value in settings.items():
        there = [setting for setting, _, _ in _litz.settings()]
        if name not in there:
            raise InvalidError(f"no such option: {name}; there are {', '.join(names + there)}")
        _litz.check_setting(name, value)
    if _are_products_rounded():
        settings.setdefault("float32_products", "tf32")
    read = Options(**{**chosen, **own}, settings=settings)
    for name, (expected, is_value) in VALUES.items():
        value = getattr(read, name)
        if not is_value(value):
            raise InvalidError(f"{name}: expected {expected}, found {value!r}")
    return read
