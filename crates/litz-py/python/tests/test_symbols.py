"""Numbers that a graph makes of sizes, and of what elements are: as values, as sizes, as conditions, in graphs inside of the graph."""

import math

import pytest
import torch
import torch.nn.functional as F
from checks import check, compiled, each, needs_litz, same, shapes
from torch import cond, randn
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan, while_loop

pytestmark = pytest.mark.usefixtures("captures_data")


@pytest.fixture
def captures_data():
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


def two(gradients=False):
    return [(randn(rows, columns).requires_grad_(gradients),) for rows, columns in ((4, 6), (9, 5))]


@each(
    factor=lambda x: x * (x.shape[0] > 5),
    terms=lambda x: x * (x.shape[0] > 5) + (x.shape[1] == x.shape[0]),
    both=lambda x: x * ((x.shape[0] > 5) & (x.shape[1] > 3)),
    either=lambda x: x * ((x.shape[0] > 50) | (x.shape[1] > 5)),
    negated=lambda x: x * (not (x.shape[0] > 5)),
    tensor=lambda x: x * torch.tensor(x.shape[0] > 5),
    full=lambda x: torch.full((2,), x.shape[0] > 5),
    where=lambda x: torch.where(torch.tensor(x.shape[0] > 5), x, -x),
    of_integers=lambda x: x.long() * (x.shape[0] > 5),
    of_truth_values=lambda x: (x > 0) & (x.shape[0] > 5),
    of_a_quotient=lambda x: x * (x.shape[0] / 3 > 1.7),
    of_a_root=lambda x: x + (x.shape[0] ** 0.5 < 2.5),
    returned=lambda x: (x + 1, x.shape[0] > 5),
)
def test_conditions_on_sizes(f):
    shapes(f, *two(), dynamic=True)


@each(
    truncated=lambda x: x.new_zeros(int(x.shape[0] * 1.1)),
    half=lambda x: x.new_zeros(int(x.shape[0] * 0.5) + 1),
    rounded=lambda x: x.new_zeros(round(x.shape[0] * 1.3)),
    rounded_halves=lambda x: x * round(x.shape[0] / 2) + round(x.shape[0] * 0.25, 1),
    rounded_to_digits=lambda x: x * round(x.shape[0] / 7, 2),
    ceiling=lambda x: x.new_zeros(math.ceil(x.shape[0] * 1.3)),
    floor=lambda x: x.new_zeros(math.floor(x.shape[0] / 1.3)),
    root=lambda x: x.new_zeros(math.trunc(x.shape[0] ** 0.5)),
    root_of_a_product=lambda x: x.new_zeros(int(math.sqrt(x.shape[0] * x.shape[1]))),
    quotient=lambda x: x.new_zeros(int(x.shape[0] / x.shape[1]) + 2),
    power=lambda x: x * (2 ** x.shape[0]) + (x.shape[0] ** x.shape[1] % 7),
    left_shift=lambda x: x.new_zeros((1 << (x.shape[0] % 5)) + (x.shape[0] << 2)),
    right_shift=lambda x: x.new_zeros((x.shape[0] >> 1) + (100 >> (x.shape[0] % 5))),
    bits=lambda x: x.new_zeros((x.shape[0] & 7) + (x.shape[0] | 3) + (x.shape[0] ^ 5)),
    remainder=lambda x: x * ((-x.shape[0]) % 4) + (x.shape[0] % -4) + (-x.shape[0]) // 4,
    remainder_of_floats=lambda x: x * ((x.shape[0] / 3) % 1.5) + (x.shape[0] / 3) // 1.5,
    larger=lambda x: x.new_zeros(int(max(x.shape[0] * 1.3, 7.5))),
    magnitude=lambda x: x.new_zeros(abs(x.shape[0] - x.shape[1])),
    functions=lambda x: x * math.asin(1 / x.shape[0]) + math.cosh(x.shape[0] / 5) + math.exp(1 / x.shape[0]) + math.log(x.shape[0] / 3),
    sums=lambda x: x.new_zeros(sum([x.shape[0], int(x.shape[0] * 1.1), 2, x.shape[1]])),
    large=lambda x: x * (x.shape[0] * 1e15) + int(x.shape[0] * 1e10) % 7,
    returned=lambda x: (x.shape[0] * 0.5, int(x.shape[0] * 0.5), round(x.shape[0] * 0.7)),
    interpolated=lambda x: F.interpolate(x[None], scale_factor=1.7),
    interpolated_twice=lambda x: F.interpolate(x[None, None], scale_factor=(1.3, 0.6), mode="bilinear"),
    recomputed=lambda x: F.interpolate(x[None, None], scale_factor=1.3, mode="bilinear", recompute_scale_factor=True),
    exponent=lambda x: x.abs() ** (x.shape[0] / 7) + x.abs() ** x.shape[1],
    root_of_infinity=lambda x: (x / 0) ** (x.shape[0] / 8),
    arange=lambda x: torch.arange(0, x.shape[0], 0.7),
)
def test_numbers_of_sizes(f):
    shapes(f, *two(), dynamic=True)


