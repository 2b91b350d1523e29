"""Trains a model in eager PyTorch and compiled by Litz, in turns, and compares their losses and times. Other examples import this file.

A third model, in eager mode too, has its weights moved by a few roundings before every step, up or down by chance. How far its losses go from
those of the first is what training makes of rounding errors, and the measure for how far Litz's may go. It takes more than one rounding,
since that decides seldom, but then for good, which way a gradient goes: where a ReLU's argument is next to zero, or where two arguments of a
maximum are next to each other.
"""

import copy
import statistics
import time
from dataclasses import dataclass, field

import torch

# The first steps compile, and are not among the times.
WARM_UP = 3

# The parts of its size that a weight of the twin is moved by are so many times the distance from 1 to the next number.
ROUNDINGS = 8

# Losses agree if they differ by at most so many times what these roundings make of them, and FLOOR besides.
ALLOWED = 2
FLOOR = 1e-5


@dataclass
class Run:
    """One of the models, and what its training gave."""

    name: str
    model: torch.nn.Module
    # What calls the model: itself, or what `torch.compile` made of it.
    forward: torch.nn.Module
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def step(self, loss_of, batch):
        start = time.perf_counter()
        self.optimizer.zero_grad()
        loss = loss_of(self.forward, batch)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.seconds.append(time.perf_counter() - start)


@dataclass
class Comparison:
    """What became of both, and of eager's twin."""

    eager: Run
    compiled: Run
    twin: Run

    @property
    def difference(self) -> float:
        """The most that Litz's losses differ from eager's."""
        return largest(self.compiled.losses, self.eager.losses)

    @property
    def noise(self) -> float:
        """The most that eager's losses differ from those of its twin, whose weights are rounded otherwise."""
        return largest(self.twin.losses, self.eager.losses)

    @property
    def agrees(self) -> bool:
        """Whether Litz's losses are eager's, up to rounding errors. Losses that are not finite never are."""
        return self.difference <= ALLOWED * self.noise + FLOOR

    def __str__(self):
        lines = [f"{run.name}: loss {run.losses[0]:.4f} to {run.losses[-1]:.4f}" for run in (self.eager, self.compiled)]
        lines.append(f"losses differ by at most {self.difference:.1e}; of eager's twin by {self.noise:.1e}")
        if len(self.eager.seconds) > WARM_UP:
            lines.append(times(self.eager.seconds[WARM_UP:], self.compiled.seconds[WARM_UP:], "a step", self.compiled.name))
        if not self.agrees:
            lines.append("The losses do not agree.")
        return "\n".join(lines)


def train(model, optimizer_of, loss_of, batches, backend="litz", every=0, options=None) -> Comparison:
    """Trains copies of `model` on the same batches. `loss_of(forward, batch)` is the loss, `optimizer_of(parameters)` the optimizer; each
    `every` steps the losses are printed.
    """
    other = copy.deepcopy(model)
    twin, generator = copy.deepcopy(model), torch.Generator().manual_seed(1)
    runs = [
        Run("eager", model, model, optimizer_of(model.parameters())),
        Run(name_of(backend), other, torch.compile(other, backend=backend, options=options), optimizer_of(other.parameters())),
    ]
    third = Run("twin", twin, twin, optimizer_of(twin.parameters()))
    for at, batch in enumerate(batches):
        # Who comes first finds other things in the caches, so both do in turns.
        for run in runs if at % 2 == 0 else reversed(runs):
            run.step(loss_of, batch)
        move_by_roundings(twin, generator)
        third.step(loss_of, batch)
        if every and at % every == 0:
            print(f"step {at}: " + ", ".join(f"{run.name} {run.losses[-1]:.4f}" for run in runs), flush=True)
    return Comparison(*runs, third)


def name_of(backend) -> str:
    """What a backend of `torch.compile` is called."""
    return backend if isinstance(backend, str) else backend.__name__


@torch.no_grad()
def move_by_roundings(model, generator):
    """Makes each weight of a model larger or smaller by `ROUNDINGS`, by chance."""
    for parameter in model.parameters():
        up = torch.rand(parameter.shape, generator=generator) < 0.5
        step = ROUNDINGS * torch.finfo(parameter.dtype).eps
        parameter.mul_(torch.where(up, 1 + step, 1 - step))


def largest(some, others) -> float:
    """The largest difference of numbers; infinite where one of them is not finite."""
    differences = [abs(one - other) for one, other in zip(some, others, strict=True)]
    return max(differences) if all(difference < float("inf") for difference in differences) else float("inf")


def times(eager, compiled, what, name="litz") -> str:
    """What two lists of seconds say that were measured in turns: medians, and the median of what the pairs' ratios are."""
    one, other = statistics.median(eager), statistics.median(compiled)
    ratio = statistics.median(mine / its for mine, its in zip(eager, compiled, strict=True))
    return (f"ms {what}, medians of {len(eager)} in turns, {torch.get_num_threads()} threads: eager {one * 1e3:.2f}, "
            f"{name} {other * 1e3:.2f}; {ratio:.2f} times as fast by pairs")


def plot(curves, path, title):
    """Draws lists of losses, one a step, by their names, as an SVG file that needs nothing else."""
    most, least = (of(of(losses) for losses in curves.values()) for of in (max, min))
    steps, span = max(map(len, curves.values())), (most - least) or 1.0
    x = lambda step: 60 + 640 * step / max(1, steps - 1)
    y = lambda loss: 340 - 300 * (loss - least) / span
    colors = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b"]
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 390" font-family="sans-serif" font-size="12">',
             '<rect width="720" height="390" fill="white"/>',
             f'<text x="380" y="20" text-anchor="middle" font-size="14">{title}</text>',
             '<text x="380" y="382" text-anchor="middle">step</text>']
    for tick in range(5):
        loss, step = least + span * tick / 4, (steps - 1) * tick // 4
        lines.append(f'<path d="M60 {y(loss):.1f} H700" stroke="#dddddd"/>'
                     f'<text x="52" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.3g}</text>'
                     f'<text x="{x(step):.1f}" y="360" text-anchor="middle">{step}</text>')
    for at, (name, losses) in enumerate(curves.items()):
        color = colors[at % len(colors)]
        # Dashes leave room for what is below, where two curves are one.
        dashes = ' stroke-dasharray="7 5"' if at % 2 else ""
        points = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in enumerate(losses))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dashes}/>'
                     f'<path d="M500 {40 + 18 * at} h30" stroke="{color}" stroke-width="2"{dashes}/>'
                     f'<text x="536" y="{44 + 18 * at}">{name}</text>')
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, "</svg>", ""]))
