"""Constants in graphs, whatever their type, and conversions that follow each other keep eager mode's values."""

import math

import numpy
import pytest
import torch
from checks import check, compiled, each, same
from torch import nn, randn

TABLE = torch.linspace(-1, 1, 12).view(3, 4)
WEIGHT = nn.Parameter(torch.linspace(0, 1, 4))
NUMBERS = torch.arange(4)
ARRAY = numpy.linspace(0, 3, 4, dtype=numpy.float32)


@each(
    captured_tensor=lambda x: x + TABLE,
    captured_parameter=lambda x: x * WEIGHT,
    captured_view=lambda x: x + TABLE.t()[:, 1],
    captured_indices=lambda x: x[:, NUMBERS.flip(0)],
    captured_returned=lambda x: (x + 1, TABLE),
    captured_view_returned=lambda x: (x + 1, TABLE[1:]),
    captured_array=lambda x: x + torch.from_numpy(ARRAY),
    list=lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]),
    nested_list=lambda x: x @ torch.tensor([[1.0, 0], [0, 1], [2, 0], [0, 2]]),
    integers=lambda x: x * torch.tensor([1, 2, 3, 4]),
    booleans=lambda x: x * torch.tensor([True, False, True, True]),
    scalar_tensor=lambda x: x + torch.tensor(3),
    scalar_tensor_of_double=lambda x: x + torch.tensor(0.1, dtype=torch.float64),
    one_constant_only=lambda x: torch.tensor([1, 2, 3]),
    python_number=lambda x: 7,
    python_numbers_and_tensor=lambda x: (1, 2.5, True, None, "text", x * 2),
    zeros=lambda x: torch.zeros(3, 4) + x,
    ones_of_half=lambda x: torch.ones(4, dtype=torch.float16) + x,
    full=lambda x: torch.full((3, 4), 2.5),
    full_of_integers=lambda x: torch.full((2,), 7),
    full_of_boolean=lambda x: torch.full((2,), True),
    full_infinite=lambda x: x + torch.full((4,), -math.inf),
    arange=lambda x: torch.arange(4),
    arange_with_step=lambda x: torch.arange(1, 10, 3) + 1,
    arange_down=lambda x: torch.arange(5, 0, -2),
    arange_of_floats=lambda x: torch.arange(0, 1, 0.3),
    linspace=lambda x: torch.linspace(-1, 2, 7),
    logspace=lambda x: torch.logspace(0, 2, 5),
    eye=lambda x: torch.eye(3, 4) * x,
    tri=lambda x: torch.tril_indices(3, 3),
    pi=lambda x: x * math.pi,
    nan=lambda x: x * math.nan,
    infinity=lambda x: (x + math.inf, x - math.inf),
    large=lambda x: x * 1e30 * 1e-30,
    small=lambda x: x * 1e-45,
    not_a_float=lambda x: x + 16777217,
    long=lambda x: NUMBERS + (2**40 + 1),
    negative_zero=lambda x: torch.signbit(torch.full((2,), -0.0)),
    new_tensor=lambda x: x.new_tensor([1.0, 2.0, 3.0, 4.0]) * x,
    complex_number=lambda x: x * 2j,
    window=lambda x: torch.hann_window(4) * x,
    folded=lambda x: x + (torch.ones(4) * 2 + torch.arange(4)).sum(),
    mask=lambda x: x.masked_fill(torch.ones(3, 4, dtype=torch.bool).triu(1), -1.0),
    finfo=lambda x: x.clamp(min=torch.finfo(x.dtype).tiny) + torch.iinfo(torch.int8).max,
)
def test_constants(f):
    check(f, randn(3, 4), reference=False)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64,
                                   torch.complex64])
def test_constant_of_each_type(dtype):
    constant = torch.tensor([0, 1, 2, 3]).to(dtype)
    check(lambda x: (x + constant, torch.ones(2, dtype=dtype), torch.full((2,), 1, dtype=dtype)), randn(3, 4), reference=False)


