"""Runs random small programs through torch.compile and compares whatever is seen of them with eager mode:

    python random_programs.py [--seed S] [--count N] [--dynamic] [--grad] [--seconds T] [--device D]

A program is a function of a few tensors: pointwise operators on many types, reductions, views, writes in place to inputs, to views of them and to
what is between, indexing, norms, products, sorting, numbers of sizes and elements, and branches. Compared are values, types, sizes and strides of the results, which of them share memory
with what, what became of the inputs, and gradients; and no graph may be left to PyTorch but for the reasons of `left.py`. A program of which `backend="aot_eager"` is not right in the same sense does not count. One
that fails is made as small as it gets, and is printed as a file of Python with the graphs' texts.

How far a floating-point value may be from eager's follows from its terms: where no operator so far has rounded, not at all in what discrete operators see
of it; else by the tolerance of its type, and by what the program makes of a rounding of each value, and of each gradient, in between, which is
measured by rounding them otherwise. What is at most one and a half times as far from a run in double precision as eager's is right, too. Discrete operators, such as
comparisons, are given exact values alone.

On another device eager mode runs on the host first: a program that fails there would end the process, and where PyTorch's devices disagree, as they do
about `clamp` of bytes between numbers below zero, what the host has is right as well.
"""

import argparse
import contextlib
import random
import re
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, replace

warnings.filterwarnings("ignore")

import left
import torch
from checks import TOLERANCES, is_dense
from programs import Maker

import litz.dynamo

# Elements are numbers of graphs.
torch._dynamo.config.capture_scalar_outputs = True

# How often a program is run with other roundings, and how often where it matters which values are no numbers: those are few roundings' choice.
ROUNDINGS, MANY_ROUNDINGS = 4, 64


class Failure(Exception):
    """A program differs from eager mode, or fails; `kind` is what fails, the same for the smaller programs."""

    def __init__(self, kind, why):
        super().__init__(f"{kind}: {why}")
        self.kind = kind


class Excluded(Exception):
    """The program is none that counts."""


@dataclass
class Seen:
    """Whatever is seen of a call."""

    inputs: list
    results: list
    memory: list
    gradients: list


def namespace(program):
    env = {"torch": torch, "F": torch.nn.functional}
    exec(compile(program.source(), f"<program {program.seed}>", "exec"), env)
    return env


def made_on_host(program):
    """What makes the inputs of a program on the default device, of numbers that are drawn on the host. What shares memory there does here."""
    make = namespace(program)["make"]

    def moved(*sizes):
        with torch.device("cpu"):
            inputs = make(*sizes)
        device, storages, found = torch.get_default_device(), {}, []
        if device.type == "cpu":
            return inputs
        for tensor in inputs:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in storages:
                whole = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
                storages[storage.data_ptr()] = whole.to(device).untyped_storage()
            there = torch.empty(0, dtype=tensor.dtype)
            there.set_(storages[storage.data_ptr()], tensor.storage_offset(), tensor.shape, tensor.stride())
            found.append(there.requires_grad_(tensor.requires_grad))
        return found

    return moved


def on_host(program, sizes):
    """What eager mode has on the host; none where that is the device."""
    if torch.get_default_device().type == "cpu":
        return None
    with torch.device("cpu"):
        return call(namespace(program)["program"], made_on_host(program), sizes, bool(program.needs_grad))


