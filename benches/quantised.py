"""Linear layers with weights of integers and scales, dequantised in the graph, as weight-only quantisation exports them."""

import torch
import torch.nn as nn
import torch.nn.functional as F

# Terms of a sum that share a scale in groups of four bits.
GROUP = 64


class Int8Linear(nn.Module):
    """A scale for each result."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(1) / 127
        self.register_buffer("levels", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x):
        return F.linear(x, self.levels.to(x.dtype) * self.scale[:, None], self.bias)


class Int4Linear(nn.Module):
    """A scale and a zero point for each group; two neighbours along the sum share a byte."""

    def __init__(self, linear: nn.Linear, group: int = GROUP):
        super().__init__()
        self.group = group
        weight = linear.weight.detach()
        groups = weight.reshape(weight.shape[0], -1, group)
        low, high = groups.amin(2), groups.amax(2)
        scale = ((high - low) / 15).half()
        zero = (-low / scale.float()).round().clamp(0, 15)
        levels = (groups / scale.float()[:, :, None] + zero[:, :, None]).round().clamp(0, 15).to(torch.uint8)
        levels = levels.reshape(weight.shape)
        self.register_buffer("bytes", levels[:, ::2] | levels[:, 1::2] << 4)
        self.register_buffer("scale", scale)
        self.register_buffer("zero", zero.to(torch.uint8))
        self.bias = linear.bias

    def forward(self, x):
        return F.linear(x, unpacked(self.bytes, self.scale.to(x.dtype), self.zero, self.group), self.bias)


def unpacked(bytes: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, group: int) -> torch.Tensor:
    """The weights of two levels a byte, in the type of their scales."""
    levels = torch.stack([bytes & 15, bytes >> 4], -1)
    levels = levels.reshape(levels.shape[0], -1, group).to(scale.dtype) - zero.to(scale.dtype)[:, :, None]
    return (levels * scale[:, :, None]).reshape(levels.shape[0], -1)


def quantised(module: nn.Module, layer: type[nn.Module]) -> nn.Module:
    """The module with all its linear layers replaced."""
    for name, part in module.named_children():
        setattr(module, name, layer(part) if isinstance(part, nn.Linear) else quantised(part, layer))
    return module
