"""Regions of images. Needs torchvision."""

import torchvision
from harness import *

align = torch.ops.torchvision.roi_align.default
image = rand(2, 3, 6, 5)
regions = torch.tensor([[0, 0.5, 1.0, 3.5, 4.0], [1, -3.0, -1.5, 7.0, 9.0], [1, 2.0, 2.0, 2.25, 2.0], [0, 30, 30, 40, 40]])
case(align, image, regions, 1.0, 2, 3, 2, False)
case(align, image, regions, 0.5, 3, 2, 1, True)
case(align, image.contiguous(memory_format=torch.channels_last), regions, 1.0, 2, 2, 3, True)
case(align, image, regions[:0], 1.0, 2, 2, 2, False)

# As many points as a bin is high and wide.
for aligned in (False, True):
    case(align, image, regions, 1.0, 2, 3, -1, aligned)
    case(align, image.double(), regions.double(), 0.5, 3, 1, 0, aligned)
case(align, image, torch.tensor([[0, -500.0, -500.0, 500.0, 500.0], [1, 4.0, 4.0, 1.0, 2.0], [1, 1e6, 1e6, 1e6, 1e6]]), 1.0, 2, 2, -1, True)
case(align, image[:, :0], regions, 1.0, 2, 2, -1, True)

apart = torch.ops.torchvision.ps_roi_align.default
kinds = rand(2, 12, 6, 5)
case(apart, kinds, regions, 1.0, 2, 3, 2)
case(apart, kinds, regions, 0.75, 2, 3, -1)
case(apart, kinds.double(), regions.double(), 1.0, 3, 4, -1)
case(apart, kinds.contiguous(memory_format=torch.channels_last), regions[:1], 1.0, 1, 1, 1)
case(apart, kinds, regions[:0], 1.0, 2, 2, 2)

for pool in (torch.ops.torchvision.roi_pool.default, torch.ops.torchvision.ps_roi_pool.default):
    case(pool, kinds, regions, 1.0, 2, 3)
    case(pool, kinds, regions, 0.7, 3, 2)
    case(pool, kinds.double(), regions.double(), 1.3, 4, 3)
    case(pool, kinds.transpose(2, 3), regions[1:], 1.0, 1, 2)
    case(pool, kinds, regions[:0], 1.0, 2, 2)
    odd = kinds.clone()
    odd[:, :, ::2, 1] = float("nan")
    odd[:, :, 1, ::3] = float("-inf")
    case(pool, odd, regions, 1.0, 2, 2)
    case(pool, kinds, torch.tensor([[1, 0.5, 1.5, 2.5, 3.5], [0, 4.0, 5.0, 0.0, 0.0], [1, -9.0, -9.0, 90.0, 2.49]]), 1.0, 2, 2)
