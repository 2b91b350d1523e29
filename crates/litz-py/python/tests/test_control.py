"""Control flow: torch.cond, while_loop, scan and map inside of graphs, and Python between graphs where Dynamo breaks them."""

import pytest
import torch
from checks import BACKEND, check, compiled, counted, each, needs_litz, same, shapes
from torch import nn, randn
from torch._higher_order_ops import associative_scan, scan, while_loop

import litz


@each(
    both_ways=lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * 2, (x,)),
    computed_operands=lambda x: torch.cond(x.mean() > 0, lambda a, b: a + b, lambda a, b: a - b, (x * 2, x.exp())) + 1,
    two_results=lambda x: torch.cond(x[0, 0] > 0, lambda x: (x + 1, x.sum()), lambda x: (x * 2, x.mean()), (x,)),
    nested=lambda x: torch.cond(
        x.sum() > 0,
        lambda x: torch.cond(x.amax() > 2, lambda x: x * 3, lambda x: x + 1, (x,)),
        lambda x: x - 1,
        (x,),
    ),
    one_way_is_the_argument=lambda x: torch.cond(x.sum() > 0, lambda x: x.clone(), lambda x: x * 0, (x,)),
    of_a_size=lambda x: torch.cond(x.shape[0] > 2, lambda x: x + 1, lambda x: x - 1, (x,)),
    with_products=lambda x: torch.cond(x.sum() > 0, lambda x: x @ x.t(), lambda x: (x * 2) @ x.t(), (x,)),
)
@pytest.mark.parametrize("sign", [1, -1])
def test_cond(f, sign):
    check(f, randn(3, 4).abs() * sign)


@each(
    windows=lambda x: x.as_strided((3, 2), (1, 1)),
    windows_of_a_result=lambda x: (x * 2).view(-1).as_strided((3, 2), (1, 1), 2),
    expanded_windows=lambda x: x.as_strided((3, 2), (1, 1)).expand(4, 3, 2),
    unfolded=lambda x: x.view(-1).unfold(0, 3, 1),
)
@pytest.mark.parametrize("sign", [1, -1])
def test_cond_of_elements_that_share_memory(f, sign):
    def branches(x):
        return torch.cond(x.sum() > 0, lambda a: a * 2 + a.shape[0], lambda a: a.contiguous() - 1, (f(x),))

    check(branches, randn(3, 4).abs() * sign)


def test_cond_of_both_ways_in_one_compilation():
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * 2, (x,))

    fast, counter = counted(f)
    for sign in (1, -1, 1):
        x = randn(4).abs() * sign
        same(fast(x), f(x))
    assert counter.frame_count == 1


def test_cond_of_a_boolean_argument():
    def f(flag, x):
        return torch.cond(flag, lambda x: x + 1, lambda x: x - 1, (x,))

    fast = compiled(f)
    for flag in (True, False):
        same(fast(torch.tensor(flag), torch.zeros(3)), torch.full((3,), 1.0 if flag else -1.0))


def test_cond_uses_parameters():
    class Switch(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: self.left(x), lambda x: self.right(x), (x,))

    with torch.no_grad():
        for sign in (1, -1):
            check(Switch(), randn(2, 4).abs() * sign)


def test_gradient_of_cond():
    for sign in (1, -1):
        check(lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * 2, (x,)), randn(4).abs() * sign, gradients=True)


def test_gradient_of_cond_is_expanded():
    """What a sum hands back is one number for all elements, also where their number is a symbol."""
    f = lambda x: torch.cond(x.sum() > 0, lambda x: x * 2 + x.shape[0], lambda x: x.sin() - 1, (x,)).sum()
    for sign in (1, -1):
        check(f, randn(7).abs() * sign, gradients=True, dynamic=True)


@each(
    counted=lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 1.5), (torch.tensor(0), x)),
    of_data=lambda x: while_loop(lambda x: x.sum() < 50, lambda x: (x * 2 + 1,), (x,)),
    never=lambda x: while_loop(lambda x: x.sum() < -1e9, lambda x: (x * 2,), (x,)),
    with_captured=lambda x: while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y + x), (torch.tensor(0), x * 2)),
    with_product=lambda x: while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, (y @ y).tanh()), (torch.tensor(0), x)),
)
def test_while_loop(f):
    check(f, randn(3, 3).abs())


