"""Resampling of images."""

from harness import *

image = rand(1, 2, 3, 4)
case(aten.upsample_nearest2d.vec, image, None, [2.0, 3.0])
case(aten.upsample_nearest2d.vec, image, [5, 7], None)
case(aten.upsample_nearest2d.vec, image, [2, 3], None)
case(aten.upsample_nearest1d.vec, rand(1, 2, 5), None, [1.7])
for align in (False, True):
    case(aten.upsample_bilinear2d.vec, image, [5, 7], align, None)
    case(aten.upsample_bilinear2d.vec, image, [2, 3], align, None)
    case(aten.upsample_bilinear2d.vec, image, None, align, [2.0, 1.5])
    case(aten.upsample_bicubic2d.vec, image, [5, 7], align, None)
case(aten.upsample_bilinear2d.vec, image.contiguous(memory_format=torch.channels_last), [6, 8], False, None)
case(aten.upsample_bilinear2d.vec, image.bfloat16(), [6, 8], False, None)
case(aten.upsample_linear1d.vec, rand(1, 2, 5), [8], False, None)
