"""Random numbers have their distributions, follow the seed, and are the same in the forward and the backward graph."""

import pytest
import torch
import torch.nn.functional as F
from checks import compiled, each, needs_litz, same
from torch import nn
from torch.utils.checkpoint import checkpoint


def moments(x, mean, deviation):
    """Asserts that a sample has a mean and a standard deviation, up to five deviations of what such a sample has by chance."""
    bound = 5 * deviation / x.numel() ** 0.5
    assert abs(x.double().mean().item() - mean) < bound + 1e-6
    assert abs(x.double().std().item() - deviation) < 0.05 * deviation + 1e-6


N = 20000

SAMPLES = {
    "rand": (lambda x: torch.rand_like(x), 0.5, 12**-0.5),
    "rand_of_a_size": (lambda x: torch.rand(N), 0.5, 12**-0.5),
    "randn": (lambda x: torch.randn_like(x), 0.0, 1.0),
    "randn_scaled": (lambda x: torch.randn(N) * 3 + 2, 2.0, 3.0),
    "randint": (lambda x: torch.randint(0, 10, (N,)), 4.5, 8.25**0.5),
    "randint_like": (lambda x: torch.randint_like(x, 2, 6), 3.5, 1.25**0.5),
    "bernoulli": (lambda x: torch.bernoulli(x * 0 + 0.3), 0.3, 0.21**0.5),
    "bernoulli_of_a_number": (lambda x: torch.empty(N).bernoulli_(0.8), 0.8, 0.4),
    "normal": (lambda x: torch.normal(1.0, 2.0, (N,)), 1.0, 2.0),
    "uniform": (lambda x: torch.empty(N).uniform_(-1, 3), 1.0, 4 * 12**-0.5),
    "normal_in_place": (lambda x: x.clone().normal_(5, 0.5), 5.0, 0.5),
    "exponential": (lambda x: torch.empty(N).exponential_(2.0), 0.5, 0.5),
    "dropout": (lambda x: F.dropout(torch.ones(N), 0.25), 1.0, (1 / 3) ** 0.5),
    "alpha_dropout": (lambda x: F.alpha_dropout(torch.randn(N), 0.2), 0.0, 1.0),
    "logarithm": (lambda x: -torch.log1p(-torch.rand(N)), 1.0, 1.0),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_distribution_and_seed(name):
    f, mean, deviation = SAMPLES[name]
    fast = compiled(f)
    torch.manual_seed(11)
    first, second = fast(torch.zeros(N)), fast(torch.zeros(N))
    moments(first, mean, deviation)
    moments(second, mean, deviation)
    assert not torch.equal(first, second), "two calls gave the same numbers"
    torch.manual_seed(11)
    assert torch.equal(fast(torch.zeros(N)), first), "the seed gave other numbers"
    torch.manual_seed(12)
    third = fast(torch.zeros(N))
    assert not torch.equal(third, first) and not torch.equal(third, second), "another seed gave the same numbers"


def test_a_uniform_sample_is_uniform():
    x = compiled(lambda: torch.rand(4 * N))()
    assert x.min() >= 0 and x.max() < 1
    counts = torch.histc(x, 16, 0, 1)
    assert ((counts - N / 4).abs() < 6 * (N / 4) ** 0.5).all()


def test_a_normal_sample_has_tails():
    x = compiled(lambda: torch.randn(4 * N))()
    assert 0.0455 == pytest.approx((x.abs() > 2).double().mean().item(), abs=0.004)
    assert 0.0027 == pytest.approx((x.abs() > 3).double().mean().item(), abs=0.001)
    assert x.isfinite().all()


def test_neighbours_are_independent():
    x = compiled(lambda: torch.rand(N))()
    assert abs(torch.corrcoef(torch.stack([x[1:], x[:-1]]))[0, 1].item()) < 0.04
    assert abs(torch.corrcoef(torch.stack([x[8:], x[:-8]]))[0, 1].item()) < 0.04


def test_two_samples_of_one_graph_are_independent():
    x, y = compiled(lambda: (torch.rand(N), torch.rand(N)))()
    assert abs(torch.corrcoef(torch.stack([x, y]))[0, 1].item()) < 0.04


def test_a_sample_is_one_sample():
    x, y = compiled(lambda: (lambda r: (r + 1, r * 2))(torch.rand(100)))()
    same(x * 2 - 2, y)


def test_a_permutation_is_one():
    fast = compiled(lambda: torch.randperm(100))
    same(fast().sort().values, torch.arange(100))


def test_multinomial():
    fast = compiled(lambda w: torch.multinomial(w, N, replacement=True))
    counts = fast(torch.tensor([1.0, 0.0, 3.0])).bincount(minlength=3)
    assert counts[1] == 0 and abs(counts[0] / N - 0.25) < 0.02


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_and_scales(p):
    x = torch.arange(1.0, N + 1)
    y = compiled(lambda x: F.dropout(x, p))(x)
    kept = y != 0
    same(y[kept], x[kept] / (1 - p))
    assert abs(kept.double().mean().item() - (1 - p)) < 0.02


@each(
    plain=lambda x: F.dropout(x, 0.5),
    after_an_activation=lambda x: F.dropout(x.exp(), 0.3),
    twice=lambda x: F.dropout(F.dropout(x, 0.3) * 2, 0.3),
    with_residual=lambda x: F.dropout(x * 2, 0.5) + x,
    by_hand=lambda x: x * (torch.rand_like(x) > 0.4),
    noise=lambda x: x * torch.randn_like(x),
    channels=lambda x: F.dropout1d(x.view(1, 100, -1), 0.5).flatten(),
    after_a_product=lambda x: F.dropout(x.view(100, -1) @ torch.ones(10, 10), 0.5).flatten(),
    of_softmax=lambda x: F.dropout(x.view(100, -1).softmax(-1), 0.5).flatten(),
)
def test_masks_of_both_directions_are_equal(f):
    x = torch.rand(1000, dtype=torch.float64).add(0.5).float().requires_grad_()
    fast = compiled(f)
    torch.manual_seed(5)
    y = fast(x)
    y.sum().backward()
    # A step along a direction changes the sum by the gradient, if the masks are those of the call.
    direction = torch.linspace(-1, 1, 1000)
    torch.manual_seed(5)
    up = fast(x.detach() + 1e-2 * direction).double().sum()
    torch.manual_seed(5)
    down = fast(x.detach() - 1e-2 * direction).double().sum()
    slope = (x.grad.double() * direction).sum()
    assert (up - down).item() / 2e-2 == pytest.approx(slope.item(), rel=2e-2, abs=0.2)


@needs_litz
def test_dropout_of_a_million():
    """TR-3: half of a million is dropped, with one mask in both directions, whatever the number of threads, and another one in another call."""
    ones, found = torch.ones(10**6), []
    for threads in (1, 2, 3, 7):
        torch._dynamo.reset()
        fast = compiled(lambda x: F.dropout(x, 0.5), options={"threads": threads, "fallback": "error"})
        torch.manual_seed(3)
        for _ in range(2):
            x = ones.clone().requires_grad_()
            y = fast(x)
            y.sum().backward()
            assert abs(y.double().mean().item() - 1) < 0.002
            assert torch.equal(y.detach(), x.grad) and y.unique().tolist() == [0, 2]
            found.append(y.detach())
        torch.manual_seed(3)
        assert torch.equal(fast(ones.clone().requires_grad_()), found[0])
        # A call without gradients has a graph of its own, and the same numbers.
        torch.manual_seed(3)
        assert torch.equal(fast(ones), found[0])
    for first, second in zip(found[::2], found[1::2], strict=True):
        assert torch.equal(first, found[0]) and torch.equal(second, found[1])
    assert (found[0] != found[1]).double().mean().item() == pytest.approx(0.5, abs=0.003)


def test_gradient_of_dropout_is_its_mask():
    x = torch.rand(1000).add(0.5).requires_grad_()
    y = compiled(lambda x: F.dropout(x, 0.25))(x)
    y.sum().backward()
    same(y.detach(), x.detach() * x.grad)
    same(x.grad.unique(), torch.tensor([0.0, 4 / 3]))


def test_checkpointed_dropout_is_the_same_again():
    x = torch.rand(1000).add(0.5).requires_grad_()
    y = compiled(lambda x: checkpoint(lambda x: F.dropout(x.exp(), 0.5), x, use_reentrant=False))(x)
    y.sum().backward()
    same(y.detach(), x.grad)


@needs_litz
@each(
    dropout=lambda x: F.dropout(x.exp(), 0.5),
    twice=lambda x: F.dropout(F.dropout(x.exp(), 0.3).sin(), 0.2),
    noise=lambda x: x * torch.randn_like(x).sin(),
    dropout_in_attention=lambda x: F.scaled_dot_product_attention(*(x.view(2, 2, 10, 25),) * 3, dropout_p=0.3).flatten(),
    attention=lambda x: F.scaled_dot_product_attention(*(x.view(2, 2, 10, 25),) * 3).flatten(),
)
def test_checkpoints_with_random_numbers_are_litz_own(f):
    x = torch.rand(1000).add(0.5).requires_grad_()
    checkpointed = lambda x: checkpoint(f, x, use_reentrant=False)
    compiled(checkpointed, options={"fallback": "error"})(x).sum().backward()
    torch._dynamo.reset()
    results = []
    # With eager's numbers, results and gradients are eager's.
    for fast in (compiled(checkpointed, options={"random": "eager", "fallback": "quiet"}), f):
        torch.manual_seed(3)
        y = fast(x)
        results.append((y.detach(), torch.autograd.grad(y.sum(), x)[0]))
    same(*results)


def test_checkpoints_compute_attention_again():
    f = lambda x: F.scaled_dot_product_attention(*(x.sin(),) * 3).cos()
    y = compiled(lambda x: checkpoint(f, x, use_reentrant=False))(torch.rand(2, 2, 10, 25, requires_grad=True))
    assert [tensor.shape for tensor in y.grad_fn.saved_tensors] == [(2, 2, 10, 25)]


@each(
    dropout=lambda: nn.Dropout(0.5),
    alpha_dropout=lambda: nn.AlphaDropout(0.5),
    dropout2d=lambda: nn.Dropout2d(0.5),
    after_linear=lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.9)),
)
def test_evaluation_has_no_dropout(f):
    x = torch.randn(1, 4, 8, 8)
    module = f().eval()
    same(compiled(module)(x), module(x))


