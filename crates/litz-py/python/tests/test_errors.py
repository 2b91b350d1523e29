"""Calls that eager mode refuses raise when they are compiled, too: for what tensors hold, for arguments out of their range, for element types."""

import pytest
import torch
import torch.nn.functional as F

from checks import compiled

BAD_CHANCE = torch.tensor([0.5, 1.5, -0.1])
NAN = torch.tensor([0.5, float("nan"), 0.5])
FINE = torch.tensor([0.5, 0.2, 0.9])
INTS = torch.arange(6).reshape(2, 3)
BOOLS = INTS > 2
HALF = torch.ones(2, 3, dtype=torch.float16)
ROWS = torch.arange(12.0).reshape(4, 3)
IMAGE = torch.arange(32.0).reshape(1, 2, 4, 4)
BYTES = torch.ones(2, 3).to(torch.float8_e4m3fn)


def long(*values):
    return torch.tensor(values)


# What tensors hold.
VALUES = {
    "nll": (lambda x, y: F.nll_loss(x, y), ROWS, long(0, 1, 3, 0)),
    "nll negative": (lambda x, y: F.nll_loss(x, y), ROWS, long(0, 1, -1, 0)),
    "nll2d": (lambda x, y: F.nll_loss(x, y), IMAGE, torch.full((1, 4, 4), 2)),
    "cross entropy": (lambda x, y: F.cross_entropy(x, y), ROWS, long(0, 1, 3, 0)),
    "cross entropy smooth": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), ROWS, long(0, 1, 3, 0)),
    "multi margin": (lambda x, y: F.multi_margin_loss(x, y), ROWS, long(0, 1, 3, 0)),
    "multi margin negative": (lambda x, y: F.multi_margin_loss(x, y), ROWS, long(0, 1, -1, 0)),
    "multilabel margin": (lambda x, y: F.multilabel_margin_loss(x, y), ROWS, torch.full((4, 3), 3)),
    "multilabel margin below": (lambda x, y: F.multilabel_margin_loss(x, y), ROWS, torch.full((4, 3), -2)),
    "embedding": (lambda x, i: F.embedding(i, x), ROWS, long(0, 4)),
    "embedding negative": (lambda x, i: F.embedding(i, x), ROWS, long(0, -1)),
    "embedding bag": (lambda x, i, o: F.embedding_bag(i, x, o), ROWS, long(0, 4, 1), long(0, 2)),
    "embedding bag first": (lambda x, i, o: F.embedding_bag(i, x, o), ROWS, long(0, 3, 1), long(1, 2)),
    "embedding bag max first": (lambda x, i, o: F.embedding_bag(i, x, o, mode="max"), ROWS, long(0, 3, 1), long(2, 2)),
    "index select": (lambda x, i: x.index_select(0, i), ROWS, long(0, 4)),
    "index select negative": (lambda x, i: x.index_select(0, i), ROWS, long(0, -1)),
    "index": (lambda x, i: x[i], ROWS, long(0, 4)),
    "index below": (lambda x, i: x[i], ROWS, long(0, -5)),
    "index put": (lambda x, i: x.index_put((i,), torch.ones(3)), ROWS, long(0, 4)),
    "index put add": (lambda x, i: x.index_put((i,), torch.ones(3), accumulate=True), ROWS, long(0, 4)),
    "index add": (lambda x, i: x.index_add(0, i, torch.ones(2, 3)), ROWS, long(0, 4)),
    "index copy": (lambda x, i: x.index_copy(0, i, torch.ones(2, 3)), ROWS, long(0, 4)),
    "index fill": (lambda x, i: x.index_fill(0, i, 1), ROWS, long(0, 4)),
    "index reduce": (lambda x, i: x.index_reduce(0, i, torch.ones(2, 3), "amax"), ROWS, long(0, 4)),
    "gather": (lambda x, i: x.gather(0, i), ROWS, torch.full((1, 3), 4)),
    "gather negative": (lambda x, i: x.gather(0, i), ROWS, torch.full((1, 3), -1)),
    "scatter": (lambda x, i: x.scatter(0, i, 1.0), ROWS, torch.full((1, 3), 4)),
    "scatter negative": (lambda x, i: x.scatter(0, i, 1.0), ROWS, torch.full((1, 3), -1)),
    "scatter add": (lambda x, i: x.scatter_add(0, i, torch.ones(1, 3)), ROWS, torch.full((1, 3), 4)),
    "scatter reduce": (lambda x, i: x.scatter_reduce(0, i, torch.ones(1, 3), "amax"), ROWS, torch.full((1, 3), 4)),
    "take": (lambda x, i: x.take(i), ROWS, long(12)),
    "take below": (lambda x, i: x.take(i), ROWS, long(-13)),
    "put": (lambda x, i: x.put(i, torch.ones(1)), ROWS, long(12)),
    "masked scatter": (lambda x, m: x.masked_scatter(m, torch.ones(2)), ROWS, ROWS > 2),
    "one hot": (lambda i: F.one_hot(i, 3), long(0, 3)),
    "one hot negative": (lambda i: F.one_hot(i, 3), long(0, -1)),
    "unpool": (lambda x, i: F.max_unpool2d(x, i, 2), IMAGE, torch.full((1, 2, 4, 4), 64)),
    "sorter": (lambda x, v, s: torch.searchsorted(x, v, sorter=s), FINE, FINE, long(0, 1, 3)),
    "division": (lambda x, y: x // y, INTS, INTS),
    "remainder": (lambda x, y: x % y, INTS, INTS),
    "truncated division": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), INTS, INTS),
    "division fmod": (lambda x, y: torch.fmod(x, y), INTS, INTS),
    "fraction tensor": (lambda x, q: torch.quantile(x, q), FINE, torch.tensor([0.5, 1.5])),
    "cholesky": (torch.linalg.cholesky, -torch.eye(3)),
    "inverse": (torch.linalg.inv, torch.zeros(3, 3)),
    "solve": (torch.linalg.solve, torch.zeros(3, 3), torch.ones(3, 1)),
}

