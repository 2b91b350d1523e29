"""Pointwise operators give eager mode's numbers and types, for each element type, for NaNs, infinities and zeros too."""

import math

import pytest
import torch
import torch.nn.functional as F
from checks import check, compiled, each
from torch import randn

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-30, -1e30, math.inf, -math.inf, math.nan, 3.5, 1e-45, 88.0, -104.0, 700.0]

UNARY = {
    "abs": torch.abs,
    "acos": torch.acos,
    "acosh": torch.acosh,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atanh": torch.atanh,
    "ceil": torch.ceil,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "digamma": torch.digamma,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "floor": torch.floor,
    "frac": torch.frac,
    "i0": torch.i0,
    "isfinite": torch.isfinite,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
    "isneginf": torch.isneginf,
    "isposinf": torch.isposinf,
    "lgamma": torch.lgamma,
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "logical_not": torch.logical_not,
    "nan_to_num": torch.nan_to_num,
    "neg": torch.neg,
    "reciprocal": torch.reciprocal,
    "relu": torch.relu,
    "round": torch.round,
    "rsqrt": torch.rsqrt,
    "sgn": torch.sgn,
    "sigmoid": torch.sigmoid,
    "sign": torch.sign,
    "signbit": torch.signbit,
    "sin": torch.sin,
    "sinc": torch.sinc,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "trunc": torch.trunc,
    "erfinv": torch.erfinv,
    "logit": torch.logit,
    "deg2rad": torch.deg2rad,
    "positive": torch.positive,
    "celu": F.celu,
    "elu": F.elu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "leaky_relu": F.leaky_relu,
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "relu6": F.relu6,
    "selu": F.selu,
    "silu": F.silu,
    "softplus": F.softplus,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
}


@each(**UNARY)
def test_unary(f):
    check(f, randn(3, 17))


@pytest.mark.parametrize("first", [*UNARY][::6])
def test_unary_of_special_values(first):
    start = [*UNARY].index(first)
    functions = [*UNARY.values()][start : start + 6]
    check(lambda x: [f(x) for f in functions], torch.tensor(SPECIAL))


SMOOTH = ["exp", "log", "sin", "tanh", "sigmoid", "sqrt", "rsqrt", "erf", "gelu", "gelu_tanh", "silu", "elu", "softplus", "mish", "hardswish",
          "logsigmoid", "celu", "abs", "atan", "asinh", "log1p", "expm1", "lgamma", "reciprocal", "leaky_relu", "hardtanh", "relu", "sinc"]


@each(**{name: UNARY[name] for name in SMOOTH})
def test_gradient_of_unary(f):
    check(f, randn(3, 17).abs() + 0.1, gradients=True)


@each(**{name: UNARY[name] for name in ["exp", "tanh", "gelu", "sigmoid", "rsqrt", "log", "silu", "floor", "softplus"]})
def test_unary_of_each_float(f):
    check(lambda *xs: [f(x) for x in xs], *(randn(33).to(dtype) for dtype in FLOATS))


@each(**{name: UNARY[name] for name in ["abs", "neg", "sign", "square", "exp", "sqrt", "floor", "logical_not", "relu", "sin"]})
def test_unary_of_each_integer(f):
    check(lambda *xs: [f(x) for x in xs], *(torch.arange(-5 if dtype.is_signed else 0, 12).to(dtype) for dtype in INTEGERS), reference=False)


BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floor_divide": torch.floor_divide,
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "pow": lambda x, y: torch.pow(x.abs() + 0.5, y),
    "atan2": torch.atan2,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "hypot": torch.hypot,
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "xlogy": lambda x, y: torch.xlogy(x, y.abs()),
    "heaviside": torch.heaviside,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "add_with_alpha": lambda x, y: torch.add(x, y, alpha=2),
    "isclose": torch.isclose,
}


@each(**BINARY)
def test_binary(f):
    check(f, randn(3, 1, 7), randn(5, 7), reference=f is not torch.nextafter)


@each(**{name: f for name, f in BINARY.items() if name not in ("pow", "xlogy")})
def test_binary_of_special_values(f):
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, math.inf, -math.inf, math.nan])
    check(f, values[:, None], values, reference=False)


INTEGER_BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "true_divide": torch.div,
    "floor_divide": torch.floor_divide,
    "div_trunc": BINARY["div_trunc"],
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "maximum": torch.maximum,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "lt": torch.lt,
    "gcd": torch.gcd,
    "logical_and": torch.logical_and,
}


def operands(dtype):
    info = torch.iinfo(dtype)
    left = torch.tensor([info.min, info.min + 1, 0, 1, 7, 100, info.max - 1, info.max], dtype=dtype)
    right = torch.tensor([1, 2, 3, 7, 100], dtype=dtype)
    return left[:, None], torch.cat([right, -right[1:]]) if dtype.is_signed else right


@each(**INTEGER_BINARY)
def test_binary_of_integers(f):
    check(lambda *args: [f(x, y) for x, y in args], *(operands(dtype) for dtype in INTEGERS))


