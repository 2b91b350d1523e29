"""Makes results of compiled models as NumPy's arrays."""

import numpy

from .layouts import are_alike, are_distinct


def _empty(sizes, strides, dtype):
    """An array of the given sizes, and strides in elements, at an address that is a multiple of 64 bytes."""
    elements = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides)) if all(sizes) else 0
    memory = numpy.empty(elements * dtype.itemsize + 64, numpy.uint8)
    start = -memory.ctypes.data % 64
    flat = memory[start : start + elements * dtype.itemsize].view(dtype)
    return numpy.lib.stride_tricks.as_strided(flat, sizes, [stride * dtype.itemsize for stride in strides])


class NumPy:
    """NumPy's arrays."""

    dtypes = {
        "bool": numpy.dtype(numpy.bool_),
        "u8": numpy.dtype(numpy.uint8),
        "u16": numpy.dtype(numpy.uint16),
        "u32": numpy.dtype(numpy.uint32),
        "u64": numpy.dtype(numpy.uint64),
        "i8": numpy.dtype(numpy.int8),
        "i16": numpy.dtype(numpy.int16),
        "i32": numpy.dtype(numpy.int32),
        "i64": numpy.dtype(numpy.int64),
        "f16": numpy.dtype(numpy.float16),
        "f32": numpy.dtype(numpy.float32),
        "f64": numpy.dtype(numpy.float64),
        "c64": numpy.dtype(numpy.complex64),
        "c128": numpy.dtype(numpy.complex128),
    }
    empty = staticmethod(_empty)

    @staticmethod
    def number(value):
        """An array of one integer, without dimensions."""
        return numpy.array(value, numpy.int64)

    @staticmethod
    def laid(array, sizes, strides):
        """A copy that lies so; the array itself where elements that differ would share memory."""
        copy = _empty(sizes, strides, array.dtype)
        copy[...] = array
        return copy if are_distinct(sizes, strides) or are_alike(copy, array) else array

    @staticmethod
    def on_host(array):
        """The array, which is there."""
        return array

    @staticmethod
    def view(array, sizes, strides, offset):
        """A view of an array's memory."""
        size = array.itemsize
        flat = array.reshape(-1)[offset:]
        return numpy.lib.stride_tricks.as_strided(flat, sizes, [stride * size for stride in strides])
