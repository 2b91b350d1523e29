"""Checks and times Litz on a machine with an NVIDIA GPU, in one command:

    python benches/gpu_check.py OUT [--only files,cases,..] [--work DIR] [--limit SECTION=SECONDS ..] [--processes N] [--models FILE]

It runs in the bundle that `cargo xtask gpu-bundle` packs, which has all that it needs but Python and PyTorch. Each section is a process of its own with
a time limit; what it has found by then counts. Sections:
  files      file tests that run programs, on the reference device, the CPU and the GPU
  cases      recorded calls of operators
  opinfo     PyTorch's own operator tests through torch.compile with tensors on the GPU, for five element types
  corpus     models of a file that defines them (--models) through torch.compile, in float32
  random     random programs through torch.compile with tensors on the GPU
  repeat     100 calls of functions and models give equal bits
  sanitizer  file tests under compute-sanitizer: memcheck, racecheck, synccheck
  kernels    memory-bound kernels and products against eager mode, Inductor and a copy of the same bytes
  attention  attention against eager mode and Inductor
  products   products of models and others against eager mode, which is cuBLAS, and Inductor
  convolutions  convolutions of ResNet-50 against eager mode, which is cuDNN, and Inductor
  captured   whole models, most in bfloat16, each call one graph that PyTorch captures, against eager mode's and Inductor's
  token      one token of a decoder of 1.2 billion weights, captured, with each kernel's launch, time and bytes beside the rate of a copy
  launch     the time that a small kernel takes, and a call
  start      from a file to the first output: cold, with the cache, of a saved program
  models     whole models against eager mode and Inductor, with and without graphs
  large      models of a file that defines them (--models) in bfloat16, captured, against eager mode and Inductor
  memory     peaks against eager mode, growth, several processes and threads
  gpus       two GPUs in one process, where there are two
  capture    compiled calls captured one behind another, of which the first makes what the second loads early
  hosted     operators that PyTorch runs on the GPU in compiled graphs, called and captured, against eager mode

`--only measured` stands for the sections that have the figures of docs/gpu.md: kernels, attention, launch, captured, token, start.

What is found goes to OUT/gpu_check.json, and as a table to OUT/table.txt. Sections that are complete there do not run again, and of kernels, attention,
captured, start and models no row that is there. Nor do operators, and file tests that a tool of compute-sanitizer has been through, that have a file
in the folder of work, which is one for temporary files unless --work names another. Exit status 1 where a section has found something wrong.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BENCHES, TESTS = ROOT / "benches", ROOT / "crates/litz-py/python/tests"

# Sections in order, and the seconds that each may take.
LIMITS = {
    "files": 240, "cases": 400, "kernels": 300, "attention": 120, "products": 300, "convolutions": 120, "launch": 60, "captured": 300, "token": 240, "start": 180, "models": 300,
    "repeat": 300, "memory": 240, "gpus": 120, "capture": 120, "hosted": 120, "random": 300, "opinfo": 560, "corpus": 400, "large": 560, "sanitizer": 300,
}
# Those that have the figures of docs/gpu.md.
MEASURED = ("kernels", "attention", "launch", "captured", "token", "start")
DTYPES = ("float32", "bfloat16", "float16", "int64", "bool")
RANDOM_PROGRAMS = 2000


class Rows:
    """What a section has found so far, in a file."""

    def __init__(self, path: pathlib.Path):
        earlier = json.loads(path.read_text()) if path.exists() else {"rows": []}
        self.path, self.rows = path, []
        # What an earlier run that did not get to its end has found right.
        self.earlier = {row["name"]: row for row in earlier["rows"] if row["right"] is not False}
        self.save(False)

    def kept(self, name: str) -> bool:
        """Whether an earlier run has found this row, which is one of this run then."""
        if name not in self.earlier:
            return False
        self.rows.append(self.earlier[name])
        self.save(False)
        return True

    def add(self, name: str, is_right: bool | None, **found):
        """Adds a row. `is_right` is none where there is nothing to be right about."""
        self.rows.append({"name": name, "right": is_right, **found})
        self.save(False)
        print(line(self.rows[-1]), flush=True)

    def save(self, is_complete: bool):
        unfinished = self.path.with_suffix(".tmp")
        unfinished.write_text(json.dumps({"complete": is_complete, "rows": self.rows}, indent=1))
        unfinished.replace(self.path)


def line(row: dict) -> str:
    """A row of the table."""
    verdict = {True: "right", False: "WRONG", None: ""}[row["right"]]
    shown = lambda value: f"{value:.3g}" if isinstance(value, float) else str(value)
    found = "  ".join(f"{name} {shown(value)}" for name, value in row.items() if name not in ("name", "right"))
    return f"  {row['name']:34} {verdict:5}  {found}".rstrip()


def environment() -> dict:
    """The environment of what runs: the package, its files, and nvJitLink where CUDA or PyTorch has it."""
    folders = ["/usr/local/cuda/lib64", "/usr/local/cuda-13.0/targets/x86_64-linux/lib"]
    folders += [str(path.parent) for base in sys.path if base for path in pathlib.Path(base).glob("nvidia/*/lib/libnvJitLink.so.*")]
    given = os.environ.get("LD_LIBRARY_PATH", "")
    paths = [ROOT / "crates/litz-py/python", TESTS, BENCHES]
    return os.environ | {
        "LD_LIBRARY_PATH": ":".join([*folders, *([given] if given else [])]),
        "PYTHONPATH": ":".join(map(str, paths)),
        "LITZ_REPOSITORY": str(ROOT),
        "LITZ_CACHE_DIR": "",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def python(script: pathlib.Path, *args) -> list[str]:
    return [sys.executable, str(script), *map(str, args)]


def lines_of(command: list[str], **environ):
    """The lines that a command prints, its errors among them, and in the end its exit status."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    for text in process.stdout:
        yield text.rstrip("\n")
    yield process.wait()