@each(
    sums=lambda x: scan(lambda carry, row: (carry + row, carry * 2), torch.zeros(4), x),
    recurrent=lambda x: scan(lambda h, row: ((lambda n: (n, n.clone()))((h * 0.5 + row).tanh())), torch.zeros(4), x),
    reverse=lambda x: scan(lambda carry, row: (carry * row, carry + 1), torch.ones(4), x, reverse=True),
)
def test_scan(f):
    check(f, randn(5, 4), reference=False)


def test_associative_scan():
    check(lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic"), randn(6, 3))


@each(
    counted=lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x)),
    number_as_value=lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * i + 1), (0, x)),
    number_after=lambda x: (lambda i, y: y * i)(*while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x))),
    number_and_size=lambda x: while_loop(lambda i, x: i < x.shape[0], lambda i, x: (i + 1, x * 1.5), (0, x)),
    begins_with_a_size=lambda x: while_loop(lambda i, x: i < 9, lambda i, x: (i + x.shape[0], x * 1.5), (x.shape[0], x)),
    two_numbers=lambda x: while_loop(lambda i, j, x: i < j, lambda i, j, x: (i + 1, j - 1, x * i + j), (0, 7, x)),
    index=lambda x: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + x.select(0, i)), (0, x[0].clone())),
    of_an_element=lambda x: while_loop(lambda i, x: x.max() < 100, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x.abs() + 1)),
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_loop_over_a_number(f, dynamic):
    shapes(f, (randn(4, 6),), (randn(9, 5),), dynamic=dynamic)


def test_map():
    check(lambda x, y: torch._higher_order_ops.map(lambda row, y: row.sin() + y, x, y), randn(4, 3), randn(3))


