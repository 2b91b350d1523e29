"""Times kernels, calls, starts and models on an NVIDIA GPU, turn by turn in one process, and watches memory: sections of `gpu_check.py`.

Kernels are timed cold: calls go through sets of inputs that together are larger than the last cache, a turn being a graph of PyTorch's that captures as
many calls, so that no time of the host is in it. All times are medians.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
import warnings

warnings.filterwarnings("ignore")

import gpu_kernels
import gpu_models
import torch
from gpu_kernels import normal
from gpu_models import model_table
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd

from litz.dynamo import backend

ROOT = pathlib.Path(__file__).resolve().parents[1]

# PyTorch's wheels have entry points for installed packages alone, which a bundle is not.
torch._dynamo.register_backend(name="litz")(backend)

# Rounds of turns, and calls of a turn at least.
ROUNDS, CALLS = 15, 16

PEERS = {
    "eager": lambda function: function,
    "inductor": lambda function: torch.compile(function, dynamic=False),
    "litz": lambda function: torch.compile(function, backend="litz", dynamic=False),
}


def cache_bytes() -> int:
    return torch.cuda.get_device_properties(0).L2_cache_size


def nbytes(value) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(nbytes, value)) if isinstance(value, (tuple, list)) else 0


# How far results may be from eager mode's, of the largest of them.
CLOSE = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float32: 1e-3}


def distance(ours, expected) -> float:
    """The largest difference of floats, of the largest of them."""
    if isinstance(expected, (tuple, list)):
        return max((distance(a, b) for a, b in zip(ours, expected, strict=True)), default=0.0)
    if not isinstance(expected, torch.Tensor) or not expected.is_floating_point():
        return 0.0
    ours, expected = ours.double(), expected.double()
    return ((ours - expected).abs().max() / expected.abs().max().clamp_min(1e-30)).item()


def turn(function, sets):
    """A function that calls `function` on each of the sets, as one graph where that can be captured, and says whether it is."""
    for given in sets[:2]:
        function(*given)
    torch.cuda.synchronize()
    calls = [sets[at % len(sets)] for at in range(max(CALLS, len(sets)))]
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for given in calls:
                function(*given)
        return graph.replay, len(calls), "graph"
    except Exception:
        torch.cuda.synchronize()

        def each():
            for given in calls:
                function(*given)

        return each, len(calls), "calls"


def medians(turns: dict, rounds: int = ROUNDS) -> dict[str, float]:
    """Microseconds of a call of each, turn by turn."""
    times = {name: [] for name in turns}
    for round in range(rounds + 2):
        for name, (run, count, _) in turns.items():
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            run()
            last.record()
            last.synchronize()
            if round >= 2:
                times[name].append(1e3 * first.elapsed_time(last) / count)
    return {name: statistics.median(of) for name, of in times.items()}


def error_of(function, given, ours, expected) -> float:
    """How far our result is from eager mode's: zero where eager mode's is farther from that of doubles, as that of a running sum in two bytes is."""
    error = distance(ours, expected)
    if error < CLOSE.get(of_type(expected), 0) or not all(value.is_floating_point() for value in given):
        return error
    exact = function(*(value.double() for value in given))
    return 0.0 if distance(ours, exact) <= distance(expected, exact) else error


def of_type(result) -> torch.dtype:
    return (result if isinstance(result, torch.Tensor) else result[0]).dtype


def time_kernel(rows, name, function, make, flops):
    """Adds the row of a kernel."""
    first = make()
    result = function(*first)
    moved = nbytes(first) + nbytes(result)
    sets = [first] + [make() for _ in range(min(63, max(1, -(-2 * cache_bytes() // max(nbytes(first), 1)))))]
    turns, missing, error = {}, {}, float("nan")
    for peer, compile in PEERS.items():
        torch._dynamo.reset()
        try:
            compiled = compile(function)
            if peer == "litz":
                error = error_of(function, first, compiled(*first), result)
            turns[peer] = turn(compiled, sets)
        except Exception as failure:
            torch.cuda.synchronize()
            missing[peer] = f"{type(failure).__name__}: {failure}"[:200]
    half = max(moved // 2, 1)
    buffers = [torch.empty(2, half, dtype=torch.uint8, device="cuda") for _ in range(min(16, max(2, -(-2 * cache_bytes() // moved))))]
    turns["copy"] = turn(lambda to_from: to_from[0].copy_(to_from[1]), [(pair,) for pair in buffers])
    times = medians(turns)
    ratios = {f"/{peer}": times["litz"] / times[peer] for peer in ("copy", "eager", "inductor") if "litz" in times and peer in times}
    found = {f"{peer}_us": value for peer, value in times.items()}
    rate = {"tflops": flops / times["litz"] / 1e6} if flops and "litz" in times else {}
    by_host = [peer for peer, (_, _, how) in turns.items() if how != "graph"]
    is_right = "litz" in times and error < CLOSE[of_type(result)]
    rows.add(name, is_right, error=error, MB=moved / 1e6, **found, **ratios, **rate, **({"not_captured": by_host} if by_host else {}), **missing)


def kernels(rows, options):
    torch.backends.cuda.matmul.allow_tf32 = False
    for dtype in (torch.bfloat16, torch.float32):
        short = {torch.bfloat16: "bf16", torch.float32: "f32"}[dtype]
        time_kernels(rows, {f"{name} {short}": kernel for name, kernel in gpu_kernels.kernel_table(dtype).items()})


def attention(rows, options):
    time_kernels(rows, gpu_kernels.attention_table())


def products(rows, options):
    time_kernels(rows, gpu_kernels.product_table())


def convolutions(rows, options):
    """Of channels-last images, beside eager mode's, which are cuDNN's best of those that it tries."""
    torch.backends.cudnn.benchmark = True
    time_kernels(rows, gpu_kernels.convolution_table())


def time_kernels(rows, table):
    for name, (function, make, flops) in table.items():
        if rows.kept(name):
            continue
        try:
            with torch.no_grad():
                time_kernel(rows, name, function, make, flops)
        except torch.cuda.OutOfMemoryError:
            rows.add(name, None, why="not enough memory")
        except RuntimeError as error:
            rows.add(name, False, why=f"{type(error).__name__}: {error}"[:300])
        torch.cuda.empty_cache()


def host_time(run, calls) -> float:
    """Microseconds of the host that a call takes which nobody waits for."""
    for _ in range(20):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        times.append(1e6 * (time.perf_counter() - start) / calls)
        torch.cuda.synchronize()
    return statistics.median(times)


def waited_time(run, calls=50) -> float:
    """Microseconds of a call with its end."""
    for _ in range(20):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(1e6 * (time.perf_counter() - start))
    return statistics.median(times)


GRAPHED = PEERS | {"inductor_graphs": lambda function: torch.compile(function, mode="reduce-overhead", dynamic=False)}


def launch(rows, options):
    weight = normal(64, 64, dtype=torch.float32) / 8

    def chain(x):
        for _ in range(100):
            x = torch.softmax(x @ weight, -1)
        return x

    x, tiny = normal(64, 64, dtype=torch.float32), normal(16, dtype=torch.float32)
    small = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64)).cuda().eval()
    with torch.no_grad():
        for name, function, given, per in (
            ("100 products and softmaxes, us each", chain, x, 100), ("a call of one kernel, us with its end", torch.sin, tiny, 1),
            ("a call of a small network, us with its end", small, x, 1),
        ):
            found = {}
            for peer, compile in GRAPHED.items():
                torch._dynamo.reset()
                try:
                    fast = compile(function)
                    found[peer] = waited_time(lambda: fast(given)) / per
                except Exception as error:
                    found[peer] = f"{type(error).__name__}: {error}"[:200]
            rows.add(name, None if isinstance(found["litz"], float) else False, **found)
        # A backend that computes nothing says what Dynamo's guards, AOTAutograd's wrappers and their calls take.
        made = torch.sin(tiny)
        nothing = aot_autograd(fw_compiler=lambda graph, inputs: make_boxed_func(lambda *values: [made]))
        for name, function, given in (("one kernel", torch.sin, tiny), ("a small network", small, x)):
            found = {"eager": host_time(lambda: function(given), 200)}
            for peer, backend in (("litz", "litz"), ("dynamo", nothing)):
                torch._dynamo.reset()
                fast = torch.compile(function, backend=backend)
                found[peer] = host_time(lambda: fast(given), 200)
                found[f"{peer}_end"] = waited_time(lambda: fast(given))
            rows.add(f"the host's part of a call of {name}, us", None, **found, own=found["litz"] - found["dynamo"])


def moved(value, dtype):
    value = value.cuda()
    return value.to(dtype) if value.is_floating_point() else value


def models(rows, options):
    # Convolutions of float32, too, are of float32 for all.
    torch.backends.cudnn.allow_tf32 = False
    for dtype in (torch.bfloat16, torch.float32):
        for name, make in model_table().items():
            if rows.kept(f"{name} {str(dtype).removeprefix('torch.')}"):
                continue
            torch.manual_seed(0)
            module, given = make()
            module, given = module.eval().cuda().to(dtype), tuple(moved(value, dtype) for value in given)
            found, is_right = {}, None
            with torch.no_grad():
                reference = module(*given).double()
                calls = {}
                for peer, compile in GRAPHED.items():
                    torch._dynamo.reset()
                    try:
                        start = time.perf_counter()
                        fast = compile(module)
                        result = fast(*given)
                        torch.cuda.synchronize()
                        found[f"{peer}_s"] = time.perf_counter() - start
                        if peer == "litz":
                            off = ((result.double() - reference).norm() / reference.norm()).item()
                            found["off"], is_right = off, off < (5e-2 if dtype == torch.bfloat16 else 1e-3)
                        calls[peer] = (lambda fast=fast: fast(*given))
                        waited_time(calls[peer], 3)
                    except Exception as error:
                        found[peer] = f"{type(error).__name__}: {error}"[:300]
                        is_right = False if peer == "litz" else is_right
                times = {peer: [] for peer in calls}
                for _ in range(10):
                    for peer, call in calls.items():
                        start = time.perf_counter()
                        call()
                        torch.cuda.synchronize()
                        times[peer].append(1e3 * (time.perf_counter() - start))
            found |= {f"{peer}_ms": statistics.median(of) for peer, of in times.items()}
            del found["eager_s"]
            rows.add(f"{name} {str(dtype).removeprefix('torch.')}", is_right, **found)
    for dtype in ("bfloat16", "float32"):
        of_type = [row for row in rows.rows if row["name"].endswith(f" {dtype}") and "litz_ms" in row]
        for peer in (peer for peer in GRAPHED if peer != "litz"):
            if of := [row[f"{peer}_ms"] / row["litz_ms"] for row in of_type if f"{peer}_ms" in row]:
                rows.add(f"times as fast as {peer}, {dtype}", None, geometric_mean=statistics.geometric_mean(of), models=len(of))


# Rounds of models that are replayed.
REPLAYS = 30


def captured(rows, options):
    """Whole models, a call of each a graph that PyTorch captures and replays: ours, eager mode's and Inductor's. The launches of ours and
    of Inductor's go to OUT/kernels_of_models.txt."""
    for name, (make, dtype) in gpu_models.captured_table().items():
        if not rows.kept(name):
            torch.manual_seed(0)
            with torch.device("cuda"):
                module, given = make()
            found, is_right, replays = replayed(module.eval().to(dtype), tuple(moved(value, dtype) for value in given))
            rows.add(name, is_right, **found)
            for peer in ("litz", "inductor"):
                if peer in replays:
                    tell_launches(f"{name}, {peer}", replays[peer], options)
            del replays
            torch.cuda.empty_cache()


