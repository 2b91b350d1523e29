"""Images are made larger and smaller as in eager mode: its positions, its kernels for bytes, its gradients."""

import pytest
import torch
import torch.nn.functional as F

from checks import check, compiled, needs_litz

MODES = {"nearest": 4, "nearest-exact": 4, "bilinear": 4, "bicubic": 4, "linear": 3, "trilinear": 5}
SCALES = [0.5, 0.7, 1.0, 1.3, 1.5, 2.0, 2.7]


def image(mode, size=5):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(2, 3, *[size + at for at in range(MODES[mode] - 2)], generator=generator)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("mode", MODES)
def test_scales_give_eagers_positions(mode, scale):
    check(lambda x: F.interpolate(x, scale_factor=scale, mode=mode), image(mode), gradients=True)


@pytest.mark.parametrize("mode", MODES)
def test_a_scale_that_leaves_a_size_as_it_is_copies(mode):
    # Two elements, 1.3 times as large, are two.
    pixels = torch.arange(2.0).reshape([1, 1] + [1] * (MODES[mode] - 3) + [2])
    # Cubic curves go by the scale in eager mode, too.
    check(lambda x: F.interpolate(x, scale_factor=1.3, mode=mode), pixels, exact=mode != "bicubic", reference=False)
    check(lambda x: F.interpolate(x, scale_factor=1.3, mode=mode), image(mode, 2), gradients=True)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("scale", SCALES)
def test_bytes_have_eagers_bits(mode, scale):
    pixels = torch.randint(0, 256, (2, 3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x = pixels.contiguous(memory_format=memory_format)
        check(lambda x: F.interpolate(x, scale_factor=scale, mode=mode), x, exact=True, reference=False, strides=False)


@needs_litz
@pytest.mark.parametrize("mode", MODES)
def test_symbolic_sizes_are_compiled_once(mode):
    import litz

    f = compiled(lambda x: F.interpolate(x, scale_factor=2.0, mode=mode), dynamic=True)
    before = litz.stats()
    for size in (3, 4, 9):
        x = image(mode, size)
        assert torch.allclose(f(x), F.interpolate(x, scale_factor=2.0, mode=mode), atol=1e-5)
    after = litz.stats()
    assert after["eager_graphs"] == before["eager_graphs"] and after["fallbacks"] == before["fallbacks"]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("format", ["rows", "channels"])
@pytest.mark.parametrize(
    "mode, dims",
    [("nearest", 1), ("linear", 1), ("nearest", 2), ("bilinear", 2), ("bicubic", 2), ("nearest", 3), ("trilinear", 3), ("nearest-exact", 1), ("nearest-exact", 3)],
)
def test_scales_that_leave_sizes_as_they_are_count_as_in_eager(mode, dims, format, dynamic):
    """Eager mode's kernels differ in whether a scale counts where it changes no size, or doubles it, and so do their derivatives."""
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(dims)
    if format == "channels" and last is None:
        return
    for scale in (1.3, 2.3):
        f = lambda x: F.interpolate(x, scale_factor=scale, mode=mode)
        for sizes in ((3, 3, 3), (3, 7, 4)):
            x = torch.randn(1, 4, *sizes[:dims])
            x = x.to(memory_format=last) if format == "channels" else x
            check(f, x, gradients=True, reference=False, dynamic=dynamic)
