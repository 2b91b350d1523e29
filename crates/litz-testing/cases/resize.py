"""Resampling of images."""

from harness import *

last, last3d = torch.channels_last, torch.channels_last_3d
image = rand(1, 2, 3, 4)
for nearest in (aten.upsample_nearest2d, aten._upsample_nearest_exact2d):
    case(nearest.vec, image, None, [2.0, 3.0])
    case(nearest.vec, image, None, [1.3, 0.6])
    case(nearest.vec, image, [5, 7], None)
    case(nearest.vec, image, [2, 3], None)
    case(nearest.vec, image.contiguous(memory_format=last).half(), [6, 4], None)
    case(nearest.default, image, [6, 8], 2.0, 2.0)
    case(nearest.default, image, [7, 9], 2.5, 2.4)
    case(nearest.default, whole(1, 1, 2, 2, dtype=torch.uint8, lo=0), [3, 5])
case(aten.upsample_nearest1d.vec, rand(1, 2, 5), None, [1.7])
case(aten.upsample_nearest1d.default, rand(1, 1, 3), [41])
case(aten.upsample_nearest1d.default, rand(1, 1, 41), [82], 2.0)
# Products of an index and a factor of f32 that come out just below a whole number.
case(aten.upsample_nearest1d.default, torch.arange(29.0).reshape(1, 1, 29), [47])
case(aten.upsample_nearest1d.default, torch.arange(12.0).reshape(1, 1, 12), [180], 15.0)
case(aten._upsample_nearest_exact1d.default, torch.arange(10.0).reshape(1, 1, 10), [46])
case(aten._upsample_nearest_exact1d.vec, rand(1, 2, 5), [3], None)
case(aten.upsample_nearest3d.vec, rand(1, 2, 2, 3, 2).contiguous(memory_format=last3d), None, [2.0, 2.0, 1.0])
case(aten._upsample_nearest_exact3d.default, rand(1, 1, 2, 3, 2), [3, 4, 5])
for align in (False, True):
    for blend in (aten.upsample_bilinear2d, aten.upsample_bicubic2d):
        # Eager's own error in f32 is seen where cubic terms cancel.
        image = image.double() if blend is aten.upsample_bicubic2d else image.float()
        case(blend.vec, image, [5, 7], align, None)
        case(blend.vec, image, [2, 3], align, None)
        case(blend.vec, image, [1, 4], align, None)
        case(blend.vec, image, None, align, [2.0, 1.5])
        if image.dtype is f32:
            case(blend.vec, image, None, align, [1.3, 2.7])
        case(blend.default, image, [7, 6], align, 2.5, 1.6)
        case(blend.vec, image[:, :, :1, :], [3, 8], align, None)
    image = image.float()
    case(aten.upsample_linear1d.vec, rand(1, 2, 5), [8], align, None)
    case(aten.upsample_trilinear3d.vec, rand(1, 1, 2, 3, 2), [3, 2, 4], align, None)
    for smooth in (aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa):
        case(smooth.vec, rand(1, 2, 7, 9), [3, 4], align, None)
        case(smooth.vec, image, [5, 3], align, None)
        case(smooth.vec, image.contiguous(memory_format=last), None, align, [2.0, 0.5])
        case(smooth.default, rand(1, 1, 5, 7), [2, 3], align, 0.4, 0.5)
case(aten.upsample_bilinear2d.vec, image.contiguous(memory_format=last), [6, 8], False, None)
case(aten.upsample_bilinear2d.vec, image.bfloat16(), [6, 8], False, None)
case(aten.upsample_bilinear2d.default, image.double(), [4, 9], False)
case(aten.upsample_linear1d.default, rand(1, 2, 5), [8], False, 1.6)
case(aten.upsample_trilinear3d.default, rand(1, 1, 2, 3, 2).contiguous(memory_format=last3d), [4, 6, 4], False, 2.0, 2.0, 2.0)
# Elements of weight 0 are multiplied with it: NaN and infinities show in results that lie on other elements.
holes = torch.arange(36.0).reshape(1, 1, 6, 6)
holes[0, 0, 1, 2], holes[0, 0, 4, 4], holes[0, 0, 0, 1] = NAN, INF, -INF
for align in (False, True):
    for size in ([2, 2], [6, 6], [6, 12], [1, 1], [11, 3], [12, 11]):
        case(aten.upsample_bilinear2d.vec, holes, size, align, None)
        case(aten.upsample_bicubic2d.vec, holes, size, align, None)
    case(aten.upsample_linear1d.vec, holes[0], [6], align, None)
    case(aten.upsample_linear1d.vec, holes[0], [2], align, None)
# Images of bytes have weights of 16 bits; kernels for few channels and for many give the same.
pixels = whole(1, 3, 5, 6, dtype=torch.uint8, lo=0, hi=256)
more = whole(1, 6, 3, 4, dtype=torch.uint8, lo=0, hi=256)
for align in (False, True):
    for resize in (aten.upsample_bilinear2d, aten.upsample_bicubic2d, aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa):
        for size in ([3, 9], [11, 2], [5, 12], [1, 2], [2, 6]):
            case(resize.vec, pixels, size, align, None)
        case(resize.vec, more, [2, 7], align, None)
        case(resize.vec, more, [1, 1], align, None)
        case(resize.vec, pixels, None, align, [1.3, 0.6])
        case(resize.default, more[:, :, :2], [5, 3], align, 2.7, 0.7)
        case(resize.vec, pixels.contiguous(memory_format=last), [4, 4], align, None)
        case(resize.vec, (pixels // 128) * 255, [13, 17], align, None)
    for smooth in (aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa):
        case(smooth.vec, rand(1, 1, 4, 5).double(), [1, 3], align, None)
        case(smooth.vec, rand(1, 1, 1, 5).double(), [3, 2], align, None)
