"""Runs exported models on NumPy's arrays, in a process that has no PyTorch."""

import importlib.util
import json
import pathlib
import sys
import threading
import time

import numpy
import pytest

import litz

ROOT = pathlib.Path(__file__).parents[4]
DIGITS = ROOT / "examples" / "digits.pt2"


def stored(path):
    """The arrays of a file of safetensors."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    types = {"F32": numpy.float32, "I64": numpy.int64, "U8": numpy.uint8}
    arrays = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            flat = numpy.frombuffer(data[8 + size :][start:end], types[entry["dtype"]])
            arrays[name] = flat.reshape(entry["shape"])
    return arrays


@pytest.fixture(scope="module")
def model():
    return litz.compile(DIGITS, options={"threads": 2, "cache": None})


@pytest.fixture(scope="module")
def images():
    arrays = stored(ROOT / "examples" / "digits.safetensors")
    return arrays["images"].astype(numpy.float32), arrays["labels"]


def test_pytorch_is_not_needed(model):
    assert "torch" not in sys.modules
    assert (model.inputs, model.outputs) == (["input"], ["out"])


def test_digits_are_read(model, images):
    pictures, labels = images
    (scores,) = model(pictures)
    assert isinstance(scores, numpy.ndarray) and scores.dtype == numpy.float32
    assert (scores.argmax(1) == labels).all()


def test_arrays_are_read_where_they_are_whatever_their_strides(model, images):
    pictures, _ = images
    expected = model(pictures)[0]
    spread = numpy.zeros((*pictures.shape[:3], 16), numpy.float32)
    spread[..., ::2] = pictures
    assert numpy.array_equal(model(spread[..., ::2])[0], expected)
    turned = numpy.ascontiguousarray(pictures.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2)
    assert numpy.array_equal(model(turned)[0], expected)
    frozen = pictures.copy()
    frozen.flags.writeable = False
    assert numpy.array_equal(model(input=frozen)[0], expected)


def test_each_call_has_results_of_its_own(model, images):
    pictures, _ = images
    first = model(pictures)[0]
    kept = first.copy()
    second = model(numpy.zeros_like(pictures))[0]
    assert numpy.array_equal(first, kept) and not numpy.shares_memory(first, second)


def test_what_does_not_fit_is_an_error(model, images):
    pictures, _ = images
    for wrong in (pictures.astype(numpy.float64), pictures[0], pictures[:, :, :7], numpy.zeros((65, 1, 8, 8), numpy.float32)):
        with pytest.raises(litz.RunError):
            model(wrong)
    with pytest.raises(ValueError, match="backwards"):
        model(pictures[..., ::-1])
    with pytest.raises(TypeError, match="expected a tensor or an array, found list"):
        model([1.0])
    with pytest.raises(litz.InvalidError, match="input"):
        model(images=pictures)
    with pytest.raises(TypeError):
        model(pictures, pictures)
    assert model(pictures)[0].shape == (len(pictures), 10)


def test_stages_are_texts(model):
    assert model.text("kernel").startswith("kernel @")
    assert model.text("program").startswith("program @")
    names = [name for name, _ in model.timings]
    assert "schedule" in names and all(seconds >= 0 for _, seconds in model.timings)
    assert model.statistics()["calls"] > 0


def test_a_saved_program_is_loaded(model, images, tmp_path):
    pictures, _ = images
    model.save(tmp_path / "digits.litzc")
    loaded = litz.load(tmp_path / "digits.litzc", options={"threads": 2})
    assert (loaded.inputs, loaded.outputs) == (model.inputs, model.outputs)
    assert numpy.array_equal(loaded(pictures)[0], model(pictures)[0])
    with pytest.raises(litz.InvalidError):
        litz.load(DIGITS)


def test_a_page_is_written(model, images, tmp_path):
    pictures, _ = images
    model.report(tmp_path / "report.html", pictures, calls=1)
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>") and "conv.py" in page
    with pytest.raises(litz.RunError):
        model.report(tmp_path / "report.html", pictures[0])


def test_files_that_are_none_and_options_that_are_none():
    with pytest.raises(litz.InvalidError, match="nowhere.pt2"):
        litz.compile("nowhere.pt2")
    with pytest.raises(litz.InvalidError):
        litz.compile(ROOT / "README.md")
    with pytest.raises(litz.InvalidError, match="no such option: thread"):
        litz.compile(DIGITS, options={"thread": 2})
    with pytest.raises(litz.InvalidError, match="no such option: launch; there are gpu, threads, .*, launch_together, "):
        litz.compile(DIGITS, options={"launch": 8})
    with pytest.raises(litz.InvalidError, match="launch_together: expected a number from 0 to 1024, found `1025`"):
        litz.compile(DIGITS, options={"launch_together": 1025})
    with pytest.raises(litz.InvalidError, match="found int"):
        litz.compile(3)


def test_a_setting_is_an_option(images):
    pictures, _ = images
    (expected,) = litz.compile(DIGITS)(pictures)
    model = litz.compile(DIGITS, options={"launch_together": 8, "reorder_axes": "never", "chunk_ops": 1})
    (scores,) = model(pictures)
    assert numpy.abs(numpy.asarray(scores) - numpy.asarray(expected)).max() < 1e-4


def test_the_cache_is_its_owners_alone(tmp_path):
    folder = tmp_path / "cache"
    options = {"threads": 1, "cache": str(folder)}
    assert litz.cache_info(options={"cache": None}) is None
    litz.compile(DIGITS, options=options)
    info = litz.cache_info(options=options)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert info["entries"] > 0 and info["bytes"] == sum(path.stat().st_size for path in folder.iterdir()) <= info["limit"]
    folder.chmod(0o770)
    for call in (litz.compile, lambda _, options: litz.cache_info(options=options)):
        with pytest.raises(litz.CacheError, match="chmod 700"):
            call(DIGITS, options=options)


class Slow:
    """An array whose protocol lets other threads run before it answers."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        time.sleep(0.05)
        return self.array.__dlpack__(**kwargs)


