"""Operators of others see the memory that eager mode gives them: shared, written in part, or missing."""

import pytest
import torch
from checks import check, compiled, each, needs_litz, same
from torch import randn

import litz


@pytest.fixture(autouse=True)
def fresh():
    litz.reset_stats()


def stays():
    """Whether Litz ran all graphs of a test."""
    return not litz.stats()["eager_graphs"]


torch.library.define("litz_tests::maybe", "(Tensor x, bool has_second) -> (Tensor, Tensor)")


@torch.library.impl("litz_tests::maybe", "CPU")
def maybe(x, has_second):
    return x + 1, x * 2 if has_second else None


@torch.library.register_fake("litz_tests::maybe")
def _(x, has_second):
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.custom_op("litz_tests::other_memory", mutates_args=("x",))
def other_memory(x: torch.Tensor) -> None:
    x.set_(torch.ones(x.shape))


@torch.library.custom_op("litz_tests::larger", mutates_args=("x",))
def larger(x: torch.Tensor) -> None:
    x.resize_(10 * x.numel())


def resized(x):
    y = x * 2
    torch.ops.inductor.resize_storage_bytes_(y, 400)
    return y + 1


def resized_argument(x):
    torch.ops.inductor.resize_storage_bytes_(x, 400)
    return x + 1


def emptied_and_filled(x):
    y = torch.empty(10)
    torch.ops.inductor.resize_storage_bytes_(y, 0)
    torch.ops.inductor.resize_storage_bytes_(y, 40)
    y.copy_(x)
    return y + 1


@pytest.mark.eager_graphs(r"\S+, which changes what an input is, and not its elements")
@needs_litz
@each(intermediate=resized, argument=resized_argument, filled=emptied_and_filled)
def test_a_graph_that_resizes_memory_is_left_to_pytorch(f):
    check(f, randn(10), reference=False)
    ((reason, _),) = litz.stats()["eager_graphs"].items()
    assert reason.startswith("inductor.resize_storage_bytes_.default")


@each(
    read=lambda x: torch.ops.aten._lazy_clone(x) * 2,
    returned=lambda x: torch.ops.aten._lazy_clone(x),
    written=lambda x: (torch.ops.aten._lazy_clone(x).add_(1), x),
    base_written=lambda x: (torch.ops.aten._lazy_clone(x), x.add_(1)),
)
def test_lazy_clone(f):
    check(f, randn(4, 5).t(), strides=False)
    assert stays()


def test_a_result_that_nobody_reads_may_be_missing():
    check(lambda x: torch.ops.litz_tests.maybe(x, False)[0] * 2, randn(5))
    check(lambda x: torch.ops.litz_tests.maybe(x, True), randn(5))
    assert stays()


@needs_litz
def test_a_result_that_is_read_and_missing_is_named():
    fast = compiled(lambda x: torch.ops.litz_tests.maybe(x, False)[1] * 2)
    with pytest.raises(RuntimeError, match="litz_tests.maybe.default gave no tensor for result 1"):
        fast(randn(5))
    assert stays()


@needs_litz
@each(other=(other_memory, "gave an argument other memory"), larger=(larger, "not resizable"))
def test_an_operator_that_gives_an_argument_other_memory_is_an_error(f):
    op, message = f

    def changed(x):
        y = x * 2
        op(y)
        return y + 1

    with pytest.raises(RuntimeError, match=message):
        compiled(changed)(randn(5))
    assert stays()
    same(compiled(lambda x: x + 1)(torch.zeros(3)), torch.ones(3))
