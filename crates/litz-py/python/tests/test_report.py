"""Pages about models, as a browser without a network draws them; what `litz.explain` says; programs that were saved."""

import html.parser
import json
import pathlib
import re
import shutil
import subprocess

import pytest
import torch
from checks import needs_litz
from torch import nn, randn

import litz
from litz import function

pytestmark = needs_litz

DIGITS = pathlib.Path(__file__).parents[4] / "examples" / "digits.pt2"

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, such as Debian's package `chromium`")


@torch.library.custom_op("litz_tests::reported", mutates_args=())
def reported(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@reported.register_fake
def _(x):
    return torch.empty_like(x)


reported.register_autograd(lambda context, gradient: gradient)


class Elements(html.parser.HTMLParser):
    """The elements of a page: tag, attributes and all text inside."""

    VOID = {"meta", "input", "img", "br", "link", "base"}

    def __init__(self, text):
        super().__init__()
        self.all, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "attributes": dict(attrs), "text": ""}
        self.all.append(element)
        if tag not in self.VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        while self.open and self.open.pop()["tag"] != tag:
            pass

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def having(self, name, value=None):
        """Elements that have an attribute, with that value if one is given."""
        return [one for one in self.all if name in one["attributes"] and value in (None, one["attributes"][name])]

    def text_of(self, name):
        """The text of the element of that identifier."""
        (element,) = self.having("id", name)
        return element["text"]


def drawn(path, fragment="", folder=None):
    """The page as a browser draws it, which can reach nothing but the file."""
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND",
        "--proxy-server=127.0.0.1:9", f"--user-data-dir={folder or path.parent / 'profile'}", "--enable-logging=stderr",
        "--virtual-time-budget=5000", "--dump-dom", path.as_uri() + fragment,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    said = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    assert not said, said
    return Elements(done.stdout)


