"""Elementwise special functions."""

from harness import *

for f in (aten.sinc, aten.deg2rad, aten.rad2deg, aten.special_i0, aten.special_erfcx):
    case(f.default, rand(7))
    case(f.default, whole(3))
case(aten.special_i0.default, torch.tensor([0.0, 25.0, -19.75, 20.25, 80.0, -200.0, NAN, INF], dtype=f64))
case(aten.special_erfcx.default, torch.tensor([0.0, 4.75, 5.25, 30.0, 1e8, -4.0, -30.0, INF, NAN], dtype=f64))
case(aten.sinc.default, torch.tensor([0.0, 0.5, NAN]))
case(aten.hypot.default, torch.tensor([3e30, 0.0, -INF, NAN, 3.0, NAN]), torch.tensor([4e30, 0.0, NAN, 1.0, -4.0, INF]))
case(aten.heaviside.default, edge, torch.tensor(0.5))
case(aten.xlogy.Tensor, edge, torch.tensor([1.0, 0.0, 2.0, NAN, INF, -1.0, 0.0, 4.0, 0.5]))
case(aten.xlogy.Scalar_Self, 2, rand(4, lo=1))
case(aten.xlogy.Scalar_Other, whole(4), 2)
case(aten.logaddexp.default, edge, torch.tensor([1.0, INF, -INF, 0.0, 2.0, 90.0, 1.0, 4.0, -104.0]))
case(aten.round.decimals, rand(7), decimals=1)
case(aten.round.decimals, rand(5) * 100, decimals=-2)
case(aten.mvlgamma.default, rand(4, lo=12), 3)
case(aten.polygamma.default, 1, torch.tensor([0.125, 0.5, 3.0, 20.0, -0.75, -3.25, INF]))
case(aten.float_power.Tensor_Scalar, whole(4), 2)
case(aten.float_power.Tensor_Scalar, rand(4, lo=1), -0.5)
case(aten.float_power.Tensor_Tensor, rand(4, lo=1), rand(4))
case(aten.ldexp.Tensor, rand(4), torch.tensor([2, -1, 0, 5]))

# Powers of two that are none in the type, and exponents of other types.
extreme = torch.tensor([1e-45, 1.0, 0.0, 1e-30, 3e38, -1.5, INF, NAN])
case(aten.ldexp.Tensor, extreme, torch.tensor([149, -149, 200, 150, -300, 3, -5, 7]))
case(aten.ldexp.Tensor, torch.tensor([1.5, -2.0], dtype=bf16), torch.tensor([3, -200], dtype=torch.int32))
case(aten.ldexp.Tensor, torch.tensor([5e-324, 1.0], dtype=f64), torch.tensor([1074, -1074]))
case(aten.ldexp.Tensor, whole(3), torch.tensor([-1, 0, 2]))
case(aten.ldexp.Tensor, rand(3), torch.tensor([0.5, 1.75, -2.0]))
case(aten.polygamma.default, 1, torch.tensor([0.125, 0.5, 2.047386382824099, 20.0, -0.75, -3.25, 1e-3], dtype=f64))

# Functions of one number, at ordinary points, at the joints of their formulas and at edges.
points = torch.tensor([0.0, -0.0, 1e-6, 0.25, 0.5, 1.0, -1.0, 1.9, 2.0, 2.1, 4.9, 5.0, 5.1, 8.5, -3.25, 19.5, 20.5, -25.0, 60.0], dtype=f64)
at_edges = torch.tensor([NAN, INF, -INF], dtype=f64)
for name in ("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "i0e", "i1", "i1e", "modified_bessel_i0",
             "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
             "scaled_modified_bessel_k1", "spherical_bessel_j0", "entr", "ndtr", "log_ndtr"):
    f = getattr(aten, "special_" + name).default
    case(f, points)
    # Eager has no number there where its series has none, and Litz the limits.
    if name not in ("i0e", "i1", "i1e", "modified_bessel_i0", "modified_bessel_i1"):
        case(f, at_edges)
    case(f, whole(3, lo=1))
    case(f, torch.empty(0))
    case(f, rand(2, 3).t().abs())
