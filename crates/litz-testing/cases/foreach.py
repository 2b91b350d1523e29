"""Operators on lists of tensors of different sizes and types."""

from harness import *


def lists(*shapes, **kinds):
    return [rand(*shape, **kinds) for shape in shapes]


SHAPES = ((3,), (2, 2), (), (0,))
for name in ("sqrt", "neg", "reciprocal", "sign", "exp", "sigmoid", "zero"):
    case(getattr(aten, f"_foreach_{name}").default, lists(*SHAPES))
for name in ("add", "sub", "mul", "div"):
    f = getattr(aten, f"_foreach_{name}")
    case(f.Scalar, lists(*SHAPES), 2)
    case(f.List, lists(*SHAPES), lists(*SHAPES))
    case(f.ScalarList, lists(*SHAPES), [1, 2.5, 3, 4])
case(aten._foreach_add.List, lists(*SHAPES), lists(*SHAPES), alpha=0.5)
case(aten._foreach_sub.List, lists((3,), dtype=bf16), lists((3,)), alpha=2)
case(aten._foreach_mul.Tensor, lists(*SHAPES), torch.tensor(1.5))
case(aten._foreach_add.Tensor, lists(*SHAPES), torch.tensor(1.5), alpha=3)
case(aten._foreach_add.Scalar, [whole(3), whole(2, 2)], 2)
case(aten._foreach_div.Scalar, [whole(3), whole(2, 2)], 2)
for name in ("clamp_min", "clamp_max", "maximum", "minimum"):
    f = getattr(aten, f"_foreach_{name}")
    case(f.Scalar, lists(*SHAPES), 0.5)
    case(f.List, lists(*SHAPES), lists(*SHAPES))
    case(f.ScalarList, lists(*SHAPES), [0.0, 1.0, -1.0, 2.0])
case(aten._foreach_pow.Scalar, lists(*SHAPES), 2)
case(aten._foreach_pow.ScalarList, lists(*SHAPES), [2, 3, 1, 0])
case(aten._foreach_pow.ScalarAndTensor, 2.0, lists(*SHAPES))
for name in ("addcdiv", "addcmul"):
    f = getattr(aten, f"_foreach_{name}")
    case(f.Scalar, lists(*SHAPES), lists(*SHAPES), lists(*SHAPES), 0.5)
    case(f.ScalarList, lists(*SHAPES), lists(*SHAPES), lists(*SHAPES), [0.5, 1.0, 2.0, 3.0])
case(aten._foreach_lerp.List, lists(*SHAPES), lists(*SHAPES), lists(*SHAPES))
case(aten._foreach_lerp.Scalar, lists(*SHAPES), lists(*SHAPES), 0.25)
case(aten._foreach_copy.default, lists((3,), (2, 2)), lists((3,), (2, 2)))
case(aten._foreach_max.default, lists((3,), (2, 2)))