def test_a_graph_break():
    def f(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y * 2 + x

    check(f, randn(3), fullgraph=False, gradients=True)


def test_print_breaks_a_graph(capsys):
    def f(x):
        y = x + 1
        print("seen", y.shape)
        return y * 2

    check(f, randn(3), fullgraph=False, calls=1)
    assert capsys.readouterr().out.count("seen torch.Size([3])") == 3


def test_a_branch_on_data():
    def f(x):
        return x * 2 if x.sum() > 0 else x - 1

    check(f, randn(3).abs(), fullgraph=False)
    check(f, -randn(3).abs(), fullgraph=False)


def test_a_branch_on_data_needs_a_break():
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(lambda x: x * 2 if x.sum() > 0 else x - 1)(randn(3))


def test_a_loop_over_data():
    def f(x):
        steps = 0
        while x.abs().max() > 1:
            x = x / 2
            steps += 1
        return x, steps

    check(f, torch.tensor([9.0, -3.0]), fullgraph=False)


def test_item_between_graphs():
    def f(x):
        total = x.sum().item()
        return x / total, round(total, 2)

    check(f, randn(3).abs(), fullgraph=False)


def test_numpy_between_operators():
    def f(x):
        return torch.from_numpy(x.numpy() * 2 + 1).sum() + x

    check(f, randn(3), reference=False)


def test_a_disabled_function():
    @torch.compiler.disable
    def other(x):
        return torch.from_numpy(x.detach().numpy()[::-1].copy())

    check(lambda x: other(x + 1) * 2, randn(4), fullgraph=False)


def test_views_and_changes_across_a_break():
    def f(x):
        row = x[0]
        row.add_(1)
        torch._dynamo.graph_break()
        x.mul_(2)
        return row, x.sum()

    check(f, randn(3, 4), fullgraph=False)


def test_nested_compiled_functions():
    inner = compiled(lambda x: x.sin() * 2)
    check(lambda x: inner(x) + inner(x + 1), randn(4))


def test_a_function_calls_itself():
    def f(x, depth):
        return x if depth == 0 else f(x * 1.5 + 1, depth - 1)

    check(f, randn(3), 4)


def test_an_exception_inside():
    def f(x):
        try:
            if x.shape[0] > 2:
                raise ValueError("large")
            return x + 1
        except ValueError:
            return x - 1

    check(f, randn(2))
    check(f, randn(3))


def test_an_exception_of_shapes_is_raised():
    with pytest.raises(Exception, match="(?i)shape|size|match"):
        compiled(lambda x, y: x @ y)(randn(2, 3), randn(4, 5))
    same(compiled(lambda x, y: x @ y)(torch.ones(2, 3), torch.ones(3, 1)), torch.full((2, 1), 3.0))


def test_python_around_tensors():
    def f(x, names):
        parts = {name: x * index for index, name in enumerate(names)}
        total = sum(part for name, part in sorted(parts.items()) if name != "b")
        return total, len(parts), [*parts][::-1], f"{x.dim()} dimensions"

    check(f, randn(3), ["c", "a", "b"])


def test_a_generator_and_a_closure():
    def f(x):
        def steps():
            for index in range(3):
                yield x * index

        return torch.stack(list(steps())), [(lambda y: y + shift)(x) for shift in (1, 2)]

    check(f, randn(3))


def test_an_assertion_on_data():
    def f(x):
        torch._assert_async((x > 0).all(), "not positive")
        return x.log()

    fast = compiled(f)
    same(fast(torch.ones(3)), torch.zeros(3))
    with pytest.raises(RuntimeError, match="not positive"):
        fast(torch.tensor([1.0, -1.0, 1.0]))


def test_a_method_and_a_decorated_function():
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def apply(self, x):
            return x * self.factor

    @torch.compile(backend="eager")
    def outer(x):
        return x + 1

    check(Scale(3).apply, randn(3))
    check(lambda x: outer(x) * 2, randn(3), fullgraph=False)


def test_compile_of_a_module_in_place():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    x = randn(2, 4)
    wanted = model(x)
    model.compile(backend=BACKEND)
    same(model(x), wanted)


def test_a_compiled_module_is_saved_and_loaded(tmp_path):
    model = nn.Linear(4, 3)
    fast = compiled(model)
    x = randn(2, 4)
    wanted = fast(x)
    torch.save(fast.state_dict(), tmp_path / "weights.pt")
    other = compiled(nn.Linear(4, 3))
    other.load_state_dict(torch.load(tmp_path / "weights.pt"))
    same(other(x), wanted)


def hinted(body, *args):
    return torch.ops.higher_order.hints_wrapper(body, args, {}, hints={"kernel": "fast"})


@needs_litz
@each(
    one_result=lambda call, x, y: call(lambda x, y: x.sin() * y, x, y) + 1,
    two_results=lambda call, x, y: call(lambda x, y: (x.sin() * y.sum(), y.relu()), x, y),
    a_list=lambda call, x, y: call(lambda x: [x.exp(), x + 1], x)[1] * y,
    one_after_the_other=lambda call, x, y: call(lambda x: x.exp(), call(lambda x, y: x @ y.t(), x, y)),
    one_inside_of_another=lambda call, x, y: call(lambda x: call(lambda x: x.cos(), x.sin()) * 2, x + y),
    of_a_number=lambda call, x, y: call(lambda x, n: x * n, x, 3) + y,
    nobody_reads=lambda call, x, y: (call(lambda x: x.sin(), x), y * 2)[1],
)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
def test_hints(f, sign, dynamic):
    """Hints change nothing. PyTorch's tracing fails for sizes that are symbols, and has no gradients, as eager mode has none."""
    x, y = (randn(3, 4).abs() * sign for _ in range(2))
    with_hints, without = (lambda x, y: f(hinted, x, y)), (lambda x, y: f(lambda body, *args: body(*args), x, y))
    fast = compiled(with_hints, dynamic=dynamic)
    for rows in (3, 2):
        same(fast(x[:rows], y[:rows]), without(x[:rows], y[:rows]))
    with torch.no_grad():
        check(with_hints, x, y, reference=False, dynamic=dynamic)


@needs_litz
@pytest.mark.parametrize("sign", [1, -1])
def test_hints_in_a_branch(sign):
    f = lambda x: torch.cond(x.sum() > 0, lambda x: hinted(lambda x: x.sin() * x, x), lambda x: x.cos(), (x,)).exp()
    check(f, randn(3, 4).abs() * sign, dynamic=False)


@needs_litz
def test_gradients_with_hints():
    f = lambda call, x: call(lambda x: (x.sin() * x, x.exp()), x)
    x, other = (randn(3, 4).requires_grad_() for _ in range(2))
    other.data.copy_(x.data)
    sum(part.square().sum() for part in compiled(lambda x: f(hinted, x))(x)).backward()
    sum(part.square().sum() for part in f(lambda body, *args: body(*args), other)).backward()
    same(x.grad, other.grad)
