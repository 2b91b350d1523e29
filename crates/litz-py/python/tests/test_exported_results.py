"""Exported files of operators whose results are free, or have sizes that data decides, run without PyTorch's operators."""

import subprocess
import sys

import numpy
import pytest
import torch
from checks import Call

import litz

NAN = float("nan")


def run(f, *inputs, dynamic_shapes=None):
    """What a program's own kernels and routines give."""
    shapes = None if dynamic_shapes is None else (dynamic_shapes,)
    program = torch.export.export(Call(f), inputs, dynamic_shapes=shapes)
    return litz.compile(program, options={"fallback": False})(*inputs)


def spread(*sizes, dtype=torch.float64):
    """Numbers that repeat late."""
    count = torch.Size(sizes).numel()
    return ((torch.arange(count) * 37 % 101).to(dtype) / 16 - 3).reshape(sizes)


def orthonormal(vectors):
    count = vectors.shape[-1]
    torch.testing.assert_close(vectors.mT @ vectors, torch.eye(count, dtype=vectors.dtype).expand(*vectors.shape[:-2], count, count))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(3, 3), (5, 2), (2, 5), (2, 3, 4), (1, 1), (4, 0), (0, 3, 2)])
def test_singular_vectors_give_the_matrix(sizes, dtype):
    x = spread(*sizes, dtype=dtype)
    for full in (False, True):
        expected = torch.linalg.svd(x, full_matrices=full)
        found = run(lambda x: torch.linalg.svd(x, full_matrices=full), x)
        values = found[1]
        torch.testing.assert_close(values, expected.S)
        layout = lambda y: (y.shape, y.stride() if y.numel() else None)
        assert list(map(layout, found)) == list(map(layout, expected))
        count = values.shape[-1]
        torch.testing.assert_close((found[0][..., :count] * values.unsqueeze(-2)) @ found[2][..., :count, :], x)
        orthonormal(found[0])
        orthonormal(found[2].mT)
    left, values, right = run(lambda x: torch.svd(x), x)
    torch.testing.assert_close((left * values.unsqueeze(-2)) @ right.mT, x)


@pytest.mark.parametrize("sizes", [(3, 3), (2, 4, 4), (1, 1), (0, 0), (0, 2, 2)])
def test_eigenvectors_are_turned_by_their_values_alone(sizes):
    x = spread(*sizes)
    for uplo in "LU":
        values, vectors = run(lambda x: torch.linalg.eigh(x, uplo), x)
        whole = x.tril() + x.tril(-1).mT if uplo == "L" else x.triu() + x.triu(1).mT
        torch.testing.assert_close(values, torch.linalg.eigh(x, uplo).eigenvalues)
        torch.testing.assert_close(whole @ vectors, vectors * values.unsqueeze(-2))
        orthonormal(vectors)
    x = x.float()
    values, vectors = run(torch.linalg.eig, x)
    torch.testing.assert_close(x.to(torch.complex64) @ vectors, vectors * values.unsqueeze(-2), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.linalg.vector_norm(vectors, dim=-2), torch.ones(values.shape))
    (alone,) = run(torch.linalg.eigvals, x)
    key = lambda values: torch.take_along_dim(values, (values.real + values.imag / 3).argsort(-1), -1)
    torch.testing.assert_close(key(alone), key(torch.linalg.eigvals(x)), atol=1e-5, rtol=1e-5)


def test_what_is_no_number_has_no_factors():
    x = torch.tensor([[1.0, NAN], [0.0, 1.0]])
    for f in (torch.linalg.svd, torch.linalg.eigh, torch.linalg.eig):
        with pytest.raises(litz.LitzError):
            run(f, torch.where(x == 0, torch.tensor(NAN), x))


SLICES = {
    "rows": (torch.tensor([[3, 1], [2, 5], [3, 1], [2, 4], [2, 5]]), 0),
    "columns": (torch.tensor([[1.0, -0.0, 1.0, 0.0], [2.0, 3.0, 2.0, 3.0]]), 1),
    "middle": (spread(2, 6, 3).round().clamp(-1, 1), 1),
    "one": (torch.ones(1, 4), 0),
    "bool": (torch.tensor([[True, False], [False, True], [True, False]]), 0),
    "none": (torch.zeros(0, 3), 0),
}


@pytest.mark.parametrize("name", SLICES)
def test_distinct_slices(name):
    x, dim = SLICES[name]
    for f in (torch.unique, torch.unique_consecutive):
        call = lambda x: f(x, return_inverse=True, return_counts=True, dim=dim)
        for found, expected in zip(run(call, x), call(x), strict=True):
            assert found.dtype == expected.dtype and torch.equal(found, expected), f