def call(function, make, sizes, with_grad, generator=None):
    """Calls a function with inputs that are made for it; with `generator`, gradients are rounded otherwise on their way."""
    inputs = make(*sizes)
    # Storages are numbered: those of inputs first, then those of results as they appear.
    known = {}
    for tensor in inputs:
        known.setdefault(tensor.untyped_storage().data_ptr(), len(known))
    given = len(known)
    results = function(*inputs)
    memory = []
    for result in results:
        if not isinstance(result, torch.Tensor):
            memory.append(None)
            continue
        start = result.untyped_storage().data_ptr()
        place = known.setdefault(start, len(known))
        memory.append((place, result.data_ptr() - start) if result.numel() else None)
    # Where the first result begins in memory that no input has is nobody's concern: scatters keep the offset of what they copy.
    begins = {}
    for place, offset in filter(None, memory):
        begins[place] = min(offset, begins.get(place, offset)) if place >= given else 0
    memory = [place and (place[0], place[1] - begins[place[0]]) for place in memory]
    gradients = []
    if with_grad:
        roots = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
        if not roots:
            raise Excluded("no gradient")
        numbers = torch.Generator(torch.get_default_device()).manual_seed(5)
        cotangents = [(torch.randint(-4, 5, x.shape, generator=numbers) / 4).to(x.dtype) for x in roots]
        if generator is not None:
            _jiggle_gradients(roots, generator)
        torch.autograd.backward(roots, cotangents)
        gradients = [x.grad for x in inputs]
    whole = [torch.empty(0, dtype=x.dtype).set_(x.untyped_storage()) for x in (x.detach() for x in inputs)]
    return Seen(whole, results, memory, gradients)


def roundings(program, sizes, times=ROUNDINGS):
    """The program in eager mode with other roundings, several times: of what operators that round are given, give, and keep for gradients."""
    generators = [torch.Generator(torch.get_default_device()).manual_seed(seed) for seed in range(times)]
    make = made_on_host(program)
    return [call(_rounded(program, generator), make, sizes, bool(program.needs_grad), generator) for generator in generators]


def _jiggle_gradients(roots, generator):
    """Has each gradient that a step of backward gives moved by a rounding of its type, or of what the step was given."""

    def jiggled(gradients, given):
        types = [x.dtype for x in given if x is not None and x.is_floating_point()]
        return tuple(x if x is None or not x.is_floating_point() else _jiggled(x, False, generator, types) for x in gradients)

    seen, steps = set(), [root.grad_fn for root in roots]
    while steps:
        step = steps.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        steps += [of for of, _ in step.next_functions]
        step.register_hook(jiggled)


def _rounded(program, generator):
    def kept(value):
        # The derivative of a hyperbolic tangent near 1 is what a rounding of the result leaves of it.
        return _jiggled(value.detach(), False, generator, is_read=True) if value.is_floating_point() else value

    def function(*inputs):
        env = {"torch": torch, "F": torch.nn.functional} | dict(zip(program.inputs, inputs))
        for line in program.lines:
            given = env
            if line.rounds and not line.writes:
                # What an operator rounds inside lies within roundings of its operands.
                floats = [name for name in line.uses if env[name].is_floating_point()]
                given = env | {name: _jiggled(env[name], False, generator, is_read=True) for name in floats}
            with torch.autograd.graph.saved_tensors_hooks(kept, lambda value: value) if line.rounds else contextlib.nullcontext():
                value = eval(line.source, given)
            if line.rounds and isinstance(value, torch.Tensor) and value.is_floating_point():
                value = _jiggled(value, line.writes, generator)
            env[line.target] = value
        return [env[name] for name in program.results]

    return function


def _jiggled(value, writes, generator, types=(), is_read=False):
    """A value, each element less or more by a unit in its last place, or in that of the roughest of some types, or as it is. One that is only
    read may lie otherwise then, as it does where several of its elements are one in memory.
    """
    plain = value.detach()
    eps = max(torch.finfo(dtype).eps for dtype in (value.dtype, *types))
    by = eps * torch.randint(-1, 2, value.shape, generator=generator)
    change = (plain.double() * by).to(value.dtype).nan_to_num(0.0, 0.0, 0.0)
    if writes:
        plain.add_(change)
        return value
    moved = value + change
    if moved.stride() == value.stride():
        return moved
    if is_dense(value):
        return moved.as_strided(value.shape, value.stride())
    return moved if is_read else value


def precise(program, sizes):
    """The program in eager mode with inputs in double precision; none where that is no program, as where types are mixed then."""
    made, function = made_on_host(program), namespace(program)["program"]

    def make(*sizes):
        return [x.detach().double().requires_grad_(x.requires_grad) if x.is_floating_point() else x for x in made(*sizes)]

    with contextlib.suppress(Exception):
        return call(function, make, sizes, bool(program.needs_grad))
    return None


