"""Gradients of elementwise operators, losses and what takes some elements."""

from harness import *

# Activations.
values = torch.tensor([NAN, INF, -INF, -0.0, 0.0, 1.0, -2.5, 3.0, -3.0, 0.5, -0.5, 6.0, 20.0, 21.0, -1.0, 2.0])
some, grad = rand(3, 4), rand(3, 4)
one = torch.tensor(1.5), torch.tensor(-0.5)
pairs = [(grad, some), (grad.t(), some.t()), one, (grad[:0], some[:0]), (grad.double(), some.double()),
         (grad.bfloat16(), some.bfloat16()), (grad.half(), some.half()), (rand(64), values.repeat(4)[:64])]
for g, x in pairs:
    case(aten.threshold_backward.default, g, x, 0.0)
    case(aten.threshold_backward.default, g, x, 1.0)
    case(aten.tanh_backward.default, g, x)
    case(aten.sigmoid_backward.default, g, x)
    case(aten.hardtanh_backward.default, g, x, -1.0, 1.0)
    case(aten.hardswish_backward.default, g, x)
    case(aten.hardsigmoid_backward.default, g, x)
    case(aten.leaky_relu_backward.default, g, x, 0.125, False)
    case(aten.elu_backward.default, g, 1.5, 1.25, 0.75, False, x)
    case(aten.elu_backward.default, g, 1.0, 1.0, 1.0, True, x)
    case(aten.softplus_backward.default, g, x, 1.0, 20.0)
    case(aten.softplus_backward.default, g, x, 2.0, 3.0)
    case(aten.mish_backward.default, g, x)
    case(aten.silu_backward.default, g, x)
    case(aten.gelu_backward.default, g, x)
    case(aten.gelu_backward.default, g, x, approximate="tanh")
    case(aten.softshrink_backward.default, g, x, 0.5)
    case(aten.hardshrink_backward.default, g, x, 0.5)
    case(aten.log_sigmoid_forward.default, x)
    case(aten.log_sigmoid_backward.default, g, x, aten.log_sigmoid_forward.default(x)[1])
    case(aten.rrelu_with_noise_backward.default, g, x, g, 0.125, 0.375, True, False)
    case(aten.rrelu_with_noise_backward.default, g, x, g, 0.125, 0.375, False, False)
    case(aten.native_dropout_backward.default, g, x > 0, 1.25)
    if x.numel():
        case(aten.native_dropout.default, x, 0.5, False)
for x in (torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, NAN, 0.125, 0.95]), torch.tensor([0.25, 0.75], dtype=bf16)):
    for eps in (None, 0.1, 0.0):
        case(aten.logit_backward.default, rand(*x.shape, dtype=x.dtype, lo=1), x, eps)
for weight in (rand(1, 1), rand(3, 1), rand(1, 4)):
    case(aten._prelu_kernel_backward.default, grad, some, weight)
case(aten._prelu_kernel_backward.default, grad.t(), some.t(), rand(4, 1))
case(aten._prelu_kernel_backward.default, grad.bfloat16(), some.bfloat16(), rand(1, 4, dtype=bf16))
case(aten.glu_backward.default, rand(3, 2), some, 1)
case(aten.glu_backward.default, rand(2, 2, 3), rand(4, 2, 3), 0)
case(aten.glu_backward.default, rand(2, 3), rand(3, 4).t(), -2)
case(aten.glu_backward.default, rand(3, 2, dtype=f64), some.double(), 1)

# Softmax.
for back, forward in ((aten._softmax_backward_data, torch.softmax), (aten._log_softmax_backward_data, torch.log_softmax)):
    for x, dim in ((rand(2, 3, 4), -1), (rand(2, 3, 4), 1), (rand(4, 3).t(), 0), (torch.tensor(1.5), 0), (rand(0, 3), 1),
                   (rand(2, 3, dtype=bf16), 1), (rand(2, 3, dtype=f16), 1), (rand(2, 3, dtype=f64), 1),
                   (torch.tensor([[-INF, 0.0, 1.0], [NAN, 1.0, 2.0]]), 1)):
        out = forward(x, dim)
        case(back.default, like(out), out, dim, x.dtype)

# Losses.
for x, t in ((some, grad), (rand(4, 3).t(), grad), (some.bfloat16(), grad.bfloat16()), (some.double(), grad.double()), one):
    for reduction in (0, 1, 2):
        g = like(x) if reduction == 0 else torch.tensor(2.0, dtype=x.dtype)
        case(aten.mse_loss_backward.default, g, x, t, reduction)
        case(aten.smooth_l1_loss_backward.default, g, x, t, reduction, 1.0)
        case(aten.huber_loss_backward.default, g, x, t, reduction, 0.5)
        case(aten.soft_margin_loss_backward.default, g, x, t.sign(), reduction)
        share, target = (x / 4).clamp(0.125, 0.875), (t > 0).to(t.dtype)
        case(aten.binary_cross_entropy_backward.default, g, share, target, None, reduction)
        case(aten.binary_cross_entropy_backward.default, g, share, target, like(x), reduction)
