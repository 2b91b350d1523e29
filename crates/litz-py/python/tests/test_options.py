"""Options of the backend: what is not known is refused, what PyTorch runs is counted, said or refused, as wanted."""

import gc
import warnings
import weakref

import pytest
import torch
from checks import BACKEND, each, needs_litz, same
from torch import nn, randn

pytestmark = needs_litz
litz = pytest.importorskip("litz") if BACKEND == "litz" else None


@torch.library.custom_op("litz_tests::foreign", mutates_args=())
def foreign(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@foreign.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("litz_tests::foreign_warned", mutates_args=())
def foreign_warned(x: torch.Tensor) -> torch.Tensor:
    return x + 2


@foreign_warned.register_fake
def _(x):
    return torch.empty_like(x)


def litz_compiled(f, **settings):
    return torch.compile(f, backend="litz", fullgraph=True, **settings)


def test_an_unknown_option_is_refused():
    with pytest.raises(Exception) as raised:
        litz_compiled(lambda x: x + 1, options={"speed": 11})(randn(3))
    error = raised.value
    while error is not None and not isinstance(error, litz.InvalidError):
        error = error.__cause__ or error.__context__
    assert isinstance(error, litz.InvalidError)
    for known in ("speed", "tune", "numerics", "threads", "freeze", "fallback", "random", "dump", "cache", "reference", "verify"):
        assert known in str(error)
    for setting, _, _ in litz._litz.settings():
        assert setting in str(error)


def test_kernels_that_share_launches():
    # Each shape makes a kernel of its own.
    xs = [randn(5 + at) for at in range(20)]

    def relus(*xs):
        return [x.relu() for x in xs]

    def launches(**options):
        litz.reset_stats()
        torch._dynamo.reset()
        same(litz_compiled(relus, dynamic=False, options={"threads": 2} | options)(*xs), relus(*xs))
        stats = litz.stats()
        assert stats["eager_graphs"] == {} and stats["fallbacks"] == {}
        return stats["launches"]

    assert launches() == 20
    assert launches(launch_together=8) == 3
    assert launches(launch_together="8") == 3
    assert launches(launch_together=1) == 20


def test_every_setting_is_an_option():
    x, w = randn(40, 70), randn(70, 30)

    def f(x, w):
        return (x @ w).softmax(-1), x.sum(0)

    for setting, default, _ in litz._litz.settings():
        torch._dynamo.reset()
        same(litz_compiled(f, options={setting: default, "fallback": "error"})(x, w), f(x, w))


@each(
    too_many=lambda: {"launch_together": 1025},
    fraction=lambda: {"launch_together": 8.0},
    truth=lambda: {"launch_together": True},
    nothing=lambda: {"launch_together": None},
    word=lambda: {"reorder_axes": "sometimes"},
    all_of_them=lambda: {"settings": {"launch_together": 8}},
)
def test_wrong_settings_are_refused(f):
    with pytest.raises(Exception, match="InvalidError: (launch_together|reorder_axes): expected|InvalidError: no such option: settings"):
        litz_compiled(lambda x: x + 1, options=f())(randn(3))


@each(
    fallback=lambda: {"fallback": "maybe"},
    random=lambda: {"random": "dice"},
    name=lambda: {"treads": 1},
    no_threads=lambda: {"threads": 0},
    negative_threads=lambda: {"threads": -1},
    threads_of_text=lambda: {"threads": "two"},
    text_for_truth=lambda: {"freeze": "no"},
    number_for_a_folder=lambda: {"cache": 3},
    tune=lambda: {"tune": -1.0},
    numerics=lambda: {"numerics": "fast"},
)
def test_wrong_options_are_refused(f):
    with pytest.raises(Exception, match="InvalidError: (fallback|threads|random|freeze|cache|tune|numerics|no such option: treads)"):
        litz_compiled(lambda x: x + 1, options=f())(randn(3))


def test_an_unknown_mode_is_refused():
    with pytest.raises(Exception, match="(?i)mode"):
        litz_compiled(lambda x: x + 1, mode="fastest")(randn(3))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_modes(mode):
    x = randn(4, 5)
    same(litz_compiled(lambda x: x.softmax(-1) * 2, mode=mode)(x), x.softmax(-1) * 2)


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_that_tune(mode):
    module = nn.Sequential(nn.Linear(5, 3), nn.Softmax(-1))
    x = randn(4, 5)
    same(litz_compiled(module, mode=mode)(x), module(x))


def test_tuning_says_what_it_found_once(tmp_path, capfd):
    module = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8), nn.Softmax(-1))
    x = randn(16, 32)
    options = {"tune": 5.0, "cache": str(tmp_path)}
    with torch.no_grad():
        for _ in range(2):
            torch._dynamo.reset()
            same(litz_compiled(module, options=options)(x), module(x))
    first, second = capfd.readouterr().err.splitlines()
    assert first.startswith("litz: tuned a graph: ") and first.endswith(" candidates")
    assert " by 0 of 0 candidates" not in first and first == second


