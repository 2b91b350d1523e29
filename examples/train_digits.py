"""Trains two small networks on handwritten digits, in eager PyTorch and with Litz, and draws their losses.

    python examples/train_digits.py [--epochs N] [--plot digits.svg]

The digits are those that scikit-learn ships: 1797 images of 8 x 8 pixels. Both models start from the same weights and see the same
batches in turns, so that their losses are equal but for rounding errors, which training lets grow.
"""

import argparse

import torch
from side_by_side import plot, train
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

BATCH = 128


class Convolutions(nn.Module):
    """Two convolutions with batch normalisation, and a layer on top."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10),
        )

    def forward(self, images):
        return self.layers(images)


class Transformer(nn.Module):
    """Attention among the rows of an image."""

    def __init__(self, width=32):
        super().__init__()
        self.rows = nn.Linear(8, width)
        self.places = nn.Parameter(torch.randn(8, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        return self.head(self.encoder(self.rows(images.squeeze(1)) + self.places).mean(1))


def batches(epochs):
    """Images and labels, in another order in each epoch."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    for epoch in range(epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(BATCH)[:-1]:
            yield images[batch], labels[batch]


def loss_of(forward, batch):
    """How badly the digits of a batch are recognised."""
    images, labels = batch
    return F.cross_entropy(forward(images), labels)


def compare(network, epochs, backend="litz"):
    """Trains both."""
    torch.manual_seed(0)
    model = network()
    optimizer_of = lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)
    return train(model, optimizer_of, loss_of, batches(epochs), backend)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--backend", default="litz", help="another backend of torch.compile")
    parser.add_argument("--plot", default="digits.svg", metavar="FILE")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    curves, agree = {}, True
    for network in (Convolutions, Transformer):
        comparison = compare(network, options.epochs, options.backend)
        print(f"{network.__name__}\n{comparison}")
        agree = agree and comparison.agrees
        curves |= {f"{network.__name__}, {run.name}": run.losses for run in (comparison.eager, comparison.compiled)}
    plot(curves, options.plot, "cross entropy of a digit")
    print(f"drawn in {options.plot}")
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main())
