"""Exports samples of PyTorch's own operator tests: python benches/export_opinfo.py OUT [NAME ...] [--dtype D] [--dynamic]

Each operator of torch.testing._internal.common_methods_invocations.op_db that takes the type gives the first, the middle
and the last of its samples, made with a fixed seed. For each writes
  OUT/NAME.K.pt2           torch.export.save of torch.export.export of one call, K = 0, 1, 2; every tensor is an input
  OUT/NAME.K.safetensors   in.I     the inputs, I = position among them
                           out.I    eager's results, I = position among the flattened ones; tensors only
                           ref.I    floating results, computed in f64
                           terms.I  size of the terms that each element of ref.I is made of, see `magnitudes` and
                                    `with_losses`
                           from.I   where out.I holds positions that are free among equal values: what they are
                                    positions in, as [outer, n, inner] with positions along n
  OUT/NAME.txt             one line for each sample, "0: ok" or why there is none
The last file is written last: an operator that has it is not exported again. With --dynamic all sizes are symbolic.
Writes the names of all operators it was asked for to standard output, what it does to standard error.
"""

import argparse
import copy
import itertools
import math
import os
import pathlib
import random
import signal
import sys
import types
import unittest
import warnings
from typing import Any, Callable

warnings.filterwarnings("ignore")
# Some samples put tensors on a GPU where there is one.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy
import torch
from export_models import Widen, double, tensors
from safetensors.torch import save_file
from torch.export import Dim
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

# PyTorch's tests import this package for the base class of test cases, which nothing here makes an instance of.
sys.modules["expecttest"] = types.ModuleType("expecttest")
sys.modules["expecttest"].TestCase = unittest.TestCase

from torch.testing._internal.common_methods_invocations import op_db

# What these return was never written.
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}

# No operator has more than a few hundred samples.
MOST_SAMPLES = 1000

# Seconds that an operator's samples may take to export; the slowest takes eight.
TIME_LIMIT = 120

# Groups of numbers that are varied one after the other, see `magnitudes`.
GROUPS = 64

# Relative change of a number: far above rounding errors in f64, so small that a second derivative does not show.
CHANGE = 2.0**-20

# Units in the last place of the largest term that a formula may lose on the way, see `with_losses`.
LOSSES = 256


class Vary(Widen):
    """Computes in f64, and shows `vary` integers that become floating numbers."""

    def __init__(self, vary: Callable):
        super().__init__()
        self.vary = vary

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = super().__torch_dispatch__(func, types, args, kwargs)
        is_conversion = func is torch.ops.aten._to_copy.default and not args[0].is_floating_point()
        return self.vary(result) if is_conversion and result.is_floating_point() else result


def singular(left: torch.Tensor, values: torch.Tensor, right: torch.Tensor) -> tuple:
    """Singular values, the products of the vectors of each, and the projections on what belongs to none."""
    count = values.shape[-1]
    products = left[..., :count].mT.unsqueeze(-1) * right[..., :count].mT.conj().unsqueeze(-2)
    others = [vectors[..., count:] for vectors in (left, right)]
    return values, products, *(vectors @ vectors.mT.conj() for vectors in others)


def sorted_values(values: torch.Tensor) -> tuple:
    """Complex values by a key that tells conjugate ones apart, and their order."""
    order = (values.real + values.imag / 3).argsort(-1)
    return torch.take_along_dim(values, order, -1), order


def eigen(values: torch.Tensor, vectors: torch.Tensor) -> tuple:
    """Eigenvalues, and the products of the vector of each with itself."""
    if values.is_complex():
        values, order = sorted_values(values)
        vectors = torch.take_along_dim(vectors, order.unsqueeze(-2), -1)
    return values, vectors.mT.unsqueeze(-1) * vectors.mT.conj().unsqueeze(-2)


# What is the same of any right result, where signs of vectors or the order of values are free: programs return this.
SAME = {
    "linalg_svd": lambda results: singular(results[0], results[1], results[2].mT.conj()),
    "svd": lambda results: singular(*results),
    "linalg_eigh": lambda results: eigen(*results),
    "linalg_eig": lambda results: eigen(*results),
    "linalg_eigvals": lambda result: sorted_values(result)[0],
}