# Arguments that no tensor holds.
NUMBERS = {
    "bernoulli p": (lambda x: torch.bernoulli(x, 1.5), FINE),
    "smooth l1": (lambda x, y: F.smooth_l1_loss(x, y, beta=-1.0), FINE, NAN),
    "huber": (lambda x, y: F.huber_loss(x, y, delta=-1.0), FINE, NAN),
    "huber zero": (lambda x, y: F.huber_loss(x, y, delta=0.0), FINE, NAN),
    "aten smooth l1": (lambda x, y: torch.ops.aten.smooth_l1_loss(x, y, 1, -1.0), FINE, NAN),
    "aten huber": (lambda x, y: torch.ops.aten.huber_loss(x, y, 1, -1.0), FINE, NAN),
    "celu": (lambda x: F.celu(x, 0.0), FINE),
    "dropout": (lambda x: torch.dropout(x, 1.5, True), FINE),
    "native dropout": (lambda x: torch.native_dropout(x, -0.5, True), FINE),
    "alpha dropout": (lambda x: torch.alpha_dropout(x, 1.5, True), FINE),
    "feature dropout": (lambda x: torch.feature_dropout(x, 1.5, True), ROWS),
    "rrelu": (lambda x: torch.rrelu(x, 0.5, 0.1, True), FINE),
    "hardtanh": (lambda x: F.hardtanh(x, 1.0, -1.0), FINE),
    "hardshrink": (lambda x: F.softshrink(x, -1.0), FINE),
    "clamp": (lambda x: torch.clamp(x), FINE),
    "integer power": (lambda x: x ** -1, INTS),
    "integer base": (lambda x: torch.pow(x, -2), INTS),
    "kthvalue": (lambda x: x.kthvalue(5, 1), ROWS),
    "topk": (lambda x: x.topk(5, 1), ROWS),
    "quantile": (lambda x: torch.quantile(x, 1.5), FINE),
    "renorm": (lambda x: torch.renorm(x, -1, 0, 1.0), ROWS),
    "renorm most": (lambda x: torch.renorm(x, 2, 0, -1.0), ROWS),
    "pdist": (lambda x: F.pdist(x, -1.0), ROWS),
    "cdist": (lambda x: torch.cdist(x, x, -1.0), ROWS),
    "histc bins": (lambda x: torch.histc(x, 0), FINE),
    "histc range": (lambda x: torch.histc(x, 4, 3, 1), FINE),
    "mode empty": (lambda x: torch.mode(x[:, :0], 1), ROWS),
    "argmax empty": (lambda x: x[:0].argmax(), ROWS),
    "amax empty": (lambda x: x[:0].amax(0), ROWS),
    "max empty": (lambda x: x[:0].max(), ROWS),
    "median empty": (lambda x: x[:0].median(0), ROWS),
    "randint": (lambda x: x + torch.randint(3, 3, (3,)), FINE),
    "randint byte": (lambda x: x + torch.randint(0, 300, (3,), dtype=torch.uint8), FINE),
    "randint negative": (lambda x: x + torch.randint(-1, 3, (3,), dtype=torch.uint8), FINE),
    "arange": (lambda x: x + torch.arange(3, 0, 1), FINE),
    "arange step": (lambda x: x + torch.arange(0, 3, 0), FINE),
    "linspace": (lambda x: x + torch.linspace(0, 1, -1), FINE),
    "eye": (lambda x: x + torch.eye(-3), FINE),
    "avg pool divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=0), IMAGE),
    "pool padding": (lambda x: F.max_pool2d(x, 2, padding=2), IMAGE),
    "pool stride": (lambda x: F.max_pool2d(x, 2, stride=0), IMAGE),
    "pool dilation": (lambda x: F.max_pool2d(x, 2, dilation=0), IMAGE),
    "reflection": (lambda x: F.pad(x, (4, 0), mode="reflect"), IMAGE),
    "circular": (lambda x: F.pad(x, (5, 0), mode="circular"), IMAGE),
    "rot90": (lambda x: torch.rot90(x, 1, [0, 0]), ROWS),
    "flip": (lambda x: torch.flip(x, [0, 0]), ROWS),
    "unfold": (lambda x: x.unfold(0, 5, 1), ROWS),
    "unfold step": (lambda x: x.unfold(0, 2, 0), ROWS),
    "as strided": (lambda x: x.as_strided((4, 4), (4, 1)) + 1, ROWS),
    "narrow": (lambda x: x.narrow(0, 2, 3) + 1, ROWS),
    "polygamma": (lambda x: torch.polygamma(-1, x), FINE),
    "group norm": (lambda x: F.group_norm(x, 3), IMAGE),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2), IMAGE),
    "channel shuffle": (lambda x: F.channel_shuffle(x, 3), IMAGE),
    "conv groups": (lambda x: F.conv2d(x, torch.ones(3, 1, 1, 1), groups=2), IMAGE),
    "conv stride": (lambda x: F.conv2d(x, torch.ones(3, 2, 1, 1), stride=0), IMAGE),
    "conv padding": (lambda x: F.conv2d(x, torch.ones(3, 2, 1, 1), padding=-1), IMAGE),
    "glu": (lambda x: F.glu(x), ROWS),
    "cross": (lambda x: torch.linalg.cross(x[:, :2], x[:, :2]), ROWS),
    "tril indices": (lambda x: x + torch.tril_indices(-1, 3), FINE),
    "repeat": (lambda x: x.repeat(-1, 1), ROWS),
    "combinations": (lambda x: torch.combinations(x, -1), FINE),
    "logit": (lambda x: torch.ops.aten.nll_loss_forward(x, torch.zeros(4, dtype=torch.int64), None, 1, -100)[0].view(2), ROWS),
    "interpolate": (lambda x: F.interpolate(x, size=(0, 3)), IMAGE),
    "interpolate scale": (lambda x: F.interpolate(x, scale_factor=0.1), IMAGE),
    "grid": (lambda x: F.grid_sample(x, torch.zeros(2, 3, 3, 2)), IMAGE),
    "cumsum": (lambda x: x.cumsum(2), ROWS),
    "sum twice": (lambda x: x.sum((0, 0)), ROWS),
    "batch norm": (lambda x: F.batch_norm(x[:1], None, None, training=True), ROWS),
    "fractional": (lambda x: F.fractional_max_pool2d(x, 3, output_size=(4, 4), _random_samples=torch.full((1, 2, 2), 0.5)), IMAGE),
}