def binary(name: str) -> str:
    path = ROOT / "bin" / name
    path.chmod(path.stat().st_mode | 0o111)
    return str(path)


# Seconds without a line after which a binary of tests has hung, and those that one test alone may take.
STALL, ALONE = 180, 180


class Group:
    """A process that runs some tests of a binary of Rust's, and what it has said."""

    def __init__(self, path: str, tests: list[str], every: list[str], log: pathlib.Path):
        self.tests, self.log, self.passed, self.failed = tests, log, set(), {}
        # A binary takes one filter, but any number of tests to skip.
        skipped = [word for test in every if test not in tests for word in ("--skip", test)]
        with open(log, "w") as out:
            self.process = subprocess.Popen(
                [path, "--exact", *skipped], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait(self, limit: float):
        """Waits for it, and ends it where it says nothing for `limit` seconds."""
        size, since = 0, time.monotonic()
        while self.process.poll() is None:
            time.sleep(0.05)
            now = self.log.stat().st_size
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > limit:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        of, why = None, {}
        for text in self.log.read_text(errors="replace").splitlines():
            if match := re.match(r"test (.*?) +\.\.\. (ok|FAILED)$", text):
                if match[2] == "ok":
                    self.passed.add(match[1])
                else:
                    self.failed[match[1]] = ""
            elif match := re.match(r"---- (.*?)(?: stdout)? ----$", text):
                of = match[1]
            elif text.startswith("failures:"):
                of = None
            elif of is not None and text.strip():
                why.setdefault(of, []).append(text)
        self.failed = {test: " | ".join(why.get(test, [])[:8])[:1500] for test in self.failed}

    def left(self) -> list[str]:
        return [test for test in self.tests if test not in self.passed and test not in self.failed]


def tests_of(path: str) -> list[str]:
    """The names of a binary's tests."""
    listed = subprocess.run([path, "--list"], cwd=ROOT, capture_output=True, text=True).stdout
    return [text.removesuffix(": test") for text in listed.splitlines() if text.endswith(": test")]


def run_tests(rows: Rows, options, name: str, path: str, start: str = ""):
    """Runs those of a binary of Rust's tests that start so, in as many processes as `options` say. Where one hangs or dies, what it has left runs again,
    each test alone: a kernel that never ends is a failed test, and takes no other with it."""
    every = tests_of(path)
    tests = [test for test in every if test.startswith(start) and "acts removed" not in test]
    folder, count = options.work / "tests", options.processes
    folder.mkdir(parents=True, exist_ok=True)
    passed, failed = set(), {}

    def run(parts: list[list[str]], kind: str, limit: float) -> list[Group]:
        groups = [Group(path, part, every, folder / f"{name}-{kind}-{at}.log") for at, part in enumerate(parts) if part]
        threads = [threading.Thread(target=group.wait, args=(limit,)) for group in groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for group in groups:
            passed.update(group.passed)
            failed.update(group.failed)
        return groups

    groups = run([tests[at::count] for at in range(count)], "all", STALL)
    left = [test for group in groups for test in group.left()]
    for at in range(0, len(left), count):
        for group in run([[test] for test in left[at : at + count]], f"alone-{at}", ALONE):
            for test in group.left():
                said = group.log.read_text(errors="replace")[-600:]
                failed[test] = f"it hung or died, with status {group.process.returncode}: {said}"
    rows.add(name, bool(tests) and not failed, passed=len(passed), failed=len(failed))
    for test, why in failed.items():
        rows.add(f"{name}: {test}", False, why=why)


def files(rows, options):
    for folder in ("run", "issues"):
        run_tests(rows, options, folder, binary("filetests"), f"{folder}/")


def cases(rows, options):
    run_tests(rows, options, "cases", binary("cases"))


def side_by_side(commands: list[list[str]], logs: pathlib.Path) -> list[int]:
    """Runs commands at once, each with a log of its own."""
    logs.mkdir(parents=True, exist_ok=True)
    processes = []
    for number, command in enumerate(commands):
        with open(logs / f"{number}.log", "w") as log:
            processes.append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT))
    return [process.wait() for process in processes]