case(aten.special_ndtr.default, rand(3, dtype=bf16))
case(aten.special_ndtri.default, torch.tensor([0.0, 1e-300, 1e-20, 0.01, 0.13, 0.14, 0.5, 0.86, 0.87, 0.999, 1.0, -0.5, 1.5, NAN], dtype=f64))
case(aten.special_ndtri.default, torch.tensor([0.125, 0.75]))
case(aten.special_log_ndtr.default, torch.tensor([-40.0, -1.0, -0.99, 3.0]))
case(aten.special_xlog1py.default, edge, torch.tensor([1.0, 0.0, 2.0, NAN, INF, -1.0, 0.0, 4.0, 0.5]))
case(aten.special_xlog1py.self_scalar, 2, rand(4, lo=1))
case(aten.special_xlog1py.other_scalar, whole(4), 2)

# Functions of two. Near a = x above 20, eager's series has a pi of f32: 1e-9 off.
a = torch.tensor([0.0, 0.0, 1.0, 0.5, 2.5, 0.001, 0.75, 15.0, 30.0, 1000.0, 5.0, INF, -1.0, NAN, 3.0], dtype=f64)
x = torch.tensor([0.0, 1.0, 0.0, 0.25, 3.5, 0.001, 0.75, 12.5, 60.0, 10.0, 40.0, 1.0, 1.0, 1.0, INF], dtype=f64)
for f in (aten.igamma, aten.igammac, aten.special_gammainc, aten.special_gammaincc):
    case(f.default, a, x)
    case(f.default, rand(3, 1, lo=1), rand(2, lo=1))
q = torch.tensor([0.5, 3.0, -1.25, 10.0, 100.0, 0.0, -2.0, 2.0, 2.0, NAN, -0.5], dtype=f64)
s = torch.tensor([2.0, 1.5, 3.0, 20.0, 2.5, 2.0, 3.0, 1.0, 0.5, 2.0, 2.5], dtype=f64)
case(aten.special_zeta.default, s, q)
case(aten.special_zeta.self_scalar, 2, rand(4, lo=1))
case(aten.special_zeta.other_scalar, rand(4, lo=9), 1.5)
for n in (0, 2, 3, 6):
    case(aten.polygamma.default, n, torch.tensor([0.125, 0.5, 3.0, 20.0, -0.75, 1.0], dtype=f64))
case(aten.polygamma.default, 2, rand(3, lo=1))
case(aten.special_polygamma.default, 1, whole(3, lo=1))

# Polynomials: degrees that are none, fractions, arguments at and outside of 1.
x = torch.tensor([[0.0], [0.5], [-0.75], [1.0], [-1.0], [1.25], [-2.5], [0.9999]], dtype=f64)
n = torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.75, 8.0, 9.0, 13.0], dtype=f64)
for name in ("chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
             "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"):
    f = getattr(aten, "special_" + name)
    case(f.default, x, n)
    case(f.default, rand(3), whole(3, lo=0))
    case(f.n_scalar, rand(3, 2).t(), 5)
    case(f.x_scalar, 0.5, whole(3, lo=0))
for kind in "tuvw":
    f = getattr(aten, "special_shifted_chebyshev_polynomial_" + kind)
    case(f.default, (x + 1) / 2, n)
    case(f.n_scalar, rand(3), 4)
    case(f.x_scalar, 0.25, whole(3, lo=0))

# Odd polynomials are exactly 0 at 0.
for kind in "tuvw":
    case(getattr(aten, "special_chebyshev_polynomial_" + kind).default, torch.tensor([0.0, -0.0, 0.0, 0.0]), torch.tensor([1.0, 3.0, 4.0, 5.0]))
# Divisors.
for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
    a, b = whole(7, dtype=dtype, lo=0 if dtype == torch.uint8 else -60, hi=60), whole(3, 7, dtype=dtype, lo=0 if dtype == torch.uint8 else -9)
    for f in (aten.gcd, aten.lcm):
        case(f.default, a, b)
for dtype in (torch.int8, torch.int64):
    least = torch.iinfo(dtype).min
    case(aten.gcd.default, torch.tensor([least, least, 96, 0, least, 0], dtype=dtype), torch.tensor([96, 0, least, least, 3, 0], dtype=dtype))
case(aten.lcm.default, torch.tensor([0, 0, 6], dtype=torch.int32), torch.tensor([0, 4, -4]))
case(aten.gcd.default, torch.zeros(0, 2, dtype=torch.int64), torch.tensor(3))
