"""Simulated quantisation."""

from harness import *

x = rand(2, 3, 4) * 7
case(aten.fake_quantize_per_tensor_affine.default, x, 0.125, 3, -128, 127)
case(aten.fake_quantize_per_tensor_affine.default, x, 0.1, 0, 0, 15)
case(aten.fake_quantize_per_tensor_affine.tensor_qparams, x, torch.tensor(0.5), torch.tensor(2, dtype=torch.int32), -8, 7)
case(aten.fake_quantize_per_channel_affine.default, x, torch.tensor([0.1, 0.25, 1.0]),
     torch.tensor([0, 2, -1], dtype=torch.int32), 1, -128, 127)
