"""Operators of torchvision on regions of images, and convolutions with moved taps: under torch.compile and in files, against eager mode and their definitions."""

import pytest
import torch
import torchvision.ops as ops
from checks import Call, check

import litz

REGIONS = torch.tensor([[0, 0.5, 1.0, 3.5, 4.0], [1, -3.0, -1.5, 7.0, 9.0], [1, 2.0, 2.0, 2.25, 2.0], [0, 30, 30, 40, 40], [1, 4.0, 5.0, 1.0, 2.0]])


def images(channels, dtype=torch.float32):
    return torch.randn(2, channels, 7, 6, generator=torch.Generator().manual_seed(channels)).to(dtype)


CALLS = {
    "roi_pool": (3, lambda x, r: ops.roi_pool(x, r, (2, 3), 0.7)),
    "ps_roi_pool": (12, lambda x, r: ops.ps_roi_pool(x, r, (2, 3), 0.7)),
    "roi_align": (3, lambda x, r: ops.roi_align(x, r, (2, 3), 0.7)),
    "roi_align aligned": (3, lambda x, r: ops.roi_align(x, r, (2, 3), aligned=True)),
    "roi_align of points": (3, lambda x, r: ops.roi_align(x, r, 2, sampling_ratio=2)),
    "ps_roi_align": (12, lambda x, r: ops.ps_roi_align(x, r, (2, 3))),
    "ps_roi_align of points": (12, lambda x, r: ops.ps_roi_align(x, r, (2, 3), 0.7, 2)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CALLS)
def test_regions_are_eagers(name, dtype):
    channels, f = CALLS[name]
    args = images(channels, dtype), REGIONS.to(dtype)
    litz.reset_stats()
    check(f, *args, reference=False)
    stats = litz.stats()
    assert stats["eager_graphs"] == {} and stats["fallbacks"] == {}
    (found,) = litz.compile(torch.export.export(Call(f), args), options={"fallback": False})(*args)
    torch.testing.assert_close(found, f(*args), equal_nan=True)


def test_an_image_that_there_is_not_is_refused():
    x = images(3)
    model = litz.compile(torch.export.export(Call(lambda x, r: ops.roi_pool(x, r, 2)), (x, REGIONS)))
    for number in (2.0, -1.0, float("nan")):
        regions = REGIONS.clone()
        regions[1, 0] = number
        with pytest.raises(litz.RunError):
            model(x, regions)


def moved_taps(x, weight, bias, offset, mask, stride, padding, dilation, moved):
    """By its definition: each tap reads between four pixels, with zeros around the image."""
    out = torch.zeros(x.shape[0], weight.shape[0], *offset.shape[2:], dtype=x.dtype)
    height, width = x.shape[2:]
    groups = x.shape[1] // weight.shape[1]
    pixel = lambda n, c, i, j: x[n, c, i, j] if 0 <= i < height and 0 <= j < width else x.new_zeros(())
    for n, o, row, column in torch.cartesian_prod(*map(torch.arange, out.shape)).tolist():
        total = bias[o]
        for c, i, j in torch.cartesian_prod(*map(torch.arange, weight.shape[1:])).tolist():
            channel = o // (weight.shape[0] // groups) * weight.shape[1] + c
            tap = (channel // (x.shape[1] // moved) * weight.shape[2] + i) * weight.shape[3] + j
            y = row * stride - padding + i * dilation + offset[n, 2 * tap, row, column]
            z = column * stride - padding + j * dilation + offset[n, 2 * tap + 1, row, column]
            top, left = int(y.floor()), int(z.floor())
            for di, dj in ((0, 0), (0, 1), (1, 0), (1, 1)):
                share = (1 - (y - top - di).abs()) * (1 - (z - left - dj).abs())
                total = total + weight[o, c, i, j] * mask[n, tap, row, column] * share * pixel(n, channel, top + di, left + dj)
        out[n, o, row, column] = total
    return out


@pytest.mark.parametrize("stride, padding, dilation, groups, moved", [(1, 0, 1, 1, 1), (2, 1, 1, 2, 2), (1, 2, 2, 1, 4)])
def test_taps_are_moved(stride, padding, dilation, groups, moved):
    make = torch.Generator().manual_seed(stride + moved)
    rand = lambda *sizes: torch.randn(*sizes, generator=make)
    x, weight, bias = rand(2, 4, 6, 5), rand(2, 4 // groups, 3, 2), rand(2)
    sizes = [(size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1 for size, taps in ((6, 3), (5, 2))]
    offset, mask = rand(2, 2 * moved * 6, *sizes) * 2, rand(2, moved * 6, *sizes)
    f = lambda x, offset, weight, bias, mask: ops.deform_conv2d(x, offset, weight, bias, stride, padding, dilation, mask)
    args = x, offset, weight, bias, mask
    litz.reset_stats()
    check(f, *args, reference=False)
    stats = litz.stats()
    assert stats["eager_graphs"] == {} and stats["fallbacks"] == {}
    (found,) = litz.compile(torch.export.export(Call(f), args), options={"fallback": False})(*args)
    torch.testing.assert_close(found, moved_taps(x, weight, bias, offset, mask, stride, padding, dilation, moved), atol=1e-4, rtol=1e-4)


def test_gradients_through_moved_taps():
    layer = ops.DeformConv2d(3, 4, 3, padding=1)
    check(layer, images(3), torch.randn(2, 18, 7, 6) * 0.3, gradients=True, reference=False)