@each(
    left=lambda x, y: x << y,
    right=lambda x, y: x >> y,
    left_by_a_number=lambda x, y: x << 3,
    right_by_a_number=lambda x, y: (x >> 1) + y,
    not_=lambda x, y: ~x,
    masked=lambda x, y: (x & 15) | (y << 1),
)
def test_bits(f):
    check(lambda *args: [f(x, y) for x, y in args], *((operands(dtype)[0], torch.arange(7, dtype=dtype)) for dtype in INTEGERS))


@pytest.mark.parametrize("left", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_promotion(left):
    def f(x, *args):
        return [(x + y, x * 2, y * 2.5, x + z, torch.where(y > 0, x, y), torch.maximum(x, y)) for y, z in args]

    numbers = torch.tensor([0, 1, 3, 5])
    rights = [torch.bool, torch.int16, torch.int64, torch.bfloat16, torch.float32]
    check(f, numbers.to(left), *((numbers.flip(0).to(right), torch.tensor(2, dtype=right)) for right in rights), reference=False)


@pytest.mark.parametrize("source", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, *FLOATS])
def test_conversion(source):
    values = torch.tensor([0.0, 0.4, 0.5, 1.0, 1.5, 2.5, 100.7, 127.0])
    signed = torch.cat([values, -values]) if source.is_signed else values
    targets = [torch.bool, torch.int8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32]
    check(lambda x, y: (x.to(torch.uint8), [y.to(target) for target in targets]), values.to(source), signed.to(source), reference=False, exact=True)


