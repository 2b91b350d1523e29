"""Fourier transforms in files give eager mode's numbers and strides, without a host."""

import pytest
import torch
from checks import Call, each
from torch import fft, randn

import litz

HANN = torch.hann_window(8)


def check(f, *args, dynamic=None):
    program = torch.export.export(Call(f), args, dynamic_shapes=dynamic)
    for program in (program, program.run_decompositions()):
        model = litz.compile(program, options={"fallback": False})
        assert not model.fallbacks
        compare(model, f, args)
    return model


def compare(model, f, args):
    expected = f(*args)
    found = model(*args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(found) == len(expected)
    for found, expected in zip(found, expected):
        assert found.dtype == expected.dtype
        assert found.numel() == 0 or found.stride() == expected.stride()
        torch.testing.assert_close(found, expected.resolve_conj(), rtol=1e-5, atol=1e-5)


@each(
    fft=lambda x: fft.fft(x),
    along_the_first=lambda x: fft.fft(x, dim=0),
    shorter=lambda x: fft.fft(x, n=5),
    longer=lambda x: fft.fft(x, n=11, dim=1),
    ifft=lambda x: fft.ifft(x, norm="ortho"),
    forward=lambda x: fft.ifft(fft.fft(x, norm="forward"), norm="forward"),
    rfft=lambda x: fft.rfft(x),
    rfft_of_the_middle=lambda x: fft.rfft(x, dim=1, norm="forward"),
    ihfft=lambda x: fft.ihfft(x),
    irfft=lambda x: fft.irfft(fft.rfft(x) * 2, n=7),
    irfft_shorter=lambda x: fft.irfft(fft.rfft(x), n=4),
    irfft_of_numbers=lambda x: fft.irfft(x),
    hfft=lambda x: fft.hfft(torch.complex(x, x + 1), norm="ortho"),
    fft2=lambda x: fft.fft2(x),
    fftn=lambda x: fft.fftn(x, s=(3, 5), norm="ortho"),
    fftn_of_the_others=lambda x: fft.fftn(x, dim=(2, 0)),
    ifftn=lambda x: fft.ifftn(torch.complex(x, -x)),
    ifft2=lambda x: fft.ifft2(x, norm="forward"),
    rfftn=lambda x: fft.rfftn(x),
    rfft2=lambda x: fft.rfft2(x, s=(6, 5), dim=(2, 1), norm="ortho"),
    irfftn=lambda x: fft.irfftn(fft.rfftn(x), s=x.shape),
    irfft2=lambda x: fft.irfft2(torch.complex(x, x)),
    arithmetic=lambda x: (fft.rfft(x).abs().square(), fft.fft(x).real + 1, fft.fftshift(fft.fft(x * 2), dim=1)),
    convolution=lambda x: fft.irfft(fft.rfft(x, n=16) * fft.rfft(x.flip(-1), n=16), n=16),
    turned=lambda x: fft.fft2(x.permute(2, 0, 1)),
    parts=lambda x: fft.rfft(x[1:, ::2, 1:6]),
)
def test_transforms(f):
    check(f, randn(3, 4, 7))


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 97, 360, 1024])
def test_lengths(n):
    check(lambda x: (fft.fft(x), fft.rfft(x), fft.irfft(fft.rfft(x), n=n), fft.hfft(x, n=n)), randn(2, n))


@each(
    plain=lambda x: torch.stft(x, 8, 3, return_complex=True),
    window=lambda x: torch.stft(x, 8, window=HANN, return_complex=True).abs(),
    narrow=lambda x: torch.stft(x, 9, 4, 6, window=HANN[:6], normalized=True, return_complex=True),
    narrow_without_window=lambda x: torch.stft(x, 8, 4, 5, center=False, return_complex=True),
    two_sided=lambda x: torch.stft(x, 8, onesided=False, return_complex=True),
    pairs=lambda x: torch.view_as_real(torch.stft(x, 8, 2, return_complex=True)),
    one_signal=lambda x: torch.stft(x[0], 8, 2, return_complex=True),
)
def test_windows(f):
    check(f, randn(2, 40))


def test_integers_and_no_rows():
    check(lambda x: (fft.fft(x), fft.rfft(x), fft.fft2(x)), torch.arange(12).reshape(3, 4))
    check(lambda x: (fft.fft(x), fft.irfft(fft.rfft(x)), fft.rfft2(x, dim=(1, 2))), randn(0, 4, 6))


def test_imaginary_parts_that_do_not_count():
    z = torch.complex(randn(2, 5), randn(2, 5))
    z.imag[:, 0] = float("nan")
    check(lambda z: (fft.irfft(z, n=9), fft.irfft(torch.where(z.imag > 9, z, z.real + 0j), n=8)), z)


def test_sizes_that_are_known_at_run_time():
    def f(x):
        return fft.rfft(x).abs(), fft.fft(x, dim=1), fft.irfft(fft.rfft(x), n=8)

    n = torch.export.Dim("n", min=2, max=64)
    model = check(f, randn(3, 8), dynamic=(({0: n},),))
    for size in (2, 7, 33):
        compare(model, f, (randn(size, 8),))


def test_numbers_of_two_f64_are_refused(tmp_path):
    program = torch.export.export(Call(fft.rfft), (randn(3, 8, dtype=torch.float64),))
    with pytest.raises(litz.UnsupportedError, match="c128|f64"):
        litz.compile(program, options={"fallback": False})


def test_pytorchs_own_run_is_the_hosts():
    x = randn(3, 8)
    compiled = torch.compile(lambda x: fft.rfft(x * 2).abs() + 1, backend="litz")
    torch.testing.assert_close(compiled(x), fft.rfft(x * 2).abs() + 1)
    model = litz.compile(torch.export.export(Call(lambda x: fft.rfft(x * 2).abs()), (x,)))
    assert [op for op, *_ in model.fallbacks] == ["aten._fft_r2c.default"]
