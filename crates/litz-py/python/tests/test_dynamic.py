"""Sizes that are not known when a graph is compiled: dynamic shapes, symbolic integers in and out, and sizes that data decides."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from checks import BACKEND, check, compiled, counted, each, needs_litz, same, shapes
from torch import nn, randn

import litz

litz = pytest.importorskip("litz") if BACKEND == "litz" else None


@each(
    pointwise=lambda x: (x * 2).sin() + 1,
    sum=lambda x: x.sum(),
    sum_of_rows=lambda x: x.sum(1),
    sum_of_columns=lambda x: x.sum(0),
    mean=lambda x: x.mean(-1),
    var=lambda x: x.var(1),
    softmax=lambda x: x.softmax(-1),
    log_softmax_of_columns=lambda x: x.log_softmax(0),
    layer_norm=lambda x: F.layer_norm(x, (x.shape[1],)),
    amax=lambda x: x.amax(1),
    argmax=lambda x: x.argmax(1),
    cumsum=lambda x: x.cumsum(0),
    transposed=lambda x: x.t() * 2,
    contiguous=lambda x: x.t().contiguous(),
    flattened=lambda x: x.flatten() + 1,
    split_dimension=lambda x: x.reshape(x.shape[0], x.shape[1] // 2, 2).sum(1),
    merged=lambda x: x.unsqueeze(0).expand(3, -1, -1).reshape(-1, x.shape[1]) + 1,
    size_in_arithmetic=lambda x: x * x.shape[0] + x.shape[1] / 2,
    size_as_value=lambda x: torch.full((2,), x.shape[0]) + x.numel(),
    arange=lambda x: x + torch.arange(x.shape[1]),
    zeros=lambda x: torch.zeros(x.shape[0] + 1, x.shape[1]) + x[0],
    ones_like=lambda x: torch.ones_like(x) - x,
    eye=lambda x: torch.eye(x.shape[0]) @ x,
    slice=lambda x: x[:, 1:] * 2,
    slice_to_half=lambda x: x[: x.shape[0] // 2] + 1,
    last=lambda x: x[-1] + x[:, -1:].sum(),
    every_other=lambda x: x[:, ::2] * 3,
    cat=lambda x: torch.cat([x, x[:1], x * 2]),
    stack=lambda x: torch.stack([x, x + 1], 1),
    pad=lambda x: F.pad(x, (1, 2, 0, 1), value=3.0),
    pad_to_a_multiple=lambda x: F.pad(x, (0, -x.shape[1] % 8)),
    repeat=lambda x: x.repeat(2, 3),
    flip=lambda x: x.flip(0),
    roll=lambda x: x.roll(1, 1),
    tril=lambda x: x.tril(),
    outer=lambda x: x[:, :1] * x[:1],
    matmul=lambda x: x @ x.t(),
    matmul_by_constant=lambda x: x @ torch.ones(x.shape[1], 3),
    mask=lambda x: torch.where(torch.arange(x.shape[0])[:, None] < x.shape[0] // 2, x, 0.0),
    causal_mask=lambda x: torch.ones(x.shape[0], x.shape[0], dtype=torch.bool).tril() & (x[:, :1] > 0),
    gather=lambda x: x.gather(1, x.argsort(1)),
    sort=lambda x: x.sort(1).values,
    index_select=lambda x: x.index_select(0, torch.tensor([0, 1, 0])),
    unfold=lambda x: x.unfold(1, 2, 1).sum(-1),
    diagonal=lambda x: x.diagonal() * 2,
    chunk=lambda x: x.chunk(2, 0)[0] + 1,
    maximum_of_sizes=lambda x: x.new_zeros(max(x.shape[0], 4)) + min(x.shape[0], 5),
    bfloat16=lambda x: (x.bfloat16() * 2).float(),
    views_returned=lambda x: (x[1:], x.view(-1), x.t()),
    sizes_returned=lambda x: (x.shape[0], x.numel(), x.shape[1] * 2 + 1, x + 1),
    mutated=lambda x: x.add_(1)[1:] * 2,
    mutated_view=lambda x: (x[1:].mul_(2), x.sum())[1],
    as_strided=lambda x: x.as_strided((x.shape[0], 2), (x.shape[1], 1)) * 2,
)
def test_one_compilation_for_all_sizes(f):
    shapes(f, (randn(6, 8),), (randn(4, 10),), (randn(17, 6),), (randn(31, 34),), dynamic=True, most=1)


@each(
    linear=lambda x, w: F.linear(x, w),
    sum=lambda x, w: (x * w[0]).sum(1),
    softmax=lambda x, w: (x @ w.t()).softmax(-1),
    layer_norm=lambda x, w: F.layer_norm(x, (8,), w[0]),
    slices=lambda x, w: x[1:, 2:] + w[0, 2:],
    mean=lambda x, w: (x * w[1]).tanh().mean(0),
    cat=lambda x, w: torch.cat([x, w]),
)
def test_gradients_for_all_sizes(f):
    def args(rows):
        return randn(rows, 8).requires_grad_(), randn(3, 8).requires_grad_()

    shapes(f, args(5), args(9), args(32), gradients=True, dynamic=True, most=2)


@needs_litz
@each(
    cat=lambda x, y: torch.cat([x, y]) * 2,
    cat_of_three=lambda x, y: torch.cat([x, y, x]).tanh(),
    cat_of_a_slice=lambda x, y: torch.cat([x, y[1:]]).exp(),
    cat_of_cats=lambda x, y: torch.cat([torch.cat([x, y]).sin(), x]),
    pad=lambda x, y: F.pad(x, (0, 0, 1, y.shape[0])).tanh(),
    product=lambda x, y: x.view(-1).index_copy(0, torch.tensor([1, 0]), y.view(-1)[:2]).sin(),
    half=lambda x, y: x.exp().chunk(2)[0],
    rest=lambda x, y: x.exp().chunk(2)[1],
    every_other=lambda x, y: x[::2].sin() + y.sum(),
    products_of_sums=lambda x, y: torch.cat([x, y]).view(-1).sin(),
)
def test_gradients_of_sums_of_sizes(f):
    litz.reset_stats()

    def args(*rows):
        return [randn(n, 3).requires_grad_() for n in rows]

    def g(x, y):
        return f(x, y) + y.sum()

    shapes(g, args(5, 4), args(9, 3), args(7, 32), gradients=True, dynamic=True, most=1)
    assert not litz.stats()["eager_graphs"] and not litz.stats()["eager_calls"]


@needs_litz
def test_views_with_a_stride_that_is_no_product_of_sizes():
    litz.reset_stats()

    def f(x):
        return x[1:], x.index_add(0, torch.tensor([1, 0]), x.narrow(0, 0, 2)), x[:, 1:]

    check(f, randn(6, 3, 4)[::2], dynamic=True)
    assert not litz.stats()["eager_graphs"] and not litz.stats()["eager_calls"]


@needs_litz
@each(
    root=lambda x: x / x.shape[-1] ** 0.5,
    square_root=lambda x: x / math.sqrt(x.shape[0]),
    quotient=lambda x: x * (x.shape[0] / 3),
    inverse=lambda x: x * (1 / x.shape[0]),
    float=lambda x: x + float(x.shape[0]),
    power=lambda x: x * x.shape[0] ** 1.5,
    power_of_two=lambda x: x * 2.0 ** x.shape[1],
    functions=lambda x: x * math.sin(x.shape[0]) + math.log2(x.shape[1]),
    larger=lambda x: x * max(x.shape[0] / 3, x.shape[1] / 2),
    interpolated=lambda x: F.interpolate(x[None], scale_factor=2.0),
)
def test_floats_of_sizes(f):
    litz.reset_stats()
    shapes(f, (randn(4, 6),), (randn(9, 5),), dynamic=True, most=1)
    assert not litz.stats()["eager_graphs"]


@needs_litz
def test_sizes_that_a_guard_makes_equal():
    litz.reset_stats()

    def f(x):
        return F.group_norm(x, 2).clamp(0, 1)

    shapes(f, (randn(4, 4, 3),), (randn(6, 6, 5),), dynamic=True, most=1)
    shapes(f, (randn(3, 4, 3).requires_grad_(),), (randn(5, 6, 5).requires_grad_(),), gradients=True, dynamic=True)
    assert not litz.stats()["eager_graphs"] and not litz.stats()["eager_calls"]


@each(
    convolution=lambda x: F.conv2d(x, torch.ones(2, 3, 3, 3), padding=1),
    strided_convolution=lambda x: F.conv2d(x, torch.ones(2, 3, 3, 3), stride=2),
    max_pool=lambda x: F.max_pool2d(x, 2),
    avg_pool=lambda x: F.avg_pool2d(x, 3, 2, 1),
    global_pool=lambda x: F.adaptive_avg_pool2d(x, 1),
    upsample=lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
    bilinear=lambda x: F.interpolate(x, size=(9, 11), mode="bilinear"),
    batch_norm=lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3)),
    group_norm=lambda x: F.group_norm(x, 3),
    flattened=lambda x: x.flatten(2).mean(-1),
)
def test_images_of_all_sizes(f):
    shapes(f, (randn(2, 3, 8, 10),), (randn(3, 3, 12, 6),), (randn(4, 3, 9, 7),), dynamic=True)


def test_attention_of_all_lengths():
    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def args(length):
        return tuple(randn(2, 2, length, 8) for _ in range(3))

    shapes(f, args(5), args(9), args(33), dynamic=True)


def test_batches_of_a_transformer_layer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    shapes(layer, (randn(2, 5, 8),), (randn(3, 7, 8),), (randn(4, 9, 8),), dynamic=True)


def test_embedding_of_all_lengths():
    table = nn.Embedding(10, 4)
    shapes(lambda x: table(x) + torch.arange(x.shape[1])[:, None], *((torch.randint(10, (2, n)),) for n in (3, 5, 8)), dynamic=True, most=2)


def test_the_second_shape_makes_sizes_dynamic():
    fast, counter = counted(lambda x: x * 2 + x.shape[0])
    for rows in (4, 5, 6, 7):
        x = randn(rows, 3)
        same(fast(x), x * 2 + rows)
    assert counter.frame_count == 2


def test_static_shapes_compile_for_each_shape():
    fast, counter = counted(lambda x: x * 2, dynamic=False)
    for rows in (4, 5, 6, 4):
        x = randn(rows, 3)
        same(fast(x), x * 2)
    assert counter.frame_count == 3


@pytest.mark.parametrize("bounds", [{}, {"min": 2, "max": 64}])
def test_mark_dynamic(bounds):
    fast, counter = counted(lambda x: x.sum(0) * x.shape[0])
    for rows in (4, 9, 33):
        x = randn(rows, 3)
        torch._dynamo.mark_dynamic(x, 0, **bounds)
        same(fast(x), x.sum(0) * rows)
    assert counter.frame_count == 1


def test_mark_static():
    fast, counter = counted(lambda x: x + 1, dynamic=True)
    for rows in (4, 5):
        x = randn(rows, 3)
        torch._dynamo.mark_static(x, 0)
        same(fast(x), x + 1)
    assert counter.frame_count == 2


def test_mark_unbacked():
    fast, counter = counted(lambda x: (x * 2).sum(1))
    for rows in (4, 0, 1, 7):
        x = randn(rows, 3)
        torch._dynamo.decorators.mark_unbacked(x, 0)
        same(fast(x), (x * 2).sum(1))
    assert counter.frame_count == 1


def test_sizes_zero_and_one_after_others():
    shapes(lambda x: (x * 2).sum(0) + x.shape[0], *((randn(rows, 4),) for rows in (5, 6, 1, 0, 2, 9)), dynamic=True)


def test_empty_reductions_after_others():
    shapes(lambda x: (x.sum(), x.prod(), x.mean(), x.sum(1)), *((randn(rows, 4),) for rows in (5, 0)), dynamic=True)


def test_two_arguments_of_one_size():
    shapes(lambda x, y: x + y, (randn(4), randn(4)), (randn(7), randn(7)), dynamic=True, most=1)


def test_a_size_that_becomes_one_broadcasts():
    shapes(lambda x, y: x + y, (randn(4, 3), randn(4, 3)), (randn(4, 3), randn(1, 3)), (randn(5, 3), randn(5, 3)), dynamic=True)


def test_a_branch_on_a_size():
    def f(x):
        return x * 2 if x.shape[0] > 5 else x - 1

    shapes(f, (randn(4),), (randn(9),), (randn(5),), (randn(6),), dynamic=True, most=2)


def test_a_loop_over_a_size():
    def f(x):
        total = x[0]
        for row in range(1, x.shape[0]):
            total = total * 0.5 + x[row]
        return total

    shapes(f, (randn(3, 4),), (randn(5, 4),), dynamic=True)


def test_strides_of_other_layouts():
    def f(x):
        return x * 2 + x.stride(0)

    shapes(f, (randn(4, 6),), (randn(6, 5).t(),), (randn(8, 12)[:, :5],), (randn(8, 12)[::2, 1:],), dynamic=True)


@needs_litz
def test_strides_that_no_size_gives():
    """PyTorch knows of such a stride that it is not the size; the graph has none for it."""
    litz.reset_stats()
    base = randn(64, dtype=torch.float64)
    f = lambda x: 0 / (0 + x.abs())
    shapes(f, (base[::2],), (base[3:40:3],), (base[:7],), dynamic=True)
    assert not litz.stats()["eager_graphs"]


def test_storage_offsets():
    base = randn(20)
    shapes(lambda x: x + 1, (base[1:6],), (base[3:12],), (base[7:],), dynamic=True)


@each(
    factor=lambda x, n: x * n,
    repeated=lambda x, n: x.repeat(n),
    row=lambda x, n: x[:n] + 1,
    added_to_size=lambda x, n: x.new_zeros(x.shape[0] + n),
    returned=lambda x, n: (x + 1, n * 2, n + x.shape[0]),
    shifted=lambda x, n: torch.roll(x, n),
    power=lambda x, n: x.abs() ** n,
    filled=lambda x, n: torch.full((3,), n) + x[:3],
    arange=lambda x, n: torch.arange(n) * 2,
    shape=lambda x, n: x.view(1, -1).expand(n, -1) * 2,
    compared=lambda x, n: torch.arange(8) < n,
)
def test_integers_as_arguments(f):
    shapes(f, (randn(6), 3), (randn(6), 4), (randn(6), 5), (randn(6), 2), dynamic=True)


def test_integers_become_symbols_by_themselves():
    fast, counter = counted(lambda x, n: x * n)
    for number in (3, 4, 5, 6):
        same(fast(torch.ones(3), number), torch.ones(3) * number)
    assert counter.frame_count <= 2


def test_floats_as_arguments():
    shapes(lambda x, a: (x * a, x + a / 3, a * 2), (randn(4), 0.5), (randn(4), 0.75), (randn(4), -2.25), dynamic=True)


def test_booleans_as_arguments():
    shapes(lambda x, flag: x * 2 if flag else x - 1, (randn(4), True), (randn(4), False), dynamic=True)


@each(
    floor=lambda x: x.new_zeros(x.shape[0] // 3, x.shape[0] % 3 + 1),
    ceiling=lambda x: x.new_ones(-(-x.shape[0] // 4)),
    square=lambda x: x.new_ones(x.shape[0] * x.shape[0]),
    product=lambda x: x.new_ones(x.shape[0] * x.shape[1] - 1),
    root=lambda x: x * x.shape[1] ** 0.5,
    quotient=lambda x: x / (x.shape[0] / x.shape[1]),
    clamp=lambda x: x[: min(x.shape[0], 3)] * max(x.shape[1], 7),
    tuple=lambda x: tuple(x.shape),
    difference=lambda x: x.new_zeros(x.shape[0] + 8 - x.shape[0]),
)
def test_arithmetic_of_sizes(f):
    shapes(f, (randn(5, 8),), (randn(7, 6),), (randn(12, 9),), dynamic=True)


@pytest.fixture
def captures_data():
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


def item_as_size(x, n):
    size = n.item()
    torch._check(size >= 0)
    torch._check(size <= 16)
    return torch.zeros(size) + 1


def item_as_factor(x, n):
    return x * n.item()


def item_of_a_float(x, n):
    return x + n.to(torch.float32).div(2).item()


def item_as_slice(x, n):
    size = n.item()
    torch._check(size >= 0)
    torch._check(size <= x.shape[0])
    return x[:size].clone() * 2


def item_as_narrow(x, n):
    size = n.item()
    torch._check(size >= 1)
    torch._check(size <= x.shape[0])
    return x.narrow(0, 0, size).sum()


def item_is_returned(x, n):
    return x + 1, n.item()


def item_as_length_of_arange(x, n):
    size = n.item()
    torch._check(size >= 0)
    return torch.arange(size) * 3


def item_expands(x, n):
    size = n.item()
    torch._check(size >= 0)
    return x[:1].expand(size) * 2


def items_of_a_list(x, n):
    first, second = torch.stack([n, n + 1]).tolist()
    torch._check(first >= 0)
    torch._check(second >= 0)
    return torch.ones(first, second).cumsum(1)


def item_splits(x, n):
    size = n.item()
    torch._check(size >= 0)
    torch._check(size <= x.shape[0])
    left, right = x.split([size, x.shape[0] - size])
    return left.sum(), right.sum()


@each(
    size=item_as_size,
    factor=item_as_factor,
    float_=item_of_a_float,
    slice_=item_as_slice,
    narrow=item_as_narrow,
    returned=item_is_returned,
    arange=item_as_length_of_arange,
    expand=item_expands,
    list_=items_of_a_list,
    split=item_splits,
)
def test_item(captures_data, f):
    fast, counter = counted(f)
    for number in (3, 5, 1, 8):
        x = randn(8)
        same(fast(x, torch.tensor(number)), f(x, torch.tensor(number)))
    assert counter.frame_count <= 2


def test_a_check_of_an_item_fails(captures_data):
    fast = compiled(item_as_size)
    same(fast(randn(8), torch.tensor(4)), torch.ones(4))
    with pytest.raises(RuntimeError):
        fast(randn(8), torch.tensor(17))
    same(fast(randn(8), torch.tensor(5)), torch.ones(5))


@each(
    nonzero=lambda x: x.nonzero(),
    nonzero_tuple=lambda x: torch.nonzero(x > 0, as_tuple=True),
    nonzero_computed=lambda x: (x > 0).nonzero() * 2 + 1,
    masked_select=lambda x: x.masked_select(x > 0) * 2,
    index_by_mask=lambda x: x[x > 0].exp(),
    sum_by_mask=lambda x: x[x > 0].sum(),
    unique=lambda x: (x > 0).long().unique() + 1,
    repeat_interleave=lambda x: torch.arange(3).repeat_interleave((x[:3, 0] > 0).long() + 1) * 2,
    argwhere=lambda x: torch.argwhere(x > 0).float().mean(0),
    where_with_one_argument=lambda x: torch.where(x > 0)[0] + 1,
    size_of_nonzero=lambda x: (x > 0).nonzero().shape[0] * x,
    bincount=lambda x: (x > 0).long().flatten().bincount(minlength=3) + 1,
)
def test_sizes_that_data_decides(captures_data, f):
    fast, counter = counted(f)
    for shift in (0.0, 1.0, -1.0):
        x = randn(4, 5) + shift
        same(fast(x), f(x))
    assert counter.frame_count == 1


def test_no_element_is_selected(captures_data):
    fast = compiled(lambda x: (x[x > 0] * 2, (x > 0).nonzero()))
    for x in (torch.tensor([1.0, -1.0]), torch.tensor([-1.0, -2.0]), torch.tensor([3.0, 4.0])):
        same(fast(x), (x[x > 0] * 2, (x > 0).nonzero()))


def test_experts_of_tokens(captures_data):
    experts = [nn.Linear(4, 4) for _ in range(3)]

    def f(x):
        choice = (x @ torch.linspace(-1, 1, 12).view(4, 3)).argmax(-1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(experts):
            rows = (choice == number).nonzero().squeeze(1)
            result = result.index_add(0, rows, expert(x[rows]))
        return result

    with torch.no_grad():
        shapes(f, (randn(7, 4),), (randn(7, 4) + 2,), (randn(7, 4) - 2,))


def test_a_growing_cache():
    def f(keys, key, query):
        keys = torch.cat([keys, key], 1)
        weights = (query @ keys.mT / keys.shape[-1] ** 0.5).softmax(-1)
        return keys, weights @ keys

    fast, counter = counted(f)
    found = wanted = randn(2, 3, 4)
    for _ in range(5):
        key, query = randn(2, 1, 4), randn(2, 1, 4)
        found, first = fast(found, key, query)
        wanted, second = f(wanted, key, query)
        same((found, first), (wanted, second))
    assert counter.frame_count <= 2


@each(
    addbmm=lambda bias, x, y, beta, alpha: torch.addbmm(bias, x, y, beta=beta, alpha=alpha),
    baddbmm=lambda bias, x, y, beta, alpha: torch.baddbmm(bias, x, y, beta=beta, alpha=alpha),
    addmm=lambda bias, x, y, beta, alpha: torch.addmm(bias, x[0], y[0], beta=beta, alpha=alpha),
    addmv=lambda bias, x, y, beta, alpha: torch.addmv(bias[:, 0], x[0], y[0, :, 0], beta=beta, alpha=alpha),
    addr=lambda bias, x, y, beta, alpha: torch.addr(bias, x[0, :, 0], y[0, 0], beta=beta, alpha=alpha),
)
def test_factors_that_calls_give(f):
    """A beta of 0 leaves the bias out, and what is no number in it; which beta is 0 is known when it is called alone."""
    nothing, x, y = torch.full((3, 4), torch.nan), randn(2, 3, 5), randn(2, 5, 4)
    shapes(f, *((nothing if beta == 0 else randn(3, 4), x, y, beta, alpha) for beta, alpha in ((3, 2), (0, 3), (2, 1), (1, 2))), dynamic=True)


@needs_litz
@each(data=lambda x: x.nonzero() * 2, sizes=lambda x: x[1:] * x.shape[0])
def test_nothing_deprecated_is_asked_for(f):
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        litz.reset_stats()
        check(f, randn(5), dynamic=True)
        assert not litz.stats()["eager_graphs"]
