"""Arguments of every kind: without dimensions or elements, misaligned, overlapping, complex, narrow, sparse, nested, and what is no tensor."""

import collections
import dataclasses
import enum
import gc
import warnings
import weakref

import numpy
import pytest
import torch
from checks import BACKEND, check, compiled, each, needs_litz, same
from torch import randn
from torch._subclasses import FakeTensor, FakeTensorMode

litz = pytest.importorskip("litz") if BACKEND == "litz" else None


@each(
    number=lambda: torch.tensor(2.5),
    one=lambda: randn(1),
    one_of_many_dimensions=lambda: randn(1, 1, 1, 1),
    empty=lambda: randn(0),
    empty_rows=lambda: randn(0, 3),
    empty_columns=lambda: randn(3, 0),
    empty_inside=lambda: randn(2, 0, 3),
    many_dimensions=lambda: randn(1, 2, 1, 2, 1, 2, 1, 2),
    misaligned=lambda: randn(10)[1:],
    misaligned_rows=lambda: randn(5, 7)[1:, 1:],
    every_third=lambda: randn(30)[::3],
    overlapping=lambda: randn(6).as_strided((3, 4), (1, 1)),
    expanded=lambda: randn(1).expand(5),
    expanded_number=lambda: torch.tensor(3.0).expand(2, 3),
    windows=lambda: randn(9).unfold(0, 4, 2),
    reversed_dimensions=lambda: randn(2, 3, 4).permute(2, 1, 0),
    of_large_strides=lambda: torch.empty_strided((2, 3), (1000, 100)).fill_(1.5),
    misaligned_bytes=lambda: torch.arange(33, dtype=torch.uint8)[1:],
    boolean=lambda: randn(5) > 0,
    int64=lambda: torch.arange(5),
    bfloat16=lambda: randn(5).bfloat16(),
    complex64=lambda: randn(5, dtype=torch.complex64),
    conjugated=lambda: randn(5, dtype=torch.complex64).conj(),
    conjugated_matrix=lambda: randn(2, 3, dtype=torch.complex64).mH,
    negated=lambda: torch._neg_view(randn(5)),
    imaginary_of_conjugated=lambda: randn(5, dtype=torch.complex64).conj().imag,
    uint16=lambda: torch.arange(5).to(torch.uint16),
)
def test_arguments_of_each_kind(f):
    x = f()
    if x.dtype in (torch.bool, torch.uint16):
        check(lambda x: (x.to(torch.float32) * 2, x.clone(), x), x)
    else:
        check(lambda x: (x * 2 + 1, x.sum(), x.clone()), x)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8(dtype):
    x = randn(4, 5).to(dtype)
    check(lambda x: (x.float() * 2, x.to(torch.bfloat16) + 1, x.float().mul(0.3).to(x.dtype), x.view(torch.uint8), x[1:], x.t().contiguous()), x, reference=False)


def test_float8_linear():
    def f(x, w, scale):
        return x @ (w.to(torch.float32) * scale).t()

    check(f, randn(3, 16), randn(8, 16).to(torch.float8_e4m3fn), torch.tensor(0.5), reference=False)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("scales", ["one", "rows"])
def test_scaled_products_of_float8(scales, bias):
    def f(x, w, a, b, bias):
        return torch._scaled_mm(x, w.t(), a, b, bias=bias, out_dtype=torch.bfloat16)

    x, w = randn(16, 48).to(torch.float8_e4m3fn), randn(32, 48).to(torch.float8_e4m3fn)
    a, b = (torch.tensor(0.5), torch.tensor(0.25)) if scales == "one" else (torch.rand(16, 1) + 0.5, torch.rand(1, 32) + 0.5)
    check(f, x, w, a, b, randn(32).to(torch.bfloat16) if bias else None, reference=False)


def test_quick_changes_between_kinds_of_arguments():
    fast = compiled(lambda x: x * 2)
    base = randn(64)
    with torch._dynamo.config.patch(recompile_limit=16):
        for x in (base, base[1:], base[::2], base.double(), base.view(8, 8), base.view(8, 8).t(), base.int(), base[:0], base[0]):
            same(fast(x), x * 2)


def test_alignment_changes_between_calls():
    fast = compiled(lambda x: (x * 2 + 1).sum())
    base = randn(200)
    for offset in range(9):
        x = base[offset : offset + 128]
        same(fast(x), (x * 2 + 1).sum())