class Call(torch.nn.Module):
    """An operator with all arguments but the tensors, and what is compared of its results."""

    def __init__(self, operator: Callable, args: tuple, kwargs: dict[str, Any], same: Callable = lambda results: results):
        super().__init__()
        self.operator, self.same = operator, same
        self.leaves, self.structure = tree_flatten((args, kwargs))
        self.places = [place for place, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.inputs = tuple(self.leaves[place].detach() for place in self.places)

    def forward(self, *inputs):
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, inputs, strict=True):
            leaves[place] = tensor
        args, kwargs = tree_unflatten(leaves, self.structure)
        return tuple(leaf for leaf in tree_leaves(self.same(self.operator(*args, **kwargs))))

    def run(self, inputs: tuple) -> list:
        """Results for copies of the inputs, which the operator may write to; conjugation and the like are done."""
        with torch.no_grad():
            return [
                leaf.resolve_conj().resolve_neg() if isinstance(leaf, torch.Tensor) else leaf
                for leaf in self(*copy.deepcopy(inputs))
            ]

    def reference(self, inputs: tuple, vary: Callable = lambda numbers: numbers) -> list:
        """Results in f64 for inputs in f64. `vary` may change what the operator is given: each floating tensor, the
        floating ones among the other arguments, and integers on their way to floating numbers."""
        other = copy.copy(self)
        given = [leaf for leaf in self.leaves if type(leaf) is float]
        varied = iter(vary(torch.tensor(given, dtype=torch.float64)).tolist())
        other.leaves = [next(varied) if type(leaf) is float else leaf for leaf in self.leaves]
        inputs = tuple(varied_parts(x, vary) for x in inputs)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with Vary(vary):
                return other.run(inputs)
        finally:
            torch.set_default_dtype(before)


def varied_parts(x: torch.Tensor, vary: Callable) -> torch.Tensor:
    """A tensor whose floating numbers are varied, complex ones in their parts."""
    if x.is_complex():
        return torch.view_as_complex(vary(torch.view_as_real(x.resolve_conj())))
    return vary(x) if x.is_floating_point() else x


