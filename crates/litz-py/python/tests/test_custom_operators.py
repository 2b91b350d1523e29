"""Operators of others, made by `torch.library`, run as they do in eager mode: with and without changes, gradients and sizes of their own."""

import gc
import itertools

import pytest
import torch
from checks import check, compiled, counted, each, needs_litz, same
from torch import randn

import litz
from litz import host

calls = itertools.count()


@torch.library.custom_op("litz_tests::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * 2)


@double.register_fake
def _(x):
    return torch.empty_like(x)


double.register_autograd(lambda context, grad: grad * 2)


@torch.library.custom_op("litz_tests::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float = 1.5, times: int = 1, name: str = "plain") -> torch.Tensor:
    return x * factor**times if name == "plain" else -x


@scale.register_fake
def _(x, factor=1.5, times=1, name="plain"):
    return torch.empty_like(x)


@torch.library.custom_op("litz_tests::parts", mutates_args=())
def parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.relu(), x.sum(1)


@parts.register_fake
def _(x):
    return torch.empty_like(x), x.new_empty(x.shape[0])


@torch.library.custom_op("litz_tests::add_to", mutates_args=("x",))
def add_to(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


@torch.library.custom_op("litz_tests::move", mutates_args=("source", "target"))
def move(source: torch.Tensor, target: torch.Tensor, amount: float) -> torch.Tensor:
    target.add_(source, alpha=amount)
    source.mul_(1 - amount)
    return target.sum(0)


@move.register_fake
def _(source, target, amount):
    return target.new_empty(target.shape[1:])


@torch.library.custom_op("litz_tests::total", mutates_args=())
def total(xs: list[torch.Tensor], weights: list[float], bias: torch.Tensor | None = None) -> torch.Tensor:
    result = sum(x * weight for x, weight in zip(xs, weights, strict=True))
    return result + bias if bias is not None else result


@total.register_fake
def _(xs, weights, bias=None):
    return torch.empty_like(xs[0])


@torch.library.custom_op("litz_tests::unzip", mutates_args=())
def unzip(x: torch.Tensor, pieces: int) -> list[torch.Tensor]:
    return [piece.clone() for piece in x.chunk(pieces)]


@unzip.register_fake
def _(x, pieces):
    return [torch.empty_like(piece) for piece in x.chunk(pieces)]


@torch.library.custom_op("litz_tests::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@positive.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("litz_tests::strides", mutates_args=())
def strides(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.stride())


@strides.register_fake
def _(x):
    return torch.empty(x.dim(), dtype=torch.int64)


@torch.library.custom_op("litz_tests::counting", mutates_args=())
def counting(x: torch.Tensor) -> torch.Tensor:
    next(calls)
    return x + 1


@counting.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("litz_tests::failing", mutates_args=())
def failing(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        raise ValueError("the sum is positive")
    return x.clone()


@failing.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("litz_tests::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


@cube.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("litz_tests::cube_backward", mutates_args=())
def cube_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return grad * 3 * x**2


@cube_backward.register_fake
def _(grad, x):
    return torch.empty_like(x)


def cube_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


cube.register_autograd(lambda ctx, grad: cube_backward(grad, ctx.saved_tensors[0]), setup_context=cube_setup)


@each(
    alone=lambda x: double(x),
    between=lambda x: double(x.sin()) + 1,
    twice=lambda x: double(double(x)) - double(x + 1),
    with_defaults=lambda x: scale(x),
    with_numbers=lambda x: scale(x, 0.5, 3),
    with_keywords=lambda x: scale(x, times=2, name="other"),
    two_results=lambda x: parts(x * 2),
    one_of_two_results=lambda x: parts(x)[1] + 1,
    of_a_list=lambda x: total([x, x + 1, x.cos()], [1.0, 2.0, 0.5]),
    with_an_optional=lambda x: total([x], [2.0], x[0]) + 1,
    list_of_results=lambda x: unzip(x + 1, 2),
    part_of_a_list=lambda x: unzip(x + 1, 4)[2] * 2,
    of_a_view=lambda x: double(x[1:, ::2]),
    of_a_transposed=lambda x: double(x.t()) + x.t(),
    of_a_computed_transposed=lambda x: double((x + 1).t()),
    strides_of_an_argument=lambda x: strides(x.t()),
    strides_of_an_intermediate=lambda x: strides((x + 1).t()),
    strides_of_a_slice=lambda x: strides((x + 1)[:, 1:]),
    unused=lambda x: (double(x), x + 1)[1],
    of_a_product=lambda x: double(x @ x.t()).softmax(-1),
    of_bfloat16=lambda x: scale(x.bfloat16()).float(),
    of_integers=lambda x: double(torch.arange(6).view(2, 3)) + 1,
)
def test_custom_operator(f):
    check(f, randn(4, 6), reference=False)


@each(
    plain=lambda x: double(x),
    between=lambda x: double(x.sin()).cos(),
    cube=lambda x: cube(x),
    cube_between=lambda x: cube(x.tanh()).sum(1) * 2,
    both=lambda x: double(cube(x)) + cube(double(x)),
)
def test_gradient_of_a_custom_operator(f):
    check(f, randn(4, 6), gradients=True, reference=False)


@each(
    argument=lambda x, y: add_to(x, y),
    argument_twice=lambda x, y: (add_to(x, y), add_to(x, x)),
    row_of_an_argument=lambda x, y: add_to(x[1], y[0]),
    transposed_argument=lambda x, y: add_to(x.t(), y.t()),
    both_arguments=lambda x, y: move(x, y, 0.25) + 1,
    both_in_turn=lambda x, y: (move(x, y, 0.5), move(y, x, 0.5)),
    argument_is_returned=lambda x, y: (add_to(x, y), x)[1],
)
def test_custom_operator_changes_arguments(f):
    check(f, randn(3, 4), randn(3, 4))


def changes_an_intermediate(x, y):
    z = x * 2
    add_to(z, y)
    return z + 1


def changes_a_view_of_an_intermediate(x, y):
    z = x * 2
    add_to(z[1:], y[1:])
    return z, z.sum()


def changes_and_keeps_the_old(x, y):
    z = x * 2
    old = z + 0
    add_to(z, y)
    return old, z


def changes_two_views(x, y):
    z = x * 2
    move(z[0], z[1:], 0.5)
    return z


@each(
    intermediate=changes_an_intermediate,
    view=changes_a_view_of_an_intermediate,
    old=changes_and_keeps_the_old,
    two_views=changes_two_views,
)
def test_custom_operator_changes_intermediates(f):
    check(f, randn(3, 4), randn(3, 4))


@pytest.mark.parametrize("dynamic", [False, True])
def test_custom_operator_changes_a_part_of_an_argument_that_begins_later(dynamic):
    def f(x):
        add_to(x.t()[1], torch.ones(x.shape[0]))
        return x * 1

    fast = compiled(f, dynamic=dynamic)
    for begin in (1, 4, 0):
        memory, other = (torch.arange(60.0).view(12, 5) for _ in range(2))
        same(fast(memory[begin : begin + 6]), f(other[begin : begin + 6]))
        same(memory, other)


def test_custom_operator_of_dynamic_sizes():
    def f(x):
        return double(x + 1) * parts(x)[1][:, None]

    fast, counter = counted(f, dynamic=True)
    for rows in (2, 3, 7):
        x = randn(rows, 4)
        same(fast(x), f(x))
    assert counter.frame_count == 1


def test_custom_operator_decides_a_size():
    def f(x):
        return positive(x + 1) * 2

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        fast = compiled(f)
        for shift in (0, 1, -9):
            x = randn(9) + shift
            same(fast(x), f(x))


def test_custom_operator_runs_once_a_call():
    fast = compiled(lambda x: counting(x * 2) * 3)
    fast(torch.ones(2))
    before = next(calls)
    same(fast(torch.ones(2)), torch.full((2,), 9.0))
    assert next(calls) == before + 2


def test_an_exception_of_a_custom_operator_is_raised():
    fast = compiled(lambda x: failing(x) * 2)
    same(fast(-torch.ones(2)), -torch.full((2,), 2.0))
    with pytest.raises(ValueError, match="the sum is positive"):
        fast(torch.ones(2))
    same(fast(-torch.ones(3)[:2]), -torch.full((2,), 2.0))


@needs_litz
def test_an_exception_of_a_model_that_an_operator_calls_is_raised():
    class Shifted(torch.nn.Module):
        def forward(self, x):
            return x + 1

    model, runs = litz.compile(Shifted(), (randn(3),)), []

    @torch.library.custom_op("litz_tests::of_a_model", mutates_args=())
    def of_a_model(x: torch.Tensor) -> torch.Tensor:
        runs.append("inner")
        # The model has other sizes than the graph that calls the operator.
        return model(x[:3] if x.sum() > 0 else x)[0].repeat(2)

    of_a_model.register_fake(torch.empty_like)
    inner = compiled(lambda x: of_a_model(x) * 2)

    @torch.library.custom_op("litz_tests::of_a_graph", mutates_args=())
    def of_a_graph(x: torch.Tensor) -> torch.Tensor:
        runs.append("outer")
        return inner(x)

    of_a_graph.register_fake(torch.empty_like)
    outer = compiled(lambda x: of_a_graph(x) * 3)
    x = torch.ones(6)
    same(outer(x), torch.full((6,), 12.0))
    assert runs == ["outer", "inner"]
    litz.reset_stats()
    for fast, wanted in ((inner, ["inner"]), (outer, ["outer", "inner"])):
        runs.clear()
        with pytest.raises(litz.RunError, match="dimension 0: expected size 3, found 6"):
            fast(-x)
        assert runs == wanted
    assert litz.stats()["eager_calls"] == 0


KEPT, KEEPING = [], {
    "the_tensor": lambda x: x,
    "a_view": lambda x: x[1:].t(),
    "an_array": lambda x: torch.from_numpy(x.numpy()),
    "a_list": lambda x: [x, x * 2][0],
}


@each(**KEEPING)
@pytest.mark.parametrize("made", [lambda x: x.sin().cumsum(0), lambda x: x, lambda x: x[:, ::2], lambda x: x[:1].expand(300, -1)])
def test_an_operator_keeps_what_it_was_given(f, made):
    """Memory that somebody else has is not used for something else, and does not go."""

    @torch.library.custom_op("litz_tests::keeping", mutates_args=())
    def keeping(x: torch.Tensor, rest: list[torch.Tensor]) -> torch.Tensor:
        KEPT.extend([f(x), *rest])
        return x * 1

    keeping.register_fake(lambda x, rest: torch.empty_like(x))
    fast = compiled(lambda x: keeping(made(x), [made(x) * 2, x.exp()]).cos().sum())
    KEPT.clear()
    for number in range(3):
        fast(torch.full((300, 200), float(number)))
    del fast
    torch._dynamo.reset()
    gc.collect()
    others = [torch.full((300, 200), 9.0) for _ in range(8)]
    for number in range(3):
        x = torch.full((300, 200), float(number))
        same(KEPT[3 * number : 3 * number + 3], [f(made(x)), made(x) * 2, x.exp()])
    assert all((other == 9).all() for other in others)


@needs_litz
def test_what_an_operator_keeps_in_a_later_call_is_not_to_be_read():
    kept, what = [], []

    @torch.library.custom_op("litz_tests::keeping_later", mutates_args=())
    def keeping_later(x: torch.Tensor) -> torch.Tensor:
        if "fail" in what:
            raise ValueError("as wanted")
        kept.extend(x[1:] for _ in what)
        return x * 1

    keeping_later.register_fake(torch.empty_like)
    fast = compiled(lambda x: keeping_later(x.sin()).cos())
    x = randn(100)
    fast(x)
    what.append("keep")
    for _ in range(2):
        same(fast(x), x.sin().cos())
    # The first of these calls had taken the operator for one that keeps nothing.
    with pytest.raises(RuntimeError, match="litz_tests.keeping_later.default was given is gone"):
        kept[0].sum()
    same(kept[1], x.sin()[1:])
    host.HOST.keeps["litz_tests.keeping_later.default"] = False
    what[:] = ["fail"]
    with pytest.raises(ValueError, match="as wanted") as raised:
        fast(x)
    (given,) = [frame.frame.f_locals["x"] for frame in raised.traceback if frame.name == "keeping_later"]
    with pytest.raises(RuntimeError, match="is gone"):
        given.sum()


@needs_litz
def test_effects_before_a_failed_check_happen_once():
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    noted = []

    @torch.library.custom_op("litz_tests::noting", mutates_args=())
    def noting(x: torch.Tensor) -> None:
        noted.append(x.sum().item())

    noting.register_fake(lambda x: None)
    _register_effectful_op(torch.ops.litz_tests.noting.default, _EffectType.ORDERED)

    def f(x, y):
        noting(x)
        count = y.sum().long().item()
        torch._check(count > 0)
        noting(y)
        return x * count

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        fast = compiled(f)
        same(fast(torch.ones(3), torch.ones(2)), torch.full((3,), 2.0))
        assert noted == [3, 2]
        noted.clear()
        with pytest.raises(RuntimeError, match="expected u0 >= 1"):
            fast(torch.ones(3), -torch.ones(2))
        assert noted == [3]


def test_an_operator_of_a_library():
    with torch.library._scoped_library("litz_tests_more", "FRAGMENT") as library:
        library.define("shift(Tensor x, int by, *, bool back=False) -> Tensor")
        library.impl("shift", lambda x, by, *, back=False: x.roll(-by if back else by), "CPU")
        torch.library.register_fake("litz_tests_more::shift", lambda x, by, *, back=False: torch.empty_like(x), lib=library)
        check(lambda x: (torch.ops.litz_tests_more.shift(x + 1, 2), torch.ops.litz_tests_more.shift(x, 1, back=True)), randn(5))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context, grad):
        (x,) = context.saved_tensors
        return grad * x * 2.5


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(context, x, levels):
        return (x * levels).round() / levels

    @staticmethod
    def backward(context, grad):
        return grad, None


@each(
    square=lambda x: Square.apply(x),
    square_between=lambda x: Square.apply(x.sin()) + x,
    straight_through=lambda x: Straight.apply(x, 4) * 2,
    both=lambda x: Straight.apply(Square.apply(x), 2),
)
def test_functions_with_their_own_gradient(f):
    check(f, randn(3, 4), gradients=True)


@needs_litz
def test_an_operator_that_is_defined_once_more():
    litz.reset_stats()
    for value in (1.0, 2.0):

        @torch.library.custom_op("litz_tests::defined_twice", mutates_args=())
        def shifted(x: torch.Tensor) -> torch.Tensor:
            return x + value

        shifted.register_fake(torch.empty_like)
        torch._dynamo.reset()
        same(compiled(lambda x: shifted(x) * 2)(torch.zeros(3)), torch.full((3,), 2 * value))

    @torch.library.custom_op("litz_tests::defined_twice", mutates_args=())
    def shifted_by(x: torch.Tensor, value: float) -> torch.Tensor:
        return x + value

    shifted_by.register_fake(lambda x, value: torch.empty_like(x))
    torch._dynamo.reset()
    same(compiled(lambda x: shifted_by(x, 5.0) * 2)(torch.zeros(3)), torch.full((3,), 10.0))
    assert not litz.stats()["eager_graphs"]


@needs_litz
def test_a_region_that_writes_is_called_twice():
    @torch.library.custom_op("litz_tests::increment", mutates_args=("x",))
    def increment(x: torch.Tensor) -> None:
        x.add_(1)

    @torch.compiler.nested_compile_region
    def region(x):
        y = x * 2
        increment(y)
        return y + 1

    litz.reset_stats()
    same(compiled(lambda x: region(region(x)))(torch.zeros(3)), torch.full((3,), 6.0))
    assert not litz.stats()["eager_graphs"]


@needs_litz
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_a_region_has_an_operand_without_gradient(dtype):
    @torch.compiler.nested_compile_region
    def region(x, y):
        return x.sin() * y

    litz.reset_stats()
    x, y = randn(3, requires_grad=True), torch.tensor([1, 2, 3], dtype=dtype)
    wanted = torch.autograd.grad(((x.sin() * y).sin() * y).sum(), x)
    same(torch.autograd.grad(compiled(lambda x, y: region(region(x, y), y))(x, y).sum(), x), wanted)
    assert not litz.stats()["eager_graphs"]


@needs_litz
def test_a_region_with_a_constant_is_called_twice():
    @torch.compiler.nested_compile_region
    def region(x):
        return x * torch.tensor([1.0, 2.0, 3.0])

    litz.reset_stats()
    same(compiled(lambda x: region(region(x)))(torch.ones(3)), torch.tensor([1.0, 4.0, 9.0]))
    assert not litz.stats()["eager_graphs"]


@torch.compiler.nested_compile_region
def region(x, y):
    return (x * y).sin(), x.sum()


@torch.compiler.nested_compile_region
def region_of_products(x, y):
    z = x.t() @ y[1:]
    return z.sin(), (z.view(-1)[2:] * 2).exp()


@each(
    exchanged=lambda x, y: region(x, y)[0].sum() * region(y, x)[1],
    in_turn=lambda x, y: region(region(x, y)[0], y)[0].sum() + region(y, x)[1],
    parts=lambda x, y: region(x[0], y[1])[0].sum() + region(x[1], y[0])[0].prod() + region(y[1], x[0])[1],
    products=lambda x, y: [*region_of_products(x[:2], y), *region_of_products(y[1:], x), *region_of_products(x[1:] * y[:2], x)],
)
def test_operands_of_regions_that_are_called_several_times(f):
    """What the forward graph keeps of each call is what that call was given."""
    check(f, randn(3, 3), randn(3, 3), gradients=True, aliases=False)
    with torch.no_grad():
        check(f, randn(3, 3), randn(3, 3), aliases=False)
