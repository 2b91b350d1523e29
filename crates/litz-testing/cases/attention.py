"""Scaled dot-product attention."""

from harness import *

# Attention.
q, k, v = rand(2, 3, 4, 8), rand(2, 3, 5, 8), rand(2, 3, 5, 8)
sdpa = aten.scaled_dot_product_attention.default
case(sdpa, q, k, v)
case(sdpa, q, k, v, is_causal=True)
case(sdpa, q, k, v, scale=0.5)
case(sdpa, q, k, v, whole(2, 1, 4, 5) > -5)
case(sdpa, q, k, v, rand(4, 5))
case(sdpa, q, k, v, torch.tensor([[True] * 5, [False] * 5, [True, False] * 2 + [True], [True] * 5]))
case(sdpa, q.bfloat16(), k.bfloat16(), v.bfloat16(), is_causal=True)
case(sdpa, rand(2, 4, 4, 8), rand(2, 2, 5, 8), rand(2, 2, 5, 8), enable_gqa=True)
case(sdpa, rand(4, 8), rand(5, 8), rand(5, 6))
case(sdpa, q.transpose(1, 2).contiguous().transpose(1, 2), k, v)
case(aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, v, 0.0, True)
