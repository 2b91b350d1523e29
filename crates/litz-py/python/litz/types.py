"""Names that Litz has for PyTorch's operators, element types, layouts and memory formats."""

import torch

DTYPES = {
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    torch.complex64: "c64",
    torch.complex128: "c128",
}

MEMORY_FORMATS = {
    torch.contiguous_format: "contiguous",
    torch.preserve_format: "preserve",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
}

# By the numbers of `c10::ScalarType` and `c10::MemoryFormat`.
SCALAR_TYPES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    15: torch.bfloat16,
    23: torch.float8_e5m2,
    24: torch.float8_e4m3fn,
    27: torch.uint16,
    28: torch.uint32,
    29: torch.uint64,
}
NUMBERED_FORMATS = dict(enumerate(MEMORY_FORMATS))


def operator_name(op) -> str:
    """The name that texts have for an operator."""
    name = op.name().replace("::", ".")
    return name + ".default" if op._overloadname == "default" else name


def overloads(operator) -> list:
    """Names of the operators that are meant by one of PyTorch's objects, or by a name with or without an overload. None where PyTorch has none."""
    if isinstance(operator, str):
        names, operator = operator.replace("::", ".").split("."), torch.ops
        if len(names) not in (2, 3):
            return []
        try:
            for name in names:
                operator = getattr(operator, name)
        except (AttributeError, RuntimeError):
            return []
    if isinstance(operator, torch._ops.OpOverloadPacket):
        return [operator_name(getattr(operator, name)) for name in operator.overloads()]
    return [operator_name(operator)] if isinstance(operator, torch._ops.OpOverload) else []


def numbered(kind: str, name: str) -> tuple[str, int]:
    """What modules say by name, such as `("dtype", "f32")`, as hosts get it: by PyTorch's number for it."""
    if kind == "dtype":
        return kind, next(number for number, dtype in SCALAR_TYPES.items() if DTYPES[dtype] == name)
    if kind == "memory_format":
        return kind, next(number for number, known in NUMBERED_FORMATS.items() if MEMORY_FORMATS[known] == name)
    return kind, 0
