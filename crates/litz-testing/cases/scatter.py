"""Scatters that combine, fills and puts by index."""

from harness import *

index = torch.tensor([[0, 0, 2], [1, 0, 2]])
for reduce in ("sum", "prod", "mean", "amax", "amin"):
    for include in (True, False):
        case(aten.scatter_reduce.two, rand(3, 4), 0, index, rand(2, 3), reduce, include_self=include)
        case(aten.scatter_reduce.two, whole(2, 4), 1, index, whole(2, 3), reduce, include_self=include)
        if reduce != "sum":
            case(aten.index_reduce.default, rand(3, 4), 1, torch.tensor([2, 0, 2]), rand(3, 3), reduce,
                 include_self=include)
case(aten.scatter_reduce.two, rand(4), 0, torch.tensor([1, 1]), torch.tensor([NAN, 9.0]), "amax")
case(aten.scatter_reduce.two, whole(4, dtype=torch.uint8, lo=0), 0, torch.tensor([1, 3]),
     whole(2, dtype=torch.uint8, lo=0), "amax", include_self=False)
case(aten.scatter.reduce, rand(3, 3), 0, index, rand(2, 3), reduce="multiply")
case(aten.index_fill.int_Scalar, rand(3, 4), 1, torch.tensor([0, -1]), 2.5)
case(aten.index_fill.int_Tensor, rand(3, 4), 0, torch.tensor([1]), torch.tensor(7.0))
case(aten.index_fill.int_Scalar, torch.tensor(3.0), 0, torch.tensor([0]), 1)
case(aten.put.default, rand(3, 4), torch.tensor([[0, 5], [-1, 7]]), rand(2, 2))
case(aten.put.default, rand(3, 4), torch.tensor([0, 5, 5]), rand(3), True)
case(aten.take.default, rand(3, 4), torch.tensor([[0, 5], [-1, 7]]))
case(aten.take_along_dim.default, rand(3, 4), torch.tensor([[0, 3], [1, 2], [2, 2]]), 1)
case(aten.take_along_dim.default, rand(3, 4), torch.tensor([[1], [0]]).t()[:, :1], 0)
case(aten.take_along_dim.default, rand(3, 4), torch.tensor([11, 0]))
mask = torch.tensor([[True, False, True], [False, True, True]])
case(aten.masked_scatter.default, rand(2, 3), mask, rand(5))
case(aten.masked_scatter.default, rand(2, 3), mask[0], rand(4))
case(aten.masked_scatter.default, whole(2, 3), mask & False, whole(1))
case(aten.diagonal_scatter.default, rand(3, 4), rand(3))
case(aten.diagonal_scatter.default, rand(2, 3, 4), rand(3, 2), 1, 0, 2)
case(aten.as_strided_scatter.default, rand(3, 4), rand(2, 2), [2, 2], [4, 2], 1)

# Indices wrap along a dimension, however often.
case(aten.take_along_dim.default, rand(2, 5), torch.tensor([[-1, 5], [-6, 14]]), 1)
