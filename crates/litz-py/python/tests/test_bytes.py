"""Small programs move as many bytes as a formula says: each tensor read once and written once, and nothing between stored.

Counted are the bytes of `litz.explain`. Shapes are `N`, 512 x 384 elements of f32, where nothing else is said; formulas are in bytes.
"""

from dataclasses import dataclass
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from checks import BACKEND, check
from torch import rand, randn

litz = pytest.importorskip("litz") if BACKEND == "litz" else None

pytestmark = pytest.mark.skipif(BACKEND != "litz", reason="is about Litz itself")

ROWS, COLUMNS = 512, 384
# Bytes of a tensor, of a row, which has a number for each column, and of a column.
N, ROW, COLUMN = 4 * ROWS * COLUMNS, 4 * COLUMNS, 4 * ROWS


def tensors(count, *sizes):
    """So many tensors of positive numbers, which have roots and logarithms."""
    return [rand(sizes or (ROWS, COLUMNS)) + 0.5 for _ in range(count)]


@dataclass
class Program:
    """A function, what it is called with, and the bytes that it has to move."""

    f: Callable
    args: list
    formula: int
    # Not compared with a run in double precision: the function chooses by exact values.
    reference: bool = True


def adam(m, v, p, g):
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.01)


def adam_by_copies(m, v, p, g):
    m.copy_(0.9 * m + 0.1 * g)
    v.copy_(0.999 * v + 0.001 * g * g)
    p.copy_(p - 0.01 * m / (v.sqrt() + 1e-8))


def adam_by_slices(m, v, p, g):
    m[:] = 0.9 * m + 0.1 * g
    v[:] = 0.999 * v + 0.001 * g * g
    p[:] = p - 0.01 * m / (v.sqrt() + 1e-8)


def adamw_corrected(m, v, p, g, step):
    step.add_(1)
    p.mul_(1 - 0.01 * 0.1)
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    size, root = 0.01 / (1 - 0.9**step), (1 - 0.999**step).sqrt()
    p.sub_(size * m / (v.sqrt() / root + 1e-8))


def momentum(b, p, g):
    b.mul_(0.9).add_(g)
    p.sub_(b, alpha=0.1)


def adagrad(s, p, g):
    s.addcmul_(g, g)
    p.addcdiv_(g, s.sqrt().add_(1e-8), value=-0.01)


def lion(m, p, g):
    p.add_((0.9 * m + 0.1 * g).sign(), alpha=-0.01)
    m.lerp_(g, 0.01)


def clip(g):
    g.mul_((1 / (g.square().sum().sqrt() + 1e-6)).clamp(max=1))


def copy_back(x):
    y = torch.clone(x)
    x.copy_(y)
    return y


def exchange(a, b):
    old = a.clone()
    a.copy_(b)
    b.copy_(old)


def exchange_transposed(a, b):
    old = a.t().clone()
    a.copy_(b.t())
    b.copy_(old)


def go_round(a, b, c):
    old = a.clone()
    a.copy_(b)
    b.copy_(c)
    c.copy_(old)


def cleared(x):
    old = x.clone()
    x.zero_()
    return old


def cleared_behind_sum(x):
    old = x.clone()
    x.zero_()
    return old.sum(1)


def statistics(x, mean, var):
    mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
    var.mul_(0.9).add_(x.square().mean(0), alpha=0.1)


def shift(a, b):
    a[1:] = b[:-1]
    a[0] = 0


def halves(a, b):
    a[:256] += b[:256]
    a[256:] *= 2


def store_key(cache, k):
    cache[:, 5:6] = k
    return None


def index_copy(a, at, b):
    a.index_copy_(0, at, b)


def raised_diagonal(a):
    a.diagonal().add_(1)


def clamps(a, b, c):
    b.copy_(a.clamp(min=1))
    c.copy_(a.clamp(max=1))


def several(a, b, c):
    a.add_(1)
    b.mul_(2)
    c.sub_(a)


def outer_read_often(a, b):
    t = a[:, None] * b[None, :]
    return t.sum(0), t.sum(1), t.amax(1)


