"""Matrix products give eager mode's values and gradients for each shape, layout, type and epilogue."""

import pytest
import torch
import torch.nn.functional as F
from checks import check, each
from torch import nn, randn


@pytest.mark.parametrize("left, right", [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)), ((5, 1, 2, 3), (4, 3, 2)),
    ((3,), (5, 3, 2)), ((5, 2, 3), (3,)), ((1, 1), (1, 1)), ((2, 0), (0, 3)), ((0, 2), (2, 3)), ((2, 3), (3, 0)), ((1, 64), (64, 33)),
    ((17, 1), (1, 19)), ((33, 65), (65, 31)), ((2, 300), (300, 2)),
], ids=str)
def test_matmul_of_each_shape(left, right):
    check(torch.matmul, randn(left), randn(right), gradients=True)


@each(
    mm=lambda x, y: torch.mm(x, y),
    transposed_right=lambda x, y: x @ y.t().contiguous().t(),
    transposed_left=lambda x, y: x.t().contiguous().t() @ y,
    product_of_transposed=lambda x, y: (y.t() @ x.t()).t(),
    gram=lambda x, y: x.t() @ x,
    slices=lambda x, y: x[:, 1:5] @ y[2:6, ::2],
    chain=lambda x, y: x @ y @ y.t(),
    linear=lambda x, y: F.linear(x, y.t()),
    linear_with_bias=lambda x, y: F.linear(x, y.t(), y[0]),
    addmm=lambda x, y: torch.addmm(y[0], x, y),
    addmm_scaled=lambda x, y: torch.addmm(y[0], x, y, beta=0.5, alpha=2),
    addmv=lambda x, y: torch.addmv(x[:, 0], x, y[:, 0]),
    addr=lambda x, y: torch.addr(x[:, :7], x[:, 0], y[0]),
    outer=lambda x, y: torch.outer(x[0], y[0]),
    dot=lambda x, y: torch.dot(x[0], y[:, 0]),
    mv=lambda x, y: torch.mv(x, y[:, 1]),
    relu=lambda x, y: (x @ y).relu(),
    gelu=lambda x, y: F.gelu(x @ y + 1),
    softmax=lambda x, y: (x @ y).softmax(-1),
    row_sum=lambda x, y: (x @ y).sum(-1),
    column_max=lambda x, y: (x @ y).amax(0),
    scaled=lambda x, y: (x * 0.5) @ (y + 1),
    of_activation=lambda x, y: x.tanh() @ y.sin(),
    residual=lambda x, y: x @ y + x[:, :7],
    shared_left=lambda x, y: (x @ y, x @ (y * 2)),
    two_of_one=lambda x, y: (lambda z: (z.relu(), z.sum(), z.t()))(x @ y),
    einsum=lambda x, y: torch.einsum("ik,kj->ij", x, y),
    einsum_transposed=lambda x, y: torch.einsum("ik,kj->ji", x, y),
    einsum_batched=lambda x, y: torch.einsum("bi,ij,bi->bj", x, y, x),
    einsum_trace=lambda x, y: torch.einsum("ik,kj->", x, y),
    tensordot=lambda x, y: torch.tensordot(x.view(5, 2, 4), y.view(2, 4, 7), 2),
    kron=lambda x, y: torch.kron(x[:2, :3], y[:2]),
    bilinear=lambda x, y: F.bilinear(x[:, :3], x[:, 3:], y.view(-1)[:30].view(2, 3, 5)),
    chain_matmul=lambda x, y: torch.linalg.multi_dot([x, y, y.t()]),
    matrix_power=lambda x, y: torch.linalg.matrix_power(x[:, :5], 3),
    baddbmm=lambda x, y: torch.baddbmm(x.view(5, 2, 4)[:, :, :2], x.view(5, 2, 4), y[:4, :2].expand(5, 4, 2), alpha=0.5),
    swiglu=lambda x, y: F.silu(x @ y) * (x @ y.flip(1)),
)
def test_products(f):
    check(f, randn(5, 8), randn(8, 7), gradients=True)


@each(
    bmm=lambda x, y: torch.bmm(x, y),
    broadcast=lambda x, y: x @ y[0],
    broadcast_left=lambda x, y: x[:1] @ y,
    transposed=lambda x, y: y.mT @ x.mT,
    permuted=lambda x, y: x.permute(1, 0, 2).contiguous().permute(1, 0, 2) @ y,
    heads=lambda x, y: (x.view(3, 4, 2, 3).transpose(1, 2) @ y.view(3, 2, 3, 5)).transpose(1, 2).flatten(2),
    einsum=lambda x, y: torch.einsum("bik,bkj->bij", x, y),
    einsum_of_batches=lambda x, y: torch.einsum("bik,bkj->ij", x, y),
    expanded=lambda x, y: x[:1].expand(3, 4, 6) @ y,
    softmax=lambda x, y: (x @ y).softmax(-1) @ y.mT,
    mean=lambda x, y: (x @ y).mean(0),
)
def test_batched_products(f):
    check(f, randn(3, 4, 6), randn(3, 6, 5), gradients=True)


@each(
    plain=lambda x, y: x @ y,
    biased=lambda x, y: F.linear(x, y.t(), y[0]),
    batched=lambda x, y: x.view(2, 3, 40) @ y,
    vector=lambda x, y: x[0] @ y,
)
def test_products_of_each_type(f):
    types = [torch.float16, torch.bfloat16, torch.float64, torch.complex64]
    check(lambda *args: [f(x, y) for x, y in args], *((randn(6, 40).to(dtype), randn(40, 9).to(dtype)) for dtype in types), gradients=True)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64])
