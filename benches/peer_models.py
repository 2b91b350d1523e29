"""Times PyTorch on request, so that a driver can interleave it with another system: python benches/peer_models.py [--threads T]

Reads one request a line from standard input, answers one line on standard output, in order, until the input ends:
  warm SYSTEM NAME       ok MS          builds the model, compiles it, calls it once; compilation and first call, in ms
  run SYSTEM NAME COUNT  ok MS MS ...   COUNT calls of a warmed model, each in ms
  memory SYSTEM NAME     ok BYTES       most that a call of a warmed model has allocated at once
and `error TEXT` where a request cannot be met. SYSTEM is one of
  eager     the module as written
  inductor  torch.compile, default options
  frozen    the same with freezing: weights are constants, packed at compile time
NAME is a model of export_models.py or a kernel of kernels.py. The models of one NAME at a time are held.
"""

import argparse
import gc
import os
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=os.cpu_count())
THREADS = parser.parse_args().threads
# Read once, when the OpenMP runtime is loaded. Unbound threads can land on one core, which costs milliseconds a call.
os.environ["OMP_PROC_BIND"] = "true"
os.environ["OMP_NUM_THREADS"] = str(THREADS)

import torch
import torch._inductor as inductor
import torch._inductor.config
from export_models import KERNELS, MODELS, build

torch.set_num_threads(THREADS)

# How to make the callable, and Inductor's settings from capture to the end of the first call.
SYSTEMS = {
    "eager": (lambda module: module, {}),
    "inductor": (torch.compile, {}),
    # The option alone comes after capture, which must already leave the weights in the graph; the setting alone does
    # not keep this system from reusing what `inductor` compiled for the same class.
    "frozen": (lambda module: torch.compile(module, options={"freezing": True}), {"freezing": True}),
}


def milliseconds(function) -> float:
    start = time.perf_counter_ns()
    function()
    return (time.perf_counter_ns() - start) / 1e6


class Peer:
    """Holds the model that was warmed last, once for each system."""

    def __init__(self):
        self.name = None
        self.calls = {}

    def warm(self, system: str, name: str) -> list[float]:
        if system not in SYSTEMS:
            raise ValueError(f"no such system: {system}")
        if name not in MODELS and name not in KERNELS:
            raise ValueError(f"no such model: {name}")
        if name != self.name:
            self.name, self.calls = name, {}
            torch._dynamo.reset()
            gc.collect()
        example = build(name)
        compile, settings = SYSTEMS[system]
        compiled = compile(example.module)
        call = lambda: compiled(*example.args, **example.kwargs)
        with inductor.config.patch(settings):
            first = milliseconds(call)
        self.calls[system] = call
        return [first]

    def run(self, system: str, name: str, count: str) -> list[float]:
        if name != self.name or system not in self.calls:
            raise ValueError(f"not warmed: {system} {name}")
        return [milliseconds(self.calls[system]) for _ in range(int(count))]

    def memory(self, system: str, name: str) -> list[float]:
        if name != self.name or system not in self.calls:
            raise ValueError(f"not warmed: {system} {name}")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            self.calls[system]()
        events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        now = most = 0
        for event in sorted(events, key=lambda event: event.start_ns()):
            now += event.nbytes()
            most = max(most, now)
        return [most]


def main() -> None:
    # Whatever a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = Peer()
    verbs = {"warm": peer.warm, "run": peer.run, "memory": peer.memory}
    with torch.no_grad():
        for line in sys.stdin:
            try:
                verb, *rest = line.split()
                if verb not in verbs:
                    raise ValueError(f"no such request: {verb}")
                times = verbs[verb](*rest)
                print("ok", *(f"{ms:.6f}" for ms in times), file=answers, flush=True)
            except Exception as error:
                first_line = str(error).strip().splitlines()[:1]
                print("error", type(error).__name__, *first_line, file=answers, flush=True)


if __name__ == "__main__":
    main()
