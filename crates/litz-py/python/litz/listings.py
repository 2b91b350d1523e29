"""Does the steps of modules that `litz compile --to python` writes, on NumPy's arrays, with kernels on the reference device.

Memory is a vector. What NumPy has no type for, `bf16` and 8-bit floats, is in arrays of unsigned integers with the same bits.
"""

import sys

import numpy

from . import _litz
from .arrays import NumPy
from .errors import InvalidError, RunError, UnsupportedError
from .stored import beside

__all__ = ["Arrays", "Listing", "beside", "listing"]

# Types of elements by their names, which the types of arrays remember.
DTYPES = {
    name: numpy.dtype(dtype, metadata={"litz": name})
    for name, dtype in {**NumPy.dtypes, "bf16": numpy.uint16, "f8e4m3": numpy.uint8, "f8e5m2": numpy.uint8}.items()
}


def name_of(dtype) -> str:
    """The name that Litz has for the type of an array."""
    if dtype.metadata and "litz" in dtype.metadata:
        return dtype.metadata["litz"]
    return next((name for name, known in NumPy.dtypes.items() if known == dtype), str(dtype))


def listing(main, load, kernels: str, target: str, constants: dict) -> "Listing":
    """What is called with arrays, of the functions and kernels of a module. The reference device has no target."""
    return Listing(main, load, kernels, constants)


class Listing:
    """A program, step by step. Calls take arrays and numbers, and return a list of results."""

    def __init__(self, main, load, kernels: str, constants: dict):
        self._main = main
        self._kernels = _litz.Kernels(kernels, options={"reference": True})
        self._kept = load(Arrays(self._kernels, constants))

    def __call__(self, *args) -> list:
        return self._main(Arrays(self._kernels, self._kept), *args)


class Arrays:
    """The machine that does steps. `given` is what there is before: constants by their names, or what `load` has returned."""

    min, max = staticmethod(min), staticmethod(max)

    def __init__(self, kernels, given: dict):
        self._kernels, self._given = kernels, given
        # Of what was passed with its layout: the argument, sizes and strides, by the address of its vector.
        self._inputs = {}
        # Tensors whose sizes an operator has decided.
        self._decided = []

    # What comes from outside.

    def constant(self, name, dtype, extent, sizes, strides=None):
        """A constant as a vector."""
        if name not in self._given:
            raise InvalidError(f"there is no constant {name}: pass `build(constants)` one of type {dtype} and sizes {sizes}")
        found = self._given[name]
        if isinstance(found, tuple):
            of, shape, data = found
            found = numpy.ndarray(shape, DTYPES[of], data)
        return self._flat(f"constant {name}", _as_array(found, dtype), dtype, extent, sizes, strides)

    def state(self, name, dtype, extent, sizes, strides=None):
        """A constant that calls write to: memory of its own, which lives from call to call."""
        return self.constant(name, dtype, extent, sizes, strides).copy()

    def kept(self, name):
        """What `load` has made."""
        return self._given[name]

    def size(self, x, dim, rest=0, coefficient=1, within=(None, None), multiple=1):
        """The symbol of which the size of an argument is `rest + coefficient * symbol`."""
        if coefficient == 0:
            raise _litz.CheckError(f"dimension {dim} of an argument gives a size no value, which it is a multiple of, 0 times")
        value = (numpy.shape(x)[dim] - rest) // coefficient
        _expect(value, within, multiple, f"dimension {dim} of an argument")
        return value

    def input(self, name, x, dtype, extent, sizes, strides=None):
        """An argument as a vector, which has its elements where they are in memory that lies so."""
        array = _as_array(x, dtype)
        flat = self._flat(f"input {name}", array, dtype, extent, sizes, strides)
        self._inputs[id(flat)] = (flat, array, sizes, strides)
        return flat

    def own(self, x):
        """Memory of the program's own with what an argument holds, which stays as it is."""
        return x.copy()

    def give(self, x):
        """Leaves new contents in an argument."""
        _, array, sizes, strides = self._inputs[id(x)]
        new = self.strided(x, sizes, strides)
        if not numpy.may_share_memory(new, array):
            array[...] = new

    def _flat(self, what, array, dtype, extent, sizes, strides):
        if array.dtype != DTYPES[dtype] or list(array.shape) != list(sizes):
            raise RunError(f"{what}: expected {dtype}{list(sizes)}, found {name_of(array.dtype)}{list(array.shape)}")
        array = array.view(DTYPES[dtype])
        if strides is None:
            return numpy.ascontiguousarray(array).reshape(-1)
        flat = self.empty(dtype, extent)
        # Elements that share memory are equal.
        self.strided(flat, sizes, strides)[...] = array
        return flat

    # Steps.

    def check(self, conditions, message):
        """Fails unless one of the conditions holds."""
        if not any(conditions):
            raise _litz.CheckError(message)

    def empty(self, dtype, extent):
        """Memory for so many elements."""
        return NumPy.empty([max(extent, 0)], [1], DTYPES[dtype])

    def part(self, base, dtype, extent, offset):
        """The memory so many bytes behind the beginning of another."""
        of = DTYPES[dtype]
        return base.view(numpy.uint8)[offset : offset + max(extent, 0) * of.itemsize].view(of)

    def launch(self, kernel, reads, writes, sizes):
        """Runs a kernel."""
        self._kernels.launch(kernel, reads, writes, sizes)

    def copy(self, source, target):
        """Copies memory."""
        target[...] = source

    def routine(self, name, reads, writes, ints, message=None):
        """Runs a routine of the runtime."""
        dtypes = [name_of(array.dtype) for array in (*reads, *writes)]
        _litz.routine(name, reads, writes, ints, dtypes=dtypes, message=message)

    def integer(self, x, within=(None, None), multiple=1, message=None):
        """The integer, or truth value, that memory begins with: the value of a size symbol."""
        value = int(x[0])
        _expect(value, within, multiple, message or "a size")
        return value

    # Functions: each is given memory and sizes, and returns memory, which is copied to where its caller has it.

    def invoke(self, call, writes):
        """Calls a function."""
        function, args, sizes = call
        for target, result in zip(writes, function(self, *args, *sizes), strict=True):
            target[: len(result)] = result

    def branch(self, condition, then, other, writes):
        """Calls one of two functions."""
        self.invoke(then if condition[0] else other, writes)

    def loop(self, condition, more, body, writes):
        """Calls a function as long as another one gives a condition that holds."""
        while True:
            self.invoke(more, [condition])
            if not condition[0]:
                return
            self.invoke(body, writes)

    # Operators of the host.

    def call(self, op, args, results, message=None):
        """Runs an operator that Litz does not have, by PyTorch where the program has imported it."""
        if op == "litz.take.default":
            (result,) = results
            result[...] = self._decided[int(args[0][0])]
            return
        host = _host(op)
        outcome = host.call(op, [_given(arg) for arg in args], [_wanted(result) for result in results])
        decided = iter(outcome)
        for result in results:
            if isinstance(result, tuple):
                (x, _), value = result, next(decided)
                x[0] = len(self._decided)
                x[1:] = value.shape
                self._decided.append(_array(value))

    def sizes(self, x, dtype):
        """Where the sizes go of a result whose sizes the operator decides."""
        return (x, dtype)

    # Results.

    def shaped(self, x, sizes):
        """All of memory as a row-major tensor."""
        return x.reshape(sizes)

    def strided(self, x, sizes, strides=None, offset=0):
        """Elements of memory as a tensor."""
        strides = _row_major(sizes) if strides is None else strides
        steps = [stride * x.itemsize for stride in strides]
        return numpy.lib.stride_tricks.as_strided(x[offset:], sizes, steps)

    def clone(self, x, sizes, strides=None, offset=0):
        """The same, in memory of its own."""
        return self.strided(x.copy(), sizes, strides, offset)

    def number(self, x):
        """The number that memory begins with."""
        name = name_of(x.dtype)
        return _litz.number(name, x[:1].tobytes()) if name not in NumPy.dtypes else x[0].item()


