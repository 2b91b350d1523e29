"""Kernels that `gpu_times.py` times: by name a function, what makes its inputs, and the floating-point operations of a call.

The names of products are rows x terms x columns, those of attention sequences x heads x places x features of a head.
"""

import functools

import torch
from quantised import unpacked
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def normal(*shape, dtype):
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)


def bf16(*shape):
    return normal(*shape, dtype=torch.bfloat16)


def kernel_table(dtype):
    """Kernels by name: the function, what makes its inputs, and floating-point operations of a call."""
    n = lambda *shape: normal(*shape, dtype=dtype)
    rows = {}
    for columns in (1024, 4096):
        shape = (4096, columns)
        weight, bias = n(columns), n(columns)
        rows |= {
            f"gelu {columns}": (F.gelu, lambda shape=shape: (n(*shape),), 0),
            f"layer_norm {columns}": (lambda x, c=columns, w=weight, b=bias: F.layer_norm(x, (c,), w, b), lambda shape=shape: (n(*shape),), 0),
            f"rms_norm {columns}": (lambda x, c=columns, w=weight: F.rms_norm(x, (c,), w), lambda shape=shape: (n(*shape),), 0),
            f"add+rms_norm {columns}": (
                lambda x, y, c=columns, w=weight: ((s := x + y), F.rms_norm(s, (c,), w)), lambda shape=shape: (n(*shape), n(*shape)), 0
            ),
            f"softmax {columns}": (lambda x: torch.softmax(x, -1), lambda shape=shape: (n(*shape),), 0),
        }
    targets = lambda count: torch.randint(0, 50257, (count,), device="cuda")
    index = torch.randint(0, 8192, (8192,), device="cuda")
    rows |= {
        "softmax 16384": (lambda x: torch.softmax(x, -1), lambda: (n(4096, 16384),), 0),
        "cross_entropy 4096x50257": (F.cross_entropy, lambda: (n(4096, 50257), targets(4096)), 0),
        "sum 2^26": (lambda x: x.sum(), lambda: (n(1 << 26),), 0),
        "column sum 32768x768": (lambda x: x.sum(0), lambda: (n(32768, 768),), 0),
        "transpose+add 4096": (lambda x, y: x.t() + y, lambda: (n(4096, 4096), n(4096, 4096)), 0),
        "cumsum 2^24": (lambda x: x.cumsum(0), lambda: (n(1 << 24),), 0),
        "index_add 8192x768": (lambda x, y: x.index_add(0, index, y), lambda: (n(8192, 768), n(8192, 768)), 0),
        "topk 50 of 4096x50257": (lambda x: torch.topk(x, 50), lambda: (n(4096, 50257),), 0),
        "product 4096^3": (torch.matmul, lambda: (n(4096, 4096), n(4096, 4096)), 2 * 4096**3),
        "product 4095x4097x4099": (torch.matmul, lambda: (n(4095, 4097), n(4097, 4099)), 2 * 4095 * 4097 * 4099),
        "product 8x4096x4096": (torch.matmul, lambda: (n(8, 4096), n(4096, 4096)), 2 * 8 * 4096**2),
        "linear+gelu 4096^3": (
            lambda x, w, b: F.gelu(F.linear(x, w, b)), lambda: (n(4096, 4096), n(4096, 4096), n(4096)), 2 * 4096**3
        ),
    }
    return rows


attend = F.scaled_dot_product_attention


def causal(q, k, v):
    return attend(q, k, v, is_causal=True)


def packed(qkv):
    return attend(*qkv.view(16, 197, 3, 12, 64).permute(2, 0, 3, 1, 4))


def in_groups(q, k, v):
    return attend(q, k, v, is_causal=True, enable_gqa=True)


def by_distance(score, batch, head, query, key):
    return score - (query - key) * 0.01


def attention_table():
    table = {"16 x 12 x 197 x 64 of a packed product": (packed, lambda: (bf16(16, 197, 3 * 768),), 4 * 16 * 12 * 197**2 * 64)}
    for batch, heads, length, head, function in (
        (16, 12, 128, 64, attend), (4, 12, 512, 64, causal), (1, 32, 1024, 64, causal), (4, 16, 2048, 64, attend), (4, 16, 2048, 64, causal),
        (4, 16, 2048, 96, attend), (4, 8, 2048, 256, causal), (4, 32, 2048, 128, attend), (4, 32, 2048, 128, causal), (2, 16, 1000, 64, attend),
    ):
        shape, share = (batch, heads, length, head), 0.5 if function is causal else 1
        name = " x ".join(map(str, shape)) + (" causal" if function is causal else "")
        table[name] = (function, lambda shape=shape: tuple(bf16(*shape) for _ in range(3)), share * 4 * batch * heads * length**2 * head)
    three = lambda batch, heads, groups, queries, keys, head: (bf16(batch, heads, queries, head), bf16(batch, groups, keys, head), bf16(batch, groups, keys, head))
    near = (torch.arange(2048)[:, None] - torch.arange(2048)).abs().cuda() < 256
    blocks = create_block_mask(lambda batch, head, query, key: query >= key, None, None, 2048, 2048, device="cuda")
    of_masked = 4 * 4 * 16 * 2048**2 * 64
    table |= {
        "2 x 32 x 2048 x 128 causal, 8 groups": (in_groups, lambda: three(2, 32, 8, 2048, 2048, 128), 2 * 2 * 32 * 2048**2 * 128),
        "4 x 16 x 2048 x 64 and a bias": (
            lambda q, k, v, bias: attend(q, k, v, attn_mask=bias), lambda: (*three(4, 16, 16, 2048, 2048, 64), bf16(1, 16, 2048, 2048)), of_masked
        ),
        "4 x 16 x 2048 x 64 and a mask": (lambda q, k, v: attend(q, k, v, attn_mask=near), lambda: three(4, 16, 16, 2048, 2048, 64), of_masked),
        "4 x 16 x 2048 x 64 flex, causal and a bias": (
            lambda q, k, v: flex_attention(q, k, v, score_mod=by_distance, block_mask=blocks), lambda: three(4, 16, 16, 2048, 2048, 64), of_masked / 2
        ),
        "8 x 32 x 1 x 128 of 4096 keys, 8 groups": (
            functools.partial(attend, enable_gqa=True), lambda: three(8, 32, 8, 1, 4096, 128), 4 * 8 * 32 * 4096 * 128
        ),
    }
    return table