@each(
    values=lambda x: (x * (x.shape[0] / 3)).sin() * (x.shape[0] > 5),
    sizes=lambda x: F.interpolate(x[None], scale_factor=1.7).sin(),
    rounded=lambda x: x.sum().sin() + x.new_zeros(round(x.shape[0] * 1.3)),
    root=lambda x: (x / math.sqrt(x.shape[0])).sin() * int(x.shape[0] ** 0.5),
    pooled=lambda x: F.adaptive_avg_pool2d(x[None], (x.shape[0] // 2, int(x.shape[1] * 0.5))).sin(),
    branches=lambda x: cond(x.shape[0] > 5, lambda x: x.sin(), lambda x: x.cos(), (x,)),
    in_branches=lambda x: cond(x.sum() > 0, lambda x: x.sin() * x.shape[0], lambda x: x.cos() * (x.shape[1] / 3), (x,)),
    element=lambda x: x.sin() * x.detach().max().item(),
)
def test_gradients_with_numbers_of_sizes(f):
    shapes(f, *two(gradients=True), gradients=True, dynamic=True)


def is_positive(x):
    torch._check(x.max().item() > -100.5)
    return x * 2


def as_size(x):
    size = int(x.abs().max().item() * 3)
    torch._check(size >= 0)
    torch._check(size < 1000)
    return x.new_zeros(size)


@each(
    branch=lambda x: cond(x.max().item() > 1, lambda x: x * 2, lambda x: x * 3, (x,)),
    factor=lambda x: x * (x.max().item() > 1),
    arithmetic=lambda x: x * (x.max().item() * 2 + 1) / 3,
    checked=is_positive,
    truncated=lambda x: x * int(x.max().item()) + math.floor(x.min().item()),
    size=as_size,
    root=lambda x: x * math.sqrt(x.abs().max().item()),
    returned=lambda x: (x.max().item() * 2, x + 1),
    truth=lambda x: x * (x.max() > 1).item(),
    branch_on_truth=lambda x: cond((x.max() > 1).item(), lambda x: x * 2, lambda x: x * 3, (x,)),
    count=lambda x: cond((x > 0).sum().item() > 2, lambda x: x * 2, lambda x: x * 3, (x,)),
)
def test_elements_as_numbers(f):
    shapes(f, (randn(4, 6).abs() + 1.5,), (-randn(9, 5).abs(),), dynamic=True, most=1)


def parts(x, n):
    return torch.split(x, n.tolist())


def are_equal(x, n):
    first, second = n[0].item(), n[2].item()
    torch._check(first == second)
    return torch.ones(first) + torch.ones(second)


def twelve(x, n):
    """PyTorch calls the ninth of such sizes `u8`, as texts do a type."""
    sizes = [n[at % 3].item() for at in range(12)]
    return torch.cat([torch.full((size,), float(at)) for at, size in enumerate(sizes)]), x * sizes[8] + sizes[9]


def in_ranges(x, n):
    size = n[0].item()
    torch._check((size == 2) | (size > 2))
    torch._check(size % 2 == 0)
    return torch.ones(size).view(-1, 2) * n[1].item()


def quotient_as_size(x, n):
    size = n[0].item() // n[1].item()
    torch._check(size >= 0)
    return x.new_zeros(size)


@each(
    quotient=lambda x, n: x * (n[0].item() / n[1].item()),
    whole_quotient=lambda x, n: x * (n[0].item() // n[1].item()),
    remainder=lambda x, n: x * (n[0].item() % n[1].item()),
    size=quotient_as_size,
)
def test_divisions_by_an_element_that_is_zero(f):
    fast = compiled(f)
    for divisor in (2, 0, 3):
        x, n = randn(3), torch.tensor([7, divisor])
        if divisor:
            same(fast(x, n), f(x, n))
        else:
            with pytest.raises((ZeroDivisionError, RuntimeError)):
                fast(x, n)


@each(
    parts=parts,
    sums_of_parts=lambda x, n: [part.sum(0) * 2 for part in parts(x, n)],
    joined_parts=lambda x, n: torch.cat([part * at for at, part in enumerate(parts(x, n))]),
    columns=lambda x, n: [part * 2 for part in x.t().split(n.tolist(), 1)],
    equal=are_equal,
    twelve=twelve,
    in_ranges=in_ranges,
    bits=lambda x, n: x * (n[0].item() << 2) + (n[1].item() & 3) + (n[1].item() ^ 5),
    extremes=lambda x, n: x * max(n[0].item(), n[1].item()) + min(n[0].item(), 5),
    quotients=lambda x, n: x * (n[0].item() / n[1].item()) + n[0].item() // n[1].item() + n[0].item() % 3,
    magnitude=lambda x, n: x * abs(n[0].item() - 7),
    steps=lambda x, n: x * torch.arange(0, n[0].item() * 4, n[0].item()).sum(),
    narrowed=lambda x, n: F.pad(x, (0, n[0].item())),
    repeated=lambda x, n: x.repeat(n[0].item(), 1),
)
def test_integers_of_elements(f):
    calls = [(randn(rows, 2), torch.tensor(sizes)) for rows, sizes in ((9, [2, 5, 2]), (13, [4, 5, 4]))]
    shapes(f, *calls, dynamic=True, most=1)


def test_gradients_of_parts():
    f = lambda x, n: torch.cat([part.sin() * (at + 1) for at, part in enumerate(parts(x, n))])
    calls = [(randn(sum(sizes), 2).requires_grad_(), torch.tensor(sizes)) for sizes in ([1, 3], [2, 6])]
    shapes(f, *calls, gradients=True, dynamic=True)


@each(
    predicate=lambda x: cond(x.shape[0] > 5, lambda x: x + 1, lambda x: x - 1, (x,)),
    inner_predicate=lambda x: cond(
        x.sum() > 0, lambda x: cond(x.shape[0] > 5, lambda x: x * 2, lambda x: x * 3, (x,)), lambda x: x + 1, (x,)
    ),
    values=lambda x: cond(x.sum() > 0, lambda x: x * (x.shape[0] / 3), lambda x: x + (x.shape[1] > 5), (x,)),
    sizes=lambda x: cond(x.sum() > 0, lambda x: torch.zeros(x.shape[0] * 2), lambda x: torch.ones(2 * x.shape[0]), (x,)),
    sizes_of_floats=lambda x: cond(x.sum() > 0, lambda x: x.new_zeros(int(x.shape[0] * 1.3)), lambda x: x.new_ones(int(x.shape[0] * 1.3)), (x,)),
    row=lambda x: map_rows(lambda row: row * row.shape[0] + (row.shape[0] > 5), x),
    branch_of_row=lambda x: map_rows(lambda row: cond(row.sum() > 0, lambda row: row * row.shape[0], lambda row: row - 1, (row,)), x),
    rows=lambda x: scan(lambda sum, row: (sum + row / row.shape[0], sum * (x.shape[0] > 5)), torch.zeros(x.shape[1]), x),
    loop=lambda x: while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * 2 + x.new_ones(int(x.shape[0] * 1.3))), (torch.tensor(0), x.new_ones(int(x.shape[0] * 1.3)))
    ),
)
def test_sizes_in_graphs_inside(f):
    shapes(f, *two(), dynamic=True, most=1)


@each(
    places=lambda x: cond(x.sum() > 7, lambda x: x.nonzero().sum(), lambda x: x.nonzero().sum() * 2, (x,)),
    places_returned=lambda x: cond(x.sum() > 7, lambda x: x.nonzero() * 1, lambda x: (x == 0).nonzero() * 2, (x,)),
    selected=lambda x: cond(x.sum() > 7, lambda x: x[x > 1].sum(), lambda x: x[x > 2].sum() * 2, (x,)),
    selected_returned=lambda x: cond(x.sum() > 7, lambda x: x[x > 1], lambda x: x[x > 2] * 2, (x,)) + 1,
    count=lambda x: cond(x.sum() > 7, lambda x: x * x[x > 1].shape[0], lambda x: x - x[x > 1].shape[0], (x,)),
    element=lambda x: cond(x.sum() > 7, lambda x: x * x.max().item(), lambda x: x - x.argmin().item(), (x,)),
    nested=lambda x: cond(
        x.sum() > 5,
        lambda x: cond(x.max() > 2, lambda x: x[x > 1].sum(), lambda x: x[x > 0].sum(), (x,)),
        lambda x: x.nonzero().sum() * 1.0,
        (x,),
    ),
    here_and_there=lambda x: cond(x.sum() > 5, lambda x: x[x > 1].sum() + x[x > 2].sum(), lambda x: x.sum(), (x,)) + x[x > 0].sum(),
    of_selected=lambda x: (lambda y: cond(y.sum() > 5, lambda y: y * y.shape[0], lambda y: y - 1, (y,)))(x[x > 0]),
    rows=lambda x: map_rows(lambda row: row.nonzero().sum(), torch.stack([x, x * 2])),
    as_long_as=lambda x: while_loop(
        lambda i, x: x.nonzero().shape[0] > 2, lambda i, x: (i + 1, torch.where(torch.arange(x.shape[0]) < i, 0, x)), (torch.tensor(0), x)
    ),
)
def test_sizes_that_data_decides_in_graphs_inside(f):
    shapes(f, *((torch.tensor(x),) for x in ([1.0, 0, 2, 0, 3], [0.0, 0, 2, 0, 3, 4], [0.0, 1, 0, 0])), dynamic=True, most=1)


@torch.compiler.nested_compile_region
def selected_of(x):
    return x[x > 1] * 2


@torch.compiler.nested_compile_region
def places_of(x):
    return x.nonzero().sum() + x.sum().long()


@torch.compiler.nested_compile_region
def scaled(x):
    return x.sum(0) * x.max().item() * (x.shape[0] > 5) + x.shape[0] / 3


@each(
    inside=lambda x: places_of(x) + places_of(x + 1),
    returned=lambda x: selected_of(x).sum() + selected_of(x + 1).sum(),
    numbers=lambda x: scaled(x) + scaled(x * 2),
    of_parts=lambda x: scaled(x) + scaled(x[1:]),
)
def test_regions_that_are_called_twice(f):
    shapes(f, (torch.tensor([1.0, 0, 2, 0, 3]),), (torch.tensor([0.0, 0, 2, 0, 3, 4]),), dynamic=True, most=1)


@each(
    offset=lambda x: x[1:].as_strided((2, 2), (1, 2), x.shape[1] + 1) * 2,
    from_the_view=lambda x: x[1:].as_strided((2, 2), (1, 2)) * 2,
    rows=lambda x: x.as_strided((x.shape[0] - 1, 2), (x.shape[1], 1), x.shape[1]),
    empty=lambda x: torch.empty_strided((x.shape[0], 3), (x.shape[1], 1)).fill_(1.0),
    offset_as_a_number=lambda x: x[1:] * x[1:].storage_offset(),
)
def test_offsets_of_sizes(f):
    shapes(f, *two(), dynamic=True, most=1)


@each(
    values=lambda x: (x * 2, x * x.stride(0), x.stride(0)),
    views=lambda x: (x[1:], x.t(), x.sum(0)),
    changed=lambda x: x.mul_(2)[1:],
    expanded=lambda x: x.unsqueeze(0).expand(2, -1, -1) * 2,
)
def test_rows_with_gaps_of_any_size(f):
    shapes(f, (randn(8, 12)[:, :6],), (randn(9, 11)[:, 2:9],), dynamic=True)


def padded_and_repeated(x):
    padded = F.pad(x[x.shape[0] // 2 :], (1, 0))
    return padded.repeat(2, 2, 2), padded[...].sin_()


@each(
    columns=lambda x: x[1::3][..., 0].logsumexp((0, -1)),
    halves=padded_and_repeated,
)
def test_sizes_that_a_backward_graph_is_given_as_other_numbers(f):
    """Which are strides of a tensor, too, or follow from a number in the place of theirs."""
    fast = compiled(f, dynamic=True)
    for sizes in ((4, 4, 4), (6, 3, 3), (2, 2, 2), (3, 5, 5)):
        one, other = (randn(sizes, generator=torch.Generator().manual_seed(3)).requires_grad_() for _ in range(2))
        for call, x in ((fast, one), (f, other)):
            results = call(x)
            sum(result.square().sum() for result in (results if isinstance(results, tuple) else (results,))).backward()
        same(one.grad, other.grad)


@pytest.mark.eager_graphs("the memory of an input whose strides no size gives")
@each(
    whole=lambda x: x.as_strided((2, 3), (x.stride(0), 1)) + 1,
    view=lambda x: x[1:].as_strided((2, 2), (x.stride(0), 1)) * 2,
)
def test_memory_of_rows_with_gaps(f):
    """Calls copy such an input to rows without gaps, which is not the memory that the caller speaks of."""
    shapes(f, (randn(8, 12)[:, :6],), (randn(9, 11)[:, 2:9],), dynamic=True)


@each(
    pointwise=lambda x: (x.sin() + x * x.shape[0]).values(),
    linear=lambda x: F.linear(x, torch.ones(5, 3)).values(),
    softmax=lambda x: x.softmax(-1).values(),
    norm=lambda x: F.layer_norm(x, (3,)).values(),
    sum=lambda x: (x.sum(), x.sum(1)),
    offsets=lambda x: (x * 2).values().sum(0) + x.offsets().sum(),
    joined=lambda x: torch.cat([x, x], -1).values(),
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_jagged_rows(f, dynamic):
    fast = compiled(f, dynamic=dynamic)
    for lengths in ((2, 3), (4, 1, 2), (1, 5)):
        x = torch.nested.nested_tensor([randn(length, 3) for length in lengths], layout=torch.jagged)
        same(fast(x), f(x))


@each(
    unfolded=lambda x: (y := x * abs(x.detach().amax().item())) is not None and [y, y.unfold(0, 2, 1)],
    flat=lambda x: (y := x * max(x.detach().amax().item(), 2)) is not None and [y, y.flatten(), y.flatten()[1:]],
    split=lambda x: (y := x - abs(x.amin().item())) is not None and [y.unbind(-1)[0], y],
)
def test_views_of_products_with_elements_share_memory(f):
    check(f, randn(4, 3))


LARGE = 2**62


@needs_litz
@each(
    of_data=lambda x, n: x - (n.amax().item() * 2 + 1),
    of_two=lambda x, n: x * (n.amax().item() * n.amin().item()),
    in_a_branch=lambda x, n: torch.cond(x.sum() < 1e9, lambda x, m: x + (m.amax() * 1).item() * 3, lambda x, m: x * 2, (x, n)),
    filled=lambda x, n: torch.full((3,), n.amax().item() + n.amin().item(), dtype=torch.float64),
)
@pytest.mark.parametrize("values", [(5, 7), (LARGE + 5, 2), (LARGE - 5, 1), (-5, -7)], ids=["small", "beyond", "within", "negative"])
def test_integers_have_any_size_in_python(f, values):
    """Texts have integers of 64 bits: PyTorch makes calls that need others."""
    fast = compiled(f)
    for given in ((1, 2), values):
        x, n = torch.linspace(-1, 1, 3, dtype=torch.float64), torch.tensor(given)
        same(fast(x, n), f(x, n))


@needs_litz
def test_integers_of_callers_have_any_size():
    f = lambda x, n: x * (n * 2 + 1)
    fast = compiled(f, dynamic=True)
    for n in (5, 7, LARGE + 1, LARGE - 1, -9):
        x = torch.linspace(-1, 1, 3, dtype=torch.float64)
        same(fast(x, n), f(x, n))
