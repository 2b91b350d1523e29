"""Elementwise operators: promotion of types, numbers at the edges."""

from harness import *

# Type promotion: dimensions beat zero dimensions beat Python numbers, within a family.
for a, b in [(f32, f64), (torch.int32, torch.int64), (torch.uint8, torch.int8), (torch.bool, torch.int32),
             (torch.int64, f16), (f16, bf16), (torch.uint8, torch.int16)]:
    x = rand(3).to(a) if a.is_floating_point else whole(3, lo=0).to(a)
    y = rand(3).to(b) if b.is_floating_point else whole(3, lo=0).to(b)
    case(aten.add.Tensor, x, y)
    case(aten.mul.Tensor, x, y.sum().to(b))
    case(aten.mul.Tensor, x.sum().to(a), y)
    case(aten.add.Tensor, x.sum().to(a), y.sum().to(b))
case(aten.mul.Tensor, rand(3, dtype=bf16), torch.tensor(2.5, dtype=f64))
for x in (rand(3, dtype=f16), whole(3), whole(3) > 0, whole(3, dtype=torch.uint8, lo=0), whole(3).sum()):
    case(aten.add.Scalar, x, 2)
    case(aten.add.Scalar, x, 2.5)
    case(aten.mul.Scalar, x, True)
case(aten.add.Tensor, whole(3) > 0, whole(3) > 0)
case(aten.mul.Tensor, whole(3) > 0, whole(3) > 0)
case(aten.add.Tensor, rand(2, 3), rand(3), alpha=2)
case(aten.sub.Tensor, whole(2, 3), whole(2, 1), alpha=-3)
case(aten.rsub.Scalar, rand(4), 1.5, 2)
case(aten.div.Tensor, whole(4, lo=1), whole(4, lo=1))
case(aten.div.Tensor, rand(4, dtype=bf16), rand(4, dtype=bf16, lo=1))
case(aten.div.Scalar, rand(4), 3)
for mode in (None, "floor", "trunc"):
    case(aten.div.Tensor_mode, rand(6), rand(6, lo=1), rounding_mode=mode)
    case(aten.div.Tensor_mode, whole(6), torch.tensor([2, -2, 3, -3, 5, 7]), rounding_mode=mode)
case(aten.floor_divide.default, whole(6), torch.tensor([2, -2, 3, -3, 5, 7]))
case(aten.remainder.Tensor, whole(6), torch.tensor([2, -2, 3, -3, 5, 7]))
case(aten.remainder.Scalar, rand(6), -0.75)
case(aten.fmod.Scalar, rand(6), 0.75)
case(aten.fmod.Tensor, whole(6), torch.tensor([2, -2, 3, -3, 5, 7]))
for e in (2, 3, 0.5, -0.5, -1, -2, 1.5, 0):
    case(aten.pow.Tensor_Scalar, rand(5, lo=1), e)
case(aten.pow.Tensor_Scalar, whole(5), 2)
case(aten.pow.Tensor_Scalar, whole(5), 3)
case(aten.pow.Tensor_Scalar, whole(5, lo=1), 0.5)
case(aten.pow.Scalar, 2, rand(4))
case(aten.pow.Scalar, 2, whole(4, lo=0))
case(aten.pow.Tensor_Tensor, rand(4, lo=1), rand(4))
case(aten.addcmul.default, rand(2, 3), rand(2, 1), rand(3), value=0.5)
case(aten.addcdiv.default, rand(2, 3), rand(2, 1), rand(3, lo=1), value=-2)
case(aten.lerp.Scalar, rand(4), rand(4), 0.75)
case(aten.lerp.Tensor, rand(4), rand(4), rand(4))
for f in (aten.neg, aten.abs, aten.sign, aten.relu, aten.exp, aten.sigmoid, aten.tanh, aten.silu,
          aten.erf, aten.isnan, aten.isinf, aten.isfinite, aten.signbit, aten.logical_not, aten.floor, aten.ceil,
          aten.round, aten.trunc, aten.nan_to_num, aten.hardswish, aten.hardsigmoid, aten.hardtanh, aten.leaky_relu,
          aten.elu, aten.selu, aten.softplus, aten.log_sigmoid, aten.hardshrink, aten.softshrink, aten.relu6,
          aten.expm1, aten.square, aten.reciprocal, aten.mish, aten.celu, aten.frac):
    case(f.default, edge)
    case(f.default, rand(9, dtype=bf16))
# Eager's vector code gives NaN for gelu of infinities.
case(aten.gelu.default, edge[3:])
case(aten.gelu.default, rand(9, dtype=bf16))
case(aten.gelu.default, rand(9), approximate="tanh")
positive = torch.tensor([0.125, 0.5, 1.0, 2.0, 7.5, INF, NAN, 0.0])
for f in (aten.log, aten.log2, aten.log10, aten.log1p, aten.sqrt, aten.rsqrt, aten.exp2):
    case(f.default, positive)
    case(f.default, whole(4, lo=1))
