"""Trains a small language model on Python's own documentation and writes examples/text.pt2: python examples/make_text_model.py

The archive takes a token, its position, a temperature and a seed, and gives the next token and the logits that it was drawn
from. Keys and values of earlier positions are buffers of the model, which a call stores one row of; weights are integers of
eight bits with a scale for each row; sampling is part of the graph. `extra/generation.json` in it has the text of each token
and the number of positions. What PyTorch generates with it goes to examples/text.safetensors, for tests.

The text is what Python ships with: the language reference of `pydoc_data` and the docstrings of the standard library.
Training takes 15 minutes on two cores.
"""

import ast
import collections
import json
import math
import pathlib
import re
import sys
import sysconfig
import time

import pydoc_data.topics
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCABULARY = 512
CONTEXT = 256
WIDTH = 128
HEADS = 4
HEAD = WIDTH // HEADS
LAYERS = 3
TOP = 40
BATCH = 16
STEPS = 3500
LARGEST_LOSS = 3.0
PROMPT = "The following function returns"
SEED = 7
SHOWN = 48


def text() -> str:
    """The language reference and the docstrings of the standard library, as ASCII."""
    parts = [pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)]
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(folder.glob("*.py")) + sorted(folder.glob("[a-z]*/*.py")):
        if "test" in path.parts[-2] or "packages" in path.parts[-2]:
            continue
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8", errors="replace")))
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        found = (ast.get_docstring(node) for node in nodes if isinstance(node, kinds))
        parts += [docstring for docstring in found if docstring and len(docstring) > 80]
    everything = "\n\n".join(parts)
    return "".join(c for c in everything if c == "\n" or " " <= c <= "~")


def vocabulary(corpus: str) -> list[str]:
    """Characters, and pieces of words that are merged from frequent neighbours (byte pair encoding)."""
    words = collections.Counter(re.findall(r" ?[A-Za-z]+| ?[0-9]+|\n+| +|[^\sA-Za-z0-9]+", corpus))
    pieces = {word: list(word) for word in words}
    tokens = sorted({c for word in words for c in word})
    while len(tokens) < VOCABULARY:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(pieces[word], pieces[word][1:]):
                pairs[pair] += count
        (left, right), _ = min(pairs.items(), key=lambda item: (-item[1], item[0]))
        tokens.append(left + right)
        for word, parts in pieces.items():
            if left + right in word:
                merged = []
                for part in parts:
                    if merged and merged[-1] == left and part == right:
                        merged[-1] = left + right
                    else:
                        merged.append(part)
                pieces[word] = merged
    return tokens


def encode(corpus: str, tokens: list[str]) -> torch.Tensor:
    """Numbers of tokens: at each place the longest one that fits, which is also how `litz generate` reads a prompt."""
    longest_first = sorted(tokens, key=len, reverse=True)
    pattern = re.compile("|".join(re.escape(token) for token in longest_first))
    numbers = {token: number for number, token in enumerate(tokens)}
    return torch.tensor([numbers[match] for match in pattern.findall(corpus)], dtype=torch.int64)


def rotated(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of [.., positions, size of a head]."""
    half = x.shape[-1] // 2
    frequencies = torch.exp(torch.arange(half, device=x.device) * (-math.log(10000.0) / half))
    angles = positions[:, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


class Linear(nn.Module):
    """A linear layer without bias, whose weight becomes integers by `quantize`."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * inputs**-0.5)
        self.is_quantized = False

    def quantize(self) -> None:
        scale = self.weight.detach().abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
        rounded = (self.weight.detach() / scale).round().to(torch.int8)
        del self.weight
        self.register_buffer("weight", rounded)
        self.register_buffer("scale", scale)
        self.is_quantized = True

    def table(self) -> torch.Tensor:
        return self.weight.to(torch.float32) * self.scale if self.is_quantized else self.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.table())


