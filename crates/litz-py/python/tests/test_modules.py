"""Nodes of compiled graphs say which module they belong to."""

from types import SimpleNamespace

import pytest
import torch
from litz import writer
from torch import nn


@pytest.mark.parametrize(
    ("path", "expected"),
    [("L['self'].layers[3].mlp.up", "layers.3.mlp.up"), ("L['fn'].0.up", "0.up"), ("self.heads['left']", "heads.left"), ("L['self']", None), ("", None)],
)
def test_modules_have_the_paths_of_their_parameters(path, expected):
    node = SimpleNamespace(meta={"nn_module_stack": {"outer": ("L['self']", nn.Module), "inner": (path, nn.Module)}})
    assert writer._module(node) == expected


def test_nodes_of_a_compiled_model_are_in_its_modules(monkeypatch):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(8, 16)

        def forward(self, x):
            return nn.functional.gelu(self.up(x))

    lines, line = [], writer.Writer.line

    def noting(self, text, node):
        line(self, text, node)
        lines.append(self.lines[-1])

    monkeypatch.setattr(writer.Writer, "line", noting)
    torch._dynamo.reset()
    model, x = nn.Sequential(Block()), torch.randn(4, 8)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="litz")(x), model(x))
    products = [text for text in lines if "aten.addmm" in text or "aten.linear" in text]
    assert products and all(' in "0.up"' in text for text in products), lines