@pytest.mark.parametrize("eps", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_limits_are_numbers_of_the_type(dtype, eps):
    check(lambda x: torch.logit(x, eps), torch.tensor([0.0, 1.0, 0.5, 0.25], dtype=dtype), gradients=True, reference=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_rounding_to_narrow_floats(dtype):
    values = torch.cat([randn(200), randn(200) * 1e-6, torch.tensor([65519.0, 65520.0, 448.0, 464.0, 57344.0, math.nan, -0.0, 2**-25, 2**-24 * 1.5])])
    check(lambda x: x.to(dtype).float(), values, reference=False, exact=True)


@each(
    clamp=lambda x: x.clamp(-0.5, 0.5),
    clamp_below=lambda x: x.clamp(min=0.1),
    clamp_by_tensors=lambda x: x.clamp(x.roll(1), x.roll(2)),
    where_with_numbers=lambda x: torch.where(x > 0, 1.0, -1.0) * x,
    where_mixed=lambda x: torch.where(x > 0, x, 0),
    where_guards_nan=lambda x: torch.where(x > 0, x.log(), 0.0),
    masked_fill=lambda x: x.masked_fill(x < 0, -math.inf),
    lerp=lambda x: torch.lerp(x, x.roll(1), 0.3),
    lerp_by_tensor=lambda x: torch.lerp(x, x.roll(1), x.sigmoid()),
    addcdiv=lambda x: torch.addcdiv(x, x, x.abs() + 1, value=0.5),
    addcmul=lambda x: torch.addcmul(x, x, x, value=-2),
    polynomial=lambda x: ((x * 3 + 2) * x - 1) * x + 0.5,
    power_two=lambda x: x**2,
    power_three=lambda x: x**3,
    power_half=lambda x: x.abs() ** 0.5,
    power_minus_one=lambda x: (x.abs() + 1) ** -1,
    power_fraction=lambda x: (x.abs() + 1) ** 1.7,
    power_zero=lambda x: x**0 + x,
    number_to_the_power=lambda x: 2.0**x,
    reverse_division=lambda x: 1 / (x.abs() + 0.5),
    reverse_subtraction=lambda x: 1 - x,
    softmax_by_hand=lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
    swiglu=lambda x: F.silu(x[:, :4]) * x[:, 4:],
    geglu=lambda x: F.gelu(x[:, :4]) * x[:, 4:],
    glu=lambda x: F.glu(x, 1),
    prelu=lambda x: F.prelu(x, torch.tensor([0.3])) if x.dtype == torch.float32 else F.prelu(x, torch.tensor([0.3], dtype=x.dtype)),
    cumulative_chain=lambda x: ((x + 1).sin() * (x - 1).cos()).tanh() / (x * x + 1),
    many_uses=lambda x: (lambda y: y * y + y.sin() - y / 3)(x.exp()),
    dead_code=lambda x: (x.log(), x + 1)[1],
)
def test_composed(f):
    check(f, randn(5, 8), gradients=True)


@each(
    chain=lambda x: (x * 1.5 + 0.25).tanh() * x,
    sums=lambda x: x + x * 2 + x * 3,
    up_and_down=lambda x: (x.float() * 1.001).to(x.dtype) + x,
    gated=lambda x: torch.sigmoid(x) * torch.tanh(x),
)
def test_composed_in_half_precision(f):
    check(lambda x, y: (f(x), f(y)), randn(65).half(), randn(65).bfloat16(), gradients=True)


def test_overflow_of_half_precision():
    check(lambda x: (x * 1000, x.exp(), x * x), torch.tensor([1.0, 100.0, 300.0, -70.0], dtype=torch.float16), reference=False)


def test_integers_wrap():
    check(lambda x: (x + 1, x * 3, -x, x - 200), torch.tensor([127, -128, 100, -1], dtype=torch.int8))


def test_large_integers_keep_all_digits():
    big = torch.tensor([2**53 + 1, -(2**62), 2**63 - 1, 123456789012345678])
    check(lambda x: (x + 1, x // 10, x % 1000, x * 3, x > 2**53, x ^ (x >> 7), x.maximum(x.flip(0))), big)


def test_integer_division_rounds_down():
    x = torch.tensor([-7, -6, -1, 0, 1, 6, 7])
    check(lambda x: (x // 3, x // -3, x % 3, x % -3, x.fmod(3), torch.div(x, 3, rounding_mode="trunc")), x)


def test_floor_division_of_floats():
    x = torch.tensor([-7.5, -6.0, -0.0, 0.0, 1.0, 6.1, 7.0, math.inf, math.nan])
    check(lambda x: (x // 3, x // -2.5, x % 3, x % -2.5, x.fmod(2.5), x // 0.1), x, reference=False)


def test_rounding_is_to_even():
    x = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 0.49999997])
    check(lambda x: (x.round(), x.round(decimals=1), x.int(), x.trunc()), x, reference=False)


def test_negative_zero():
    def f(x):
        return torch.signbit(x * 1.0), torch.signbit(-x), torch.signbit(x + 0.0), 1 / x, torch.signbit(x.abs()), torch.signbit(x.ceil())

    check(f, torch.tensor([0.0, -0.0, -0.25]), reference=False)


def test_denormals():
    x = torch.tensor([1e-40, -1e-42, 1e-38, 1.4e-45])
    check(lambda x: (x * 0.5, x + x, x > 0, x * 1e10, x / 3), x, reference=False, exact=True)


def test_comparison_chains():
    def f(x, y):
        return (x > 0) & (y < 1) | ~(x == y), ((x > y).float() - (x < y).float()), (x > 0) ^ (y > 0), (x >= 0) == (y >= 0)

    check(f, randn(4, 5), randn(5))


def test_booleans_are_numbers():
    def f(x):
        a, b = x > 0, x < 0.5
        return a + b, a * b, a.sum(), a.int() << 1, a.float() * x, a | b, (a & b).any(), a.cumsum(-1)

    check(f, randn(4, 5))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_wide_unsigned_integers(dtype):
    x = torch.tensor([0, 1, 2**15, 65535], dtype=torch.int64).to(dtype)
    check(lambda x: (x.to(torch.int64) + 1, x.to(torch.float32), x.clone(), x.view(2, 2).t(), x.bool()), x, reference=False)


@each(
    sum=lambda x, y: x + y * 2,
    product=lambda x, y: x * y,
    quotient=lambda x, y: x / y,
    abs=lambda x, y: (x * y).abs(),
    angle=lambda x, y: x.angle() + y.angle(),
    exp=lambda x, y: (x.exp(), y.sin()),
    conj=lambda x, y: x.conj() * y,
    polar=lambda x, y: torch.polar(x.abs(), y.angle()),
    parts=lambda x, y: torch.complex(x.real, y.imag),
    equal=lambda x, y: x == y,
    times_real=lambda x, y: x * y.real,
    times_number=lambda x, y: x * (1 + 2j),
    rotary=lambda x, y: torch.view_as_real(torch.view_as_complex(torch.view_as_real(x) * 2.0) * y).flatten(-2),
)
def test_complex(f):
    check(lambda *args: [f(x, y) for x, y in args], *((randn(3, 4, dtype=dtype), randn(4, dtype=dtype)) for dtype in (torch.complex64, torch.complex128)))


@pytest.mark.parametrize("size", [1, 7, 8, 15, 16, 17, 63, 64, 65, 1000])
def test_sizes_around_vectors(size):
    check(lambda x, y: (x * y + 1).relu(), randn(size), randn(size))


def test_many_operators():
    def f(x):
        for step in range(60):
            x = (x + step * 0.01).sin() * 1.01 + x * 0.1
        return x

    check(f, randn(20))


def test_many_arguments():
    def f(*xs):
        total = xs[0]
        for x in xs[1:]:
            total = total + x * 2
        return total

    check(f, *(randn(5) for _ in range(40)))


def test_many_results():
    check(lambda x: [x * number for number in range(30)], randn(6))


@pytest.mark.parametrize("f", [torch.floor_divide, torch.remainder, torch.fmod, lambda x, y: torch.div(x, y, rounding_mode="trunc")])
def test_integers_are_not_divided_by_zero(f):
    x, y = torch.arange(-20, 20, dtype=torch.int32), torch.arange(1, 41)
    check(f, x, y)
    y[33] = 0
    for run in (f, compiled(f)):
        with pytest.raises(RuntimeError, match="(?i)zero"):
            run(x, y)
    check(f, x.double(), y)
    check(lambda x, y: x // y.shape[0] % 3, x, y)
