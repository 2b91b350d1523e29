"""Sums err no more than eager mode's: gradients of norms, convolutions and losses against a run in double precision, in 2-norms.

Shapes are such that many terms meet in few accumulators: rows that fill no vector, columns of several axes, rows of other numbers.
"""

import pytest
import torch
import torch.nn.functional as F
from checks import BACKEND, compiled
from torch import rand, randn

ROUNDING = torch.finfo(torch.float32).eps


def batch_norm(x, weight, bias):
    return F.batch_norm(x, None, None, weight, bias, True)


def instance_norm(x, weight, bias):
    return F.instance_norm(x, None, None, weight, bias, True)


def layer_norm(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def rms_norm(x, weight):
    return F.rms_norm(x, x.shape[-1:], weight)


def group_norm(x, weight, bias):
    return F.group_norm(x, 2, weight, bias)


def conv1d(x, weight, bias):
    return F.conv1d(x, weight, bias)


def conv2d(x, weight, bias):
    return F.conv2d(x, weight, bias, padding=1)


def depthwise(x, weight, bias):
    return F.conv2d(x, weight, bias, groups=len(weight))


def scaled(x, weight):
    return x * weight


def squared_error(x, weight):
    return F.mse_loss(x * weight, torch.zeros_like(x))


def cross_entropy(x, weight):
    return F.cross_entropy(x * weight, torch.zeros(len(x), dtype=torch.int64))


def log_softmax(x, weight):
    return F.log_softmax(x * weight, 0)


def total_of_rows(x, weight):
    return (x * weight).square().sum(-1).sqrt()


def of_channels(count):
    return [rand(count) + 0.5, rand(count) + 0.5]


CASES = {
    # 4096 times 4 terms a channel, and 1031 times 7.
    "batch_norm_of_small_images": (batch_norm, lambda: [randn(4096, 7, 2, 2), *of_channels(7)]),
    "batch_norm_of_short_rows": (batch_norm, lambda: [randn(1031, 6, 7), *of_channels(6)]),
    "batch_norm_of_columns": (batch_norm, lambda: [randn(4099, 20), *of_channels(20)]),
    "batch_norm_of_images": (batch_norm, lambda: [randn(16, 8, 28, 28), *of_channels(8)]),
    "instance_norm": (instance_norm, lambda: [randn(64, 8, 17, 17), *of_channels(8)]),
    "instance_norm_of_small_images": (instance_norm, lambda: [randn(2048, 6, 3, 3), *of_channels(6)]),
    "group_norm": (group_norm, lambda: [randn(2048, 6, 3, 3), *of_channels(6)]),
    # 8 and 197 rows are columns of 1576 terms, which has no divisors between 8 and 197.
    "layer_norm": (layer_norm, lambda: [randn(8, 197, 768), *of_channels(768)]),
    "layer_norm_of_short_rows": (layer_norm, lambda: [randn(5003, 7), *of_channels(7)]),
    "rms_norm": (rms_norm, lambda: [randn(8, 197, 768), rand(768) + 0.5]),
    "rms_norm_of_short_rows": (rms_norm, lambda: [randn(20000, 5), rand(5) + 0.5]),
    "conv1d": (conv1d, lambda: [randn(512, 4, 33), randn(5, 4, 3), randn(5)]),
    "conv2d": (conv2d, lambda: [randn(2048, 2, 3, 3), randn(3, 2, 3, 3), randn(3)]),
    "depthwise": (depthwise, lambda: [randn(512, 4, 9, 9), randn(4, 1, 3, 3), randn(4)]),
    "linear": (F.linear, lambda: [randn(4096, 3, 2), randn(3, 2), randn(3)]),
    "scale_of_channels": (scaled, lambda: [randn(4096, 3, 2) + 1, rand(3, 1)]),
    "scale_of_all": (scaled, lambda: [randn(70, 4001) + 1, rand(1)]),
    "squared_error": (squared_error, lambda: [randn(3001, 3, 3), rand(3, 1)]),
    # A short sum of each row beside long ones over rows.
    "cross_entropy": (cross_entropy, lambda: [randn(30000, 5), rand(5)]),
    "log_softmax_of_columns": (log_softmax, lambda: [randn(30000, 5), rand(5)]),
    "long_rows": (total_of_rows, lambda: [rand(100, 50000), rand(50000)]),
}


def results_and_gradients(f, args, cotangent):
    args = [arg.detach().clone().requires_grad_() for arg in args]
    result = f(*args)
    result.backward(cotangent.to(result.dtype))
    return [result.detach(), *(arg.grad for arg in args)]


@pytest.mark.parametrize("name", CASES)
def test_sums_err_as_in_eager_mode(name):
    f, make = CASES[name]
    torch.manual_seed(3)
    args = make()
    cotangent = randn(f(*args).shape) + 0.3
    before = eager_graphs()
    ours = results_and_gradients(compiled(f), args, cotangent)
    assert eager_graphs() == before
    eager = results_and_gradients(f, args, cotangent)
    exact = results_and_gradients(f, [arg.double() for arg in args], cotangent)
    for at, (our, their, right) in enumerate(zip(ours, eager, exact)):
        size = right.norm()
        error, allowed = (our - right).norm() / size, 1.5 * (their - right).norm() / size + ROUNDING
        assert error <= allowed, f"{name}, {'result' if at == 0 else f'gradient {at}'}: {error:.2e} is over {allowed:.2e}"


def eager_graphs():
    if BACKEND != "litz":
        return 0
    import litz

    return litz.stats()["eager_graphs"]
