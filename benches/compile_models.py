"""Runs models through torch.compile: python benches/compile_models.py OUT --models FILE [NAME ...] [--device cuda] [--train] [--shard I/N]

FILE defines REG, models by name with example arguments, as `cargo xtask corpus --export` takes them. Each model is called in evaluation mode by
eager, by `backend="aot_eager"` and by `backend="litz"`, and its results are held against the numeric contract, with the model in f64 as the
reference. With --train, models that say how they are trained take three steps of SGD and three of AdamW, and parameters are compared; where they
differ, they are held against those of eager's twins, whose weights were a rounding away at the beginning, and so are those of Litz's own twins: of
what roundings move far, one run tells nothing, and each parameter has to be as close as eager's in more than half of the runs. Where that fails,
`aot_eager` takes eager's place: what PyTorch's tracing changes is no fault of a backend. Writes to OUT/NAME.json what became of each; a model that
has a file is not run again. Exit status 1 where numbers are wrong, or where PyTorch ran a graph as a whole for a reason that
`crates/litz-py/python/tests/left.py` does not have.
"""

import argparse
import copy
import functools
import importlib.util
import itertools
import json
import pathlib
import signal
import sys
import time
import warnings
from collections import Counter

warnings.filterwarnings("ignore")

import torch
from torch.utils._pytree import tree_leaves, tree_map

import litz.dynamo
import litz.counters
from compile_opinfo import Wrong, compare, left, reason

# Seconds that a model may take.
TIME_LIMIT = 1800

# Further runs of each, twins, that say how far roundings get in three steps: none, a few, and where these leave doubts as many more as find what
# happens in one of ten. A rounding decides on which side of a kink an activation is.
TWINS = (0, 4, 24)

# Beside whom parameters are judged. PyTorch's tracing changes what some models learn, whoever runs their graphs: a gradient that eager mode leaves
# out is one of zeros, for which weights decay, and NumPy's random numbers are others. A fault of a kernel of eager mode, which both may have, stays.
PEERS = (None, "aot_eager")


def made(registered):
    """A model in evaluation mode, without parameters that are all zero, which would hide wrong numbers behind them."""
    torch.manual_seed(0)
    model = registered[1]()
    module = model["mod"].eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() and parameter.is_floating_point() and not parameter.any():
                parameter.normal_(0, 0.02)
    return module, tuple(model.get("args", ())), model.get("kwargs") or {}, model.get("train")


def placed(value, device):
    """A model or an argument on a device."""
    return value.to(device) if isinstance(value, (torch.Tensor, torch.nn.Module)) else value


def wide(value):
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def results(module, args, kwargs):
    torch.manual_seed(1)
    with torch.no_grad():
        outs = module(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    return [leaf for leaf in tree_leaves(outs) if isinstance(leaf, (torch.Tensor, int, float))]


def compiled(module, backend):
    torch._dynamo.reset()
    return torch.compile(module, backend=backend)


def infer(module, args, kwargs) -> dict:
    """What becomes of one call."""
    eager = results(copy.deepcopy(module), args, kwargs)
    try:
        reference = results(copy.deepcopy(module).double(), *tree_map(wide, (args, kwargs)))
    except Exception:
        reference = None
    try:
        compare(results(compiled(copy.deepcopy(module), "aot_eager"), args, kwargs), eager, reference, False)
    except Exception as error:
        return {"verdict": "excluded", "why": f"aot_eager: {reason(error)}"}
    litz.counters.reset()
    start = time.time()
    try:
        # The random numbers of eager, for models that draw some.
        backend = functools.partial(litz.dynamo.backend, options={"random": "eager"})
        ours = results(compiled(copy.deepcopy(module), backend), args, kwargs)
        stats = litz.counters.stats()
        compare(ours, eager, reference, False)
    except Wrong as error:
        return {"verdict": "wrong", "why": str(error)}
    except Exception as error:
        return {"verdict": "error", "why": reason(error)}
    return {"verdict": verdict(stats), "seconds": round(time.time() - start, 1), **told(stats)}


def verdict(*found) -> str:
    """What becomes of a model whose numbers are right: `left` where PyTorch ran a graph of it as a whole without a reason that is right."""
    return "left" if any(left.unexpected(stats["eager_graphs"]) for stats in found) else "pass"


def told(stats) -> dict:
    """How many launches and calls of PyTorch a call takes."""
    calls = sum(calls for calls, *_ in stats["fallbacks"].values())
    return {
        "launches": stats.get("launches", 0),
        "fallbacks": {op: calls for op, (calls, *_) in stats["fallbacks"].items()},
        "calls_of_pytorch": calls,
        "eager_graphs": stats["eager_graphs"],
    }


def loss_of(outs):
    loss = getattr(outs, "loss", None)
    if loss is not None:
        return loss
    floats = [leaf for leaf in tree_leaves(outs) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    return sum(leaf.float().square().mean() for leaf in floats)


def trained(module, backend, optimizer, args, kwargs):
    """Parameters after three steps."""
    module = copy.deepcopy(module).train()
    for part in module.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.p = 0.0
    forward = module if backend is None else compiled(module, backend)
    optimizer = optimizer(module.parameters())
    for _ in range(3):
        torch.manual_seed(1)
        optimizer.zero_grad()
        loss_of(forward(*copy.deepcopy(args), **copy.deepcopy(kwargs))).backward()
        optimizer.step()
    return [parameter.detach() for parameter in module.parameters()]


def moved(module, seed):
    """A copy of a model, of which a rounding moves each weight or does not."""
    module, generator = copy.deepcopy(module), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                by = torch.finfo(parameter.dtype).eps * torch.randint(-1, 2, parameter.shape, generator=generator)
                parameter.add_(parameter * by.to(parameter.dtype))
    return module


def agreeing(runs, eager, wider, twins) -> int:
    """In how many runs each parameter is as close to double precision as eager's, if that is more than half of them."""
    fewest = len(runs)
    for position in range(len(eager)):
        only, failures = lambda run: [run[position]], []
        for run in runs:
            try:
                compare(only(run), only(eager), wider and only(wider), False, [only(twin) for twin in twins])
            except Wrong as error:
                failures.append(Wrong(f"parameter {position}: {error}"))
        if 2 * len(failures) >= len(runs):
            raise failures[0]
        fewest = min(fewest, len(runs) - len(failures))
    return fewest


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    # Of a gradient near 0 AdamW takes the sign: a large eps keeps rounding errors small.
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, eps=1e-2),
}


