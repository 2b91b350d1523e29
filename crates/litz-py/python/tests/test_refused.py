"""Calls that Litz does not take although it has the operator: eager mode runs these, and nothing else of the graph; calls that keep their order."""

import pytest
import torch
from checks import check, compiled, each, needs_litz, same
from torch import randn
from torch.nn import functional as F

import litz


def fallbacks(f, *args, **settings) -> set:
    """The operators that eager mode runs in a call, after a check of its results."""
    litz.reset_stats()
    check(f, *args, calls=1, **settings)
    stats = litz.stats()
    assert not stats["eager_graphs"]
    return set(stats["fallbacks"])


def grouped(q, k, v):
    return F.scaled_dot_product_attention(q * 2, k, v, enable_gqa=True) + 1


@needs_litz
@pytest.mark.parametrize(
    "op, f, args, settings",
    [
        ("aten.mul.Tensor", lambda x: (x + 1) * (1 + 2j), (randn(4, dtype=torch.float64),), {}),
        ("aten.add.Tensor", lambda x, n: torch.add(x, x + 1, alpha=n), (randn(4), 3), {"dynamic": True}),
        (
            "aten._scaled_dot_product_flash_attention_for_cpu.default",
            grouped,
            (randn(1, 6, 5, 8), randn(1, 2, 5, 8), randn(1, 2, 5, 8)),
            {},
        ),
    ],
    ids=["complex_number", "factor_of_a_size", "attention_of_groups"],
)
def test_one_call_of_an_operator_is_refused(op, f, args, settings):
    assert fallbacks(f, *args, **settings) == {op}


@needs_litz
def test_with_fallback_error_it_is_an_error():
    with pytest.raises(Exception, match="aten.mul.Tensor"):
        compiled(lambda x: x * (1 + 2j), options={"fallback": "error"})(randn(4, dtype=torch.float64))


@needs_litz
@pytest.mark.eager_graphs("a mistake of Litz: KeyError: 'a name'")
def test_a_mistake_in_converting_a_graph_leaves_it_to_eager_mode(monkeypatch):
    def mistaken(*args, **kwargs):
        raise KeyError("a name")

    monkeypatch.setattr("litz.dynamo.convert", mistaken)
    litz.reset_stats()
    x = randn(4)
    with pytest.warns(UserWarning, match="a mistake of Litz: KeyError"):
        same(compiled(lambda x: x.sin() + 1)(x), x.sin() + 1)
    assert list(litz.stats()["eager_graphs"]) == ["a mistake of Litz: KeyError: 'a name'"]
    with pytest.raises(Exception, match="KeyError"):
        compiled(lambda x: x.cos() + 1, options={"fallback": "error"})(x)


@each(
    inverse=lambda x: torch.linalg.inv(x) + 1,
    two=lambda x: torch.linalg.inv(x) @ torch.linalg.solve(x, x),
    cholesky=lambda x: torch.linalg.cholesky(x @ x.mT + 1).sum(),
    of_a_batch=lambda x: torch.linalg.inv(torch.stack([x, x * 2])),
)
def test_checks_of_linear_algebra(f):
    check(f, randn(4, 4) + 4 * torch.eye(4))
    check(f, randn(4, 4) + 4 * torch.eye(4), gradients=True)


def test_a_singular_matrix_raises_what_eager_mode_raises():
    def f(x):
        return torch.linalg.inv(x) + 1

    fast = compiled(f)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        fast(torch.zeros(3, 3))
    # The function goes on.
    same(fast(torch.eye(3)), f(torch.eye(3)))


def test_texts_are_printed_in_order(capfd):
    def f(x):
        torch.ops.aten._print("first")
        y = x + 1
        torch.ops.aten._print("then")
        return y

    x = randn(3)
    same(compiled(f)(x), x + 1)
    assert capfd.readouterr().out == "first\nthen\n"


@needs_litz
@each(
    conjugate=lambda z: z + 1,
    real_part=lambda z: z.real * 2 + z.imag,
    product=lambda z: z.mT @ z,
)
def test_inputs_that_are_conjugates_do_not_send_the_graph_to_eager_mode(f):
    z = randn(3, 4, dtype=torch.complex64)
    for given in (z.conj(), z.mT.conj(), z[:, ::2].conj()):
        fallbacks(f, given, dynamic=False)
