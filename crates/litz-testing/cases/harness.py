"""Operator calls into text: their arguments and what eager PyTorch on the CPU returns.

A case is an operator, its arguments filled up with defaults, and its results with element type, sizes, strides and
elements (in row-major order of coordinates). Each family has a file of cases beside this one; `bless.py` runs them.
"""

import numpy as np
import torch

aten = torch.ops.aten
NAMES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.bool: "bool",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
}
FORMATS = {torch.contiguous_format: "contiguous", torch.channels_last: "channels_last",
           torch.channels_last_3d: "channels_last_3d", torch.preserve_format: "preserve"}
out = []


def number(x):
    return str(x).replace("True", "true").replace("False", "false")


def elements(t):
    flat = t.detach().contiguous().reshape(-1)
    if t.dtype in (torch.float32, torch.float16, torch.bfloat16):
        return " ".join(number(np.float32(x)) for x in flat.float().numpy())
    return " ".join(number(x) for x in flat.tolist())


def ints(items):
    return ",".join(map(str, items))


def tensor(keyword, t):
    out.append(f"{keyword} {NAMES[t.dtype]} [{ints(t.shape)}] {{{ints(t.stride())}}} : {elements(t)}")


def render(value, tensors):
    if isinstance(value, torch.Tensor):
        for i, t in enumerate(tensors):
            if t is value:
                return f"@{i}"
        tensors.append(value)
        tensor("tensor", value)
        return f"@{len(tensors) - 1}"
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(render(v, tensors) for v in value) + "]"
    if value is None:
        return "none"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, torch.dtype):
        return f"dtype:{NAMES[value]}"
    if isinstance(value, torch.memory_format):
        return f"format:{FORMATS[value]}"
    if isinstance(value, torch.device):
        return "cpu"
    return number(value)


def case(op, *args, keep=None, **kwargs):
    """One call. Results that are tensors are recorded, in order, lists flattened; only the first `keep` when given.

    A result that was not asked for is recorded as a tensor without elements.
    """
    schema = op._schema
    given = dict(zip([a.name for a in schema.arguments], args), **kwargs)
    base = schema.name.replace("::", ".") + "." + (schema.overload_name or "default")
    out.append(f"case {base}")
    tensors = []
    for a in schema.arguments:
        value = given[a.name] if a.name in given else a.default_value if a.has_default_value() else None
        if a.name == "dtype" and isinstance(value, int):
            value = {6: torch.float32, 4: torch.int64}[value]
        if a.name == "memory_format" and isinstance(value, int):
            value = [torch.contiguous_format, torch.preserve_format, torch.channels_last][value]
        text = render(value, tensors)
        out.append(f"arg {text}")
    results = op(*args, **kwargs)
    results = results if isinstance(results, (list, tuple)) else [results]
    results = [x for r in results for x in (r if isinstance(r, (list, tuple)) else [r])]
    given = [r for r in results if r is not None]
    for r in results[:keep]:
        tensor("result", torch.empty(0, dtype=given[0].dtype) if r is None else r)
    out.append("")


def rand(*shape, dtype=torch.float32, lo=-24, hi=25):
    """Multiples of 1/8 between -3 and 3: exact in every float type."""
    return (torch.randint(lo, hi, shape) / 8).to(dtype)


def whole(*shape, dtype=torch.int64, lo=-9, hi=10):
    return torch.randint(lo, hi, shape).to(dtype)


def like(t):
    """A gradient of a result, laid out like it."""
    return torch.empty_like(t).copy_(rand(*t.shape, dtype=t.dtype))


def take():
    """The text of all cases so far."""
    text = "\n".join(out)
    out.clear()
    return text


NAN, INF = float("nan"), float("inf")
f32, f64, f16, bf16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
# Not a number, infinities, both zeros, and where exp overflows and underflows.
edge = torch.tensor([NAN, INF, -INF, -0.0, 0.0, 1.0, -2.5, 88.5, -104.0])
