"""PyTorch runs operators that Litz has, where the user says so."""

import pytest
import torch
from checks import check, compiled, each, needs_litz, same
from torch import randn
from torch.fx.traceback import annotate

import litz


@pytest.fixture(autouse=True)
def forgotten():
    litz.reset_stats()


def annotated(x):
    with annotate({"litz": "eager"}):
        y = x @ x
    return (y + 1).exp()


def product(x):
    return (torch.addmm(x, x.sin(), x.cos()) + 1).exp()


@needs_litz
@pytest.mark.parametrize(
    "f, eager, wanted",
    [
        (product, ["aten.addmm"], {"aten.addmm.default": 1}),
        (product, ["aten::addmm"], {"aten.addmm.default": 1}),
        (product, [torch.ops.aten.addmm.default, torch.ops.aten.cos], {"aten.addmm.default": 1, "aten.cos.default": 1}),
        (lambda x: torch.nn.functional.gelu(x + 1) * 2, ["aten.gelu.default"], {"aten.gelu.default": 1}),
        (lambda x: torch.logit(x.sigmoid()) * 2, ["aten.logit"], {"aten.logit.default": 1}),
        (product, [], {}),
        (annotated, [], {"aten.mm.default": 1}),
    ],
)
def test_operators_run_eagerly_on_demand(f, eager, wanted):
    x = randn(4, 4)
    same(compiled(f, options={"eager": eager})(x), f(x), x)
    found = litz.stats()
    assert {name: calls for name, (calls, *_) in found["fallbacks"].items()} == wanted
    assert found["kernels"] and not found["eager_graphs"]


@needs_litz
def test_gradients_of_what_is_run_eagerly():
    check(annotated, randn(4, 4) / 4, gradients=True)
    check(product, randn(4, 4), gradients=True, options={"eager": ["aten.addmm", "aten.mm"]})
    assert not litz.stats()["eager_graphs"]


@needs_litz
@each(unknown=["aten.nothing_of_this"], number=[3], word="addmm")
def test_what_is_no_operator_is_refused(f):
    with pytest.raises(Exception, match="eager: expected a list of operators"):
        compiled(lambda x: x + 1, options={"eager": f})(randn(2))
