"""Products of matrices."""

from harness import *

# Products.
case(aten.mm.default, rand(2, 3), rand(3, 4))
case(aten.mm.default, rand(2, 0), rand(0, 4))
case(aten.mm.default, whole(2, 3), whole(3, 4))
case(aten.mm.default, rand(2, 3, dtype=bf16), rand(4, 3, dtype=bf16).t())
case(aten.bmm.default, rand(2, 2, 3), rand(2, 3, 4))
for a, b in [((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 4, 3), (3,)), ((3,), (2, 3, 4)), ((2, 4, 3), (3, 5)),
             ((4, 3), (2, 3, 5)), ((2, 1, 4, 3), (5, 3, 2)), ((1, 3), (3, 1))]:
    case(aten.matmul.default, rand(*a), rand(*b))
case(aten.addmm.default, rand(4), rand(2, 3), rand(3, 4))
case(aten.addmm.default, torch.full((2, 4), NAN), rand(2, 3), rand(3, 4), beta=0, alpha=2)
case(aten.addmm.default, rand(2, 1), rand(2, 3), rand(3, 4), beta=0.5, alpha=-1)
case(aten.baddbmm.default, rand(2, 1, 4), rand(2, 2, 3), rand(2, 3, 4))
case(aten.linear.default, rand(2, 5, 3), rand(4, 3), rand(4))
case(aten.linear.default, rand(3), rand(4, 3))
case(aten.linear.default, rand(2, 5, 3, dtype=bf16), rand(4, 3, dtype=bf16), rand(4, dtype=bf16))
case(aten.linear.default, rand(3, 2).t(), rand(4, 3))
case(aten.einsum.default, "bij,bjk->bik", [rand(2, 3, 4), rand(2, 4, 5)])
case(aten.einsum.default, "i,i", [rand(3), rand(3)])
case(aten.einsum.default, "ij,jj->i", [rand(2, 3), rand(3, 3)])
case(aten.einsum.default, "... i d, j d -> ... i j", [rand(2, 3, 4), rand(5, 4)])
case(aten.einsum.default, "ab,bc,cd->ad", [rand(2, 3), rand(3, 4), rand(4, 5)])
case(aten.mv.default, rand(2, 3), rand(3))
case(aten.dot.default, rand(3), rand(3))
case(aten.linear.default, rand(2, 3, 4), rand(4))
case(aten.linear.default, rand(3), rand(3), torch.tensor(0.5))
