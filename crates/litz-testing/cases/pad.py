"""Padding of three dimensions and around the edge."""

from harness import *

volume = rand(1, 2, 3, 4, 3)
case(aten.reflection_pad3d.default, volume, [1, 2, 3, 0, 1, 1])
case(aten.reflection_pad3d.default, volume.contiguous(memory_format=torch.channels_last_3d), [1, 1, 0, 0, 2, 1])
case(aten.replication_pad3d.default, volume, [1, 2, 5, 0, 1, 1])
case(aten.replication_pad3d.default, volume[0].bfloat16(), [0, 4, 0, 0, -1, 1])
case(aten._pad_circular.default, volume, [1, 2, 4, 0, 3, 1])
case(aten._pad_circular.default, volume[0, 0, :1], [3, 1])
last = rand(1, 3, 4, 5).contiguous(memory_format=torch.channels_last)
case(aten.pad.default, last, [1, 2, 1, 0], "circular")
case(aten.pad.default, last, [1, 2, 1, 0], "reflect")
case(aten.constant_pad_nd.default, last, [-1, 0, -1, -2])
case(aten.constant_pad_nd.default, rand(3, 2, 4).permute(2, 0, 1), [-1, 0, 0, -1])

# What negative padding leaves repeats.
case(aten.pad.default, rand(1, 2, 3, 4), [-1, 1, -2, 1], "circular")
case(aten.pad.default, rand(1, 2, 3, 4), [1, -2, 1, -1], "circular")
case(aten.pad.default, rand(1, 2, 3, 4), [-1, -2, -1, 2], "circular")
for mode in ("reflect", "replicate"):
    case(aten.pad.default, rand(1, 2, 3, 4), [-1, 1, -2, 1], mode)
# All that there is, or more, is cut off one end: the other end shows what is left, or what has been cut away.
for mode in ("reflect", "replicate"):
    for amounts in ([-4, 3], [-5, 3], [3, -4], [3, -5], [-3, 3]):
        case(aten.pad.default, rand(1, 2, 4), amounts, mode)
for amounts in ([-4, 5], [5, -4], [-5, 6]):
    case(aten.pad.default, rand(1, 2, 4), amounts, "replicate")
    case(aten.replication_pad1d.default, rand(2, 4), amounts)