def product_table():
    """Products of models in bfloat16, and of others."""
    linear_gelu = lambda x, w, b: F.gelu(F.linear(x, w, b))
    linear_add = lambda x, w, b, y: F.linear(x, w, b) + y
    gated = lambda x, w, v: F.silu(F.linear(x, w)) * F.linear(x, v)
    table = {}

    def add(name, function, make, m, k, n):
        table[f"{name} {m} x {k} x {n}"] = (function, make, 2 * m * k * n)

    def linears(function, sizes, name, more=lambda m, k, n: ()):
        for m, k, n in sizes:
            add(name, function, lambda m=m, k=k, n=n: (bf16(m, k), bf16(n, k), bf16(n), *more(m, k, n)), m, k, n)

    of_models = [(m, k, n) for m in (2048, 3152) for k, n in ((768, 2304), (768, 768), (768, 3072), (3072, 768))]
    large = [(4096, 4096, 4096), (8192, 4096, 4096), (4096, 11008, 4096)]
    linears(F.linear, [*of_models, (1024, 2048, 8192), *large, (128, 768, 3072), (32, 4096, 4096), (1024, 768, 3072)], "linear")
    linears(linear_gelu, [(2048, 768, 3072), (3152, 768, 3072), large[0]], "linear and gelu")
    linears(linear_add, [(3152, 768, 768), large[0]], "linear and sum", lambda m, _, n: (bf16(m, n),))
    add("gate", gated, lambda: (bf16(4096, 4096), bf16(11008, 4096), bf16(11008, 4096)), 4096, 4096, 2 * 11008)
    for m, k, n in ((4096, 4096, 4096), (1000, 1000, 1000), (1001, 1003, 1006), (4095, 4097, 4093)):
        add("matmul", torch.matmul, lambda m=m, k=k, n=n: (bf16(m, k), bf16(k, n)), m, k, n)
    single = functools.partial(normal, dtype=torch.float32)
    for m, k, n in ((128, 768, 3072), (128, 3072, 768), (4096, 4096, 4096)):
        add("float32 linear", F.linear, lambda m=m, k=k, n=n: (single(m, k), single(n, k), single(n)), m, k, n)
    one, eight = torch.ones((), device="cuda"), lambda *shape: normal(*shape, dtype=torch.float8_e4m3fn)
    scaled = lambda x, w: torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    in_few_bits = lambda x, w: torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)
    for name, function in (("float8", scaled), ("float8, use_fast_accum", in_few_bits)):
        add(name, function, lambda: (eight(4096, 4096), eight(4096, 4096)), 4096, 4096, 4096)
    integers = lambda top, dtype, *shape: torch.randint(-top if dtype.is_signed else 0, top, shape, device="cuda", dtype=dtype)
    scales, zeros = torch.rand(4096, 32, device="cuda").bfloat16(), integers(15, torch.uint8, 4096, 32)
    of_bytes = lambda x, w: F.linear(x, w.to(x.dtype)) * scales[:, 0]
    of_halves = lambda x, w: F.linear(x, unpacked(w, scales, zeros, 128))
    add("bfloat16", F.linear, lambda: (bf16(1, 4096), bf16(4096, 4096)), 1, 4096, 4096)
    add("int8", of_bytes, lambda: (bf16(1, 4096), integers(127, torch.int8, 4096, 4096)), 1, 4096, 4096)
    add("int4", of_halves, lambda: (bf16(1, 4096), integers(255, torch.uint8, 4096, 2048)), 1, 4096, 4096)
    return table


def convolution_table():
    """Convolutions of ResNet-50 with 32 images, channels last: the first one, and that of 3 x 3 of each stage, also with what comes behind it."""
    table = {}
    last = lambda tensor: tensor.contiguous(memory_format=torch.channels_last)
    sizes = [(3, 64, 224, 7, 2), *((64 << stage, 64 << stage, 56 >> stage, 3, 1) for stage in range(4))]
    for channels, results, size, window, stride in sizes:
        pad, out = window // 2, size // stride
        flops = 2 * 32 * out * out * results * channels * window**2
        plain = lambda x, w, stride=stride, pad=pad: F.conv2d(x, w, None, stride, pad)
        make = lambda c=channels, r=results, s=size, window=window: (last(bf16(32, c, s, s)), last(bf16(r, c, window, window)))
        name = f"{channels} x {size} x {size}, {window} x {window}"
        table[name] = (plain, make, flops)
        if window == 3:
            fused = lambda x, w, b, y: F.relu(F.conv2d(x, w, b, padding=1) + y)
            more = lambda make=make, r=results, s=size: (*make(), bf16(r), last(bf16(32, r, s, s)))
            table[f"{name}, sum and relu"] = (fused, more, flops)
    return table
