"""Operators of others are given objects."""

import pytest
import torch
from checks import compiled, each, needs_litz, same
from torch import randn
from torch._custom_class_base import CustomClassBase
from torch._library.opaque_object import register_custom_class

import litz


class Factor(CustomClassBase):
    def __init__(self, number):
        self.number = number


class Fixed(CustomClassBase):
    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return self.number == other.number

    def __hash__(self):
        return hash(self.number)

    def __fx_repr__(self):
        return f"Fixed({self.number})", {"Fixed": Fixed}


register_custom_class(Factor, typ="symbolic")
register_custom_class(Fixed, typ="constant")


@torch.library.custom_op("litz_tests::times", mutates_args=())
def times(x: torch.Tensor, factor: Factor) -> torch.Tensor:
    return x * factor.number


times.register_fake(lambda x, factor: torch.empty_like(x))


@torch.library.custom_op("litz_tests::times_fixed", mutates_args=())
def times_fixed(x: torch.Tensor, factor: Fixed) -> torch.Tensor:
    return x * factor.number


times_fixed.register_fake(lambda x, factor: torch.empty_like(x))


@pytest.fixture(autouse=True)
def forgotten():
    litz.reset_stats()


@each(
    given=lambda x, one, other: times(x + 1, one) * 2,
    two=lambda x, one, other: times(times(x, one) + 1, other),
    exchanged=lambda x, one, other: times(x, other) - times(x, one),
    fixed=lambda x, one, other: times_fixed(x + 1, Fixed(7)) - times_fixed(x, Fixed(2)),
)
def test_an_operator_is_given_an_object(f):
    fast = compiled(f)
    for numbers in ((3, 5), (4, 0.5)):
        x = randn(4, 5)
        same(fast(x, *map(Factor, numbers)), f(x, *map(Factor, numbers)))
    assert not litz.stats()["eager_graphs"] and not litz.stats()["eager_calls"]


@needs_litz
def test_an_operator_with_an_object_calls_a_model_with_another():
    inner = compiled(lambda x, factor: times(x, factor) + 1)

    @torch.library.custom_op("litz_tests::times_by_a_graph", mutates_args=())
    def by_a_graph(x: torch.Tensor, factor: Factor) -> torch.Tensor:
        return inner(x, Factor(10 * factor.number))

    by_a_graph.register_fake(lambda x, factor: torch.empty_like(x))
    fast = compiled(lambda x, factor: times(by_a_graph(x + 0, factor), factor))
    same(fast(torch.ones(3), Factor(2)), torch.full((3,), 42.0))
    assert not litz.stats()["eager_graphs"]
