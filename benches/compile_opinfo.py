"""Runs PyTorch's operator tests through torch.compile: python benches/compile_opinfo.py OUT [NAME ...] [--dtype D] [--grad] [--dynamic] [--errors]

Each operator of torch.testing._internal.common_methods_invocations.op_db that takes the type gives its three smallest samples of at most
some hundreds, made with a fixed seed. Each is run by eager, by `backend="aot_eager"` and by `backend="litz"`, fullgraph. Writes to OUT/NAME.json
what became of each sample:
  pass      equal to eager's by the numeric contract, with type, sizes and strides; `fallbacks` are operators that PyTorch ran
  excluded  eager or aot_eager is not right, and why
  left      PyTorch ran a graph as a whole, for a reason that `crates/litz-py/python/tests/left.py` does not have; mistakes of Litz among them
  wrong     other numbers, types, sizes or strides
  error     an exception
With --errors the samples are those that PyTorch says are wrong calls, of any type: pass is that an exception is raised where eager raises one,
wrong that none is.

An operator that has a file is not run again. Prints one line for each operator. With --report nothing runs: of all that has run it prints
what is excluded and why, what does not pass, which operators eager mode ran, and counts; exit status 1 where something is wrong or left.
"""

import argparse
import copy
import itertools
import json
import pathlib
import random
import signal
import sys
import types
import unittest
import warnings
from collections import Counter

warnings.filterwarnings("ignore")

import numpy
import torch
from export_models import Widen, double
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

import litz.dynamo
import litz.counters

sys.path.append(str(pathlib.Path(__file__).parents[1] / "crates/litz-py/python/tests"))
import left

# PyTorch's tests import this package for the base class of test cases, which nothing here makes an instance of.
sys.modules.setdefault("expecttest", types.ModuleType("expecttest"))
sys.modules["expecttest"].TestCase = unittest.TestCase

from torch.testing._internal.common_methods_invocations import op_db

# What these return was never written: type, sizes and strides count.
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}

# Samples looked at, run, and seconds that an operator may take.
MOST_SAMPLES, RUN_SAMPLES, TIME_LIMIT = 300, 3, 240
# Twins of eager's that say how far roundings get, where results differ.
TWINS = 4

# Relative difference allowed where there is no reference in f64: PyTorch's own tolerances.
TOLERANCES = {torch.float64: 1e-7, torch.complex128: 1e-7, torch.float16: 1e-3, torch.bfloat16: 1.6e-2}


class Wrong(Exception):
    """A result is not eager's."""


def sized(sample) -> int:
    """How many elements a sample's tensors have."""
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))


def samples(op, dtype, grad, device):
    """The smallest samples that have elements, one without where there is any."""
    for seed in (torch.manual_seed, numpy.random.seed, random.seed):
        seed(0)
    every = list(itertools.islice(op.sample_inputs(device, dtype, requires_grad=grad), MOST_SAMPLES))
    some = sorted((sample for sample in every if sized(sample)), key=sized)
    return (some or every)[:RUN_SAMPLES]


class Call:
    """An operator with all arguments but the tensors, and its results as a flat list."""

    def __init__(self, op, sample):
        self.operator = op.get_op()
        self.leaves, self.structure = tree_flatten(((sample.input, *sample.args), sample.kwargs))
        self.places = [place for place, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.inputs = [self.leaves[place] for place in self.places]

    def __call__(self, *inputs):
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, inputs, strict=True):
            leaves[place] = tensor
        args, kwargs = tree_unflatten(leaves, self.structure)
        return tree_leaves(self.operator(*args, **kwargs))

    def fresh(self):
        return [x.detach().clone(memory_format=torch.preserve_format).requires_grad_(x.requires_grad) for x in self.inputs]


