"""Writes the archives of tests/hosts_of_files.rs: models with operators of a library that Litz does not know.

python make.py: needs PyTorch 2.15.
"""

import os

import torch

LIBRARY = torch.library.Library("mylib", "DEF")


def operator(schema, compute, fake):
    name = schema.split("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"mylib::{name}", fake)


def two(x, y):
    x.add_(1)
    y.mul_(2)


def both(x, ys):
    if x is not None:
        x.add_(1)
    for y in ys:
        y.mul_(3)
    return ys[0].clone()


operator("half(Tensor x) -> Tensor", lambda x: 0.5 * x, torch.empty_like)
operator("missing(Tensor x) -> Tensor", lambda x: -x, torch.empty_like)
operator("log(Tensor x) -> ()", lambda x: None, lambda x: None)
operator("two(Tensor(a!) x, Tensor(b!) y) -> ()", two, lambda x, y: None)
operator("both(Tensor(a!)? x, Tensor(b!)[] ys) -> Tensor", both, lambda x, ys: torch.empty_like(ys[0]))

from torch._higher_order_ops.effects import _EffectType, _register_effectful_op  # noqa: E402

_register_effectful_op(torch.ops.mylib.log.default, _EffectType.ORDERED)
ops = torch.ops.mylib


class Foo(torch.nn.Module):
    def forward(self, x):
        return torch.relu(ops.half(x + 1))


class Many(torch.nn.Module):
    def forward(self, x):
        for _ in range(10):
            x = ops.half(x)
        return x


class Unknown(torch.nn.Module):
    def forward(self, x):
        return ops.missing(ops.half(x)) + ops.missing(x)


class Written(torch.nn.Module):
    def forward(self, x):
        a, b = x + 1, x * 2
        ops.two(a, b)
        return a + b


class Rows(torch.nn.Module):
    def forward(self, x):
        a = x + 1
        ops.two(a[0], a[1])
        return a


class Slices(torch.nn.Module):
    def forward(self, x):
        a = x + 1
        ops.two(a[:, 1:3], a[:, 3:])
        return a


class Lists(torch.nn.Module):
    def forward(self, x):
        a, b = x + 1, x * 2
        first = ops.both(None, [a, b])
        return a + b + first


class Logged(torch.nn.Module):
    def forward(self, x):
        ops.log(x)
        y = x + 1
        ops.log(y)
        return y


class Printed(torch.nn.Module):
    def forward(self, x):
        torch.ops.aten._print("first")
        y = x + 1
        torch.ops.aten._print("then")
        return y


X = torch.arange(12, dtype=torch.float32).reshape(3, 4) - 5



def cut_paths(program):
    """Leaves the name of this file alone in the stack traces, and drops metadata that Litz does not read."""
    for module in program.graph_module.modules():
        for node in getattr(module, "graph", torch.fx.Graph()).nodes:
            if trace := node.meta.get("stack_trace"):
                node.meta["stack_trace"] = trace.replace(os.path.dirname(os.path.abspath(__file__)) + os.sep, "")
            for key in ("nn_module_stack", "torch_fn", "from_node", "source_fn_stack"):
                node.meta.pop(key, None)


if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    results = []
    for model in (Foo(), Many(), Unknown(), Written(), Rows(), Slices(), Lists(), Logged(), Printed()):
        model_name = type(model).__name__.lower()
        for decomposed in (True, False):
            program = torch.export.export(model, (X,))
            if decomposed:
                program = program.run_decompositions()
            cut_paths(program)
            name = model_name + ("" if decomposed else "_raw")
            torch.export.save(program, os.path.join(folder, name + ".pt2"))
        numbers = " ".join(str(value) for value in model(X).flatten().tolist())
        results.append(f"{model_name} {numbers}\n")
    with open(os.path.join(folder, "results.txt"), "w") as file:
        file.writelines(results)
