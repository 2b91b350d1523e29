"""Operators that others express."""

from harness import *

odd = torch.tensor([NAN, INF, -INF, -0.0, 0.0, 1.0, -2.5])
for f in (aten.isposinf, aten.isneginf, aten.isreal, aten.angle):
    case(f.default, odd)
    case(f.default, whole(3))
case(aten.angle.default, rand(3, dtype=bf16))
case(aten.logaddexp2.default, odd, torch.tensor([1.0, INF, -INF, 0.0, 2.0, 90.0, 4.0]))
case(aten.remainder.Scalar_Tensor, 7, whole(4, lo=1))
case(aten.remainder.Scalar_Tensor, 2.5, rand(4, lo=1))
for equal in (False, True):
    case(aten.isclose.default, odd, torch.tensor([NAN, INF, INF, 0.0, 1e-9, 1.00001, -2.6]), equal_nan=equal)
case(aten.isclose.default, whole(4), whole(4), 0.5, 1.0)
case(aten.isclose.default, rand(3, 1), rand(2), 0.0, 0.0)
case(aten._safe_softmax.default, torch.tensor([[1.0, -INF, 2.0], [-INF, -INF, -INF]]), -1)
case(aten._safe_softmax.default, torch.tensor([[1.0, -INF], [-INF, -INF]]).to(bf16), 0, f32)

# Products.
case(aten.outer.default, rand(3), rand(2))
case(aten.outer.default, whole(0), whole(2))
case(aten.inner.default, rand(2, 3), rand(4, 3))
case(aten.inner.default, rand(3), torch.tensor(2.0))
case(aten.addr.default, rand(3, 2), rand(3), rand(2), beta=0.5, alpha=2)
case(aten.addr.default, torch.full((3, 2), NAN), rand(3), rand(2), beta=0)
case(aten.addr.default, whole(2), whole(3), whole(2), alpha=3)
case(aten.addbmm.default, rand(2, 4), rand(3, 2, 5), rand(3, 5, 4), beta=2, alpha=0.5)
case(aten.addbmm.default, torch.full((4,), NAN), rand(3, 2, 5), rand(3, 5, 4), beta=0)
case(aten.linalg_vecdot.default, rand(2, 3), rand(3))
case(aten.linalg_vecdot.default, rand(2, 3), rand(2, 3), dim=0)
case(aten.linalg_cross.default, rand(2, 3), rand(2, 3))
case(aten.linalg_cross.default, rand(3, 4), rand(3, 1), dim=0)
case(aten.cross.default, rand(2, 3), rand(2, 3))
case(aten.cross.default, rand(3, 3), rand(3, 3), -1)
case(aten.bilinear.default, rand(4, 3), rand(4, 2), rand(5, 3, 2), rand(5))
case(aten.bilinear.default, rand(2, 1, 3), rand(2, 1, 2), rand(5, 3, 2))
for n in (0, 1, 2, 5):
    case(aten.linalg_matrix_power.default, rand(2, 3, 3), n)
case(aten.linalg_multi_dot.default, [rand(3), rand(3, 4), rand(4, 2)])
case(aten.linalg_multi_dot.default, [rand(2, 3), rand(3, 4), rand(4, 2), rand(2)])

# Sums.
case(aten.trace.default, rand(3, 4))
case(aten.trace.default, whole(2, 2))
case(aten.count_nonzero.default, odd)
case(aten.count_nonzero.default, rand(2, 3), 1)
case(aten.count_nonzero.dim_IntList, whole(2, 3, 2, lo=-1, hi=2), [0, -1])
for f in (aten.nansum, aten.nanmean):
    x = torch.tensor([[1.0, NAN, 2.0], [NAN, NAN, NAN]])
    case(f.default, x)
    case(f.default, x, 1)
    case(f.default, x, [0], True)
case(aten.nansum.default, whole(3), dtype=f32)
case(aten.nansum.default, torch.empty(0, 2), 0)
case(aten.sum_to_size.default, rand(2, 3, 4), [3, 1])
case(aten.sum_to_size.default, rand(2, 3), [2, 3])
case(aten.cumulative_trapezoid.dx, rand(2, 4), dx=0.5)
case(aten.cumulative_trapezoid.x, rand(2, 4), rand(4))
case(aten.cumulative_trapezoid.x, rand(3, 2), rand(3, 2), dim=0)
case(aten.trapezoid.x, rand(2, 4), rand(4))
case(aten.trapezoid.x, rand(3, 2), rand(3), dim=0)
case(aten.trapz.x, rand(2, 3), rand(2, 3))