def test_elements_at_odd_addresses():
    values = numpy.arange(16, dtype=numpy.float32)
    raw = numpy.zeros(65, dtype=numpy.uint8)
    raw[1:] = values.view(numpy.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.frombuffer(raw, dtype=torch.float32, offset=1)
    same(compiled(lambda x: (x + 1, x.sum()))(x), (torch.from_numpy(values) + 1, torch.tensor(120.0)))


def test_results_are_aligned():
    for size in (1, 3, 17, 100):
        assert compiled(lambda x: x + 1)(randn(size)).data_ptr() % 64 == 0


def test_tensor_of_numpy():
    array = numpy.arange(6.0, dtype=numpy.float32).reshape(2, 3)
    x = torch.from_numpy(array)
    compiled(lambda x: x.mul_(2))(x)
    assert array.tolist() == [[0, 2, 4], [6, 8, 10]]


def test_numpy_arguments():
    def f(x):
        return numpy.sin(x) * 2 + x.sum()

    x = numpy.linspace(0, 1, 5)
    numpy.testing.assert_allclose(compiled(f)(x), f(x), rtol=1e-12)


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: float


class Kind(enum.Enum):
    SUM = 1
    PRODUCT = 2


@each(
    list=lambda x, y: ([x, y], lambda xs: [xs[0] + xs[1], xs[1]]),
    tuple=lambda x, y: ((x, y), lambda xs: (xs[0] * 2, xs)),
    dictionary=lambda x, y: ({"x": x, "y": y}, lambda d: {"sum": d["x"] + d["y"], **d}),
    nested=lambda x, y: ({"a": [x, (y, 2)], "b": None}, lambda d: [d["a"][1][0] * d["a"][1][1], {"x": d["a"][0]}]),
    named_tuple=lambda x, y: (Point(x, y), lambda p: Point(p.x + p.y, p.x - p.y)),
    ordered_dictionary=lambda x, y: (collections.OrderedDict(b=x, a=y), lambda d: [value * 2 for value in d.values()]),
    none=lambda x, y: ((x, None), lambda xs: (xs[0] + 1, None, xs[1])),
    string=lambda x, y: ((x, "relu"), lambda xs: getattr(torch, xs[1])(xs[0])),
    numbers=lambda x, y: ((x, 2, 0.5, True), lambda xs: xs[0] * xs[1] + xs[2] if xs[3] else xs[0]),
    dtype=lambda x, y: ((x, torch.float64), lambda xs: xs[0].to(xs[1])),
    device=lambda x, y: ((x, torch.device("cpu")), lambda xs: torch.zeros(2, device=xs[1]) + xs[0].sum()),
    shape=lambda x, y: ((x, torch.Size([6, 2])), lambda xs: xs[0].view(xs[1]) * 2),
    slice=lambda x, y: ((x, slice(1, 3)), lambda xs: xs[0][xs[1]] * 2),
    enumeration=lambda x, y: ((x, Kind.SUM), lambda xs: xs[0].sum() if xs[1] is Kind.SUM else xs[0].prod()),
    function=lambda x, y: ((x, torch.sin), lambda xs: xs[1](xs[0])),
    complex_number=lambda x, y: ((x, 2 + 1j), lambda xs: xs[0] * xs[1]),
    empty_list=lambda x, y: (([], x), lambda xs: (xs[0], xs[1] + 1)),
    list_of_many=lambda x, y: ([x + n for n in range(10)], lambda xs: torch.stack(xs).sum(0)),
    default_dictionary=lambda x, y: (collections.defaultdict(list, a=[x]), lambda d: d["a"][0] + 1),
)
def test_trees_of_arguments(f):
    tree, function = f(randn(3, 4), randn(3, 4))
    check(function, tree, reference=False)


def test_a_data_class():
    fast = compiled(lambda pair: Pair(pair.left * pair.right, pair.right + 1))
    x = randn(3)
    found = fast(Pair(x, 2.0))
    same(found.left, x * 2)
    assert found.right == 3.0


def test_keywords_and_defaults():
    def f(x, /, y, *rest, scale=2.0, **more):
        return x * scale + y + sum(rest) + sum(more.values())

    x = randn(3)
    fast = compiled(f)
    same(fast(x, x), f(x, x))
    same(fast(x, x, x + 1, scale=3.0, a=x, b=2), f(x, x, x + 1, scale=3.0, a=x, b=2))


def test_no_arguments():
    same(compiled(lambda: torch.arange(3) * 2)(), torch.tensor([0, 2, 4]))


def test_unused_arguments():
    check(lambda x, y, n: x + 1, randn(3), randn(4, 5), 7)


def test_no_results():
    check(lambda x: None, randn(3))
    check(lambda x: (), randn(3))


def test_results_that_are_no_tensors():
    check(lambda x: (x.shape, x.dtype, x.dim(), x.stride(), x.is_contiguous(), x.device, [1, "a"]), randn(2, 3))


@each(
    coo=lambda: randn(3, 4).relu().to_sparse(),
    csr=lambda: randn(3, 4).relu().to_sparse_csr(),
)
def test_sparse_arguments(f):
    y = randn(4, 2)
    check(lambda x, y: x @ y + 1, f(), y, fullgraph=False, reference=False, calls=1)


def test_sparse_results():
    check(lambda x: (x * 2).to_sparse(), randn(3, 4).relu(), fullgraph=False, reference=False, calls=1)


class Scaled(torch.Tensor):
    """A tensor with a factor beside it, of which operators see the values."""

    @staticmethod
    def __new__(cls, values, factor):
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype)

    def __init__(self, values, factor):
        self.values, self.factor = values, factor

    def __repr__(self):
        return f"Scaled({self.values!r}, {self.factor})"

    def __tensor_flatten__(self):
        return ["values"], self.factor

    @staticmethod
    def __tensor_unflatten__(inner, factor, size, stride):
        return Scaled(inner["values"], factor)

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        factors = [arg.factor for arg in args if isinstance(arg, Scaled)]
        plain = torch.utils._pytree.tree_map(lambda arg: arg.values if isinstance(arg, Scaled) else arg, args)
        result = operator(*plain, **(kwargs or {}))
        return Scaled(result, factors[0]) if isinstance(result, torch.Tensor) else result


