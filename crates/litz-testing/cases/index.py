"""Indexing by tensors."""

from harness import *

swapped = rand(4, 3).t()

# Indexing.
table, rows = rand(6, 4), torch.tensor([[0, 5], [2, 2], [3, 1]])
case(aten.embedding.default, table, rows)
case(aten.embedding.default, table, rows.int(), 1)
case(aten.embedding.default, table.bfloat16(), rows[0])
case(aten.index.Tensor, table, [rows])
case(aten.index.Tensor, table, [None, torch.tensor([-1, 0])])
case(aten.index.Tensor, rand(3, 4, 5), [torch.tensor([0, 2]), torch.tensor([[1], [3]])])
case(aten.index.Tensor, rand(3, 4, 5), [torch.tensor([0, 2]), None, torch.tensor([1, -2])])
case(aten.index.Tensor, rand(3, 4, 5), [None, torch.tensor([[1, 3], [0, 0]])])
case(aten.index.Tensor, rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), [None, None, torch.tensor([[1], [3]]), torch.tensor([0, 2])])
case(aten.index.Tensor, swapped, [torch.tensor([2, 0])])
case(aten.index_put.default, rand(4, 3), [torch.tensor([0, 2])], rand(2, 3))
case(aten.index_put.default, rand(4, 3), [torch.tensor([0, 2, 0]), torch.tensor([1, -1, 1])], rand(3), True)
case(aten.index_put.default, rand(4, 3), [whole(4) > 0], torch.tensor(9.0))
case(aten.index_select.default, rand(4, 3), 1, torch.tensor([2, 0, 2, 1]))
case(aten.gather.default, rand(3, 4), 1, torch.tensor([[0, 3], [1, 1]]))
case(aten.gather.default, rand(3, 4), 0, torch.tensor([[0, 2, 1]]))
case(aten.scatter.src, rand(3, 4), 1, torch.tensor([[0, 3], [1, 2]]), rand(3, 4))
case(aten.scatter.value, rand(3, 4), 0, torch.tensor([[2, 0, 1]]), 5.5)
case(aten.scatter_add.default, rand(3, 4), 0, torch.tensor([[2, 0, 2], [2, 0, 1]]), rand(2, 3))
case(aten.slice_scatter.default, rand(4, 6), rand(4, 2), 1, 1, 5, 2)
case(aten.select_scatter.default, rand(4, 3), rand(4), 1, -1)
case(aten.index_copy.default, rand(4, 3), 0, torch.tensor([3, 1]), rand(2, 3))
case(aten.index_add.default, rand(4, 3), 1, torch.tensor([0, 2, 0]), rand(4, 3), alpha=0.5)
# Positions of which there are none have any type.
case(aten.gather.default, rand(5), 0, torch.zeros(0, dtype=torch.uint8))

# A value that is added wherever a mask holds.
mask = torch.tensor([True, False, True, False])
for dtype in (f32, f64, bf16, torch.int64, torch.uint8):
    x = rand(4, 3).to(dtype) if dtype.is_floating_point else whole(4, 3, lo=0).to(dtype)
    for values in (x[0].clone(), x[0, 0].clone(), x[:1].clone()):
        case(aten.index_put.default, x, [mask], values, True)
case(aten.index_put.default, rand(4, 3) > 0, [mask], torch.tensor([True, False, True]), True)
case(aten.index_put.default, torch.tensor([NAN, 1.0, INF]), [torch.tensor([True, True, False])], torch.tensor(-INF), True)
case(aten.index_put.default, torch.zeros(0, 3), [torch.zeros(0, dtype=torch.bool)], torch.tensor(1.0), True)