@each(
    one_thread=lambda: {"threads": 1},
    two_threads=lambda: {"threads": 2},
    reference=lambda: {"reference": True},
    verify=lambda: {"verify": True},
    quiet=lambda: {"fallback": "quiet"},
    warn=lambda: {"fallback": "warn"},
    strict=lambda: {"fallback": "error"},
    uncached=lambda: {"cache": None},
    frozen=lambda: {"freeze": True},
    random=lambda: {"random": "eager"},
    all_checks=lambda: {"reference": True, "verify": True, "fallback": "error", "threads": 1},
)
def test_options_keep_the_values(f):
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    x = randn(5, 6)
    with torch.no_grad():
        same(litz_compiled(model, options=f())(x), model(x))


@each(reference=lambda: {"reference": True}, verify=lambda: {"verify": True, "fallback": "error"})
def test_options_keep_the_gradients(f):
    def grads(wrap):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        wrap(model)(torch.linspace(-1, 1, 12).view(2, 6)).square().sum().backward()
        return [parameter.grad for parameter in model.parameters()]

    same(grads(lambda model: litz_compiled(model, options=f())), grads(lambda model: model))


def test_a_foreign_operator_is_refused_if_wanted():
    fast = litz_compiled(lambda x: foreign(x) * 2, options={"fallback": "error"})
    with pytest.raises(Exception, match="foreign"):
        fast(randn(3))


