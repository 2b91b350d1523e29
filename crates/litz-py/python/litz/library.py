"""Says how results of compiled models are made: as PyTorch's tensors, or as NumPy's arrays."""

import torch
from torch._C._dynamo import guards

from .types import DTYPES


class Torch:
    """PyTorch's tensors, in memory of its allocator."""

    dtypes = {name: dtype for dtype, name in DTYPES.items()}
    # `empty(sizes, strides, dtype)` and `view(tensor, sizes, strides, offset)`, without the dispatcher.
    empty = staticmethod(guards._empty_strided_cpu)
    view = staticmethod(guards._reinterpret_tensor)
