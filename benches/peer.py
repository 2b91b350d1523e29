"""Answers requests for times, one line for one line, so that a driver can let several systems take turns.

Reads one request a line from standard input, answers one line on standard output, in order, until the input ends:
  warm SYSTEM NAME       ok MS          builds the model, compiles it, calls it once; compilation and first call, in ms
  run SYSTEM NAME COUNT  ok MS MS ...   COUNT calls of a warmed model, each in ms
  memory SYSTEM NAME     ok BYTES       most that a call of a warmed model has allocated at once
and `error TEXT` where a request cannot be met. NAME is a model of export_models.py or a kernel of kernels.py.
"""

import argparse
import gc
import os
import sys
import time
from typing import Callable


def threads(doc: str) -> int:
    """The number of threads that the command line asks for, of a script with that docstring; all where it does not say."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    return parser.parse_args().threads


def milliseconds(function: Callable) -> float:
    start = time.perf_counter_ns()
    function()
    return (time.perf_counter_ns() - start) / 1e6


class Peer:
    """Holds the model that was warmed last, once for each system. What is specific to a system is for a subclass to say."""

    def __init__(self):
        self.name = None
        self.calls = {}

    def prepare(self, system: str, name: str) -> tuple[Callable, float]:
        """What calls the model, and the time in ms of making it and of its first call."""
        raise NotImplementedError

    def forget(self) -> None:
        """Lets go of what belongs to the model that was warmed last."""

    def rest(self) -> None:
        """Returns when no thread of this process is busy any more."""

    def peak(self, system: str) -> float:
        """The most bytes that a call of a warmed system has allocated at once."""
        raise NotImplementedError

    def warm(self, system: str, name: str) -> list[float]:
        if name != self.name:
            self.name, self.calls = name, {}
            self.forget()
            gc.collect()
        self.calls[system], first = self.prepare(system, name)
        return [first]

    def run(self, system: str, name: str, count: str) -> list[float]:
        self.check(system, name)
        times = [milliseconds(self.calls[system]) for _ in range(int(count))]
        self.rest()
        return times

    def memory(self, system: str, name: str) -> list[float]:
        self.check(system, name)
        return [self.peak(system)]

    def check(self, system: str, name: str) -> None:
        if name != self.name or system not in self.calls:
            raise ValueError(f"not warmed: {system} {name}")

    def serve(self) -> None:
        """Answers until the input ends."""
        # Whatever a library prints must not be taken for an answer.
        answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        verbs = {"warm": self.warm, "run": self.run, "memory": self.memory}
        for line in sys.stdin:
            try:
                verb, *rest = line.split()
                if verb not in verbs:
                    raise ValueError(f"no such request: {verb}")
                numbers = verbs[verb](*rest)
                print("ok", *(f"{number:.6f}" for number in numbers), file=answers, flush=True)
            except Exception as error:
                first_line = str(error).strip().splitlines()[:1]
                print("error", type(error).__name__, *first_line, file=answers, flush=True)
