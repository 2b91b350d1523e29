"""Calls functions that were written from random models and saves what PyTorch returns.

usage: run_models.py PREFIX

PREFIX.py has a function for each model, PREFIX.safetensors its inputs as NAME.in.N, PREFIX.json its sizes by name. Writes
PREFIX.out.safetensors with the results as NAME.out.N, those of half types and float32 once more as NAME.wide.N, computed
by the same model with the next wider type in place of each of these, where it takes that, and PREFIX.out.json with the
error of each call that fails.
"""

import json
import pathlib
import re
import sys
import types
import warnings

import torch
from safetensors.torch import load_file, save_file

WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}


def widened(tensor):
    return tensor.to(WIDER.get(tensor.dtype, tensor.dtype))


def widened_source(source):
    names = {str(narrow): str(wide) for narrow, wide in WIDER.items()}
    return re.sub(r"torch\.b?float\d+\b", lambda found: names.get(found[0], found[0]), source)


def plain(value):
    """A copy that nothing else shares, of a tensor; other values as they are."""
    return value.detach().clone(memory_format=torch.contiguous_format) if isinstance(value, torch.Tensor) else value


warnings.filterwarnings("ignore")
torch.set_num_threads(1)
prefix = sys.argv[1]
models, wide_models = types.ModuleType("models"), types.ModuleType("wide_models")
source = pathlib.Path(prefix + ".py").read_text()
exec(compile(source, prefix + ".py", "exec"), models.__dict__)
exec(compile(widened_source(source), prefix + ".py", "exec"), wide_models.__dict__)
tensors = load_file(prefix + ".safetensors")
outputs, errors = {}, {}
for name, sizes in json.loads(pathlib.Path(prefix + ".json").read_text()).items():
    inputs = []
    while f"{name}.in.{len(inputs)}" in tensors:
        inputs.append(tensors[f"{name}.in.{len(inputs)}"])
    try:
        with torch.no_grad():
            results = [plain(result) for result in getattr(models, name)([plain(i) for i in inputs], sizes)]
    except Exception as error:
        errors[name] = str(error).splitlines()[0][:300]
        continue
    try:
        with torch.no_grad():
            wide = getattr(wide_models, name)([widened(plain(tensor)) for tensor in inputs], sizes)
    except Exception:
        wide = [None] * len(results)
    for place, (result, wider) in enumerate(zip(results, wide)):
        if isinstance(result, torch.Tensor):
            outputs[f"{name}.out.{place}"] = result
            if result.dtype in WIDER and isinstance(wider, torch.Tensor) and wider.shape == result.shape:
                outputs[f"{name}.wide.{place}"] = plain(wider)
save_file(outputs, prefix + ".out.safetensors")
pathlib.Path(prefix + ".out.json").write_text(json.dumps(errors))