def compare(found, wanted, others, best=None):
    """Raises `Failure` where what is seen of two calls is not the same."""
    if len(found.results) != len(wanted.results):
        raise Failure("results", f"{len(found.results)}, expected {len(wanted.results)}")
    for what in ("results", "inputs", "gradients"):
        for at, (one, other) in enumerate(zip(getattr(found, what), getattr(wanted, what), strict=True)):
            ideal = getattr(best, what)[at] if best is not None and what != "inputs" else None
            same(one, other, [getattr(rounded, what)[at] for rounded in others], ideal, what, at)
    if found.memory != wanted.memory:
        raise Failure("memory", f"results lie in {found.memory}, expected {wanted.memory}")


def same(found, wanted, others, best, what, at):
    where = f"{what[:-1]} {at}"
    if wanted is None or found is None:
        if found is not None or wanted is not None:
            raise Failure(f"{what}: none", f"{where} is {found}, expected {wanted}")
        return
    for name in ("dtype", "shape", "requires_grad"):
        one, other = getattr(found, name), getattr(wanted, name)
        if one != other:
            raise Failure(f"{what}: {name}", f"{where}: {name} is {one}, expected {other}")
    found_strides, wanted_strides = ([stride for size, stride in zip(x.shape, x.stride()) if size > 1] for x in (found, wanted))
    if what == "results" and found_strides != wanted_strides and wanted.numel():
        raise Failure(f"{what}: strides", f"{where}: strides are {found.stride()}, expected {wanted.stride()}")
    found, wanted, others = found.detach().cpu(), wanted.detach().cpu(), [x.detach().cpu() for x in others if x is not None]
    best = best.detach().cpu() if best is not None else None
    if not wanted.is_floating_point():
        if not torch.equal(found, wanted):
            raise Failure(f"{what}: values", f"{where}: {found}, expected {wanted}")
        return
    one, other = found.double(), wanted.double()
    rounded = [x.double() for x in others]
    has_best = best is not None and best.shape == wanted.shape and best.is_floating_point()
    # Where another rounding makes a NaN or an infinity of a number, both are right.
    settled = torch.ones_like(other, dtype=torch.bool)
    for x in rounded:
        settled &= (x.isfinite() == other.isfinite()) & (x.isnan() == other.isnan())
    special = ~other.isfinite()
    if has_best:
        # What double precision has is right, too: eager's vectors have a NaN for the GELU of infinity.
        settled &= (one.isfinite() != best.isfinite()) | (one.isnan() != best.isnan()) | one.isfinite() & other.isfinite()
        # Where it is the type that is too small, sums of infinities are one or no number by the order of their terms.
        special &= ~best.isfinite()
    special &= settled
    if bool((settled & (one.isfinite() != other.isfinite())).any()) or not torch.equal(one[special].nan_to_num(7.0), other[special].nan_to_num(7.0)):
        raise Failure(f"{what}: special values", f"{where}: {found}, expected {wanted}")
    finite = settled & other.isfinite()
    if not bool(finite.any()):
        return
    apart = (one - other).abs()[finite]
    allowed = TOLERANCES[wanted.dtype] * (other[finite].abs() + other[finite].abs().max())
    for x in rounded:
        allowed = torch.maximum(allowed, 16 * (x[finite] - other[finite]).abs().max().expand_as(allowed))
    if has_best:
        # What is nearer to the value in double precision than eager's is right as well.
        ideal = best.double()[finite]
        allowed = torch.where((one[finite] - ideal).abs() <= 1.5 * (other[finite] - ideal).abs(), apart, allowed)
    if bool((apart > allowed).any()):
        raise Failure(f"{what}: values", f"{where}: differs by {apart.max():.3g}, where {allowed[apart.argmax()]:.3g} is allowed: {found}, expected {wanted}")


