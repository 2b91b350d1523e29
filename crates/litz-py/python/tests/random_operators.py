"""Runs random programs of operators of others through torch.compile and compares whatever is seen of them with eager mode:

    python random_operators.py [--seed S] [--count N] [--seconds T]

The operators write to what they are given, also where their arguments share memory, read what they write by another argument, fill fresh memory,
decide sizes, leave out results, resize memory and note calls in an order. Between them are views, arithmetic and writes of PyTorch's own. All numbers are
integers that every type holds, so that results, inputs and what was noted are equal to eager's or wrong. A program that fails is made small and printed.
"""

import argparse
import random
import sys
import time
import warnings
from collections import Counter

warnings.filterwarnings("ignore")

import torch
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

import litz.dynamo
import litz.host

NOTED = []


@torch.library.custom_op("litz_random::bump", mutates_args=("x",))
def bump(x: torch.Tensor) -> None:
    x.add_(1).remainder_(11)


@torch.library.custom_op("litz_random::two", mutates_args=("x", "y"))
def two(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(1).remainder_(11)
    y.mul_(2).remainder_(11)


@torch.library.custom_op("litz_random::scale", mutates_args=("x",))
def scale(x: torch.Tensor, by: torch.Tensor) -> None:
    x.add_(1)
    x.mul_(by.reshape(-1)[:1].sum()).add_(by.sum()).remainder_(11)


@torch.library.custom_op("litz_random::each", mutates_args=("xs",))
def each(xs: list[torch.Tensor], last: torch.Tensor) -> torch.Tensor:
    for at, x in enumerate(xs):
        x.add_(at + 1).remainder_(11)
    return last + 1


@each.register_fake
def _(xs, last):
    return torch.empty_like(last)


@torch.library.custom_op("litz_random::fill", mutates_args=("x",))
def fill(x: torch.Tensor, value: float) -> None:
    x.copy_(torch.arange(x.numel()).reshape(x.shape).remainder(7) + value)


@torch.library.custom_op("litz_random::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x.mul(2).remainder_(11)


@double.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("litz_random::large", mutates_args=())
def large(x: torch.Tensor) -> torch.Tensor:
    return x[x > 3].clone()


@large.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("litz_random::rows", mutates_args=())
def rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    kept = x.reshape(-1, 2)
    kept = kept[kept.sum(1) > 5]
    return kept.clone(), x + 1


@rows.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size(), 2), torch.empty_like(x)


torch.library.define("litz_random::maybe", "(Tensor x) -> (Tensor, Tensor)")
torch.library.impl("litz_random::maybe", "CPU", lambda x: (x.add(3).remainder_(11), None))
torch.library.register_fake("litz_random::maybe", lambda x: (torch.empty_like(x), torch.empty_like(x)))


@torch.library.custom_op("litz_random::note", mutates_args=())
def note(x: torch.Tensor, at: int) -> None:
    NOTED.append((at, x.sum().item()))


note.register_fake(lambda x, at: None)
_register_effectful_op(torch.ops.litz_random.note.default, _EffectType.ORDERED)

# What lines may do: what is written, how often it is chosen, and the text of the line. `{x}` and `{y}` are tensors, `{n}` is a small number.
LINES = [
    (3, "{v} = ({x} * 2 + {n}).remainder(11)"),
    (2, "{v} = {x}.reshape(-1)[:2].sum() + {y}.remainder(5)"),
    (2, "{v} = {x}.clone()"),
    (3, "{v} = {x}[{n}:]"),
    (2, "{v} = {x}[::2]"),
    (2, "{v} = {x}[..., :-1]"),
    (2, "{v} = {x}[{n}]"),
    (2, "{v} = {x}.mT if {x}.dim() > 1 else {x}"),
    (1, "{v} = {x}.reshape(-1)"),
    (2, "{x}.add_({n})"),
    (2, "{x}.copy_({x}.flip(0))"),
    (3, "ops.bump({x})"),
    (4, "ops.two({x}, {y})"),
    (2, "ops.two({x}, {x})"),
    (4, "ops.scale({x}, {y})"),
    (2, "ops.scale({x}, {x})"),
    (3, "{v} = ops.each([{x}, {y}], {x})"),
    (3, "{v} = torch.empty_like({x}); ops.fill({v}, {n})"),
    (2, "ops.fill({x}, {n})"),
    (2, "{v} = ops.double({x})"),
    (2, "{v} = ops.maybe({x})[0]"),
    (2, "ops.note({x}, {n})"),
    (2, "{v} = (ops.large({x}) * 2).sum() + {y}"),
    (1, "{v} = (ops.rows({x})[0] + 1).sum(0).sum() + {y}"),
    (0.1, "torch.ops.inductor.resize_storage_bytes_({x}, 4096)"),
]


class Wrong(Exception):
    """A program is not what it is in eager mode."""


class Program:
    """A function of two tensors, as lines of Python."""

    def __init__(self, seed):
        self.choices = random.Random(seed)
        self.dtype = self.choices.choice(["float32", "float32", "float32", "int64", "float64", "bfloat16"])
        self.sizes = [[self.choices.randint(2, 5) for _ in range(self.choices.choice([1, 2, 2, 3]))] for _ in range(2)]
        self.is_dynamic = self.choices.random() < 0.2
        self.lines, self.results = [], ["a0", "a1"]
        self._grow()

    def _grow(self):
        """Appends lines that eager mode can run."""
        env = self.env()
        tensors = ["a0", "a1"]
        while len(self.lines) < 3 + self.seed_length():
            (template,) = self.choices.choices([text for _, text in LINES], [weight for weight, _ in LINES])
            x, y = self.choices.choice(tensors), self.choices.choice(tensors)
            name = f"v{len(self.lines)}"
            line = template.format(x=x, y=y, v=name, n=self.choices.randint(0, 2))
            try:
                exec(line, env)
            except Exception:
                continue
            self.lines.append(line)
            if isinstance(env.get(name), torch.Tensor) and env[name].numel():
                tensors.append(name)
        self.results = [name for name in tensors if name.startswith("v") and self.choices.random() < 0.6][-4:] or ["a0"]

    def seed_length(self):
        return self.choices.randint(0, 6)

    def inputs(self):
        """Tensors that are equal each time."""
        numbers = torch.Generator().manual_seed(3)
        return [torch.randint(0, 11, sizes, generator=numbers).to(getattr(torch, self.dtype)) for sizes in self.sizes]

    def env(self):
        a0, a1 = self.inputs()
        return {"torch": torch, "ops": torch.ops.litz_random, "a0": a0, "a1": a1}

    def source(self):
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def program(a0, a1):\n{body}    return {', '.join(self.results)},\n"

    def function(self):
        env = self.env()
        exec(self.source(), env)
        return env["program"]

    def without(self, at):
        """The program without a line, or none where others need it."""
        other = Program.__new__(Program)
        other.__dict__.update(self.__dict__)
        other.lines = self.lines[:at] + self.lines[at + 1 :]
        other.results = [name for name in self.results if name.startswith("a") or any(line.startswith(f"{name} =") for line in other.lines)] or ["a0"]
        try:
            other.function()(*other.inputs())
        except Exception:
            return None
        return other


def run(function, program):
    """What is seen of two calls."""
    seen = []
    for _ in range(2):
        NOTED.clear()
        inputs = program.inputs()
        results = function(*inputs)
        seen.append(([x.clone() for x in results], [x.clone() for x in inputs], [*NOTED]))
    return seen


def check(program):
    """Raises `Wrong` where the program is not right; reasons why PyTorch ran graphs. What PyTorch ran is not right where `aot_eager` is not."""
    wanted = run(program.function(), program)
    litz.reset_stats()
    try:
        _under(litz.dynamo.backend, program, wanted, options={"fallback": "quiet"})
    except Wrong as wrong:
        if not litz.stats()["eager_graphs"]:
            raise
        try:
            _under("aot_eager", program, wanted)
        except Wrong:
            return [*litz.stats()["eager_graphs"]]
        raise wrong from None
    reasons = [*litz.stats()["eager_graphs"]]
    for reason in reasons:
        if reason.startswith("a mistake of Litz"):
            raise Wrong(reason)
    return reasons


def _under(backend, program, wanted, **settings):
    """Compares the program, compiled by a backend, with eager mode."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        fast = torch.compile(program.function(), backend=backend, dynamic=program.is_dynamic or None, **settings)
        try:
            found = run(fast, program)
        except Exception as error:
            raise Wrong(f"raises {type(error).__name__}: {str(error)[:600]}") from None
    for (results, inputs, noted), (expected, given, calls) in zip(found, wanted, strict=True):
        for what, one, other in (("result", results, expected), ("input", inputs, given)):
            for at, (tensor, right) in enumerate(zip(one, other, strict=True)):
                if tensor.dtype != right.dtype or not torch.equal(tensor, right):
                    raise Wrong(f"{what} {at} is {tensor}, expected {right}")
        if noted != calls:
            raise Wrong(f"noted {noted}, expected {calls}")


def shrunk(program):
    """The smallest program that is wrong, by lines that can be left out."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for at in reversed(range(len(program.lines))):
            smaller = program.without(at)
            if smaller is None:
                continue
            try:
                check(smaller)
            except Wrong:
                program, is_smaller = smaller, True
                break
    return program


def trial(seed):
    """Reasons why PyTorch ran graphs of the program of a seed, and the text of a failure."""
    program = Program(seed)
    try:
        return check(program), None
    except Wrong:
        program = shrunk(program)
    try:
        check(program)
    except Wrong as wrong:
        return [], f"# seed {seed}, {program.dtype}{program.sizes}: {wrong}\n{program.source()}"
    return [], f"# seed {seed}: fails now and then\n{program.source()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="of the first program (default: a fresh one, printed)")
    parser.add_argument("--count", type=int, default=100, help="programs to run (default: 100)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    print(f"seed {seed}", flush=True)
    end, counts, reasons = time.monotonic() + options.seconds, Counter(), Counter()
    for at in range(options.count):
        if time.monotonic() > end:
            break
        found, text = trial(seed + at)
        counts["failed" if text else "right"] += 1
        reasons.update(found)
        if text:
            print(text, flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    for reason, count in reasons.most_common():
        print(f"PyTorch ran {count} graphs, for {reason}")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
