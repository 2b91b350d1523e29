"""Graphs that fail are kept for `litz minify`, with what they were called with; a NaN is an error where that is asked for."""

import pytest
import torch
from checks import BACKEND, needs_litz

pytestmark = needs_litz
litz = pytest.importorskip("litz") if BACKEND == "litz" else None


def logarithms(x, y):
    return (torch.log(x) * y).sum(1)


def compiled(**options):
    torch._dynamo.reset()
    return torch.compile(logarithms, backend="litz", options={"cache": None, **options})


def numbers(dtype=torch.float32):
    x = torch.arange(1.0, 13.0).reshape(3, 4).to(dtype)
    return x, x.flip(0)


def is_kept(folder, contents) -> bool:
    assert sorted(file.name for file in folder.iterdir()) == ["graph.litz", "graph.safetensors", "versions.txt"]
    assert "aten.log.default" in (folder / "graph.litz").read_text()
    assert f"torch {torch.__version__}" in (folder / "versions.txt").read_text()
    tensors = (folder / "graph.safetensors").read_bytes()
    assert b'"in.0"' in tensors and b'"in.1"' in tensors
    return all(tensor.contiguous().view(torch.uint8).numpy().tobytes() in tensors for tensor in contents)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_call_that_makes_a_nan_names_its_step_and_is_kept(tmp_path, capfd, dtype):
    function = compiled(check_nan=True, keep_failures=tmp_path)
    x, y = numbers(dtype)
    torch.testing.assert_close(function(x, y), logarithms(x, y))
    assert not any(tmp_path.iterdir())
    x[2, 1] = -1
    with pytest.raises(litz.RunError, match=r"aten.log.default at test_keeping.py:\d+.* is NaN, and nothing that the step reads is"):
        function(x, y)
    assert is_kept(tmp_path / "graph0", [x, y])
    assert f"litz minify {tmp_path / 'graph0'}" in capfd.readouterr().err


def test_without_a_check_a_nan_is_a_number(tmp_path, monkeypatch):
    monkeypatch.setenv("LITZ_KEEP_FAILURES", str(tmp_path))
    x, y = numbers()
    x[0, 0] = -1
    assert compiled(check_nan=False)(x, y)[0].isnan()
    assert not any(tmp_path.iterdir())
    with pytest.raises(litz.RunError, match="is NaN"):
        compiled(check_nan=True)(x, y)
    assert is_kept(tmp_path / "graph0", [x, y])


def test_the_first_call_of_each_graph_is_kept(tmp_path):
    function = compiled(keep_calls=tmp_path)
    x, y = numbers()
    function(x, y)
    function(y, x)
    assert [folder.name for folder in tmp_path.iterdir()] == ["graph0"]
    assert is_kept(tmp_path / "graph0", [x, y])


def test_a_folder_is_a_path():
    with pytest.raises(Exception, match="keep_calls: expected a folder or None, found 7"):
        compiled(keep_calls=7)(*numbers())
