"""Compares functions that `torch.compile` made with PyTorch's eager mode.

The backend is `litz`, or that of the environment variable LITZ_TEST_BACKEND: with `aot_eager` the tests test themselves.
"""

import copy
import os

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

BACKEND = os.environ.get("LITZ_TEST_BACKEND", "litz")

if BACKEND == "litz" and BACKEND not in torch._dynamo.list_backends(exclude_tags=()):
    import litz.dynamo

    torch._dynamo.register_backend(litz.dynamo.backend, name=BACKEND)

needs_litz = pytest.mark.skipif(BACKEND != "litz", reason="is about Litz itself")

# What an element may differ from eager's, in parts of its size and of the largest of its tensor.
TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 8e-3,
    torch.bfloat16: 4e-2,
    torch.float8_e4m3fn: 0.126,
    torch.float8_e5m2: 0.251,
}


class Call(torch.nn.Module):
    """A function as a module, which PyTorch exports."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


def each(**functions):
    """Runs a test once for each of the functions, which it takes as `f`."""
    return pytest.mark.parametrize("f", functions.values(), ids=functions.keys())


def compiled(f, *, fullgraph=True, **settings):
    """`f`, compiled by the backend under test."""
    return torch.compile(f, backend=BACKEND, fullgraph=fullgraph, **settings)


def counted(f, *, fullgraph=True, **settings):
    """`f`, compiled by the backend under test, and what counts its compilations (`frame_count`)."""
    counter = CompileCounterWithBackend(BACKEND)
    return torch.compile(f, backend=counter, fullgraph=fullgraph, **settings), counter


def check(f, *args, calls=2, gradients=False, reference=True, exact=False, strides=True, aliases=True, made_in=None, **settings):
    """Calls `f`, a function or a module, compiled and in eager mode, each with its own copies of `args`, and compares whatever is seen of it.

    That is: results, what became of the arguments, what shares memory with what, and a module's state; with `gradients` also the
    gradients of floating-point arguments and of parameters. With `reference`, errors are measured against a run in double precision;
    `exact` wants the same bits. `made_in` is the type that floating-point values were computed in before they became wider: its tolerance is
    theirs. Further settings are those of `torch.compile`.
    """
    eager, precise = _twin(f), _twin(f, double=True) if reference else None
    other = _twin(f)
    fast = compiled(other, **settings)
    for _ in range(calls):
        wanted = _Call(eager, args, gradients)
        found = _Call(fast, args, gradients, state=other)
        best = _Call(precise, args, gradients, double=True) if reference else None
        same(found.results, wanted.results, best and best.results, "result", exact, strides, made_in)
        same(found.args, wanted.args, best and best.args, "argument", exact, strides, made_in)
        same(found.state, wanted.state, best and best.state, "state", exact, strides, made_in)
        same(found.gradients, wanted.gradients, best and best.gradients, "gradient", exact, False, made_in)
        if aliases:
            assert found.aliases() == wanted.aliases(), "other tensors share memory than in eager mode"


def shapes(f, *calls, most=None, gradients=False, **settings):
    """Compares `f` with eager mode for each of the calls' arguments; it may be compiled `most` times."""
    fast, counter = counted(f, **settings)
    for args in calls:
        one, other = copied(args), copied(args)
        found, wanted = fast(*one), f(*other)
        if gradients:
            for result, of in ((found, one), (wanted, other)):
                result.square().sum().backward()
            same([arg.grad for arg in one], [arg.grad for arg in other])
        same(found, wanted)
        same(one, other)
    if most is not None:
        assert counter.frame_count <= most, f"compiled {counter.frame_count} times"


def same(found, wanted, best=None, where="result", exact=False, strides=True, made_in=None):
    """Asserts that two values, or trees of values, are the same; `best` is the second in double precision."""
    found_leaves, found_spec = tree_flatten(found)
    wanted_leaves, wanted_spec = tree_flatten(wanted)
    assert found_spec == wanted_spec, f"{where}: the structure is {found_spec}, expected {wanted_spec}"
    best_leaves = tree_leaves(best) if best is not None else [None] * len(wanted_leaves)
    for index, (one, other, ideal) in enumerate(zip(found_leaves, wanted_leaves, best_leaves, strict=True)):
        _same_leaf(one, other, ideal, f"{where} {index}", exact, strides, made_in)


def copied(args, double=False):
    """Copies of tensors that share memory, overlap, and lie in it as the tensors do; in double precision if wanted."""
    storages, tensors = {}, {}

    def leaf(value):
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in tensors:
            tensors[id(value)] = _copied_tensor(value, storages, double)
        return tensors[id(value)]

    return tree_map(leaf, args)


