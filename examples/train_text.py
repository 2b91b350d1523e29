"""Trains a small character transformer on Python's own documentation, in eager PyTorch and with Litz, and draws their losses.

    python examples/train_text.py [--steps N] [--layers N] [--width N] [--plot text.svg]

The text is the language reference that Python ships in `pydoc_data`. Both models start from the same weights and see the same batches in
turns, so that their losses are equal but for rounding errors, which training lets grow.
"""

import argparse

import pydoc_data.topics
import torch
from side_by_side import plot, train
from torch import nn
from torch.nn import functional as F

CONTEXT = 64
BATCH = 16
CHARACTERS = "\n" + "".join(map(chr, range(ord(" "), 127)))


class Block(nn.Module):
    """Causal attention and a feed-forward network, each behind a layer norm and beside a residual."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.before_attention, self.before_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.attention(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.mix(seen.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.feed(self.before_feed(x)))


class Transformer(nn.Module):
    """Logits of the next character, at each place of a text."""

    def __init__(self, layers=3, width=64, heads=4, dropout=0.0):
        super().__init__()
        self.characters = nn.Embedding(len(CHARACTERS), width)
        self.places = nn.Parameter(torch.randn(CONTEXT, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(CHARACTERS))

    def forward(self, tokens):
        x = self.characters(tokens) + self.places[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def text() -> torch.Tensor:
    """The language reference, as numbers of its characters."""
    topics = pydoc_data.topics.topics
    everything = "\n\n".join(topics[name] for name in sorted(topics))
    number = {character: at for at, character in enumerate(CHARACTERS)}
    return torch.tensor([number[character] for character in everything if character in number])


def batches(tokens, steps, rows=BATCH, seed=0):
    """Pieces of a text from anywhere in it, with one character more than a model sees."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        starts = torch.randint(len(tokens) - CONTEXT, (rows,), generator=generator)
        yield torch.stack([tokens[start : start + CONTEXT + 1] for start in starts])


def loss_of(forward, batch):
    """How badly each character of a batch is foretold by those before it."""
    return F.cross_entropy(forward(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def compare(steps, layers=3, width=64, backend="litz", every=0):
    """Trains both."""
    torch.manual_seed(0)
    model = Transformer(layers, width)
    optimizer_of = lambda parameters: torch.optim.AdamW(parameters, lr=2e-3)
    return train(model, optimizer_of, loss_of, batches(text(), steps), backend, every)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--every", type=int, default=20, metavar="STEPS", help="how often losses are printed")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--backend", default="litz", help="another backend of torch.compile")
    parser.add_argument("--plot", default="text.svg", metavar="FILE")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    comparison = compare(options.steps, options.layers, options.width, options.backend, options.every)
    print(comparison)
    plot({run.name: run.losses for run in (comparison.eager, comparison.compiled)}, options.plot, "loss of a character, nats")
    print(f"drawn in {options.plot}")
    return 0 if comparison.agrees else 1


if __name__ == "__main__":
    raise SystemExit(main())
