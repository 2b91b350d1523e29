"""Exported models that make random numbers make those of a seed: the same numbers for the same seed, of the right distributions."""

import numpy
import pytest
import torch
import torch.nn.functional as F
from checks import Call

import litz

X = torch.rand(50, 40)
LARGE = torch.zeros(200, 200)


def exported(f, *args):
    return litz.compile(torch.export.export(Call(f), args))


# Functions of one tensor, and the mean and deviation of what they give.
NUMBERS = {
    "rand": (lambda x: torch.rand(200, 200), 0.5, 12**-0.5),
    "randn": (lambda x: torch.randn(200, 200, dtype=torch.float64), 0.0, 1.0),
    "rand_like": (lambda x: torch.rand_like(x.t()), 0.5, 12**-0.5),
    "randn_like": (lambda x: torch.randn_like(x, dtype=torch.bfloat16), 0.0, 1.0),
    "randint": (lambda x: torch.randint(2, 5, (200, 200)), 3.0, (2 / 3) ** 0.5),
    "randint_like": (lambda x: torch.randint_like(x, 3), 1.0, (2 / 3) ** 0.5),
    "uniform_": (lambda x: torch.empty(200, 200).uniform_(1, 3), 2.0, 2 * 12**-0.5),
    "normal_": (lambda x: x.clone().normal_(2, 0.5), 2.0, 0.5),
    "normal": (lambda x: torch.normal(2.0, 0.5, (200, 200)), 2.0, 0.5),
    "normal of means": (lambda x: torch.normal(x + 1, 0.5), 1.0, 0.5),
    "normal of deviations": (lambda x: torch.normal(1.0, x + 2), 1.0, 2.0),
    "normal of both": (lambda x: torch.normal(x + 1, x[:1] + 2), 1.0, 2.0),
    "exponential_": (lambda x: x.clone().exponential_(2.0), 0.5, 0.5),
    "log_normal_": (lambda x: x.clone().log_normal_(0.0, 0.5), numpy.exp(0.125), numpy.exp(0.125) * (numpy.exp(0.25) - 1) ** 0.5),
    "cauchy_": (lambda x: x.clone().cauchy_(0.0, 1.0).atan(), 0.0, numpy.pi * 12**-0.5),
    "geometric_": (lambda x: x.clone().geometric_(0.25), 4.0, 12**0.5),
    "geometric_ of integers": (lambda x: x.to(torch.int32).geometric_(0.5), 2.0, 2**0.5),
    "random_": (lambda x: torch.zeros(200, 200, dtype=torch.uint8).random_(), 127.5, (65535 / 12) ** 0.5),
    "random_ of floats": (lambda x: x.clone().random_() / 2**24, 0.5, 12**-0.5),
    "random_ up to": (lambda x: x.clone().random_(3), 1.0, (2 / 3) ** 0.5),
    "bernoulli": (lambda x: torch.bernoulli(x + 0.3), 0.3, 0.21**0.5),
    "bernoulli_": (lambda x: x.clone().bernoulli_(0.3), 0.3, 0.21**0.5),
    "bernoulli_ of chances": (lambda x: x.clone().bernoulli_(x + 0.3), 0.3, 0.21**0.5),
    "dropout": (lambda x: F.dropout(x + 1, 0.2), 1.0, 0.5),
    "dropout in place": (lambda x: F.dropout(x + 1, 0.2, inplace=True), 1.0, 0.5),
    "native_dropout": (lambda x: torch.ops.aten.native_dropout(x + 1, 0.2, True)[0], 1.0, 0.5),
    "all dropped": (lambda x: F.dropout(x + 1, 1.0), 0.0, 0.0),
    "alpha_dropout": (lambda x: F.alpha_dropout(torch.arange(40000.0).reshape(200, 200) % 2 * 2 - 1, 0.2, training=True), 0.0, 1.0),
    "rrelu": (lambda x: F.rrelu(x - 1, 0.2, 0.4, training=True), -0.3, 0.2 * 12**-0.5),
    "multinomial": (lambda x: torch.multinomial(x[:, :3] + 1, 2), 1.0, (2 / 3) ** 0.5),
    "multinomial with repeats": (lambda x: torch.multinomial(x[:, :3] + 1, 200, True), 1.0, (2 / 3) ** 0.5),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_have_their_distribution(name):
    f, mean, deviation = NUMBERS[name]
    model = exported(f, LARGE)
    (first,), (same,), (other,) = (model(LARGE, seed=seed) for seed in (7, 7, 8))
    expected = f(LARGE)
    assert (first.dtype, first.shape, first.stride()) == (expected.dtype, expected.shape, expected.stride())
    assert torch.equal(first, same)
    assert name == "all dropped" or not torch.equal(first, other)
    first = first.double()
    assert abs(first.mean() - mean) < 6 * max(deviation, 1e-9) / first.numel() ** 0.5
    assert abs(first.std() - deviation) < 0.05 * deviation + 1e-9


def test_each_operator_has_numbers_of_its_own():
    model = exported(lambda x: (torch.rand(50, 40), torch.rand(50, 40), torch.randperm(50), torch.randperm(50)), X)
    a, b, c, d = model(X, seed=1)
    assert not torch.equal(a, b) and not torch.equal(c, d)
    assert torch.equal(c.sort().values, torch.arange(50)) and torch.equal(d.sort().values, torch.arange(50))


def test_a_model_has_one_more_argument_which_the_system_gives_where_nobody_does():
    model = exported(lambda x: torch.rand(50, 40) + x, X)
    assert len(model.inputs) == 2 and model.inputs[-1] == "litz.seed"
    (a,), (b,) = model(X), model(X)
    assert not torch.equal(a, b)
    (c,), (d,) = model(X, seed=-3), model(X, torch.tensor(-3))
    assert torch.equal(c, d)
    with pytest.raises(TypeError):
        model()
    fixed = exported(lambda x: F.dropout(x, 0.5, training=False), X)
    assert "litz.seed" not in fixed.inputs
    assert torch.equal(fixed(X)[0], X)


def test_a_saved_program_takes_the_seed_too(tmp_path):
    model = exported(lambda x: torch.rand(50, 40) + x, X)
    model.save(tmp_path / "model.litzc")
    again = litz.load(tmp_path / "model.litzc")
    assert torch.equal(again(X, seed=3)[0], model(X, seed=3)[0])


def test_channels_are_dropped_together():
    x = torch.ones(8, 16, 5, 3)
    (found,) = exported(lambda x: F.dropout2d(x, 0.5), x)(x, seed=0)
    flat = found.flatten(2)
    assert (flat == flat[:, :, :1]).all() and set(flat.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("decomposed", [False, True])
def test_training_drops_by_the_seed_and_moves_statistics(decomposed):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.drop = torch.nn.BatchNorm1d(40), torch.nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(self.norm(x)), self.norm.running_mean + 0

    program = torch.export.export(Model().train(), (X,))
    model = litz.compile(program.run_decompositions() if decomposed else program)
    (a, first), (b, second) = model(X, seed=4), model(X, seed=4)
    assert torch.equal(a, b)
    torch.testing.assert_close(first, 0.1 * X.mean(0))
    torch.testing.assert_close(second, 0.19 * X.mean(0))


def test_weights_of_attention_are_dropped():
    q = torch.randn(2, 4, 300, 8)
    for args in ({}, {"is_causal": True}, {"attn_mask": torch.rand(300, 300) > 0.5}, {"attn_mask": torch.randn(300, 300)}):
        model = exported(lambda q: F.scaled_dot_product_attention(q, q, torch.ones_like(q), dropout_p=0.25, **args), q)
        (found,) = model(q, seed=11)
        assert abs(found.mean() - 1) < 0.05 and found.std() > 0.01
        # Hardly anything is dropped.
        rare = exported(lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=1e-20, **args), q)
        torch.testing.assert_close(rare(q, seed=1)[0], F.scaled_dot_product_attention(q, q, q, **args), atol=1e-5, rtol=1e-4)
    k = torch.randn(2, 2, 300, 8)
    grouped = exported(lambda q, k: F.scaled_dot_product_attention(q, k, k, dropout_p=1e-20, enable_gqa=True), q, k)
    torch.testing.assert_close(grouped(q, k, seed=1)[0], F.scaled_dot_product_attention(q, k, k, enable_gqa=True), atol=1e-5, rtol=1e-4)


def test_empty_tensors_have_no_numbers():
    empty = torch.empty(0, 3)
    for f in (torch.rand_like, torch.bernoulli, lambda x: F.dropout(x, 0.5), lambda x: torch.randperm(0)):
        (found,) = exported(f, empty)(empty, seed=1)
        assert found.shape == f(empty).shape


def test_chances_that_are_none_are_refused():
    for f in (torch.bernoulli, lambda x: torch.multinomial(x, 1)):
        model = exported(f, X)
        with pytest.raises(litz.RunError):
            model(-1 - X, seed=0)
    with pytest.raises(litz.RunError):
        exported(lambda x: torch.multinomial(x, 1), X)(torch.zeros_like(X), seed=0)


def test_random_numbers_in_a_branch_are_refused():
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x + torch.rand(3), lambda x: x * 2, (x,))

    with pytest.raises(litz.UnsupportedError, match="aten.rand.default"):
        exported(f, torch.ones(3))
