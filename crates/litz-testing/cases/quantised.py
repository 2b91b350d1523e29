"""Quantisation, dequantisation, and products of packed integers."""

import torch.ao.quantization.fx._decomposed  # registers operators
from harness import *

q = torch.ops.quantized_decomposed
x = rand(3, 4, 8) * 7
i8, u8, i32, f32, f64 = torch.int8, torch.uint8, torch.int32, torch.float32, torch.float64
scales, zeros = torch.tensor([0.1, 0.25, 1.0, 0.5]), torch.tensor([0, 2, -1, 7])

case(q.quantize_per_tensor.default, x, 0.125, 3, -128, 127, i8)
case(q.quantize_per_tensor.default, x, 0.1, 120, 0, 255, u8)
case(q.quantize_per_tensor.default, x.to(torch.bfloat16), 0.05, 0, -8, 7, i8)
case(q.quantize_per_tensor.tensor, x, torch.tensor([0.3]), torch.tensor([5]), -128, 127, i8)
case(q.quantize_per_tensor.tensor, x, torch.tensor(0.3, dtype=f64), torch.tensor(5, dtype=i32), -128, 127, i8)
case(q.quantize_per_channel.default, x, scales, zeros, 1, -128, 127, i8)
case(q.quantize_per_channel.default, x[:, 0], scales[:3].to(f64), zeros[:3].to(i32), 0, 0, 15, u8)
tokens, token_zeros = rand(3, 4, 1).abs() + 0.1, torch.tensor([-3, 0, 4, 1]).repeat(3).reshape(3, 4, 1)
case(q.quantize_per_token.default, x, tokens.to(f64), token_zeros, -128, 127, i8)
case(q.quantize_per_token.default, x, tokens, token_zeros.to(f32), -128, 127, i8)
case(q.quantize_per_channel_group.default, x[0], rand(4, 2).abs() + 0.1, torch.ones(4, 2, dtype=i32), -8, 7, i8, 4)

n = torch.randint(-128, 128, (3, 4, 8), dtype=i8)
m = torch.randint(0, 256, (3, 4, 8), dtype=u8)
case(q.dequantize_per_tensor.default, n, 0.125, 3, -128, 127, i8)
case(q.dequantize_per_tensor.default, m, 0.1, 128, 0, 255, u8)
case(q.dequantize_per_tensor.default, n, 0.1, 3, -128, 127, i8, out_dtype=torch.bfloat16)
case(q.dequantize_per_tensor.tensor, n, torch.tensor([0.3]), torch.tensor([5]), -128, 127, i8)
case(q.dequantize_per_channel.default, n, scales, zeros, 1, -128, 127, i8)
case(q.dequantize_per_channel.default, m, scales, zeros.to(i32), 1, 0, 255, u8)
case(q.dequantize_per_channel.default, n, scales, None, 1, -128, 127, i8)
case(q.dequantize_per_channel.default, n, scales[:3].to(f64), zeros[:3], 0, -128, 127, i8, out_dtype=torch.float16)
case(q.dequantize_per_token.default, n, tokens.to(f64), token_zeros, -128, 127, i8, f32)
case(q.dequantize_per_token.default, n, tokens, token_zeros.to(f32), -128, 127, i8, torch.bfloat16)
case(q.dequantize_per_channel_group.default, n[0], rand(4, 2).abs(), torch.ones(4, 2, dtype=i32), -128, 127, i8, 4, f32)
case(q.dequantize_per_channel_group.default, n[0], rand(4, 1).abs(), None, -128, 127, i8, 32, torch.float16)

for y in (x, x.abs() + 1, -x.abs(), torch.zeros(2, 3)):
    case(q.choose_qparams.tensor, y, -128, 127, 1e-5, i8)
    case(q.choose_qparams_symmetric.tensor, y, -127, 127, 1e-5, i8)
    case(q.choose_qparams_per_token_asymmetric.default, y, i8)
case(q.choose_qparams.tensor, x, 0, 255, 1e-5, u8)
case(q.choose_qparams_symmetric.tensor, x, 0, 255, 1e-5, u8)
case(q._choose_qparams_per_token_asymmetric_impl.default, x, i8)

# PyTorch's kernel reads past the end of other extents.
w, wide = torch.randint(-128, 128, (16, 32), dtype=i8), rand(3, 32)
case(aten._weight_int8pack_mm.default, wide, w, rand(16).abs())
case(aten._weight_int8pack_mm.default, wide.to(torch.bfloat16), w, rand(16).abs().to(torch.bfloat16))
for columns in (16, 64, 80):
    levels = torch.randint(0, 16, (columns, 32), dtype=i32)
    case(aten._convert_weight_to_int4pack_for_cpu.default, levels, 2)
    packed = aten._convert_weight_to_int4pack_for_cpu.default(levels, 2)
    case(aten._weight_int4pack_mm_for_cpu.default, rand(3, 32), packed, 32, rand(1, columns, 2))
