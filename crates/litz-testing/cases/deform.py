"""Convolutions with taps that are moved. Needs torchvision."""

import torchvision
from harness import *

deform = torch.ops.torchvision.deform_conv2d.default


def call(x, weight, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, moved=1, masked=True, scale=1.0, dtype=torch.float32):
    rows, columns = weight.shape[2:]
    out = [(x.shape[2 + d] + 2 * padding[d] - dilation[d] * (weight.shape[2 + d] - 1) - 1) // stride[d] + 1 for d in range(2)]
    offset = (rand(x.shape[0], 2 * moved * rows * columns, *out) * scale).to(dtype)
    mask = rand(x.shape[0], moved * rows * columns, *out) if masked else torch.zeros(x.shape[0], 1)
    bias = rand(weight.shape[0])
    case(deform, x.to(dtype), weight.to(dtype), offset, mask.to(dtype), bias.to(dtype), *stride, *padding, *dilation, groups, moved, masked)


call(rand(2, 4, 5, 6), rand(3, 4, 3, 3))
call(rand(1, 4, 7, 6), rand(6, 2, 3, 2), (2, 1), (1, 2), (2, 1), 2, 2)
call(rand(1, 6, 5, 5), rand(2, 3, 1, 1), groups=2, moved=3, masked=False)
call(rand(1, 2, 4, 4), rand(2, 2, 2, 2), padding=(1, 1), scale=40.0)
call(rand(1, 2, 4, 4), rand(2, 2, 3, 3), padding=(1, 1), dtype=torch.float64)
call(rand(1, 2, 4, 4).contiguous(memory_format=torch.channels_last), rand(2, 2, 3, 3), masked=False)
call(rand(0, 2, 4, 4), rand(2, 2, 3, 3))
# At the edges, and endless.
x, weight = rand(1, 1, 3, 3), torch.ones(1, 1, 1, 1)
places = torch.tensor([-1.0, -0.5, 2.0, 2.5, 3.0, 1e9, float("inf"), float("-inf"), 0.0])
for axis in range(2):
    offset = torch.zeros(1, 2, 3, 3)
    offset[0, axis] = places.reshape(3, 3)
    case(deform, x, weight, offset, torch.zeros(1, 1), torch.zeros(1), 1, 1, 0, 0, 1, 1, 1, 1, False)
