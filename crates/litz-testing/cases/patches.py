"""Rearrangements of images."""

from harness import *

last = torch.channels_last
image = rand(2, 4, 4, 6)
case(aten.im2col.default, image, [2, 3], [1, 1], [0, 0], [1, 1])
case(aten.im2col.default, image, [2, 2], [2, 1], [1, 2], [2, 3])
case(aten.im2col.default, image[0].half(), [3, 1], [1, 1], [1, 0], [1, 2])
case(aten.im2col.default, image.contiguous(memory_format=last), [1, 1], [1, 1], [0, 0], [2, 2])
case(aten.col2im.default, rand(2, 12, 15), [4, 6], [2, 2], [1, 1], [0, 0], [1, 1])
case(aten.col2im.default, rand(2, 4, 6), [4, 6], [2, 2], [1, 1], [0, 0], [2, 2])
case(aten.col2im.default, rand(6, 9), [5, 6], [3, 2], [1, 2], [1, 1], [2, 2])
case(aten.col2im.default, rand(1, 2, 6), [4, 5], [1, 1], [1, 1], [0, 0], [2, 2])
case(aten.pixel_unshuffle.default, image, 2)
case(aten.pixel_unshuffle.default, image.contiguous(memory_format=last), 2)
case(aten.pixel_unshuffle.default, image[0], 1)
case(aten.channel_shuffle.default, image, 2)
case(aten.channel_shuffle.default, image.contiguous(memory_format=last), 4)
case(aten.channel_shuffle.default, rand(2, 6, 3), 3)
case(aten.im2col.default, rand(2, 4, 5, 6), [3, 2], [1, 2], [1, 0], [2, 1])
case(aten.col2im.default, rand(2, 12, 20), [5, 6], [2, 2], [1, 1], [0, 0], [1, 1])
case(aten.col2im.default, rand(1, 27, 6), [5, 6], [3, 3], [1, 2], [1, 1], [2, 2])
