"""Builds the models that `gpu_times.py` times, from PyTorch's and torchvision's modules."""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A layer of a transformer, in PyTorch's operators alone."""

    def __init__(self, width, heads, is_causal):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.is_causal = heads, is_causal

    def forward(self, x):
        batch, length, width = x.shape
        split = lambda y: y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        q, k, v = map(split, self.qkv(self.norms[0](x)).chunk(3, -1))
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        x = x + self.out(attention.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    """BERT-base and GPT-2 but for their heads."""

    def __init__(self, words, width=768, layers=12, heads=12, is_causal=False):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.layers = nn.Sequential(*(Block(width, heads, is_causal) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.norm(self.layers(self.words(ids) + self.places(places)))


def model_table():
    """Models by name: each makes a module and its inputs, on the CPU. torchvision's are there where it is."""
    ids = lambda words, batch, length: (torch.randint(0, words, (batch, length)),)
    rows = {
        "bert-base": lambda: (Transformer(30522), ids(30522, 16, 128)),
        "gpt2": lambda: (Transformer(50257, is_causal=True), ids(50257, 4, 512)),
    }
    with contextlib.suppress(ImportError):
        from torchvision import models as vision

        def filled(module):
            """A model without parameters that are all zero, which would hide wrong numbers behind them."""
            for parameter in module.parameters():
                if not parameter.any():
                    nn.init.normal_(parameter, std=0.02)
            return module

        images = lambda batch: (torch.randn(batch, 3, 224, 224),)
        rows |= {
            "resnet50": lambda: (vision.resnet50(), images(16)),
            "vit-b": lambda: (filled(vision.vit_b_16()), images(16)),
            "mobilenet-v3": lambda: (vision.mobilenet_v3_large(), images(16)),
            "convnext-t": lambda: (vision.convnext_tiny(), images(16)),
        }
    return rows


def rotated(x, cos, sin):
    """Pairs of a head's elements, half of it apart, turned by the angles of a place."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class TokenLayer(nn.Module):
    """A layer of a decoder for one token: grouped heads that attend to a cache, and a gate."""

    def __init__(self, width, heads, groups, up, length):
        super().__init__()
        linear = lambda rows, columns: nn.Linear(rows, columns, bias=False)
        self.heads, self.groups, self.head = heads, groups, width // heads
        self.norms = nn.ModuleList(nn.RMSNorm(width, 1e-5) for _ in range(2))
        self.q, self.out = linear(width, width), linear(width, width)
        self.k, self.v = linear(width, groups * self.head), linear(width, groups * self.head)
        self.gate, self.up, self.down = linear(width, up), linear(width, up), linear(up, width)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, groups, length, self.head))

    def forward(self, x, place, cos, sin, mask):
        normed = self.norms[0](x)
        split = lambda y, heads: y.view(1, 1, heads, self.head).transpose(1, 2)
        q = rotated(split(self.q(normed), self.heads), cos, sin)
        self.keys.index_copy_(2, place, rotated(split(self.k(normed), self.groups), cos, sin))
        self.values.index_copy_(2, place, split(self.v(normed), self.groups))
        attention = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask, enable_gqa=True)
        x = x + self.out(attention.transpose(1, 2).reshape(1, 1, -1))
        normed = self.norms[1](x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Token(nn.Module):
    """One token of a decoder with a cache of fixed length, by the sizes of LLaMA 3.2 with 1.2 billion weights. The last product is by the embedding."""

    def __init__(self, words=128256, width=2048, layers=16, heads=32, groups=8, up=8192, length=4096):
        super().__init__()
        self.words, self.norm = nn.Embedding(words, width), nn.RMSNorm(width, 1e-5)
        self.layers = nn.ModuleList(TokenLayer(width, heads, groups, up, length) for _ in range(layers))
        self.half, self.length = width // heads // 2, length

    def forward(self, ids, place):
        turns = 500000.0 ** (-torch.arange(self.half, device=ids.device) / self.half)
        angles = torch.cat(2 * (place[:, None].float() * turns,), -1)
        x = self.words(ids)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        mask = (torch.arange(self.length, device=ids.device) <= place)[None, None, None]
        for layer in self.layers:
            x = layer(x, place, cos, sin, mask)
        return F.linear(self.norm(x), self.words.weight)


def token(**sizes):
    """The model of one token, and its inputs."""
    return Token(**sizes), (torch.tensor([[5]]), torch.tensor([sizes.get("length", 4096) * 3 // 4]))
