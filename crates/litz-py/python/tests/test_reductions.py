"""Reductions, scans and sorts give eager mode's values, over each dimension, for empty tensors and NaNs too."""

import math

import pytest
import torch
import torch.nn.functional as F
from checks import check, each
from torch import randn

REDUCTIONS = {
    "sum": lambda x, dim: x.sum(dim),
    "sum_keepdim": lambda x, dim: x.sum(dim, keepdim=True),
    "mean": lambda x, dim: x.mean(dim),
    "prod": lambda x, dim: x.prod(dim),
    "amax": lambda x, dim: x.amax(dim),
    "amin": lambda x, dim: x.amin(dim),
    "aminmax": lambda x, dim: torch.aminmax(x, dim=dim),
    "max": lambda x, dim: x.max(dim),
    "min": lambda x, dim: x.min(dim),
    "argmax": lambda x, dim: x.argmax(dim),
    "argmin_keepdim": lambda x, dim: x.argmin(dim, keepdim=True),
    "var": lambda x, dim: x.var(dim),
    "var_biased": lambda x, dim: x.var(dim, unbiased=False),
    "var_correction": lambda x, dim: torch.var(x, dim, correction=0.5),
    "std": lambda x, dim: x.std(dim),
    "var_mean": lambda x, dim: torch.var_mean(x, dim),
    "norm": lambda x, dim: x.norm(dim=dim),
    "norm_1": lambda x, dim: x.norm(p=1, dim=dim),
    "norm_3": lambda x, dim: x.norm(p=3, dim=dim),
    "norm_inf": lambda x, dim: torch.linalg.vector_norm(x, math.inf, dim),
    "norm_0": lambda x, dim: torch.linalg.vector_norm(x, 0, dim),
    "logsumexp": lambda x, dim: x.logsumexp(dim),
    "softmax": lambda x, dim: x.softmax(dim),
    "log_softmax": lambda x, dim: x.log_softmax(dim),
    "softmin": lambda x, dim: F.softmin(x, dim),
    "normalize": lambda x, dim: F.normalize(x, dim=dim),
    "any": lambda x, dim: (x > 1).any(dim),
    "all": lambda x, dim: (x > -1).all(dim),
    "count_nonzero": lambda x, dim: x.relu().count_nonzero(dim),
    "nansum": lambda x, dim: torch.where(x > 0, x, math.nan).nansum(dim),
    "nanmean": lambda x, dim: torch.where(x > 0, x, math.nan).nanmean(dim),
    "cumsum": lambda x, dim: x.cumsum(dim),
    "cumprod": lambda x, dim: x.cumprod(dim),
    "cummax": lambda x, dim: x.cummax(dim),
    "cummin": lambda x, dim: x.cummin(dim),
    "logcumsumexp": lambda x, dim: x.logcumsumexp(dim),
    "median": lambda x, dim: x.median(dim),
    "mode": lambda x, dim: x.round().mode(dim).values,
    "sort": lambda x, dim: x.sort(dim),
    "sort_descending": lambda x, dim: x.sort(dim, descending=True),
    "argsort_stable": lambda x, dim: x.round().argsort(dim=dim, stable=True),
    "topk": lambda x, dim: x.topk(2, dim),
    "topk_smallest": lambda x, dim: x.topk(3, dim, largest=False),
    "kthvalue": lambda x, dim: x.kthvalue(2, dim),
    "quantile": lambda x, dim: x.quantile(0.3, dim),
    "diff": lambda x, dim: x.diff(dim=dim),
    "trapezoid": lambda x, dim: torch.trapezoid(x, dim=dim),
}


@each(**REDUCTIONS)
def test_reduction(f):
    check(lambda x: [f(x, dim) for dim in (0, 1, -1)], randn(4, 5, 9))