def _as_array(x, dtype):
    """An array, a tensor of PyTorch, or a number of a type, as an array in the same memory."""
    torch = sys.modules.get("torch")
    if torch and isinstance(x, torch.Tensor):
        return _array(x)
    return numpy.asarray(x, None if hasattr(x, "dtype") else DTYPES[dtype])


def _row_major(sizes):
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


def _expect(value, within, multiple, what):
    """Fails where the value of a size symbol is none that the program is for."""
    low, high = within
    if (low is not None and value < low) or (high is not None and value > high) or value % multiple:
        multiples = f" that {multiple} divides" if multiple != 1 else ""
        raise _litz.CheckError(f"{what}: expected a size from {low} to {high}{multiples}, found {value}")


def _host(op):
    if "torch" not in sys.modules:
        raise UnsupportedError(f"{op} is none of Litz's operators: import torch, and what defines the operator, before the call")
    from .host import HOST

    return HOST


def _tensor(array):
    """An array as a tensor of PyTorch in the same memory."""
    import torch

    from .library import Torch

    return torch.from_numpy(array).view(Torch.dtypes[name_of(array.dtype)])


def _array(tensor):
    """A tensor of PyTorch as an array in the same memory."""
    from .types import DTYPES as names

    name = names[tensor.dtype]
    if name in NumPy.dtypes:
        return tensor.detach().numpy()
    import torch

    bits = torch.uint16 if tensor.itemsize == 2 else torch.uint8
    return tensor.detach().view(bits).numpy().view(DTYPES[name])


def _given(arg):
    """An argument as hosts get it: types, layouts and memory formats by PyTorch's numbers for them."""
    if isinstance(arg, numpy.ndarray):
        return _tensor(arg)
    if isinstance(arg, list):
        return [_given(item) for item in arg]
    if isinstance(arg, tuple):
        from .types import numbered

        return numbered(*arg)
    return arg


def _wanted(result):
    if isinstance(result, tuple):
        from .types import numbered

        return ("sizes", numbered("dtype", result[1])[1])
    return None if result is None else _tensor(result)
