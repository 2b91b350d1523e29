"""Arithmetic on complex numbers in kernels: no call of PyTorch is left of what has a rule."""

import pytest
import torch
from checks import BACKEND, check, each
from torch import randn

litz = pytest.importorskip("litz") if BACKEND == "litz" else None


@pytest.fixture
def native():
    """Nothing of a test's graphs is PyTorch's."""
    if litz:
        litz.reset_stats()
    yield
    if litz:
        stats = litz.stats()
        assert stats["graphs"] > 0 and stats["fallbacks"] == {}, stats["fallbacks"]


def z(*sizes):
    return randn(*sizes, dtype=torch.complex64)


def special():
    """Infinities, values that are no numbers, and zeros of both signs, in either part."""
    values = torch.tensor([0.0, -0.0, 1.0, -2.5, float("inf"), -float("inf"), float("nan"), 1e30, 1e-30])
    return torch.complex(*torch.meshgrid(values, values, indexing="ij"))


ARITHMETIC = dict(
    sum=lambda x, y: (x + y, x - y, torch.add(x, y, alpha=2.5), torch.rsub(x, y)),
    product=lambda x, y: x * y,
    quotient=lambda x, y: x / y,
    reciprocal=lambda x, y: y.reciprocal(),
    abs=lambda x, y: (x * y).abs(),
    sgn=lambda x, y: (x.sgn(), y.sgn()),
    exp=lambda x, y: (x.exp(), y.log()),
    waves=lambda x, y: (x.sin(), y.cos(), x.sinh(), y.cosh()),
    sigmoid=lambda x, y: x.sigmoid(),
    square=lambda x, y: x.square(),
    conj=lambda x, y: (x.conj() * y, x.conj().resolve_conj(), -y),
    polar=lambda x, y: torch.polar(x.abs(), y.real),
    parts=lambda x, y: (torch.complex(x.real, y.imag), x.real, y.imag + 1),
    pairs=lambda x, y: torch.view_as_real(x * y),
    equal=lambda x, y: (x == y, x != y, x == x.clone()),
    tests=lambda x, y: (x.isnan(), x.isinf(), y.isfinite()),
    real_operands=lambda x, y: (x * y.real, x.real - y, x / y.imag, x + torch.arange(4), x * torch.tensor(2.0)),
    numbers=lambda x, y: (x * (1 + 2j), x + 2j, 3 - y, x / 2, y.real * 1j, x == 1j),
    rotary=lambda x, y: torch.view_as_real(torch.view_as_complex(torch.view_as_real(x) * 2.0) * y).flatten(-2),
    sums=lambda x, y: (x.sum(), x.sum(0), x.mean(1, keepdim=True), x.cumsum(1)),
    filled=lambda x, y: (torch.zeros_like(x), torch.full((2,), 1 + 2j), torch.ones(3, dtype=x.dtype) * x[0, 0], x.new_full((2,), 3j)),
    converted=lambda x, y: (x.real.to(torch.complex64) + y, torch.arange(3).to(torch.complex64)),
)


@each(**ARITHMETIC)
def test_arithmetic(f, native):
    check(f, z(3, 4), z(4), reference=False)


@each(**ARITHMETIC)
def test_arithmetic_of_what_is_far_apart(f, native):
    check(lambda x, y: f(x.T[:, ::2], y[1::2]), z(8, 35), z(9), reference=False)


@each(
    transposed=lambda x: (x.T * 2, x.T.contiguous() + 1),
    cut=lambda x: (x[1:, ::2] * 2j, x[0].exp()),
    shaped=lambda x: ((x * 2).reshape(-1), (x + 1).reshape(2, -1), x.unsqueeze(1).expand(4, 4, 6) * x),
    joined=lambda x: (torch.cat([x, x * 2]), torch.stack([x, x.conj()], 1)),
    chosen=lambda x: (torch.where(x.real > 0, x, -x), x.masked_fill(x.imag > 0, 2)),
    indexed=lambda x: (x[torch.tensor([2, 0])] * 2, x.gather(1, torch.zeros(4, 2, dtype=torch.long)), x.index_select(1, torch.tensor([5, 1]))),
    moved=lambda x: ((x * 2).flip(0), x.roll(1, 0), (x * 1j).tril(), x.triu(1)),
    padded=lambda x: torch.nn.functional.pad(x * 2, (1, 2)),
    written=lambda x: torch.zeros_like(x).index_put((torch.tensor([1]),), x[0]),
    expanded=lambda x: ((x * 2)[:1].expand(4, 6).abs(), x[0].expand(3, 6).clone()),
)
@pytest.mark.parametrize("make", [lambda: z(4, 6), lambda: z(6, 4).T, lambda: z(8, 12)[::2, ::2]], ids=["rows", "columns", "gaps"])
def test_moves(f, make, native):
    check(f, make(), reference=False)