# Elements put elsewhere.
case(aten.fliplr.default, rand(2, 3))
case(aten.flipud.default, rand(2, 3))
case(aten.column_stack.default, [rand(3), rand(3, 2), rand(3)])
case(aten.column_stack.default, [torch.tensor(1.0), torch.tensor(2.0)])
case(aten.cartesian_prod.default, [rand(2), rand(3)])
case(aten.cartesian_prod.default, [rand(2)])
case(aten.atleast_2d.Sequence, [rand(2), torch.tensor(1.0), rand(2, 2)])
case(aten.atleast_3d.Sequence, [rand(2), torch.tensor(1.0), rand(2, 2)])
for offset in (-1, 0, 2):
    case(aten.diag_embed.default, rand(2, 3), offset)
    case(aten.diag_embed.default, rand(2, 3), offset, 0, 1)
    case(aten.diag.default, rand(3), offset)
    case(aten.diag.default, rand(3, 4), offset)
    case(aten.diagflat.default, rand(2, 2), offset)
case(aten.diag_embed.default, rand(2, 0))
case(aten.diag_embed.default, whole(3), 0, -1, -2)
case(aten.roll.default, rand(2, 3), [2])
case(aten.roll.default, rand(2, 3, 2), [-5])
case(aten.repeat_interleave.self_int, rand(2, 3), 2)
case(aten.repeat_interleave.self_int, torch.tensor(1.0), 3)
case(aten.unfold.default, torch.tensor(1.0), 0, 1, 1)
case(aten.unfold.default, torch.tensor(1.0), -1, 0, 1)
case(aten.fft_fftshift.default, rand(3, 4))
case(aten.fft_ifftshift.default, rand(3, 5), [1])
case(aten._chunk_cat.default, [rand(4, 2), rand(3, 3)], 0, 2)
case(aten._chunk_cat.default, [rand(2, 4), rand(2, 3)], -1, 2)
case(aten.linalg_vander.default, rand(2, 3))
case(aten.linalg_vander.default, whole(3), N=4)
case(aten.linalg_vander.default, torch.tensor(2.0), N=3)
case(aten.linalg_diagonal.default, rand(2, 3, 4))
case(aten.linalg_diagonal.default, rand(2, 3, 4), offset=1, dim1=0, dim2=1)

# Variants.
case(aten.scatter.value_reduce, rand(2, 3), 1, torch.tensor([[0, 2, 2]]), 2.5, reduce="add")
case(aten.scatter.value_reduce, whole(3), 0, torch.tensor([1, 1]), 3, reduce="multiply")
case(aten.searchsorted.Scalar, torch.tensor([1.0, 2.0, 3.0]), 2)
case(aten.searchsorted.Scalar, torch.tensor([1, 2, 3]), 2.5, right=True)
index = torch.tensor([[0, 5], [-1, 1]])
mask = torch.tensor([[True, False], [False, True]])
case(aten._unsafe_masked_index.default, rand(3, 2), mask, [index, None], 1.5)
case(aten._unsafe_masked_index_put_accumulate.default, rand(3), mask, [index], rand(2, 2))
case(aten.feature_alpha_dropout.default, rand(2, 3), 0.5, False)
case(aten.rrelu.default, odd)
case(aten.multiply.Tensor, rand(3), rand(3))
case(aten.subtract.Tensor, rand(3), rand(3), alpha=2)
case(aten.divide.Tensor_mode, rand(3), rand(3, lo=1), rounding_mode="floor")
case(aten.clip.default, rand(3), -1, 1)
case(aten.special_expit.default, rand(3))
case(aten.special_round.default, rand(3), decimals=1)
case(aten.special_xlogy.other_scalar, rand(3), 2)
case(aten.arctan2.default, rand(3), rand(3))