def check(program):
    """Raises `Failure` where the program is not right under Litz, `Excluded` where it does not count. Returns reasons why PyTorch ran graphs."""
    with_grad = bool(program.needs_grad)
    make, function = made_on_host(program), namespace(program)["program"]
    runs = []
    for sizes in program.calls:
        try:
            host = on_host(program, sizes)
            runs.append((sizes, call(function, make, sizes, with_grad), roundings(program, sizes), precise(program, sizes), host))
        except Exception as error:
            if not runs:
                raise Excluded(f"eager: {error}") from None
    try:
        try:
            return _under(litz.dynamo.backend, program, make, runs, with_grad)
        except Failure as failure:
            if not failure.kind.endswith("special values"):
                raise
        more = [(sizes, wanted, roundings(program, sizes, MANY_ROUNDINGS), *rest) for sizes, wanted, _, *rest in runs]
        return _under(litz.dynamo.backend, program, make, more, with_grad)
    except Failure as failure:
        try:
            _under("aot_eager", program, make, runs, with_grad)
        except Exception as error:
            raise Excluded(f"aot_eager: {error}") from None
        raise failure


def _under(backend, program, make, runs, with_grad):
    """Compares the program, compiled by a backend, with runs of it in eager mode."""
    torch._dynamo.reset()
    litz.reset_stats()
    options = {} if isinstance(backend, str) else {"options": {"fallback": "quiet"}}
    fast = torch.compile(namespace(program)["program"], backend=backend, fullgraph=True, dynamic=program.is_dynamic, **options)
    for sizes, wanted, others, best, host in runs:
        try:
            found = call(fast, make, sizes, with_grad)
        except Excluded:
            raise Failure("gradients", "no result has one") from None
        except Exception as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise Failure(f"raises {type(error).__name__}", " ".join(lines[:4])[:600]) from None
        try:
            compare(found, wanted, others, best)
        except Failure as failure:
            if host is None or not failure.kind.endswith("values"):
                raise
            compare(found, host, others, best)
    stats = litz.stats()
    for reason in left.unexpected(stats["eager_graphs"]):
        raise Failure("mistake" if reason.startswith("a mistake of Litz") else "left to PyTorch", reason)
    return [*stats["eager_graphs"], *(["the sizes of a call"] if stats["eager_calls"] else [])]


# Failures, made small.


def shrunk(program, kind, deadline):
    """The smallest program that fails in the same way, by what can be left out of it."""
    is_smaller = True
    while is_smaller and time.monotonic() < deadline:
        is_smaller = False
        for smaller in candidates(program):
            if time.monotonic() > deadline:
                break
            try:
                check(smaller)
            except Failure as failure:
                if failure.kind == kind:
                    program, is_smaller = smaller, True
                    break
            except Exception:
                continue
    return program


def candidates(program):
    """Programs with something less."""
    if len(program.results) > 1:
        for at in range(len(program.results)):
            yield replace(program, results=program.results[:at] + program.results[at + 1 :])
    if len(program.calls) > 1:
        for at in range(len(program.calls)):
            yield replace(program, calls=program.calls[:at] + program.calls[at + 1 :])
    needed = {name for line in program.lines for name in line.uses} | {*program.results}
    for at in reversed(range(len(program.lines))):
        line = program.lines[at]
        without = program.lines[:at] + program.lines[at + 1 :]
        if line.target not in needed:
            yield replace(program, lines=without)
            continue
        for name in line.uses:
            # What used the line's value uses an operand of it.
            lines = [_renamed(other, line.target, name) if i >= at else other for i, other in enumerate(without)]
            yield replace(program, lines=lines, results=list(dict.fromkeys(name if x == line.target else x for x in program.results)))
    for at, line in enumerate(program.lines):
        if line.target not in program.results and len(program.results) == 1:
            yield replace(program, results=[line.target], lines=program.lines[: at + 1])
    for name in program.inputs:
        if name not in needed and len(program.inputs) > 1:
            inputs = {key: source for key, source in program.inputs.items() if key != name}
            yield replace(program, inputs=inputs, needs_grad=tuple(x for x in program.needs_grad if x != name))
    for name in program.needs_grad:
        yield replace(program, needs_grad=tuple(x for x in program.needs_grad if x != name))
    if program.is_dynamic:
        yield replace(program, is_dynamic=False, calls=program.calls[:1])
    for name, source in program.inputs.items():
        for simpler in ("torch.randn(A, B)", "torch.randn(A)", "torch.randn(())"):
            if source != simpler and len(simpler) < len(source):
                yield replace(program, inputs=program.inputs | {name: simpler})
        for ending in (".transpose(-1, -2)", "[..., 1:-1]", "[::2]"):
            if source.endswith(ending):
                yield replace(program, inputs=program.inputs | {name: source.removesuffix(ending)})