@each(
    matrices=lambda x, y: x @ y,
    adjoint=lambda x, y: x.mH.conj() @ x.conj() + (y @ x).sum(),
    batches=lambda x, y: torch.bmm(x.expand(2, 4, 6), y.expand(2, 6, 4)),
    vectors=lambda x, y: (x @ y[:, 0], torch.vdot(x[0], y[:, 0]), x[0] @ y[:, 1]),
    added=lambda x, y: torch.addmm(x[:, :4], x, y),
)
def test_products(f, native):
    check(f, z(4, 6), z(6, 4), reference=False, gradients=True)


def test_gradients(native):
    def f(x, y):
        rotated = torch.view_as_complex(x.reshape(3, 4, 2)) * torch.polar(torch.ones_like(y), y)
        return torch.view_as_real(rotated).flatten(-2).square().sum(), (rotated.conj() / (rotated + 3)).abs()

    check(f, randn(3, 8), randn(3, 4), gradients=True, reference=False)


def test_state_space(native):
    """Kernels of a diagonal state space, as S4D has them: a geometric series of exponentials."""

    def f(log_dt, a_real, a_imag, c):
        dt = log_dt.exp()
        a = torch.complex(-a_real.exp(), a_imag)
        dta = a * dt.unsqueeze(-1)
        c = torch.view_as_complex(c) * (dta.exp() - 1.0) / a
        k = dta.unsqueeze(-1) * torch.arange(16)
        return 2 * (c.unsqueeze(-1) * k.exp()).sum(1).real

    check(f, randn(3) - 3, randn(3, 4), randn(3, 4), randn(3, 4, 2), gradients=True, reference=False)


@pytest.mark.parametrize("op", [torch.mul, torch.eq], ids=lambda op: op.__name__)
def test_special_values(op, native):
    x = special().flatten()
    check(op, x, x.flip(0), reference=False)


def test_quotients_do_not_overflow(native):
    x = torch.tensor([1e30 + 1e30j, 1e-30 - 1e-30j, 3e38j, 1e38 + 1e-38j], dtype=torch.complex64)
    check(lambda x: (x / x, x / (2 * x), x.abs()), x, reference=False)


def test_symbolic_sizes(native):
    from checks import shapes

    shapes(lambda x, y: (x * y.conj()).abs().sum(-1), *[(z(n, 5), z(n, 5)) for n in (2, 3, 7, 64)], most=1, dynamic=True)


def test_inputs_are_written(native):
    def f(x):
        x.mul_(2j)
        x[0] += 1
        return x.abs()

    check(f, z(3, 4), reference=False)


@pytest.mark.parametrize("x", [z(0), z(3, 0), z(()), z(6, 4).T, z(8, 8)[1::3, ::2], z(3, 4).conj(), z(1).expand(5)], ids=lambda x: f"{tuple(x.shape)}{x.stride()}")
def test_inputs_of_each_layout(x, native):
    check(lambda x: (x * 2 + 1j, x.sum(), x.clone(), x.abs()), x, reference=False)


@each(
    index_add=lambda x, y, i: x.index_add(0, i, y),
    index_add_of_a_multiple=lambda x, y, i: x.index_add(0, i, y, alpha=2.5),
    index_put=lambda x, y, i: x.index_put((i,), y),
    index_put_that_adds=lambda x, y, i: x.index_put((i,), y, accumulate=True),
    scatter=lambda x, y, i: x.scatter(0, i[:, None].expand(3, 4), y),
    scatter_add=lambda x, y, i: x.scatter_add(0, i[:, None].expand(3, 4), y),
    padded=lambda x, y, i: torch.nn.functional.pad(x, (1, 2), value=1.5),
    masked=lambda x, y, i: y.masked_fill(y.real > 0, 2.5),
)
def test_parts_are_moved_and_added_alike(f, native):
    check(f, z(5, 4), z(3, 4), torch.tensor([4, 0, 2]), reference=False)


FUNCTIONS = dict(
    roots=lambda x: (x.sqrt(), x.rsqrt()),
    tangents=lambda x: (x.tan(), x.tanh()),
    inverse=lambda x: (x.asin(), x.acos(), x.atan()),
    inverse_hyperbolic=lambda x: (x.asinh(), x.acosh(), x.atanh()),
    logarithms=lambda x: (x.log2(), x.log10(), x.log1p()),
    exponentials=lambda x: (x.exp2(), x.expm1()),
    powers=lambda x: (x**3, x**0, x**0.5, x ** (1 + 2j), 2**x, x ** x.flip(0)),
    products_with_itself=lambda x: (torch.nn.functional.silu(x), torch.sinc(x)),
    angles=lambda x: (x.angle(), x.real.angle(), x.abs().angle()),
    products=lambda x: (x.prod(), x.prod(1), x.prod(0, keepdim=True), x.cumprod(1), x[:0].prod(0), x[0, 0].prod()),
    spreads=lambda x: (x.var(), x.var(0), x.std(1, correction=0), *torch.var_mean(x, 1), *torch.std_mean(x)),
    norms=lambda x: (torch.linalg.vector_norm(x), x.norm(dim=1), torch.linalg.vector_norm(x, 1, dim=0), torch.dist(x, x.flip(0))),
)


