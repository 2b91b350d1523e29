"""Builds the models that `gpu_times.py` times, from PyTorch's and torchvision's modules."""

import contextlib
import functools

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


def doubled(make):
    """The same model, and twice as many images."""
    module, given = make()
    return module, tuple(torch.cat((images, images)) for images in given)


def captured_table():
    """Models whose calls are captured, with the type of their weights."""
    rows = {name: (make, torch.bfloat16) for name, make in model_table().items()}
    ids = lambda words, length: (torch.randint(0, words, (1, length)),)
    rows |= {
        "llama, 1 x 1024": (lambda: (Prompt(), ids(128256, 1024)), torch.bfloat16),
        "eight experts, 4096 tokens": (lambda: (Experts(), (torch.randn(4096, 4096),)), torch.bfloat16),
        "gpt2, 1 x 128": (lambda: (Transformer(50257, is_causal=True), ids(50257, 128)), torch.bfloat16),
        "bert-base, 1 x 128, float32": (lambda: (Transformer(30522), ids(30522, 128)), torch.float32),
    }
    for name in ("resnet50", "vit-b"):
        if name in rows:
            rows[f"{name}, 32 images"] = (functools.partial(doubled, rows[name][0]), torch.bfloat16)
    return rows


def rotated(x, cos, sin):
    """Pairs of a head's elements, half of it apart, turned by the angles of a place."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class DecoderLayer(nn.Module):
    """A layer of a decoder: grouped heads, and a gate. How heads attend the model says."""

    def __init__(self, width, heads, groups, up):
        super().__init__()
        linear = lambda rows, columns: nn.Linear(rows, columns, bias=False)
        self.heads, self.groups, self.head = heads, groups, width // heads
        self.norms = nn.ModuleList(nn.RMSNorm(width, 1e-5) for _ in range(2))
        self.q, self.out = linear(width, width), linear(width, width)
        self.k, self.v = linear(width, groups * self.head), linear(width, groups * self.head)
        self.gate, self.up, self.down = linear(width, up), linear(width, up), linear(up, width)

    def forward(self, x, cos, sin, attend):
        normed = self.norms[0](x)
        split = lambda y, heads: y.view(1, -1, heads, self.head).transpose(1, 2)
        q = rotated(split(self.q(normed), self.heads), cos, sin)
        k = rotated(split(self.k(normed), self.groups), cos, sin)
        x = x + self.out(attend(q, k, split(self.v(normed), self.groups)).transpose(1, 2).reshape(x.shape))
        normed = self.norms[1](x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    """A decoder by the sizes of LLaMA 3.2 with 1.2 billion weights. The last product is by the embedding."""

    def __init__(self, words=128256, width=2048, layers=16, heads=32, groups=8, up=8192):
        super().__init__()
        self.words, self.norm = nn.Embedding(words, width), nn.RMSNorm(width, 1e-5)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, groups, up) for _ in range(layers))
        self.half = width // heads // 2

    def decode(self, ids, places, attend):
        """Scores of the words behind these, of which `attend` takes the queries, keys and values of a layer, and its number."""
        turns = 500000.0 ** (-torch.arange(self.half, device=ids.device) / self.half)
        angles = torch.cat(2 * (places[:, None].float() * turns,), -1)
        x = self.words(ids)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for number, layer in enumerate(self.layers):
            x = layer(x, cos, sin, lambda *of_layer, number=number: attend(number, *of_layer))
        return F.linear(self.norm(x), self.words.weight)


class Prompt(Decoder):
    """All words of a prompt at once."""

    def forward(self, ids):
        attend = lambda _, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.decode(ids, torch.arange(ids.shape[1], device=ids.device), attend)


class Token(Decoder):
    """One token of a decoder with a cache of fixed length."""

    def __init__(self, length=4096, **sizes):
        super().__init__(**sizes)
        self.length = length
        for number, layer in enumerate(self.layers):
            for name in ("keys", "values"):
                self.register_buffer(f"{name}{number}", torch.zeros(1, layer.groups, length, layer.head))

    def forward(self, ids, place):
        mask = (torch.arange(self.length, device=ids.device) <= place)[None, None, None]

        def attend(number, q, k, v):
            keys, values = (getattr(self, f"{name}{number}") for name in ("keys", "values"))
            keys.index_copy_(2, place, k)
            values.index_copy_(2, place, v)
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)

        return self.decode(ids, place, attend)


class Experts(nn.Module):
    """The feed-forward part of a layer by the sizes of Mixtral: each token goes through two of eight experts, whose tokens are sorted to be neighbours."""

    def __init__(self, width=4096, up=14336, experts=8, active=2):
        super().__init__()
        self.active, self.scores = active, nn.Linear(width, experts, bias=False)
        matrices = lambda rows, columns: nn.Parameter(torch.randn(experts, rows, columns) * rows**-0.5)
        self.gate, self.up, self.down = matrices(width, up), matrices(width, up), matrices(up, width)

    def forward(self, x):
        shares, chosen = self.scores(x).float().softmax(-1).topk(self.active)
        order = chosen.flatten().argsort(stable=True)
        tokens = order // self.active
        ends = (chosen.flatten()[:, None] == torch.arange(len(self.up), device=x.device)).sum(0).cumsum(0).int()
        rows = x[tokens]
        inner = F.silu(torch._grouped_mm(rows, self.gate, ends)) * torch._grouped_mm(rows, self.up, ends)
        shares = (shares / shares.sum(-1, keepdim=True)).flatten()[order].to(x.dtype)
        return torch.zeros_like(x).index_add(0, tokens, torch._grouped_mm(inner, self.down, ends) * shares[:, None])


def token(**sizes):
    """The model of one token, and its inputs."""
    return Token(**sizes), (torch.tensor([[5]]), torch.tensor([sizes.get("length", 4096) * 3 // 4]))
