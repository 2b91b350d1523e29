"""Attention gives eager mode's values and gradients: the fused operator, by hand, with masks, of groups and with a cache."""

import math

import pytest
import torch
import torch.nn.functional as F
from checks import check, compiled, each, needs_litz, same
from torch import nn, randn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

sdpa = F.scaled_dot_product_attention


def qkv(length=6, keys=None, dtype=torch.float32):
    return [randn(2, 3, size, 8).to(dtype) for size in (length, keys or length, keys or length)]


def by_hand(q, k, v):
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


def by_hand_causal(q, k, v):
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    return (q @ k.mT * 0.3).masked_fill(~mask, -math.inf).softmax(-1) @ v


def by_hand_in_float(q, k, v):
    return ((q @ k.mT).float() * 0.35).softmax(-1).to(v.dtype) @ v


def linear_attention(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return (q @ (k.mT @ v)) / (q @ k.sum(2, keepdim=True).mT + 1e-6)


def alibi(q, k, v):
    distance = (torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]).abs()
    slopes = torch.tensor([0.5, 0.25, 0.125])
    return sdpa(q, k, v, attn_mask=-(slopes[:, None, None] * distance).to(q.dtype))


def sliding_window(q, k, v):
    distance = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
    return sdpa(q, k, v, attn_mask=(distance >= 0) & (distance < 3))


def rotary(q, k, v):
    angle = torch.arange(q.shape[2], dtype=q.dtype)[:, None] * 10.0 ** -torch.arange(4, dtype=q.dtype)
    cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()

    def turn(x):
        return x * cos + torch.cat([-x[..., 4:], x[..., :4]], -1) * sin

    return sdpa(turn(q), turn(k), v, is_causal=True)


def capped(q, k, v):
    return (torch.tanh(q @ k.mT / 5) * 5).softmax(-1) @ v


def normalised_queries(q, k, v):
    return sdpa(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, scale=4.0)


ATTENTIONS = {
    "fused": lambda q, k, v: sdpa(q, k, v),
    "causal": lambda q, k, v: sdpa(q, k, v, is_causal=True),
    "scaled": lambda q, k, v: sdpa(q, k, v, scale=0.5),
    "by_hand": by_hand,
    "by_hand_causal": by_hand_causal,
    "by_hand_in_float": by_hand_in_float,
    "linear": linear_attention,
    "alibi": alibi,
    "sliding_window": sliding_window,
    "rotary": rotary,
    "capped": capped,
    "normalised": normalised_queries,
    "output_merged": lambda q, k, v: sdpa(q, k, v).transpose(1, 2).reshape(2, -1, 24) * 2,
    "of_one_tensor": lambda q, k, v: sdpa(q, q, q),
    "of_split_projection": lambda q, k, v: sdpa(*torch.cat([q, k, v], -1).split(8, -1)),
    "transposed_heads": lambda q, k, v: sdpa(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)), is_causal=True),
    "without_heads": lambda q, k, v: sdpa(q[:, 0], k[:, 0], v[:, 0]),
}


@each(**ATTENTIONS)
def test_attention(f):
    check(f, *qkv(), gradients=True)


@each(**{name: ATTENTIONS[name] for name in ("fused", "by_hand", "causal", "capped")})
def test_attention_to_more_keys(f):
    check(f, *qkv(3, 7))


@each(**{name: ATTENTIONS[name] for name in ("fused", "causal", "by_hand_in_float", "rotary")})
def test_attention_of_each_float(f):
    check(lambda *args: [f(*arg) for arg in args], *(qkv(dtype=dtype) for dtype in (torch.bfloat16, torch.float16)))


@each(**{name: ATTENTIONS[name] for name in ("fused", "causal", "by_hand")})
def test_attention_of_doubles(f):
    check(f, *qkv(dtype=torch.float64))


@each(
    boolean=lambda q, k, v, m: sdpa(q, k, v, attn_mask=m > -0.5),
    additive=lambda q, k, v, m: sdpa(q, k, v, attn_mask=m),
    for_each_head=lambda q, k, v, m: sdpa(q, k, v, attn_mask=m.expand(2, 3, 6, 6) * 2),
    keys_only=lambda q, k, v, m: sdpa(q, k, v, attn_mask=(m[:1] > -1).expand(2, 1, 1, 6)),
    infinite=lambda q, k, v, m: sdpa(q, k, v, attn_mask=torch.where(m > -0.5, 0.0, -math.inf).to(q.dtype)),
)
def test_masked_attention(f):
    m = randn(6, 6)
    m.fill_diagonal_(1)
    m[0] = 1
    check(f, *qkv(), m)


def test_a_row_that_sees_nothing():
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[2] = False
    check(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), *qkv(), mask)


