"""The kernels of `cargo xtask bench-kernels`: one operation, or one chain that should fuse, and its shapes, by name."""

from typing import Callable

import torch
import torch.nn as nn
import torch.nn.functional as F
from quantised import Int4Linear, Int8Linear

KERNELS: dict[str, Callable[[], tuple[nn.Module, tuple]]] = {}


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class Product(nn.Module):
    """x W^T + b with constant weights, and what follows it."""

    def __init__(self, inner: int, outer: int, epilogue: Callable):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.epilogue = epilogue

    def forward(self, x):
        return self.epilogue(self.linear(x))


def add(name: str, function: Callable, *shapes: tuple[int, ...]) -> None:
    KERNELS[name] = lambda: (Function(function), tuple(torch.randn(shape) for shape in shapes))


def add_module(name: str, module: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    KERNELS[name] = lambda: (module(), (torch.randn(shape),))


def identity(x):
    return x


# Rows of a cache-resident, a memory-bound and an odd-tailed tensor.
for rows, columns in (128, 1024), (4096, 1024), (128, 1000):
    size = f"{rows}x{columns}"
    add(f"gelu_tanh_{size}", lambda x, w, b: F.gelu(x * w + b, approximate="tanh"), (rows, columns), (columns,), (columns,))
    add(f"gelu_erf_{size}", lambda x, w, b: F.gelu(x * w + b), (rows, columns), (columns,), (columns,))
    add(f"softmax_{size}", lambda x: x.softmax(-1), (rows, columns))
    add(f"column_sum_{size}", lambda x: x.sum(0), (rows, columns))
    add_module(f"layer_norm_{size}", lambda columns=columns: nn.LayerNorm(columns), (rows, columns))
    add_module(f"rms_norm_{size}", lambda columns=columns: nn.RMSNorm(columns), (rows, columns))

# The products of a base-sized transformer at 128 tokens, one decoding step, and squares.
for m, n, k in (128, 768, 768), (128, 3072, 768), (128, 768, 3072), (1, 4096, 4096), (512, 512, 512), (1024, 1024, 1024):
    size = f"{m}x{n}x{k}"
    add_module(f"linear_{size}", lambda n=n, k=k: Product(k, n, identity), (m, k))
    add_module(f"linear_gelu_{size}", lambda n=n, k=k: Product(k, n, F.gelu), (m, k))
# The decoding step with weights of eight and of four bits.
for name, layer in ("int8", Int8Linear), ("int4", lambda linear: Int4Linear(linear, 128)):
    add_module(f"linear_{name}_1x4096x4096", lambda layer=layer: layer(nn.Linear(4096, 4096)), (1, 4096))
add("matmul_512x512x512", torch.matmul, (512, 512), (512, 512))

# The attention of a base-sized transformer.
for length in 128, 512:
    add(f"attention_12x{length}x64", F.scaled_dot_product_attention, *[(1, 12, length, 64)] * 3)

# ResNet-50's 3x3 and 1x1 shapes at both ends, and a depthwise one, each with what follows it.
for channels, outer, width, kernel, groups in (
    (64, 64, 56, 3, 1),
    (512, 512, 7, 3, 1),
    (256, 64, 56, 1, 1),
    (512, 2048, 7, 1, 1),
    (240, 240, 28, 3, 240),
):
    add_module(
        f"conv_relu_{channels}to{outer}_{width}px_{kernel}x{kernel}" + ("_depthwise" if groups > 1 else ""),
        lambda c=channels, o=outer, k=kernel, g=groups: nn.Sequential(nn.Conv2d(c, o, k, padding=k // 2, groups=g), nn.ReLU()),
        (1, channels, width, width),
    )

# What the other shapes leave out: causal attention of long sequences, convolutions of few channels a group, in one
# dimension and transposed ones, a product of transposed computed operands, pooling of planes, the largest elements.
for length in 1024, 2048:
    add(
        f"causal_attention_12x{length}x64",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *[(1, 12, length, 64)] * 3,
    )
add_module(
    "conv_relu_128to128_56px_3x3_32groups",
    lambda: nn.Sequential(nn.Conv2d(128, 128, 3, padding=1, groups=32), nn.ReLU()),
    (1, 128, 56, 56),
)
add_module("conv1d_relu_80to384_3000", lambda: nn.Sequential(nn.Conv1d(80, 384, 3, padding=1), nn.ReLU()), (1, 80, 3000))
add_module("conv_transpose_64to32_56px_stride3", lambda: nn.ConvTranspose2d(64, 32, 4, stride=3, padding=1), (1, 64, 56, 56))
add("matmul_transposed_512x512x512", lambda x, y: torch.matmul(x.relu().t(), y.sigmoid()), (512, 512), (512, 512))
add("max_pool_64x112px", lambda x: F.max_pool2d(x, 3, 2, 1), (1, 64, 112, 112))
add("topk_64x32000", lambda x: x.topk(50), (64, 32000))

# Movement only.
add("transpose_1024x1024", lambda x: x.t().contiguous(), (1024, 1024))
add("cat_relu_2x128x1024", lambda x, y: torch.cat([x, y], 1).relu(), (128, 1024), (128, 1024))
