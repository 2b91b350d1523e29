"""Gradients of norms, and norms that return running statistics."""

from harness import *

last, last3d = torch.channels_last, torch.channels_last_3d
ALL = [True, True, True]


def layer(x, shape, weight=None, bias=None, mask=ALL):
    out, mean, rstd = aten.native_layer_norm.default(x, shape, weight, bias, 1e-3)
    case(aten.native_layer_norm_backward.default, like(out), x, shape, mean, rstd, weight, bias, mask)


layer(rand(2, 3, 4), [4], rand(4), rand(4))
layer(rand(2, 3, 4), [3, 4], rand(3, 4), rand(3, 4))
layer(rand(3, 4), [3, 4], rand(3, 4), rand(3, 4))
layer(rand(2, 3, 4), [4], mask=[True, False, False])
layer(rand(2, 3, 4), [4], rand(4), rand(4), [False, True, True])
layer(rand(3, 2, 4).transpose(0, 1), [4], rand(4), rand(4))
layer(rand(2, 3, 8, dtype=bf16), [8], rand(8, dtype=bf16), rand(8, dtype=bf16))
layer(rand(2, 3, 8, dtype=bf16), [8], rand(8), rand(8), [True, False, True])
layer(rand(2, 8, dtype=f64), [8], rand(8, dtype=f64), rand(8, dtype=f64))
layer(torch.tensor([[1.0, 2.0, 4.0], [NAN, 1.0, 2.0]]), [3], rand(3), rand(3))
layer(rand(0, 4), [4], rand(4), rand(4))


def group(x, weight, groups, mask=ALL):
    batch, channels, rest = x.shape[0], x.shape[1], x[0, 0].numel()
    out, mean, rstd = aten.native_group_norm.default(x, weight, weight, batch, channels, rest, groups, 1e-3)
    case(aten.native_group_norm_backward.default, like(out), x, mean, rstd, weight, batch, channels, rest, groups, mask)


group(rand(2, 6, 2, 3), rand(6), 3)
group(rand(2, 6, 4), rand(6), 1)
group(rand(2, 4, 2, 3).contiguous(memory_format=last), rand(4), 2)
group(rand(2, 4, 3), None, 2, [True, False, False])
group(rand(2, 4, 3), rand(4), 4, [False, True, True])
group(rand(2, 4, 4, dtype=bf16), rand(4, dtype=bf16), 2)
group(rand(2, 4, 4, dtype=bf16), rand(4), 2)

shapes = [rand(2, 3, 2, 2), rand(4, 3), rand(2, 3, 4), rand(2, 3, 2, 2).contiguous(memory_format=last)]
for x in shapes:
    params = rand(3), rand(3), rand(3), rand(3, lo=1)
    for training in (True, False):
        case(aten._native_batch_norm_legit_functional.default, x, *params, training, 0.1, 1e-3)
    case(aten._native_batch_norm_legit_functional.default, x, None, None, *params[2:], True, 0.25, 1e-3)
    case(aten.native_batch_norm.default, x, *params, False, 0.1, 1e-3)
    case(aten.native_batch_norm.default, x, *params[:2], None, None, True, 0.1, 1e-3)
    case(aten._batch_norm_with_update_functional.default, x, *params, 0.1, 1e-3)
    case(aten._batch_norm_no_update.default, x, *params, 0.1, 1e-3)
x = rand(2, 3, 4, dtype=bf16)
case(aten._native_batch_norm_legit_functional.default, x, rand(3), rand(3), rand(3), rand(3, lo=1), True, 0.1, 1e-3)
half = [rand(3, dtype=bf16), rand(3, dtype=bf16), rand(3, dtype=bf16), rand(3, dtype=bf16, lo=1)]
case(aten._native_batch_norm_legit_functional.default, x, *half, True, 0.5, 1e-3)


def batch(x, weight, training=True, mask=ALL, dtype=f32):
    running = rand(x.shape[1], dtype=dtype), rand(x.shape[1], dtype=dtype, lo=1)
    copies = [t.clone() for t in running]
    out, mean, rstd = aten.native_batch_norm.default(x, weight, None, *copies, training, 0.1, 1e-3)
    case(aten.native_batch_norm_backward.default, like(out), x, weight, *running, mean, rstd, training, 1e-3, mask)


for x in shapes:
    batch(x, rand(3))
    batch(x, rand(3), False)
batch(rand(2, 3, 4), None)
batch(rand(2, 3, 4), rand(3), mask=[False, True, True])
batch(rand(2, 3, 4), rand(3), False, [True, False, False])
batch(rand(2, 3, 4, dtype=bf16), rand(3))
batch(rand(2, 3, 4, dtype=bf16), rand(3, dtype=bf16), dtype=bf16)
batch(rand(2, 3, 4, dtype=f64), rand(3, dtype=f64), dtype=f64)
x, stats = rand(2, 3, 4), (rand(3), rand(3, lo=1))
out, mean, rstd, reserve, *_ = aten._batch_norm_with_update_functional.default(x, stats[1], stats[0], *stats, 0.1, 1e-3)
case(aten.batch_norm_backward.default, like(out), x, stats[1], *stats, mean, rstd, True, 1e-3, ALL, reserve)
