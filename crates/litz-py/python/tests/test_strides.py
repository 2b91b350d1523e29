"""Results lie in memory as eager mode's do: strides of results are equal, for channels last and for layouts that are not dense."""

import pytest
import torch
import torch.nn.functional as F
from checks import BACKEND, check, compiled, copied, each, needs_litz, same
from torch import nn, randn
from torch.utils._pytree import tree_leaves

litz = pytest.importorskip("litz") if BACKEND == "litz" else None

LAYOUTS = {
    "contiguous": lambda: randn(2, 3, 4, 5),
    "channels_last": lambda: randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": lambda: randn(2, 3, 5, 4).transpose(2, 3),
    "permuted": lambda: randn(5, 3, 2, 4).permute(2, 1, 3, 0),
    "sliced": lambda: randn(4, 3, 4, 9)[::2, :, :, 1:6],
    "expanded": lambda: randn(2, 1, 4, 5).expand(2, 3, 4, 5),
    "padded_rows": lambda: torch.empty_strided((2, 3, 4, 5), (96, 32, 8, 1)).copy_(randn(2, 3, 4, 5)),
    "one_channel_last": lambda: randn(2, 1, 4, 5).to(memory_format=torch.channels_last).expand(2, 3, 4, 5).clone(),
}

OPERATIONS = {
    "unary": lambda x: x.sin(),
    "binary": lambda x: x + x.flip(0),
    "with_contiguous": lambda x: x + torch.ones(2, 3, 4, 5),
    "contiguous_first": lambda x: torch.ones(2, 3, 4, 5) * x,
    "with_row": lambda x: x * torch.arange(5.0),
    "comparison": lambda x: x > 0,
    "conversion": lambda x: x.bfloat16(),
    "conversion_to_double": lambda x: x.to(torch.float64),
    "clone": lambda x: x.clone(),
    "clone_contiguous": lambda x: x.clone(memory_format=torch.contiguous_format),
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "contiguous": lambda x: x.contiguous(),
    "zeros_like": lambda x: torch.zeros_like(x),
    "empty_like_filled": lambda x: torch.empty_like(x).fill_(2),
    "full_like_contiguous": lambda x: torch.full_like(x, 3.0, memory_format=torch.contiguous_format),
    "zero": lambda x: (x * 2).zero_(),
    "zero_of_a_view": lambda x: x.clone().transpose(0, 1).zero_(),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "sum": lambda x: x.sum(1),
    "sum_keepdim": lambda x: x.sum((2, 3), keepdim=True),
    "amax": lambda x: x.amax(0),
    "softmax": lambda x: x.softmax(1),
    "cumsum": lambda x: x.cumsum(2),
    "cat": lambda x: torch.cat([x, x], 1),
    "stack": lambda x: torch.stack([x, x * 2]),
    "permuted_result": lambda x: (x + 1).permute(3, 0, 2, 1),
    "sliced_result": lambda x: (x + 1)[:, :, 1:, ::2],
    "reshaped": lambda x: (x + 1).reshape(6, 20),
    "flattened": lambda x: x.flatten(1) * 2,
    "index_select": lambda x: x.index_select(1, torch.tensor([2, 0])),
    "flip": lambda x: x.flip(3),
    "pad": lambda x: F.pad(x, (1, 1)),
    "max_pool": lambda x: F.max_pool2d(x, 2),
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "convolution": lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3)),
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3)),
    "log_sigmoid": lambda x: F.logsigmoid(x),
    "roll": lambda x: x.roll(1, -1),
    "roll_of_two_dimensions": lambda x: x.roll((1, -2), (1, 2)),
    "roll_of_all": lambda x: x.roll(3),
    "index_fill": lambda x: x.index_fill(2, torch.tensor([1]), 2.0),
    "upsample": lambda x: F.interpolate(x, scale_factor=2),
    "dropout_of_nothing": lambda x: F.dropout(x, 0.0) + 1,
    "sort": lambda x: x.sort(1).values,
    "tril": lambda x: x.tril(),
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "expanded_result": lambda x: (x[:, :1] + 1).expand(2, 4, 4, 5),
}


@each(**OPERATIONS)
def test_strides_of_results(f):
    check(lambda *xs: [f(x) for x in xs], *(make() for make in LAYOUTS.values()), reference=False)


@each(**OPERATIONS)
def test_strides_of_results_of_sizes_that_are_not_known(f):
    check(f, LAYOUTS["permuted"](), reference=False, dynamic=True)