# Element types.
TYPES = {
    "median bool": (lambda x: x.median(), BOOLS),
    "median dim bool": (lambda x: x.median(1), BOOLS),
    "nanmedian bool": (lambda x: x.nanmedian(), BOOLS),
    "kthvalue bool": (lambda x: x.kthvalue(1), BOOLS),
    "heaviside": (lambda x, y: torch.heaviside(x, y), FINE, torch.ones(3, dtype=torch.int64)),
    "masked fill range": (lambda x, m: x.masked_fill(m, 300), INTS.to(torch.uint8), BOOLS),
    "masked fill half": (lambda x, m: x.masked_fill(m, 1e6), HALF, BOOLS),
    "masked fill mask": (lambda x, m: x.masked_fill(m, 1), INTS, INTS),
    "fill range": (lambda x: x.fill(300), INTS.to(torch.uint8)),
    "full range": (lambda x: torch.full((3,), 300, dtype=torch.uint8) + x, INTS),
    "full like range": (lambda x: torch.full_like(x, 1e6), HALF),
    "add f8": (lambda x: x + x, BYTES),
    "exp f8": (lambda x: x.exp(), BYTES),
    "sum f8": (lambda x: x.sum(), BYTES),
    "relu f8": (lambda x: x.relu(), BYTES),
    "where f8": (lambda x, m: torch.where(m, x, x.float()), BYTES, BOOLS),
    "i0 half": (lambda x: torch.special.i0e(x) + torch.special.bessel_j0(x), HALF),
    "bessel half": (lambda x: torch.special.bessel_j1(x), HALF),
    "chebyshev half": (lambda x: torch.special.chebyshev_polynomial_t(x, x), HALF),
    "airy half": (lambda x: torch.special.airy_ai(x), HALF),
    "zeta half": (lambda x: torch.special.zeta(x, x), HALF),
    "ndtri half": (lambda x: torch.special.ndtri(x), HALF),
    "erfcx half": (lambda x: torch.special.erfcx(x), HALF),
    "log ndtr half": (lambda x: torch.special.log_ndtr(x), HALF),
    "gcd float": (lambda x: torch.gcd(x, x), FINE),
    "shift float": (lambda x: x << 1, FINE),
    "and float": (lambda x: x & x, FINE),
    "not float": (lambda x: ~x, FINE),
    "neg bool": (lambda x: -x, BOOLS),
    "sub bool": (lambda x: x - x, BOOLS),
    "rsub bool": (lambda x: 1 - x, BOOLS),
    "mean int": (lambda x: x.mean(), INTS),
    "var int": (lambda x: x.var(), INTS),
    "norm int": (lambda x: torch.linalg.vector_norm(x), INTS),
    "softmax int": (lambda x: x.softmax(0), INTS),
    "logsumexp bool": (lambda x: x.log_softmax(0), BOOLS),
    "gelu int": (lambda x: F.gelu(x), INTS),
    "relu bool": (lambda x: F.relu(x), BOOLS),
    "silu int": (lambda x: F.silu(x), INTS),
    "floor bool": (lambda x: x.floor(), BOOLS),
    "trunc bool": (lambda x: x.trunc(), BOOLS),
    "abs bool": (lambda x: x.abs(), BOOLS),
    "frexp int": (lambda x: torch.frexp(x), INTS),
    "lerp types": (lambda x, y: torch.lerp(x, y, 0.5), FINE, FINE.double()),
    "addmm types": (lambda x, y: torch.addmm(x, y, y), torch.ones(3, 3), torch.ones(3, 3).double()),
    "matmul types": (lambda x, y: x @ y, torch.ones(3, 3), torch.ones(3, 3).double()),
    "matmul bool": (lambda x: x @ x.t(), BOOLS),
    "linear types": (lambda x, y: F.linear(x, y), torch.ones(3, 3), torch.ones(3, 3).double()),
    "conv int": (lambda x: F.conv1d(x[None], x[None, :, :1].expand(1, 2, 1)), BOOLS),
    "bucketize bool": (lambda x: torch.bucketize(x, x[0]), BOOLS),
    "index float": (lambda x: ROWS[x], FINE),
    "gather int32": (lambda x, i: x.gather(0, i), ROWS, torch.zeros(1, 3).short()),
    "scatter types": (lambda x, i: x.scatter(0, i, torch.ones(1, 3).double()), ROWS, torch.zeros(1, 3).long()),
    "index put types": (lambda x, i: x.index_put((i,), torch.ones(3).double()), ROWS, long(0, 1)),
    "index add types": (lambda x, i: x.index_add(0, i, torch.ones(2, 3).double()), ROWS, long(0, 1)),
    "cumsum u16": (lambda x: x + x.cumsum(0), INTS.to(torch.uint16)),
    "histc int": (lambda x: torch.histc(x), INTS.bool()),
    "quantile half": (lambda x: torch.quantile(x, 0.5), HALF),
    "cross entropy int": (lambda x: F.cross_entropy(x, x), INTS),
    "mse bool": (lambda x: F.mse_loss(x, x), BOOLS),
    "batch norm int": (lambda x: F.batch_norm(x, None, None, training=True), INTS),
    "layer norm int": (lambda x: F.layer_norm(x, (3,)), INTS),
    "embedding float": (lambda x: F.embedding(x, ROWS), FINE),
    "pool bool": (lambda x: F.max_pool1d(x[None], 2), BOOLS),
    "avg pool int": (lambda x: F.avg_pool2d(x[None, None], 2), INTS.int()),
    "interpolate int": (lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"), INTS),
    "interpolate linear byte": (lambda x: F.interpolate(x[None], scale_factor=2, mode="linear"), INTS.to(torch.uint8)),
    "complex order": (lambda x: x > x, torch.ones(2, dtype=torch.complex64)),
    "complex max": (lambda x: x.max(), torch.ones(2, dtype=torch.complex64)),
    "in place": (lambda x: x.clone().add_(0.5), INTS),
    "copysign bool": (lambda x: torch.fmod(x, x), BOOLS),
    "cummax f8": (lambda x: x.cummax(0), BYTES),
    "logical sort f8": (lambda x: x.sort(), BYTES),
    "cdist half": (lambda x: torch.cdist(x, x), HALF),
    "cholesky half": (torch.linalg.cholesky, torch.eye(3).half()),
    "grid types": (lambda x, g: F.grid_sample(x, g), IMAGE, torch.zeros(1, 2, 2, 2).double()),
}


def cases(table):
    return pytest.mark.parametrize("case", table.values(), ids=[name.replace(" ", "-") for name in table])


@cases(VALUES | NUMBERS | TYPES)
def test_what_eager_refuses_raises(case):
    f, *args = case
    with pytest.raises(Exception):
        f(*args)
    with pytest.raises(Exception):
        compiled(f)(*args)