@each(
    up_and_down=lambda x: x.float().to(x.dtype),
    up_compute_down=lambda x: (x.float() * 1.1 + 0.3).to(x.dtype),
    down_and_up=lambda x: x.to(torch.float16).to(torch.float32),
    through_int=lambda x: x.int().to(x.dtype),
    through_bool=lambda x: x.bool().to(x.dtype),
    sum_in_double=lambda x: x.double().sum().to(x.dtype),
    to_double_and_back=lambda x: x.double().sin().float(),
    twice_rounded=lambda x: x.to(torch.bfloat16).to(torch.float16).float(),
    type_as=lambda x: torch.ones(5, dtype=torch.float64).type_as(x) * x,
    half_sum=lambda x: x.half() + x.half() * 2,
    mixed_sum=lambda x: x.half() + x.float(),
    mixed_with_number=lambda x: x.half() * 1.1,
    mixed_with_scalar_tensor=lambda x: x.half() * torch.tensor(1.1),
    mixed_with_integers=lambda x: x.half() + torch.arange(5),
    mean_of_half=lambda x: x.half().mean(),
    softmax_in_float=lambda x: x.half().softmax(0, dtype=torch.float32),
    int_divided=lambda x: torch.arange(5) / 2,
    truncated=lambda x: (x * 10).to(torch.int8) + 1,
    to_unsigned=lambda x: (x.abs() * 10).to(torch.uint8).float(),
)
def test_conversions(f):
    check(lambda x, y: (f(x), f(y)), randn(5), randn(5).bfloat16(), reference=False)


def test_rounding_of_half_between_operators():
    x = torch.tensor([2049.0, 1.0, 0.1]).half()
    check(lambda x: ((x + 1) - x, (x * 3) / 3), x)


def test_a_default_type_of_double():
    torch.set_default_dtype(torch.float64)
    try:
        check(lambda x: (x + 0.1, torch.ones(3), torch.tensor(0.1), torch.arange(3) / 2), torch.randn(3))
    finally:
        torch.set_default_dtype(torch.float32)


class Constants(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 1.5
        self.register_buffer("table", torch.arange(4.0))
        self.register_buffer("hidden", torch.ones(4), persistent=False)
        self.plain = torch.full((4,), 0.25)
        self.sizes = [1, 3]

    def forward(self, x):
        return [part * self.scale for part in (x * self.table + self.hidden - self.plain).split(self.sizes, -1)]


def test_attributes_of_modules():
    check(Constants(), randn(3, 4), reference=False)


def test_a_changed_attribute_is_seen():
    module = Constants()
    fast = compiled(module)
    x = randn(3, 4)
    same(fast(x), module(x))
    module.scale = 3.0
    same(fast(x), module(x))
    module.plain.fill_(2)
    same(fast(x), module(x))
    module.table = torch.ones(4)
    same(fast(x), module(x))


def test_a_changed_global_is_seen():
    numbers = {"factor": 2.0}
    fast = compiled(lambda x: x * numbers["factor"])
    same(fast(torch.ones(2)), torch.full((2,), 2.0))
    numbers["factor"] = 5.0
    same(fast(torch.ones(2)), torch.full((2,), 5.0))


def test_a_captured_tensor_that_changes_is_seen():
    table = torch.ones(3)
    fast = compiled(lambda x: x + table * 2)
    same(fast(torch.zeros(3)), torch.full((3,), 2.0))
    table.fill_(4)
    same(fast(torch.zeros(3)), torch.full((3,), 8.0))


def test_a_large_constant():
    table = randn(200, 100)
    check(lambda x: x @ table, randn(2, 200), reference=False)


def test_a_constant_is_not_changed_by_results():
    fast = compiled(lambda x: (x + 1, torch.tensor([1.0, 2.0])))
    fast(torch.zeros(2))[1].zero_()
    same(fast(torch.zeros(2))[1], torch.tensor([1.0, 2.0]))


def test_quantised_weights():
    weight = torch.randint(-128, 128, (8, 16), dtype=torch.int8)
    scale = torch.rand(8, 1)
    check(lambda x: x @ (weight.float() * scale).t(), randn(3, 16), reference=False)


def test_packed_weights_of_four_bits():
    packed = torch.randint(0, 256, (8, 8), dtype=torch.uint8)

    def f(x):
        low, high = (packed & 15).to(torch.int8) - 8, (packed >> 4).to(torch.int8) - 8
        return x @ torch.stack([low, high], -1).flatten(1).to(x.dtype).t()

    check(f, randn(3, 16))
