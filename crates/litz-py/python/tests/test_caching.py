"""What AOTAutograd keeps of compiled graphs for other processes."""

import json
import os
import subprocess
import sys
from typing import NamedTuple

from checks import needs_litz

pytestmark = needs_litz

HEAD = """
import json
import sys

import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

import litz.dynamo
import untouched

untouched.install()
torch.manual_seed(0)


def both(f, make, **how):
    "Results and gradients of a function in eager mode, and twice compiled."
    options = how.pop("options", {}) | {"fallback": how.pop("fallback", "quiet")}
    fast = torch.compile(f, backend=litz.dynamo.backend, options=options, **how)
    return seen(f, make()), [seen(fast, make()) for _ in range(2)]


def seen(f, args):
    torch.manual_seed(1)
    results = f(*args)
    results = results if isinstance(results, tuple) else (results,)
    leaves = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
    roots = [x for x in results if x.requires_grad]
    if roots:
        sum(x.square().sum() for x in roots).backward(retain_graph=True)
        sum(x.square().sum() for x in roots).backward()
    return [*results, *(x.detach() for x in args if isinstance(x, torch.Tensor)), *(x.grad for x in leaves)]


def close(wanted, found):
    for one in found:
        for a, b in zip(one, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
            assert a.stride() == b.stride()


def now():
    found = counters["aot_autograd"]
    return [found["autograd_cache_hit"], found["autograd_cache_saved"], sum(litz.stats()["eager_graphs"].values())]


def say(name, before):
    print(json.dumps([name, *(b - a for a, b in zip(before, now()))]))
"""



class Found(NamedTuple):
    """What a program did."""

    # Entries that it took up, and that it wrote.
    hits: int
    saved: int
    # Graphs that PyTorch runs as a whole.
    left: int


