"""Trains a model by the loop of a trainer, as Hugging Face's is, which a switch compiles; shows that Litz does there what eager PyTorch does.

    python examples/trainer_loop.py [--steps N] [--accumulate N] [--dropout P] [--bf16]

The loop accumulates gradients, clips them, follows a schedule of the learning rate, evaluates between, and saves and loads checkpoints. It
runs in eager mode; in eager mode with weights that are moved by a few roundings before every step, for what training makes of roundings;
with Litz; and with Litz, where a second trainer goes on from a checkpoint of half-way, which must give the same bits.
"""

import argparse
import contextlib
import copy
import math
import os
import tempfile
import time
from dataclasses import dataclass, field, replace

import torch
from side_by_side import ALLOWED, FLOOR, largest, move_by_roundings
from torch import nn
from train_text import Transformer, batches, loss_of, text


@dataclass
class Arguments:
    """What a trainer is told. Names are those of Hugging Face's `TrainingArguments`, where it has them."""

    max_steps: int = 40
    train_batch_size: int = 8
    gradient_accumulation_steps: int = 2
    learning_rate: float = 3e-3
    warmup_steps: int = 5
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    eval_steps: int = 10
    # Steps behind which there is a checkpoint; 0: none.
    save_steps: int = 0
    output_dir: str = "."
    # Products and attention compute in bfloat16, under `torch.autocast`.
    bf16: bool = False
    torch_compile: bool = False
    torch_compile_backend: str = "litz"
    torch_compile_options: dict | None = None
    seed: int = 0