def test_dropout_after_switching_to_training():
    module = nn.Dropout(0.5)
    fast = compiled(module)
    x = torch.ones(1000)
    same(fast.eval()(x), x)
    assert 0.4 < (fast.train()(x) == 0).double().mean() < 0.6
    same(fast.eval()(x), x)


def test_dropout_of_everything_and_nothing():
    x = torch.rand(10)
    same(compiled(lambda x: (F.dropout(x, 0.0), F.dropout(x, 1.0)))(x), (x, torch.zeros(10)))


def test_dropout2d_drops_whole_channels():
    y = compiled(lambda x: F.dropout2d(x, 0.5))(torch.ones(8, 64, 3, 3)).flatten(2)
    assert torch.equal(y.amax(-1), y.amin(-1))
    assert 0.35 < (y[..., 0] == 0).double().mean() < 0.65


def test_dropout_in_attention():
    q, k = torch.zeros(1, 1, 200, 8), torch.zeros(1, 1, 100, 8)
    y = compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5))(q, k, torch.ones(1, 1, 100, 8))
    assert y.mean().item() == pytest.approx(1.0, abs=0.05)
    assert 0.05 < y[..., 0].std().item() < 0.15


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_random_numbers_of_each_float(dtype):
    x, y = compiled(lambda: (torch.rand(N, dtype=dtype), torch.randn(N, dtype=dtype)))()
    assert x.dtype == y.dtype == dtype
    assert x.min() >= 0 and x.max() <= 1
    moments(x, 0.5, 12**-0.5)
    moments(y, 0.0, 1.0)