def tell_launches(title, replay, options):
    """Adds the kernels of a graph to a file: microseconds that all their launches add and that one adds, and what is launched. Those that take most of
    the time come first."""
    try:
        launches = timeline(replay, options.work / "trace.json")
    except Exception as error:
        return print(f"no timeline of {title}: {type(error).__name__}: {error}"[:300], flush=True)
    total = lambda times: sum(adds for _, adds in times)
    lines = [f"== {title}: {sum(map(len, launches.values()))} launches, {sum(map(total, launches.values())):.1f} us"]
    for (name, grid, block, registers, shared), times in sorted(launches.items(), key=lambda item: -total(item[1])):
        each = statistics.median(adds for _, adds in times)
        lines.append(f"{total(times):8.1f} us {len(times):3} x {each:7.2f}  {grid} of {block}, {registers} registers, {shared} shared bytes  {name[:90]}")
    with open(options.out / "kernels_of_models.txt", "a") as file:
        file.write("\n".join(lines) + "\n")


def replayed(module, given):
    """Milliseconds of a model's calls as graphs, and how far our result is off; whether it is right; and the replays."""
    found, replays, results, is_right = {}, {}, {}, None
    with torch.no_grad():
        reference = module(*given).double()
        for peer, compile in PEERS.items():
            torch._dynamo.reset()
            try:
                fast, start = compile(module), time.perf_counter()
                for _ in range(3):
                    fast(*given)
                    torch.cuda.synchronize()
                    found.setdefault(f"{peer}_compile_s", time.perf_counter() - start)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    results[peer] = fast(*given)
                replays[peer] = graph.replay
            except Exception as error:
                torch.cuda.synchronize()
                found[peer] = f"{type(error).__name__}: {error}"[:300]
                is_right = False if peer == "litz" else is_right
        times = medians({peer: (replay, 1, "graph") for peer, replay in replays.items()}, REPLAYS)
        if "litz" in replays:
            off = ((results["litz"].double() - reference).norm() / reference.norm()).item()
            found["off"], is_right = off, off < 5e-2
    found |= {f"{peer}_ms": 1e-3 * value for peer, value in times.items()}
    found |= {f"/{peer}": times["litz"] / times[peer] for peer in ("eager", "inductor") if "litz" in times and peer in times}
    found.pop("eager_compile_s", None)
    return found, is_right, replays


