"""Gradients of attention."""

from harness import *

flash = aten._scaled_dot_product_flash_attention_for_cpu.default


def attend(q, k, v, causal=False, mask=None, scale=None):
    out, sums = flash(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
    case(aten._scaled_dot_product_flash_attention_for_cpu_backward.default, like(out), q, k, v, out, sums, 0.0, causal,
         attn_mask=mask, scale=scale)


attend(rand(2, 2, 3, 4), rand(2, 2, 5, 4), rand(2, 2, 5, 4))
attend(rand(1, 2, 4, 8), rand(1, 2, 4, 8), rand(1, 2, 4, 8), True)
attend(rand(1, 1, 3, 4), rand(1, 1, 5, 4), rand(1, 1, 5, 4), True, scale=0.25)
attend(rand(1, 5, 2, 4).transpose(1, 2), rand(1, 3, 2, 4).transpose(1, 2), rand(1, 3, 2, 4).transpose(1, 2))
hidden = torch.zeros(3, 3)
hidden[0, 2], hidden[1] = -INF, -INF
attend(rand(2, 1, 3, 4), rand(2, 1, 3, 4), rand(2, 1, 3, 4), mask=hidden)
attend(rand(2, 2, 3, 4), rand(2, 2, 3, 4), rand(2, 2, 3, 4), mask=rand(2, 1, 3, 3))
attend(rand(1, 2, 3, 8, dtype=bf16), rand(1, 2, 3, 8, dtype=bf16), rand(1, 2, 3, 8, dtype=bf16), True)
attend(rand(1, 1, 3, 8, dtype=f16), rand(1, 1, 3, 8, dtype=f16), rand(1, 1, 3, 8, dtype=f16), mask=rand(3, 3, dtype=f16))
attend(rand(1, 1, 2, 4, dtype=f64), rand(1, 1, 3, 4, dtype=f64), rand(1, 1, 3, 4, dtype=f64))
