"""Statistics."""

from harness import *

for x in (rand(2, 3), rand(2, 3, dtype=bf16)):
    case(aten.norm.Scalar, x)
    case(aten.norm.Scalar, x, 3)
    case(aten.norm.ScalarOpt_dim, x, None, [1])
    case(aten.norm.ScalarOpt_dim, x, INF, [0], True)
case(aten.norm.ScalarOpt_dtype, rand(3), 1, dtype=f64)
case(aten.norm.ScalarOpt_dim_dtype, rand(2, 3), 0, [0], False, dtype=f64)
case(aten.dist.default, rand(2, 3), rand(3))
case(aten.dist.default, rand(3), rand(3), INF)
for p in (0.0, 1.0, 2.0, 3.5, INF):
    case(aten.pdist.default, rand(4, 3), p)
case(aten.pdist.default, rand(1, 3))
case(aten.renorm.default, rand(3, 4), 2, 0, 2.5)
case(aten.renorm.default, rand(2, 3, 2), 1, -1, 4)
case(aten.renorm.default, rand(2, 3, dtype=f16), INF, 0, 1)
case(aten.embedding_renorm.default, rand(5, 3), torch.tensor([[0, 2], [2, 4]]), 1.5, 2.0)

case(aten.cov.default, rand(3, 5))
case(aten.cov.default, rand(5))
case(aten.cov.default, whole(2, 4), correction=0)
frequencies, importances = torch.tensor([1, 2, 0, 3]), torch.tensor([0.5, 1.0, 2.0, 0.25])
case(aten.cov.default, rand(3, 4), fweights=frequencies)
case(aten.cov.default, rand(3, 4), aweights=importances)
case(aten.cov.default, rand(3, 4), correction=2, fweights=frequencies, aweights=importances)
case(aten.corrcoef.default, rand(3, 6))
case(aten.corrcoef.default, rand(6))

holes = torch.tensor([[1.0, NAN, 2.0, 4.0], [NAN, NAN, NAN, 7.0], [3.0, 1.0, 2.0, 0.0]])
case(aten.nanmedian.default, holes)
case(aten.nanmedian.dim, holes, 1)
case(aten.nanmedian.dim, holes, 0, True)
case(aten.nanmedian.dim, whole(5), 0)
case(aten.nanmedian.dim, torch.tensor(2.0), -1)
case(aten.nanmedian.default, torch.tensor([NAN, NAN]))
x = torch.tensor([[3, 1, 3, 2], [1, 1, 2, 2], [5, 4, 3, 2]])
case(aten.mode.default, x, keep=1)
case(aten.mode.default, x.float(), 0, True, keep=1)
case(aten.mode.default, torch.tensor(2.0))
for mode in ("linear", "lower", "higher", "midpoint", "nearest"):
    case(aten.quantile.default, rand(3, 4), torch.tensor([0.0, 0.3, 0.5, 1.0]), 1, interpolation=mode)
    case(aten.nanquantile.default, holes, torch.tensor([0.25, 0.6]), 1, True, interpolation=mode)
case(aten.quantile.default, holes, torch.tensor(0.5), 1)
case(aten.quantile.default, rand(3, 2, 4), torch.tensor([0.1, 0.9]), 0, True)
case(aten.quantile.default, rand(3, 4), torch.tensor([0.4]), None, True)
case(aten.quantile.default, torch.tensor(2.0), torch.tensor([0.4, 0.5]))
case(aten.nanquantile.scalar, holes, 0.75)
case(aten.nanquantile.scalar, holes, 0.75, 0)

x = torch.tensor([0.0, 1.0, 1.0, 2.5, 4.0, -1.0, 3.0, 4.0])
case(aten.histogram.bin_ct, x, 5)
case(aten.histogram.bin_ct, x, 4, range=[0.0, 4.0], density=True)
case(aten.histogram.bin_ct, x.reshape(2, 4), 3, weight=rand(2, 4))
case(aten.histogram.bin_ct, torch.ones(3), 2)
case(aten.histogram.bins_tensor, x, torch.tensor([-1.0, 0.0, 2.5, 4.0]))
case(aten.histogram.bins_tensor, x, torch.tensor([-1.0, 0.0, 2.5, 4.0]), weight=rand(8), density=True)

x = rand(6, 2)
lengths = torch.tensor([2, 0, 3, 1])
for reduce in ("sum", "mean", "max", "min", "prod"):
    case(aten.segment_reduce.default, x, reduce, lengths=lengths)
    case(aten.segment_reduce.default, x, reduce, offsets=torch.tensor([0, 2, 2, 6]), initial=1.5)
case(aten.segment_reduce.default, rand(2, 4), "sum", lengths=torch.tensor([[1, 3], [2, 2]]), axis=1)
case(aten.segment_reduce.default, torch.tensor([1.0, NAN, 2.0]), "max", lengths=torch.tensor([1, 2]))

# Points.
points = torch.tensor([[0.0, 1.0], [0.5, 3.0], [1.0, 3.0], [NAN, 2.0], [0.25, 1.5]])
for weight in (None, rand(5)):
    for density in (False, True):
        case(aten.histogramdd.default, points, [2, 3], range=[0.0, 1.0, 1.0, 3.0], weight=weight, density=density)
edges = [torch.tensor([0.0, 0.25, 0.75]), torch.tensor([1.0, 2.0, 3.0])]
case(aten.histogramdd.TensorList_bins, points, edges)
case(aten.histogramdd.TensorList_bins, points.double(), [edge.double() for edge in edges], weight=rand(5, dtype=f64))
case(aten.histogramdd.default, points[:3], [3, 2])
case(aten.histogramdd.int_bins, rand(2, 4, 3), 2)
case(aten.histogramdd.default, torch.ones(3, 2), [1, 2])
case(aten.histogram.bin_ct, torch.tensor([NAN, 1.0, 2.0]), 3, range=[1.0, 2.0])
