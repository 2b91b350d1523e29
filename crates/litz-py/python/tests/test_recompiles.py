"""Functions are compiled again where something changed that they depend on, and only there."""

import pytest
import torch
from checks import counted, each, same
from torch import nn, randn


def sequence(f, calls, most, **settings):
    """Compares `f` with eager mode for each call; exactly `most` compilations are wanted."""
    fast, counter = counted(f, **settings)
    for args in calls:
        same(fast(*args), f(*args))
    assert counter.frame_count == most


@each(
    same=lambda: [(randn(3, 4),)] * 4,
    other_values=lambda: [(randn(3, 4),) for _ in range(4)],
    other_offset=lambda: [(randn(9, 4)[n : n + 3],) for n in range(4)],
)
def test_one_compilation(f):
    sequence(lambda x: x * 2 + 1, f(), 1)


@each(
    dtype=lambda: [(randn(3),), (randn(3).double(),), (randn(3).bfloat16(),)],
    rank=lambda: [(randn(3),), (randn(3, 4),), (randn(3, 4, 5),)],
    gradient=lambda: [(randn(3),), (randn(3).requires_grad_(),), (randn(3),), (randn(3).double(),)],
    flag=lambda: [(randn(3), True), (randn(3), False), (randn(3), None)],
    text=lambda: [(randn(3), "a"), (randn(3), "b"), (randn(3), "a"), (randn(3), "c")],
    layout=lambda: [(randn(4, 4),), (randn(4, 4).t(),), (randn(8, 4)[::2],)],
)
def test_three_compilations(f):
    def g(x, flag=True):
        return x * 2 if flag else x + 1

    sequence(g, f(), 3, dynamic=False)


def test_the_limit_of_compilations_runs_eagerly():
    with torch._dynamo.config.patch(recompile_limit=3):
        fast, counter = counted(lambda x, n: x * 2 + len(n), fullgraph=False, dynamic=False)
        for length in range(6):
            same(fast(torch.ones(2), "a" * length), torch.full((2,), 2.0 + length))
    assert counter.frame_count == 3


def test_a_changed_module_is_compiled_again():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    fast, counter = counted(model)
    x = randn(2, 3)
    same(fast(x), model(x))
    model[1] = nn.Tanh()
    same(fast(x), model(x))
    model.append(nn.Linear(3, 1))
    same(fast(x), model(x))
    assert counter.frame_count == 3


def test_a_changed_attribute_is_compiled_again():
    class Scale(nn.Module):
        factor = 2

        def forward(self, x):
            return x * self.factor

    model = Scale()
    fast, counter = counted(model, dynamic=False)
    for factor, compilations in ((2, 1), (3, 2), (2, 2)):
        model.factor = factor
        same(fast(torch.ones(2)), torch.full((2,), float(factor)))
        assert counter.frame_count == compilations


def test_train_and_eval_are_compiled_apart():
    model = nn.BatchNorm1d(3)
    fast, counter = counted(model)
    for mode in (True, False, True, False):
        model.train(mode)
        fast(randn(4, 3))
    assert counter.frame_count == 2


def test_modes_of_autograd_are_compiled_apart():
    model = nn.Linear(3, 3)
    fast, counter = counted(model)
    x = randn(2, 3)
    for _ in range(2):
        same(fast(x), model(x))
        with torch.no_grad():
            same(fast(x), model(x))
    assert counter.frame_count == 2


def test_threads_of_autocast_are_compiled_apart():
    fast, counter = counted(lambda x: x @ x)
    x = randn(3, 3)
    for _ in range(2):
        assert fast(x).dtype == torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert fast(x).dtype == torch.bfloat16
    assert counter.frame_count == 2


def test_arguments_that_become_one_are_compiled_again():
    def f(x, y):
        x.add_(1)
        return x * y

    fast, counter = counted(f)
    for make in (lambda: (torch.ones(2), torch.ones(2)), lambda: (torch.ones(2),) * 2, lambda: (torch.ones(2), torch.ones(2))):
        same(fast(*make()), f(*make()))
    assert counter.frame_count == 2


def test_a_list_of_another_length_is_compiled_again():
    sequence(lambda xs: sum(xs), [([randn(2)] * n,) for n in (2, 3, 2)], 2)


def test_keys_of_a_dictionary_are_guarded():
    sequence(lambda d: {name: value * 2 for name, value in d.items()}, [({"a": randn(2)},), ({"b": randn(2)},), ({"a": randn(2)},)], 2)


def test_reset_forgets():
    fast, counter = counted(lambda x: x + 1)
    fast(randn(3))
    torch._dynamo.reset()
    fast(randn(3))
    assert counter.frame_count == 2


def test_two_functions_are_compiled_apart():
    first, one = counted(lambda x: x + 1)
    second, other = counted(lambda x: x + 2)
    same(first(torch.zeros(2)), torch.ones(2))
    same(second(torch.zeros(2)), torch.full((2,), 2.0))
    same(first(torch.zeros(2)), torch.ones(2))
    assert one.frame_count == other.frame_count == 1


def test_one_function_compiled_twice():
    def f(x):
        return x * 3

    first, _ = counted(f)
    second, _ = counted(f, dynamic=True)
    for rows in (2, 3, 4):
        x = randn(rows)
        same(first(x), second(x))


def test_layers_of_one_class_share_code():
    class Layer(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.factor = factor

        def forward(self, x):
            return self.linear(x) * self.factor

    layers = [Layer(1.0), Layer(1.0), Layer(2.0)]
    x = randn(2, 3)
    for layer in layers:
        fast, _ = counted(layer)
        same(fast(x), layer(x))


def test_an_error_leaves_the_function_usable():
    fast, _ = counted(lambda x, y: x + y)
    same(fast(torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(Exception, match="(?i)size|shape|broadcast"):
        fast(torch.ones(2), torch.ones(3))
    same(fast(torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))


def test_error_on_recompile_holds_for_dynamic_sizes():
    fast, _ = counted(lambda x: x.sum(0) * 2, dynamic=True)
    fast(randn(4, 3))
    with torch._dynamo.config.patch(error_on_recompile=True):
        for rows in (5, 9, 31):
            x = randn(rows, 3)
            same(fast(x), x.sum(0) * 2)