sure = torch.tensor([0.0, 1.0, 0.0, 1.0, NAN, 0.5]), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
for dtype in (f32, f64):
    case(aten.binary_cross_entropy_backward.default, rand(6, dtype=dtype), sure[0].to(dtype), sure[1].to(dtype), None, 0)
apart = torch.tensor([0.0, 0.5, -0.5, 2.0, NAN]).repeat(8)[:32]
case(aten.smooth_l1_loss_backward.default, rand(32), apart, torch.zeros(32), 0, 0.0)
case(aten.smooth_l1_loss_backward.default, rand(32), apart, torch.zeros(32), 0, 0.5)
case(aten.huber_loss_backward.default, rand(32), apart, torch.zeros(32), 0, 0.5)
for reduction in (0, 1, 2):
    for dtype in (f32, f64, bf16):
        for x, t, forward, back in (
            (rand(4, 3, dtype=dtype), torch.tensor([0, 2, 1, 2]), aten.nll_loss_forward, aten.nll_loss_backward),
            (rand(3, dtype=dtype), torch.tensor(1), aten.nll_loss_forward, aten.nll_loss_backward),
            (rand(2, 3, 1, 2, dtype=dtype), whole(2, 1, 2, lo=0, hi=3), aten.nll_loss2d_forward, aten.nll_loss2d_backward),
        ):
            for weight, ignore in ((None, -100), (rand(3, dtype=dtype, lo=1), 2)):
                case(forward.default, x, t, weight, reduction, ignore)
                out, total = forward.default(x, t, weight, reduction, ignore)
                case(back.default, like(out), x, t, weight, reduction, ignore, total)

# Elements taken.
index = torch.tensor([[0, 3, 3, 1], [5, 0, 3, 2]])
for args in ((6, -1, False), (6, 3, False), (7, 0, True)):
    case(aten.embedding_dense_backward.default, rand(2, 4, 3), index, *args)
    case(aten.embedding_backward.default, rand(2, 4, 3), index, *args, False)
case(aten.embedding_dense_backward.default, rand(2, 4, 3, dtype=bf16), index.int(), 6, -1, False)
case(aten.embedding_dense_backward.default, rand(0, 3), index[0, :0], 6, -1, False)
case(aten.embedding_dense_backward.default, rand(3), torch.tensor(2), 6, -1, False)
case(aten.select_backward.default, rand(2, 4), [2, 3, 4], 1, 2)
case(aten.select_backward.default, rand(2, 3, dtype=bf16), [2, 3, 4], -1, -1)
case(aten.select_backward.default, torch.tensor(2.0), [4], 0, 0)
case(aten.slice_backward.default, rand(2, 3), [2, 7], 1, 1, 6, 2)
case(aten.slice_backward.default, rand(2, 2), [2, 4], 1, -2, 9223372036854775807, 1)
case(aten.slice_backward.default, rand(0, 4), [2, 4], 0, 1, 1, 1)
case(aten.diagonal_backward.default, rand(2, 3), [3, 2, 4], 0, 0, 2)
case(aten.diagonal_backward.default, rand(2), [3, 4], 2, 0, 1)
case(aten.unfold_backward.default, rand(2, 3, 3), [2, 8], 1, 3, 2)
case(aten.unfold_backward.default, rand(2, 4, 3), [9, 4], 0, 3, 5)
case(aten.unfold_backward.default, rand(2, 6, 3, dtype=bf16), [2, 8], -1, 3, 1)
case(aten.index_select_backward.default, rand(2, 4, 3), [2, 6, 3], 1, torch.tensor([0, 1, 1, 5]))
case(aten.index_select_backward.default, rand(4, dtype=bf16), [6], 0, torch.tensor([0, 1, 1, 5]))
case(aten.value_selecting_reduction_backward.default, rand(2, 3), 1, whole(2, 3, lo=0, hi=5), [2, 5, 3], False)
case(aten.value_selecting_reduction_backward.default, rand(2, 1, 3), -2, whole(2, 1, 3, lo=0, hi=5), [2, 5, 3], True)
case(aten.trace_backward.default, torch.tensor(2.0), [3, 4])
case(aten.masked_scatter_backward.default, rand(2, 3), torch.tensor([[True, False, True], [False, False, True]]), [4])
case(aten.masked_scatter_backward.default, rand(2, 3), torch.tensor([True, False, False]), [1, 2])

# Distances.
a, b = rand(2, 3, 4), rand(2, 5, 4)
b[0, 1] = a[0, 2]
for p in (0.0, 1.0, 1.5, 2.0, 3.0, INF):
    case(aten._cdist_forward.default, a, b, p, None)
    case(aten._cdist_backward.default, rand(2, 3, 5), a, b, p, aten._cdist_forward.default(a, b, p, None))
case(aten.cdist.default, rand(3, 4), rand(2, 4))
case(aten.cdist.default, rand(3, 4, dtype=f64), rand(2, 4, dtype=f64), 1.0)

# Gradients that are integers become floating numbers.
for g in (whole(2, 3), whole(2, 3).to(torch.uint8), rand(2, 3) > 0.5, rand(2, 3, dtype=f16)):
    case(aten.native_dropout_backward.default, g, torch.tensor([[True], [False]]).expand(2, 3), 1.25)