def test_grouped_queries():
    q, k, v = randn(2, 6, 5, 8), randn(2, 2, 5, 8), randn(2, 2, 5, 8)
    check(lambda q, k, v: sdpa(q, k, v, is_causal=True, enable_gqa=True), q, k, v, gradients=True)


def test_grouped_queries_by_repetition():
    q, k, v = randn(2, 6, 5, 8), randn(2, 2, 5, 8), randn(2, 2, 5, 8)
    check(lambda q, k, v: sdpa(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1)), q, k, v, gradients=True)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 65])
def test_attention_of_each_length(length):
    check(lambda q, k, v: sdpa(q, k, v, is_causal=True), *qkv(length))


@pytest.mark.parametrize("size", [1, 4, 20, 64])
def test_attention_of_each_head(size):
    check(lambda q, k, v: sdpa(q, k, v), *(randn(1, 2, 5, size) for _ in range(3)), gradients=True)


def test_values_of_another_size():
    check(lambda q, k, v: sdpa(q, k, v), randn(1, 2, 4, 8), randn(1, 2, 5, 8), randn(1, 2, 5, 3))


def test_attention_over_a_long_row():
    check(by_hand, randn(1, 1, 2, 4), randn(1, 1, 3000, 4), randn(1, 1, 3000, 4))


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 3, 4).permute(2, 0, 3, 1, 4)
        return self.out(sdpa(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = SelfAttention()
        self.first, self.second = nn.LayerNorm(12), nn.RMSNorm(12)
        self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 12)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class Library(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)


@pytest.mark.parametrize("module", [SelfAttention, Block, Library])
@pytest.mark.parametrize("is_training", [True, False], ids=["training", "inference"])
def test_attention_modules(module, is_training):
    x = randn(2, 5, 12)
    if is_training:
        check(module(), x, gradients=True)
    else:
        with torch.no_grad():
            check(module().eval(), x)


@each(
    norm_last=lambda: nn.TransformerEncoderLayer(12, 3, 16, dropout=0.0, batch_first=True),
    norm_first=lambda: nn.TransformerEncoderLayer(12, 3, 16, dropout=0.0, norm_first=True, activation="gelu"),
)
def test_transformer_layers(f):
    check(f(), randn(2, 5, 12), gradients=True)


def test_transformer_decoder_layer():
    check(nn.TransformerDecoderLayer(12, 3, 16, dropout=0.0, batch_first=True), randn(2, 4, 12), randn(2, 5, 12), gradients=True)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.register_buffer("keys", torch.zeros(1, 2, 16, 4))
        self.register_buffer("values", torch.zeros(1, 2, 16, 4))

    def forward(self, x, position):
        q, k, v = self.qkv(x).view(1, 1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        self.keys[:, :, position] = k
        self.values[:, :, position] = v
        mask = (torch.arange(16) <= position)[None]
        return sdpa(q, self.keys, self.values, attn_mask=mask).flatten(1)


def test_decoding_with_a_cache():
    torch.manual_seed(4)
    eager, other = Decoder(), Decoder()
    other.load_state_dict(eager.state_dict())
    fast = compiled(other)
    with torch.no_grad():
        for position in range(4):
            x, at = randn(1, 1, 8), torch.tensor([position])
            same(fast(x, at), eager(x, at))
            same(dict(other.state_dict()), dict(eager.state_dict()))


def test_dropout_of_zero_is_none():
    check(lambda q, k, v: sdpa(q, k, v, dropout_p=0.0), *qkv(), gradients=True)


SLOPES = torch.tensor([0.5, 0.25, 0.125])
DOCUMENTS = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 2])


def masked(rule, length=9):
    return create_block_mask(rule, None, None, length, length, device="cpu")


CAUSAL = masked(lambda batch, head, query, key: query >= key)
WINDOW = masked(lambda batch, head, query, key: (query - key).abs() < 3)
OF_ONE_DOCUMENT = masked(lambda batch, head, query, key: DOCUMENTS[query] == DOCUMENTS[key])
# Some queries see nothing, and get zeros.
LATE = masked(lambda batch, head, query, key: (query > 4) & (key < query))


