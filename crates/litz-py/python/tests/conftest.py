"""Starts every test from a Dynamo without compiled code and from the same random numbers, and fails it where PyTorch runs a graph as a whole for a
reason that the test does not name by `@pytest.mark.eager_graphs`, or a call of a compiled graph writes to what it has to leave as it is.
"""

import re

import pytest
import torch
from checks import BACKEND

if BACKEND == "litz":
    import untouched

    untouched.install()


def pytest_configure(config):
    config.addinivalue_line("markers", "eager_graphs(*reasons): PyTorch rightly runs graphs, for reasons that begin as one of the patterns says")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def eager_graphs(request, monkeypatch):
    """Notes why graphs are left to PyTorch, whatever becomes of the counters."""
    if BACKEND != "litz":
        yield
        return
    from litz import dynamo

    reasons, leave = [], dynamo._leave

    def noted(options, reason):
        reasons.append(reason)
        leave(options, reason)

    monkeypatch.setattr(dynamo, "_leave", noted)
    yield
    named = [pattern for mark in request.node.iter_markers("eager_graphs") for pattern in mark.args]
    unexpected = [reason for reason in reasons if not any(_names(pattern, reason) for pattern in named)]
    assert not unexpected, f"PyTorch runs graphs as a whole: {unexpected}"


def _names(pattern, reason):
    """Whether a pattern names a reason. A mistake of Litz is none that a pattern for anything names."""
    is_mistake = reason.startswith("a mistake of Litz")
    return re.match(pattern, reason) is not None and (not is_mistake or pattern.startswith("a mistake of Litz"))