def test_slices_with_numbers_that_are_none_are_all_distinct():
    x = torch.tensor([[NAN, 1.0], [0.0, 1.0], [NAN, 1.0], [0.0, 1.0]])
    values, places, counts = run(lambda x: torch.unique(x, return_inverse=True, return_counts=True, dim=0), x)
    assert counts.tolist() == [2, 1, 1] and places.tolist()[1::2] == [0, 0] and sorted(places.tolist()[::2]) == [1, 2]
    assert torch.equal(values[0], x[1])


def resized(sizes):
    def f(x):
        y = x * 2
        return y.resize_(sizes) + 1

    return f


def test_tensors_are_resized_within_their_memory():
    x = spread(4, 6)
    for sizes in ((4, 6), (24,), (2, 3, 2), (5, 3), (), (0, 7), (1, 1, 1)):
        (found,) = run(resized(sizes), x)
        assert torch.equal(found, resized(sizes)(x)), sizes
    like = lambda x, y: (x + 1).resize_as_(y) * y
    assert torch.equal(run(like, x, spread(3, 2))[0], like(x, spread(3, 2)))


def test_memory_that_nothing_wrote_is_refused():
    with pytest.raises(litz.UnsupportedError, match="aten.resize_.default"):
        run(resized((5, 5)), spread(4, 6))
    with pytest.raises(litz.UnsupportedError, match="aten.resize_.default"):
        run(lambda x: x.t().clone(memory_format=torch.preserve_format).resize_(3, 3), spread(4, 6))


def test_masks_that_add():
    x, mask = spread(3, 4), torch.tensor([True, False, True])
    for value in (spread(4), torch.tensor(2.0, dtype=torch.float64)):
        f = lambda x, mask, value: x.index_put((mask,), value, accumulate=True)
        assert torch.equal(run(f, x, mask, value)[0], f(x, mask, value))


@pytest.mark.parametrize("name", ["hfft2", "hfftn", "ihfft2", "ihfftn"])
def test_hermitian_transforms(name):
    f, x = getattr(torch.fft, name), spread(2, 5, 6, dtype=torch.float32)
    for norm in ("backward", "forward", "ortho"):
        torch.testing.assert_close(run(lambda x: f(x, norm=norm), x)[0], f(x, norm=norm))
    if name.endswith("n"):
        call = lambda x: f(x, s=(4, 7), dim=(2, 0))
        torch.testing.assert_close(run(call, x)[0], call(x))
    if not name.startswith("i"):
        z = torch.complex(x, x.flip(0))
        torch.testing.assert_close(run(f, z)[0], f(z))


def z(*sizes):
    return torch.complex(spread(*sizes, dtype=torch.float32), spread(*sizes, dtype=torch.float32).flip(0) / 2)


COMPLEX = {
    "logsumexp": lambda x: (torch.logsumexp(x * 90, 0), x.logsumexp((0, 1)), x.logsumexp(1, keepdim=True), x[:0].logsumexp(0)),
    "softmax of the real part": lambda x: (x.softmax(1, dtype=torch.float64), x.log_softmax(0, dtype=torch.float32)),
    "powers": lambda x: (torch.linalg.vander(x, N=3), torch.vander(x[0], 4), torch.vander(x[1], increasing=True)),
    "grids": lambda x: (*torch.meshgrid(x[0], x[1], indexing="ij"), *torch.meshgrid(x[0], x[1, :2] * 2, indexing="xy"), torch.cartesian_prod(x[0], x[1] + 1)),
    "selected": lambda x: (torch.masked_select(x, x.real > 0), x[x.imag > 0], (x * 2)[x.real < 0]),
    "scattered": lambda x: (x.masked_scatter(x.real > 0, x * 1j), x.masked_scatter(x.real[0] > 0, x * 2)),
    "places": lambda x: (torch.where(x.real > 0, x, 0).nonzero(), torch.argwhere(x), *torch.where(x * 0 + x.imag)),
    "around": lambda x: (torch.nn.functional.pad(x, (1, 2), value=2.5), x.nan_to_num(1.0), +x, torch.linspace(1j, 2 - 1j, 5)),
    "joined": lambda x: (torch.concat([x, x + 1]), torch.concatenate([x, x * 2], 1)),
    "exponential": lambda x: (torch.linalg.matrix_exp(x[:, :4] / 4), torch.matrix_exp(x[:4, :4].reshape(1, 4, 4) * 1j)),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers(name):
    f, x = COMPLEX[name], z(4, 5)
    for found, expected in zip(run(f, x), f(x), strict=True):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5, equal_nan=True)


