"""Writes the archives with kernels of Triton of tests/hosts_of_files.rs.

python make_kernels.py: needs PyTorch 2.15 with Triton, and no GPU. torch.export traces the models and writes the files, and Triton finds out
which arguments a kernel writes to, as it compiles for a GPU. What comes of running a kernel, which needs one, is put in by hand: the hash
of the compiled kernel and its number of warps. Options of AMD's compiler, which PyTorch 2.15 does not write, are put in by hand, too.
"""

import json
import os
import types
import zipfile

import torch
import torch._export.serde.serialize as serialize
import triton
import triton.language as tl
from make import X, cut_paths
from torch.library import wrap_triton
from triton.backends.compiler import GPUTarget


class Driver:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0


triton.runtime.driver.set_active(Driver())


@triton.jit
def add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    old = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, old + 1, mask=at < n)


def compiled(node):
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}
    metadata = types.SimpleNamespace(hash="0123456789abcdef" * 4, num_warps=4, shared=0)
    return add_kernel, types.SimpleNamespace(metadata=metadata, src=types.SimpleNamespace(signature=signature))


serialize.get_triton_kernel_and_cache_entry = compiled


def add(x, out):
    wrap_triton(add_kernel)[(1,)](x, out, x.numel(), BLOCK=16)


class Fresh(torch.nn.Module):
    """What the kernel writes is fresh memory."""

    def forward(self, x):
        y = x * 2
        out = torch.empty_like(y)
        add(y, out)
        return out

    def expected(self, x):
        return x * 2 + 1


class Kept(torch.nn.Module):
    """What the kernel writes is read later, as it was."""

    def forward(self, x):
        out = (x[None] * x[:, None]).sum(0)
        old = out.clone()
        add(x, out)
        return out - old

    def expected(self, x):
        return x + 1 - x * x.sum(0)


class Configured(torch.nn.Module):
    """One kernel for two configurations."""

    def forward(self, x):
        one, other = torch.empty_like(x), torch.empty_like(x)
        add(x, one)
        add(one, other)
        return other

    def expected(self, x):
        return x + 2


def option(name, value):
    return {"name": name, "arg": {"as_int": value}, "kind": 2}


def configure(path):
    """Lets kernels differ in options of AMD alone, and so in their hash."""
    with zipfile.ZipFile(path) as archive:
        files = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for info, data in files:
            if info.filename.endswith("models/model.json"):
                program, calls = json.loads(data), 0
                for node in program["graph_module"]["graph"]["nodes"]:
                    if node["target"].endswith("triton_kernel_wrapper_functional"):
                        calls += 1
                        node["inputs"] += [option("waves_per_eu", calls), option("kpack", 2 * calls)]
                        node["inputs"] += [option("matrix_instr_nonkdim", 16)] if calls == 2 else []
                        for given in node["inputs"]:
                            if given["name"] == "name":
                                given["arg"]["as_string"] += str(calls)
                data = json.dumps(program).encode()
            archive.writestr(info, data)


if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    results = []
    for model in (Fresh(), Kept(), Configured()):
        program = torch.export.export(model, (X,)).run_decompositions()
        cut_paths(program)
        name = "kernel_" + type(model).__name__.lower()
        path = os.path.join(folder, name + ".pt2")
        torch.export.save(program, path)
        if name == "kernel_configured":
            configure(path)
        numbers = " ".join(str(value) for value in model.expected(X).flatten().tolist())
        results.append(f"{name} {numbers}\n")
    with open(os.path.join(folder, "kernels.txt"), "w") as file:
        file.writelines(results)
