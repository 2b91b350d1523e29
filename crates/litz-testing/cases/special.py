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
