"""Times torch.compile with Litz against eager mode and Inductor: python benches/compile_bench.py [NAME ...] [--train] [--optimizer sgd|adamw] [--cached] [--rounds N] [--turn S] [--threads T]

NAME is a model of export_models.py. Each system has a process of its own, which compiles the model and then waits for its turns; systems take turns,
N rounds of some calls each. Where the speed of cores changes by the second, many short turns compare better than a few long ones: --turn 0.3 --rounds 15.
With --train a call is a training step: forward, the mean of the squares of all results, backward, and a step of SGD. With --optimizer adamw it
is a step of AdamW, a compiled one with Litz and Inductor; eager_fused is eager mode with PyTorch's own fused AdamW.
Prints for each model and system:
  first    seconds from torch.compile, which imports the backend, to the first result, nothing cached; with --cached, a process before has
           filled the caches
  Dynamo   those of them that Dynamo takes
  AOT      those that AOTAutograd takes
  backend  those that the backend takes
  peak     the most memory that the process had in use during calls that are timed, in MiB, all of its libraries among that
  ms       the median of the times of a call, and how often that is in eager mode's
"""

import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
MODELS = ["bert_base", "gpt2", "resnet50", "vit_b_16", "mobilenet_v3_large", "convnext_tiny", "t5_encoder", "llama"]
SYSTEMS = ["eager", "inductor", "litz"]
FROZEN = ["inductor_frozen", "litz_frozen"]


def loss_of(outs):
    from torch.utils._pytree import tree_leaves

    floats = [leaf for leaf in tree_leaves(dict(outs) if hasattr(outs, "items") else outs) if hasattr(leaf, "is_floating_point")]
    return sum(leaf.float().square().mean() for leaf in floats if leaf.is_floating_point())


def stepping(system, kind, parameters, compile):
    """What takes a step of an optimizer, as the system has it best."""
    import torch

    if kind == "sgd":
        optimizer = torch.optim.SGD(parameters, lr=1e-6)
        return optimizer, optimizer.step
    if compile is None:
        optimizer = torch.optim.AdamW(parameters, lr=1e-6, fused=system == "eager_fused" or None)
        return optimizer, optimizer.step
    optimizer = torch.optim.AdamW(parameters, lr=1e-6, foreach=True)
    return optimizer, compile(lambda: optimizer.step())


def prepared(system, name, is_training, kind):
    """What calls the model, a function of the seconds that its backend has taken to compile, and when `torch.compile` was called."""
    import torch
    from export_models import build

    torch.manual_seed(0)
    example = build(name)
    module = example.module.train(is_training)
    seconds, start = lambda: 0.0, time.perf_counter()
    if system.startswith("litz"):
        import litz.dynamo

        options = {"freeze": True} if system == "litz_frozen" else {}
        compile = functools.partial(torch.compile, backend=litz.dynamo.backend, options=options)
        forward, seconds = compile(module), lambda: litz.stats()["seconds"]
    elif system.startswith("inductor"):
        import torch._inductor.config

        torch._inductor.config.freezing = system == "inductor_frozen"
        from torch._dynamo.utils import calculate_time_spent

        compile = torch.compile
        forward, seconds = compile(module), lambda: calculate_time_spent().get("inductor_compile", 0.0)
    else:
        forward, compile = module, None
    if not is_training:

        def call():
            with torch.no_grad():
                return forward(*example.args, **example.kwargs)

        return call, seconds, start
    for part in module.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.p = 0.0
    optimizer, update = stepping(system, kind, [p for p in module.parameters() if p.requires_grad], compile)

    def step():
        optimizer.zero_grad()
        loss_of(forward(*example.args, **example.kwargs)).backward()
        update()

    return step, seconds, start


