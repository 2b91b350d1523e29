"""Values that eager mode gives where several would do: places among unsorted boundaries, modes, bits of other types, random integers."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from checks import check, compiled, each, needs_litz

NAN, INF = float("nan"), float("inf")
# Coordinates that no element has: of no size, of any, and beyond what integers of 32 and 64 bits hold.
STRANGE = [NAN, INF, -INF, 1e10, -1e10, 3e9, -3e9, 1e20, -1e20, 2.0**31, -(2.0**31), 0.0, -0.0, 1.0, -1.0, 1.5, 1e-45]
TYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64]


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 64, 100])
def test_places_among_boundaries_that_are_not_sorted(length, right):
    generator = torch.Generator().manual_seed(length)
    bounds = torch.randint(-5, 5, (length,), generator=generator).float()
    values = torch.randint(-6, 6, (5, 9), generator=generator).float()
    bounds[2:3], values[0, 0] = NAN, NAN
    for dynamic in (False, True):
        check(lambda v, b: torch.bucketize(v, b, right=right), values, bounds, exact=True, reference=False, dynamic=dynamic)
        torch._dynamo.reset()


def test_places_behind_a_nan():
    f = compiled(torch.searchsorted)
    assert f(torch.tensor([1, 2, 3, NAN]), torch.tensor([1.0, 2, 0])).tolist() == [0, 1, 0]


@each(last=lambda x: x.mode(-1), first=lambda x: x.mode(0), kept=lambda x: x.mode(1, True))
def test_modes_are_where_they_are_for_the_last_time(f):
    # Eager mode sorts lines of up to 16 elements by insertion, and longer ones in no order of equals.
    x = torch.randint(0, 3, (9, 15), generator=torch.Generator().manual_seed(1))
    check(f, x, exact=True, reference=False)
    check(lambda x: f(x).values, x.float(), exact=True, reference=False, gradients=True)


def test_a_line_of_nan_has_its_first_as_mode():
    check(lambda x: x.mode(-1), torch.full((2, 3), NAN), exact=True, reference=False)


@needs_litz
@pytest.mark.parametrize("to", TYPES, ids=str)
@pytest.mark.parametrize("of", TYPES, ids=str)
def test_bits_of_other_types(of, to):
    import litz

    raw = torch.randint(0, 256, (3, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    raw = raw % 2 if torch.bool in (of, to) else raw
    f = lambda x: x.clone().view(to).clone()
    before = litz.stats()
    found, wanted = compiled(f)(raw.view(of)), f(raw.view(of))
    assert found.dtype == to and torch.equal(found.view(torch.uint8), wanted.view(torch.uint8))
    assert litz.stats()["fallbacks"] == before["fallbacks"]


def _byte_products(generator):
    """Operands of products of bytes, with the extremes often: odd sizes, one row, none of something, sums of one term, other strides."""

    def operand(*size):
        values, chance = torch.randint(-128, 128, size, generator=generator), torch.rand(size, generator=generator)
        return values.where(chance > 0.2, -128).where(chance < 0.9, 127).to(torch.int8)

    for rows, terms, columns in ((128, 1024, 64), (1, 33, 40), (17, 19, 31), (33, 4, 16), (20, 1, 17), (0, 8, 8), (18, 0, 8), (18, 8, 0)):
        yield operand(rows, terms), operand(terms, columns)
        yield operand(rows, terms), operand(columns, terms).t()
        yield operand(terms, rows).t(), operand(terms, columns)
        yield operand(rows, 2 * terms)[:, ::2], operand(3 * terms, columns + 5)[1::3, 3 : columns + 3]
    # Sums beyond 32 bits, which wrap around.
    yield torch.full((18, 140_001), -128, dtype=torch.int8), torch.full((140_001, 20), -128, dtype=torch.int8)


@needs_litz
@pytest.mark.parametrize("dynamic", [False, True])
def test_products_of_bytes_add_up_in_32_bits(dynamic):
    import litz

    before = litz.stats()
    for a, b in _byte_products(torch.Generator().manual_seed(4)):
        torch._dynamo.reset()
        found = torch.compile(torch._int_mm, backend="litz", fullgraph=True, dynamic=dynamic)(a, b)
        wanted = (a.double() @ b.double()).long().to(torch.int32)
        assert found.dtype == torch.int32 and torch.equal(found, wanted), (a.shape, a.stride(), b.shape, b.stride())
    after = litz.stats()
    assert (after["fallbacks"], after["eager_graphs"]) == (before["fallbacks"], before["eager_graphs"])


@needs_litz
@torch.no_grad()
def test_products_of_bytes_with_a_weight_of_the_model():
    import litz

    class Quantized(torch.nn.Module):
        def __init__(self):
            super().__init__()
            generator = torch.Generator().manual_seed(5)
            self.register_buffer("weight", torch.randint(-128, 128, (75, 51), dtype=torch.int8, generator=generator))
            self.register_buffer("scale", torch.rand(75, generator=generator) / 1000)

        def forward(self, x):
            largest = x.abs().amax(1, keepdim=True).clamp(1e-6)
            bytes_of_x = (x * (127 / largest)).round().to(torch.int8)
            return torch._int_mm(bytes_of_x, self.weight.t()) * self.scale * (largest / 127)

    before = litz.stats()
    check(Quantized().eval(), torch.randn(33, 51, generator=torch.Generator().manual_seed(6)), reference=False)
    after = litz.stats()
    assert (after["fallbacks"], after["eager_graphs"]) == (before["fallbacks"], before["eager_graphs"])


@needs_litz
def test_random_integers_are_in_their_range():
    import litz

    def f(x):
        return torch.randint(-5, 9, (4000,)), torch.randint(0, x.shape[0], (4000,)), torch.randint_like(x, 7), torch.randint(2, (4000,), dtype=torch.bool)

    before = litz.stats()["fallbacks"]
    results = compiled(f)(torch.zeros(300))
    assert litz.stats()["fallbacks"] == before
    assert [result.dtype for result in results] == [torch.int64, torch.int64, torch.float32, torch.bool]
    for result, least, most in zip(results, (-5, 0, 0, 0), (8, 299, 6, 1)):
        assert (result.min(), result.max()) == (least, most)
    assert len(results[0].unique()) == 14


def test_quotients_of_prims():
    check(lambda x: torch.ops.prims.div(x, x + 1), torch.randn(9), exact=True, reference=False)
    check(lambda x: torch.ops.prims.div(x, torch.full_like(x, 3)), torch.arange(-9, 9), exact=True, reference=False)


def strangely(*sizes):
    """Numbers around those between -1 and 1, every third of which is a strange one."""
    x = torch.rand(sizes, generator=torch.Generator().manual_seed(5)) * 2.4 - 1.2
    x.view(-1)[::3] = torch.tensor(list(itertools.islice(itertools.cycle(STRANGE), len(x.view(-1)[::3]))))
    return x


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_strange_places_in_images(mode, padding, align_corners):
    sample = lambda x, grid: F.grid_sample(x, grid, mode, padding, align_corners)
    check(sample, torch.randn(2, 3, 5, 7), strangely(2, 6, 9, 2), reference=False)
    if mode != "bicubic":
        check(sample, torch.randn(2, 3, 4, 5, 6), strangely(2, 3, 4, 5, 3), reference=False)


@pytest.mark.parametrize("length", [1, 7, 60])
def test_levels_of_what_is_no_number(length):
    x = strangely(3, length)
    check(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255), x, reference=False, exact=True)
    scale, zero = torch.tensor([0.1, 0.2, NAN]), torch.tensor([1, 2, 3], dtype=torch.int32)
    check(lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 0, 0, 255), x, scale, zero, reference=False, exact=True)


@each(
    conv1d=lambda x, w: F.conv1d(x.view(4, 8, -1), w.view(8, 2, -1), groups=4),
    conv2d=lambda x, w: F.conv2d(x.view(4, 8, 256, -1), w.view(8, 2, 3, -1), groups=4),
    conv3d=lambda x, w: F.conv3d(x.view(4, 2, 64, 64, -1), w.view(8, 2, 3, 1, -1)),
    linear=lambda x, w: x.view(-1, 16) @ w.view(16, -1),
)
def test_errors_of_long_sums_stay_near_those_of_eager_mode(f):
    generator = torch.Generator().manual_seed(3)
    x, w = (torch.randn(size, generator=generator) + 0.2 for size in (4 * 8 * 256 * 128, 48))
    gradient = lambda f, x, w: torch.autograd.grad((f(x, w := w.requires_grad_()) * 0.5).sum(), w)[0]
    exact = gradient(f, x.double(), w.double())
    error = lambda found: (found.detach().double() - exact).square().mean().sqrt()
    # Without sums of blocks of blocks they are 2 to 7 times as large.
    assert error(gradient(compiled(f), x, w.clone())) <= 1.5 * error(gradient(f, x, w.clone())) + 1e-7 * exact.abs().max()