@each(
    sum=lambda x: x.sum(),
    sum_two=lambda x: x.sum((0, 2)),
    sum_all=lambda x: x.sum((0, 1, 2), keepdim=True),
    sum_none=lambda x: x.sum(()),
    mean=lambda x: x.mean(),
    mean_two=lambda x: x.mean((0, 1)),
    var=lambda x: x.var(),
    var_two=lambda x: x.var((0, 2), keepdim=True),
    std=lambda x: x.std(),
    amax_two=lambda x: x.amax((1, 2)),
    max=lambda x: x.max(),
    min=lambda x: x.min(),
    prod=lambda x: (x + 1).prod(),
    argmax=lambda x: x.argmax(),
    argmin=lambda x: x.argmin(),
    any=lambda x: (x > 2).any(),
    all=lambda x: (x > -9).all(),
    norm=lambda x: x.norm(),
    frobenius=lambda x: torch.linalg.matrix_norm(x),
    logsumexp_two=lambda x: x.logsumexp((0, 1)),
    median=lambda x: x.median(),
    cosine=lambda x: F.cosine_similarity(x, x.flip(0), dim=1),
    pairwise=lambda x: F.pairwise_distance(x[0], x[1]),
    cdist=lambda x: torch.cdist(x[0], x[1]),
    sum_of_transposed=lambda x: x.transpose(0, 2).sum(1),
    sum_of_expanded=lambda x: x[:, :1].expand(4, 5, 9).sum(1),
    sum_to_size=lambda x: x.sum_to_size(1, 9),
    several_of_one=lambda x: (x.sum(-1), x.amax(-1), x.square().mean(-1), x.argmin(-1)),
    reduction_of_reduction=lambda x: (x - x.mean(-1, keepdim=True)).abs().amax(0).sum(),
    standardised=lambda x: (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5),
    rows_and_columns=lambda x: x.sum(0, keepdim=True) * x.sum(1, keepdim=True),
    softmax_twice=lambda x: x.softmax(-1).softmax(0),
    weighted=lambda x: (x.softmax(-1) * x).sum(-1),
    entropy=lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1),
    cumsum_of_cumsum=lambda x: x.cumsum(1).cumsum(2),
    searchsorted=lambda x: torch.searchsorted(x[0, 0].sort().values, x[1]),
    bucketize=lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
    histogram=lambda x: torch.histc(x, 4, -2, 2),
)
def test_reduction_of_several_dimensions(f):
    check(f, randn(4, 5, 9))


SMOOTH = ["sum", "mean", "prod", "amax", "max", "var", "std", "var_mean", "norm", "norm_1", "norm_3", "logsumexp", "softmax", "log_softmax", "cumsum",
          "cumprod", "sort", "topk", "normalize", "median", "logcumsumexp", "nansum"]


@each(**{name: REDUCTIONS[name] for name in SMOOTH})
def test_gradient_of_reduction(f):
    check(lambda x: f(x, 1), randn(4, 5, 3), gradients=True)


@each(**{name: REDUCTIONS[name] for name in ["sum", "mean", "amax", "softmax", "var", "logsumexp", "cumsum", "argmax", "prod"]})
def test_reduction_of_each_float(f):
    check(lambda *xs: [f(x, -1) for x in xs], *(randn(3, 33).to(dtype) for dtype in (torch.float16, torch.bfloat16, torch.float64)))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64])
def test_reduction_of_each_integer(dtype):
    def f(x):
        return x.sum(), x.sum(1), x.prod(1), x.amax(0), x.cumsum(1), x.any(1), x.all(), x.sum(dtype=torch.float32), x.count_nonzero()

    check(f, torch.arange(-2 if dtype.is_signed else 0, 10).to(dtype).view(2, -1))


def test_sum_of_small_integers_does_not_wrap():
    check(lambda x: (x.sum(), x.sum(0, dtype=torch.int8), x.cumsum(0)), torch.full((300,), 100, dtype=torch.int8))


def test_sum_in_another_type():
    check(lambda x: (x.sum(dtype=torch.float64), x.bfloat16().sum(1, dtype=torch.float32), x.softmax(1, dtype=torch.float64)), randn(4, 70))


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "max", "argmax", "softmax", "logsumexp", "var", "cumsum", "sort", "cummax", "prod", "median"])
def test_reduction_of_nan_and_infinity(name):
    x = torch.tensor([[1.0, math.nan, 2.0], [math.inf, 1.0, -math.inf], [-math.inf] * 3, [math.inf] * 3, [1.0, 2.0, math.nan], [0.0, -0.0, 0.0]])
    check(lambda x: REDUCTIONS[name](x, 1), x, reference=False)


@each(
    sum=lambda x: x.sum(0),
    mean=lambda x: x.mean(0),
    prod=lambda x: x.prod(0),
    any=lambda x: x.any(0),
    all=lambda x: x.all(0),
    logsumexp=lambda x: x.logsumexp(0),
    softmax=lambda x: x.softmax(0),
    cumsum=lambda x: x.cumsum(0),
    var=lambda x: x.var(0),
    norm=lambda x: x.norm(dim=0),
    of_other_dimension=lambda x: x.amax(1),
    sum_of_all=lambda x: x.sum() + 1,
)
def test_reduction_of_nothing(f):
    check(f, randn(0, 3), reference=False)