def copied_rate() -> float:
    """Bytes that are read and written in a microsecond where a gigabyte is copied."""
    pair = torch.empty(2, 1 << 29, dtype=torch.uint8, device="cuda")
    copy = turn(lambda to_from: to_from[0].copy_(to_from[1]), [(pair,)])
    # A chip that had nothing to do is slow for some time.
    for _ in range(50):
        copy[0]()
    return nbytes(pair) / medians({"copy": copy})["copy"]


def token(rows, options):
    """One token of a decoder of 1.2 billion weights with a cache of 4096: its calls, and each of our kernels."""
    rate = copied_rate()
    torch.manual_seed(0)
    with torch.device("cuda"):
        module, given = gpu_models.token()
    module = module.eval().bfloat16()
    read = sum(map(nbytes, [*module.parameters(), *module.buffers()]))
    found, is_right, replays = replayed(module, given)
    rows.add("one token", is_right, **found, read_once_ms=1e-3 * read / rate, copy_GBps=1e-3 * rate)
    if "litz" not in replays:
        return
    moved_by = bytes_of_kernels(rows, module, given, options.work / "token.pt2")
    try:
        launches = timeline(replays["litz"], options.out / "token_trace.json")
    except Exception as error:
        rows.add("timeline", None, why=f"{type(error).__name__}: {error}"[:300])
        return
    for (name, grid, block, registers, shared), times in launches.items():
        us, adds = statistics.median(us for us, _ in times), statistics.median(adds for _, adds in times)
        # What is exported may have kernels of its own, so that names alone do not say that they are the same.
        bytes = moved_by.get((name, len(times)))
        of_copy = {"MB": 1e-6 * bytes, "of_copy": bytes / rate / adds} if bytes and adds > 0 else {}
        rows.add(
            f"kernel {name}", None, launches=len(times), blocks=grid, threads=block, registers=registers, shared=shared, us=us, adds_us=adds,
            all_us=sum(adds for _, adds in times), **of_copy,
        )