def magnitudes(call: Call, inputs: tuple, ref: list) -> list:
    """For each element y of the results, |y| and the sum of |x dy/dx| over the numbers x that the call is given.

    For a sum of products this is the sum of the absolute terms, up to a factor for the number of operands: what the
    rounding errors of any order of summation are proportional to. Numbers are varied in groups, each with a sign of its
    own, so that the sum is exact up to `GROUPS` numbers and a lower bound above. Both directions are tried and the
    smaller change counts: a step of the function may lie on one side. A call without operands makes its results from
    constants that nothing shows, such as the coefficients of a window: they count as large as the largest result.
    """
    total = [y.abs().double() if is_float(y) else None for y in ref]
    if not call.inputs:
        total = [y if y is None or not y.numel() else torch.full_like(y, y.max()) for y in total]
    count = 0

    def counted(numbers: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += numbers.numel()
        return numbers

    call.reference(inputs, counted)
    if not count and call.inputs:
        # An operator may make floating numbers of its operands where nothing sees it: they are given as such.
        floats = tuple(x.double() for x in inputs)
        try:
            same = all(torch.equal(a, b) for a, b in zip(ref, call.reference(floats), strict=True) if is_float(a))
        except Exception:
            same = False
        if same:
            inputs = floats
            call.reference(inputs, counted)
    signs = torch.randint(0, 2, (count,), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    groups = min(GROUPS, count)
    for group in range(groups):
        changes = []
        for direction in (CHANGE, -CHANGE):
            factors = torch.ones(count, dtype=torch.float64)
            factors[group::groups] += signs[group::groups] * direction
            taken = 0

            def changed(numbers: torch.Tensor) -> torch.Tensor:
                nonlocal taken
                own = factors[taken : taken + numbers.numel()]
                taken += numbers.numel()
                return numbers * own.reshape(numbers.shape)

            changes.append(call.reference(inputs, changed))
        for position, (y, *others) in enumerate(zip(ref, *changes, strict=True)):
            if is_float(y) and all(other.shape == y.shape for other in others):
                least = torch.stack([(other - y).abs() for other in others]).nan_to_num(torch.inf, torch.inf).amin(0)
                total[position] += torch.where(least.isfinite(), least, 0.0) / CHANGE
    return total


def with_losses(call: Call, ref: list, terms: list) -> list:
    """`terms` of a call in f64, made larger where its formula loses digits on the way.

    There eager is its own reference, so that its error shows nothing of that. It is seen in f32, where the same formula
    loses as many units in the last place: the logarithm of a softmax near 1 those of 1, however small the logarithm is.
    Differences of more than `LOSSES` units of the largest term are none of rounding.
    """
    other = copy.copy(call)
    other.leaves = [torch.float32 if leaf is torch.float64 else leaf for leaf in call.leaves]
    try:
        narrow = other.run(tuple(x.float() if x.dtype == torch.float64 else x for x in call.inputs))
    except Exception:
        return terms
    unit = torch.finfo(torch.float32).eps
    larger = []
    for y, rough, size in zip(ref, narrow, terms, strict=True):
        if is_float(y) and y.numel() and is_float(rough) and rough.shape == y.shape:
            lost = (rough.double() - y).abs().nan_to_num(torch.inf, torch.inf) / unit
            size = torch.maximum(size, torch.where(lost <= LOSSES * size.nan_to_num(0.0, 0.0).max(), lost, 0.0))
        larger.append(size)
    return larger


def is_float(value) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def free_positions(name: str, call: Call, results: list) -> dict[str, torch.Tensor]:
    """What results are positions in that may be those of any of several equal values."""
    args, kwargs = tree_unflatten(list(call.leaves), call.structure)
    x = args[0]
    named = lambda position, name, default: kwargs.get(name, args[position] if len(args) > position else default)
    match name:
        case "sort" if not kwargs.get("stable"):
            position, dim = 1, named(1, "dim", -1)
        case "argsort" if not kwargs.get("stable"):
            position, dim = 0, named(1, "dim", -1)
        case "topk" | "kthvalue":
            position, dim = 1, named(2, "dim", -1)
        case "median" | "nanmedian" | "mode" if len(results) == 2:
            position, dim = 1, named(1, "dim", -1)
        case _:
            return {}
    x = torch.atleast_1d(x.detach())
    dim %= x.ndim
    shape = (math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :]))
    return {f"from.{position}": x.contiguous().reshape(shape).clone()}