def _renamed(line, old, new):
    source = re.sub(rf"\b{old}\b", new, line.source)
    return replace(line, source=source, uses=tuple(dict.fromkeys(new if name == old else name for name in line.uses)))


def printed(program, failure) -> str:
    """A file of Python that shows the failure, and the texts of the program's graphs."""
    texts = []

    original = litz.dynamo.convert

    def converting(*args, **kwargs):
        converted = original(*args, **kwargs)
        texts.append(converted.text)
        return converted

    litz.dynamo.convert = converting
    try:
        with contextlib.suppress(Exception):
            torch._dynamo.reset()
            make, function = made_on_host(program), namespace(program)["program"]
            fast = torch.compile(function, backend=litz.dynamo.backend, fullgraph=True, dynamic=program.is_dynamic)
            for sizes in program.calls:
                call(fast, make, sizes, bool(program.needs_grad))
    finally:
        litz.dynamo.convert = original
    calls = "".join(f"print(program(*make{sizes}), fast(*make{sizes}))\n" for sizes in program.calls)
    compiled = f"fast = torch.compile(program, backend=litz.dynamo.backend, dynamic={program.is_dynamic})\n"
    source = f"import torch\nimport torch.nn.functional as F\n\nimport litz.dynamo\n\n\n{program.source()}\n\n{compiled}{calls}"
    return f"# {str(failure)[:1500].replace(chr(10), chr(10) + '# ')}\n{source}\n" + "\n".join(texts)


def trial(seed, is_dynamic, with_grad, deadline):
    """Makes and checks the program of a seed: reasons why PyTorch ran graphs, or none where the program does not count; the failure's text."""
    maker = Maker(seed, is_dynamic, with_grad)
    try:
        # What an index is too large for ends a process on other devices.
        with torch.device("cpu"):
            program = maker.make()
        return check(program), None
    except Excluded:
        return None, None
    except Failure as failure:
        small = shrunk(program, failure.kind, min(deadline, time.monotonic() + 90))
        try:
            check(small)
        except Failure as smaller:
            failure = smaller
        except Exception:
            pass
        return [], printed(small, failure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="of the first program (default: a fresh one, printed)")
    parser.add_argument("--count", type=int, default=100, help="programs to run (default: 100)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--dynamic", action="store_true", help="all sizes are symbolic, and each program is called with several")
    parser.add_argument("--grad", action="store_true", help="gradients, too")
    parser.add_argument("--device", default="cpu", help="where tensors are: cpu or cuda")
    options = parser.parse_args()
    if options.device != "cpu":
        torch.set_default_device(options.device)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    print(f"seed {seed}", flush=True)
    end, counts, reasons = time.monotonic() + options.seconds, Counter(), Counter()
    for at in range(options.count):
        if time.monotonic() > end:
            break
        found, text = trial(seed + at, options.dynamic, options.grad, end + 90)
        counts["failed" if text else "excluded" if found is None else "right"] += 1
        reasons.update(found or ())
        if text:
            print(f"\n# --seed {seed + at} --count 1{' --dynamic' * options.dynamic}{' --grad' * options.grad}\n{text}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    for reason, count in reasons.most_common():
        print(f"PyTorch ran {count} graphs, for {reason}")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