def bytes_of_kernels(rows, module, given, path) -> dict[tuple[str, int], float]:
    """Bytes that a launch of each kernel moves, by its name and how many launches it has, as `litz bench` has them of the exported model. Adds a row for
    each."""
    binary = ROOT / "bin/litz"
    binary.chmod(binary.stat().st_mode | 0o111)
    try:
        if not path.exists():
            with torch.no_grad():
                torch.export.save(torch.export.export(module, given), path)
        ran = subprocess.run([binary, "bench", path, "--device", "cuda", "--json", "--runs", "10"], capture_output=True, text=True, timeout=120)
        kernels = json.loads(ran.stdout)["kernels"]
    except Exception as error:
        rows.add("bytes", None, why=f"{type(error).__name__}: {error}"[:300])
        return {}
    for row in kernels:
        each = max(row["launches"], 1)
        rows.add(
            f"alone {row['kernel']}", None, launches=row["launches"], us=1e3 * row["ms"] / each, MB=1e-6 * row["bytes"] / each, of_copy=row["of_copy"],
            ops=" ".join(row["ops"])[:120],
        )
    return {(row["kernel"], int(row["launches"])): row["bytes"] / max(row["launches"], 1) for row in kernels}


def timeline(replay, path, replays=5) -> dict[tuple, list[tuple[float, float]]]:
    """Microseconds of each kernel of a graph by PyTorch's profiler, as its launches follow each other: from its beginning to its end, and from the end of
    the one in front to its own, which is what it adds where kernels start early. By name, blocks, threads, registers and shared bytes. The whole trace
    goes to a file."""
    from torch.profiler import ProfilerActivity, profile

    replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(replays):
            replay()
            torch.cuda.synchronize()
    found.export_chrome_trace(str(path))
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "kernel"]
    events.sort(key=lambda event: event["ts"])
    count = len(events) // replays
    if not count or len(events) % replays:
        raise RuntimeError(f"{len(events)} launches of kernels in {replays} replays")
    launches = {}
    for at in range(count):
        of = [events[at + count * turn] for turn in range(replays)]
        if len({event["name"] for event in of}) > 1:
            raise RuntimeError(f"launch {at} is another kernel in another replay")
        end = lambda event: event["ts"] + event["dur"]
        adds = [event["dur"] if at == 0 else end(event) - end(events[at - 1 + count * turn]) for turn, event in enumerate(of)]
        about = of[0]["args"]
        key = (
            of[0]["name"], "x".join(map(str, about["grid"])).removesuffix("x1x1"), "x".join(map(str, about["block"])).removesuffix("x1x1"),
            about.get("registers per thread"), about.get("shared memory"),
        )
        launches.setdefault(key, []).append((statistics.median(event["dur"] for event in of), statistics.median(adds)))
    return launches


