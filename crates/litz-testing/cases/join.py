"""Arrangements written with other operators."""

from harness import *

for f in (aten.hstack, aten.vstack, aten.dstack):
    case(f.default, [rand(3), rand(3)])
    case(f.default, [rand(2, 3), rand(2, 3)])
    case(f.default, [torch.tensor(1.0), torch.tensor(2.0)])
case(aten.broadcast_tensors.default, [rand(3), rand(2, 1), torch.tensor(1.0)])
case(aten.block_diag.default, [rand(2, 3), rand(2), torch.tensor(1.0)])
case(aten.block_diag.default, [whole(1, 2), rand(2, 2)])
for k in range(-1, 4):
    case(aten.rot90.default, rand(2, 3), k)
case(aten.rot90.default, rand(2, 3, 4), 1, [2, 0])
case(aten.glu.default, rand(2, 4))
case(aten.glu.default, rand(4, 3, dtype=bf16), 0)
case(aten.vdot.default, rand(4), rand(4))
case(aten.one_hot.default, whole(2, 3, lo=0, hi=4), 4)
case(aten.isin.Tensor_Tensor, whole(2, 3), torch.tensor([[1, 2], [-3, 0]]))
case(aten.isin.Tensor_Tensor, whole(5), torch.tensor([1, 2]), invert=True)
case(aten.vander.default, rand(3))
case(aten.vander.default, whole(3), 4, True)
case(aten.vander.default, torch.tensor([0.0, 2.0]), 1)
case(aten.combinations.default, rand(4))
case(aten.combinations.default, whole(3), 2, True)
case(aten.kron.default, rand(2, 3), rand(2))
case(aten.kron.default, rand(2, 2), rand(3, 1, 2))
case(aten.tensordot.default, rand(2, 3, 4), rand(4, 3, 2), [1, 2], [1, 0])
case(aten.tensordot.default, rand(2, 3), rand(4), [], [])
case(aten.trapz.dx, rand(2, 5), dx=0.5)
case(aten.trapezoid.dx, rand(3, 2), dim=0)

# Nothing but vectors without elements.
case(aten.cat.default, [torch.zeros(0), torch.zeros(0)])
case(aten.cat.default, [torch.zeros(0), torch.zeros(0, dtype=torch.int64)], -1)

# Any number of elements in a row.
case(aten.combinations.default, rand(3), 1)
case(aten.combinations.default, rand(5), 3)
case(aten.combinations.default, whole(3), 4, True)
case(aten.combinations.default, torch.tensor([NAN, 1.0, INF]), 3)
case(aten.combinations.default, rand(2), 3)
case(aten.combinations.default, rand(2), 0)
case(aten.combinations.default, torch.zeros(0), 2, True)
case(aten.combinations.default, torch.zeros(0), 2)
