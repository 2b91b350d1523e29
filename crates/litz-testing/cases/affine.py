"""Dequantisation as torchao exports it; its package is wanted to record these."""

import torchao.quantization.quant_primitives  # registers operators
from harness import *

dequantize = torch.ops.torchao.dequantize_affine.default
i8, u8, f16, bf16, f32 = torch.int8, torch.uint8, torch.float16, torch.bfloat16, torch.float32
n, m = torch.randint(-8, 8, (6, 16), dtype=i8), torch.randint(0, 256, (6, 16), dtype=u8)
scales = rand(6, 4).abs() + 0.25
zeros = torch.randint(-8, 8, (6, 4), dtype=i8)

case(dequantize, n, [1, 4], scales, zeros, i8, -8, 7, f32)
case(dequantize, n, [1, 4], scales, None, i8, -8, 7, f32)
case(dequantize, n, [1, 16], scales[:, 0], zeros[:, 0], i8, None, None, f32)
case(dequantize, m, [1, 16], scales[:, :1], zeros[:, 0].to(torch.int32).abs(), u8, 0, 255, f32)
case(dequantize, n, [6, 16], scales[0, 0], torch.tensor(3, dtype=i8), i8, None, None, f32)
case(dequantize, n, [2, 8], scales[:3, :2], zeros[:3, :2], i8, None, None, f32)
case(dequantize, n, [1, 4], scales.to(bf16), zeros, i8, -8, 7, output_dtype=bf16)
case(dequantize, n, [1, 4], scales, zeros, i8, -8, 7, output_dtype=f16)