def start(rows, options):
    binary = ROOT / "bin/litz"
    binary.chmod(binary.stat().st_mode | 0o111)
    llama = lambda: (gpu_models.Prompt().bfloat16(), (torch.randint(0, 128256, (1, 1024)),))
    for name, make in (model_table() | {"llama": llama}).items():
        if name in ("mobilenet-v3", "convnext-t") or rows.kept(name):
            continue
        torch.manual_seed(0)
        module, given = make()
        path = options.work / f"{name}.pt2"
        if not path.exists():
            with torch.no_grad():
                torch.export.save(torch.export.export(module.eval(), given), path)
        saved, cache = path.with_suffix(".litzc"), options.work / f"cache-{name}"
        found, is_right = {}, True
        # What takes part of a second is measured three times: the first run of a saved program reads its file from disk.
        for what, command, count in (
            ("cold", ["run", path], 1), ("cached", ["run", path], 3), ("save", ["compile", path, "-o", saved], 1), ("saved", ["run", saved], 3),
        ):
            environ, times = os.environ | {"LITZ_CACHE_DIR": str(cache)}, []
            for _ in range(count):
                begin = time.perf_counter()
                ran = subprocess.run([binary, *command, "--device", "cuda"], capture_output=True, text=True, env=environ)
                times.append(time.perf_counter() - begin)
                if ran.returncode != 0:
                    is_right, found[what] = False, (ran.stderr or ran.stdout).strip()[-300:]
            found[f"{what}_s"] = statistics.median(times)
        rows.add(name, is_right, **found)


def repeat(rows, options):
    """Calls of one function give equal bits."""
    with torch.no_grad():
        for dtype in (torch.bfloat16, torch.float32):
            for name, (function, make, _) in gpu_kernels.kernel_table(dtype).items():
                torch._dynamo.reset()
                given, fast = make(), torch.compile(function, backend="litz", dynamic=False)
                compare_calls(rows, f"{name} {str(dtype).removeprefix('torch.')}", lambda: fast(*given))
                torch.cuda.empty_cache()
            for name, make in model_table().items():
                torch._dynamo.reset()
                module, given = make()
                module, given = module.eval().cuda().to(dtype), tuple(moved(value, dtype) for value in given)
                fast = torch.compile(module, backend="litz", dynamic=False)
                compare_calls(rows, f"{name} {str(dtype).removeprefix('torch.')}", lambda: fast(*given))


