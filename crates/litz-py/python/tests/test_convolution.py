"""Convolutions give eager mode's values and gradients for each stride, padding, dilation, group and layout."""

import pytest
import torch
import torch.nn.functional as F
from checks import check, each
from torch import nn, randn

CONVOLUTIONS = {
    "plain": lambda: nn.Conv2d(4, 6, 3),
    "padded": lambda: nn.Conv2d(4, 6, 3, padding=1),
    "same": lambda: nn.Conv2d(4, 6, 3, padding="same"),
    "valid": lambda: nn.Conv2d(4, 6, 2, padding="valid"),
    "strided": lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1),
    "dilated": lambda: nn.Conv2d(4, 6, 3, dilation=2, padding=2),
    "pointwise": lambda: nn.Conv2d(4, 6, 1),
    "pointwise_strided": lambda: nn.Conv2d(4, 6, 1, stride=2),
    "without_bias": lambda: nn.Conv2d(4, 6, 3, bias=False),
    "grouped": lambda: nn.Conv2d(4, 6, 3, groups=2),
    "depthwise": lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1),
    "depthwise_multiplied": lambda: nn.Conv2d(4, 8, 3, groups=4),
    "oblong": lambda: nn.Conv2d(4, 6, (1, 5), padding=(0, 2)),
    "oblong_strides": lambda: nn.Conv2d(4, 3, (3, 2), stride=(2, 1), padding=(1, 0)),
    "large_kernel": lambda: nn.Conv2d(4, 2, 7, padding=3),
    "reflected": lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
    "circular": lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
    "one_channel_out": lambda: nn.Conv2d(4, 1, 3),
    "transposed": lambda: nn.ConvTranspose2d(4, 6, 3),
    "transposed_strided": lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
    "transposed_grouped": lambda: nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2),
    "transposed_dilated": lambda: nn.ConvTranspose2d(4, 3, 3, dilation=2),
}


@each(**CONVOLUTIONS)
def test_convolution(f):
    check(f(), randn(2, 4, 8, 7), gradients=True)


@each(**CONVOLUTIONS)
def test_convolution_of_channels_last_for_inference(f):
    with torch.no_grad():
        check(f().to(memory_format=torch.channels_last).eval(), randn(2, 4, 8, 7).to(memory_format=torch.channels_last))


@each(
    plain=lambda: nn.Conv1d(4, 6, 3),
    strided=lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1),
    depthwise_dilated=lambda: nn.Conv1d(4, 4, 3, groups=4, padding=2, dilation=2),
    pointwise=lambda: nn.Conv1d(4, 3, 1),
    transposed=lambda: nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1),
)
def test_convolution_of_sequences(f):
    check(f(), randn(2, 4, 11), gradients=True)


@each(
    plain=lambda: nn.Conv3d(2, 3, 2),
    strided_grouped=lambda: nn.Conv3d(2, 4, 3, stride=2, padding=1, groups=2),
    transposed=lambda: nn.ConvTranspose3d(2, 3, 2, stride=2),
)
def test_convolution_of_volumes(f):
    check(f(), randn(1, 2, 4, 5, 4), gradients=True)


def test_convolution_of_each_float():
    args = [(randn(2, 4, 6, 6).to(dtype), randn(5, 4, 3, 3).to(dtype)) for dtype in (torch.bfloat16, torch.float16, torch.float64)]
    check(lambda *args: [F.conv2d(x, w, padding=1) for x, w in args], *args)


@each(
    relu=lambda x, w: F.conv2d(x, w).relu(),
    residual=lambda x, w: F.conv2d(x, w, padding=1) + x[:, :1],
    scaled_weight=lambda x, w: F.conv2d(x, w * 0.5 + 0.1),
    of_computed=lambda x, w: F.conv2d(x.tanh(), w),
    then_pooled=lambda x, w: F.max_pool2d(F.conv2d(x, w, padding=1).relu(), 2),
    then_mean=lambda x, w: F.conv2d(x, w).mean((2, 3)),
    twice=lambda x, w: F.conv2d(F.conv2d(x, w, padding=1)[:, :4].sigmoid(), w[:, :4], padding=1),
    of_concatenated=lambda x, w: F.conv2d(torch.cat([x[:, :2], x[:, 2:]], 1), w),
    of_padded=lambda x, w: F.conv2d(F.pad(x, (1, 2, 0, 1)), w),
    of_slice=lambda x, w: F.conv2d(x[:, :, 1:-1, ::2], w),
    of_upsampled=lambda x, w: F.conv2d(F.interpolate(x, scale_factor=2), w),
    weight_standardised=lambda x, w: F.conv2d(x, (w - w.mean((1, 2, 3), keepdim=True)) / w.std((1, 2, 3), keepdim=True)),
    causal=lambda x, w: F.conv1d(F.pad(x[:, :, 0], (2, 0)), w[:, :, 0]),
    flattened=lambda x, w: F.conv2d(x, w).flatten(1) * 2,
    permuted=lambda x, w: F.conv2d(x, w).permute(0, 2, 3, 1).contiguous(),
    without_batch=lambda x, w: F.conv2d(x[0], w),
)
def test_convolution_between_operators(f):
    check(f, randn(2, 4, 6, 7), randn(5, 4, 3, 3), gradients=True)


def block(channels):
    return nn.Sequential(nn.Conv2d(channels, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = block(4), block(8)
        self.shortcut = nn.Conv2d(4, 8, 1)

    def forward(self, x):
        return torch.relu(self.second(self.first(x)) + self.shortcut(x))


class Squeeze(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.up(F.silu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(4 + 2 * index, 2, 3, padding=1) for index in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.cat([x, layer(x.relu())], 1)
        return x


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle = nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.up, self.last = nn.ConvTranspose2d(6, 6, 2, stride=2), nn.Conv2d(12, 3, 1)

    def forward(self, x):
        left = self.down(x).relu()
        middle = self.middle(F.max_pool2d(left, 2)).relu()
        return self.last(torch.cat([left, self.up(middle)], 1))


@pytest.mark.parametrize("module", [Residual, Squeeze, Dense, UNet])
@pytest.mark.parametrize("is_training", [True, False], ids=["training", "inference"])
def test_blocks(module, is_training):
    x = randn(2, 4, 8, 8)
    if is_training:
        check(module(), x, gradients=True)
    else:
        with torch.no_grad():
            check(module().eval(), x)


@pytest.mark.parametrize("shape", [(1, 4, 3, 3), (0, 4, 5, 5), (3, 4, 17, 5)])
def test_convolution_of_each_size(shape):
    check(nn.Conv2d(4, 5, 3), randn(shape))


def test_convolution_of_non_dense_input():
    check(nn.Conv2d(4, 5, 3), randn(2, 8, 9, 9)[:, ::2, 1:, :8])


def test_convolution_of_transposed_weight():
    check(lambda x, w: F.conv2d(x, w.transpose(0, 1)), randn(2, 4, 6, 6), randn(4, 5, 3, 3), gradients=True)