@dataclass
class History:
    """What a run gave: of each step its loss, the norm of its gradients before they are clipped, and its learning rate; of evaluations the loss."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    evaluations: list[float] = field(default_factory=list)


class Trainer:
    """Trains a model on batches that `data(count, rows, seed)` gives."""

    def __init__(self, model, arguments, data, evaluation, before_step=None):
        self.model, self.arguments, self.data, self.evaluation = model, arguments, data, evaluation
        self.before_step = before_step
        # Weights stay those of `model`: optimizers, checkpoints and whoever looks at them need not know that its calls are compiled.
        self.forward = model
        if arguments.torch_compile:
            self.forward = torch.compile(
                model, backend=arguments.torch_compile_backend, options=arguments.torch_compile_options
            )
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=arguments.learning_rate, weight_decay=arguments.weight_decay
        )
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._rate)
        self.history, self.step = History(), 0
        torch.manual_seed(arguments.seed)

    def train(self, until=None):
        """Goes on to a step, or to the last."""
        until = until or self.arguments.max_steps
        while self.step < until:
            self.model.train()
            self._step()
            if self.step % self.arguments.eval_steps == 0:
                self.history.evaluations.append(self.evaluate())
            if self.arguments.save_steps and self.step % self.arguments.save_steps == 0:
                self.save(os.path.join(self.arguments.output_dir, f"checkpoint-{self.step}.pt"))
        return self.history

    def _step(self):
        accumulated = self.arguments.gradient_accumulation_steps
        if self.before_step:
            self.before_step(self.model)
        self.optimizer.zero_grad()
        total = 0.0
        for batch in self.data(accumulated, self.arguments.train_batch_size, self.step):
            loss = self._loss(batch) / accumulated
            loss.backward()
            total += loss.item()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.arguments.max_grad_norm)
        self.history.losses.append(total)
        self.history.norms.append(norm.item())
        self.history.rates.append(self.scheduler.get_last_lr()[0])
        self.optimizer.step()
        self.scheduler.step()
        self.step += 1

    def _loss(self, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16) if self.arguments.bf16 else contextlib.nullcontext():
            return loss_of(self.forward, batch)

    @torch.no_grad()
    def evaluate(self):
        """The mean loss of the evaluation's batches, of which the last has fewer rows."""
        self.model.eval()
        losses = [(self._loss(batch).item(), len(batch)) for batch in self.evaluation]
        return sum(loss * rows for loss, rows in losses) / sum(rows for _, rows in losses)

    def _rate(self, step):
        """Up to the learning rate in a line, and down to nothing as a cosine."""
        warmup, last = self.arguments.warmup_steps, self.arguments.max_steps
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, last - warmup)))

    def save(self, path):
        """Writes all that a trainer needs to go on, with the same bits."""
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "history": vars(self.history),
                "step": self.step,
                "random": torch.get_rng_state(),
            },
            path,
        )

    def load(self, path):
        """Goes on where another trainer was, compiled or not."""
        saved = torch.load(path, weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scheduler.load_state_dict(saved["scheduler"])
        self.history, self.step = History(**saved["history"]), saved["step"]
        torch.set_rng_state(saved["random"])


@dataclass
class Outcome:
    """Histories of the four runs, and seconds of the first and the third."""

    eager: History
    twin: History
    compiled: History
    resumed: History
    # Whether the weights that the resumed run ends with are those of the one that was not interrupted, bit by bit.
    same_weights: bool

    def differences(self, of):
        """How far a history's losses, norms and evaluations are from eager's, at most."""
        return {name: largest(getattr(of, name), getattr(self.eager, name)) for name in ("losses", "norms", "evaluations")}

    @property
    def agrees(self) -> bool:
        found, noise = self.differences(self.compiled), self.differences(self.twin)
        is_close = all(found[name] <= ALLOWED * noise[name] + FLOOR for name in found)
        return is_close and self.compiled.rates == self.eager.rates

    @property
    def resumes(self) -> bool:
        return self.same_weights and self.resumed == self.compiled


def compare(arguments, layers=2, width=64, dropout=0.0, backend="litz"):
    """Runs the four."""
    tokens = text()
    cut = len(tokens) * 9 // 10
    train = lambda count, rows, seed: batches(tokens[:cut], count, rows, seed)
    evaluation = [*batches(tokens[cut:], 2, 16, seed=1), *batches(tokens[cut:], 1, 5, seed=2)]
    torch.manual_seed(arguments.seed)
    model = Transformer(layers, width, dropout=dropout)
    generator = torch.Generator().manual_seed(1)
    # Litz's own random numbers are others than eager's. With this option dropout drops the same.
    options = {"random": "eager"} if dropout and backend == "litz" else None
    switched = replace(arguments, torch_compile=True, torch_compile_backend=backend, torch_compile_options=options)

    def trainer(arguments, before_step=None):
        return Trainer(copy.deepcopy(model), arguments, train, evaluation, before_step)

    eager = trainer(arguments).train()
    twin = trainer(arguments, lambda model: move_by_roundings(model, generator)).train()
    whole = trainer(switched)
    compiled = whole.train()
    with tempfile.TemporaryDirectory() as folder:
        half = arguments.max_steps // 2
        trainer(replace(switched, save_steps=half, output_dir=folder)).train(until=half)
        second = trainer(switched)
        second.load(os.path.join(folder, f"checkpoint-{half}.pt"))
        resumed = second.train()
    weights, others = whole.model.state_dict(), second.model.state_dict()
    return Outcome(eager, twin, compiled, resumed, all(torch.equal(weights[name], others[name]) for name in weights))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--accumulate", type=int, default=2, metavar="N", help="batches whose gradients are added")
    parser.add_argument("--dropout", type=float, default=0.0, metavar="P")
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--backend", default="litz", help="another backend of torch.compile")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    told = Arguments(max_steps=options.steps, gradient_accumulation_steps=options.accumulate, bf16=options.bf16)
    start = time.perf_counter()
    outcome = compare(told, dropout=options.dropout, backend=options.backend)
    for name, history in (("eager", outcome.eager), (options.backend, outcome.compiled)):
        evaluations = ", ".join(f"{loss:.4f}" for loss in history.evaluations)
        print(f"{name}: loss {history.losses[0]:.4f} to {history.losses[-1]:.4f}; evaluations {evaluations}")
    found, noise = outcome.differences(outcome.compiled), outcome.differences(outcome.twin)
    for name in found:
        print(f"{name} differ by at most {found[name]:.1e}; of eager's twin by {noise[name]:.1e}")
    print(f"a run that was resumed half-way has {'the same bits' if outcome.resumes else 'OTHER BITS'}")
    if not outcome.agrees:
        print("The losses do not agree.")
    print(f"{time.perf_counter() - start:.1f} s for all runs")
    return 0 if outcome.agrees and outcome.resumes else 1


if __name__ == "__main__":
    raise SystemExit(main())