def opinfo(rows, options) -> bool:
    script, share = BENCHES / "compile_opinfo.py", 0.95 * options.seconds / len(DTYPES)
    is_complete = True
    for dtype in DTYPES:
        out = options.work / "opinfo" / dtype
        start, count = time.monotonic(), options.processes
        shards = [python(script, out, "--device", "cuda", "--dtype", dtype, "--shard", f"{shard}/{count}") for shard in range(count)]
        # A shard that dies of an operator goes on behind it.
        for attempt in range(4):
            left, begun = share - (time.monotonic() - start), time.time()
            timed = [["timeout", str(max(int(left), 1)), *shard] for shard in shards]
            codes = side_by_side(timed, options.work / "opinfo" / f"logs-{dtype}-{attempt}")
            if all(code in (0, 124) for code in codes) or left <= 0:
                break
        is_complete &= 124 not in codes
        for path in out.glob("*.json"):
            # The operator that ran when the time was over has not died.
            if 124 in codes and path.stat().st_mtime >= begun and "the process died" in path.read_text():
                path.unlink()
        report = [text for text in lines_of(python(script, out, "--report")) if isinstance(text, str)]
        wrong = [text for text in report if re.match(r"(wrong|left|error) ", text)]
        total = next((text for text in report if text.startswith(f"{dtype}: ")), "nothing has run")
        rows.add(dtype, not wrong, complete=124 not in codes, found=total.split(": ", 1)[-1], seconds=time.monotonic() - start)
        for text in wrong:
            rows.add(f"{dtype}: {text.split()[1]}", False, why=text[:400])
    return is_complete


