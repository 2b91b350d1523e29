"""Times PyTorch on request: python benches/peer_models.py [--threads T]

Speaks the protocol of peer.py. SYSTEM is one of
  eager     the module as written
  inductor  torch.compile, default options
  frozen    the same with freezing: weights are constants, packed at compile time
"""

import os

import peer

THREADS = peer.threads(__doc__)
# Read once, when the OpenMP runtime is loaded. Unbound threads can land on one core, which costs milliseconds a call.
os.environ["OMP_PROC_BIND"] = "true"
os.environ["OMP_NUM_THREADS"] = str(THREADS)

import torch
import torch._inductor as inductor
import torch._inductor.config
from export_models import build

torch.set_num_threads(THREADS)

# How to make the callable, and Inductor's settings from capture to the end of the first call.
SYSTEMS = {
    "eager": (lambda module: module, {}),
    "inductor": (torch.compile, {}),
    # The option alone comes after capture, which must already leave the weights in the graph; the setting alone does
    # not keep this system from reusing what `inductor` compiled for the same class.
    "frozen": (lambda module: torch.compile(module, options={"freezing": True}), {"freezing": True}),
}


class PyTorch(peer.Peer):
    def prepare(self, system, name):
        compile, settings = SYSTEMS[system]
        example = build(name)
        compiled = compile(example.module)
        call = lambda: compiled(*example.args, **example.kwargs)
        with inductor.config.patch(settings):
            return call, peer.milliseconds(call)

    def forget(self):
        torch._dynamo.reset()

    def peak(self, system):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            self.calls[system]()
        events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        now = most = 0
        for event in sorted(events, key=lambda event: event.start_ns()):
            now += event.nbytes()
            most = max(most, now)
        return most


if __name__ == "__main__":
    with torch.no_grad():
        PyTorch().serve()