def shares(backend) -> dict:
    """Seconds of compiling, by who takes them. Dynamo calls AOTAutograd, which calls the backend; backward graphs come later, from AOTAutograd."""
    from torch._dynamo.utils import calculate_time_spent

    spent = calculate_time_spent()
    dynamo = spent.get("entire_frame_compile", 0.0) - spent.get("backend_compile", 0.0)
    return {"dynamo": dynamo, "aot": spent["total_wall_time"] - dynamo - backend, "backend": backend}


def peak(is_new=False) -> int:
    """The most memory that the process has had resident, in KiB, since the last call with `is_new`."""
    if is_new:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def serve(system, name, options):
    """Compiles and says how long it took, then answers each line with the times of some calls, in ms."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    call, seconds, start = prepared(system, name, options.train, options.optimizer)
    call()
    first = time.perf_counter() - start
    print(json.dumps({"first": first} | shares(seconds())), file=answers, flush=True)
    for _ in sys.stdin:
        peak(is_new=True)
        times, until = [], time.perf_counter() + options.turn
        while len(times) < 3 or time.perf_counter() < until:
            start = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - start))
        # Threads that wait for work by spinning stop.
        time.sleep(min(0.3, options.turn))
        print(json.dumps({"ms": statistics.median(times), "peak": peak()}), file=answers, flush=True)


def compared(name, systems, options, folder):
    """Times of one model, by system. Where caches are asked for, they are in a folder."""
    arguments = [sys.executable, __file__, name, "--threads", str(options.threads), "--turn", str(options.turn)]
    arguments += ["--optimizer", options.optimizer] + (["--train"] if options.train else [])
    caches = (
        {"LITZ_CACHE_DIR": f"{folder}/litz", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
        if options.cached
        else {"LITZ_CACHE_DIR": "", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    )
    python_path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads), "PYTHONPATH": python_path} | caches
    started = lambda system: subprocess.Popen(
        [*arguments, "--serve", system], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    found, processes = {}, {}
    for system in systems:
        if options.cached and system != "eager":
            started(system).communicate()
        child = started(system)
        line = child.stdout.readline()
        if not line:
            print(f"{name} {system}: it fails", flush=True)
            continue
        found[system], processes[system] = json.loads(line) | {"ms": [], "peak": 0}, child
    for _ in range(options.rounds):
        for system, child in processes.items():
            child.stdin.write("run\n")
            child.stdin.flush()
            turn, of = json.loads(child.stdout.readline()), found[system]
            of["ms"].append(turn["ms"])
            of["peak"] = max(of["peak"], turn["peak"])
    for child in processes.values():
        child.stdin.close()
        child.wait()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=MODELS, metavar="NAME", help="models to time")
    parser.add_argument("--train", action="store_true", help="training steps")
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd", help="what a training step steps")
    parser.add_argument("--frozen", action="store_true", help="with weights as constants, too")
    parser.add_argument("--cached", action="store_true", help="compile what caches have")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn", type=float, default=1.0, metavar="SECONDS", help="what calls of a turn take together")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--serve", metavar="SYSTEM", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    if options.serve:
        import torch

        torch.set_num_threads(options.threads)
        return serve(options.serve, options.names[0], options)
    systems = SYSTEMS + (FROZEN if options.frozen else []) + (["eager_fused"] if options.optimizer == "adamw" else [])
    print(f"{'model':20} {'system':16} {'first s':>8} {'Dynamo s':>8} {'AOT s':>8} {'backend s':>9} {'peak MiB':>9} {'ms':>9}  of eager")
    for name in options.names:
        with tempfile.TemporaryDirectory() as folder:
            found = compared(name, systems, options, folder)
        for system, of in found.items():
            ms = statistics.median(of["ms"])
            pairs = [eager / own for eager, own in zip(found["eager"]["ms"], of["ms"])]
            print(
                f"{name:20} {system:16} {of['first']:8.2f} {of['dynamo']:8.2f} {of['aot']:8.2f} {of['backend']:9.2f} {of['peak'] / 1024:9.0f} {ms:9.2f}  {statistics.median(pairs):.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
