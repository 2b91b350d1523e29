"""Reads and writes by index tensors, masks and embeddings, with negative, repeated and missing indices."""

import pytest
import torch
import torch.nn.functional as F
from checks import check, compiled, each, same
from torch import nn, randn

I = torch.tensor([0, 2, 2, 1])
J = torch.tensor([3, 0, 1, 1])


@each(
    one=lambda x, i, j: x[i],
    second=lambda x, i, j: x[:, i],
    last=lambda x, i, j: x[..., i],
    two=lambda x, i, j: x[i, j],
    two_apart=lambda x, i, j: x[i, :, j],
    two_later=lambda x, i, j: x[:, i, j],
    broadcast=lambda x, i, j: x[i[:, None], j],
    number_and_tensor=lambda x, i, j: x[1, :, i],
    slice_and_tensor=lambda x, i, j: x[1:, i, ::2],
    none_and_tensor=lambda x, i, j: x[None, i],
    negative=lambda x, i, j: x[-i - 1],
    list=lambda x, i, j: x[[0, 2, 0]],
    int32=lambda x, i, j: x[i.int()],
    computed=lambda x, i, j: x[(i * 2) % 3] * 2,
    three=lambda x, i, j: x[i, j, i],
    matrix_of_indices=lambda x, i, j: x[torch.stack([i, i + 0])],
    index_select=lambda x, i, j: x.index_select(1, i),
    take=lambda x, i, j: x.take(i * 7),
    take_along_dim=lambda x, i, j: torch.take_along_dim(x, x.argsort(2), 2),
    gather=lambda x, i, j: x.gather(0, i.view(1, 4, 1).expand(2, 4, 5)),
    gather_last=lambda x, i, j: x.gather(2, j.view(1, 1, 4).expand(3, 4, 4)),
    gather_smaller=lambda x, i, j: x.gather(1, i[:2].view(1, 2, 1)),
    rows_of_computed_rows=lambda x, i, j: x.exp()[i][j],
    index_of_index=lambda x, i, j: x[i[j]],
)
def test_reads(f):
    check(f, randn(3, 4, 5), I, J, gradients=True)


@each(
    index_put=lambda x, y, i, j: x.index_put((i, j), y[:, 0]),
    index_put_accumulates=lambda x, y, i, j: x.index_put((i,), y, accumulate=True),
    index_put_of_a_number=lambda x, y, i, j: torch.index_put(x, (i, j), torch.tensor(2.0, dtype=x.dtype)),
    index_add=lambda x, y, i, j: x.index_add(0, i, y, alpha=2),
    index_add_to_columns=lambda x, y, i, j: x.index_add(1, i, y[:3]),
    index_copy=lambda x, y, i, j: x.index_copy(0, i[:2], y[:2]),
    index_fill=lambda x, y, i, j: x.index_fill(1, i, 3.0) + y[:3],
    scatter=lambda x, y, i, j: x.scatter(1, torch.tensor([[3, 0, 1], [2, 1, 0], [0, 2, 3]]), y[:3, :3]),
    scatter_number=lambda x, y, i, j: x.scatter(1, j.view(2, 2), 5.0) + y[:3],
    scatter_add=lambda x, y, i, j: x.scatter_add(0, i.view(4, 1).expand(4, 4), y),
    scatter_sum=lambda x, y, i, j: x.scatter_reduce(0, i.view(4, 1).expand(4, 4), y, "sum", include_self=False),
    scatter_mean=lambda x, y, i, j: x.scatter_reduce(0, i.view(4, 1).expand(4, 4), y, "mean"),
    scatter_max=lambda x, y, i, j: x.scatter_reduce(0, i.view(4, 1).expand(4, 4), y, "amax"),
    scatter_min_alone=lambda x, y, i, j: x.scatter_reduce(0, i.view(4, 1).expand(4, 4), y, "amin", include_self=False),
    scatter_prod=lambda x, y, i, j: x.scatter_reduce(0, i.view(4, 1).expand(4, 4), y, "prod"),
    index_reduce=lambda x, y, i, j: x.index_reduce(0, i, y, "mean"),
    masked_scatter=lambda x, y, i, j: x.masked_scatter(x > 0, y),
    masked_fill=lambda x, y, i, j: x.masked_fill(x > 0, 1.0) + y[:3],
    masked_fill_by_rows=lambda x, y, i, j: x.masked_fill(i == 2, -1.0) * y[:3],
    put=lambda x, y, i, j: x.put(i + 4, y[0]) * 2,
)
def test_writes_out_of_place(f):
    check(f, randn(3, 4), randn(4, 4), I, J, gradients=True)