@pytest.mark.parametrize("sizes", [(4, 4), (2, 3, 3), (1, 1), (0, 0), (0, 2, 2)])
def test_complex_matrices(sizes):
    a, b = z(*sizes) + torch.eye(sizes[-1]) * 3, z(*sizes[:-1], 2)
    f = lambda a, b: (
        torch.linalg.solve(a, b),
        torch.linalg.solve(a, b.mT.contiguous(), left=False),
        torch.linalg.inv(a),
        torch.linalg.det(a),
        *torch.linalg.slogdet(a),
        torch.linalg.solve_triangular(a.triu(), b, upper=True),
        torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b),
    )
    for found, expected in zip(run(f, a, b), f(a, b), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        assert found.stride() == expected.stride() or not found.numel()
    with pytest.raises(litz.RunError, match="singular"):
        run(torch.linalg.inv, torch.zeros(2, 2, dtype=torch.complex64))


def test_a_tensor_says_how_many_pieces():
    x = spread(7, 4)
    f = lambda x: [piece * 2 for piece in torch.tensor_split(x, torch.tensor(3))]
    for found, expected in zip(run(f, x), f(x), strict=True):
        assert torch.equal(found, expected)
    with pytest.raises(litz.UnsupportedError, match="at places that a tensor holds"):
        run(lambda x: torch.tensor_split(x, torch.tensor([1, 3])), x)


def test_joined_by_other_names():
    x, y = spread(3, 4), spread(2, 4)
    f = lambda x, y: (torch.concat([x, y]), torch.concatenate([x, x], 1))
    for found, expected in zip(run(f, x, y), f(x, y), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_of_bytes_and_sizes_that_are_known_late(mode):
    pixels = torch.randint(0, 256, (1, 3, 9, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    resize = lambda x, size, smooth: torch.nn.functional.interpolate(x, size=size, mode=mode, antialias=smooth)
    for smooth in (False, True):
        for size in ((4, 12), (20, 3), (9, 8)):
            f = lambda x: resize(x, size, smooth)
            assert torch.equal(run(f, pixels)[0], f(pixels)), size
    rows, columns = torch.export.Dim("rows", min=2, max=40), torch.export.Dim("columns", min=2, max=40)
    model = litz.compile(
        torch.export.export(Call(lambda x: resize(x, (8, 10), True)), (pixels.float(),), dynamic_shapes=(({2: rows, 3: columns},),)),
        options={"fallback": False},
    )
    for sizes in ((9, 7), (3, 30), (8, 10), (40, 2)):
        x = torch.rand(1, 3, *sizes)
        torch.testing.assert_close(model(x)[0], resize(x, (8, 10), True), atol=1e-5, rtol=1e-5)


# Runs a file on an array of this memory, in a process without PyTorch.
ON_ARRAYS = """
import sys, numpy, litz
x = numpy.load(sys.argv[2]).transpose(0, 3, 1, 2)
(y,) = litz.compile(sys.argv[1], options={"cache": None})(x)
assert "torch" not in sys.modules
numpy.save(sys.argv[3], y)
print([stride // y.itemsize for stride in y.strides])
"""


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("f", [lambda x: x.flip(2), lambda x: torch.stack([x, -x], 4)[..., 1], lambda x: x.rot90(1, (2, 3))])
def test_arrays_lie_as_pytorchs_tensors(f, is_dynamic, tmp_path):
    x = spread(2, 3, 4, 5, dtype=torch.float32).contiguous(memory_format=torch.channels_last)
    x[0, 0, 0, 0] = NAN
    shapes = ({0: torch.export.Dim("n", min=1, max=8)},) if is_dynamic else None
    program = torch.export.export(Call(f), (x,), dynamic_shapes=None if shapes is None else (shapes,))
    torch.export.save(program, tmp_path / "f.pt2")
    numpy.save(tmp_path / "x.npy", x.permute(0, 2, 3, 1).contiguous().numpy())
    ran = subprocess.run(
        [sys.executable, "-c", ON_ARRAYS, *(tmp_path / name for name in ("f.pt2", "x.npy", "y.npy"))], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    torch.testing.assert_close(torch.from_numpy(numpy.load(tmp_path / "y.npy")), f(x), rtol=0, atol=0, equal_nan=True)
    assert ran.stdout.strip() == str(list(f(x).stride()))