def run(function, inputs, grad):
    """Results, and gradients of the floating inputs where these are asked for, in one list."""
    torch.manual_seed(7)
    outs = function(*inputs)
    values = [out.detach() if isinstance(out, torch.Tensor) else out for out in outs]
    if grad:
        outs = [out for out in outs if isinstance(out, torch.Tensor) and out.requires_grad]
        wanted = [x for x in inputs if x.requires_grad]
        generator = torch.Generator().manual_seed(3)
        tangents = []
        for out in outs:
            real = torch.empty(out.shape, dtype=torch.float64).uniform_(-1, 1, generator=generator)
            tangents.append(real.to(out.dtype).to(out.device))
        grads = torch.autograd.grad(outs, wanted, tangents, allow_unused=True) if outs and wanted else []
        values += [value.detach() if value is not None else None for value in grads]
    return values


def compare(ours, eager, reference, is_random, twins=()):
    """Raises `Wrong` where our results are not eager's. `twins` are eager's for inputs that are a rounding away, which say how far roundings get."""
    if len(ours) != len(eager):
        raise Wrong(f"{len(ours)} results, expected {len(eager)}")
    for position, (mine, theirs) in enumerate(zip(ours, eager)):
        if not isinstance(theirs, torch.Tensor):
            if isinstance(theirs, float) and isinstance(mine, float):
                same = mine == theirs or theirs != theirs and mine != mine or abs(mine - theirs) <= 1e-6 * abs(theirs)
            else:
                same = mine == theirs
            if not same and not is_random:
                raise Wrong(f"result {position}: {mine}, expected {theirs}")
            continue
        if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
            raise Wrong(f"result {position}: {mine.dtype}{list(mine.shape)}, expected {theirs.dtype}{list(theirs.shape)}")
        if mine.layout == torch.strided and theirs.layout == torch.strided:
            for size, a, b in zip(theirs.shape, mine.stride(), theirs.stride()):
                if size > 1 and a != b and theirs.numel():
                    raise Wrong(f"result {position}: strides {mine.stride()}, expected {theirs.stride()}")
        if is_random or not theirs.numel():
            continue
        mine, theirs = mine.cpu(), theirs.cpu()
        mine, theirs = (x.to_dense() if x.layout != torch.strided else x for x in (mine, theirs))
        mine, theirs = (x.resolve_conj().resolve_neg() for x in (mine, theirs))
        ref = reference[position].cpu() if reference is not None else None
        has_reference = ref is not None and ref.shape == theirs.shape
        if not (theirs.is_floating_point() or theirs.is_complex()):
            # Places of what is nearly equal, such as boxes sorted by scores, are in double precision others than eager's, too.
            open_ones = int((theirs != ref).sum()) if has_reference else 0
            differing = int((mine != (ref if open_ones else theirs)).sum())
            if differing > 1.5 * open_ones:
                raise Wrong(f"result {position}: {differing} of {theirs.numel()} elements differ")
            continue
        wide = torch.complex128 if theirs.is_complex() else torch.float64
        a, b = mine.to(wide), theirs.to(wide)
        finite = b.isfinite()
        if not torch.equal(a.isfinite(), finite) or not torch.equal(a[~finite].isnan(), b[~finite].isnan()):
            raise Wrong(f"result {position}: NaN or infinity in other places")
        a, b = a[finite], b[finite]
        tolerance = TOLERANCES.get(theirs.dtype, 2e-5)
        if has_reference:
            r = ref.to(wide)[finite]
            unit = torch.finfo(theirs.dtype).eps
            others = (twin[position].cpu().to(wide)[finite] for twin in twins)
            allowed = 1.5 * max((x - r).norm() for x in (b, *others)) + unit * r.norm() + 1e-300
            if (a - r).norm() <= allowed:
                continue
        if (a - b).norm() > tolerance * b.norm() + 1e-30:
            error = ((a - b).norm() / b.norm()).item()
            raise Wrong(f"result {position}: a relative difference of {error:.2e}")


def reference(function, inputs, grad):
    """Results in f64, where they can be had."""
    try:
        wide = [double(x.detach()).requires_grad_(x.requires_grad) for x in inputs]
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            if grad:
                return run(function, wide, grad)
            with Widen():
                return run(function, wide, grad)
        finally:
            torch.set_default_dtype(before)
    except Exception:
        return None


