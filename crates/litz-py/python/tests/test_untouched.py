"""What looks at calls of compiled graphs finds what they must not write to (`untouched.py`)."""

from unittest import mock

import pytest
import torch
from checks import compiled, needs_litz
from torch import randn

import litz.function
import litz.partition
import untouched

pytestmark = needs_litz


def run(f, *args, **keywords):
    x, w = randn(64, 64, requires_grad=True), randn(64, 64, requires_grad=True)
    results = f(x, w, *args)
    torch.autograd.backward([result.sum() for result in results], **keywords)


def layers(x, w):
    return ((x @ w).sin() @ w).sin() @ w, x.square().sum()


@pytest.mark.parametrize("name", ["primals_1", "primals_2", "tangents_1"])
def test_a_wrong_donation(name):
    """An argument of the forward graph, or a gradient that `backward` is given, is donated as well."""
    donated = litz.partition.Pair.donated
    with mock.patch.object(litz.partition.Pair, "donated", lambda pair: donated(pair) | {name}):
        with pytest.raises((AssertionError, torch._dynamo.exc.BackendCompilerFailed), match="that AOTAutograd does not give up"):
            run(compiled(lambda x, w: (x.sin() * w, x.exp())))


def test_a_wrong_donation_in_a_call():
    """The gradient is computed where the argument is."""
    donated = mock.patch.object(litz.partition.Pair, "donated", lambda pair: frozenset(["primals_1"]))
    with donated, mock.patch.object(untouched, "_donated_in_text", lambda function: frozenset()):
        x = randn(64, 7, requires_grad=True)
        with pytest.raises(AssertionError, match="has to leave as they are"):
            compiled(lambda x: x.sin())(x).sum().backward()


def test_a_donation_in_a_call_that_keeps_what_was_saved():
    with mock.patch.object(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: False):
        f = compiled(layers)
        run(f)
    keeps = litz.function.Function._that_keeps
    with mock.patch.object(litz.function.Function, "_that_keeps", lambda function: function.compiled):
        with pytest.raises(AssertionError, match="has to leave as they are"):
            run(f, retain_graph=True)
    assert keeps is litz.function.Function._that_keeps
    run(f, retain_graph=True)


def test_an_update_of_another_argument():
    """A graph that writes to its first argument is called as one that writes to its second."""
    f, functions = compiled(lambda x, y: x.add_(y.sin())), []
    begin = litz.function.Function.__init__
    with mock.patch.object(litz.function.Function, "__init__", lambda *args: functions.append(args[0]) or begin(*args)):
        f(randn(4), randn(4))
    (function,) = functions
    function.writes = frozenset([1]), frozenset()
    with pytest.raises(AssertionError, match="has to leave as they are"):
        f(randn(4), randn(4))


def test_bytes_between_elements():
    """Elements of an argument may be written, and nothing between them."""
    f = compiled(lambda x: x.mul_(2))
    whole = torch.ones(6, 4)
    f(whole[:, :2])
    assert whole.sum() == 36
    call = untouched._call
    spoil = lambda function, args: (whole.fill_(3), call(function, args))[1]
    with mock.patch.object(untouched, "_call", spoil), pytest.raises(AssertionError, match="has to leave as they are"):
        f(whole[:, :2])