@needs_litz
def test_a_result_that_the_program_gives_in_another_layout():
    litz.reset_stats()

    def f(x):
        return x.expand(x.shape[0], *x.shape).squeeze(), torch.linalg.vector_norm(x) - 2

    check(f, torch.randn(4, 3, 2).transpose(1, 2), gradients=True, dynamic=True)
    assert not litz.stats()["eager_graphs"]


@pytest.mark.parametrize("shape", [(3, 4), (3, 5)])
def test_padding_by_what_is_missing(shape):
    check(lambda x: F.pad(x * 2, (0, -x.shape[-1] % 4)), randn(*shape[::-1]).t(), dynamic=True)
    check(lambda x: F.pad(x * 2, (0, -x.shape[-1] % 4)), randn(*shape), dynamic=True)
    check(lambda x: F.pad(x, (-(x.shape[-1] // 4), 0, 0, -x.shape[0] // 4)), randn(2, *shape[::-1])[1].t(), dynamic=True)


def test_padding_by_what_one_size_after_another_lacks():
    f = lambda x: F.pad(x * 2, (0, -x.shape[-1] % 4))
    fast = compiled(f, dynamic=True)
    for size in (4, 5, 8, 7, 12):
        x = randn(size, 3).t()
        same(fast(x), f(x))


@pytest.mark.parametrize("left", LAYOUTS)
def test_strides_of_sums_of_two_layouts(left):
    check(lambda x, *ys: [x + y for y in ys], LAYOUTS[left](), *(make() for make in LAYOUTS.values()))


@each(
    transposed_product=lambda x, y: (x @ y).t(),
    product=lambda x, y: x @ y,
    product_of_transposed=lambda x, y: y.t() @ x.t(),
    linear=lambda x, y: F.linear(x, y.t()),
    outer=lambda x, y: x[:, :1] * y[:1],
    transposed_sum=lambda x, y: x.t() + y,
    batched=lambda x, y: torch.bmm(x.unsqueeze(0), y.unsqueeze(0)).transpose(1, 2),
    einsum=lambda x, y: torch.einsum("ij,jk->ki", x, y),
    both=lambda x, y: (x.t() * 2, (x * 2).t()),
)
def test_strides_of_matrices(f):
    check(f, randn(4, 4), randn(4, 4))


def test_strides_of_gradients():
    def grads(wrap):
        torch.manual_seed(1)
        x = randn(2, 4, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
        module = nn.Conv2d(4, 3, 3).to(memory_format=torch.channels_last)
        wrap(module)(x).sum().backward()
        return x.grad, module.weight.grad, module.bias.grad

    for found, wanted in zip(grads(compiled), grads(lambda module: module), strict=True):
        same(found, wanted)


@pytest.mark.parametrize("layout", ["transposed", "permuted", "sliced", "channels_last"])
@pytest.mark.parametrize("training", [True, False])
def test_strides_of_a_batch_norm_with_gradients(layout, training):
    check(nn.BatchNorm2d(3).train(training), LAYOUTS[layout](), gradients=True)


def test_a_model_in_channels_last():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.MaxPool2d(2)).to(memory_format=torch.channels_last)
    check(model, randn(2, 3, 8, 8).to(memory_format=torch.channels_last), gradients=True)


def test_volumes_in_channels_last():
    check(lambda x: (x * 2, x.sum(1), F.max_pool3d(x, 2)), randn(2, 3, 4, 4, 4).to(memory_format=torch.channels_last_3d))


def test_strides_are_read_in_python():
    def f(x):
        return x.contiguous() * 2 if not x.is_contiguous() else x + x.stride(0)

    check(f, randn(3, 4))
    check(f, randn(4, 3).t())


def test_another_layout_after_the_first():
    fast = compiled(lambda x: x * 2 + 1)
    for layout in LAYOUTS.values():
        x = layout()
        same(fast(x), x * 2 + 1)


@pytest.mark.parametrize("shape, stride", [((2, 3), (1, 2)), ((2, 3), (6, 2)), ((3, 2, 2), (2, 1, 6)), ((1, 3), (17, 1)), ((3, 1), (1, 5)), ((), ())])
def test_empty_strided(shape, stride):
    def f(x):
        return torch.empty_strided(shape, stride).fill_(1) + x, torch.empty_strided(shape, stride).copy_(x.expand(shape))

    check(f, randn(()))


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("name", ["copysign", "heaviside", "hypot", "logaddexp", "logaddexp2", "maximum"])
@pytest.mark.parametrize("shape", [(4,), (1, 4), (5, 1), (2, 1, 1), (2, 1, 1, 4)])
def test_an_operand_that_is_spread(name, shape, is_first):
    def apply(x, other):
        return getattr(torch, name)(*((other, x) if is_first else (x, other)))

    args = randn(2, 4, 5).mT, randn(shape)
    found, wanted = compiled(apply)(*args), apply(*args)
    same(found, wanted)
    assert found.stride() == wanted.stride()


@each(
    first=lambda x, at: x[at],
    second=lambda x, at: x[:, at],
    third=lambda x, at: x[:, :, at],
    last=lambda x, at: x[..., at],
    two=lambda x, at: x[:, at, at],
    two_apart=lambda x, at: x[:, at, :, at],
    rows=lambda x, at: x[:, at[:, None], torch.tensor([0, 0])],
)
@pytest.mark.parametrize("shape", [(4, 2, 1, 2), (4, 1, 2, 2), (1, 2, 4, 1)])
@pytest.mark.parametrize("order", [(2, 1, 0, 3), (3, 0, 2, 1), (1, 3, 2, 0)])
def test_dimensions_of_one_element_that_are_indexed(f, shape, order):
    """Where a stride of such a dimension has a say in the order of others."""
    x, at = randn(shape).permute(order), torch.zeros(3, dtype=torch.int64)
    found, wanted = compiled(f)(x, at), f(x, at)
    same(found, wanted)
    significant = lambda of: [stride for size, stride in zip(of.shape, of.stride()) if size > 1]
    assert significant(found) == significant(wanted)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape, order", [((4, 2, 1, 2), (2, 3, 0, 1)), ((4, 2, 2, 1), (3, 2, 0, 1)), ((3, 4, 2, 1, 2), (3, 4, 0, 1, 2)), ((2, 4, 1, 3), (0, 2, 1, 3))])
def test_a_batch_norm_of_one_image(shape, order, training):
    """Whose stride does not tell whether its channels are last."""
    x = randn(shape).permute(order)
    check(lambda x, m, v: F.batch_norm(x, None if training else m, None if training else v, training=training), x, torch.zeros(x.shape[1]), torch.ones(x.shape[1]))


def test_overlapping_results_of_as_strided():
    check(lambda x: (x * 2).as_strided((3, 3), (1, 1)), randn(5))


def test_resized_and_set_results():
    check(lambda x: x.new_empty(0).resize_(2, 3).fill_(1) + x, randn(2, 3), reference=False, fullgraph=False)


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("name", ["atan2", "copysign", "heaviside", "logaddexp", "logaddexp2", "maximum", "nextafter", "remainder"])
def test_an_operand_without_dimensions(name, is_first):
    def apply(x, number):
        return getattr(torch, name)(*((number, x) if is_first else (x, number)))

    args = randn(5, 4).t(), randn(())
    found, wanted = compiled(apply)(*args), apply(*args)
    same(found, wanted)
    assert found.stride() == wanted.stride() == (1, 4)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["atan2", "copysign", "heaviside", "logaddexp", "logaddexp2", "maximum", "nextafter", "remainder"])
def test_operands_of_two_orders(name, dynamic):
    fast, apply = compiled(getattr(torch, name), dynamic=dynamic), getattr(torch, name)
    x, y = randn(3, 2, 3), randn(3, 2, 3).transpose(0, 2)
    for args in ((x, y), (y, x), (x.mT, y.mT), (x[:, :1].expand(3, 2, 3), y)):
        found, wanted = fast(*args), apply(*args)
        same(found, wanted)
        assert found.stride() == wanted.stride()


def test_a_part_of_what_lies_with_gaps_begins_where_it_is():
    def part(x):
        return x.select_scatter(x.select(0, 1), 0, 0).diagonal(1)

    x = randn(8, 4)[::2]
    found, wanted = compiled(part)(x), part(x)
    same(found, wanted)
    assert (found.stride(), found.storage_offset()) == (wanted.stride(), wanted.storage_offset()) == ((9,), 1)



@pytest.mark.eager_graphs("a condition that never holds: .elements before the first of a tensor")
@each(
    behind=lambda x: x.as_strided((2, 3), (3, 1), 6) * 2,
    before=lambda x: x.as_strided((2,), (1,), 0) * 2,
    returned=lambda x: x.as_strided((3,), (2,), 5),
    of_a_view=lambda x: x[2:].as_strided((2,), (1,)) + 0,
    of_a_view_by_an_offset=lambda x: x[2:].t().as_strided((2,), (1,), 8) + 0,
    without_an_offset=lambda x: x.as_strided((4,), (3,)) * 1,
    copied=lambda x: torch.as_strided_copy(x, (2,), (1,), 7),
    written=lambda x: x.as_strided((2,), (1,), 7).add_(1),
    written_twice=lambda x: (x.as_strided((2,), (1,), 7).add_(1), x.as_strided((4,), (2,), 5).mul_(x.sum())),
    written_behind_others=lambda x: (x[1].add_(1), x[:, 2:].mul_(3), x.diagonal().zero_(), x.as_strided((2,), (1,), 12) * 1),
    of_a_result=lambda x: (x * 2).as_strided((2,), (1,), 7),
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_as_strided_counts_from_where_memory_begins(f, dynamic):
    fast = compiled(f, dynamic=dynamic)
    # Nothing guards where arguments begin in their memory.
    for begin in (4, 0, 2, 4):
        memory, other = (torch.arange(40.0) for _ in range(2))
        same(fast(memory[begin : begin + 24].view(4, 6)), f(other[begin : begin + 24].view(4, 6)))
        same(memory, other)


@pytest.mark.eager_graphs("elements behind the last one of a tensor")
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
def test_memory_behind_an_input(dynamic):
    """Nothing is known of it, but that eager mode refuses what is not there."""
    f = lambda x: x.as_strided((4, 4), (4, 1)) + 1
    memory = randn(16)
    fast = compiled(f, dynamic=dynamic)
    same(fast(memory[:12].view(4, 3)), f(memory[:12].view(4, 3)))
    with pytest.raises(RuntimeError, match="out of bounds"):
        fast(randn(4, 3))


SCATTERS = {
    "select": lambda x, y: torch.select_scatter(x, y, 0, 1),
    "select_column": lambda x, y: torch.select_scatter(x, y.new_ones(x.shape[0]), 1, 1),
    "slice": lambda x, y: torch.slice_scatter(x, y.expand(2, 3), 0, 1, 3),
    "diagonal": lambda x, y: torch.diagonal_scatter(x, y),
    "of_a_view": lambda x, y: torch.select_scatter(x[1:], y, 0, 0) + 1,
    "twice": lambda x, y: torch.diagonal_scatter(torch.select_scatter(x, y, 0, 1), y * 2),
}


@needs_litz
@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("has_size", [False, True], ids=["strides_alone", "of_a_size"])
def test_parts_that_are_written_where_elements_share_memory(name, has_size):
    """PyTorch writes to a copy that lies as the operand does. Strides that are symbols may be those of rows in one call, and of windows in the next."""
    f = lambda size, x, y: SCATTERS[name](x, y) + size.sum()
    litz.reset_stats()
    fast = compiled(f, dynamic=True)
    for row, column in [(7, 1), (5, 1), (3, 1), (2, 1), (4, 2), (7, 2), (3, 2), (2, 5), (2, 3), (1, 4), (1, 2), (0, 1), (6, 1)]:
        size = randn(row if has_size else 9)
        x, y = torch.arange(60.0).as_strided((4, 3), (row, column)), randn(3)
        same(fast(size, x, y), f(size, x, y), strides=False)
    stats = litz.stats()
    assert not stats["eager_graphs"] and 0 < stats["eager_calls"] < 7


@pytest.mark.eager_graphs("error.unsupported.: aten.as_strided", "the memory of an input whose strides no size gives")
@each(
    of_a_row=lambda x: x[-1].as_strided((2,), (2,), 1) + 0,
    of_a_row_from_there=lambda x: x[-1].as_strided((2,), (2,)) + 0,
    between_rows=lambda x: x.as_strided((24,), (1,), 0) + 0,
    returned=lambda x: x[1].as_strided((2,), (2,), 1),
    copied=lambda x: torch.as_strided_copy(x[1], (2,), (2,), 1),
    scattered_beside=lambda x: torch.as_strided_scatter(x[1], torch.ones(2), (2,), (2,), 1),
    scattered_to_a_result=lambda x: torch.as_strided_scatter((x * 2)[1], torch.ones(2), (2,), (2,), 7),
)
@pytest.mark.parametrize("layout", ["rows", "gaps", "columns"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_as_strided_of_a_part_counts_from_where_memory_begins(f, layout, dynamic):
    """Where Litz has no text for it, it is not for PyTorch to do it with the part alone."""
    make = {"rows": lambda x: x[:24].view(4, 6), "gaps": lambda x: x.view(8, 6)[::2], "columns": lambda x: x[:24].view(6, 4).t()}[layout]
    x = make(torch.arange(48.0))
    same(compiled(f, dynamic=dynamic)(x), f(x))


@needs_litz
@pytest.mark.parametrize("name", ["as_strided_copy", "as_strided_scatter"])
def test_what_is_left_to_pytorch_by_hand_counts_from_where_memory_begins(name):
    def f(x):
        with torch.fx.traceback.annotate({"litz": "eager"}):
            part = torch.as_strided_copy(x[2:], (2,), (1,), 7)
            return part if name == "as_strided_copy" else torch.as_strided_scatter(x * 2, part, (2,), (1,), 7)

    x = torch.arange(24.0).view(4, 6)
    same(compiled(f)(x), f(x))


@needs_litz
@each(
    scattered=lambda x: x.select_scatter(x.select(0, 1), 0, 0),
    updated=lambda x: [x[:, None].neg_()],
    kept=lambda x: x.slice_scatter(x[1:] * 2, 0, 1),
    beside_others=lambda x: (x.slice_scatter(x[1:] * 2, 0, 1), x[:, 0], x.sum()),
    beside_a_view=lambda x: [x.slice_scatter(x[1:] * 2, 0, 1)] * 2 + [x.select_scatter(x[:, 0], 1, 1)[1:]],
)
def test_gaps_of_rows_whose_sizes_are_symbols(f):
    """A result that lies as an argument does has its gaps, in calls of other sizes too."""
    litz.reset_stats()
    rows = lambda sizes, gap: torch.randn(sizes[0], sizes[1] + gap)[:, 1 : 1 + sizes[1]]
    fast = compiled(f, dynamic=True)
    for sizes, gap in (((3, 4), 2), ((5, 2), 2), ((4, 4), 3)):
        x = rows(sizes, gap)
        found, wanted = fast(*copied([x])), f(*copied([x]))
        same(found, wanted)
        for one, other in zip(tree_leaves(fast(*copied([x]))), tree_leaves(f(*copied([x])))):
            assert one.stride() == other.stride()
    assert not litz.stats()["eager_graphs"] and not litz.stats()["eager_calls"]


@needs_litz
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_of_which_tracing_says_that_elements_share_memory(dynamic):
    @torch.library.custom_op(f"litz_tests::spread_{dynamic}", mutates_args=())
    def spread(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin()[:, None] + torch.zeros(4), x.cos()

    @spread.register_fake
    def _(x):
        return torch.empty_strided((x.shape[0], 4), (1, 0), dtype=x.dtype), torch.empty_like(x)

    def f(x):
        wide, narrow = spread(x)
        return wide * 2 + narrow[:, None], wide

    litz.reset_stats()
    fast = compiled(f, dynamic=dynamic)
    for size in (5, 7) if dynamic else (5,):
        x = torch.randn(size)
        same(fast(x), f(x), strides=False)
    assert not litz.stats()["eager_graphs"]


@needs_litz
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_of_which_tracing_says_that_windows_share_memory(dynamic):
    """Strides by which elements would share memory are kept where these are equal, as NaNs are: nowhere else."""

    @torch.library.custom_op(f"litz_tests::windows_{dynamic}", mutates_args=())
    def windows(x: torch.Tensor, shared: bool) -> torch.Tensor:
        base = torch.cat([x, x[:3]])
        found = base.as_strided((x.shape[0], 4), (1, 1))
        return found.clone() if shared else found.contiguous() * torch.arange(1, 5)

    @windows.register_fake
    def _(x, shared):
        return torch.empty_strided((x.shape[0], 4), (1, 1), dtype=x.dtype)

    for shared in (True, False):
        x = torch.randn(5)
        x[2] = torch.nan
        f = lambda x: windows(x * 2, shared)
        found, wanted = compiled(f, dynamic=dynamic)(x), f(x)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
        assert found.stride() == ((1, 1) if shared else (4, 1))


@needs_litz
def test_the_stride_of_a_dimension_that_a_guard_knows_to_be_one_is_free():
    litz.reset_stats()
    f = lambda x: x[x.shape[0] // 2 :].to(torch.int16)
    for rows, columns in ((2, 3), (2, 5)):
        x = torch.randint(-9, 10, (2 * rows, columns))[::2]
        found, wanted = compiled(f, dynamic=True)(x), f(x)
        assert torch.equal(found, wanted) and found.stride(1) == wanted.stride(1)
    assert not litz.stats()["eager_graphs"] and not litz.stats()["eager_calls"]
