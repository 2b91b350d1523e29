"""Operators of others see the memory that eager mode gives them: shared, written in part, or missing."""

import pytest
import torch
from checks import check, compiled, each, needs_litz, same
from torch import randn

import litz


@pytest.fixture(autouse=True)
def forgotten():
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
@pytest.mark.eager_graphs(r"inductor\.resize_storage_bytes_\.default")
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
    with pytest.raises(RuntimeError, match="litz_tests.maybe.default gave no tensor for result 1") as raised:
        fast(randn(5))
    (note,) = raised.value.__notes__
    assert note.startswith("litz: in litz_tests.maybe.default at test_custom_memory.py:")
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


@torch.library.custom_op("litz_tests::two", mutates_args=("x", "y"))
def two(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(1)
    y.mul_(2)


@torch.library.custom_op("litz_tests::times_by", mutates_args=("x",))
def times(x: torch.Tensor, by: torch.Tensor) -> None:
    x.add_(1)
    x.mul_(by.clone())


@torch.library.custom_op("litz_tests::number", mutates_args=("xs",))
def number(xs: list[torch.Tensor], first: float, seen: torch.Tensor | None = None) -> torch.Tensor:
    for at, x in enumerate(xs):
        x.add_(first + at)
    return xs[0].sum() if seen is None else seen.clone()


@number.register_fake
def _(xs, first, seen=None):
    return xs[0].new_empty(()) if seen is None else torch.empty_like(seen)


@torch.library.custom_op("litz_tests::fill_with", mutates_args=("x",))
def fill_with(x: torch.Tensor, value: float) -> None:
    x.copy_(torch.arange(x.numel()).view(x.shape) + value)


SHARED = {
    "equal": lambda y: two(y, y),
    "overlapping": lambda y: two(y[0:3], y[1:4]),
    "interleaved": lambda y: two(y[::2], y[1::2]),
    "columns": lambda y: two(y[:, 0], y[:, 2]),
    "columns_that_meet": lambda y: two(y[:, 0:3], y[:, 1:4]),
    "apart": lambda y: two(y[0:2], y[2:4]),
    "transposed": lambda y: two(y.t(), y),
    "row_and_all": lambda y: two(y[1], y),
    "diagonal": lambda y: two(y.diagonal(), y[0]),
    "flat": lambda y: two(y.view(-1)[3:9], y[1:3]),
    "read_expanded": lambda y: times(y[1:4], y[1].expand(3, -1)),
    "list": lambda y: number([y[0], y[1:3], y[2], y], 1.0),
    "read_too": lambda y: times(y, y),
    "read_a_part": lambda y: times(y[1:], y[:-1]),
    "read_in_a_list": lambda y: number([y[1:], y[:2]], 2.0, y),
    "nothing_of_it": lambda y: two(y[2:2], y[1:]),
    "twice": lambda y: (two(y, y), times(y[0], y[1]), two(y[:, 1], y)),
}


def of_intermediate(f, x):
    y = x * 3
    returned = f(y)
    return y + 1, returned if isinstance(returned, torch.Tensor) else None


def of_argument(f, x):
    returned = f(x)
    return x * 2, returned if isinstance(returned, torch.Tensor) else None


@each(**SHARED)
@pytest.mark.parametrize("of", [of_intermediate, of_argument])
@pytest.mark.parametrize("dynamic", [False, True])
def test_arguments_share_memory(f, of, dynamic):
    """What the operator writes to one of them is there in the others, as in eager mode."""
    check(lambda x: of(f, x), torch.arange(20.0).view(5, 4) - 7, reference=False, exact=True, dynamic=dynamic)
    assert stays()


@needs_litz
@each(
    equal=lambda y, at: two(y, y),
    overlapping=lambda y, at: two(y[0:3], y[1:4]),
    columns=lambda y, at: two(y[:, 0], y[:, 2]),
    read_too=lambda y, at: times(y[1:], y[:-1]),
    a_row=lambda y, at: fill_with(y[2], 1.0),
    a_row_at_a_symbol=lambda y, at: fill_with(y[at], 1.0),
    rows_at_a_symbol=lambda y, at: two(y[at : at + 2], y[:at]),
)
def test_what_is_written_in_part_is_not_copied(f):
    """Neither the rows nor what they are rows of, where nobody reads what was there before."""

    def intermediate(x, at):
        y = x.cumsum(0)
        f(y, at)
        return y

    def argument(x, at):
        f(x, at)

    x = torch.arange(20.0).view(5, 4)
    for made, nests in ((intermediate, 1), (argument, 0)):
        for at in (3, 2):
            fast, one, other = compiled(made, dynamic=True), x.clone(), x.clone()
            same(fast(one, at), made(other, at))
            same(one, other)
    explained = litz.explain(argument, x.clone(), 3, dynamic=True)
    (graph,) = explained.graphs
    assert graph.kernels == 0, graph.text("loops")
    assert stays()


@needs_litz
@each(
    empty=lambda x: torch.empty(x.shape),
    empty_like=lambda x: torch.empty_like(x),
    new_empty=lambda x: x.new_empty(x.shape),
    strided=lambda x: torch.empty_strided((3, 4), (1, 3)),
    integers=lambda x: torch.empty_like(x, dtype=torch.int64),
)
def test_memory_that_an_operator_fills_is_not_filled_before(f):
    def filled(x):
        y = f(x)
        fill_with(y, 2.0)
        return y

    check(lambda x: filled(x) + x, randn(3, 4))
    check(filled, randn(3, 4), strides=False)
    (graph,) = litz.explain(filled, randn(3, 4)).graphs
    assert graph.kernels == 0 and "fresh" in graph.text("loops"), graph.text("loops")
    assert stays()


def test_fresh_memory_that_nobody_fills_is_a_tensor():
    def unfilled(x):
        y = torch.empty_like(x)
        two(y[0], x)
        return y[1:] * 0 == 0, x

    assert compiled(unfilled)(randn(3, 4))[0].shape == (2, 4)
    assert stays()
