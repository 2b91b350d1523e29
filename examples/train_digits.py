"""Trains two small networks on handwritten digits, with eager PyTorch and with Litz, and draws their losses.

    python examples/train_digits.py [--epochs N] [--plot losses.svg]

The digits are those that scikit-learn ships: 1797 images of 8 x 8 pixels. Both backends start from the same weights and see the same
batches, so that their curves are equal but for rounding errors, which training lets grow.
"""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F


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


def train(network, backend, images, labels, epochs):
    """Losses of each step, and seconds from the second epoch on."""
    torch.manual_seed(0)
    model = network()
    forward = torch.compile(model, backend=backend) if backend else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, start = [], time.time()
    for epoch in range(epochs):
        if epoch == 1:
            start = time.time()
        for batch in torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch)).split(128)[:-1]:
            optimizer.zero_grad()
            loss = F.cross_entropy(forward(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, time.time() - start


def plot(curves, path):
    """Draws curves as an SVG file."""
    most, steps = max(max(losses) for losses in curves.values()), max(map(len, curves.values()))
    colors = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728"]
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" font-family="sans-serif" font-size="12">',
             '<rect width="640" height="360" fill="white"/>',
             '<path d="M50 20 V320 H620" fill="none" stroke="black"/>',
             f'<text x="50" y="338">step 0</text><text x="590" y="338">{steps}</text><text x="8" y="28">{most:.1f}</text>']
    for at, (name, losses) in enumerate(curves.items()):
        points = " ".join(f"{50 + 570 * step / steps:.1f},{320 - 300 * loss / most:.1f}" for step, loss in enumerate(losses))
        dashes = ' stroke-dasharray="6 4"' if at % 2 else ""
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colors[at]}" stroke-width="1.5"{dashes}/>')
        lines.append(f'<text x="420" y="{40 + 18 * at}" fill="{colors[at]}">{name}</text>')
    with open(path, "w") as file:
        file.write("\n".join([*lines, "</svg>", ""]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--plot", default="losses.svg", metavar="FILE")
    options = parser.parse_args()
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    curves = {}
    for network in (Convolutions, Transformer):
        for name, backend in (("eager", None), ("litz", "litz")):
            losses, seconds = train(network, backend, images, labels, options.epochs)
            curves[f"{network.__name__}, {name}"] = losses
            print(f"{network.__name__}, {name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, {seconds:.2f} s")
        ours, theirs = curves[f"{network.__name__}, litz"], curves[f"{network.__name__}, eager"]
        print(f"{network.__name__}: losses differ by at most {max(abs(a - b) for a, b in zip(ours, theirs)):.1e}")
    plot(curves, options.plot)
    print(f"drawn in {options.plot}")


if __name__ == "__main__":
    main()
