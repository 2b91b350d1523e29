"""Values that eager mode gives where several would do: places among unsorted boundaries, modes, bits of other types, random integers."""

import pytest
import torch

from checks import check, compiled, each, needs_litz

NAN = float("nan")
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


@needs_litz
def test_products_of_bytes_add_up_in_32_bits():
    import litz

    generator = torch.Generator().manual_seed(4)
    a, b = (torch.randint(-128, 128, size, dtype=torch.int8, generator=generator) for size in ((128, 1024), (1024, 64)))
    before = litz.stats()["fallbacks"]
    check(torch._int_mm, a, b, exact=True, reference=False)
    assert litz.stats()["fallbacks"] == before


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