def flat(result):
    return [leaf.contiguous().view(torch.uint8) if leaf.dim() else leaf.reshape(1).view(torch.uint8) for leaf in (result if isinstance(result, tuple) else (result,))]


def compare_calls(rows, name, call, count=100):
    try:
        first = flat(call())
        differs = sum(not all(map(torch.equal, first, flat(call()))) for _ in range(count - 1))
        rows.add(name, differs == 0, differ=differs, calls=count)
    except Exception as error:
        rows.add(name, False, why=f"{type(error).__name__}: {error}"[:300])


def used_bytes() -> int:
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def resident_bytes() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# Prints what the device has in use for a model and its calls, and what of the results' sum there is. Arguments: eager or litz, the model.
PEAK = """
import sys, torch, gpu_times
torch.manual_seed(0)
module, given = gpu_times.model_table()[sys.argv[2]]()
torch.empty(1, device="cuda")
before = gpu_times.used_bytes()
module, given = module.eval().cuda(), tuple(value.cuda() for value in given)
fast = gpu_times.PEERS[sys.argv[1]](module)
with torch.no_grad():
    for _ in range(5):
        total = fast(*given).double().sum().item()
print("found", gpu_times.used_bytes() - before, total)
"""


def peaks(peer, name, count=1):
    """What `PEAK` says in so many processes at once."""
    command = [sys.executable, "-c", PEAK, peer, name]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(count)]
    found = []
    for process in processes:
        text, _ = process.communicate()
        of = [line.split()[1:] for line in text.splitlines() if line.startswith("found ")]
        if not of:
            raise RuntimeError(text[-400:])
        found.append((int(of[0][0]), float(of[0][1])))
    return found


def memory(rows, options):
    for name in ("bert-base", "resnet50"):
        if name not in model_table():
            continue
        try:
            [(eager, _)], [(ours, total)] = peaks("eager", name), peaks("litz", name)
            rows.add(f"{name}, MB in use", None, litz=ours / 1e6, eager=eager / 1e6, ratio=ours / eager)
            both = peaks("litz", name, 2)
            rows.add(f"{name}, two processes", all(one[1] == total for one in both), sums=[one[1] for one in both], expected=total)
        except RuntimeError as error:
            rows.add(name, False, why=str(error))
    fast = torch.compile(lambda x: torch.softmax(x @ x.t(), -1).sum(0), backend="litz", dynamic=False)
    x = normal(256, 256, dtype=torch.float32)
    for _ in range(200):
        fast(x)
    before, resident = used_bytes(), resident_bytes()
    for _ in range(10000):
        fast(x)
    grown, grown_host = used_bytes() - before, resident_bytes() - resident
    rows.add("10,000 calls", grown <= 0 and grown_host < 4 << 20, grown_MB=grown / 1e6, grown_host_MB=grown_host / 1e6)
    expected, failed = fast(x).clone(), []

    def run():
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                given = x.clone()
                for _ in range(200):
                    if not torch.equal(fast(given), expected):
                        raise AssertionError("a result differs")
        except BaseException as error:
            failed.append(f"{type(error).__name__}: {error}"[:300])

    torch.cuda.synchronize()
    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows.add("8 threads, 200 calls each", not failed, why=failed[:2])
    out_of_memory(rows)


def out_of_memory(rows):
    """A call that asks for more than there is fails, and the next one is right."""
    function = lambda x, n: (x.expand(n, x.shape[0]).sin().cumsum(0).flip(0) * 2).cumsum(1).sum()
    fast = torch.compile(function, backend="litz", dynamic=True)
    x = torch.ones(1 << 20, device="cuda")
    free, _ = torch.cuda.mem_get_info()
    try:
        expected = fast(x, 4).item()
        try:
            fast(x, 2 * free // nbytes(x))
            rows.add("out of memory", None, why="nothing failed: all of it was fused")
            return
        except Exception as error:
            said = f"{type(error).__name__}: {error}"[:300]
        rows.add("out of memory", fast(x, 4).item() == expected, said=said)
    except Exception as error:
        rows.add("out of memory", False, why=f"{type(error).__name__}: {error}"[:300])