def set_rows(x, y):
    x[I[:2]] = y[:2]


def set_repeated_rows(x, y):
    x[I] += 1


def set_pairs(x, y):
    x[I, J] = 3.0


def set_mask(x, y):
    x[x > 0] = 0


def set_mask_by_values(x, y):
    x[x > 0] *= 2


def set_rows_by_mask(x, y):
    x[torch.tensor([True, False, True])] = y[0]


def set_slice_of_rows(x, y):
    x[1:, I] = y[0, 0]


def set_column(x, y):
    x[:, -1] = y[:3, 0]


def set_with_ellipsis(x, y):
    x[..., 1] = 9


def set_by_scalar_tensor(x, y):
    x[I[1]] = y[0]


def set_accumulated(x, y):
    x.index_put_((I,), y, accumulate=True)


def set_transposed(x, y):
    x.t()[J] = y[:, :3]


@each(
    rows=set_rows,
    repeated=set_repeated_rows,
    pairs=set_pairs,
    mask=set_mask,
    mask_by_values=set_mask_by_values,
    rows_by_mask=set_rows_by_mask,
    slice_of_rows=set_slice_of_rows,
    column=set_column,
    ellipsis=set_with_ellipsis,
    scalar_tensor=set_by_scalar_tensor,
    accumulated=set_accumulated,
    transposed=set_transposed,
)
def test_assignments(f):
    def in_place(x, y):
        f(x, y)

    def on_a_copy(x, y):
        z = x.clone()
        f(z, y)
        return z * 2

    y = randn(4, 4)
    if f is set_transposed:
        y = y[:1].expand(4, 4).contiguous()
    check(in_place, randn(3, 4), y, fullgraph=f not in (set_mask_by_values,))
    check(on_a_copy, randn(3, 4), y, fullgraph=f not in (set_mask_by_values,))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_index_of_each_type(dtype):
    x = (randn(3, 4) * 3).to(dtype)
    check(lambda x: (x[I], x.gather(0, I.view(1, 4)), x.index_put((I[:2],), x[:2])), x, reference=False)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64])
def test_accumulation_of_each_type(dtype):
    x = (randn(3, 4) * 3).to(dtype)
    check(lambda x: (x.index_add(0, I, x[J % 3]), x.scatter_add(0, I.view(1, 4), x), x.index_put((I,), x[J % 3], accumulate=True)), x)


@each(
    plain=lambda w, i: F.embedding(i, w),
    padding=lambda w, i: F.embedding(i, w, padding_idx=2),
    scaled=lambda w, i: F.embedding(i, w) * 3 + 1,
    of_int32=lambda w, i: F.embedding(i.int(), w),
    tied=lambda w, i: F.embedding(i, w) @ w.t(),
    summed=lambda w, i: F.embedding(i, w).sum(1),
    bag_mean=lambda w, i: F.embedding_bag(i, w),
    bag_sum=lambda w, i: F.embedding_bag(i, w, mode="sum"),
    bag_max=lambda w, i: F.embedding_bag(i, w, mode="max"),
    one_hot=lambda w, i: F.one_hot(i, 6).to(w.dtype) @ w,
)
def test_embeddings(f):
    check(f, randn(6, 4), torch.tensor([[0, 5, 2], [2, 2, 1]]), gradients=True)