# Numerical gradients.
x = rand(4, 5)
case(aten.gradient.scalarint, x)
case(aten.gradient.scalarint, x, spacing=0.5, dim=-1, edge_order=2)
case(aten.gradient.scalararray, x, spacing=2, dim=[1])
case(aten.gradient.array, x, dim=[1, 0], edge_order=2)
case(aten.gradient.scalarrayarray, x, spacing=[0.5, 2.0], dim=[0, 1])
case(aten.gradient.tensorarrayint, x, spacing=[torch.tensor([0.0, 1.0, 1.5, 4.0, 5.0])], dim=1)
case(aten.gradient.tensorarrayint, x, spacing=[torch.tensor([0.0, 1.0, 1.5, 4.0, 5.0])], dim=1, edge_order=2)
case(aten.gradient.tensorarray, x, spacing=[torch.tensor([0.0, 1.0, 1.5, 4.0])], dim=[0])
case(aten.gradient.scalarint, rand(2))

# Spaces.
case(aten.linspace.Tensor_Tensor, torch.tensor(1.0), torch.tensor(-2.0), 5)
case(aten.linspace.Tensor_Scalar, torch.tensor(3), 4.5, 4, dtype=f64)
case(aten.linspace.Scalar_Tensor, 1, torch.tensor(2.0), 1)
case(aten.linspace.Scalar_Tensor, 1, torch.tensor(2.0), 0)
case(aten.logspace.default, -2, 2, 5)
case(aten.logspace.default, 0.5, 3, 4, 2.0, dtype=f64)
case(aten.logspace.Tensor_Tensor, torch.tensor(0.0), torch.tensor(3.0), 4, 2.0)

# Digits.
case(aten.frexp.Tensor, torch.tensor([1.0, 0.75, -3.5, 1e-45, 1.2e-38, 3e38, 0.0, -0.0, 1e-40]))
case(aten.frexp.Tensor, torch.tensor([5e-324, -1e300, 2.0**-1022, 6.0, 1e-310], dtype=f64))
case(aten.frexp.Tensor, rand(2, 3, dtype=f16).t())
case(aten.frexp.Tensor, rand(3, dtype=bf16))
case(aten.frexp.Tensor, edge, keep=1)

# Losses.
for reduction in (0, 1, 2):
    sides = torch.tensor([1, -1, 1])
    case(aten.cosine_embedding_loss.default, rand(3, 4), rand(3, 4), sides, 0.25, reduction)
    labels = torch.tensor([[0, 2, -1, 1], [3, 3, 0, 1], [-1, 0, 0, 0]])
    case(aten.multilabel_margin_loss.default, rand(3, 4), labels, reduction)
    case(aten.multi_margin_loss.default, rand(4), torch.tensor(2), reduction=reduction)
case(aten.cosine_embedding_loss.default, rand(4), rand(4), torch.tensor(-1))
case(aten.multilabel_margin_loss.default, rand(3), torch.tensor([1, -1, 0]))
case(aten.multi_margin_loss.default, rand(4), torch.tensor([2]), reduction=0)
case(aten.multi_margin_loss.default, torch.tensor(0.5), torch.tensor(0))
case(aten.multilabel_margin_loss.default, torch.tensor(0.5), torch.tensor(0))

# Sums of truth values and of small integers are as wide as any.
for x in (rand(3, 4) > 0.5, whole(3, 4).to(torch.int8)):
    case(aten.sum_to_size.default, x, [1, 4])
    case(aten.sum_to_size.default, x, [4])
    case(aten.sum_to_size.default, x, [3, 4])
for x in (rand(3) > 2, rand(3) < 2, rand(0) > 0, rand(2, 3) > 0.5):
    case(aten._is_all_true.default, x)
    case(aten._is_any_true.default, x)

# Truth values have terms or have none; factors of integers are whole.
truth = torch.tensor([[True, False], [False, False], [True, True]])
for beta, alpha in ((1, 1), (0, 1), (1, 0), (True, False)):
    case(aten.addr.default, truth, truth[:, 0].clone(), truth[2].clone(), beta=beta, alpha=alpha)
case(aten.addbmm.default, whole(2, 3), whole(2, 2, 4), whole(2, 4, 3), beta=2, alpha=-3)
# A sum without dimensions is one even of a number.
for x in (torch.tensor(True), truth, torch.tensor(2.5), whole(3)):
    case(aten.sum_to_size.default, x, [])
for equal_nan in (False, True):
    case(aten.isclose.default, truth, truth.flip(0), equal_nan=equal_nan)
case(aten.isclose.default, torch.tensor([2**24 + 1, 5]), torch.tensor([2**24, 6]), rtol=0.0, atol=1.0)
