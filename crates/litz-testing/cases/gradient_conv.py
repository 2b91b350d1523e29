"""Gradients of convolutions."""

from harness import *

last, last3d = torch.channels_last, torch.channels_last_3d
ALL = [True, True, True]


def conv(x, weight, stride, padding=0, dilation=1, transposed=False, extra=0, groups=1, mask=ALL, grad=None):
    n = weight.dim() - 2
    rest = [v if isinstance(v, list) else [v] * n for v in (stride, padding, dilation)]
    rest += [transposed, extra if isinstance(extra, list) else [extra] * n, groups]
    grad = like(aten.convolution.default(x, weight, None, *rest)) if grad is None else grad
    bias = weight.shape[1] * groups if transposed else weight.shape[0]
    case(aten.convolution_backward.default, grad, x, weight, [bias], *rest, mask)


image = rand(2, 4, 4, 5)
conv(image, rand(3, 4, 3, 3), 1)
conv(image, rand(3, 4, 3, 2), [2, 1], [1, 2])
conv(image, rand(3, 4, 2, 3), [3, 2], [1, 0])
conv(image, rand(4, 4, 2, 2), 1, 1, [2, 1])
conv(image, rand(3, 4, 2, 2), 2, 1, [3, 2])
conv(image, rand(6, 2, 2, 2), 1, groups=2)
conv(image, rand(4, 1, 3, 3), 1, 1, groups=4)
conv(image, rand(8, 1, 3, 3), 2, 1, groups=4)
conv(image, rand(3, 4, 1, 1), 1)
conv(image, rand(3, 4, 1, 1), 2)
conv(image, rand(3, 4, 4, 5), 1)
conv(image.contiguous(memory_format=last), rand(3, 4, 3, 3), 1)
conv(image, rand(3, 4, 2, 2).contiguous(memory_format=last), 2)
conv(image, rand(3, 4, 2, 2), 2, grad=rand(2, 3, 2, 2).contiguous(memory_format=last))
conv(image.double().contiguous(memory_format=last), rand(3, 4, 2, 2, dtype=f64), [3, 2])
# So small that eager's sums are exact: it rounds those of half types on the way.
small = dict(dtype=bf16, lo=-2, hi=3)
conv(rand(1, 2, 3, 3, **small), rand(3, 2, 3, 3, **small), 1, 1, grad=rand(1, 3, 3, 3, **small))
conv(image.half(), rand(4, 1, 2, 2, dtype=f16), 2, groups=4)
conv(image, rand(3, 4, 3, 3), 1, mask=[True, False, False])
conv(image, rand(3, 4, 3, 3), 1, mask=[False, True, True])
conv(image, rand(3, 4, 3, 3), 1, mask=[False, True, False])
conv(image[:0], rand(3, 4, 3, 3), 1, mask=[True, True, False])
conv(image[:, :, ::2, 1:], rand(3, 4, 2, 2), 1)
odd = torch.tensor([NAN, 1.0, INF, 2.0, 3.0, -1.0]).reshape(1, 1, 2, 3)
conv(odd, rand(1, 1, 2, 2), 1, 1)
conv(rand(1, 1, 2, 3), rand(1, 1, 1, 2), 2, grad=torch.tensor([[[[NAN]]]]))
conv(rand(2, 3, 7), rand(4, 3, 3), 2, 1)
conv(rand(2, 7, 3).transpose(1, 2), rand(4, 3, 3), 1)
conv(rand(1, 4, 7), rand(4, 1, 3), 1, 4, 2, groups=4)
conv(rand(1, 2, 3, 4, 3), rand(2, 2, 2, 2, 2), [1, 2, 1], [1, 0, 1])
conv(rand(2, 2, 2, 3, 2).contiguous(memory_format=last3d), rand(2, 2, 2, 2, 1), 1)
conv(rand(2, 2, 2, 3, 2, dtype=f64).contiguous(memory_format=last3d), rand(2, 1, 2, 2, 1, dtype=f64), 1, groups=2)
conv(image, rand(4, 3, 3, 3), 2, 1, 1, True, 1)
conv(image, rand(4, 2, 2, 3), [2, 3], [0, 1], [2, 1], True, [0, 1], 2)
conv(image, rand(4, 1, 3, 3), 2, 1, 1, True, groups=4)
conv(image, rand(4, 1, 2, 2), 1, 0, 3, True, 2)
conv(image.contiguous(memory_format=last), rand(4, 3, 2, 2), 2, transposed=True)
conv(rand(1, 2, 3, 3, **small), rand(2, 2, 2, 2, **small), 2, transposed=True, grad=rand(1, 2, 6, 6, **small))
conv(rand(2, 2, 4), rand(2, 3, 3), 1, 2, 2, True)
conv(rand(1, 2, 2, 2, 3), rand(2, 2, 2, 1, 2), [2, 1, 2], [1, 0, 0], 1, True)
