"""Reads the graphs of `litz-testing/consumers/graphs.txt`, with what calls of them are given and what they give."""

import pathlib
import re

import torch

from litz.graphs import TYPES

ROOT = pathlib.Path(__file__).parents[4]
LIST = ROOT / "crates" / "litz-testing" / "consumers" / "graphs.txt"

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def listed():
    """The kind and the path of each graph."""
    return [(kind, ROOT / path) for kind, path in (line.split() for line in LIST.read_text().splitlines())]


def tensor(words: str):
    """A tensor that is written as `f32[2, 3] 1 2 3 nan inf -1`."""
    name, sizes, elements = re.fullmatch(r"(\w+)\[([^]]*)\] ?(.*)", words).groups()
    dtype, shape = TYPES[name], [int(size) for size in sizes.split(",") if size.strip()]
    numbers = [word == "true" if dtype is torch.bool else float(word) if dtype.is_floating_point else int(word) for word in elements.split()]
    precise = torch.float64 if dtype.is_floating_point else dtype
    return torch.tensor(numbers, dtype=precise).to(dtype).reshape(shape)


class Example:
    """A graph, its constants, and calls: what each is given."""

    def __init__(self, path):
        self.text, self.constants, self.calls = path.read_text(), {}, []
        for line in self.text.splitlines():
            if found := re.fullmatch(r'//< const "(.*?)" (.*)', line):
                self.constants[found[1]] = tensor(found[2])
            elif found := re.fullmatch(r"//< in\.(\d+) (.*)", line):
                if found[1] == "0":
                    self.calls.append([])
                self.calls[-1].append(tensor(found[2]))

    def args(self, call):
        """What a call is given: numbers where the graph takes these."""
        kinds = re.findall(r"^  %\S+: (.*) = input", self.text, re.MULTILINE)
        return [given.item() if re.match(r"int|float$|bool$", kind) else given.clone() for given, kind in zip(call, kinds, strict=True)]


def bits(value):
    """A result as something that is equal where all bits are."""
    if not isinstance(value, torch.Tensor):
        return torch.tensor(value, dtype=torch.float64).view(torch.int64).item() if isinstance(value, float) else value
    value = torch.view_as_real(value) if value.is_complex() else value
    return str(value.dtype), tuple(value.shape), value.contiguous().reshape(-1).view(BITS[value.itemsize]).tolist()
