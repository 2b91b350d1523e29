"""A Whisper with few weights: the whole model, and steps of its decoder with a cache that the module holds and writes to."""

import torch
import torch.nn as nn
from transformers import DynamicCache, EncoderDecoderCache, WhisperConfig, WhisperForConditionalGeneration
from transformers.integrations.executorch import Seq2SeqLMDecoderExportableModuleWithStaticCache

MELS, FRAMES, VOCABULARY, WIDTH, LENGTH = 8, 24, 40, 16, 16


def whisper() -> nn.Module:
    sizes = dict(d_model=WIDTH, encoder_ffn_dim=32, decoder_ffn_dim=32, encoder_layers=2, decoder_layers=2)
    heads = dict(encoder_attention_heads=2, decoder_attention_heads=2)
    tokens = dict(vocab_size=VOCABULARY, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3)
    lengths = dict(num_mel_bins=MELS, max_source_positions=FRAMES // 2, max_target_positions=LENGTH)
    return WhisperForConditionalGeneration(WhisperConfig(**sizes, **heads, **tokens, **lengths)).requires_grad_(False)


class Transcriber(nn.Module):
    """Scores of the tokens behind each of those given, for a sound."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, sound, tokens):
        return self.model(input_features=sound, decoder_input_ids=tokens, use_cache=False).logits


class DecoderStep(Seq2SeqLMDecoderExportableModuleWithStaticCache):
    """One token behind those whose keys and values the cache has, with attention to what the encoder made of a sound."""

    def __init__(self, model: nn.Module, length: int):
        model.lm_head = model.proj_out
        super().__init__(model, length, batch_size=1)

    def forward(self, tokens, states, position):
        # Of the cross attention, each step computes keys and values again: a step may belong to another sound.
        self.cache = EncoderDecoderCache(self.static_cache, DynamicCache(config=self.config))
        return super().forward(tokens, states, position)

    def _apply(self, change, recurse=True):
        # The cache holds the tensors that are the module's buffers: conversions have to reach both.
        super()._apply(change, recurse)
        for at, layer in enumerate(self.static_cache.layers):
            layer.keys, layer.values = getattr(self, f"key_cache_{at}"), getattr(self, f"value_cache_{at}")
            layer.cumulative_length = getattr(self, f"cumulative_length_{at}")
        return self


class Steps(nn.Module):
    """Several tokens, one after another: each step reads what those before it wrote."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.step = DecoderStep(model, LENGTH)

    def forward(self, tokens, states, position):
        return [self.step(token[None], states, position + at) for at, token in enumerate(tokens)]
