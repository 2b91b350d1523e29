"""Says how results of compiled models are made: as PyTorch's tensors, or as NumPy's arrays."""

import torch
from torch._C._dynamo import guards

from .types import DTYPES


class Torch:
    """PyTorch's tensors, in memory of its allocator."""

    dtypes = {name: dtype for dtype, name in DTYPES.items()}
    # `empty(sizes, strides, dtype)`, without the dispatcher.
    empty = staticmethod(guards._empty_strided_cpu)

    @staticmethod
    def view(tensor, sizes, strides, offset, dtype=None):
        """A tensor that shares the memory of another, `offset` elements behind its first; with a `dtype` one of that type, `offset` bytes behind."""
        if dtype is None:
            return guards._reinterpret_tensor(tensor, sizes, strides, offset)
        start = tensor.storage_offset() * tensor.itemsize + offset
        return torch.empty(0, dtype=dtype).set_(tensor.untyped_storage(), start // dtype.itemsize, sizes, strides)
