"""Sampling by grids."""

from harness import *

image = rand(2, 2, 3, 4)
grid = torch.tensor([-1.0, -1.0, 1.0, 1.0, 0.0, 0.0, -0.5, 0.75, 1.25, -1.75, 0.3, -3.6, 2.5, 0.1, -0.9, 0.95]).reshape(1, 2, 4, 2)
grid = torch.cat([grid, grid.flip(2) * 0.7 + 0.05])
strange = grid[:1, :1].clone()
strange[0, 0, 0] = NAN
strange[0, 0, 1, 0] = INF
for align in (False, True):
    for padding in (0, 1, 2):
        for mode in (0, 1, 2):
            case(aten.grid_sampler_2d.default, image, grid, mode, padding, align)
case(aten.grid_sampler_2d.default, image.double(), grid.double(), 0, 0, False)
case(aten.grid_sampler_2d.default, image[:, :, :1, :1], grid, 0, 2, True)
case(aten.grid_sampler_2d.default, image[:1], strange, 1, 0, False)
case(aten.grid_sampler.default, image.contiguous(memory_format=torch.channels_last), grid, 0, 0, True)
volume = torch.tensor([-1.0, -1.0, 1.0, 0.2, 0.4, -0.3, 1.5, -1.2, 0.9]).reshape(1, 1, 1, 3, 3)
case(aten.grid_sampler_3d.default, rand(1, 2, 2, 3, 2), volume, 0, 0, False)
case(aten.grid_sampler_3d.default, rand(1, 2, 2, 3, 2), volume, 1, 2, True)
for align in (False, True):
    case(aten.affine_grid_generator.default, rand(2, 2, 3), [2, 3, 4, 5], align)
    case(aten.affine_grid_generator.default, rand(1, 2, 3), [1, 1, 1, 3], align)
    case(aten.affine_grid_generator.default, rand(1, 3, 4), [1, 1, 2, 3, 2], align)