def data_of(path):
    """What a page was made of."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    return json.loads(found[1])


class Net(nn.Module):
    """A network with a break in the middle, and an operator that Litz does not have behind it."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)

    def forward(self, x):
        x = self.norm(nn.functional.gelu(self.first(x)))
        torch._dynamo.graph_break()
        return self.last(reported(x)).softmax(-1)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A page about the digits, and the model."""
    path = tmp_path_factory.mktemp("digits") / "report.html"
    model = litz.compile(DIGITS, options={"threads": 2})
    model.report(path, calls=3)
    return path, model


@needs_browser
def test_every_part_of_a_model_is_drawn(digits):
    path, model = digits
    (data,) = data_of(path)["models"]
    page = drawn(path)
    assert [one["text"] for one in page.all if one["tag"] == "h1"] == ["digits.pt2"]
    # The map has each line, and as many operators and kernels as are shown at once, with what connects them.
    rows = {kind: [one["attributes"]["data-name"] for one in page.having("data-kind", kind)] for kind in ("sources", "nodes", "steps")}
    assert rows["sources"] == data["sources"]
    assert rows["nodes"] == [f"%{node['name']}" for node in data["nodes"]][:40]
    assert rows["steps"] == [step["name"] for step in data["steps"]][:40]
    edges = [one for one in page.all if one["tag"] == "path" and one["attributes"].get("class") == "edge"]
    assert len(edges) >= len(data["nodes"])
    # Each kernel is a row of the table, with its time where it runs at calls, and each of these a step of the drawing.
    kernels = {one["attributes"]["data-kernel"]: one["text"] for one in page.having("data-kernel")}
    assert set(kernels) == {kernel["name"] for kernel in data["kernels"]}
    assert all("us" in kernels[kernel["name"]] or "ms" in kernels[kernel["name"]] for kernel in data["kernels"] if kernel["ms"])
    each_call = [step["name"] for step in data["steps"] if not step["at_load"]]
    assert [one["attributes"]["data-step"] for one in page.having("data-step")] == each_call
    # What was not fused, memory, stages, and the first text.
    verdicts = {one["attributes"]["data-verdict"]: one["text"] for one in page.having("data-verdict")}
    assert set(verdicts) == {verdict["name"] for verdict in data["fusion"]["verdicts"]} and "not-an-epilogue" in verdicts
    refused = [pair for pair in data["fusion"]["pairs"] if data["fusion"]["verdicts"][pair[2]]["name"] != "fused"]
    assert len(page.having("data-pair")) == min(10, len(refused)) > 0
    assert {one["attributes"]["data-place"] for one in page.having("data-place")} == {place["name"] for place in data["memory"]["places"]}
    assert len(page.having("data-stage")) > 5
    assert "graph @model on cpu" in page.text_of("text-lines") and "conv.py" in page.text_of("text-lines")
    assert "Litz computes all of the model" in page.text_of("hosts")
    # Nothing that a browser would fetch.
    assert not [one for one in page.all if {"src", "srcset"} & set(one["attributes"]) or one["tag"] in ("link", "iframe", "img")]
    assert model.text("kernel").count("kernel @") == len(kernels)


@needs_browser
def test_links_lead_from_a_kernel_to_its_lines_and_texts(digits):
    path, _ = digits
    (data,) = data_of(path)["models"]
    linear = next(at for at, node in enumerate(data["nodes"]) if node["op"] == "aten.linear.default")
    step = next(step for step in data["steps"] if any(linear in data["statements"][at]["nodes"] for at in step["statements"]) and not step["at_load"])
    page = drawn(path, f"#steps={step['name']}")
    chosen = page.text_of("chosen")
    assert chosen.startswith(f"Step {step['name']}")
    assert data["sources"][data["nodes"][linear]["source"]] in chosen and "%linear" in chosen
    for stage in ("graph", "loops", "schedule", "kernel", "program"):
        assert f"in {stage}" in chosen
    # The map shows what belongs to it, and nothing else.
    assert [one["attributes"]["data-name"] for one in page.having("data-kind", "steps")] == [step["name"]]
    # Texts: each stage's, with names as links.
    for stage, first in {"loops": "loops @model", "schedule": "schedule @model", "kernel": "kernel @k0", "program": "program @model"}.items():
        page = drawn(path, f"#text={stage}")
        assert first in page.text_of("text-lines")
        assert any(one["tag"] == "button" and one["attributes"].get("title") == "k3" for one in page.all) or stage == "loops"


@needs_browser
def test_graphs_of_a_function_are_on_one_page(tmp_path):
    explanation = litz.explain(Net(), randn(8, 16))
    path = tmp_path / "report.html"
    explanation.report(path, calls=2)
    page = drawn(path)
    assert "graph 1 of 2: forward" in page.text_of("models") and "graph 2 of 2: forward" in page.text_of("models")
    assert [one for one in page.having("class", "note") if "graph_break" in one["text"] and "test_report.py" in one["text"]]
    first, second = data_of(path)["models"]
    assert not first["hosts"] and second["hosts"][0]["op"] == "litz_tests.reported.default"
    assert second["hosts"][0]["ms"] > 0 and any("test_report.py" in line for line in second["hosts"][0]["sources"])
    assert all(model["measured"] for model in (first, second))


@needs_browser
def test_hostile_names_are_drawn_as_names(tmp_path):
    hostile = "<img src=x onerror=document.title=1>"
    # A file of that name is in the stack of each node.
    scope = {"torch": torch}
    exec(compile("def f(x):\n    return torch.relu(x) + 1\n", f"{hostile}.py", "exec"), scope)
    scope["f"].__qualname__ = f"</script><script>document.title='2'</script>{hostile}"
    explanation = litz.explain(scope["f"], randn(4))
    path = tmp_path / "report.html"
    explanation.report(path, calls=1)
    page = drawn(path)
    assert any(hostile in line for line in data_of(path)["models"][0]["sources"])
    assert any(hostile in one["attributes"]["data-name"] for one in page.having("data-kind", "sources"))
    # Those behind the first are what rectangles of the drawings are called.
    title = next(one["text"] for one in page.all if one["tag"] == "title")
    assert title == f"{explanation.name} - Litz"
    assert not [one for one in page.all if one["tag"] == "img" or "onerror" in one["attributes"]]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@needs_browser
def test_a_module_is_found_by_its_path_and_shown(tmp_path):
    path = tmp_path / "report.html"
    litz.compile(Blocks(), (randn(4, 16),), options={"threads": 2}).report(path, calls=1)
    (data,) = data_of(path)["models"]
    for word, modules in {"layers.1.up": {"layers.1.up"}, "LAYERS.2": {"layers.2", "layers.2.up", "layers.2.down"}}.items():
        of_modules = {f"%{node['name']}": node["module"] for node in data["nodes"] if node["module"] in modules}
        assert set(of_modules.values()) == modules
        page = drawn(path, f"#find={word}")
        rows = {one["attributes"]["data-name"]: one["text"] for one in page.having("data-kind", "nodes")}
        assert set(rows) == set(of_modules)
        assert all(f" in {of_modules[name]}" in text for name, text in rows.items())
        # What they became is beside them.
        assert 0 < len(page.having("data-kind", "steps")) < len(data["steps"])
    (name,) = [node["name"] for node in data["nodes"] if node["module"] == "layers.1.up"]
    chosen = drawn(path, f"#nodes={name}").text_of("chosen")
    assert "modulelayers.1.up" in chosen
    assert not drawn(path, "#find=layers.7").having("data-kind", "nodes")


@needs_browser
def test_a_large_model_is_drawn_a_part_at_a_time(tmp_path):
    def chain(x):
        for _ in range(400):
            x = torch.tanh(x @ x)
        return x

    path = tmp_path / "report.html"
    litz.explain(chain, randn(8, 8) / 8).report(path, calls=1)
    (data,) = data_of(path)["models"]
    assert len(data["nodes"]) >= 800 and len(data["steps"]) >= 400
    page = drawn(path)
    assert len(page.having("data-kind", "nodes")) == 40
    assert len(page.having("data-step")) >= 400
    assert len([one for one in page.all if (one["attributes"].get("class") or "").startswith("line")]) <= 300
    assert len(page.all) < 20000


def test_an_explanation_says_what_became_of_a_function():
    net, x = Net(), randn(8, 16)
    explanation = litz.explain(net, x)
    torch.testing.assert_close(explanation.result, net(x))
    assert [graph.kind for graph in explanation.graphs] == ["forward", "forward"]
    assert len(explanation.breaks) == 1 and explanation.breaks[0].line.startswith("test_report.py:")
    assert explanation.kernels == sum(graph.kernels for graph in explanation.graphs) > 0
    assert explanation.launches >= explanation.kernels
    fallback = explanation.fallbacks["litz_tests.reported.default"]
    assert fallback.calls == 1 and fallback.lines[0].startswith("test_report.py:")
    for stage in ("graph", "loops", "schedule", "kernel", "program"):
        assert stage in explanation.graphs[0].text(stage)
    said = str(explanation)
    for part in ("Net: 2 graphs, 1 graph break", "PyTorch runs litz_tests.reported.default: 1 call at test_report.py:", "break at test_report.py:"):
        assert part in said
    # Backward graphs are there as soon as they have run.
    explanation.result.square().sum().backward()
    assert [graph.kind for graph in explanation.graphs].count("backward") == 2


def test_an_explanation_begins_anew_and_takes_keywords():
    def f(x, *, scale):
        return (x * scale).sum(-1)

    x = randn(3, 4)
    compiled = torch.compile(f, backend="litz")
    for _ in range(2):
        explanation = litz.explain(compiled, x, scale=2.0)
        assert len(explanation.graphs) == 1 and explanation.graphs[0].kind == "inference" and not explanation.breaks
        torch.testing.assert_close(explanation.result, f(x, scale=2.0))


def test_an_explanation_takes_what_torch_compile_takes(tmp_path):
    def f(x):
        return reported(x).sum(-1)

    x = randn(6, 4)
    # Sizes are symbols at once, and not only when they change.
    for dynamic, sizes in ((None, "f32[6, 4]"), (False, "f32[6, 4]"), (True, "f32[s")):
        (graph,) = litz.explain(f, x, dynamic=dynamic).graphs
        assert f": {sizes}" in graph.text()
    with pytest.raises(Exception, match="UnsupportedError(.|\n)*reported"):
        litz.explain(f, x, options={"fallback": "error"})
    with pytest.warns(UserWarning, match="PyTorch runs litz_tests.reported"):
        function._warned.clear()
        litz.explain(f, x, options={"fallback": "warn"})
    litz.explain(torch.sin, x, options={"dump": tmp_path}, mode="reduce-overhead")
    assert any(path.is_file() for path in tmp_path.rglob("*"))
    with pytest.raises(litz.InvalidError, match="no such option: speed"):
        litz.explain(f, x, options={"speed": 11})
    with pytest.raises(litz.InvalidError, match="no such mode: fast"):
        litz.explain(f, x, mode="fast")


def test_settings_that_may_be_meant_for_the_function_are_refused():
    x = randn(1, 1, 4, 4)
    with pytest.raises(litz.InvalidError, match="a parameter `mode` of its own"):
        litz.explain(nn.functional.interpolate, x, scale_factor=2, mode="nearest")
    explanation = litz.explain(lambda x: nn.functional.interpolate(x, scale_factor=2, mode="nearest"), x)
    assert explanation.result.shape == (1, 1, 8, 8)

    class Scaled(nn.Module):
        def forward(self, x, options=None):
            return x * (options or {"by": 2})["by"]

    with pytest.raises(litz.InvalidError, match="a parameter `options` of its own"):
        litz.explain(Scaled(), x, options={"by": 3})
    torch.testing.assert_close(litz.explain(Scaled(), x, {"by": 3}).result, x * 3)


def test_calls_are_timed_with_the_arguments_that_are_given(tmp_path):
    class Table(nn.Module):
        def forward(self, table, rows):
            return table[rows]

    model = litz.compile(Table(), (randn(2, 3), torch.tensor([0, 1])))
    path = tmp_path / "report.html"
    model.report(path, randn(2, 3), calls=1, rows=torch.tensor([1, 1]))
    assert data_of(path)["models"][0]["measured"]["inputs"] == "given"
    with pytest.raises(litz.RunError):
        model.report(path, randn(2, 3), torch.tensor([1, 7]))


def test_arguments_that_are_conjugates_or_opposites_when_they_are_read_are_refused():
    class Doubled(nn.Module):
        def forward(self, x):
            return x * 2

    model = litz.compile(Doubled(), (randn(3),))
    with pytest.raises(litz.InvalidError, match="x is conjugated or negated"):
        model(torch._neg_view(randn(3)))


def test_a_saved_program_is_loaded(tmp_path):
    model = litz.compile(DIGITS)
    path = tmp_path / "digits.litzc"
    model.save(path)
    loaded = litz.load(path, options={"threads": 1})
    assert (loaded.inputs, loaded.outputs) == (model.inputs, model.outputs)
    x = randn(3, 1, 8, 8)
    torch.testing.assert_close(loaded(x)[0], model(x)[0])
    torch.testing.assert_close(loaded(input=x)[0], model(x)[0])
    # What runs at load has run.
    assert loaded.text("kernel") and loaded.text("kernel") in model.text("kernel")
    assert loaded.text("program").startswith("program @model") and loaded.text("graph") is None
    assert loaded.statistics()["calls"] == 2
    with pytest.raises(litz.UnsupportedError):
        loaded.report(tmp_path / "report.html")
    with pytest.raises(litz.InvalidError):
        litz.load(DIGITS)
    with pytest.raises(TypeError):
        loaded()


def test_numbers_of_a_saved_program(tmp_path):
    class Scaled(nn.Module):
        def forward(self, x, by, n):
            return x * by, x[:n]

    x = randn(5, 3)
    dims = {"x": None, "by": None, "n": torch.export.Dim.DYNAMIC}
    exported = torch.export.export(Scaled(), (x, torch.tensor(2.0), 3), dynamic_shapes=dims)
    model = litz.compile(exported)
    model.save(tmp_path / "scaled.litzc")
    loaded = litz.load(tmp_path / "scaled.litzc")
    for n in (2, 4):
        for found, wanted in zip(loaded(x, torch.tensor(3.0), n), Scaled()(x, torch.tensor(3.0), n), strict=True):
            torch.testing.assert_close(found, wanted)