@needs_litz
@each(
    plain=lambda q, k, v: flex_attention(q, k, v),
    scaled=lambda q, k, v: flex_attention(q, k, v, scale=0.3),
    by_distance=lambda q, k, v: flex_attention(q, k, v, score_mod=lambda score, batch, head, query, key: score - (query - key).abs() * 0.25),
    by_head=lambda q, k, v: flex_attention(q, k, v, score_mod=lambda score, batch, head, query, key: score + SLOPES[head] * (key - query)),
    capped=lambda q, k, v: flex_attention(q, k, v, score_mod=lambda score, batch, head, query, key: 4 * (score / 4).tanh()),
    causal=lambda q, k, v: flex_attention(q, k, v, block_mask=CAUSAL),
    window=lambda q, k, v: flex_attention(q, k, v, block_mask=WINDOW),
    of_one_document=lambda q, k, v: flex_attention(q, k, v, block_mask=OF_ONE_DOCUMENT),
    late=lambda q, k, v: flex_attention(q, k, v, block_mask=LATE),
    score_and_mask=lambda q, k, v: flex_attention(q, k, v, score_mod=lambda score, batch, head, query, key: score * 0.5 + query, block_mask=CAUSAL),
    with_sums=lambda q, k, v: flex_attention(q, k, v, return_lse=True),
    in_an_expression=lambda q, k, v: flex_attention(q * 2, k.cos(), v).transpose(1, 2).flatten(2) + 1,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flexible_attention(f, dtype):
    """Scores and masks of the user's are part of the kernels: PyTorch runs none of it."""
    import litz

    litz.reset_stats()
    # The reference in double precision is that of eager mode, whose products of the half type are rounded.
    check(f, *qkv(9, dtype=dtype), reference=False)
    stats = litz.stats()
    assert stats["eager_graphs"] == {} and stats["fallbacks"] == {} and stats["kernels"] > 0


@needs_litz
def test_flexible_attention_is_written_out_where_its_queries_are():
    """A device that this machine does not have: nothing that is written out is the host's but numbers."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    from litz import flex

    score = lambda score, batch, head, query, key: score - (query - key) * 0.01
    mask = lambda batch, head, query, key: query >= key
    with FakeTensorMode():
        q = torch.empty(2, 4, 64, 16, device="cuda", dtype=torch.bfloat16)
        traced = make_fx(torch.func.functionalize(lambda q, k, v: flex._dense(q, k, v, score, (mask,), 0.25, {})))(q, q, q)
    made = [node.meta["val"] for node in traced.graph.nodes if "val" in node.meta]
    assert len(made) > 20 and {value.device.type for value in made if value.dim()} == {"cuda"}


@needs_litz
@pytest.mark.parametrize("groups", [1, 3])
def test_flexible_attention_of_groups(groups):
    q, k, v = randn(2, 6, 9, 8), randn(2, 6 // groups, 9, 8), randn(2, 6 // groups, 9, 8)
    check(lambda q, k, v: flex_attention(q, k, v, block_mask=CAUSAL, enable_gqa=True), q, k, v)


ROWS = 512
LONG = masked(lambda batch, head, query, key: query >= key, ROWS)
LONG_WINDOW = masked(lambda batch, head, query, key: (query >= key) & (query - key < 70), ROWS)
BEHIND = masked(lambda batch, head, query, key: query + 40 >= key, ROWS)
BIAS = torch.linspace(-1, 1, ROWS * ROWS).view(ROWS, ROWS)


@needs_litz
@each(
    causal=lambda q, k, v: flex_attention(q, k, v, block_mask=LONG),
    window=lambda q, k, v: flex_attention(q, k, v, block_mask=LONG_WINDOW),
    some_behind=lambda q, k, v: flex_attention(q, k, v, block_mask=BEHIND),
    by_score=lambda q, k, v: flex_attention(q, k, v, score_mod=lambda score, b, h, query, key: torch.where(query >= key, score, -math.inf)),
    with_score=lambda q, k, v: flex_attention(q, k, v, score_mod=lambda score, b, h, query, key: 4 * (score / 4).tanh(), block_mask=LONG),
    with_bias=lambda q, k, v: flex_attention(q, k, v, score_mod=lambda score, b, h, query, key: score + BIAS[query, key], block_mask=LONG),
    groups=lambda q, k, v: flex_attention(q, k[:, :1], v[:, :1], block_mask=LONG, enable_gqa=True),
)
def test_blocks_that_a_mask_removes_are_left_out(f, tmp_path):
    q, k, v = qkv(ROWS, dtype=torch.float32)
    fast = compiled(f, options={"dump": str(tmp_path)})
    with torch.no_grad():
        same(fast(q, k, v), f(q, k, v))
    (online,) = tmp_path.glob("*/*.online.litz")
    assert " idle " in online.read_text()


def test_numbers_that_are_tensors_are_part_of_kernels():
    def f(x):
        small, least, flag = torch.tensor(0.1), torch.tensor(-math.inf), torch.tensor(True)
        return torch.where(x > 0, x * small, least), x.double() + small, flag & (x > 0), x.long() + torch.tensor(2**40)

    check(f, randn(5), exact=True)
