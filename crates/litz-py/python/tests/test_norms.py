"""Normalisations give eager mode's values, gradients and running statistics."""

import pytest
import torch
import torch.nn.functional as F
from checks import check, compiled, each, same
from torch import nn, randn

MODULES = {
    "batch_norm": lambda: nn.BatchNorm2d(4),
    "batch_norm_plain": lambda: nn.BatchNorm2d(4, affine=False),
    "batch_norm_without_statistics": lambda: nn.BatchNorm2d(4, track_running_stats=False),
    "instance_norm": lambda: nn.InstanceNorm2d(4),
    "instance_norm_affine": lambda: nn.InstanceNorm2d(4, affine=True),
    "instance_norm_with_statistics": lambda: nn.InstanceNorm2d(4, track_running_stats=True),
    "group_norm": lambda: nn.GroupNorm(2, 4),
    "group_norm_of_one": lambda: nn.GroupNorm(1, 4),
    "group_norm_of_each": lambda: nn.GroupNorm(4, 4, affine=False),
    "layer_norm": lambda: nn.LayerNorm(6),
    "layer_norm_of_images": lambda: nn.LayerNorm((4, 5, 6)),
    "layer_norm_without_bias": lambda: nn.LayerNorm(6, bias=False),
    "layer_norm_plain": lambda: nn.LayerNorm((5, 6), elementwise_affine=False),
    "rms_norm": lambda: nn.RMSNorm(6),
    "rms_norm_with_epsilon": lambda: nn.RMSNorm((5, 6), eps=1e-3),
    "local_response": lambda: nn.LocalResponseNorm(2),
}


@each(**MODULES)
def test_normalisation_in_training(f):
    check(f(), randn(3, 4, 5, 6) * 2 + 1, gradients=True)


@each(**MODULES)
def test_normalisation_of_channels_last_in_evaluation(f):
    check(f().eval(), randn(3, 4, 5, 6).to(memory_format=torch.channels_last) * 2 + 1, gradients=True)


@each(**{name: MODULES[name] for name in ("batch_norm", "group_norm", "layer_norm", "rms_norm")})
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_normalisation_of_each_float(f, dtype):
    check(f().to(dtype), randn(2, 4, 5, 6).to(dtype))


@each(
    layer_norm=lambda x, w: F.layer_norm(x, (8,), w, w + 1),
    rms_by_hand=lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
    rms_in_float=lambda x, w: (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w,
    layer_norm_by_hand=lambda x, w: (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5) * w,
    residual=lambda x, w: x + F.layer_norm(x.sin() + x, (8,), w),
    twice=lambda x, w: F.layer_norm(F.layer_norm(x, (8,), w).relu(), (8,)),
    then_product=lambda x, w: F.layer_norm(x, (8,)) @ w.view(8, 1),
    of_product=lambda x, w: F.layer_norm(x @ (w[:, None] * w).cos(), (8,)),
    then_softmax=lambda x, w: F.rms_norm(x, (8,), w).softmax(-1),
    modulated=lambda x, w: F.layer_norm(x, (8,)) * (1 + x.mean(1, keepdim=True)) + w,
    of_transposed=lambda x, w: F.layer_norm(x.transpose(0, 1), (8,), w),
    weight_norm=lambda x, w: x * w / w.norm(),
    standardised=lambda x, w: F.normalize(x - x.mean(-1, keepdim=True), dim=-1) * w,
    two_sizes=lambda x, w: F.layer_norm(x, (4, 8)),
    native=lambda x, w: torch.native_layer_norm(x, (8,), w, None, 1e-5),
    batch_norm_of_rows=lambda x, w: F.batch_norm(x.flatten(0, 1), None, None, w, w, training=True),
)
def test_normalisation_between_operators(f):
    check(f, randn(3, 4, 8), randn(8), gradients=True)


@pytest.mark.parametrize("size", [1, 2, 7, 16, 33, 768])
def test_layer_norm_of_each_size(size):
    check(nn.LayerNorm(size), randn(3, size), gradients=True)


def test_layer_norm_of_values_far_from_zero():
    check(lambda x: F.layer_norm(x, (64,)), randn(4, 64) + 1000)


def test_layer_norm_of_constant_rows():
    check(lambda x: F.layer_norm(x, (8,)), torch.full((2, 8), 3.0))


def test_layer_norm_of_nothing():
    check(nn.LayerNorm(4), randn(0, 4))


def test_batch_norm_of_one_value_a_channel_raises():
    with pytest.raises(Exception, match="more than 1 value"):
        check(nn.BatchNorm1d(4), randn(1, 4))


@each(batch_norm=lambda: nn.BatchNorm1d(4), instance_norm=lambda: nn.InstanceNorm1d(4), group_norm=lambda: nn.GroupNorm(2, 4))
def test_normalisation_of_sequences(f):
    check(f(), randn(2, 4, 9), gradients=True, calls=3)


def test_batch_norm_of_volumes():
    check(nn.BatchNorm3d(2), randn(2, 2, 3, 4, 5), gradients=True)


def test_batch_norm_of_frozen_statistics():
    module = nn.BatchNorm2d(4).eval()
    with torch.no_grad():
        module.running_mean.uniform_()
        module.running_var.uniform_(0.5, 2)
        check(nn.Sequential(nn.Conv2d(4, 4, 3), module, nn.ReLU()).eval(), randn(2, 4, 6, 6))


def test_switch_between_training_and_evaluation():
    eager, other = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    fast = compiled(other)
    for mode in (True, False, True, False):
        x = randn(6, 4)
        eager.train(mode)
        other.train(mode)
        same(fast(x), eager(x))
        same(dict(other.state_dict()), dict(eager.state_dict()))


def test_spectral_norm():
    check(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), randn(2, 4), gradients=True, fullgraph=False)


def test_weight_norm():
    check(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), randn(2, 4), gradients=True)