class Block(nn.Module):
    """Attention whose heads share keys and values, and a gated layer; in steps, those of earlier positions are buffers."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = Linear(WIDTH, WIDTH + 2 * HEAD), Linear(WIDTH, WIDTH)
        self.up, self.down = Linear(WIDTH, 4 * WIDTH), Linear(2 * WIDTH, WIDTH)
        cache = torch.zeros(1, 1, CONTEXT, HEAD)
        self.register_buffer("keys", cache.clone(), persistent=False)
        self.register_buffer("values", cache.clone(), persistent=False)

    def forward(self, x: torch.Tensor, positions: torch.Tensor, step: bool) -> torch.Tensor:
        heads = self.qkv(self.norms[0](x)).unflatten(-1, (HEADS + 2, HEAD)).transpose(1, 2)
        query, key, value = heads.split([HEADS, 1, 1], 1)
        query, key = rotated(query, positions), rotated(key, positions)
        if step:
            self.keys.index_copy_(2, positions, key)
            self.values.index_copy_(2, positions, value)
            seen = (torch.arange(CONTEXT) <= positions)[None, None, None, :]
            shared = self.keys.expand(-1, HEADS, -1, -1), self.values.expand(-1, HEADS, -1, -1)
            mixed = F.scaled_dot_product_attention(query, *shared, attn_mask=seen)
        else:
            shared = key.expand(-1, HEADS, -1, -1), value.expand(-1, HEADS, -1, -1)
            mixed = F.scaled_dot_product_attention(query, *shared, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        up, gate = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(up * F.silu(gate))


class Text(nn.Module):
    """Logits of all next tokens."""

    def __init__(self):
        super().__init__()
        self.tokens = Linear(WIDTH, VOCABULARY)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, step: bool = False) -> torch.Tensor:
        x = F.embedding(tokens, self.tokens.table()) * WIDTH**0.5
        for block in self.blocks:
            x = block(x, positions, step)
        return self.tokens(self.norm(x))


class Step(nn.Module):
    """One token after another: (token, position, temperature, seed) to (next token, logits)."""

    def __init__(self, model: Text):
        super().__init__()
        self.model = model

    def forward(
        self, token: torch.Tensor, position: torch.Tensor, temperature: torch.Tensor, seed: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.model(token[None], position, step=True)[0]
        values, tokens = logits.topk(TOP, -1)
        shares = (values / temperature.clamp(min=1e-4)).softmax(-1).cumsum(-1)
        # A number in [0, 1) that seed and position decide: bits of a product that wraps around, mixed twice.
        bits = (seed * 6364136223846793005 + position + 1) * -7046029254386353131
        for _ in range(2):
            bits = (bits ^ ((bits >> 32) & 0xFFFFFFFF)) * -4658895280553007687
        chance = ((bits >> 40) & 0xFFFFFF).to(torch.float32) / 2**24
        place = (shares < chance[:, None]).sum(-1, keepdim=True).clamp(max=TOP - 1)
        return tokens.gather(-1, place)[:, 0], logits


def train(data: torch.Tensor, held_out: torch.Tensor) -> Text:
    """The model after STEPS batches."""
    torch.manual_seed(0)
    model = Text()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=STEPS, pct_start=0.05)
    positions = torch.arange(CONTEXT)
    start = time.time()
    for step in range(STEPS):
        places = torch.randint(len(data) - CONTEXT - 1, (BATCH,))
        batch = torch.stack([data[place : place + CONTEXT + 1] for place in places])
        logits = model(batch[:, :-1], positions)
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            print(f"{step + 1} of {STEPS} steps, loss {loss.item():.3f}, {time.time() - start:.0f} s", flush=True)
    model.requires_grad_(False)
    for module in model.modules():
        if isinstance(module, Linear):
            module.quantize()
    with torch.no_grad():
        batch = held_out[: len(held_out) // (CONTEXT + 1) * (CONTEXT + 1)].unflatten(0, (-1, CONTEXT + 1))[:64]
        loss = F.cross_entropy(model(batch[:, :-1], positions).flatten(0, 1), batch[:, 1:].flatten()).item()
    print(f"loss of text that it was not trained on: {loss:.3f}")
    if loss > LARGEST_LOSS:
        sys.exit(f"error: expected at most {LARGEST_LOSS}")
    return model.eval()


def export(model: Text) -> torch.export.ExportedProgram:
    """One step. Of each node, the line of this file that it is from is kept, and nothing else."""
    inputs = (torch.tensor([0]), torch.tensor([0]), torch.tensor(1.0), torch.tensor(0))
    with torch.no_grad():
        program = torch.export.export(Step(model), inputs)
    for node in program.graph.nodes:
        lines = node.meta.get("stack_trace", "").replace(f"{ROOT}/", "").splitlines()
        places = [at for at, line in enumerate(lines) if line.lstrip().startswith('File "examples/')]
        for name in ("nn_module_stack", "torch_fn", "source_fn_stack", "stack_trace"):
            node.meta.pop(name, None)
        if places:
            node.meta["stack_trace"] = "\n".join(lines[places[-1] :][:2])
    return program


def generated(program: torch.export.ExportedProgram, tokens: list[str]) -> dict[str, torch.Tensor]:
    """What PyTorch goes on with: `SHOWN` likeliest tokens and as many drawn ones, and logits behind the prompt."""
    prompt = encode(PROMPT, tokens)
    found = {"prompt": prompt}
    for name, temperature in [("likeliest", 0.0), ("drawn", 0.8)]:
        step, chosen = program.module(), []
        for position in range(len(prompt) + SHOWN - 1):
            token = prompt[position] if position < len(prompt) else chosen[-1]
            inputs = (token.reshape(1), torch.tensor([position]), torch.tensor(temperature), torch.tensor(SEED))
            following, logits = step(*inputs)
            if position == len(prompt) - 1:
                found["logits"] = logits
            if position >= len(prompt) - 1:
                chosen.append(following)
        found[name] = torch.cat(chosen)
    return found


def main() -> None:
    corpus = text()
    tokens = vocabulary(corpus)
    data = encode(corpus, tokens)
    print(f"{len(corpus)} characters, {len(data)} tokens of {VOCABULARY} kinds")
    split = len(data) * 19 // 20
    model = train(data[:split], data[split:])
    path = ROOT / "examples" / "text.pt2"
    described = json.dumps({"vocabulary": tokens, "context": CONTEXT})
    program = export(model)
    torch.export.save(program, path, extra_files={"generation.json": described})
    print(f"examples/text.pt2: {path.stat().st_size / 1024:.0f} KiB")
    save_file(generated(program, tokens), path.with_suffix(".safetensors"))


if __name__ == "__main__":
    main()