def is_dense(tensor):
    """Whether a tensor fills its memory, each element once, so that its strides are all of its layout."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1):
        if stride != expected:
            return False
        expected *= size
    return True


class _Call:
    """One call: what it was given, what it gave, and what it left behind."""

    def __init__(self, f, args, gradients, double=False, state=None):
        self.args = copied(args, double)
        tensors = [leaf for leaf in tree_leaves(self.args) if isinstance(leaf, torch.Tensor)]
        if gradients:
            for tensor in tensors:
                if tensor.is_floating_point() or tensor.is_complex():
                    tensor.requires_grad_()
        module = state if state is not None else f
        self.parameters = list(module.parameters()) if isinstance(module, torch.nn.Module) else []
        for parameter in self.parameters:
            parameter.grad = None
        torch.manual_seed(1)
        self.results = f(*self.args)
        self.gradients = []
        if gradients:
            self._backward([tensor for tensor in tensors if tensor.requires_grad] + self.parameters)
        self.state = dict(module.state_dict()) if isinstance(module, torch.nn.Module) else {}

    def _backward(self, leaves):
        generator = torch.Generator(torch.get_default_device()).manual_seed(2)
        roots, cotangents = [], []
        for result in tree_leaves(self.results):
            if isinstance(result, torch.Tensor) and result.requires_grad:
                roots.append(result)
                kind = torch.complex128 if result.is_complex() else torch.float64
                cotangents.append(torch.randn(result.shape, generator=generator, dtype=kind).to(result.dtype))
        assert roots, "no result has a gradient"
        torch.autograd.backward(roots, cotangents)
        self.gradients = [leaf.grad for leaf in leaves]

    def aliases(self):
        """Pairs of tensors, of which one is a result at least, that share memory."""
        given = [leaf for leaf in tree_leaves(self.args) if isinstance(leaf, torch.Tensor)]
        tensors = given + [leaf for leaf in tree_leaves(self.results) if isinstance(leaf, torch.Tensor)]
        memory = [_memory(tensor) for tensor in tensors]
        later = range(len(given), len(tensors))
        return {(one, other) for other in later for one in range(other) if memory[one] is not None and memory[one] == memory[other]}


def _memory(tensor):
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return None
    return tensor.untyped_storage().data_ptr()


def _twin(f, double=False):
    if not isinstance(f, torch.nn.Module):
        return f
    twin = copy.deepcopy(f)
    return twin.double() if double else twin


def _copied_tensor(value, storages, double):
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
        return value.clone() if value.layout != torch.strided else copy.deepcopy(value)
    key = value.untyped_storage()._cdata
    if key not in storages:
        plain = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
        is_wider = double and (value.is_floating_point() or value.is_complex())
        kind = torch.complex128 if value.is_complex() else torch.float64
        storages[key] = plain.to(kind, copy=True) if is_wider else plain.clone()
    flat = storages[key]
    result = torch.empty(0, dtype=flat.dtype)
    result.set_(flat.untyped_storage(), value.storage_offset(), value.shape, value.stride())
    if value.is_conj():
        result = result.conj()
    if value.is_neg():
        result = torch._neg_view(result)
    return torch.nn.Parameter(result) if isinstance(value, torch.nn.Parameter) else result.requires_grad_(value.requires_grad)


def _same_leaf(found, wanted, best, where, exact, strides, made_in):
    if not isinstance(wanted, torch.Tensor):
        assert type(found) is type(wanted), f"{where}: is a {type(found).__name__}, expected a {type(wanted).__name__}"
        if isinstance(wanted, float) and not exact:
            assert found == pytest.approx(wanted, rel=1e-6, nan_ok=True), where
        else:
            assert found == wanted, where
        return
    assert isinstance(found, torch.Tensor), f"{where}: is a {type(found).__name__}, expected a tensor"
    assert type(found) is type(wanted), f"{where}: is a {type(found).__name__}, expected a {type(wanted).__name__}"
    for name in ("dtype", "shape", "layout", "device", "requires_grad"):
        one, other = getattr(found, name), getattr(wanted, name)
        assert one == other, f"{where}: {name} is {one}, expected {other}"
    if strides and wanted.layout == torch.strided and is_dense(wanted):
        one, other = (_strides(tensor) for tensor in (found, wanted))
        assert one == other, f"{where}: strides are {found.stride()}, expected {wanted.stride()}"
    found, wanted = found.detach(), wanted.detach()
    if not (wanted.is_floating_point() or wanted.is_complex()):
        assert torch.equal(found, wanted), f"{where}: {found}, expected {wanted}"
    elif exact:
        assert torch.allclose(_wide(found), _wide(wanted), rtol=0, atol=0, equal_nan=True), f"{where}: {found}, expected {wanted}"
    else:
        best = None if best is None else _wide(best.detach())
        kind = made_in or _real(wanted).dtype
        _close(_wide(found), _wide(wanted), best, TOLERANCES[kind], torch.finfo(kind).eps, where)


def _wide(tensor):
    """The values of a tensor in double precision; of complex ones, both parts."""
    tensor = tensor.to_dense() if tensor.layout != torch.strided else tensor
    return _real(tensor).to(torch.float64)


def _real(tensor):
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _strides(tensor):
    """Strides of the sizes that are walked along."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1] if tensor.numel() else []


def _close(found, wanted, best, tolerance, epsilon, where):
    if best is not None:
        # Where eager mode has a NaN and double precision has none, as `gelu` of infinity on some processors, that is right as well.
        wanted = torch.where(wanted.isnan() & (found == best), best, wanted)
    finite = wanted.isfinite()
    special = [torch.nan_to_num(tensor[~finite], nan=7.0) for tensor in (found, wanted)]
    assert torch.equal(found.isfinite(), finite) and torch.equal(*special), f"{where}: NaNs or infinities differ: {found}, expected {wanted}"
    found, wanted = found[finite], wanted[finite]
    if not wanted.numel():
        return
    allowed = tolerance * (wanted.abs() + wanted.abs().max())
    if best is not None and best[finite].isfinite().all():
        best = best[finite]
        allowed = allowed + 4 * (wanted - best).abs().max()
        error, eager = (found - best).norm(), (wanted - best).norm()
        # Where terms cancel, eager mode's result is rounding alone, and its error one sample of many.
        times = 4 if best.norm() <= eager else 1.5
        limit = times * eager + 16 * epsilon * best.norm()
        assert error <= limit, f"{where}: the error is {error:.3g}, that of eager mode {eager:.3g}, the norm {best.norm():.3g}"
    apart = (found - wanted).abs()
    assert (apart <= allowed).all(), f"{where}: differs by up to {apart.max():.3g}, of {wanted.abs().max():.3g}"
