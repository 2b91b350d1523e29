"""Views are views: results that alias arguments or each other do so after compilation too."""

import pytest
import torch
from checks import BACKEND, check, compiled, each, needs_litz
from torch import randn

litz = pytest.importorskip("litz") if BACKEND == "litz" else None

VIEWS = {
    "identity": lambda x: x,
    "all": lambda x: x[...],
    "alias": lambda x: torch.ops.aten.alias(x),
    "detach": lambda x: x.detach(),
    "view": lambda x: x.view(6, 4),
    "view_infers_a_size": lambda x: x.view(-1, 2),
    "view_of_more_dimensions": lambda x: x.view(2, 3, 2, 2),
    "view_as": lambda x: x.view_as(torch.empty(4, 6)),
    "reshape": lambda x: x.reshape(4, 6),
    "reshape_that_copies": lambda x: x.transpose(0, 2).reshape(4, 6),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.transpose(0, 2),
    "matrix_transpose": lambda x: x.mT,
    "movedim": lambda x: x.movedim(0, 2),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "squeeze_nothing": lambda x: x.squeeze(),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "expand": lambda x: x.unsqueeze(1).expand(2, 5, 3, 4),
    "expand_keeps_a_size": lambda x: x[:, :, :1].expand(-1, -1, 6),
    "expand_as": lambda x: x[:1].expand_as(torch.empty(7, 3, 4)),
    "broadcast_to": lambda x: torch.broadcast_to(x, (2, 2, 3, 4)),
    "select": lambda x: x.select(1, 2),
    "select_from_the_end": lambda x: x[-1, -2],
    "slice": lambda x: x[:, 1:3],
    "slice_with_a_step": lambda x: x[:, :, ::2],
    "slice_beyond_the_end": lambda x: x[:, 1:100],
    "slice_of_nothing": lambda x: x[:, 2:2],
    "narrow": lambda x: x.narrow(2, 1, 2),
    "diagonal": lambda x: x.diagonal(dim1=1, dim2=2),
    "diagonal_below": lambda x: x.diagonal(-1, 1, 2),
    "diagonal_above": lambda x: x.diagonal(2, 1, 2),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "unfold_with_a_step": lambda x: x.unfold(2, 2, 2),
    "as_strided": lambda x: x.as_strided((3, 2), (2, 5), 3),
    "as_strided_overlaps": lambda x: x.as_strided((4, 3), (1, 1)),
    "chunk": lambda x: x.chunk(2, 2)[1],
    "split": lambda x: x.split([1, 3], 2)[1],
    "tensor_split": lambda x: x.tensor_split((1, 2), 1)[2],
    "unbind": lambda x: x.unbind(1)[2],
    "hsplit": lambda x: x.hsplit(3)[0],
    "flip_copies": lambda x: x.flip(0, 2),
    "roll_copies": lambda x: x.roll((1, -2), (0, 2)),
    "rot90_copies": lambda x: x.rot90(1, (1, 2)),
    "tile_copies": lambda x: x.tile(2, 1, 3),
    "repeat_copies": lambda x: x.repeat(2, 1, 1, 2),
    "clone_copies": lambda x: x.clone(),
    "contiguous_of_a_transposed_copies": lambda x: x.mT.contiguous(),
    "contiguous_of_a_contiguous": lambda x: x.contiguous(),
    "to_its_own_type": lambda x: x.to(torch.float32),
    "several_views": lambda x: x.transpose(0, 1)[1:].unsqueeze(0).select(2, 1).mT,
}


@each(**VIEWS)
def test_view_beside_its_base(f):
    def both(x):
        base = x.exp()
        return f(x), base, f(base)

    check(both, randn(2, 3, 4))


# Those whose numbers would be of one size alone.
SIZED = ("view", "view_infers_a_size", "view_of_more_dimensions", "view_as", "reshape", "reshape_that_copies", "expand", "as_strided", "slice_of_nothing", "tensor_split", "split", "unflatten", "hsplit", "unbind", "expand_as", "broadcast_to")


@each(**{name: f for name, f in VIEWS.items() if name not in SIZED})
def test_view_of_a_size_that_is_not_known(f):
    def both(x):
        base = x.exp()
        return f(x), base, f(base)

    check(both, randn(4, 3, 6), dynamic=True)
    if f is not VIEWS["expand_keeps_a_size"]:
        check(both, randn(3, 1, 6).expand(3, 4, 6), dynamic=True)


@each(**{name: f for name, f in VIEWS.items() if name not in ("identity", "alias", "detach")})
def test_view_between_operators(f):
    check(lambda x: f(x.sin()) * 2, randn(2, 3, 4), gradients=True)


