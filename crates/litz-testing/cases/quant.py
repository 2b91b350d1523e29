"""Simulated quantisation."""

import torch.ao.quantization.fx._decomposed  # registers operators
from harness import *

x = rand(2, 3, 4) * 7
case(aten.fake_quantize_per_tensor_affine.default, x, 0.125, 3, -128, 127)
case(aten.fake_quantize_per_tensor_affine.default, x, 0.1, 0, 0, 15)
case(aten.fake_quantize_per_tensor_affine.tensor_qparams, x, torch.tensor(0.5), torch.tensor(2, dtype=torch.int32), -8, 7)
case(aten.fake_quantize_per_channel_affine.default, x, torch.tensor([0.1, 0.25, 1.0]),
     torch.tensor([0, 2, -1], dtype=torch.int32), 1, -128, 127)

# Wide enough for levels on both sides of the range.
i32 = torch.int32
x = rand(2, 3, 4) * 40
channels = torch.tensor([0.1, 0.25, 1.0]), torch.tensor([0, 2, -1], dtype=i32), 1
case(aten.fake_quantize_per_tensor_affine_cachemask.default, x, 0.1, 3, -128, 127)
case(aten.fake_quantize_per_tensor_affine_cachemask.default, x, 0.3, 0, 0, 15)
case(aten.fake_quantize_per_channel_affine_cachemask.default, x, *channels, -128, 127)
for enabled in 1, 0:
    case(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default, x, torch.tensor([0.5]),
         torch.tensor([2], dtype=i32), torch.tensor([enabled]), -8, 7)
case(torch.ops.quantized_decomposed.fake_quant_per_channel.default, x, *channels, -8, 7)
