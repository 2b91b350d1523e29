"""Gradients of pools, of resizing and of padding."""

from harness import *

last, last3d = torch.channels_last, torch.channels_last_3d

def largest(x, kernel, stride=None, padding=0, dilation=1, ceil=False):
    n = len(kernel)
    rest = [v if isinstance(v, list) else [v] * n for v in (stride or kernel, padding, dilation)]
    pool = aten.max_pool2d_with_indices if n == 2 else aten.max_pool3d_with_indices
    back = aten.max_pool2d_with_indices_backward if n == 2 else aten.max_pool3d_with_indices_backward
    out, indices = pool.default(x, kernel, *rest, ceil)
    case(back.default, like(out), x, kernel, *rest, ceil, indices)


def mean_of(x, kernel, stride=None, padding=0, ceil=False, pad=True, divisor=None):
    n = len(kernel)
    rest = [v if isinstance(v, list) else [v] * n for v in (stride or kernel, padding)]
    pool = aten.avg_pool2d if n == 2 else aten.avg_pool3d
    back = aten.avg_pool2d_backward if n == 2 else aten.avg_pool3d_backward
    out = pool.default(x, kernel, *rest, ceil, pad, divisor)
    case(back.default, like(out), x, kernel, *rest, ceil, pad, divisor)


image = rand(2, 3, 5, 6)
strange = image[:1].clone()
strange[0, 0, 1, 2], strange[0, 1], strange[0, 2, 4, 5] = NAN, -INF, INF
for x in (image, strange, image.contiguous(memory_format=last), image[0], image.bfloat16(), image.double()):
    largest(x, [2, 2])
    largest(x, [3, 3], [2, 2], 1)
    largest(x, [3, 2], [2, 1], [1, 0], [1, 2], True)
largest(image, [2, 2], [3, 3], 1, 1, True)
largest(image, [2, 3], [1, 1], 1, [3, 1])
largest(image, [1, 1], [2, 2])
largest(image[:0], [2, 2])
volume = rand(1, 2, 4, 4, 3)
largest(volume, [2, 2, 2])
largest(volume, [2, 3, 2], [1, 2, 2], 1, 1, True)
largest(volume.contiguous(memory_format=last3d), [2, 2, 1], [1, 2, 1])
largest(volume[0], [2, 2, 2])
for x in (image, image.contiguous(memory_format=last), image[0]):
    mean_of(x, [2, 2])
    mean_of(x, [3, 2], [2, 1], 1)
mean_of(image, [3, 3], [2, 2], 1, False, False)
mean_of(image, [2, 2], [2, 2], 0, True, False)
mean_of(image, [2, 2], [2, 2], 1, True, True)
mean_of(image, [2, 3], [3, 2], 1, True, False)
mean_of(image, [2, 2], None, 0, False, True, 3)
mean_of(image.bfloat16(), [2, 2])
mean_of(image.double(), [3, 2], [1, 1])
mean_of(image[:0], [2, 2])
mean_of(volume, [2, 2, 2])
mean_of(volume.contiguous(memory_format=last3d), [2, 2, 2], [1, 2, 1], [1, 0, 0], False, False)
nan = like(aten.avg_pool2d.default(image, [2, 2]))
nan[0, 1, 0, 1] = NAN
case(aten.avg_pool2d_backward.default, nan, image, [2, 2], [2, 2], [0, 0], False, True, None)
small = image[:1, :2]
for x in (small, image[:, :2].contiguous(memory_format=last), small[0], small.bfloat16()):
    for size in ([1, 1], [2, 3], [5, 6], [6, 8], [5, 1]):
        case(aten._adaptive_avg_pool2d_backward.default, like(aten._adaptive_avg_pool2d(x, size)), x)
        out, indices = aten.adaptive_max_pool2d.default(x, size)
        case(aten.adaptive_max_pool2d_backward.default, like(out), x, indices)
case(aten._adaptive_avg_pool3d_backward.default, like(aten._adaptive_avg_pool3d(volume, [3, 2, 1])), volume)
out, indices = aten.adaptive_max_pool3d.default(volume, [2, 3, 1])
case(aten.adaptive_max_pool3d_backward.default, like(out), volume, indices)

# Resizing.
for back, sizes, last_format in ((aten.upsample_nearest1d_backward, [7], None), (aten.upsample_nearest2d_backward, [7, 4], last),
                                 (aten.upsample_nearest3d_backward, [5, 3, 1], last3d),
                                 (aten._upsample_nearest_exact2d_backward, [7, 4], last)):
    size = [1, 2, 4, 3, 2][:2 + len(sizes)]
    case(back.default, rand(1, 2, *sizes), sizes, size)
    case(back.default, rand(1, 2, *[2 * n for n in size[2:]]), [2 * n for n in size[2:]], size)
    case(back.default, rand(1, 2, *sizes, dtype=bf16), sizes, size)
    if last_format:
        case(back.default, rand(1, 2, *sizes).contiguous(memory_format=last_format), sizes, size)
for back, sizes, last_format in ((aten.upsample_linear1d_backward, [7], None), (aten.upsample_bilinear2d_backward, [6, 2], last),
                                 (aten.upsample_trilinear3d_backward, [5, 3, 1], last3d),
                                 (aten.upsample_bicubic2d_backward, [6, 2], last)):
    size = [1, 2, 4, 3, 2][:2 + len(sizes)]
    for corners in (False, True):
        case(back.default, rand(1, 2, *sizes), sizes, size, corners)
    case(back.default, rand(1, 2, *[2 * n for n in size[2:]]), [2 * n for n in size[2:]], size, False, *[2.0] * len(sizes))
    case(back.default, rand(1, 2, *sizes, dtype=f64), sizes, size, False)
    if last_format:
        case(back.default, rand(1, 2, *sizes).contiguous(memory_format=last_format), sizes, size, False)

# Padding.
for n, x in ((1, rand(2, 3, 5)), (2, rand(1, 2, 4, 3)), (3, rand(1, 2, 3, 4, 3))):
    for mode in ("reflection", "replication"):
        back, pad = getattr(aten, f"{mode}_pad{n}d_backward").default, getattr(aten, f"{mode}_pad{n}d").default
        for amounts in ([1] * (2 * n), [2, 1, 0, 1, 1, 2][:2 * n], [0] * (2 * n)):
            for t in (x, x[0]):
                case(back, like(pad(t, amounts)), t, amounts)
case(aten.reflection_pad2d_backward.default, rand(2, 3, 5, 6), rand(2, 3, 3, 4).contiguous(memory_format=last), [1, 1, 1, 1])
case(aten.replication_pad2d_backward.default, rand(2, 3, 5, 6), rand(2, 3, 3, 4).contiguous(memory_format=last), [1, 1, 1, 1])
case(aten.replication_pad1d_backward.default, rand(2, 3, 9), rand(2, 3, 1), [4, 4])