def run(program, folder, *args) -> dict[str, Found]:
    """Runs a program in a process of its own; what each of its parts did, by the names that it says."""
    environment = os.environ | {
        "LITZ_CACHE_DIR": f"{folder}/litz",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    done = subprocess.run([sys.executable, "-c", HEAD + program, *args], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    # What cannot be kept is no reason to say anything.
    assert "cache" not in done.stderr.lower(), done.stderr[-3000:]
    said = map(json.loads, done.stdout.splitlines())
    return {name: Found(*numbers) for name, *numbers in said}


def part(name, text):
    """A program that does something, and says what came of it."""
    return f"before = now()\n{text}\nsay({name!r}, before)\n"


def of_all(programs):
    return "\ntorch.compiler.reset()\n".join(part(name, text) for name, text in programs.items())


PROGRAMS = {
    "inference": """
make = lambda: [torch.linspace(-1, 1, 24).view(4, 6), torch.linspace(-2, 2, 48).view(6, 8)]
close(*both(lambda x, w: F.layer_norm(x @ w, (8,)).softmax(-1), make))
""",
    "training": """
def f(x, w):
    hidden = (x @ w).relu()
    return F.gelu(hidden) * torch.tensor([2.0, -1.0, 0.5]), hidden.exp().sum()

make = lambda: [torch.linspace(-1, 1, 24).view(4, 6).requires_grad_(), torch.linspace(-2, 2, 18).view(6, 3).requires_grad_()]
close(*both(f, make))
""",
    "dynamic": """
make = lambda: [torch.linspace(0, 1, 5 * 7).view(5, 7).requires_grad_()]
f = lambda x: x.cumsum(0)[1:].sigmoid() * x.shape[0]
close(*both(f, make, dynamic=True))
fast = torch.compile(f, backend=litz.dynamo.backend, dynamic=True)
for size in (5, 3, 9, 2):
    x = torch.randn(size, 4)
    torch.testing.assert_close(fast(x), f(x))
""",
    "random": """
fast = torch.compile(lambda x: F.dropout(x, 0.5), backend=litz.dynamo.backend)
x = torch.ones(1000, requires_grad=True)
torch.manual_seed(3)
y = fast(x)
y.sum().backward()
assert torch.equal(x.grad, y) and 400 < int((y == 0).sum()) < 600
torch.manual_seed(3)
assert torch.equal(fast(x), y)
""",
    "mutation": """
def f(x, state):
    state.mul_(2).add_(x.sum(0))
    view = x.t()
    view[0].sigmoid_()
    return view, state[1:]

close(*both(f, lambda: [torch.randn(3, 4, generator=torch.Generator().manual_seed(2)), torch.ones(4)]))
""",
    "operators of PyTorch": "close(*both(lambda x: torch.linalg.slogdet(x)[1] + x.sum(), lambda: [torch.eye(5) * 3 + 1]))",
    "sizes that do not fit": """
def f(x):
    return x.view(-1, 2).sum(1)

fast = torch.compile(f, backend=litz.dynamo.backend, dynamic=True)
for size in (4, 8, 6):
    x = torch.randn(size)
    torch.testing.assert_close(fast(x), f(x))
""",
    "tangents": """
import torch.autograd.forward_ad as forward_ad

f = lambda x: x.sin() * 2
fast = torch.compile(f, backend=litz.dynamo.backend)
x, t = torch.randn(5), torch.randn(5)
fast(x)
torch.compiler.reset()
fast = torch.compile(f, backend=litz.dynamo.backend)
torch.testing.assert_close(fast(x), f(x))
# A graph that was taken up is run by PyTorch where a call has tangents.
(run,) = [one for one in __import__("gc").get_objects() if type(one) is litz.function.Function and hasattr(one, "compiled")][-1:]
with forward_ad.dual_level():
    (found,) = run([forward_ad.make_dual(x, t)])
    wanted = f(forward_ad.make_dual(x, t))
    for one, other in zip(forward_ad.unpack_dual(found), forward_ad.unpack_dual(wanted)):
        torch.testing.assert_close(one, other)
""",
}


def test_a_second_process_takes_up_what_the_first_has_made(tmp_path):
    for found in run(of_all(PROGRAMS), tmp_path).values():
        assert found.saved > 0
    for name, found in run(of_all(PROGRAMS), tmp_path).items():
        assert (found.hits > 0, found.saved, found.left) == (True, 0, 0), name


NOT_KEPT = {
    "control": """
def f(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x * 2, (x,))

close(*both(f, lambda: [torch.ones(3)]))
close(*both(f, lambda: [-torch.ones(3)]))
""",
    "operators of others": """
@torch.library.custom_op("litz_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * float(sys.argv[1])

scaled.register_fake(torch.empty_like)
scaled.register_autograd(lambda context, gradient: gradient * float(sys.argv[1]))
close(*both(lambda x: scaled(x) + 1, lambda: [torch.ones(3, requires_grad=True)]))
""",
    "frozen parameters that share memory": """
layer = torch.nn.Linear(3, 3)
layer.bias = torch.nn.Parameter(layer.weight.detach()[0])
x = torch.randn(2, 3)
with torch.no_grad():
    fast = torch.compile(layer, backend=litz.dynamo.backend, options={"freeze": True})
    torch.testing.assert_close(fast(x), layer(x))
""",
    "no cache": """
close(*both(lambda x: x * float(sys.argv[1]), lambda: [torch.ones(3)], options={"cache": None}))
""",
    "arguments that share memory": """
def f(x, y):
    x.mul_(2)
    return y + x

shift = int(sys.argv[1])
close(*both(f, lambda: (memory := torch.arange(8.0), [memory[:4], memory[shift : shift + 4]])[1]))
""",
    "graphs that PyTorch runs": """
close(*both(lambda x: x.to_sparse().to_dense() * 2, lambda: [torch.eye(3)]))
""",
}


def test_what_another_process_may_not_take_up(tmp_path):
    for scale in ("2", "3"):
        for name, found in run(of_all(NOT_KEPT), tmp_path, scale).items():
            assert (found.hits, found.saved) == (0, 0), name


FROZEN = """
class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.norm = torch.nn.Linear(64, 512), torch.nn.BatchNorm1d(512)
        self.scale = torch.tensor([2.0, -1.0])

    def forward(self, x):
        return self.norm(self.wide(x)).relu()[:, :2] * self.scale * torch.tensor([3.0, 0.5])

model = Layers().eval()
for name, value in [*model.named_parameters(), *model.named_buffers()]:
    if name == sys.argv[1]:
        value.data.view(-1)[-1] += 1 + value.data.view(-1)[-1].abs()
x = torch.randn(5, 64)
with torch.no_grad():
    fast = torch.compile(model, backend=litz.dynamo.backend, options={"freeze": True, "fallback": "error"})
    for _ in range(2):
        torch.testing.assert_close(fast(x), model(x))
"""


def test_frozen_parameters_have_entries_by_what_they_hold(tmp_path):
    program = part("frozen", FROZEN)
    # One element of a parameter, or of a buffer, makes another model; a name that none has makes the same one.
    for changed, expected in (("", 0), ("", 1), ("wide.bias", 0), ("norm.running_var", 0), ("nothing", 1), ("wide.bias", 1)):
        found = run(program, tmp_path, changed)["frozen"]
        assert (found.hits, found.saved, found.left) == (expected, 1 - expected, 0), changed
    # Parameters are not in the entries: the process that takes one up has them.
    entries = [path for path in (tmp_path / "inductor" / "aotautograd").rglob("*") if path.is_file()]
    assert len(entries) == 3 and all(entry.stat().st_size < 64 * 512 * 4 for entry in entries)


def test_options_have_entries_of_their_own(tmp_path):
    program = """
x = torch.linspace(-1, 1, 8)
f = lambda x: x.sin().sum()
fast = torch.compile(f, backend=litz.dynamo.backend, options={"random": sys.argv[1]})
torch.testing.assert_close(fast(x), f(x))
"""
    for kind, expected in (("philox", 0), ("eager", 0), ("philox", 1)):
        assert run(part(kind, program), tmp_path, kind)[kind].hits == expected, kind


def test_entries_travel(tmp_path):
    """By `torch.compiler.save_cache_artifacts`, to folders of other names and a cache of Litz that has nothing."""
    program = """
import pathlib

taken = pathlib.Path(sys.argv[1]) / "artifacts"
if taken.exists():
    torch.compiler.load_cache_artifacts(taken.read_bytes())
options = {"dump": sys.argv[2], "launch_together": 4, "memory_growth": 16}
options = dict(reversed(options.items())) if taken.exists() else options
make = lambda: [torch.linspace(-1, 1, 24).view(4, 6).requires_grad_()]
close(*both(lambda x: x.cumsum(0).sigmoid(), make, options=options))
if not taken.exists():
    taken.write_bytes(torch.compiler.save_cache_artifacts()[0])
"""
    for name, expected in (("first", 0), ("second", 1)):
        folder = tmp_path / name
        folder.mkdir()
        texts = folder / name
        found = run(part("travel", program), folder, str(tmp_path), str(texts))["travel"]
        assert (found.hits, found.saved) == (expected, 1 - expected), name
        # Each process writes to a folder of its own.
        assert any(texts.rglob("*.litz"))


def test_an_unsupported_backward_graph_is_an_error_of_backward(tmp_path):
    program = """
class Half(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        return torch.histogramdd(gradient.view(4, 1), [2]).hist.sum() * gradient

fast = torch.compile(lambda x: Half.apply(x) + 1, backend=litz.dynamo.backend, options={"fallback": "error"})
x = torch.rand(4, requires_grad=True)
y = fast(x)
torch.testing.assert_close(y, x * 2 + 1)
for _ in range(2):
    try:
        y.sum().backward(retain_graph=True)
        raise AssertionError("no error")
    except litz.UnsupportedError as error:
        assert "histogramdd" in str(error), error
"""
    assert run(part("half", program), tmp_path)["half"].saved == 0


def test_an_entry_that_is_damaged_is_compiled_anew(tmp_path):
    program = part("sine", "close(*both(lambda x: x.sin() * 3, lambda: [torch.linspace(0, 1, 7, requires_grad=True)]))")
    assert run(program, tmp_path)["sine"].saved == 1
    (entry,) = [path for path in (tmp_path / "inductor" / "aotautograd").rglob("*") if path.is_file()]
    content = entry.read_bytes()
    entry.write_bytes(content.replace(b"aten.sin.default", b"aten.sinful.what"))
    assert content != entry.read_bytes()
    assert run(program, tmp_path)["sine"].hits == 0


def test_views_that_are_made_wrongly_are_found_in_every_process(tmp_path):
    """What AOTAutograd keeps of such a graph would be taken for right."""
    program = """
fast = torch.compile(lambda x, n: (x.expand(n, 4).view(torch.int64), x + 1), backend=litz.dynamo.backend, dynamic=True, options={"fallback": "quiet"})
for n in (3, 5):
    x = torch.rand(1, 4)
    assert torch.equal(fast(x, n)[0], x.expand(n, 4).view(torch.int64))
assert [*litz.stats()["eager_graphs"]] == ["a view of an argument as a type of another size"]
"""
    for _ in range(2):
        assert run(part("view", program), tmp_path)["view"].saved == 0