for f in (aten.sin, aten.cos, aten.tan, aten.atan, aten.sinh, aten.cosh, aten.asinh, aten.erfc, aten.sigmoid):
    case(f.default, rand(5))
    case(f.default, whole(3))
unit = torch.tensor([-0.875, -0.25, 0.0, 0.5, 1.0])
for f in (aten.asin, aten.acos, aten.atanh):
    case(f.default, unit)
case(aten.atan2.default, rand(6), rand(6))
case(aten.logit.default, torch.tensor([0.0, 0.25, 0.5, 1.0]), 0.125)
case(aten.logit.default, torch.tensor([0.25, 0.5, 0.75]))
case(aten.threshold.default, rand(6), 0.5, 7.0)
case(aten.prelu.default, rand(6), torch.tensor([0.25]))
case(aten.prelu.default, rand(2, 3, 4), torch.tensor([0.25, 0.5, -1.0]))
case(aten.softplus.default, rand(6), 2, 1)
case(aten.leaky_relu.default, rand(6), 0.25)
case(aten.hardtanh.default, rand(6), -0.5, 0.75)
case(aten.elu.default, rand(6), 1.5, 2.0, 0.5)
case(aten.maximum.default, edge, rand(9))
case(aten.minimum.default, edge, rand(9))
case(aten.fmax.default, edge, torch.tensor([NAN, 1, 2, 3, NAN, -1, 0, 5, NAN]))
case(aten.clamp.default, edge, -1, 2.5)
case(aten.clamp.default, edge, None, 2)
case(aten.clamp.default, whole(5), 0.5)
case(aten.clamp.default, whole(5), -2, 3)
case(aten.clamp_min.default, whole(5), 1)
case(aten.clamp.Tensor, rand(2, 3), rand(3), None)
for f in (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge):
    case(f.Scalar, edge, 1)
    case(f.Tensor, whole(2, 3), rand(3))
case(aten.logical_and.default, rand(6), whole(6))
case(aten.logical_or.default, whole(6) > 0, whole(6))
case(aten.logical_xor.default, whole(6) > 0, whole(6))
case(aten.bitwise_and.Tensor, whole(6), whole(6))
case(aten.bitwise_or.Tensor, whole(6) > 0, whole(6) > 0)
case(aten.bitwise_xor.Scalar, whole(6), 5)
case(aten.bitwise_not.default, whole(6))
case(aten.bitwise_not.default, whole(6) > 0)
case(aten.__lshift__.Scalar, whole(6, lo=0), 2)
case(aten.__rshift__.Scalar, whole(6), 2)
case(aten.where.self, whole(2, 3) > 0, rand(2, 3), torch.tensor(0.5, dtype=f64))
case(aten.where.self, whole(3, 1) > 0, rand(2, 3, 1), rand(4))
case(aten.where.ScalarOther, whole(4) > 0, rand(4, dtype=bf16), 1.5)
case(aten.where.ScalarSelf, whole(4) > 0, 1, whole(4))
case(aten.where.Scalar, whole(4) > 0, 1, 2.5)
case(aten.masked_fill.Scalar, rand(2, 3, dtype=f16), whole(3) > 0, -INF)
case(aten.masked_fill.Scalar, whole(2, 3), whole(2, 1) > 0, 7)
case(aten.masked_fill.Tensor, rand(2, 3), whole(3) > 0, torch.tensor(2.0))

# The lower limit is above the upper one.
case(aten.logit.default, torch.tensor([-1.0, 0.25, 0.5, 0.75, 2.0, NAN]), 0.75)
# Operands are rounded to the common type first, but for the second of products and quotients that has no dimensions.
for dtype in (f16, bf16):
    x, odd = (rand(9) * 4 + 0.1).to(dtype), 1.0037
    near, whole, zero_dim = torch.full((9,), odd).to(dtype), torch.tensor([2049, 70000, 257, 5001, 7, 0, -1, -65519, 65519]), torch.tensor(odd)
    for op in (aten.add.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.sub.Tensor, aten.maximum.default, aten.eq.Tensor, aten.lt.Tensor, aten.remainder.Tensor):
        case(op, x, zero_dim)
        case(op, near, zero_dim)
        case(op, whole, near)
        case(op, zero_dim, x)
    case(aten.eq.Tensor, whole, whole.to(dtype))
    for op in (aten.lt.Scalar, aten.eq.Scalar, aten.ge.Scalar, aten.mul.Scalar, aten.add.Scalar, aten.fmod.Scalar, aten.floor_divide.Scalar, aten.pow.Tensor_Scalar):
        case(op, near, odd)
        case(op, x, 2049)
    case(aten.div.Tensor_mode, x, zero_dim, rounding_mode="floor")
    case(aten.sub.Tensor, x, x * 2, alpha=odd)
    case(aten.rsub.Scalar, x, 1.5, alpha=odd)
    case(aten.softshrink.default, near, odd)
    case(aten.where.self, near > 1, near, whole)
