"""Times the models of a file in bfloat16 on a GPU: python benches/gpu_large.py OUT --models FILE [--shard I/N] [--report]

FILE defines REG, models by name with example arguments, as `cargo xtask corpus --export` takes them. Each model's call is captured as one graph: eager
mode's, Inductor's and ours, which are replayed in turns. Several processes compile side by side, each another shard; one of them times at once. Writes to
OUT/NAME.json what became of each; a model that has a file is not run again. Models whose call cannot be captured, by whomever, have no time of it.
"""

import argparse
import copy
import fcntl
import importlib.util
import json
import math
import os
import pathlib
import signal
import statistics
import sys
import warnings

warnings.filterwarnings("ignore")
# There are as many processes as cores.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
from torch.utils._pytree import tree_leaves, tree_map

import litz.dynamo
from compile_models import made

# Seconds that a model may take, and turns in which each peer's graph is replayed some times.
TIME_LIMIT, TURNS, REPLAYS = 90, 15, 5
# A call whose results differ by more of the reference's norm is not compared by its time.
MOST_OFF = 0.1
PEERS = {
    "eager": lambda module: module,
    "inductor": lambda module: torch.compile(module, dynamic=False),
    "litz": lambda module: torch.compile(module, backend=litz.dynamo.backend, dynamic=False),
}


def moved(value):
    if not isinstance(value, torch.Tensor):
        return value
    return value.cuda().bfloat16() if value.is_floating_point() else value.cuda()


def tensors(outs):
    return [leaf for leaf in tree_leaves(outs) if isinstance(leaf, torch.Tensor)]


def captured(call):
    """A graph of a call, and what it gives."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Others compile meanwhile: what their threads do is no fault of this one's capture.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        outs = tensors(call())
    graph.replay()
    torch.cuda.synchronize()
    return graph, [out.clone() for out in outs]


def off(outs, reference) -> float:
    """How far results are from others, as a part of their norm: the largest."""
    parts = [0.0]
    for out, other in zip(outs, reference, strict=True):
        if out.is_floating_point():
            parts.append(((out.double() - other.double()).norm() / other.double().norm().clamp_min(1e-30)).item())
    return max(parts)


def measured(registered, lock) -> dict:
    module, args, kwargs, _ = made(registered)
    module = module.cuda().bfloat16()
    args, kwargs = tree_map(moved, (args, kwargs))
    found, graphs = {}, {}
    with torch.no_grad():
        try:
            reference = tensors(copy.deepcopy(module)(*args, **kwargs))
        except Exception as error:
            return {"excluded": f"{type(error).__name__}: {error}"[:200]}
        for peer, compile in PEERS.items():
            torch._dynamo.reset()
            try:
                fast = compile(copy.deepcopy(module))
                graphs[peer], outs = captured(lambda: fast(*args, **kwargs))
                found[f"{peer}_off"] = off(outs, reference)
            except Exception as error:
                torch.cuda.synchronize()
                # What ends a capture comes first, and the end of the capture fails behind it.
                while error.__context__ is not None:
                    error = error.__context__
                found[peer] = f"{type(error).__name__}: {error}"[:300]
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            times = {peer: [] for peer in graphs}
            for _ in range(TURNS):
                for peer, graph in graphs.items():
                    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    start.record()
                    for _ in range(REPLAYS):
                        graph.replay()
                    end.record()
                    end.synchronize()
                    times[peer].append(1e3 * start.elapsed_time(end) / REPLAYS)
    return found | {f"{peer}_us": statistics.median(of) for peer, of in times.items()}


def report(out) -> None:
    """Prints the rate of each model against Inductor's, the slowest first, and their geometric mean."""
    rates, counts = {}, {}
    for path in sorted(out.glob("*.json")):
        found = json.loads(path.read_text())
        both = "litz_us" in found and "inductor_us" in found
        is_near = both and found["litz_off"] <= max(MOST_OFF, 2 * found["inductor_off"])
        kind = "compared" if is_near else "far" if both else "excluded" if "excluded" in found else "inductor fails" if "litz_us" in found else "litz fails"
        counts[kind] = counts.get(kind, 0) + 1
        if is_near:
            rates[path.stem] = found["inductor_us"] / found["litz_us"], found
        elif kind in ("far", "litz fails"):
            print(f"{path.stem}: {kind}: {str(found)[:300]}")
    for name, (rate, found) in sorted(rates.items(), key=lambda item: item[1][0]):
        print(f"{name:32} {rate:.3f}  litz {found['litz_us']:.1f}  inductor {found['inductor_us']:.1f}  eager {found.get('eager_us', math.nan):.1f} us")
    if rates:
        mean = math.exp(statistics.fmean(math.log(rate) for rate, _ in rates.values()))
        print(f"{len(rates)} models, geometric mean {mean:.3f}, {sum(rate < 0.9 for rate, _ in rates.values())} under 0.9; {counts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder to write to")
    parser.add_argument("--models", type=pathlib.Path, help="file that defines REG")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th model, from the I-th on")
    parser.add_argument("--report", action="store_true", help="print what is found")
    options = parser.parse_args()
    if options.report:
        return report(options.out)
    spec = importlib.util.spec_from_file_location("models", options.models)
    models = importlib.util.module_from_spec(spec)
    # Dynamo imports by name the modules that functions are of.
    sys.modules[spec.name] = models
    spec.loader.exec_module(models)
    options.out.mkdir(parents=True, exist_ok=True)

    def over(*_):
        raise TimeoutError(f"{TIME_LIMIT} s are over")

    signal.signal(signal.SIGALRM, over)
    shard, count = map(int, options.shard.split("/"))
    for name in sorted(models.REG)[shard::count]:
        path = options.out / f"{name}.json"
        if path.exists():
            continue
        path.write_text(json.dumps({"excluded": "the process died"}))
        signal.alarm(TIME_LIMIT)
        try:
            found = measured(models.REG[name], options.out / "timing.lock")
        except Exception as error:
            found = {"excluded": f"{type(error).__name__}: {error}"[:300]}
        finally:
            signal.alarm(0)
        path.write_text(json.dumps(found))
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
