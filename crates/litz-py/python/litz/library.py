"""Makes results of compiled models as PyTorch's tensors."""

import torch
from torch._C._dynamo import guards

from .layouts import are_alike, are_distinct
from .types import DTYPES


class Torch:
    """PyTorch's tensors, in memory of its allocator."""

    dtypes = {name: dtype for dtype, name in DTYPES.items()}
    tensor = torch.Tensor
    # `empty(sizes, strides, dtype)`, without the dispatcher.
    empty = staticmethod(guards._empty_strided_cpu)

    @staticmethod
    def number(value):
        """A tensor of one integer, without dimensions."""
        return torch.tensor(value)

    @staticmethod
    def laid(tensor, sizes, strides):
        """A copy that lies so; the tensor itself where elements that differ would share memory."""
        copy = torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
        return copy if are_distinct(sizes, strides) or are_alike(copy, tensor) else tensor

    @staticmethod
    def on_host(tensor):
        """A copy in the host's memory, which lies as the tensor does where no elements share memory."""
        if not are_distinct(tensor.shape, tensor.stride()):
            return tensor.cpu()
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu").copy_(tensor)

    @staticmethod
    def view(tensor, sizes, strides, offset, dtype=None):
        """A tensor that shares the memory of another, `offset` elements behind its first; with a `dtype` one of that type, `offset` bytes behind.
        Without an offset the other one, which nobody has seen yet, is given memory with these strides, but where elements that differ would share it.

        It is a view of PyTorch's, so that both have one version, by which `backward` notices that a saved tensor was written to. It is detached,
        as PyTorch refuses to write to views that were made in `no_grad` mode, in which graphs run.
        """
        if offset is None:
            if any(size > 1 and own != stride for size, own, stride in zip(sizes, tensor.stride(), strides)):
                if any(size > 1 and stride == 0 for size, stride in zip(sizes, strides)):
                    return tensor.detach()
                laid = Torch.laid(tensor, sizes, strides)
                if laid is tensor:
                    return tensor.detach()
                # The tensor itself, of which others may be views.
                tensor.set_(laid)
            return tensor.as_strided(sizes, strides).detach()
        if dtype is None:
            offset += tensor.storage_offset()
        else:
            offset = (offset + tensor.storage_offset() * tensor.itemsize) // dtype.itemsize
            # All of the memory as one dimension, but for a rest that is no element of both types.
            nbytes = tensor.untyped_storage().nbytes() // dtype.itemsize * dtype.itemsize
            tensor = tensor.as_strided((nbytes // tensor.itemsize,), (1,), 0).view(dtype)
        return tensor.as_strided(sizes, strides, offset).detach()


class OnGpu(Torch):
    """The same, in the memory of an NVIDIA GPU."""

    def __init__(self, number: int):
        self.device, self.number = torch.device("cuda", number), number
        # `torch.cuda.current_device`, which asks at each call whether PyTorch has initialized CUDA, once that has been asked.
        self._current = None

    def empty(self, sizes, strides, dtype):
        """A tensor with undefined contents."""
        if self._current is None:
            torch.cuda.init()
            self._current = torch._C._cuda_getDevice
        if self._current() == self.number:
            return guards._empty_strided_cuda(sizes, strides, dtype)
        return torch.empty_strided(sizes, strides, dtype=dtype, device=self.device)
