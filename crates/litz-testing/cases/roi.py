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
