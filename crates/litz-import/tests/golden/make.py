"""Writes the golden archives: `cd tests/golden && python make.py` writes `<torch minor>/<name>.pt2`.

Each program is a few KB and shows one trait of the format. Paths of the machine are cut out of stack traces,
so that two runs of one torch version give the same bytes.
"""
import collections
import os
import warnings

import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.export import Dim, export
from torch.export.pt2_archive._package import package_pt2

warnings.filterwarnings("ignore")
VERSION = ".".join(torch.__version__.split(".")[:2])
SITE = os.path.dirname(os.path.dirname(torch.__file__)) + os.sep
Point = collections.namedtuple("Point", ["x", "y"])
pytree._register_namedtuple(Point, serialized_type_name="golden.Point")


class Mlp(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.fc1 = nn.Linear(8, 4, dtype=dtype)
        self.fc2 = nn.Linear(4, 2, dtype=dtype)

    def forward(self, x):
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class ConvBn(nn.Module):
    """In training mode: `add_` on num_batches_tracked and an in-place relu stay in the graph."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.bn = nn.BatchNorm2d(2)

    def forward(self, x):
        return torch.relu_(self.bn(self.conv(x)))


class Dynamic(nn.Module):
    """Derived sizes, symbolic nodes, a scalar symbolic input and a guard."""

    def forward(self, x, y, n: int):
        a = torch.cat([x, x]) + y
        b = torch.arange(x.shape[0] * 3 + n)
        return a.reshape(-1), b, x.shape[0] // 2


class Specialised(nn.Module):
    """The size is silently fixed; only guards_code says so."""

    def forward(self, x):
        return x.sum() + torch.zeros(int(x.shape[0] * 1.5))


class Scaled(nn.Module):
    """Two of them are equal but for their weights."""

    def __init__(self, scale):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(4.0) * scale)

    def forward(self, x):
        return x * self.weight


class SharedState(nn.Module):
    """Two buffers of one storage: what is written to the one, the other shows."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.arange(4.0))
        self.register_buffer("table", self.count.view(2, 2))

    def forward(self, x):
        self.count.add_(x)
        return self.table * 2


class Views(nn.Module):
    """Tied weights, a transposed buffer, a slice with an offset, an expanded buffer, a non-persistent one."""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4, bias=False)
        self.tied = self.l.weight
        base = torch.arange(24.0)
        self.register_buffer("t", base.view(4, 6).t())
        self.register_buffer("tail", base[5:21:4])
        self.register_buffer("wide", torch.full((1,), 7.0).expand(1000))
        self.register_buffer("scratch", torch.ones(3), persistent=False)
        self.k = torch.tensor([1, 2, 3, 4])

    def forward(self, x):
        y = self.l(x) @ self.tied
        return y + self.tail + self.t[0, :4] + self.wide[:4] + self.scratch.sum() + self.k


class Tree(nn.Module):
    def forward(self, x, d, lst, p, scale, mode, nothing=None):
        y = x * scale + d["u"] - d["v"] + lst[0] + p.x * p.y
        return {"sum": y, "parts": [y.exp(), Point(y, 5)], "mode": None}


class Cache(nn.Module):
    """A buffer and an input that are written to."""

    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.zeros(4, 2))

    def forward(self, pos, x):
        self.k.index_copy_(0, pos, x)
        x.mul_(2)
        return self.k.sum(0)


class Empty(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(0, 3))
        self.register_buffer("scalar", torch.tensor(3))

    def forward(self, x):
        return torch.cat([x, self.w]) * self.scalar


class NoGrad(nn.Module):
    def forward(self, x):
        with torch.no_grad():
            y = x.exp()
            z = y + 1
        with torch.autocast("cpu", enabled=False):
            z = z.sin()
        return y * z


class Autocast(nn.Module):
    """Operators of each list of autocast for CPUs, and a part that it is off for; the last result is a string."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.arange(16.0).reshape(4, 4) / 7)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = nn.functional.linear(x, self.w)
            with torch.autocast("cpu", enabled=False):
                z = x @ self.w
            return y, torch.cat([y, x]), z, y.softmax(-1), nn.functional.mse_loss(y, y.exp()), "bf16"


class Branch(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: torch.cond(x.min() < -1, lambda x: x * 2, lambda x: x - 1, (x,)), (x,))


class SharedConstant(nn.Module):
    """Both graphs of the branch use one parameter, one buffer and one constant of the code."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.arange(6.0).reshape(2, 3))
        self.register_buffer("b", torch.ones(3))

    def forward(self, x):
        c = torch.tensor([1.0, 2.0, 3.0])
        return torch.cond(x.sum() > 0, lambda x: x * self.w + self.b * c, lambda x: x - self.w - self.b - c, (x,))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    @torch.compiler.nested_compile_region
    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Layers(nn.Module):
    """Equal layers, of which PyTorch keeps one graph."""

    def __init__(self, count):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(count))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Loop(nn.Module):
    def forward(self, n, x):
        return torch._higher_order_ops.while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * 2), (n, x))


