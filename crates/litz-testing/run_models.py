"""Calls functions that were written from random models and saves what PyTorch returns.

usage: run_models.py PREFIX

PREFIX.py has a function for each model, PREFIX.safetensors its inputs as NAME.in.N, PREFIX.json its sizes by name. Writes
PREFIX.out.safetensors with the results as NAME.out.N, and PREFIX.out.json with the error of each call that fails.
"""

import importlib.util
import json
import pathlib
import sys
import warnings

import torch
from safetensors.torch import load_file, save_file

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
prefix = sys.argv[1]
spec = importlib.util.spec_from_file_location("models", prefix + ".py")
models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(models)
tensors = load_file(prefix + ".safetensors")
outputs, errors = {}, {}
for name, sizes in json.loads(pathlib.Path(prefix + ".json").read_text()).items():
    inputs = []
    while f"{name}.in.{len(inputs)}" in tensors:
        inputs.append(tensors[f"{name}.in.{len(inputs)}"])
    try:
        with torch.no_grad():
            results = getattr(models, name)(inputs, sizes)
    except Exception as error:
        errors[name] = str(error).splitlines()[0][:300]
        continue
    for place, result in enumerate(results):
        if isinstance(result, torch.Tensor):
            outputs[f"{name}.out.{place}"] = result.detach().clone(memory_format=torch.contiguous_format)
save_file(outputs, prefix + ".out.safetensors")
pathlib.Path(prefix + ".out.json").write_text(json.dumps(errors))
