"""Tensors from nothing."""

from harness import *

base = rand(2, 3, 4, 5)
last = base.contiguous(memory_format=torch.channels_last)
swapped = rand(4, 3).t()

# Factories.
case(aten.full.default, [2, 3], 2)
case(aten.full.default, [2], 2.5)
case(aten.full.default, [2], True)
case(aten.full.default, [], -INF, dtype=bf16)
case(aten.zeros.default, [0, 3])
case(aten.ones.default, [2], dtype=torch.int64)
case(aten.new_ones.default, rand(2), [3], dtype=torch.bool)
case(aten.new_full.default, whole(2), [3], 2.5)
case(aten.full_like.default, swapped, 1.5)
case(aten.ones_like.default, last, memory_format=torch.contiguous_format)
case(aten.scalar_tensor.default, 3)
case(aten.scalar_tensor.default, -INF, dtype=f16)
case(aten.arange.default, 5)
case(aten.arange.default, 5.5)
case(aten.arange.start, 2, 7, dtype=torch.float32)
case(aten.arange.start_step, 7, 1, -2)
case(aten.arange.start_step, 0.5, 3, 0.75)
case(aten.arange.start_step, 0, 7, 3)
case(aten.linspace.default, -1, 2, 7)
case(aten.linspace.default, 3, 5, 1)
case(aten.eye.m, 2, 3)
case(aten.tril.default, rand(2, 3, 4))
case(aten.tril.default, rand(3, 4), -1)
case(aten.triu.default, rand(4, 3), 1)
for f in (aten.tril_indices, aten.triu_indices):
    case(f.default, 4, 4, -1)
    case(f.default, 3, 5, 2)
    case(f.default, 5, 2, -3)
case(aten.empty_strided.default, [0, 3], [1, 2])
case(aten.new_empty_strided.default, rand(2, dtype=bf16), [0, 3], [1, 2])

# Integers: ends lose their fractions, and what lies between is found in f64.
for dtype in (torch.int64, torch.uint8, torch.int8):
    case(aten.linspace.default, 1.9, 9.9, 6, dtype=dtype)
    case(aten.linspace.default, 100, 0, 7, dtype=dtype)
    case(aten.linspace.Tensor_Tensor, torch.tensor(1.9), torch.tensor(9.9), 6, dtype=dtype)
    case(aten.linspace.Tensor_Scalar, torch.tensor(3), 7.5, 1, dtype=dtype)
    case(aten.logspace.default, 0, 4, 5, 3.0, dtype=dtype)
    case(aten.logspace.Tensor_Tensor, torch.tensor(0.5), torch.tensor(6.9), 7, 2.0, dtype=dtype)
case(aten.linspace.default, 0, 2**40 + 1, 5, dtype=torch.int64)
case(aten.linspace.Scalar_Tensor, 3, torch.tensor(7), 0, dtype=torch.int64)
case(aten.logspace.default, -2, 2, 5, dtype=torch.int64)