def broadcast_read_often(x, b):
    t = x + b
    return t.sum(1), t.amax(1), t.square().mean(1)


def normalized(x):
    return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)


def residual_norm(x, r):
    s = x + r
    return s, F.layer_norm(s, (COLUMNS,))


def rotated(x, sin, cos):
    half = COLUMNS // 2
    return x * cos + torch.cat([-x[:, half:], x[:, :half]], 1) * sin


def gated(x):
    a, b = x.chunk(2, 1)
    return F.silu(a) * b


def filled_in_halves(a, b):
    out = torch.empty(ROWS, 2 * COLUMNS)
    out[:, :COLUMNS] = a
    out[:, COLUMNS:] = b * 2
    return out


def filled_in_turns(a, b):
    out = torch.zeros(2 * ROWS, COLUMNS)
    out[::2] = a
    out[1::2] = b.exp()
    return out


def filled_row_by_row(x):
    out = torch.zeros(8, COLUMNS)
    for row in range(8):
        out[row] = x[row] * row
    return out


def without_first_column(x):
    out = x.clone()
    out[:, 0] = 0
    return out


def framed(a):
    out = torch.zeros(ROWS + 6, COLUMNS)
    out[3:-3] = a.relu()
    return out


def chunks_of_sums(x):
    out = torch.empty(4, COLUMNS)
    for part in range(4):
        out[part] = x[128 * part : 128 * (part + 1)].sum(0)
    return out


