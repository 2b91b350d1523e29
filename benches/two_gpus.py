"""Compiles functions for two GPUs in one process, and compares what they give with eager mode and with each other.

    python benches/two_gpus.py [--calls N]

Each function is compiled with `backend="litz"` and called with tensors on cuda:0 and with equal ones on cuda:1, turn by turn, from a thread for
each GPU, and with the other GPU as PyTorch's current device; results have equal bits on both, and PyTorch's current device stays as it was.
A function of tensors on both is PyTorch's. Prints a line for each check; exit status 1 where one fails, 2 where there are no two GPUs.
"""

import argparse
import functools
import sys
import threading

import torch
from torch import nn
from torch.nn import functional as F

import checking

GPUS = 2


def norm(x, weight):
    return F.rms_norm(x + F.gelu(x), (x.shape[-1],), weight)


def product(x, weight):
    return torch.softmax(x @ x.transpose(-1, -2), -1).sum(0) * weight[:1]


def picked(x, weight):
    return torch.topk(x * weight, 5).values, x.argmax(-1)


class Trained(nn.Module):
    """Two layers, with gradients."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, 96))

    def forward(self, x):
        return self.layers(x).square().mean()


FUNCTIONS = {"norm": norm, "product": product, "picked": picked}


def compiled(function):
    return torch.compile(function, backend="litz", fullgraph=True, dynamic=False)


def inputs(gpu: int) -> list[torch.Tensor]:
    """The same numbers on each GPU."""
    generator = torch.Generator().manual_seed(3)
    tensors = torch.randn(64, 96, generator=generator), torch.randn(96, generator=generator)
    return [tensor.to(f"cuda:{gpu}") for tensor in tensors]


def host(result) -> list[torch.Tensor]:
    return [tensor.cpu() for tensor in (result if isinstance(result, tuple) else (result,))]


def same(one, other) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other))


def close(one, other) -> bool:
    return all(torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5) for a, b in zip(one, other))


def expect(holds: bool, what: str):
    if not holds:
        raise AssertionError(what)


def check_turns(function):
    of_each = []
    for gpu in (0, 1, 0, 1):
        given = inputs(gpu)
        result = function(*given)
        leaves = result if isinstance(result, tuple) else (result,)
        expect(all(leaf.device == torch.device("cuda", gpu) for leaf in leaves), f"a result is not on cuda:{gpu}")
        of_each.append(host(result))
    expect(all(same(of_each[0], other) for other in of_each), "results of the two GPUs differ")
    return of_each[0]


def check_current(function):
    """The current device is another one than the tensors', and stays so."""
    for gpu in range(GPUS):
        torch.cuda.set_device(1 - gpu)
        host(function(*inputs(gpu)))
        expect(torch.cuda.current_device() == 1 - gpu, "a call changed PyTorch's current device")
        expect(torch.empty(1, device="cuda").device.index == 1 - gpu, "a call changed where tensors are made")
    torch.cuda.set_device(0)


def check_threads(function, expected, calls):
    failed = []

    def run(gpu):
        try:
            given = inputs(gpu)
            stream = torch.cuda.Stream(device=gpu)
            with torch.cuda.stream(stream):
                for _ in range(calls):
                    expect(same(host(function(*given)), expected), f"a call on cuda:{gpu} in a thread differs")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(gpu,)) for gpu in range(GPUS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def check_function(name, calls):
    plain, fast = FUNCTIONS[name], compiled(FUNCTIONS[name])
    found = check_turns(fast)
    expect(close(found, host(plain(*inputs(0)))), "results are not eager mode's")
    check_current(fast)
    check_threads(fast, found, calls)


def check_training(_):
    gradients = []
    for gpu in range(GPUS):
        torch.manual_seed(1)
        model = Trained().to(f"cuda:{gpu}")
        x, _ = inputs(gpu)
        compiled(model)(x).backward()
        gradients.append([parameter.grad.cpu() for parameter in model.parameters()])
        plain = Trained().to(f"cuda:{gpu}")
        plain.load_state_dict(model.state_dict())
        plain(x).backward()
        expect(close(gradients[-1], [parameter.grad.cpu() for parameter in plain.parameters()]), f"gradients on cuda:{gpu} are not eager mode's")
    expect(same(*gradients), "gradients of the two GPUs differ")


def check_both(_):
    """A graph with tensors on both GPUs is left to PyTorch, with a reason."""
    (x, _), (y, _) = inputs(0), inputs(1)
    function = lambda x, y: (x + 1, y * 2)
    found = torch.compile(function, backend="litz")(x, y)
    expect(same(host(found), host(function(x, y))), "results are not eager mode's")
    strict = torch.compile(function, backend="litz", options={"fallback": "error"}, dynamic=False)
    torch._dynamo.reset()
    try:
        strict(x, y)
    except Exception as error:
        expect("a graph runs on one GPU" in str(error), f"the reason is another one: {error}")
    else:
        raise AssertionError("a graph with tensors on both GPUs is not refused")


def check_capture(_):
    """A call is part of a graph that PyTorch captures on the second GPU."""
    given, fast = inputs(1), compiled(norm)
    expected = host(fast(*given))
    with torch.cuda.device(1):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = fast(*given)
        graph.replay()
        torch.cuda.synchronize()
    expect(same(host(result), expected), "what was captured differs")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200, help="calls of each thread")
    args = parser.parse_args()
    if torch.cuda.device_count() < GPUS:
        print(f"expected two GPUs, found {torch.cuda.device_count()}")
        return 2
    checks = {name: (lambda calls, name=name: check_function(name, calls)) for name in FUNCTIONS}
    checks |= {"training": check_training, "both": check_both, "capture": check_capture}
    return checking.run({name: functools.partial(check, args.calls) for name, check in checks.items()})


if __name__ == "__main__":
    sys.exit(main())
