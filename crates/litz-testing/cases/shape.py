"""Concatenation, padding, repetition."""

from harness import *

base = rand(2, 3, 4, 5)
last = base.contiguous(memory_format=torch.channels_last)

# Placement.
case(aten.cat.default, [rand(2, 3), rand(1, 3)], 0)
case(aten.cat.default, [rand(2, 3), torch.tensor([]), whole(2, 2)], -1)
case(aten.cat.default, [last, last], 1)
case(aten.cat.default, [last, base], 1)
case(aten.stack.default, [rand(2, 3), rand(2, 3)], 1)
case(aten.stack.default, [rand(2), rand(2), rand(2)], -1)
case(aten.constant_pad_nd.default, rand(2, 3), [1, 2], 0.5)
case(aten.constant_pad_nd.default, rand(2, 3, 4), [1, -2, 0, 1])
case(aten.constant_pad_nd.default, whole(2, 3), [-1, -1])
case(aten.constant_pad_nd.default, last, [1, 1, 2, 0])
case(aten.pad.default, rand(2, 3), [1, 1], "constant", 2.0)
case(aten.pad.default, rand(1, 2, 5), [2, 3], "reflect")
case(aten.pad.default, rand(1, 2, 3, 4), [2, 1, 1, 2], "replicate")
case(aten.pad.default, rand(1, 2, 5), [2, 3], "circular")
case(aten.repeat.default, rand(2, 3), [2, 1, 2])
case(aten.repeat_interleave.self_int, rand(2, 3), 2, 1)
case(aten.flip.default, rand(2, 3), [0, 1])
case(aten.roll.default, rand(2, 5), [1, -2], [0, 1])
case(aten.diff.default, rand(2, 5))
case(aten.pixel_shuffle.default, rand(1, 8, 2, 3), 2)
case(aten.diff.default, whole(2, 5), 2, 1, whole(2, 1))
case(aten.diff.default, whole(5) > 0, 1, -1, None, whole(1) > 0)
case(aten.meshgrid.indexing, [rand(2), rand(3)], indexing="ij")
case(aten.meshgrid.indexing, [rand(2), rand(3), rand(2)], indexing="xy")
# More differences than elements: those of what is put around count.
case(aten.diff.default, whole(2, 3), 4, 1, whole(2, 1), whole(2, 2))
case(aten.diff.default, whole(2, 3), 17, 1, whole(2, 1), whole(2, 2))
case(aten.diff.default, whole(2, 3), 0, 1, whole(2, 1), whole(2, 2))