PROGRAMS = {
    # Updates.
    "copy": Program(lambda a, b: a.copy_(b), tensors(2), 2 * N),
    "copy_of_expression": Program(lambda a, b, c: a.copy_(b * 2 + c), tensors(3), 3 * N),
    "slice_of_expression": Program(lambda a, b: a.__setitem__(slice(None), b.exp()), tensors(2), 2 * N),
    "half_of_expression": Program(lambda a, b: a.__setitem__((slice(None), slice(0, 192)), b[:, :192] + 1), tensors(2), N),
    "one_after_another": Program(lambda a, b, c: (a.add_(b), c.mul_(a)), tensors(3), 5 * N),
    "several": Program(several, tensors(3), 6 * N),
    "two_of_one": Program(clamps, tensors(3), 3 * N),
    "adam": Program(adam, tensors(4), 7 * N),
    "adam_by_copies": Program(adam_by_copies, tensors(4), 7 * N),
    "adam_by_slices": Program(adam_by_slices, tensors(4), 7 * N),
    "adamw_corrected": Program(adamw_corrected, [*tensors(4), torch.tensor(3.0)], 7 * N + 8),
    "momentum": Program(momentum, tensors(3), 5 * N),
    "adagrad": Program(adagrad, tensors(3), 5 * N),
    "lion": Program(lion, tensors(3), 5 * N),
    "average_of_weights": Program(lambda e, p: e.lerp_(p, 0.1), tensors(2), 3 * N),
    "list": Program(lambda xs, ys: torch._foreach_add_(xs, ys), [tensors(10), tensors(10)], 30 * N),
    "clipped": Program(clip, tensors(1), 3 * N),
    "copied_back": Program(copy_back, tensors(1), 2 * N),
    "exchanged": Program(exchange, tensors(2), 4 * N),
    "exchanged_transposed": Program(exchange_transposed, [*tensors(1), *tensors(1, COLUMNS, ROWS)], 4 * N),
    "go_round": Program(go_round, tensors(3), 6 * N),
    "cleared": Program(cleared, tensors(1), 3 * N),
    "cleared_behind_sum": Program(cleared_behind_sum, tensors(1), 2 * N + COLUMN),
    "running_statistics": Program(statistics, [*tensors(1), *tensors(2, COLUMNS)], N + 4 * ROW),
    "shifted": Program(shift, tensors(2), 2 * N),
    "halves": Program(halves, tensors(2), 2 * N + N // 2),
    "masked": Program(lambda a, m: a.masked_fill_(m, 0), [*tensors(1), rand(ROWS, COLUMNS) > 0.5], 2 * N + N // 4),
    "chosen": Program(lambda a: a.__setitem__(a < 1, 0), tensors(1), 2 * N, reference=False),
    "key_of_a_cache": Program(store_key, [randn(8, 128, 64), randn(8, 1, 64)], 2 * 8 * 64 * 4),
    "rows_by_index": Program(index_copy, [*tensors(1), torch.arange(0, ROWS, 4), randn(ROWS // 4, COLUMNS)], N // 2 + ROWS // 4 * 8),
    "diagonal": Program(raised_diagonal, [randn(ROWS, ROWS)], 2 * COLUMN),
    "product_added": Program(lambda g, a, b: g.add_(a @ b), [randn(128, 384), randn(128, 64), randn(64, 384)], 4 * (2 * 128 * 384 + 128 * 64 + 64 * 384)),
    # Concatenations.
    "joined": Program(lambda a, b: torch.cat([a + 1, b * 2]), tensors(2), 4 * N),
    "joined_twice": Program(lambda a: torch.cat([a, a], 1), tensors(1), 3 * N),
    "joined_then_mapped": Program(lambda a, b: torch.cat([a, b], 1).relu(), tensors(2), 4 * N),
    "stacked_and_added": Program(lambda a, b, c: torch.stack([a, b, c]).sum(0), tensors(3), 4 * N),
    "joined_rows": Program(lambda a, b: torch.cat([a.softmax(1), b], 1), tensors(2), 4 * N),
    "rotated": Program(rotated, tensors(3), 4 * N),
    "gated": Program(gated, tensors(1), N + N // 2),
    "padded": Program(lambda x: F.pad(x, (1, 1)), tensors(1), 2 * N + 2 * COLUMN),
    # Reductions with pointwise neighbours.
    "softmax": Program(lambda x: (x * 2).softmax(1), tensors(1), 2 * N),
    "residual_norm": Program(residual_norm, tensors(2), 4 * N),
    "sum_of_exponentials": Program(lambda x: x.exp().sum(1).log(), tensors(1), N + COLUMN),
    # More than a cache holds, since what stays there may be read twice. Blocks of 128 rows store their sums, which are read once.
    "rows_and_columns": Program(lambda x: (x.sum(0), x.sum(1)), tensors(1, 4096, 768), 4 * (4096 * 768 + 4096 + 768 + 2 * 32 * 768)),
    "normalized": Program(normalized, tensors(1), 2 * N),
    "divided_by_sum": Program(lambda x: x / x.sum(), tensors(1), 3 * N),
    "two_sums": Program(lambda x: (x.sum(), x.square().sum()), tensors(1), N),
    # Along rows and along columns are two kernels, each of which reads both vectors.
    "outer_read_often": Program(outer_read_often, [randn(ROWS), randn(COLUMNS)], 2 * (ROW + COLUMN) + ROW + 2 * COLUMN),
    "broadcast_read_often": Program(broadcast_read_often, [*tensors(1), *tensors(1, COLUMNS)], N + ROW + 3 * COLUMN),
    # Buffers that are written in slices.
    "filled_in_halves": Program(filled_in_halves, tensors(2), 4 * N),
    "filled_in_turns": Program(filled_in_turns, tensors(2), 4 * N),
    "filled_row_by_row": Program(filled_row_by_row, tensors(1, 8, COLUMNS), 16 * ROW),
    "without_first_column": Program(without_first_column, tensors(1), 2 * N),
    "framed": Program(framed, tensors(1), 2 * N + 6 * ROW),
    "chunks_of_sums": Program(chunks_of_sums, tensors(1), N + 4 * ROW),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_bytes(name, record_property):
    program = PROGRAMS[name]
    torch.manual_seed(1)
    check(program.f, *program.args, calls=1, reference=program.reference)
    args = torch.utils._pytree.tree_map(torch.clone, program.args)
    (graph,) = litz.explain(program.f, *args, options={"threads": 2, "fallback": "error"}).graphs
    record_property("bytes", graph.bytes)
    print(f"{name}: {graph.bytes} of {program.formula}, {graph.bytes / program.formula:.3f} times, {graph.launches} launches")
    assert graph.bytes <= 1.05 * program.formula
