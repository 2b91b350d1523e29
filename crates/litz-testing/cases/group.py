"""Groups: products by group, bags of embeddings, histograms."""

from harness import *


def grouped(x, w, ends):
    """As `transformers` defines its fallback: rows up to each end go with their group's matrix, the rest is 0."""
    out, start = torch.zeros(x.size(0), w.size(2), dtype=x.dtype), 0
    for i, end in enumerate(ends.tolist()):
        out[start:end] = x[start:end] @ w[i]
        start = end
    return out


library = torch.library.Library("transformers", "DEF")
library.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
library.impl("grouped_mm_fallback", grouped, "CPU")
product = torch.ops.transformers.grouped_mm_fallback.default
case(product, rand(6, 3), rand(3, 3, 2), torch.tensor([2, 2, 6], dtype=torch.int32))
case(product, rand(6, 3), rand(3, 2, 3).transpose(1, 2), torch.tensor([0, 1, 4]))
case(aten._grouped_mm.default, rand(6, 8, dtype=bf16), rand(2, 8, 8, dtype=bf16), torch.tensor([2, 6], dtype=torch.int32))

w, where = rand(6, 3), torch.tensor([0, 2, 5, 5, 1])


def bag(*args, **kwargs):
    """The bags alone: what the other results are differs by path in eager."""
    case(aten.embedding_bag.padding_idx, *args, keep=1, **kwargs)


for mode in (0, 1, 2):
    bag(w, where, torch.tensor([0, 2, 2]), False, mode, False, None, False, None)
    bag(w, where, torch.tensor([0, 3, 5]), False, mode, False, None, True, None)
    bag(w, where, torch.tensor([0, 3]), False, mode, False, None, False, 5)
bag(w, where, torch.tensor([0, 3]), False, 0, False, rand(5), False, -1)
for inner in (aten._embedding_bag.default, aten._embedding_bag_forward_only.default):
    for padding in (-1, 5, -5):
        case(inner, w, where, torch.tensor([0, 3]), False, 0, False, None, False, padding, keep=1)
    case(inner, w, where, torch.tensor([0, 3]), keep=1)
case(aten.histc.default, rand(20), 6, -3, 3)
case(aten.histc.default, torch.arange(8.0), 8, 0, 7)
case(aten.histc.default, rand(20), 5)
case(aten.histc.default, torch.full((4,), 2.0), 3)
case(aten.histc.default, torch.tensor([0.1, 0.2, 0.3, 0.7, 0.8, 0.9, NAN]), 10, 0, 1)

# On the edges of bins, which quotients miss.
case(aten.histc.default, torch.tensor([0.0, 5e-06, 1e-05, 1.2e-05], dtype=f64), 20, 0, 1e-05)
for dtype in (f32, f64):
    case(aten.histc.default, torch.linspace(-0.7, 1.1, 8, dtype=dtype), 7, -0.7, 1.1)
