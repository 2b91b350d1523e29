"""Times ONNX Runtime on request: python benches/peer_onnxruntime.py [--threads T]

Speaks the protocol of peer.py; its only SYSTEM is `onnxruntime`: what torch.onnx.export writes, with every optimisation
of ONNX Runtime, on the CPU. As with an exported model for Litz, exporting is not timed: the first time is that of making the
session, which optimises the model and packs its weights, and of the first call. It is a process of its own because
PyTorch's binds the thread that would start ONNX Runtime's to one core.
"""

import os
import pathlib
import tempfile
import time

import peer

THREADS = peer.threads(__doc__)

import onnxruntime
import torch
from export_models import build, disagreement
from torch.utils._pytree import tree_leaves, tree_map

# Its threads look for work for tens of milliseconds after a call. They are asleep when none of them has used this much of
# a processor's time within a nap, in seconds.
NAP, IDLE = 0.005, 0.001


def options() -> onnxruntime.SessionOptions:
    """So many threads for one operator at a time, those that help the caller's bound to the cores after the first: as ONNX
    Runtime does by itself where the number of threads is left to it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    cores = sorted(os.sched_getaffinity(0))
    if 1 < THREADS <= len(cores):
        workers = ";".join(str(core + 1) for core in cores[1:THREADS])
        options.add_session_config_entry("session.intra_op_thread_affinities", workers)
    return options


class OnnxRuntime(peer.Peer):
    def prepare(self, system, name):
        example = build(name)
        expected = tree_leaves(example.module(*example.args, **example.kwargs))
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, f"{name}.onnx")
            program = torch.onnx.export(example.module, example.args, kwargs=example.kwargs, dynamo=True, verbose=False)
            program.save(file, external_data=True)
            del program
            start = time.perf_counter_ns()
            session = onnxruntime.InferenceSession(file, options(), providers=["CPUExecutionProvider"])
            made = (time.perf_counter_ns() - start) / 1e6
        feed = self.feed(session, example)
        call = lambda: session.run_with_ort_values(None, feed)
        first = peer.milliseconds(call)
        # What was exported is another program: times of one that computes something else would say nothing.
        found = [torch.from_dlpack(value) for value in call()]
        if problem := disagreement(found, tree_map(lambda value: value.double(), expected)):
            raise ValueError(f"wrong numbers: {problem}")
        return call, made + first

    def feed(self, session, example):
        """The example's tensors by the names of the session's inputs: keyword arguments keep theirs, others their order."""
        rest = iter(tree_leaves(example.args))
        tensors = {
            given.name: example.kwargs[given.name] if given.name in example.kwargs else next(rest)
            for given in session.get_inputs()
        }
        return {name: onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy()) for name, tensor in tensors.items()}

    def rest(self):
        while True:
            before = time.process_time()
            time.sleep(NAP)
            if time.process_time() - before < IDLE:
                return

    def peak(self, system):
        raise NotImplementedError("ONNX Runtime does not tell what a call has allocated")


if __name__ == "__main__":
    with torch.no_grad():
        OnnxRuntime().serve()