class Unbacked(nn.Module):
    def forward(self, x):
        n = x.max().item()
        torch._check(n >= 0)
        torch._check(n <= 10)
        return x.nonzero(), torch.ones(n)


class Parts(nn.Module):
    """Parts of larger tensors: one begins inside of its storage, the rows of the other lie apart."""

    def forward(self, x, y):
        return x.as_strided((2, 2), (1, 2), 6), y.neg()


class Dtypes(nn.Module):
    def forward(self, x):
        return x.to(torch.bfloat16), x.half().to(torch.float8_e4m3fn), (x > float("-inf")), torch.full((2,), float("nan"))


batch = Dim("batch", min=2, max=64)


def x4():
    """A tensor of its own: torch merges inputs that are one object."""
    return torch.ones(4, 4)


MODELS = {
    "mlp": (Mlp(), (torch.ones(3, 8),), {}),
    "mlp_bf16": (Mlp(torch.bfloat16), (torch.ones(3, 8, dtype=torch.bfloat16),), {}),
    "conv_bn": (ConvBn().train(), (torch.ones(2, 1, 6, 6),), {}),
    "dynamic": (Dynamic(), (torch.ones(4, 3), torch.ones(8, 3), 5), {"dynamic_shapes": ({0: batch}, {0: 2 * batch}, Dim.DYNAMIC)}),
    "specialised": (Specialised(), (torch.ones(6),), {"dynamic_shapes": ({0: Dim.AUTO},)}),
    "views": (Views(), (x4(),), {}),
    "tree": (Tree(), (x4(), {"u": x4(), "v": x4()}, [x4()], Point(x4(), x4()), 2.5, "fast"), {}),
    "cache": (Cache(), (torch.tensor([1, 3]), torch.ones(2, 2)), {}),
    "cache_core": (Cache(), (torch.tensor([1, 3]), torch.ones(2, 2)), {}),
    "empty": (Empty(), (torch.ones(2, 3),), {}),
    "no_grad": (NoGrad(), (x4(),), {}),
    "autocast": (Autocast(), (x4(),), {}),
    "branch": (Branch(), (x4(),), {}),
    "shared_constant": (SharedConstant(), (torch.ones(2, 3),), {}),
    "three_layers": (Layers(3), (torch.ones(8, 16),), {"strict": True}),
    "twelve_layers": (Layers(12), (torch.ones(8, 16),), {"strict": True}),
    "loop": (Loop(), (torch.tensor(0), torch.ones(2)), {}),
    "unbacked": (Unbacked(), (torch.tensor([1, 0, 3]),), {}),
    "shared_state": (SharedState(), (torch.ones(4),), {}),
    "parts": (Parts(), (torch.arange(15.0)[5:], torch.empty_strided((4, 3), (6, 1)).fill_(1)), {"dynamic_shapes": (None, {0: Dim.AUTO, 1: Dim.AUTO})}),
    "dtypes": (Dtypes(), (torch.ones(2, 2),), {}),
}


def cut_paths(program):
    """Leaves paths relative to site-packages and this folder in the stack traces, and drops bulky metadata."""
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if trace := node.meta.get("stack_trace"):
                node.meta["stack_trace"] = trace.replace(SITE, "").replace(os.getcwd() + os.sep, "")
            for key in ("nn_module_stack", "torch_fn", "from_node", "source_fn_stack"):
                node.meta.pop(key, None)
    program._example_inputs = None


def main():
    os.makedirs(VERSION, exist_ok=True)
    torch.manual_seed(0)
    for name, (model, args, options) in MODELS.items():
        program = export(model, args, **options)
        if name.endswith("_core"):
            program = program.run_decompositions()
        cut_paths(program)
        torch.export.save(program, f"{VERSION}/{name}.pt2")
    fake = torch._subclasses.FakeTensorMode()
    with fake:
        program = export(Mlp(), (torch.ones(3, 8),))
    cut_paths(program)
    torch.export.save(program, f"{VERSION}/no_data.pt2")
    several = {name: export(Scaled(scale), (torch.ones(4),)) for name, scale in [("encode", 1.0), ("decode", 10.0)]}
    for program in several.values():
        cut_paths(program)
    package_pt2(f"{VERSION}/several.pt2", exported_programs=several)


if __name__ == "__main__":
    main()
