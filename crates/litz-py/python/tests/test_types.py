"""Element types: which of them eager mode takes, operator by operator, and what numbers become that they do not hold."""

import pathlib
import sys

import pytest
import torch
import torch.nn.functional as F

from checks import check, compiled, needs_litz

UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
INTEGERS = [*UNSIGNED, torch.int8, torch.int16, torch.int32, torch.int64]
# Beyond what some of the types hold, on either side.
BOUNDS = [(-1, 1), (-1, None), (None, 300), (2, 2**40), (-(2**40), 2**40), (-300, None), (-(2**62), 2**62)]


@needs_litz
def test_types_of_a_part_of_the_operators(capsys):
    """What `benches/eager_types.py` finds of some tests is what is reviewed there."""
    sys.path.append(str(pathlib.Path(__file__).parents[4] / "benches"))
    try:
        import compile_opinfo
        import eager_types
    finally:
        sys.path.pop()
    tests = compile_opinfo.op_db[5::45]
    calls, known = eager_types.record(tests), eager_types.reviewed()
    assert len(tests) > 10 and len(calls) > 20
    found = [f"{eager_types.operator_name(op)} {dtype}: {what}" for op, made in calls.items() for dtype, what in eager_types.differences(op, made)]
    assert not [line for line in found if tuple(line.split(":")[0].split()) not in known]


def refusing(f, *args):
    """Whether eager mode refuses a call, where the compiled function does what it does."""
    try:
        wanted = f(*args)
    except Exception:
        with pytest.raises(Exception):
            compiled(f)(*args)
        return True
    found = compiled(f)(*args)
    assert found.dtype == wanted.dtype and torch.equal(found, wanted)
    return False


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_bounds_that_a_type_does_not_hold(bounds, dtype):
    limits = torch.iinfo(dtype)
    x = torch.tensor([0, 1, 5, 100, limits.max, limits.min], dtype=dtype)
    refusing(lambda x: torch.clamp(x, *bounds), x)
    if bounds[0] is not None:
        refusing(lambda x: torch.clamp_min(x, bounds[0]), x)
        refusing(lambda x: torch._foreach_maximum([x], bounds[0])[0], x)
    if bounds[1] is not None:
        refusing(lambda x: torch.clamp_max(x, bounds[1]), x)
    if None not in bounds:
        refusing(lambda x: F.hardtanh(x, *bounds), x)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8], ids=str)
def test_bounds_that_are_sizes(dtype):
    x = torch.arange(-100 if dtype.is_signed else 0, 100).repeat(2).to(dtype)
    check(lambda x: x.clamp(-x.shape[0], x.shape[0]), x, exact=True, reference=False, dynamic=True)


# Numbers of each kind with tensors of types that few kernels of eager mode take.
SCALAR = ["gt", "le", "ge", "lt", "eq", "ne", "add", "sub", "mul", "div", "fmod", "remainder", "floor_divide", "pow", "fill", "bitwise_and"]


@pytest.mark.parametrize("number", [3, -1, 2.5])
@pytest.mark.parametrize("name", SCALAR)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint64], ids=str)
def test_a_number_beside_a_tensor(dtype, name, number):
    x = torch.tensor([0, 1, 5, 100, torch.iinfo(dtype).max], dtype=dtype)
    refusing(lambda x: getattr(torch, name)(x, number), x)


@pytest.mark.parametrize("dtype", [*UNSIGNED, torch.int8], ids=str)
@pytest.mark.parametrize("number", [-0.5, -2.5, -1, -300, 1e30, float("nan")])
@pytest.mark.parametrize("f", [torch.fill, torch.full_like, lambda x, number: x.masked_fill(x == 1, number), lambda x, number: x.new_full((2,), number)])
def test_filling_with_a_number_that_a_type_does_not_hold(f, number, dtype):
    refusing(lambda x: f(x, number), torch.tensor([0, 1, 5], dtype=dtype))


@pytest.mark.parametrize("f", [F.elu, F.celu, F.leaky_relu, F.softplus, F.softshrink, F.hardshrink, F.threshold, F.relu6, F.hardtanh], ids=lambda f: f.__name__)
@pytest.mark.parametrize("is_given", [False, True])
def test_activations_of_integers(f, is_given):
    """A number of another kind gives their calls no other type."""
    numbers = (0.5, 0.25) if f is F.threshold else (0.5,) if is_given and f not in (F.relu6, F.hardtanh) else ()
    refusing(lambda x: f(x, *numbers), torch.arange(-3, 4))


@needs_litz
@pytest.mark.parametrize("value", [5, 2**63 - 1, 2**63, 2**64 - 8])
def test_items_of_unsigned_integers(value):
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        f = compiled(lambda x: x.item())
        if value < 2**63:
            assert f(torch.tensor([value], dtype=torch.uint64)) == value
        else:
            with pytest.raises(RuntimeError, match="without overflow"):
                f(torch.tensor([value], dtype=torch.uint64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_distinct_values_without_what_is_not_asked_for(flags, dtype):
    x = torch.tensor([[2.0, 1, 1], [2, 2, -1]], dtype=dtype)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        check(lambda x: torch.ops.aten._unique2(x, True, *flags), x, exact=True, reference=False)
        check(lambda x: torch.ops.aten.unique_consecutive(x, *flags), x, exact=True, reference=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("is_column_major", [False, True])
@pytest.mark.parametrize("mode, has_last, has_scales", [("sum", False, False), ("sum", True, False), ("sum", True, True), ("mean", True, False), ("max", False, False)])
def test_gradients_of_bags(mode, has_last, has_scales, is_column_major, dtype):
    """PyTorch's fake kernel does not know of all types for which the kernel leaves out which bag an index is in."""
    indices, offsets = torch.tensor([0, 1, 1, 0, 1, 4]), torch.tensor([0, 3, 6])
    table = torch.randn(5, 5, generator=torch.Generator().manual_seed(1)).to(dtype)
    scales = torch.arange(1.0, 7.0).to(dtype)

    def run(f):
        weight = (table.t() if is_column_major else table).detach().requires_grad_()
        given = scales.clone().requires_grad_() if has_scales else None
        result = f(weight, given)
        (result * result.detach()).sum().backward()
        return [result.detach(), weight.grad] + ([given.grad] if has_scales else [])

    f = lambda weight, given: F.embedding_bag(indices, weight, offsets, mode=mode, include_last_offset=has_last, per_sample_weights=given)
    for found, wanted in zip(run(compiled(f)), run(f), strict=True):
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, rtol=2e-2 if dtype != torch.float32 else 1e-5, atol=2e-2 if dtype != torch.float32 else 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bins", [3, 10, 100, 257])
def test_bins_of_edges(bins, dtype):
    """Which bin an edge belongs to depends on what is rounded on the way."""
    x = torch.randint(-17, 18, (9, 11), generator=torch.Generator().manual_seed(bins)).to(dtype) / 2
    check(lambda x: torch.histc(x, bins), x, exact=True, reference=False)
    check(lambda x: torch.histc(x, bins, -7, 8), x, exact=True, reference=False)