class Training:
    """Trains a model, and twins of it, with one optimizer: by eager mode (None), by `aot_eager` or by Litz."""

    def __init__(self, module, optimizer, args, kwargs):
        self.module, self.optimizer, self.args, self.kwargs = module, optimizer, args, kwargs
        self.known = {}

    def parameters(self, backend, seed=None):
        """Those of the model, or of the twin of a seed."""
        if (backend, seed) not in self.known:
            module = self.module if seed is None else moved(self.module, seed)
            self.known[backend, seed] = trained(module, backend, self.optimizer, self.args, self.kwargs)
        return self.known[backend, seed]

    def wider(self, backend):
        """Those of the model in f64, where it has them."""
        if (backend, "f64") not in self.known:
            try:
                inputs = tree_map(wide, (self.args, self.kwargs))
                self.known[backend, "f64"] = trained(copy.deepcopy(self.module).double(), backend, self.optimizer, *inputs)
            except Exception:
                self.known[backend, "f64"] = None
        return self.known[backend, "f64"]

    def agree(self, backend, peer, count) -> str:
        """Raises `Wrong` where a backend's parameters are not a peer's, as far as some twins of both tell; says how they are."""
        theirs, wider = self.parameters(peer), self.wider(peer)
        if count == 0:
            compare(self.parameters(backend), theirs, wider, False)
            return f"by the contract, beside {peer or 'eager'}"
        runs = [self.parameters(backend, seed) for seed in (None, *range(count))]
        right = agreeing(runs, theirs, wider, [self.parameters(peer, seed) for seed in range(count)])
        return f"by twins: {right} of {len(runs)} runs, beside {peer or 'eager'}"


def train(module, args, kwargs, given) -> dict:
    """What becomes of training with both optimizers."""
    args, kwargs = tuple(given.get("args", args)), given.get("kwargs", kwargs)
    # The random numbers of eager, for layers that drop whatever their `p` says.
    backend = functools.partial(litz.dynamo.backend, options={"random": "eager"})
    found = {}
    for name, optimizer in OPTIMIZERS.items():
        training, failures = Training(module, optimizer, args, kwargs), []
        try:
            training.parameters(None)
        except Exception as error:
            return {"verdict": "excluded", "why": f"eager: {reason(error)}"}
        litz.counters.reset()
        try:
            training.parameters(backend)
            found[name] = told(litz.counters.stats())
            for count, peer in itertools.product(TWINS, PEERS):
                try:
                    found[name]["judged"] = training.agree(backend, peer, count)
                    break
                except TimeoutError:
                    raise
                except Exception as error:
                    failures.append(error)
            else:
                return {"verdict": "wrong", "why": f"{name}: {failures[0]}"}
        except Exception as error:
            return {"verdict": "error", "why": f"{name}: {reason(error)}"}
    return {"verdict": verdict(*found.values()), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder to write to")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to run (default: all)")
    parser.add_argument("--models", type=pathlib.Path, required=True, help="file that defines REG")
    parser.add_argument("--device", default="cpu", help="where models and their arguments are: cpu or cuda")
    parser.add_argument("--train", action="store_true", help="train those that say how")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th model, from the I-th on")
    options = parser.parse_intermixed_args()
    spec = importlib.util.spec_from_file_location("models", options.models)
    models = importlib.util.module_from_spec(spec)
    # Dynamo imports by name the modules that functions are of.
    sys.modules[spec.name] = models
    spec.loader.exec_module(models)
    options.out.mkdir(parents=True, exist_ok=True)
    first, step = map(int, options.shard.split("/"))

    def stop(*_):
        raise TimeoutError(f"it takes more than {TIME_LIMIT} s")

    signal.signal(signal.SIGALRM, stop)
    # Convolutions of eager mode are in float32 where they say so.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        counts = each_model(models, first, step, options)
    print(dict(counts))
    sys.exit(1 if counts["wrong"] or counts["left"] else 0)


def each_model(models, first, step, options) -> Counter:
    """Runs those of a shard that have no file; says how many there are of each verdict."""
    counts = Counter()
    for name in (options.names or sorted(models.REG))[first::step]:
        path = options.out / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps({"verdict": "error", "why": "the process died"}))
            signal.alarm(TIME_LIMIT)
            try:
                module, args, kwargs, given = tree_map(lambda value: placed(value, options.device), made(models.REG[name]))
                if options.train:
                    wanted = given is not None or models.REG[name][2].get("aot")
                    found = train(module, args, kwargs, given or {}) if wanted else {"verdict": "excluded", "why": "not trained"}
                else:
                    found = infer(module, args, kwargs)
            except Exception as error:
                found = {"verdict": "excluded", "why": reason(error)}
            finally:
                signal.alarm(0)
            path.write_text(json.dumps(found))
        found = json.loads(path.read_text())
        counts[found["verdict"]] += 1
        print(name, found, flush=True)
    return counts


if __name__ == "__main__":
    main()
