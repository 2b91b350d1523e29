"""Operators of others decide the sizes of their results, and all around them is Litz's."""

import pytest
import torch
from checks import compiled, each, needs_litz, same
from torch import randn

import litz


@pytest.fixture(autouse=True)
def forgotten():
    litz.reset_stats()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def new_size():
    return torch.library.get_ctx().new_dynamic_size()


@torch.library.custom_op("litz_tests::positive_of", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@positive.register_fake
def _(x):
    return x.new_empty(new_size())


@torch.library.custom_op("litz_tests::rows_of", mutates_args=())
def rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    kept = x.sum(1) > 0
    return x[kept].clone(), kept.nonzero().view(-1)


@rows.register_fake
def _(x):
    count = new_size()
    return x.new_empty(count, x.shape[1]), x.new_empty(count, dtype=torch.int64)


@torch.library.custom_op("litz_tests::split_at_zero", mutates_args=())
def split_at_zero(x: torch.Tensor) -> list[torch.Tensor]:
    return [x[x > 0].clone(), x[x <= 0].clone()]


@split_at_zero.register_fake
def _(x):
    return [x.new_empty(new_size()), x.new_empty(new_size())]


@torch.library.custom_op("litz_tests::lies", mutates_args=())
def lies(x: torch.Tensor) -> torch.Tensor:
    return x[: int(x[0])].clone()


@lies.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size(min=2, max=4))


def shifted():
    """Vectors with all, some and none of their elements positive."""
    return [randn(9) + shift for shift in (0, 9, -9, 0.5)]


@each(
    alone=lambda x: positive(x),
    sum=lambda x: (positive(x) * 2).sum(),
    between=lambda x: (positive(x.sin() + 1) * 2).sum() + x,
    chained=lambda x: positive(positive(x) - 0.5).sum(),
    cumulative=lambda x: positive(x).cumsum(0),
    size=lambda x: x * positive(x).shape[0],
    two=lambda x: (positive(x) * 2, positive(-x).exp()),
    concatenated=lambda x: torch.cat([positive(x), x]),
    matrix=lambda x: (rows(x.view(3, 3))[0] + 1) @ x.view(3, 3),
    both=lambda x: rows(x.view(3, 3))[0] * rows(x.view(3, 3))[1][:, None],
    list=lambda x: [part.sum() for part in split_at_zero(x)],
    transposed=lambda x: positive(x.view(3, 3).t()) * 2,
    integers=lambda x: positive((4 * x).long()) % 3,
    halves=lambda x: positive(x.bfloat16()).float().sum(),
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_an_operator_decides_a_size(f, dynamic):
    fast = compiled(f, dynamic=dynamic)
    for x in shifted():
        same(fast(x), f(x))
    assert not litz.stats()["eager_graphs"] and not litz.stats()["eager_calls"]


@each(
    sum=lambda x: torch.cond(x.sum() > 0, lambda x: (positive(x) * 2).sum(), lambda x: x.sum(), (x,)),
    both=lambda x: torch.cond(x.sum() > 0, lambda x: (positive(x) * 2).sum(), lambda x: positive(-x).sum() - 1, (x,)),
)
def test_an_operator_decides_a_size_in_a_branch(f):
    fast = compiled(f)
    for x in shifted():
        same(fast(x), f(x))
    assert not litz.stats()["eager_graphs"] and not litz.stats()["eager_calls"]


def test_checks_of_sizes_that_an_operator_decides():
    def f(x):
        y = positive(x)
        torch._check(y.shape[0] > 2)
        return y * 2

    fast = compiled(f)
    same(fast(torch.ones(5)), torch.full((5,), 2.0))
    with pytest.raises(RuntimeError):
        fast(torch.tensor([1.0, -1.0, -1.0]))
    same(fast(torch.ones(3)), torch.full((3,), 2.0))
    assert not litz.stats()["eager_graphs"]


@needs_litz
def test_a_size_that_is_out_of_its_range_ends_the_call():
    fast = compiled(lambda x: lies(x) * 2)
    same(fast(torch.full((9,), 3.0)), torch.full((3,), 6.0))
    for size in (1, 7):
        with pytest.raises(RuntimeError, match="u0"):
            fast(torch.full((9,), float(size)))
    same(fast(torch.full((9,), 4.0)), torch.full((4,), 8.0))
    assert not litz.stats()["eager_graphs"]


def test_gradients_of_a_size_that_an_operator_decides():
    @torch.library.custom_op("litz_tests::positive_grad", mutates_args=())
    def positive_grad(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x).masked_scatter(x > 0, grad)

    positive_grad.register_fake(lambda grad, x: torch.empty_like(x))

    @torch.library.custom_op("litz_tests::positive_with", mutates_args=())
    def positive_with(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].clone()

    positive_with.register_fake(lambda x: x.new_empty(new_size()))
    setup = lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
    positive_with.register_autograd(lambda ctx, grad: positive_grad(grad, *ctx.saved_tensors), setup_context=setup)
    f = lambda x: (positive_with(x * 2) ** 2).sum()
    fast = compiled(f)
    for x in shifted():
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        same(torch.autograd.grad(fast(one), one), torch.autograd.grad(f(other), other))
    assert not litz.stats()["eager_graphs"]