def test_threads_do_not_wait_for_each_other_within_the_protocol(model, images):
    pictures, _ = images
    (wanted,) = model(pictures)
    results = []
    threads = [threading.Thread(target=lambda: results.append(model(Slow(pictures))[0]), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(results) == 3
    assert all((result == wanted).all() for result in results)


def test_a_module_of_python_runs_on_arrays(model, images, tmp_path):
    pictures, _ = images
    text, constants = litz._litz.module_of(model._compiled, "python")
    (tmp_path / "digits.py").write_text(text)
    # What `litz compile --to python -o digits.py` writes beside the module.
    header, data, end = {}, b"", 0
    for name, array in constants.items():
        assert array.dtype == numpy.float32
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [end, end := end + array.nbytes]}
        data += array.tobytes()
    head = json.dumps(header).encode()
    (tmp_path / "digits.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data)
    spec = importlib.util.spec_from_file_location("digits", tmp_path / "digits.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    few = pictures[:3]
    (found,) = module.build()(few)
    (expected,) = litz.compile(DIGITS, options={"reference": True, "threads": 2, "cache": None})(few)
    assert numpy.array_equal(found, expected)
    for wrong in (few.astype(numpy.float64), few[:, :, :7], numpy.zeros((65, 1, 8, 8), numpy.float32)):
        with pytest.raises(litz.RunError):
            module.build()(wrong)
    with pytest.raises(litz.InvalidError, match="there is no constant"):
        module.build({})


TWICE = """kernel @twice {
  read x: f32[4]
  write y: f32[4]
  vector i in 4 by 4 {
    %0: f32 = load x[i]
    %1: f32 = add %0, %0
    y[i] = %1
  }
}
"""


@pytest.mark.parametrize("reference", [False, True])
def test_kernels_are_launched_alone(reference):
    kernels = litz._litz.Kernels(TWICE, options={"threads": 1, "cache": None, "reference": reference})
    x, y = numpy.arange(4, dtype=numpy.float32), numpy.zeros(4, numpy.float32)
    kernels.launch("twice", [x], [y], [])
    assert (y == 2 * x).all()
    memory = numpy.zeros(7, numpy.float32)
    frozen = y.copy()
    frozen.flags.writeable = False
    for kernel, reads, writes, message in (
        ("thrice", [x], [y], "there is no kernel @thrice"),
        ("twice", [x, x], [y], "expected 1 memories to read and 1 to write"),
        ("twice", [memory[:4]], [memory[3:]], "overlaps"),
        ("twice", [x.reshape(2, 2)], [y], "expected a vector"),
        ("twice", [memory[::2]], [y], "expected a vector"),
        ("twice", [x], [frozen], "read-only"),
    ):
        with pytest.raises(litz.InvalidError, match=message):
            kernels.launch(kernel, reads, writes, [])
    with pytest.raises(litz.RunError, match="expected 16 bytes for memory 0, found 12"):
        kernels.launch("twice", [x[:3]], [y], [])


def test_routines_take_the_types_that_they_are_told():
    # bfloat16, of which NumPy has the bits: 1, -2, 0.5.
    x, values, places = numpy.array([0x3F80, 0xC000, 0x3F00], numpy.uint16), numpy.zeros(3, numpy.uint16), numpy.zeros(3, numpy.int64)
    litz._litz.routine("sort", [x], [values, places], [1, 3, 1, 0], dtypes=["bf16", "bf16", "i64"])
    assert places.tolist() == [1, 2, 0] and values.tolist() == [0xC000, 0x3F00, 0x3F80]
    with pytest.raises(litz.InvalidError, match="there is no routine"):
        litz._litz.routine("shuffle", [x], [values], [])
    assert litz._litz.number("bf16", x[1:2].tobytes()) == -2
