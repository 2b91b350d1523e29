"""Trains a small digit reader and writes what the `digits` example needs: python examples/make_digits.py

  examples/digits.pt2           torch.export archive, f32[batch, 1, 8, 8] -> f32[batch, 10], batch in 1..64
  examples/digits.safetensors   images f32[12, 1, 8, 8] in 0..1, labels i64[12], PyTorch's logits f32[12, 10]

The scans are scikit-learn's bundled ones (the UCI optical recognition set); the twelve images are held out from training.
Same seed, same files.
"""

import pathlib
import sys
import sysconfig

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

ROOT = pathlib.Path(__file__).resolve().parent.parent
EPOCHS = 40
BATCH = 64
MAX_BATCH = 64
LEAST_ACCURACY = 0.98


def network() -> nn.Module:
    """8x8 scans to ten logits; 21,578 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


def scans():
    """Images in 0..1 and labels, as ((train images, train labels), (test images, test labels))."""
    data = load_digits()
    train, test = train_test_split(range(len(data.target)), test_size=0.25, random_state=0, stratify=data.target)
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target, dtype=torch.int64)
    return (images[train], labels[train]), (images[test], labels[test])


def train(images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    """The network after EPOCHS passes over the images, in inference mode."""
    torch.manual_seed(0)
    model = network()
    steps = EPOCHS * (len(images) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    for _ in range(EPOCHS):
        # The last batch is dropped: one odd image would upset the batch statistics.
        for batch in torch.randperm(len(images)).split(BATCH)[: len(images) // BATCH]:
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def export(model: nn.Module) -> torch.export.ExportedProgram:
    """The model with a dynamic batch, its source lines without this machine's folders."""
    batch = torch.export.Dim("batch", min=1, max=MAX_BATCH)
    program = torch.export.export(model, (torch.zeros(2, 1, 8, 8),), dynamic_shapes=({0: batch},))
    for node in program.graph.nodes:
        trace = node.meta.get("stack_trace")
        if trace is None:
            continue
        for folder in (sysconfig.get_paths()["purelib"], ROOT):
            trace = trace.replace(f"{folder}/", "")
        node.meta["stack_trace"] = trace
    return program


def main() -> None:
    # One thread adds in one order, so that a second run gives the same file.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    (images, labels), (test_images, test_labels) = scans()
    model = train(images, labels)
    with torch.no_grad():
        logits = model(test_images)
    accuracy = (logits.argmax(1) == test_labels).double().mean().item()
    print(f"held-out accuracy: {100 * accuracy:.2f} % of {len(test_labels)} images")
    if accuracy < LEAST_ACCURACY:
        sys.exit(f"error: expected at least {100 * LEAST_ACCURACY:.0f} %")

    folder = ROOT / "examples"
    torch.export.save(export(model), folder / "digits.pt2")
    shown = {"images": test_images[:12], "labels": test_labels[:12], "logits": logits[:12]}
    save_file({name: tensor.contiguous() for name, tensor in shown.items()}, folder / "digits.safetensors")
    for name in ("digits.pt2", "digits.safetensors"):
        print(f"examples/{name}: {(folder / name).stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