@each(
    bool=lambda x: x.view(torch.bool),
    int8=lambda x: x.view(torch.int8),
    int32=lambda x: x.view(torch.int32),
    float16=lambda x: x.view(torch.float16),
    int64=lambda x: x.view(torch.int64),
    rounded=lambda x: (x.view(torch.int32) & -65536).view(torch.float32),
    of_an_intermediate=lambda x: (x * 2).view(torch.int32) + 1,
    of_a_slice=lambda x: x[1].view(torch.int32) >> 3,
)
def test_view_as_another_type(f):
    check(f, randn(4, 6), reference=False, exact=True)


def test_view_of_one_element_as_another_type():
    check(lambda x: x.unsqueeze(-1).view(torch.int16).add_(1), randn(4, 2), reference=False, exact=True)


@each(
    wider=lambda x: x.view(torch.int64),
    narrower=lambda x: x.view(torch.int16),
    of_a_slice=lambda x: x[1:, 2:].view(torch.int64),
    transposed=lambda x: x.view(torch.int32).t(),
    rows=lambda x: x.view(torch.uint8)[1],
    and_back=lambda x: x.view(torch.int16)[:, 2:].view(torch.float32),
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_returned_views_as_another_type(f, dynamic):
    def both(x):
        base = x.abs()
        return f(x), base, f(base)

    check(both, randn(4, 6), reference=False, exact=True, dynamic=dynamic)


@each(
    real=lambda x: x.real,
    imag=lambda x: x.imag,
    view_as_real=torch.view_as_real,
    conj=lambda x: x.conj(),
    conj_of_transposed=lambda x: x.mH,
    real_of_product=lambda x: (x * x).real,
)
def test_view_of_complex(f):
    check(f, randn(3, 4, dtype=torch.complex64))


def test_view_as_complex():
    check(torch.view_as_complex, randn(3, 2))


@each(
    an_argument_twice=lambda x: (x, x),
    a_result_twice=lambda x: (lambda y: (y, y))(x + 1),
    a_result_and_its_transposed=lambda x: (lambda y: (y, y.t()))(x + 1),
    rows=lambda x: (x + 1).unbind(0),
    rows_of_an_argument=lambda x: x.unbind(0),
    halves_that_overlap=lambda x: (lambda y: (y[:3], y[2:]))(x + 1),
    views_of_views=lambda x: (lambda y: (y.t(), y.t()[1:], y.t()[1:].t()))(x * 3),
    an_argument_and_a_copy=lambda x: (x, x.clone()),
    a_detached_result=lambda x: (lambda y: (y, y.detach()))(x + 1),
    a_sum_beside=lambda x: (lambda y: (y.view(-1), y.sum()))(x + 1),
    view_of_an_argument_and_a_result=lambda x: (x[1], x.view(-1), x * 2),
    nested=lambda x: {"rows": [x[0], x[1]], "all": (x,)},
    expanded=lambda x: (lambda y: (y, y.expand(3, 4, 5)))(x + 1),
)
def test_several_results(f):
    check(f, randn(4, 5))


@each(
    one=lambda x: x[1:],
    of_an_intermediate=lambda x: (x + 1)[1:],
    beside_its_base=lambda x: (lambda y: (y, y[1:]))(x + 1),
    two_views=lambda x: (lambda y: (y[1:], y.t()))(x + 1),
    a_view_and_a_value=lambda x: (x.view(-1), x * 2),
)
def test_gradients_of_views(f):
    check(f, randn(4, 5), gradients=True)


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_a_transposed_argument_is_a_view_of_it(needs_gradient):
    """TR-6: `x.t()` is a view of `x`, of which nothing is copied."""
    x = torch.randn(3, 4, requires_grad=needs_gradient)
    y = compiled(lambda x: x.t())(x)
    assert y._base is x and y.data_ptr() == x.data_ptr() and y.stride() == (1, 4) and y.requires_grad is needs_gradient
    with torch.no_grad():
        x.fill_(2)
    assert torch.equal(y, torch.full((4, 3), 2.0)) and y._version == x._version


@needs_litz
def test_a_transposed_argument_takes_no_kernel():
    """TR-6, from inside: the graph has no kernel."""
    (graph,) = litz.explain(lambda x: x.t(), torch.randn(3, 4)).graphs
    assert graph.reason is None and graph.kernels == graph.launches == 0


def test_writing_to_a_result_writes_to_the_argument():
    x = torch.zeros(3, 4)
    compiled(lambda x: x.t()[1])(x).fill_(5)
    assert torch.equal(x, torch.tensor([0.0, 5, 0, 0]).expand(3, 4))


def test_writing_to_a_result_writes_to_the_other():
    def f(x):
        y = x + 1
        return y, y.view(-1)[2:4]

    base, view = compiled(f)(torch.zeros(3, 2))
    view.fill_(7)
    assert torch.equal(base, torch.tensor([[1.0, 1], [7, 7], [1, 1]]))


def test_results_of_two_calls_are_apart():
    f = compiled(lambda x: x + 1)
    first = f(torch.zeros(8))
    second = f(torch.ones(8))
    second.fill_(9)
    assert torch.equal(first, torch.ones(8))


def test_results_that_are_equal_are_apart():
    first, second = compiled(lambda x: (x + 1, x + 1))(torch.zeros(8))
    first.fill_(9)
    assert torch.equal(second, torch.ones(8))


def test_constant_results_of_two_calls_are_apart():
    f = compiled(lambda x: (x + 1, torch.zeros(4)))
    f(torch.zeros(8))[1].fill_(9)
    assert torch.equal(f(torch.zeros(8))[1], torch.zeros(4))


@each(
    slice_scatter=lambda x, y: torch.slice_scatter(x, y[:2], 0, 1, 3),
    select_scatter=lambda x, y: torch.select_scatter(x, y[0], 0, 2),
    diagonal_scatter=lambda x, y: torch.diagonal_scatter(x, y[0]),
    as_strided_scatter=lambda x, y: torch.as_strided_scatter(x, y[:2, :2], (2, 2), (2, 3), 1),
)
def test_views_that_are_written_out_of_place(f):
    check(f, randn(4, 4), randn(4, 4), gradients=True)


@each(
    cat_of_slices=lambda x: torch.cat([x[:, 2:], x[:, :2]], 1),
    stack_of_rows=lambda x: torch.stack([x[2], x[0]]),
    transposed_sum=lambda x: (x.t() + x[:, :4].t().t().t() if x.shape[0] == x.shape[1] else x.t()).contiguous(),
    windows=lambda x: x.unfold(1, 3, 1).sum(-1),
    strided_windows=lambda x: x.as_strided((2, 2, 3), (5, 1, 2)).amax(-1),
    trace=lambda x: x.trace(),
    diagonal_of_product=lambda x: (x @ x.t()).diagonal() * 2,
    diag_embed=lambda x: torch.diag_embed(x),
    interleave=lambda x: torch.stack([x, -x], -1).flatten(1),
    rotate_half=lambda x: torch.cat([-x[..., 3:], x[..., :3]], -1) * x,
    pixel_shuffle=lambda x: torch.pixel_shuffle(x.repeat(2, 2).view(1, 8, 4, 3), 2),
    space_to_depth=lambda x: torch.pixel_unshuffle(x.view(1, 1, 4, 6), 2),
    block_diagonal=lambda x: torch.block_diag(x, x[:2]),
    tril=lambda x: x.tril(-1) + x.triu(1),
    meshgrid=lambda x: torch.meshgrid(x[0], x[1], indexing="ij"),
    atleast_3d=lambda x: torch.atleast_3d(x) + 1,
)
def test_rearrangement(f):
    check(f, randn(4, 6), gradients=True)


@each(
    of_one_result=lambda x: (lambda v: (v, v.real))(x.flip(-2)),
    beside_a_view=lambda x: (lambda v: (v, v[0], v.t()))(x.flip(-2)),
)
def test_results_in_another_layout_share_memory(f):
    check(f, torch.arange(12.0).view(4, 3).transpose(-1, -2))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize(
    "sizes, order",
    [
        ((70, 300), (1, 0)),
        ((33, 40, 270), (1, 0, 2)),
        ((200, 12, 16), (1, 0, 2)),
        ((41, 300, 3, 3), (2, 3, 0, 1)),
        ((41, 3, 3, 300), (0, 3, 1, 2)),
        ((41, 4, 4, 300), (3, 0, 1, 2)),
        ((3, 35, 37), (1, 2, 0)),
    ],
)
def test_copies_in_another_order(sizes, order, dtype, dynamic):
    """Tiles and blocks of copies whose sides lie differently, with rests, and where an axis is short."""
    x = torch.randint(-100, 100, sizes).to(dtype)
    check(lambda x: (x.permute(order).contiguous(), x.permute(order)[..., :3] * 2), x, exact=True, dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.slice_scatter(x[1:3] * 2, 0, 1, 3),
        lambda x: x.slice_scatter(x[:2], 0, 1, 3),
        lambda x: x.select_scatter(x.select(0, 1) + 1, 0, 0),
        lambda x: x.diagonal_scatter(torch.ones(x.diagonal().shape)),
        lambda x: x.slice_scatter(x[1:3] * 2, 0, 1, 3) + 1,
    ],
)
@pytest.mark.parametrize(
    "make",
    [lambda x: x[:7].unfold(0, 4, 1), lambda x: x[:6].as_strided((4, 3), (1, 1)), lambda x: x[:4].expand(4, 4), lambda x: x[:4, None].expand(4, 4), lambda x: x[0].expand(4, 4)],
    ids=["windows", "steps", "rows", "columns", "number"],
)
def test_parts_of_what_shares_memory(make, f, dynamic):
    """PyTorch writes to a copy with the strides of the operand, where other elements than those of the part change."""
    x = make(torch.randn(16, generator=torch.Generator().manual_seed(1)))
    found, wanted = compiled(f, dynamic=dynamic)(x), f(x)
    assert torch.equal(found, wanted) and found.stride() == wanted.stride()
