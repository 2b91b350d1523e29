"""Reads the constants beside a module that `litz compile --to fx`, or `--to python`, wrote."""

import json
import os

# Element types of safetensors, by the names that Litz has for them.
NAMES = {
    "BOOL": "bool", "U8": "u8", "U16": "u16", "U32": "u32", "U64": "u64", "I8": "i8", "I16": "i16", "I32": "i32", "I64": "i64",
    "F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64", "F8_E4M3": "f8e4m3", "F8_E5M2": "f8e5m2", "C64": "c64",
}  # fmt: skip


def beside(module: str) -> dict:
    """The constants in the file beside a module: by the name of each its type, its sizes, and its bytes, which may be written to. Without a
    file there are none.
    """
    path = os.path.splitext(module)[0] + ".safetensors"
    if not os.path.exists(path):
        return {}
    with open(path, "rb") as file:
        data = memoryview(bytearray(file.read()))
    start = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(bytes(data[8:start])).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            found[name] = (NAMES[entry["dtype"]], entry["shape"], data[start + first : start + last])
    return found