@pytest.mark.parametrize("name", ["amax", "argmax", "max"])
def test_reduction_of_nothing_that_has_no_value(name):
    with pytest.raises(Exception, match="(?i)dim|reduction|empty"):
        check(lambda x: REDUCTIONS[name](x, 0), randn(0, 3))


@pytest.mark.parametrize("size", [1, 2, 7, 8, 16, 31, 100, 1025])
def test_reduction_of_each_length(size):
    check(lambda x: (x.sum(-1), x.amax(-1), x.sum(0), x.softmax(-1), x.var(-1, correction=0), x.argmin(-1)), randn(3, size))


def test_long_sum_is_precise():
    x = torch.rand(100000) + 1000
    check(lambda x: (x.sum(), x.mean(), x.var()), x)


def test_variance_of_values_far_from_zero():
    check(lambda x: (x.var(-1), x.std(-1)), randn(4, 64) * 1e-2 + 100)


def test_softmax_of_large_values():
    check(lambda x: (x.softmax(-1), x.log_softmax(-1), x.logsumexp(-1)), randn(4, 9) * 300)


def test_ties_go_to_the_first():
    x = torch.tensor([[1.0, 3, 3, 2, 3], [0, 0, 0, 0, 0]])
    check(lambda x: (x.argmax(1), x.max(1).indices, x.argmin(1), x.sort(dim=1, stable=True).indices), x)


def test_reduction_of_complex():
    check(lambda x: (x.sum(0), x.mean(1), x.prod(1), x.norm(), x.cumsum(1)), randn(3, 4, dtype=torch.complex64))


@pytest.mark.parametrize("shape, stride", [((4, 5), (1, 4)), ((4, 5), (10, 2)), ((4, 5), (0, 1)), ((2, 3, 4), (1, 8, 2))])
def test_reduction_of_each_layout(shape, stride):
    x = torch.as_strided(randn(64), shape, stride)
    check(lambda x: (x.sum(0), x.sum(1), x.amax(-1), x.softmax(0), x.mean()), x)


@each(
    mse=lambda x, y: F.mse_loss(x, y),
    l1=lambda x, y: F.l1_loss(x, y, reduction="sum"),
    smooth_l1=lambda x, y: F.smooth_l1_loss(x, y, beta=0.5),
    huber=lambda x, y: F.huber_loss(x, y, delta=0.7),
    kl=lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
    bce_with_logits=lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    bce=lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction="none"),
    cosine_embedding=lambda x, y: F.cosine_embedding_loss(x, y, torch.tensor([1.0, -1, 1, -1])),
    hinge=lambda x, y: F.hinge_embedding_loss(x, y.sign()),
    triplet=lambda x, y: F.triplet_margin_loss(x, y, x.flip(0)),
    poisson=lambda x, y: F.poisson_nll_loss(x, y.abs()),
    soft_margin=lambda x, y: F.soft_margin_loss(x, y.detach().sign()),
    soft_cross_entropy=lambda x, y: F.cross_entropy(x, y.softmax(1)),
)
def test_losses(f):
    check(f, randn(4, 6), randn(4, 6), gradients=True)


@each(
    plain=lambda x, y: F.cross_entropy(x, y),
    sum=lambda x, y: F.cross_entropy(x, y, reduction="sum"),
    none=lambda x, y: F.cross_entropy(x, y, reduction="none"),
    ignored=lambda x, y: F.cross_entropy(x, y, ignore_index=2),
    smoothed=lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    weighted=lambda x, y: F.cross_entropy(x, y, weight=torch.arange(1.0, 7.0, dtype=x.dtype)),
    nll=lambda x, y: F.nll_loss(x.log_softmax(1), y),
    multi_margin=lambda x, y: F.multi_margin_loss(x, y),
)
def test_losses_of_classes(f):
    check(f, randn(5, 6), torch.tensor([0, 5, 2, 2, 3]), gradients=True)


def test_loss_of_pixels():
    check(lambda x, y: F.cross_entropy(x, y, ignore_index=-100), randn(2, 4, 3, 3), torch.randint(4, (2, 3, 3)),
          gradients=True)


def test_ctc_loss():
    def f(x):
        return F.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 2], [2, 3]]), torch.tensor([6, 5]), torch.tensor([2, 2]))

    check(f, randn(6, 2, 5), gradients=True, fullgraph=False)