def corpus(rows, options) -> bool:
    """Runs the models of a file on the GPU. One that has run is not run again."""
    if options.models is None:
        rows.add("models", None, why="no file of models is given (--models)")
        return True
    script, out, count = BENCHES / "compile_models.py", options.work / "corpus", options.processes
    command = python(script, out, "--models", options.models, "--device", "cuda")
    end, begun = time.monotonic() + 0.95 * options.seconds, time.time()
    for attempt in range(4):
        left = end - time.monotonic()
        if left <= 0:
            break
        shards = [["timeout", str(int(left) + 1), *command, "--shard", f"{shard}/{count}"] for shard in range(count)]
        codes = side_by_side(shards, options.work / f"logs-corpus-{attempt}")
        # A shard that dies of a model goes on behind it.
        if all(code in (0, 1, 124) for code in codes):
            break
    is_complete, counts = 124 not in codes, {}
    for number, code in enumerate(codes):
        if code not in (0, 1, 124):
            said = (options.work / f"logs-corpus-{attempt}" / f"{number}.log").read_text(errors="replace")
            rows.add(f"process {number}", False, code=code, why=said[-600:])
    for path in sorted(out.glob("*.json")):
        found = json.loads(path.read_text())
        # The model that ran when the time was over has not died.
        if not is_complete and path.stat().st_mtime >= begun and found.get("why") == "the process died":
            path.unlink()
            continue
        counts[found["verdict"]] = counts.get(found["verdict"], 0) + 1
        if found["verdict"] != "pass":
            rows.add(path.stem, None if found["verdict"] == "excluded" else False, why=str(found.get("why", found))[:400])
    rows.add("models", None if counts else False, **counts)
    return is_complete


