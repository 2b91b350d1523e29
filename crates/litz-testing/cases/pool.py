"""Pooling."""

from harness import *

last, last3d = torch.channels_last, torch.channels_last_3d
image = rand(2, 3, 5, 7)
strange = image[:1].clone()
strange[0, 0, 1, 2] = NAN
strange[0, 1] = -INF
strange[0, 2, 4, 6] = INF
pools = [aten.max_pool2d.default, aten.max_pool2d_with_indices.default]
for pool in pools:
    case(pool, image, [2, 2])
    case(pool, image, [3, 3], [2, 2], [1, 1])
    case(pool, image, [3, 2], [2, 2], [1, 0], [1, 2], True)
    case(pool, image, [2, 2], [3, 3], [1, 1], [1, 1], True)
    case(pool, image.contiguous(memory_format=last), [3], [2], [1])
    case(pool, image.bfloat16(), [2, 2])
    case(pool, strange, [3, 3], [2, 2], [1, 1])
    case(pool, strange, [2, 3], [2, 1], [1, 1], [3, 1])
    case(pool, image[0], [2, 2], [1, 2], [0, 1], [2, 1])
    case(pool, image[:0], [2, 2])
    case(pool, image, [1, 1], [2, 2])
    case(pool, image, [1, 3], [2, 1], [0, 1])
    case(pool, whole(1, 2, 4, 5), [2, 3], [2, 2], [1, 1])
case(aten.max_pool1d.default, rand(1, 2, 7), [3], [2], [1])
case(aten.max_pool1d.default, rand(2, 6, 3).transpose(1, 2), [2], [2], [1], [2], True)
case(aten.max_pool1d.default, rand(3, 6), [2])
case(aten.max_pool1d_with_indices.default, rand(2, 7, 3).transpose(1, 2), [3], [2], [1])
volume = rand(1, 2, 4, 4, 3)
case(aten.max_pool3d.default, volume, [2, 2, 2])
case(aten.max_pool3d.default, volume.contiguous(memory_format=last3d), [2, 3, 1], [2, 1, 1], [1, 0, 0])
case(aten.max_pool3d.default, volume.contiguous(memory_format=last3d)[0], [2, 2, 2])
case(aten.max_pool3d_with_indices.default, volume, [2, 3, 2], [1, 2, 2], [1, 1, 1], [1, 1, 1], True)
case(aten.avg_pool2d.default, image, [2, 2])
case(aten.avg_pool2d.default, image.contiguous(memory_format=last), [3, 2])
case(aten.avg_pool2d.default, image.half(), [3, 3], [2, 2], [1, 1])
case(aten.avg_pool2d.default, image[0], [2, 2])
case(aten.avg_pool2d.default, image, [3, 3], [2, 2], [1, 1])
case(aten.avg_pool2d.default, image, [3, 3], [2, 2], [1, 1], False, False)
case(aten.avg_pool2d.default, image, [2, 2], [2, 2], [0, 0], True, False)
case(aten.avg_pool2d.default, image, [2, 2], [2, 2], [0, 0], True, True)
case(aten.avg_pool2d.default, image, [2, 2], [2, 2], [1, 1], True, True)
case(aten.avg_pool2d.default, image, [2, 3], [3, 2], [1, 1], True, False)
case(aten.avg_pool2d.default, image, [2, 2], [], 0, False, True, 3)
case(aten.avg_pool2d.default, strange, [2, 2])
case(aten.avg_pool1d.default, rand(1, 2, 7), [3], [2], [1])
case(aten.avg_pool1d.default, rand(2, 7, 3).transpose(1, 2), [2])
case(aten.avg_pool3d.default, volume.contiguous(memory_format=last3d), [2, 2, 2], [1, 2, 1], [1, 0, 0], False, False)
for pool in (aten.adaptive_avg_pool2d.default, aten.adaptive_max_pool2d.default):
    case(pool, image, [1, 1])
    case(pool, image, [2, 3])
    case(pool, image, [5, 7])
    case(pool, image, [6, 9])
    case(pool, image, [5, 1])
    case(pool, strange, [2, 3])
    case(pool, image.bfloat16(), [2, 2])
    case(pool, image[0].transpose(1, 2), [3, 2])
    case(pool, image.contiguous(memory_format=last), [1, 1])
case(aten._adaptive_avg_pool2d.default, rand(1, 2, 4, 6).contiguous(memory_format=last), [2, 2])
case(aten._adaptive_avg_pool3d.default, volume, [2, 2, 2])
case(aten.adaptive_avg_pool1d.default, rand(2, 3, 8), [4])
case(aten.adaptive_avg_pool1d.default, rand(2, 8, 3).transpose(1, 2), [3])
case(aten.adaptive_avg_pool3d.default, volume.contiguous(memory_format=last3d), [3, 2, 1])
case(aten.adaptive_avg_pool3d.default, volume.contiguous(memory_format=last3d), [1, 1, 1])
case(aten.adaptive_max_pool1d.default, rand(2, 3, 8), [3])
case(aten.adaptive_max_pool3d.default, volume.contiguous(memory_format=last3d), [2, 3, 1])

for pooled in (rand(1, 2, 4, 6), rand(2, 4, 6), rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)):
    values, places = aten.max_pool2d_with_indices(pooled, [2, 2])
    case(aten.max_unpool2d.default, values, places, list(pooled.shape[-2:]))
values, places = aten.max_pool3d_with_indices(rand(1, 2, 4, 2, 4), [2, 2, 2])
case(aten.max_unpool3d.default, values, places, [4, 2, 4], [2, 2, 2], [0, 0, 0])

# Windows whose places follow from a number for each plane and axis.
for dtype in (f32, f64):
    for op, size, kernel, out in (
        (aten.fractional_max_pool2d.default, (7, 10), (2, 3), (4, 5)),
        (aten.fractional_max_pool2d.default, (6, 6), (6, 1), (1, 6)),
        (aten.fractional_max_pool3d.default, (5, 6, 9), (2, 1, 3), (3, 4, 2)),
    ):
        for batch in ((2, 3), (3,), (0, 3)):
            numbers = rand(*batch, len(size), dtype=dtype, lo=0, hi=8)
            case(op, rand(*batch, *size, dtype=dtype), kernel, out, numbers if len(batch) == 2 else numbers[None])

# In half types the places are rounded after each step.
for dtype in (f16, bf16):
    for size, out in ((37, 29), (300, 211)):
        numbers = (torch.arange(4.0).reshape(1, 2, 2) * 0.21 + 0.1).to(dtype)
        image = (torch.arange(2.0 * size * 3).reshape(1, 2, size, 3) * 7 % 251).to(dtype)
        case(aten.fractional_max_pool2d.default, image, (2, 2), (out, 2), numbers)
