"""Pooling gives eager mode's values, indices and gradients for each window, stride, padding and layout."""

import pytest
import torch
import torch.nn.functional as F
from checks import check, each
from torch import nn, randn


@each(
    max_2=lambda x: F.max_pool2d(x, 2),
    max_3_stride_2=lambda x: F.max_pool2d(x, 3, 2),
    max_padded=lambda x: F.max_pool2d(x, 3, 1, 1),
    max_dilated=lambda x: F.max_pool2d(x, 2, 1, dilation=2),
    max_ceiling=lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    max_oblong=lambda x: F.max_pool2d(x, (2, 3), (1, 2), (0, 1)),
    max_with_indices=lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    max_of_all=lambda x: F.max_pool2d(x, (7, 9)),
    average_2=lambda x: F.avg_pool2d(x, 2),
    average_padded=lambda x: F.avg_pool2d(x, 3, 2, 1),
    average_without_padding=lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    average_ceiling=lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
    average_divided=lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    adaptive_average_1=lambda x: F.adaptive_avg_pool2d(x, 1),
    adaptive_average=lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    adaptive_average_of_one_size=lambda x: F.adaptive_avg_pool2d(x, (None, 2)),
    adaptive_average_larger=lambda x: F.adaptive_avg_pool2d(x, (9, 10)),
    adaptive_max=lambda x: F.adaptive_max_pool2d(x, (3, 2)),
    adaptive_max_with_indices=lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True),
    lp=lambda x: F.lp_pool2d(x.abs() + 0.1, 2.0, 2),
    max_then_average=lambda x: F.avg_pool2d(F.max_pool2d(x, 2), 2),
    pooled_activation=lambda x: F.max_pool2d(F.relu(x + 1), 2) * 2,
    unpooled=lambda x: F.max_unpool2d(*F.max_pool2d(x[:, :, :6, :8], 2, return_indices=True), 2),
)
def test_pooling_of_images(f):
    check(f, randn(2, 3, 7, 9), gradients=True)


@each(
    max=lambda x: F.max_pool2d(x, 3, 2, 1),
    average=lambda x: F.avg_pool2d(x, 2),
    adaptive=lambda x: F.adaptive_avg_pool2d(x, 2),
    global_=lambda x: x.mean((2, 3)),
)
def test_pooling_of_channels_last(f):
    check(f, randn(2, 3, 8, 8).to(memory_format=torch.channels_last), gradients=True)


@each(
    max=lambda x: F.max_pool1d(x, 3, 2),
    max_padded=lambda x: F.max_pool1d(x, 3, 1, 1),
    average=lambda x: F.avg_pool1d(x, 2),
    average_padded=lambda x: F.avg_pool1d(x, 3, 2, 1),
    adaptive_average=lambda x: F.adaptive_avg_pool1d(x, 4),
    adaptive_max=lambda x: F.adaptive_max_pool1d(x, 3),
    with_indices=lambda x: F.max_pool1d(x, 2, return_indices=True),
)
def test_pooling_of_sequences(f):
    check(f, randn(2, 3, 10), gradients=True)


@each(
    max=lambda x: F.max_pool3d(x, 2),
    max_padded=lambda x: F.max_pool3d(x, 3, 2, 1),
    average=lambda x: F.avg_pool3d(x, 2),
    adaptive_average=lambda x: F.adaptive_avg_pool3d(x, (2, 1, 2)),
    adaptive_max=lambda x: F.adaptive_max_pool3d(x, 2),
)
def test_pooling_of_volumes(f):
    check(f, randn(1, 2, 4, 5, 6), gradients=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_pooling_of_each_float(dtype):
    check(lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 3, 1, 1), F.adaptive_avg_pool2d(x, 3)), randn(1, 2, 6, 6).to(dtype))


def test_pooling_of_integers():
    check(lambda x: F.max_pool2d(x, 2, 1), torch.randint(-9, 9, (1, 2, 5, 5)))


def test_pooling_of_an_image_without_batch():
    check(lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 2)), randn(3, 6, 6), gradients=True)


def test_pooling_of_nan_and_infinity():
    x = randn(1, 1, 4, 4)
    x[0, 0, 0, 1], x[0, 0, 2, 2], x[0, 0, 3, 0] = float("nan"), float("-inf"), float("inf")
    check(lambda x: (F.max_pool2d(x, 2, return_indices=True), F.avg_pool2d(x, 2), F.max_pool2d(x, 3, 1, 1)), x, reference=False)


def test_pooling_of_minus_infinity():
    check(lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True), torch.full((1, 1, 3, 3), -torch.inf), reference=False)


def test_pooling_of_ties_takes_the_first():
    check(lambda x: F.max_pool2d(x, 2, return_indices=True), torch.zeros(1, 1, 4, 4))


@each(
    max_pool=lambda: nn.MaxPool2d(2),
    avg_pool=lambda: nn.AvgPool2d(2, padding=1),
    adaptive_avg_pool=lambda: nn.AdaptiveAvgPool2d(2),
    adaptive_max_pool=lambda: nn.AdaptiveMaxPool2d(1),
    lp_pool=lambda: nn.LPPool2d(2, 2),
    zero_pad=lambda: nn.ZeroPad2d(1),
    upsample=lambda: nn.Upsample(scale_factor=2),
    upsample_bilinear=lambda: nn.UpsamplingBilinear2d(scale_factor=2),
    reflection_pad=lambda: nn.ReflectionPad2d(1),
    unfold=lambda: nn.Unfold(2),
    pixel_shuffle=lambda: nn.PixelShuffle(2),
)
def test_pooling_modules(f):
    check(f(), randn(2, 4, 4, 4).abs() + 0.1, gradients=True)
