"""Random programs, with fresh seeds: `random_programs.py` runs more of them. And what finds faults finds those that are put there."""

import random
import time

import pytest
import torch
from checks import BACKEND, needs_litz

if BACKEND == "litz":
    import random_programs
    from programs import Line, Program
    from random_programs import Failure

COUNTS = {"fixed": 320, "gradients": 110, "dynamic": 50, "dynamic gradients": 20}


@needs_litz
@pytest.mark.parametrize("kind", COUNTS)
def test_random_programs(kind):
    seed = random.SystemRandom().randrange(1 << 31)
    settings = {"is_dynamic": "dynamic" in kind, "with_grad": "gradients" in kind}
    failures = []
    for at in range(COUNTS[kind]):
        _, text = random_programs.trial(seed + at, **settings, deadline=time.monotonic() + 30)
        if text:
            failures.append(f"seed {seed + at}\n{text}")
    assert not failures, "\n\n".join(failures)


def program(*lines, results, needs_grad=()):
    written = [Line(target, source, (), False) for target, source in (line.split(" = ", 1) for line in lines)]
    return Program(1, {"a0": "torch.randn(A, B)", "a1": "torch.randn(A, B)"}, written, results, needs_grad)


@needs_litz
@pytest.mark.parametrize(
    "kind, program, wrong",
    [
        ("results: values", ("v0 = a0.sin()",), lambda a0, a1: [a0.sin() * 1.0001]),
        ("results: special values", ("v0 = a0 * float('inf')",), lambda a0, a1: [a0 * float("nan")]),
        ("results: dtype", ("v0 = a0 > 0",), lambda a0, a1: [(a0 > 0).int()]),
        ("results: shape", ("v0 = a0.sum(0)",), lambda a0, a1: [a0.sum(0, keepdim=True)]),
        ("results: strides", ("v0 = a0.mT + 1",), lambda a0, a1: [(a0.mT + 1).contiguous()]),
        ("memory", ("v0 = a0[1:]",), lambda a0, a1: [a0[1:].clone()]),
        ("inputs: values", ("v0 = a0[1:].add_(1)",), lambda a0, a1: [a0.clone().add_(1)[1:]]),
        ("gradients: values", ("v0 = a0 * a1",), lambda a0, a1: [a0 * a1.detach() + a0.detach() * a1 * 2 - a0.detach() * a1.detach() * 2]),
    ],
)  # fmt: skip
def test_faults_are_found(kind, program, wrong):
    needs_grad = ("a0", "a1") if kind.startswith("gradients") else ()
    right = globals()["program"](*program, results=["v0"], needs_grad=needs_grad)
    space, sizes = random_programs.namespace(right), right.calls[0]
    wanted = random_programs.call(space["program"], space["make"], sizes, bool(needs_grad))
    random_programs.compare(random_programs.call(space["program"], space["make"], sizes, bool(needs_grad)), wanted, [])
    with pytest.raises(Failure) as failure:
        random_programs.compare(random_programs.call(wrong, space["make"], sizes, bool(needs_grad)), wanted, [])
    assert failure.value.kind == kind


@needs_litz
def test_a_failing_program_is_made_small(monkeypatch):
    """With a sine that is wrong, what is left of a program is the sine."""
    right = torch.ops.aten.sin.default
    original = random_programs.litz.dynamo.convert

    def convert(module, *args, **kwargs):
        for node in module.graph.find_nodes(op="call_function", target=right):
            node.target = torch.ops.aten.cos.default
        return original(module, *args, **kwargs)

    monkeypatch.setattr(random_programs.litz.dynamo, "convert", convert)
    lines = ("v0 = a1 + 1", "v1 = a0.exp()", "v2 = v1.sin()", "v3 = v2.mT", "v4 = v3 + v0.mT", "v5 = v4.clone()")
    large = program(*lines, results=["v5", "v1", "v0"])
    uses = {"v0": ("a1",), "v1": ("a0",), "v2": ("v1",), "v3": ("v2",), "v4": ("v3", "v0"), "v5": ("v4",)}
    for line in large.lines:
        line.uses = uses[line.target]
    with pytest.raises(Failure) as failure:
        random_programs.check(large)
    small = random_programs.shrunk(large, failure.value.kind, time.monotonic() + 60)
    assert [line.source for line in small.lines] == ["a0.sin()"] and small.results == ["v2"]
    assert "aten.cos.default" in random_programs.printed(small, failure.value)
