"""Random programs of operators of others, with fresh seeds: `random_operators.py` runs more of them. And what finds faults finds those put there."""

import random

import pytest
import torch
from checks import BACKEND, needs_litz

if BACKEND == "litz":
    import random_operators

COUNT = 60

# What PyTorch runs as a whole: memory that is resized.
LEFT = (r"inductor\.resize_storage_bytes_\.default",)


@needs_litz
@pytest.mark.eager_graphs(*LEFT)
def test_random_operators():
    seed = random.SystemRandom().randrange(1 << 31)
    trials = [random_operators.trial(seed + at) for at in range(COUNT)]
    failures = [text for _, text in trials if text]
    assert not failures, "\n\n".join(failures)


def program(*lines):
    made = random_operators.Program(1)
    made.dtype, made.sizes, made.is_dynamic, made.lines, made.results = "float32", [[3, 4], [4]], False, [*lines], ["a0"]
    return made


@needs_litz
@pytest.mark.parametrize("line", ["ops.two(a0[1:], a0[:-1])", "ops.scale(a0, a0[0])", "ops.note(a0, 2)", "a0.add_((ops.large(a1) * 2).sum())"])
def test_faults_are_found(line, monkeypatch):
    """Where the host runs an operator twice, results, arguments, or what was noted, are others."""
    random_operators.check(program(line))
    original = random_operators.litz.host._run

    def run(op, name, given, results):
        if op._schema.is_mutable or not results:
            arguments = [*given]
            original(op, name, given, results)
            return original(op, name, arguments, results)
        decided = original(op, name, given, results)
        return [torch.cat([value, value]) for value in decided]

    monkeypatch.setattr(random_operators.litz.host, "_run", run)
    with pytest.raises(random_operators.Wrong):
        random_operators.check(program(line))


@needs_litz
def test_rows_with_gaps_are_copied_for_an_operator():
    """A slice of what an operator has written, of which PyTorch knows that one row is left."""
    lines = ("v0 = a1[::2]", "v1 = v0[::2]", "a1.copy_(a1.flip(0))", "ops.scale(a1, a1)", "v4 = ops.maybe(a0)[0]", "ops.scale(v4, v1)")
    made = program(*lines)
    made.sizes, made.is_dynamic, made.results = [[3], [3, 2]], True, ["v0", "v4"]
    assert random_operators.check(made) == []