def test_embedding_bag_of_offsets():
    check(lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"), randn(6, 4), torch.tensor([0, 5, 2, 2, 1]), torch.tensor([0, 2, 2]), gradients=True)


def test_an_index_out_of_range_raises():
    fast = compiled(lambda x, i: x[i] * 2)
    same(fast(randn(3, 4), torch.tensor([0, 2])).shape, torch.Size((2, 4)))
    with pytest.raises((IndexError, RuntimeError)):
        fast(randn(3, 4), torch.tensor([0, 3]))
    with pytest.raises((IndexError, RuntimeError)):
        fast(randn(3, 4), torch.tensor([-4, 0]))
    x = randn(3, 4)
    same(fast(x, torch.tensor([2, -3])), x[[2, 0]] * 2)


def test_an_index_out_of_range_changes_nothing():
    fast = compiled(lambda x, i: x.index_put_((i,), torch.tensor(1.0)))
    x = torch.zeros(4)
    with pytest.raises((IndexError, RuntimeError)):
        fast(x, torch.tensor([7, 9]))
    same(x, torch.zeros(4))


@pytest.mark.parametrize("shape", [(0,), (2, 0), (1,), ()])
def test_index_of_each_shape(shape):
    check(lambda x, i: x[i] + 1, randn(3, 4), torch.zeros(shape, dtype=torch.int64))


def test_index_into_nothing():
    check(lambda x, i: (x[i], x[:, i]), randn(0, 4), torch.zeros(0, dtype=torch.int64))


@each(
    constant=lambda x: F.pad(x, (1, 2), value=-1.0),
    two_dimensions=lambda x: F.pad(x, (1, 0, 2, 1)),
    negative=lambda x: F.pad(x, (-1, 2)),
    reflect=lambda x: F.pad(x, (2, 1, 0, 0), mode="reflect"),
    reflect_2d=lambda x: F.pad(x, (1, 1, 2, 1), mode="reflect"),
    replicate=lambda x: F.pad(x, (1, 2, 0, 1), mode="replicate"),
    circular=lambda x: F.pad(x, (1, 2, 2, 1), mode="circular"),
    pad_and_sum=lambda x: F.pad(x, (1, 1)).sum(-1),
    pad_of_pad=lambda x: F.pad(F.pad(x, (1, 0)), (0, 1), value=2.0),
)
def test_padding(f):
    check(f, randn(2, 3, 5, 6), gradients=True)


@each(
    cat=lambda x, y: torch.cat([x, y, x]),
    cat_columns=lambda x, y: torch.cat([x, y], 1),
    cat_of_one=lambda x, y: torch.cat([x]),
    cat_with_empty=lambda x, y: torch.cat([x, y[:0]]),
    cat_of_computed=lambda x, y: torch.cat([x.sin(), y + 1, x * y], -1),
    cat_promotes=lambda x, y: torch.cat([x, y.double()]),
    stack=lambda x, y: torch.stack([x, y], 1),
    hstack=lambda x, y: torch.hstack([x, y]),
    vstack=lambda x, y: torch.vstack([x, y[0]]),
    split_and_cat=lambda x, y: torch.cat([part * 2 for part in x.split(2, 1)] + [y], 1),
    chunks_added=lambda x, y: sum(x.chunk(2, 1)) + y.chunk(2, 1)[0],
    repeat_interleave=lambda x, y: x.repeat_interleave(2, 0) + y.repeat_interleave(2, 0),
    cartesian=lambda x, y: torch.cartesian_prod(x[0], y[0]),
    combinations=lambda x, y: torch.combinations(x[0]) * y[0, 0],
)
def test_joins(f):
    check(f, randn(3, 4), randn(3, 4), gradients=True)


@each(
    nearest=lambda x: F.interpolate(x, scale_factor=2),
    nearest_exact=lambda x: F.interpolate(x, size=(3, 9), mode="nearest-exact"),
    bilinear=lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    bilinear_corners=lambda x: F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=True),
    bicubic=lambda x: F.interpolate(x, size=(7, 8), mode="bicubic"),
    antialiased=lambda x: F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
    area=lambda x: F.interpolate(x, size=(2, 3), mode="area"),
    grid_sample=lambda x: F.grid_sample(x, torch.linspace(-1.1, 1.1, 24, dtype=x.dtype).view(2, 3, 2, 2), align_corners=False),
    grid_sample_nearest=lambda x: F.grid_sample(x, torch.linspace(-0.91, 0.87, 24, dtype=x.dtype).view(2, 3, 2, 2), mode="nearest", align_corners=True),
    affine_grid=lambda x: F.affine_grid(x[:, 0, :2, :3], (2, 1, 3, 4), align_corners=False),
    unfold=lambda x: F.unfold(x, 2),
    fold=lambda x: F.fold(x[:, :, :4].reshape(2, 12, 6), (3, 4), 2),
    channel_shuffle=lambda x: F.channel_shuffle(x.repeat(1, 2, 1, 1), 2),
)
def test_resampling(f):
    check(f, randn(2, 3, 5, 6), gradients=True)


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.positions = nn.Embedding(16, 8)

    def forward(self, tokens):
        return self.words(tokens) + self.positions(torch.arange(tokens.shape[1]))


def test_positions():
    check(Positions(), torch.randint(11, (2, 6)), gradients=True)