def test_products_of_integers(dtype):
    check(lambda x, y: (x @ y, x[0] @ y, x.view(2, 2, 5) @ y), torch.randint(0, 9, (4, 5)).to(dtype), torch.randint(0, 9, (5, 3)).to(dtype))


def test_product_of_int8_summed_in_int32():
    check(lambda x, y: torch._int_mm(x, y), torch.randint(-128, 127, (32, 32), dtype=torch.int8), torch.randint(-128, 127, (32, 16), dtype=torch.int8))


def test_product_of_bfloat16_is_rounded_once():
    check(lambda x, y: (x @ y).float(), randn(8, 512).bfloat16(), randn(512, 8).bfloat16())


def test_product_of_dequantised_weights():
    def f(x, w, scale):
        return x @ (w.to(x.dtype) * scale[:, None]).t()

    check(f, randn(3, 32), torch.randint(-128, 127, (8, 32), dtype=torch.int8), torch.rand(8))


def test_product_with_nan_and_infinity():
    x, y = randn(4, 5), randn(5, 3)
    x[0, 0], x[1, 1], y[2, 2] = float("nan"), float("inf"), float("-inf")
    check(lambda x, y: (x @ y, torch.addmm(x[:, :3], x, y, beta=0)), x, y, reference=False)


def test_beta_zero_ignores_nan():
    check(lambda c, x, y: torch.addmm(c, x, y, beta=0), torch.full((4, 3), torch.nan), randn(4, 5), randn(5, 3), reference=False)


@each(
    linear=lambda: nn.Linear(8, 5),
    without_bias=lambda: nn.Linear(8, 5, bias=False),
    one_column=lambda: nn.Linear(8, 1),
    perceptron=lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)),
    normalised=lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3), nn.Softmax(-1)),
)
def test_linear_layers(f):
    check(f(), randn(4, 8), gradients=True)


@pytest.mark.parametrize("shape", [(2, 3, 8), (8,), (0, 8), (1, 8)], ids=str)
def test_a_linear_layer_of_each_shape(shape):
    check(nn.Linear(8, 5), randn(shape), gradients=True)


@each(
    inverse=lambda a, b: torch.linalg.inv(a),
    solve=lambda a, b: torch.linalg.solve(a, b),
    determinant=lambda a, b: torch.linalg.det(a),
    log_determinant=lambda a, b: torch.linalg.slogdet(a).logabsdet,
    cholesky=lambda a, b: torch.linalg.cholesky(a @ a.mT + torch.eye(4, dtype=a.dtype)),
    triangular=lambda a, b: torch.linalg.solve_triangular(a.triu() + 3 * torch.eye(4, dtype=a.dtype), b, upper=True),
    singular_values=lambda a, b: torch.linalg.svdvals(a),
    eigenvalues=lambda a, b: torch.linalg.eigvalsh(a + a.mT),
    qr=lambda a, b: torch.linalg.qr(a)[0] @ torch.linalg.qr(a)[1] + 1,
    matrix_exponential=lambda a, b: torch.linalg.matrix_exp(a * 0.1),
    pseudo_inverse=lambda a, b: torch.linalg.pinv(a),
    cross=lambda a, b: torch.linalg.cross(a[:, :3], b[:, :1].expand(4, 3)),
)
def test_linear_algebra(f):
    check(f, randn(4, 4) + 3 * torch.eye(4), randn(4, 2), gradients=True)


@each(
    fft=lambda x: torch.fft.fft(x),
    rfft=lambda x: torch.fft.rfft(x),
    round_trip=lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=8),
    power=lambda x: torch.fft.rfft(x).abs().square(),
    two_dimensions=lambda x: torch.fft.fft2(x).real,
    shifted=lambda x: torch.fft.fftshift(x) + 1,
    spectrogram=lambda x: torch.stft(x, 4, 2, window=torch.ones(4, dtype=x.dtype), return_complex=True).abs(),
)
def test_fourier(f):
    check(f, randn(3, 8))


def test_autocast():
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ w).relu() @ w.t()

    check(f, randn(4, 16), randn(16, 8), reference=False)


def test_autocast_around_a_compiled_model():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4))
    # Gradients of f32 are those of products in bf16, of which a processor may round each otherwise: with two products forward, three backward and
    # the normalization's, ten roundings of at most 2^-8 lie on the longest way, 3.9e-2 together, which bf16's tolerance is.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(model, randn(3, 8), gradients=True, reference=False, made_in=torch.bfloat16)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rows, terms, columns", [(5, 40, 70), (128, 300, 512), (97, 129, 1000), (256, 64, 130), (257, 64, 130)])
def test_weights_that_are_packed_at_each_call(rows, terms, columns, dynamic):
    """Weights of either order, with rests along all axes, and one that another product reads as well."""
    x, w, v = randn(rows, terms), randn(columns, terms), randn(terms, columns)
    check(lambda x, w, v: ((x @ w.T).relu() + x @ v, (x * 2) @ w.T), x, w, v, gradients=True, dynamic=dynamic)


def test_vdot_conjugates():
    x, y = randn(5, dtype=torch.complex64), randn(5, dtype=torch.complex64)
    check(lambda x, y: (torch.vdot(x, y), torch.vdot(x.real, y.imag)), x, y, reference=False)
