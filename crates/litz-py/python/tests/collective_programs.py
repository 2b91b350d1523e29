"""Runs functions with collectives in several processes, compiled and in eager mode: `python collective_programs.py OUT [--processes N] ..`.

Writes what each process found to `OUT/RANK.json`, by the name of the function and the number of elements. Tests read it; alone it is a longer test.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
import torch.multiprocessing as mp

WORLD = "0"


def in_place(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def all_reduce(x):
    return fc.all_reduce(x * 2, "max", dist.group.WORLD) - x


def all_reduce_of_an_argument(x):
    return fc.all_reduce(x, "sum", dist.group.WORLD) + x


def all_gather(x):
    return fc.all_gather_tensor(x * 2, 0, dist.group.WORLD) + 1


def reduce_scatter(x):
    return fc.reduce_scatter_tensor((x * 2).repeat(dist.get_world_size()), "sum", 0, dist.group.WORLD) + 1


def all_to_all(x):
    return fc.all_to_all_single((x * 2).repeat(dist.get_world_size()), None, None, dist.group.WORLD) + 1


def broadcast(x):
    return fc.broadcast(x * 2, 1, dist.group.WORLD) + x


def reduced_together(x):
    one, other = fc.all_reduce_coalesced([x * 2, x.amax(0)], "sum", dist.group.WORLD)
    return one + 1, other - 1


def gathered_together(x):
    one, other = fc.all_gather_into_tensor_coalesced([x * 2, x + 1], dist.group.WORLD)
    return one + 1, other - 1


def scattered_together(x):
    size = dist.get_world_size()
    one, other = fc.reduce_scatter_tensor_coalesced([(x * 2).repeat(size), (x + 1).repeat(size)], "sum", [0, 0], dist.group.WORLD)
    return one + 1, other - 1


def returned_as_it_is(x):
    return fc.all_reduce(x * 2, "sum", dist.group.WORLD)


def one_after_another(x):
    y = fc.all_reduce(x * 2, "sum", dist.group.WORLD)
    z = fc.all_reduce(x.neg(), "max", dist.group.WORLD)
    return fc.all_gather_tensor(y - z, 0, dist.group.WORLD) * z.amax()


FUNCTIONS = [
    in_place,
    all_reduce,
    all_reduce_of_an_argument,
    all_gather,
    reduce_scatter,
    all_to_all,
    broadcast,
    reduced_together,
    gathered_together,
    scattered_together,
    returned_as_it_is,
    one_after_another,
]


def differences(f, elements, calls, rank):
    """How many elements are not eager mode's, over several calls of a compiled function of which one process is late now and then; operators that
    PyTorch ran, with how often; and graphs that it ran as a whole.
    """
    import litz

    torch._dynamo.reset()
    litz.reset_stats()
    compiled, wrong, late = torch.compile(f, backend="litz", fullgraph=True), 0, random.Random(7 + rank)
    for call in range(calls):
        x = (torch.arange(elements, dtype=torch.float32) % 13 + rank + call) / 16
        kept = x.clone()
        wanted = f(x.clone())
        if rank == call % dist.get_world_size() and late.random() < 0.2:
            time.sleep(0.05 * late.random())
        found = compiled(x)
        found, wanted = (value if isinstance(value, tuple) else (value,) for value in (found, wanted))
        wrong += sum(int((one != other).sum()) for one, other in zip(found, wanted, strict=True))
        wrong += int((x != kept).sum())
    stats = litz.stats()
    return {
        "wrong": wrong,
        "asked": {op.removeprefix("_c10d_functional.").removesuffix(".default"): ran[0] for op, ran in stats["fallbacks"].items()},
        "eager_graphs": stats["eager_graphs"],
    }


def growth(calls):
    """MiB that the process grows by over calls, behind the first ten, and warnings of results that nobody has waited for."""
    torch._dynamo.reset()
    compiled = torch.compile(in_place, backend="litz", fullgraph=True)
    x = torch.ones(1_000_000)
    with warnings.catch_warnings(record=True) as caught:
        for call in range(calls):
            if call == 10:
                before = resident()
            compiled(x)
        return {"grown": resident() - before, "warnings": [str(one.message) for one in caught]}


def resident():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def in_other_orders(rank):
    """What a process is told that calls two collectives in another order than the others."""
    torch._dynamo.reset()

    def f(x):
        one, other = ("sum", "max") if rank else ("max", "sum")
        y = fc.all_reduce(x * 2, one, dist.group.WORLD)
        return fc.all_reduce(y + 1, other, dist.group.WORLD)

    try:
        torch.compile(f, backend="litz", fullgraph=True)(torch.ones(16))
    except RuntimeError as error:
        return str(error)
    return None


def of_an_argument_on_its_way(rank):
    """Elements that are wrong where an argument of a graph is what a collective has not finished yet."""
    torch._dynamo.reset()
    compiled, wrong = torch.compile(lambda y: torch.ops._c10d_functional.wait_tensor(y) * 2, backend="litz", fullgraph=True), 0
    for _ in range(20):
        with fc.allow_inflight_collective_as_graph_input_ctx():
            x = torch.full((100_000,), float(rank + 1))
            begun = torch.ops._c10d_functional.all_reduce(x, "sum", WORLD)
            size = dist.get_world_size()
            wrong += int((compiled(begun) != size * (size + 1)).sum())
    return wrong


class Block(torch.nn.Module):
    """A layer of a model that is split over processes."""

    def __init__(self, takes, gives):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(takes, gives), torch.nn.LayerNorm(gives)

    def forward(self, x):
        return self.norm(torch.nn.functional.gelu(self.linear(x)))


def trained(rank):
    """Losses and gradients of models that are split over processes, trained for some steps in eager mode and compiled."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    import litz

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    def model():
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))

    def by_rows(backend):
        one = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        return torch.compile(one, backend=backend) if backend else one

    def sharded(backend):
        torch.manual_seed(3)
        one = torch.nn.Sequential(Block(12, 16), Block(16, 8))
        for block in one:
            fully_shard(block, mesh=mesh)
        # Dynamo compiles blocks alone: it leaves to PyTorch what gathers their parameters before and frees them behind.
        return torch.compile(fully_shard(one, mesh=mesh), backend=backend) if backend else fully_shard(one, mesh=mesh)

    results = {}
    for make in (by_rows, sharded):
        outcomes = []
        for backend in (None, "litz"):
            torch._dynamo.reset()
            litz.reset_stats()
            one = make(backend)
            optimizer = torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9)
            generator, seen = torch.Generator().manual_seed(5), []
            for _ in range(5):
                x, y = torch.randn(6, 12, generator=generator), torch.randn(6, 8, generator=generator)
                loss = (one(x) - y).square().mean()
                loss.backward()
                seen.append(loss.item())
                for parameter in one.parameters():
                    gradient = parameter.grad
                    gradient = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
                    seen.append(gradient.double().norm().item())
                optimizer.step()
                optimizer.zero_grad()
            outcomes.append(seen)
        apart = max(abs(one - other) / max(abs(one), 1e-6) for one, other in zip(*outcomes, strict=True))
        results[make.__name__] = {"apart": apart, "eager_graphs": litz.stats()["eager_graphs"], "graphs": litz.stats()["graphs"]}
    return results


def work(rank, arguments):
    dist.init_process_group(
        "gloo", rank=rank, world_size=arguments.processes, store=dist.FileStore(str(arguments.out / "store"), arguments.processes)
    )
    torch.set_num_threads(1)
    found = {"differences": {}}
    for f in FUNCTIONS:
        for elements in arguments.elements:
            # Large tensors take time, and need fewer calls.
            calls = arguments.calls if elements < 1_000_000 else arguments.large_calls
            found["differences"][f"{f.__name__} {elements}"] = differences(f, elements, calls, rank)
    found["awaited"] = of_an_argument_on_its_way(rank)
    found["growth"] = growth(arguments.growth_calls)
    found["trained"] = trained(rank)
    found["other_orders"] = in_other_orders(rank)
    (arguments.out / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--elements", type=int, nargs="*", default=[1, 16, 4_000_000])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--large-calls", type=int, default=20)
    parser.add_argument("--growth-calls", type=int, default=1000)
    arguments = parser.parse_args()
    mp.spawn(work, args=(arguments,), nprocs=arguments.processes)
    found = json.loads((arguments.out / "0.json").read_text())
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    sys.exit(main())