def random(rows, options):
    script, count = TESTS / "random_programs.py", options.processes
    seed, each = 1000 * (int(time.time()) % 1000000), -(-RANDOM_PROGRAMS // count)
    settings = ["--device", "cuda", "--count", each, "--seconds", int(options.seconds * 0.8)]
    commands = [python(script, "--seed", seed + 10 * each * number, *settings) for number in range(count)]
    logs = options.work / "random"
    codes = side_by_side(commands, logs)
    totals = {"right": 0, "excluded": 0, "failed": 0}
    for number, code in enumerate(codes):
        text = (logs / f"{number}.log").read_text(errors="replace")
        found = re.findall(r"^(\d+ \w+(?:, \d+ \w+)*)$", text, re.M)
        if found:
            for amount, what in re.findall(r"(\d+) (right|excluded|failed)", found[-1]):
                totals[what] += int(amount)
        else:
            rows.add(f"process {number}", False, code=code, why=text[-600:])
        for program in re.findall(r"\n# (--seed .*?)(?=\n# --seed |\n\d+ \w+|\Z)", text, re.S):
            rows.add("program", False, why=program[:1500])
    rows.add("programs", totals["failed"] == 0, seed=seed, passed=totals["right"], excluded=totals["excluded"], failed=totals["failed"])


# Tools of compute-sanitizer, and the seconds that one of them may take for a file: loading CUDA and the kernels takes about five.
TOOLS, FILE_LIMIT = ("memcheck", "racecheck", "synccheck"), 90


def sanitizer(rows, options) -> bool:
    """Runs each file test of GPUs under each tool, in a process of its own, so that what is found has the names of a file, a kernel and a tool.
    What has ended once, its log is in the folder of work, and it does not run again."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not pathlib.Path(tool).exists():
        rows.add("compute-sanitizer", None, why="this machine does not have it")
        return True
    path, end = binary("filetests"), time.monotonic() + 0.95 * options.seconds
    tests = [test for test in tests_of(path) if test.startswith("run/gpu/") and "acts removed" not in test]

    def run(job: tuple[str, str]) -> tuple[str, str, str | None]:
        kind, test = job
        log, left = options.work / "sanitizer" / kind / f"{test.replace('/', '-')}.log", int(end - time.monotonic())
        if not log.exists():
            if left <= 0:
                return kind, test, None
            limit = min(left, FILE_LIMIT)
            command = ["timeout", str(limit), tool, "--tool", kind, "--print-limit", "20", path, test, "--exact", "--test-threads", "1"]
            said = list(lines_of(command))
            code = said.pop()
            if code == 124 and limit < FILE_LIMIT:
                return kind, test, None
            log.parent.mkdir(parents=True, exist_ok=True)
            unfinished = log.with_suffix(".tmp")
            unfinished.write_text("\n".join([*said, f"status {code}"]))
            unfinished.replace(log)
        return kind, test, log.read_text()

    jobs, passed, left = [(kind, test) for kind in TOOLS for test in tests], dict.fromkeys(TOOLS, 0), dict.fromkeys(TOOLS, 0)
    with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
        for kind, test, said in pool.map(run, jobs):
            if said is None:
                left[kind] += 1
            elif why := sanitized(said):
                rows.add(f"{kind}: {test}", False, **why)
            else:
                passed[kind] += 1
    for kind in TOOLS:
        rows.add(kind, None, passed=passed[kind], failed=len(tests) - passed[kind] - left[kind], left=left[kind])
    return not any(left.values())


def sanitized(said: str) -> dict:
    """What a tool has found in a file, by its log: kernels, and its own words. Empty where that is nothing."""
    tool = [text.strip("= ") for text in said.splitlines() if text.startswith("=====")]
    summary = [text for text in tool if "SUMMARY" in text]
    is_right = [re.search(r"SUMMARY: 0 (?:errors|hazards)", text) is not None for text in summary]
    if all(is_right) and is_right and re.search(r"^test result: ok\. 1 passed", said, re.M):
        return {}
    found = [text for text in tool if re.search(r"Invalid|Race|Barrier|hazard|Error|rror:|\+0x", text) and text not in summary]
    kernels = sorted(set(re.findall(r"\b(\w+)(?:\([^)]*\))?\+0x", "\n".join(tool))))
    rest = [text for text in said.splitlines() if not text.startswith("=====") and text.strip()]
    return {"kernels": " ".join(kernels), "said": " | ".join(found[:12] + summary)[:1500], "test": " | ".join(rest[-4:])[:400]}


def timed(name):
    """A section of `gpu_times.py`."""

    def run(rows, options):
        import gpu_times

        getattr(gpu_times, name)(rows, options)

    return run


def gpus(rows, options):
    lines_of_checks(rows, BENCHES / "two_gpus.py")


def capture(rows, options):
    lines_of_checks(rows, BENCHES / "captured_calls.py")


def hosted(rows, options):
    lines_of_checks(rows, BENCHES / "hosted_calls.py")


def lines_of_checks(rows, script: pathlib.Path):
    """Runs a script that prints a line for each of its checks. Exit status 2: there is nothing here that it could check."""
    found = list(lines_of(python(script)))
    code = found.pop()
    if code == 2:
        rows.add(script.stem, None, why=found[-1] if found else "")
        return
    for text in found:
        if match := re.match(r"(\w+) +(right|WRONG)(.*)", text):
            rows.add(match[1], match[2] == "right", **({"why": match[3].strip()[:800]} if match[3] else {}))
    if code not in (0, 1):
        rows.add(script.stem, False, code=code, why=" | ".join(found[-8:])[:1500])


def large(rows, options) -> bool:
    """Times the models of the section `corpus`. What has a file in the folder of work does not run again."""
    if options.models is None:
        rows.add("models", None, why="no file of models is given (--models)")
        return True
    script, out, count = BENCHES / "gpu_large.py", options.work / "large", options.processes
    left = str(int(0.95 * options.seconds))
    shards = [["timeout", left, *python(script, out, "--models", options.models, "--shard", f"{shard}/{count}")] for shard in range(count)]
    codes = side_by_side(shards, options.work / "logs-large")
    for text in lines_of(python(script, out, "--report")):
        if isinstance(text, str):
            rows.add(text[:400], None)
    return 124 not in codes


SECTIONS = {
    "files": files, "cases": cases, "opinfo": opinfo, "corpus": corpus, "large": large, "random": random, "sanitizer": sanitizer, "gpus": gpus, "capture": capture, "hosted": hosted,
    **{name: timed(name) for name in (*MEASURED, "products", "convolutions", "models", "repeat", "memory")},
}


def run_section(name: str, options) -> None:
    """Runs a section in a process of its own, and ends it and all that it started when its time is over."""
    limit = options.limits[name]
    command = python(pathlib.Path(__file__).resolve(), options.out, "--section", name, "--work", options.work, "--seconds", limit)
    command += ["--processes", options.processes, *(["--models", options.models] if options.models else [])]
    process = subprocess.Popen([*map(str, command)], env=environment(), start_new_session=True)
    try:
        code = process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    if code != 0:
        path = options.sections / f"{name}.json"
        found = json.loads(path.read_text()) if path.exists() else {"complete": False, "rows": []}
        why = f"its time of {limit} s is over" if code is None else f"it ended with status {code}"
        found["rows"].append({"name": name, "right": None if code is None else False, "why": why})
        path.write_text(json.dumps(found, indent=1))


def tell(options) -> tuple[str, bool]:
    """Writes all that is known; gives the table, and whether nothing of it is wrong."""
    paths = {name: options.sections / f"{name}.json" for name in LIMITS}
    known = {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}
    (options.out / "gpu_check.json").write_text(json.dumps(known, indent=1))
    text, is_right = table(known)
    (options.out / "table.txt").write_text(text)
    return text, is_right


def table(known) -> tuple[str, bool]:
    text, is_right = [], True
    for name, found in known.items():
        wrong = sum(row["right"] is False for row in found["rows"])
        is_right &= not wrong
        text.append(f"{name}{'' if found['complete'] else ' (not complete)'}{f': {wrong} WRONG' if wrong else ''}")
        text += [line(row) for row in found["rows"]]
    return "\n".join(text) + "\n", is_right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder for what is found")
    parser.add_argument("--only", help="sections to run, with commas (default: all)")
    parser.add_argument("--work", type=pathlib.Path, help="folder for files of work")
    parser.add_argument("--limit", action="append", default=[], metavar="SECTION=SECONDS", help="the time that a section may take")
    parser.add_argument("--models", type=pathlib.Path, help="file of the models of the section corpus, as compile_models.py takes it")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="processes of corpus, opinfo, random and sanitizer")
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.models = options.models and options.models.resolve()
    options.work = (options.work or pathlib.Path(tempfile.gettempdir()) / "gpu_check").resolve()
    options.sections = options.work / "sections"
    for folder in (options.out, options.work, options.sections):
        folder.mkdir(parents=True, exist_ok=True)
    if options.section:
        rows = Rows(options.sections / f"{options.section}.json")
        # One that has more to do says so.
        rows.save(SECTIONS[options.section](rows, options) is not False)
        return 0
    options.limits = dict(LIMITS)
    for given in options.limit:
        name, _, seconds = given.partition("=")
        if name not in LIMITS or not seconds.isdigit():
            parser.error(f"--limit: expected one of {', '.join(LIMITS)} and seconds, found {given}")
        options.limits[name] = int(seconds)
    asked = options.only.split(",") if options.only else list(LIMITS)
    chosen = [name for group in asked for name in (MEASURED if group == "measured" else (group,))]
    for name in chosen:
        if name not in SECTIONS:
            parser.error(f"--only: expected some of {', '.join(LIMITS)}, found {name}")
    known = options.out / "gpu_check.json"
    for name, found in (json.loads(known.read_text()) if known.exists() else {}).items():
        path = options.sections / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(found))
    for name in chosen:
        path = options.sections / f"{name}.json"
        if path.exists() and json.loads(path.read_text())["complete"]:
            continue
        start = time.monotonic()
        print(f"== {name}", flush=True)
        run_section(name, options)
        print(f"== {name}: {time.monotonic() - start:.0f} s", flush=True)
        tell(options)
    text, is_right = tell(options)
    print(text)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