def test_a_subclass_of_tensor():
    x = randn(3, 4)
    for factor in (2.0, 3.0):
        found = compiled(lambda x: x.sin() + 1)(Scaled(x, factor))
        assert isinstance(found, Scaled) and found.factor == factor
        same(found.values, x.sin() + 1)


def test_a_subclass_inside():
    def f(x):
        return (Scaled(x, 2.0) * 3).values + 1

    x = randn(3)
    same(compiled(f, fullgraph=False)(x), x * 3 + 1)


class Named(torch.Tensor):
    """A subclass that changes nothing."""


def test_a_plain_subclass_of_tensor():
    x = randn(3).as_subclass(Named)
    found = compiled(lambda x: x * 2, fullgraph=False)(x)
    same(found.as_subclass(torch.Tensor), x.as_subclass(torch.Tensor) * 2)


def test_parameters_as_arguments():
    check(lambda w, x: x @ w.t(), torch.nn.Parameter(randn(3, 4)), randn(2, 4))


def test_a_nested_tensor():
    values, offsets = randn(7, 3), torch.tensor([0, 2, 7])
    fast = compiled(lambda x: x.sin() * 2, fullgraph=False)
    nested = torch.nested.nested_tensor_from_jagged(values, offsets)
    same(fast(nested).values(), values.sin() * 2)


@pytest.mark.eager_graphs("a tensor on meta")
def test_meta_tensors():
    found = compiled(lambda x: x * 2, fullgraph=False)(torch.empty(3, 4, device="meta"))
    assert found.device.type == "meta" and found.shape == (3, 4)


def test_memory_is_freed():
    fast = compiled(lambda x: x * 2)
    x = randn(1000)
    fast(x)
    reference = weakref.ref(x)
    del x
    gc.collect()
    assert reference() is None


def test_results_live_on_their_own():
    fast = compiled(lambda x: (x * 2)[1:])
    results = [fast(torch.full((100,), float(n))) for n in range(20)]
    for n, result in enumerate(results):
        same(result, torch.full((99,), 2.0 * n))


def test_inputs_of_inference_mode():
    with torch.inference_mode():
        x = randn(3)
        y = compiled(lambda x: x * 2)(x)
        assert y.is_inference()
        same(y, x * 2)
    same(compiled(lambda x: x * 2)(x), x * 2)


def test_tensors_of_shared_memory():
    x = randn(10).share_memory_()
    compiled(lambda x: x.add_(1))(x)
    assert x.is_shared()


@pytest.mark.eager_graphs("fake tensors, which have no data")
def test_fake_tensors():
    fast = compiled(lambda x: x.sin() * 2)
    x = randn(3)
    same(fast(x), x.sin() * 2)
    with FakeTensorMode() as mode:
        result = fast(mode.from_tensor(x))
    assert result.fake_mode is mode and result.shape == (3,)
    same(fast(x), x.sin() * 2)


@needs_litz
@pytest.mark.eager_graphs("fake tensors, which have no data")
def test_fake_tensors_are_counted_said_and_refused_if_wanted():
    litz.reset_stats()
    x = randn(3)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        compiled(lambda x: x.sin() * 2, options={"fallback": "quiet"})(fake)
        with pytest.raises(Exception, match="UnsupportedError: fake tensors, which have no data"):
            compiled(lambda x: x.sin() * 3, options={"fallback": "error"})(fake)
        (graph,) = litz.explain(lambda x: x.sin() * 4, fake).graphs
    assert litz.stats()["eager_graphs"] == {"fake tensors, which have no data": 2} and litz.stats()["graphs"] == 0
    assert graph.reason == "fake tensors, which have no data" and graph.kernels == 0


def test_fake_tensors_inside_of_a_subclass():
    fast = compiled(lambda x: x.sin() * 2)
    x = randn(3)
    with FakeTensorMode() as mode:
        fake = Scaled(mode.from_tensor(x), 2.0)
    # The same code is for both: Dynamo does not look at what is inside.
    for _ in range(2):
        found = fast(fake)
        assert isinstance(found.values, FakeTensor) and found.shape == (3,)
        same(fast(Scaled(x, 2.0)).values, x.sin() * 2)


@needs_litz
def test_fake_tensors_inside_of_a_subclass_are_counted_and_refused_if_wanted():
    x = randn(3)
    with FakeTensorMode() as mode:
        fake = Scaled(mode.from_tensor(x), 2.0)
    litz.reset_stats()
    compiled(lambda x: x.sin() * 2)(fake)
    assert litz.stats()["eager_calls"] == 1 and litz.stats()["calls"] == 0
    with pytest.raises(litz.UnsupportedError, match="fake tensors"):
        compiled(lambda x: x.sin() * 3, options={"fallback": "error"})(fake)