def test_a_foreign_operator_is_warned_of_once():
    with pytest.warns(UserWarning, match="foreign_warned"):
        litz_compiled(lambda x: foreign_warned(x) * 2)(randn(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(litz_compiled(lambda x: foreign_warned(x) * 3)(torch.zeros(3)), torch.full((3,), 6.0))


def test_a_foreign_operator_is_quiet_if_wanted():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(litz_compiled(lambda x: foreign(x) * 2, options={"fallback": "quiet"})(torch.zeros(3)), torch.full((3,), 2.0))


def test_statistics_count_graphs_and_calls():
    litz.reset_stats()
    fast = litz_compiled(lambda x: (x * 2 + 1).sin())
    for _ in range(3):
        fast(randn(7))
    counts = litz.stats()
    assert counts["graphs"] == 1
    assert counts["calls"] == 3
    assert counts["kernels"] >= 1
    assert counts["launches"] >= 1
    assert counts["eager_graphs"] == {} and counts["eager_calls"] == 0 and counts["fallbacks"] == {}
    assert all(seconds >= 0 for seconds in counts["compile_seconds"].values()) and counts["compile_seconds"]


def test_statistics_count_both_directions():
    litz.reset_stats()
    x = randn(4, requires_grad=True)
    y = litz_compiled(lambda x: x.sin() * x)(x)
    y.sum().backward()
    assert litz.stats()["graphs"] == 2
    assert litz.stats()["calls"] == 2


def test_statistics_name_foreign_operators():
    litz.reset_stats()
    fast = litz_compiled(lambda x: foreign(x) * 2)
    for _ in range(2):
        fast(randn(3))
    ((name, (calls, seconds, bytes)),) = litz.stats()["fallbacks"].items()
    assert "foreign" in name and calls == 2 and seconds >= 0
    # Three floats are read, and three written.
    assert bytes == 2 * 2 * 12


def test_statistics_count_what_the_cache_had(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    litz.reset_stats()
    for hits in (0, 1):
        litz_compiled(lambda x: x.cos() * 2, options={"cache": tmp_path / "litz"})(randn(3))
        assert litz.stats()["cache_hits"] == hits
        torch._dynamo.reset()


def test_statistics_outlive_their_graphs():
    litz.reset_stats()
    totals = []
    for factor in (2, 3):
        fast = litz_compiled(lambda x: foreign(x) * factor)
        for _ in range(factor):
            fast(randn(3))
        totals.append(litz.stats())
        # What Dynamo compiled goes with its code.
        gone = weakref.ref(fast)
        del fast
        torch._dynamo.reset()
        gc.collect()
        assert gone() is None
        totals.append(litz.stats())
    for before, after in (totals[:2], totals[2:]):
        assert before == after
    for name, (first, second) in {"graphs": (1, 2), "calls": (2, 5), "plans": (1, 2)}.items():
        assert (totals[0][name], totals[2][name]) == (first, second)
    assert totals[2]["kernels"] == 2 * totals[0]["kernels"] > 0 and totals[2]["launches"] == 2 * totals[0]["launches"] > 0
    ((_, (calls, *_)),) = totals[3]["fallbacks"].items()
    assert calls == 5


def test_statistics_of_graphs_that_were_forgotten_stay_so():
    fast = litz_compiled(lambda x: x * 2)
    fast(randn(3))
    litz.reset_stats()
    del fast
    torch._dynamo.reset()
    gc.collect()
    assert litz.stats()["calls"] == 0
    litz_compiled(lambda x: x * 3)(randn(3))
    assert litz.stats()["calls"] == litz.stats()["graphs"] == 1


def test_statistics_are_forgotten():
    fast = litz_compiled(lambda x: x * 2)
    fast(randn(3))
    litz.reset_stats()
    counts = litz.stats()
    assert all(counts[name] == 0 for name in ("graphs", "calls", "kernels", "launches", "plans"))


def test_pointwise_operators_become_one_kernel():
    litz.reset_stats()
    litz_compiled(lambda x: ((x * 2 + 1).sin() * x).relu().exp() - x)(randn(100))
    counts = litz.stats()
    assert counts["kernels"] == 1 and counts["launches"] == 1


def test_texts_are_dumped(tmp_path):
    x = randn(3).requires_grad_()
    f = litz_compiled(lambda x: (x.sin() * 2).sum(), options={"dump": str(tmp_path / "texts")})
    f(x).backward()
    f(randn(3))
    first = lambda number: (tmp_path / "texts" / f"graph{number}" / "00.import.litz").read_text()
    # Those of the forward graph, the backward graph, and the graph without gradients.
    assert "aten.sin" in first(0) and "aten.cos" in first(1) and "aten.sin" in first(2)
    assert len(list((tmp_path / "texts").iterdir())) == 3


def test_a_cache_is_shared(tmp_path):
    def f(x):
        return (x * 3 + 1).tanh()

    x = randn(9)
    for _ in range(2):
        torch._dynamo.reset()
        same(litz_compiled(f, options={"cache": str(tmp_path)})(x), f(x))
    assert any(path.is_file() for path in tmp_path.rglob("*"))


def test_a_cache_that_is_read_only_is_used_and_stays_as_it_is(tmp_path):
    def f(x):
        return (x * 5 - 1).tanh()

    x = randn(9)
    files = lambda: sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
    for is_read_only, is_filled in ((True, False), (False, True), (True, True)):
        torch._dynamo.reset()
        before, hits = files(), litz.stats()["cache_hits"]
        same(litz_compiled(f, options={"cache": str(tmp_path), "cache_read_only": is_read_only})(x), f(x))
        assert bool(files()) is is_filled and (files() == before) is is_read_only
    assert litz.stats()["cache_hits"] > hits


def test_what_is_not_in_a_cache_is_found_in_a_shared_one(tmp_path):
    def f(x):
        return (x * 7 - 2).tanh()

    x, (own, shared) = randn(9), (tmp_path / "own", tmp_path / "shared")
    same(litz_compiled(f, options={"cache": shared})(x), f(x))
    torch._dynamo.reset()
    there, hits = sorted(shared.iterdir()), litz.stats()["cache_hits"]
    same(litz_compiled(f, options={"cache": own, "shared_cache": shared})(x), f(x))
    assert litz.stats()["cache_hits"] == hits + 1
    assert sorted(shared.iterdir()) == there and not any(own.iterdir())


def test_frozen_parameters_are_constants():
    model = nn.Linear(4, 3).eval()
    x = randn(2, 4)
    with torch.no_grad():
        fast = litz_compiled(model, options={"freeze": True})
        same(fast(x), model(x))
        same(fast(x * 2), model(x * 2))


def test_frozen_parameters_behind_other_inputs():
    model = nn.Linear(4, 3)

    def f(x):
        torch.ops.aten._print("")
        return model(x)

    x = randn(2, 4)
    with torch.no_grad():
        same(litz_compiled(f, options={"freeze": True})(x), model(x))


def test_buffers_that_a_graph_writes_to_are_not_frozen():
    fast, eager = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    compiled_norm = litz_compiled(fast, options={"freeze": True})
    with torch.no_grad():
        for _ in range(3):
            x = randn(8, 4)
            same(compiled_norm(x), eager(x))
    same(dict(fast.state_dict()), dict(eager.state_dict()))


@each(
    rand=lambda x: torch.rand_like(x) + x,
    randn=lambda x: torch.randn(3, 5) * x,
    dropout=lambda x: torch.dropout(x, 0.5, True),
    several=lambda x: (torch.rand(4), torch.randn(4), torch.randint(9, (4,))),
)
def test_random_numbers_of_eager_mode(f):
    x = randn(3, 5)
    fast = litz_compiled(f, options={"random": "eager"})
    for seed in (1, 2):
        torch.manual_seed(seed)
        found = [fast(x), fast(x)]
        torch.manual_seed(seed)
        same(found, [f(x), f(x)])


def test_attention_without_dropout_takes_no_random_numbers():
    q, k, v = (randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))
    f = torch.nn.functional.scaled_dot_product_attention
    fast = litz_compiled(lambda q, k, v: f(q, k, v, is_causal=True), options={"random": "eager", "fallback": "error"})
    found, wanted = fast(q, k, v), f(q, k, v, is_causal=True)
    same(found, wanted)
    for one, other in zip(torch.autograd.grad(found.sum(), (q, k, v)), torch.autograd.grad(wanted.sum(), (q, k, v)), strict=True):
        same(one, other)


def test_errors_have_one_base():
    for name in ("InternalError", "InvalidError", "RunError", "UnsupportedError"):
        assert issubclass(getattr(litz, name), litz.LitzError)
    assert isinstance(litz.__version__, str)


def test_the_backend_is_found_by_its_name():
    assert "litz" in torch._dynamo.list_backends(exclude_tags=())


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_products_are_as_exact_as_pytorch_has_them(precision):
    """Of float32 numbers on a GPU; an option of Litz's own comes first."""
    from litz import options as option

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        found = option.read(None, None).native().get("float32_products", "float32")
        own = option.read(None, {"float32_products": "float32"}).native()["float32_products"]
    finally:
        torch.set_float32_matmul_precision(before)
    assert (found, own) == ("tf32" if precision == "high" else "float32", "float32")