def samples(op, dtype: torch.dtype) -> list[Call]:
    """The first, the middle and the last."""
    for seed in (torch.manual_seed, numpy.random.seed, random.seed):
        seed(0)
    # Made one after the other, since a sample may depend on the random numbers that others took.
    every = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), MOST_SAMPLES))
    chosen = sorted({0, len(every) // 2, len(every) - 1} & set(range(len(every))))
    same = SAME.get(op.formatted_name, lambda results: results)
    return [Call(op.get_op(), (every[i].input, *every[i].args), every[i].kwargs, same) for i in chosen]


def data(name: str, call: Call) -> tuple[dict[str, torch.Tensor], str]:
    """Inputs, results, and what is known of their accuracy; also why there is no reference in f64, if so."""
    out = call.run(call.inputs)
    if not any(isinstance(leaf, torch.Tensor) for leaf in out):
        raise ValueError("it returns no tensor")
    if any(isinstance(leaf, torch.Tensor) and leaf.layout != torch.strided for leaf in out):
        raise ValueError("it returns a sparse tensor")
    named = tensors("in", list(call.inputs)) | tensors("out", out) | free_positions(name, call, out)
    note = ""
    try:
        wide = tuple(double(x) for x in copy.deepcopy(call.inputs))
        ref = call.reference(wide)
        terms = magnitudes(call, wide, ref)
        if any(x.dtype == torch.float64 for x in call.inputs):
            terms = with_losses(call, ref, terms)
    except Exception as error:
        ref = terms = [None] * len(out)
        note = f", no reference in f64: {reason(error)}"
    for position, (narrow, wide, size) in enumerate(zip(out, ref, terms, strict=True)):
        if not is_float(narrow):
            continue
        if not is_float(wide) or wide.shape != narrow.shape:
            # Eager's own result is the best there is.
            note = note or f", no reference in f64 for out.{position}"
            wide, size = narrow.double(), narrow.double().abs()
        named |= {f"ref.{position}": wide.contiguous().clone(), f"terms.{position}": size.contiguous().clone()}
    return named, note


def export(name: str, call: Call, path: pathlib.Path, is_dynamic: bool) -> str:
    """Writes one sample and says what is special about it; raises where it does not export."""
    named, note = data(name, call)
    # The module's only argument is a tuple of any length.
    sizes = (tuple({dim: Dim.AUTO for dim in range(x.ndim)} for x in call.inputs),)
    program = torch.export.export(call, copy.deepcopy(call.inputs), dynamic_shapes=sizes if is_dynamic else None)
    if is_random(program, call.inputs):
        raise ValueError("its results are random")
    try:
        with torch.no_grad():
            program.module()(*copy.deepcopy(call.inputs))
    except Exception as error:
        raise ValueError(f"PyTorch refuses its own program: {reason(error)}") from error
    torch.export.save(program, path.with_name(path.name + ".pt2"))
    save_file(named, path.with_name(path.name + ".safetensors"))
    return note


def is_random(program: torch.export.ExportedProgram, inputs: tuple) -> bool:
    """Whether results depend on the seed. Not all operators that may be random are for all arguments."""
    targets = [node.target for node in program.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    if not any(torch.Tag.nondeterministic_seeded in target.tags for target in targets):
        return False
    outs = []
    for seed in range(4):
        torch.manual_seed(seed)
        with torch.no_grad():
            outs.append([out for out in program.module()(*copy.deepcopy(inputs)) if isinstance(out, torch.Tensor)])
    first, *others = outs
    return any(not torch.equal(a.nan_to_num(), b.nan_to_num()) for other in others for a, b in zip(first, other))


def export_operator(op, dtype: torch.dtype, folder: pathlib.Path, is_dynamic: bool) -> str:
    """Writes an operator's samples; says in a line each how it went."""
    if op.name in UNDEFINED:
        return "-: its results are undefined\n"
    name, lines = op.formatted_name, []

    def stop(*_):
        raise TimeoutError(f"it takes more than {TIME_LIMIT} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(TIME_LIMIT)
    try:
        for number, call in enumerate(samples(op, dtype)):
            try:
                note = export(op.name, call, folder / f"{name}.{number}", is_dynamic)
                lines.append(f"{number}: ok{note}")
            except TimeoutError:
                raise
            except Exception as error:
                lines.append(f"{number}: {reason(error)}")
    except Exception as error:
        lines.append(f"-: {reason(error)}")
    finally:
        signal.alarm(0)
    return "".join(f"{line}\n" for line in lines)


def reason(error: Exception) -> str:
    """The first line of an error."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}"[:200]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder to write to")
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators to export (default: all)")
    parser.add_argument("--dtype", default="float32", help="element type as PyTorch calls it")
    parser.add_argument("--dynamic", action="store_true", help="all sizes are symbolic")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th operator, from the I-th on")
    options = parser.parse_intermixed_args()
    dtype = getattr(torch, options.dtype)
    first, step = map(int, options.shard.split("/"))

    ops = [op for op in op_db if dtype in op.supported_dtypes("cpu")]
    if unknown := set(options.names) - {op.formatted_name for op in ops}:
        parser.error(f"no such operator of {options.dtype}: {', '.join(sorted(unknown))}")
    if options.names:
        ops = [op for op in ops if op.formatted_name in options.names]
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for op in ops[first::step]:
        print(op.formatted_name, flush=True)
        done = options.out / f"{op.formatted_name}.txt"
        if done.exists():
            continue
        # Stays where the process dies of the operator, so that the next one passes over it.
        done.write_text("-: the process died\n")
        lines = export_operator(op, dtype, options.out, options.dynamic)
        done.write_text(lines)
        print(f"{op.formatted_name}: {'; '.join(lines.splitlines())}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