def test_random_numbers_of_dynamic_sizes():
    fast = compiled(lambda x: torch.rand_like(x) + x, dynamic=True)
    for size in (10, 3000, 77):
        y = fast(torch.zeros(size))
        assert y.shape == (size,) and y.unique().numel() > size * 0.9


def test_dropout_between_layers_trains():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))
    fast = compiled(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn(64, 4)
    target = x.sum(1, keepdim=True)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = F.mse_loss(fast(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4


def test_rrelu_lies_between_its_slopes():
    x = -torch.ones(N)
    y = compiled(lambda x: F.rrelu(x, 0.1, 0.3, training=True))(x)
    assert y.min() >= -0.3001 and y.max() <= -0.0999
    assert y.mean().item() == pytest.approx(-0.2, abs=0.005)


def test_gumbel_softmax_chooses_one():
    y = compiled(lambda x: F.gumbel_softmax(x, hard=True))(torch.zeros(300, 4))
    same(y.sum(-1), torch.ones(300))
    assert ((y.mean(0) - 0.25).abs() < 0.12).all()


def test_seeds_are_made_whatever_the_default_device_is():
    x = torch.ones(64)
    with torch.device("meta"):
        y = compiled(lambda x: F.dropout(x, 0.5))(x)
    assert set(y.tolist()) == {0.0, 2.0}