@each(**FUNCTIONS)
def test_functions(f, native):
    check(f, z(3, 7), reference=False)


@pytest.mark.parametrize("name", "sqrt log tan tanh asin acos atan asinh acosh atanh log1p expm1".split())
def test_cuts_belong_to_the_side_that_zeros_say(name, native):
    ends = torch.tensor([-3.0, -2.0, -0.5, 0.5, 2.0, 3.0])
    zeros = torch.tensor([0.0, -0.0])
    real = torch.complex(*torch.meshgrid(ends, zeros, indexing="ij"))
    imaginary = torch.complex(*torch.meshgrid(zeros, ends, indexing="ij"))
    check(getattr(torch, name), torch.cat([real.flatten(), imaginary.flatten()]), reference=False)


def test_sums_of_exponentials_follow_the_larger_term(native):
    """The imaginary part of `logaddexp` may be beyond pi, as eager's is; of infinite and undefined terms it is what eager says of them."""
    real = torch.tensor([0.0, -0.0, 1.0, -3.0, 30.0, float("inf"), -float("inf"), float("nan")])
    imaginary = torch.tensor([2.0, -3.1, 3.1, 40.0, float("nan")])
    x = torch.complex(*torch.meshgrid(real, imaginary, indexing="ij")).flatten()
    check(torch.logaddexp, x[:, None], x, reference=False)


def test_powers_of_zero(native):
    x = torch.zeros(4, dtype=torch.complex64)
    check(lambda x, y: x**y, x, torch.tensor([2, 0.5 + 1j, 1, 3 - 2j]), reference=False)


def test_what_is_zero_is_zero_in_both_parts(native):
    x = torch.tensor([[0, 1j, -0.0], [2, 0, 1 + 1j]], dtype=torch.complex64)
    tests = lambda x, y: (x.logical_not(), x.logical_and(y), x.logical_or(y), x.logical_xor(y), x.to(torch.bool), torch.isreal(x))
    check(tests, x, x.flip(0), reference=False)
    check(lambda x: (x.all(), x.any(), x.all(1), x.any(0, keepdim=True), torch.count_nonzero(x, 1)), x, reference=False)


@each(
    shares=lambda x, y: (torch.addcmul(x, x, y, value=2 - 1j), torch.addcdiv(x, x, y, value=0.5), x.lerp(y, 0.25), x.lerp(y, y)),
    factors=lambda x, y: (torch.addmm(x, x, y, beta=2j, alpha=0.5), torch.addmv(x[0], x, y[0], beta=0, alpha=1 + 1j)),
    layers=lambda x, y: (torch.nn.functional.linear(x, y, x[0]), torch.nn.functional.linear(x, y)),
    images=lambda x, y: torch.nn.functional.conv1d(x.reshape(2, 2, 4), y[:, :4].reshape(4, 2, 2), y[0], padding=1),
    summed=lambda x, y: (torch.einsum("ij,kj->ik", x, y), torch.einsum("ii->i", x), torch.linalg.vecdot(x, y), torch.tensordot(x, y, 1)),
    products=lambda x, y: (torch.outer(x[0], y[1]), torch.kron(x, y[:2]), torch.linalg.cross(x[:, :3], y[:, :3]), torch.inner(x, y)),
    arranged=lambda x, y: (torch.hstack([x, y]), torch.block_diag(x, y), x.rot90(), x.tile(2, 1), torch.diff(x), x.trace()),
    picked=lambda x, y: (x.take(torch.tensor([3, 0])), x.index_fill(0, torch.tensor([1]), 2j), x.repeat_interleave(2, 1)),
    crossed=lambda x, y: (*torch.meshgrid(x[0], y[0], indexing="ij"), x[0].diag_embed()),
    made=lambda x, y: (torch.eye(3, 2, dtype=x.dtype) * x[0, 0], x.clone().zero_()),
    slopes=lambda x, y: (torch.gradient(x, spacing=0.5)[1], torch.trapezoid(y, dx=0.5), torch.cumulative_trapezoid(x), x.isclose(y)),
)
def test_operators_on_numbers_in_parts(f, native):
    check(f, z(4, 4), z(4, 4), reference=False)