def moved(inputs, seed):
    """Inputs, each floating element less or more by a unit in its last place, or as it is."""
    generator = torch.Generator().manual_seed(seed)
    for x in inputs:
        if x.is_floating_point():
            by = torch.finfo(x.dtype).eps * torch.randint(-1, 2, x.shape, generator=generator)
            x.data.add_((x.detach().double() * by.to(x.device)).to(x.dtype))
    return inputs


def agree(results, eager, wide, is_random, call, grad):
    """Raises `Wrong` where results are not eager's, also where little is left of what cancels out: the gradient of a norm of two elements."""
    try:
        return compare(results, eager, wide, is_random)
    except Wrong:
        if wide is None:
            raise
        try:
            twins = [run(call, moved(call.fresh(), seed), grad) for seed in range(TWINS)]
        except Exception:
            twins = []
    compare(results, eager, wide, is_random, twins)


def compiled(call, backend, dynamic):
    torch._dynamo.reset()
    return torch.compile(lambda *inputs: call(*inputs), backend=backend, fullgraph=True, dynamic=dynamic)


def check(op, sample, options) -> dict:
    """What became of one sample."""
    call = Call(op, sample)
    try:
        eager = run(call, call.fresh(), options.grad)
        torch.manual_seed(99)
        is_random = op.name in UNDEFINED
    except Exception as error:
        return {"verdict": "excluded", "why": f"eager: {reason(error)}"}
    wide = reference(call, call.fresh(), options.grad)
    if wide is not None and (len(wide) != len(eager) or not all(isinstance(x, torch.Tensor) for x in wide)):
        wide = None
    try:
        aot = run(compiled(call, "aot_eager", options.dynamic), call.fresh(), options.grad)
        agree(aot, eager, wide, is_random, call, options.grad)
    except Exception as error:
        return {"verdict": "excluded", "why": f"aot_eager: {reason(error)}"}
    litz.counters.reset()
    try:
        ours = run(compiled(call, litz.dynamo.backend, options.dynamic), call.fresh(), options.grad)
        stats = litz.counters.stats()
        agree(ours, eager, wide, is_random, call, options.grad)
    except Wrong as error:
        return {"verdict": "wrong", "why": str(error), "fallbacks": sorted(stats["fallbacks"])}
    except Exception as error:
        return {"verdict": "error", "why": reason(error)}
    graphs = [f"graph: {why}" for why in stats["eager_graphs"]]
    if unexpected := left.unexpected(stats["eager_graphs"]):
        return {"verdict": "left", "why": unexpected[0][:300]}
    return {"verdict": "pass", "fallbacks": [*sorted(stats["fallbacks"]), *graphs]}


def check_error(op, sample, options) -> dict:
    """What became of a sample that is a wrong call. Its tensors are not copied: what they share may be what is wrong."""
    try:
        call = Call(op, sample)
        run(call, call.inputs, False)
    except Exception as error:
        expected = error
    else:
        return {"verdict": "excluded", "why": "eager raises nothing"}
    litz.counters.reset()
    try:
        run(compiled(call, litz.dynamo.backend, options.dynamic), call.inputs, False)
    except Exception:
        return {"verdict": "pass", "fallbacks": sorted(litz.counters.stats()["fallbacks"])}
    try:
        run(compiled(call, "aot_eager", options.dynamic), call.inputs, False)
        others = "aot_eager raises nothing, too"
    except Exception as error:
        others = "aot_eager raises"
    return {"verdict": "wrong", "why": f"no error where eager has {reason(expected)}; {others}"}


def reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"[:300]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder to write to")
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators to run (default: all)")
    parser.add_argument("--dtype", default="float32", help="element type as PyTorch calls it")
    parser.add_argument("--device", default="cpu", help="where tensors are: cpu or cuda")
    parser.add_argument("--grad", action="store_true", help="gradients, too")
    parser.add_argument("--dynamic", action="store_true", help="all sizes are symbolic")
    parser.add_argument("--errors", action="store_true", help="wrong calls instead of right ones: each has to raise where eager does")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th operator, from the I-th on")
    parser.add_argument("--report", action="store_true", help="run nothing, and print what became of all that has run")
    options = parser.parse_intermixed_args()
    if options.report:
        sys.exit(report(options.out))
    options.dynamic = True if options.dynamic else None
    dtype = getattr(torch, options.dtype)
    first, step = map(int, options.shard.split("/"))
    takes = lambda op: dtype in (op.supported_backward_dtypes(options.device) if options.grad else op.supported_dtypes(options.device))
    if options.errors:
        ops = [op for op in op_db if op.error_inputs_func is not None]
    else:
        ops = [op for op in op_db if takes(op) and (not options.grad or op.supports_autograd)]
    if options.names:
        ops = [op for op in ops if op.formatted_name in options.names or op.name in options.names]
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch._dynamo.config.capture_scalar_outputs = True
    torch._dynamo.config.capture_dynamic_output_shape_ops = True

    def stop(*_):
        raise TimeoutError(f"it takes more than {TIME_LIMIT} s")

    signal.signal(signal.SIGALRM, stop)
    for op in ops[first::step]:
        path = options.out / f"{op.formatted_name}.json"
        if path.exists():
            continue
        # Stays where the process dies of the operator, so that the next one passes over it.
        path.write_text(json.dumps([{"verdict": "error", "why": "the process died"}]))
        signal.alarm(TIME_LIMIT)
        try:
            if options.errors:
                results = [check_error(op, error.sample_input, options) for error in op.error_inputs(options.device)]
            else:
                results = [check(op, sample, options) for sample in samples(op, dtype, options.grad, options.device)]
        except Exception as error:
            results = [{"verdict": "excluded", "why": reason(error)}]
        finally:
            signal.alarm(0)
        path.write_text(json.dumps(results))
        counts = Counter(result["verdict"] for result in results)
        whys = {result["why"] for result in results if "why" in result}
        print(op.formatted_name, dict(counts), *sorted(whys), flush=True)


ORDER = ("excluded", "pass", "left", "error", "wrong")


def report(folder: pathlib.Path) -> int:
    """Prints what became of operators: each is as good as the worst of its samples that are not excluded. Gives 1 where one is wrong or
    left.
    """
    verdicts, fallbacks, counts = {verdict: [] for verdict in ORDER}, Counter(), Counter()
    for path in sorted(folder.glob("*.json")):
        results = json.loads(path.read_text())
        counts.update(result["verdict"] for result in results)
        worst = max((result["verdict"] for result in results), key=ORDER.index, default="excluded")
        whys = sorted({result["why"] for result in results if result["verdict"] == worst and "why" in result})
        used = sorted({name for result in results for name in result.get("fallbacks", [])})
        verdicts[worst].append((path.stem, whys, used))
        fallbacks.update(used if worst == "pass" else [])
    for verdict in ("excluded", "left", "error", "wrong"):
        for name, whys, _ in verdicts[verdict]:
            print(f"{verdict:8} {name}: {'; '.join(whys) or 'it has no samples'}")
    for name, count in fallbacks.most_common():
        print(f"fallback {name}: in {count} operators")
    passed, tried = verdicts["pass"], sum(len(verdicts[verdict]) for verdict in ORDER[1:])
    native = sum(not used for _, _, used in passed)
    share = lambda count: f"{count} ({100 * count / max(tried, 1):.1f} %)"
    print(f"{folder.name}: {tried} operators, {share(len(passed))} pass, {share(native)} natively, {len(verdicts['wrong'])} wrong, "
          f"{len(verdicts['left'])} left to PyTorch, {len(verdicts['error'])} errors, {len(verdicts['excluded'])} excluded")
    print("samples: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in ORDER))
    return 1 if verdicts["wrong"] or verdicts["left"] else 0


if __name__ == "__main__":
    main()
