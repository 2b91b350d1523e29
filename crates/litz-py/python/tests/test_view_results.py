"""Functions that end in a view of what they compute: results and gradients are eager mode's, for batches of none, one and two."""

import pytest
import torch
import torch.nn.functional as F
from checks import check, compiled, each, needs_litz, same
from torch import randn

VIEWS = {
    "itself": lambda y: y,
    "flatten": lambda y: y.flatten(2),
    "tokens": lambda y: y.flatten(2).permute(0, 2, 1),
    "pixels": lambda y: y.permute(0, 2, 3, 1),
    "columns": lambda y: y.permute(0, 3, 2, 1),
    "channels_first": lambda y: y.movedim(1, 0),
    "rows": lambda y: y.view(y.shape[0], 16),
    "heads": lambda y: y.view(y.shape[0], 2, 2, 2, 2).transpose(1, 3),
    "transposed": lambda y: y.mT,
    "outer": lambda y: y.unsqueeze(0).transpose(0, 2),
    "squeezed": lambda y: y[:, :1].squeeze(),
    "of_a_batch": lambda y: y.squeeze(0),
    "narrow": lambda y: y.narrow(1, 1, 2),
    "steps": lambda y: y[..., ::2],
    "select": lambda y: y.select(1, 2),
    "expanded": lambda y: y.unsqueeze(1).expand(-1, 3, -1, -1, -1),
    "windows": lambda y: y.unfold(3, 2, 1),
    "diagonal": lambda y: y.diagonal(0, 2, 3),
    "chunks": lambda y: y.chunk(2, 1),
    "parts": lambda y: y.unbind(3),
    "twice": lambda y: (y.flatten(2), y.permute(0, 2, 3, 1)),
    "beside": lambda y: (y, y.flatten(1)[:, 3:]),
}

each_view = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())


@each_view
@each(
    pointwise=lambda x, w: x.sin() * w.view(4, 2, 2),
    convolution=lambda x, w: F.conv2d(x, w),
    norm=lambda x, w: F.layer_norm(x, x.shape[1:], w.view(4, 2, 2)),
)
def test_views_of_what_is_computed(f, view):
    for rows in (0, 1, 2):
        torch._dynamo.reset()
        check(lambda x, w: view(f(x, w)), randn(rows, 4, 2, 2), randn(4, 4, 1, 1), calls=1, gradients=True)


@each_view
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
@each(
    argument=lambda x: x,
    overwritten=lambda x: x.mul_(2),
)
def test_views_of_arguments(f, view, dynamic):
    for rows in (0, 1, 2):
        torch._dynamo.reset()
        check(lambda x: view(f(x)), randn(rows, 4, 2, 2), calls=1, dynamic=dynamic)


@each_view
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
def test_gradients_of_views_of_arguments(view, dynamic):
    for rows in (0, 1, 2):
        torch._dynamo.reset()
        check(lambda x: (view(x), x.sum()), randn(rows, 4, 2, 2), calls=1, gradients=True, dynamic=dynamic)


# Where elements are, by a size `n` that is another tensor's.
PLACES = {
    "all": lambda x, n: x,
    "expanded": lambda x, n: x[:1].expand(n, x.shape[1]),
    "first": lambda x, n: x[:n],
    "from": lambda x, n: x[n:],
    "columns": lambda x, n: x[:, 4:],
    "windows": lambda x, n: x.as_strided((n, 4), (2, 1)),
}


@needs_litz
@pytest.mark.eager_graphs("a view of an argument as a type of another size", "elements behind the last one of a tensor", "error.unsupported.: aten.as_strided")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.complex64], ids=str)
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
@each(
    argument=lambda x: x,
    result=lambda x: x * 2,
)
def test_elements_as_another_type(f, dynamic, dtype, place):
    """AOTAutograd makes views of arguments anew, and takes sizes of one type for those of the other where they are symbols."""
    view = lambda x, y: (PLACES[place](f(x), y.shape[0]).view(dtype), y + 1)
    fast = compiled(view, dynamic=dynamic)
    for rows, columns, n in [(4, 8, 2), (5, 12, 3), (5, 12, 2), (4, 8, 3)]:
        x, y = torch.linspace(-2, 2, rows * columns).view(rows, columns), randn(n)
        same(fast(x, y), view(x, y))


def normalized(x, w, b):
    """Batch normalisation by its formula."""
    centred = x - x.mean((0, 2, 3), keepdim=True)
    return centred * (centred.square().mean((0, 2, 3), keepdim=True) + 1e-5).rsqrt() * w.view(1, -1, 1, 1) + b.view(1, -1, 1, 1)


def norm_gradients(f, view, dtype, rows):
    leaves = [torch.linspace(-1, 1, size).sin().to(dtype) for size in (rows * 16, 4, 4)]
    x, w, b = (leaf.requires_grad_() for leaf in leaves)
    results = torch.utils._pytree.tree_leaves(view(f(x.view(rows, 4, 2, 2).cos(), w, b)))
    torch.autograd.backward(results, [torch.linspace(-1, 2, result.numel()).view(result.shape).cos().to(dtype) for result in results])
    return [x.grad, w.grad, b.grad]


# Views behind which PyTorch's kernel, in eager mode, gives wrong gradients for a batch of one: `docs/limits.md`.
WRONG = ["tokens"]


def batch_norm(x, w, b):
    return F.batch_norm(x, None, None, w, b, True)


@each_view
def test_views_of_batch_norm(view):
    for rows in (1, 2):
        torch._dynamo.reset()
        found = norm_gradients(compiled(lambda x, w, b: view(batch_norm(x, w, b))), lambda y: y, torch.float32, rows)
        for one, best in zip(found, norm_gradients(normalized, view, torch.float64, rows)):
            torch.testing.assert_close(one, best.float(), rtol=1e-4, atol=1e-5)


def test_what_eager_mode_gets_wrong():
    """This fails where PyTorch has mended it: then `docs/limits.md` has a line too many."""
    is_wrong = lambda view: any(
        not torch.allclose(one, best, atol=1e-5)
        for one, best in zip(*(norm_gradients(f, view, torch.float64, 1) for f in (batch_norm, normalized)))
    )
    assert [name for name, view in VIEWS.items() if is_wrong(view)] == WRONG
