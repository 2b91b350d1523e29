"""Checks functions and models with collectives in two processes, against eager mode in the same ones: see `collective_programs.py`."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from checks import needs_litz

import collective_programs

pytestmark = [needs_litz, pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no processes of one model")]

PROCESSES, CALLS, LARGE_CALLS, GROWTH_CALLS = 2, 8, 1, 60
ELEMENTS = (1, 16, 1_000_000)

# What is called for each function, and how often in a call: in Litz's own memory where PyTorch has an operator that works in place.
ASKED = {
    "in_place": {"all_reduce_": 1},
    "all_reduce": {"all_reduce_": 1},
    "all_reduce_of_an_argument": {"all_reduce_": 1},
    "all_gather": {"all_gather_into_tensor": 1},
    "reduce_scatter": {"reduce_scatter_tensor": 1},
    "all_to_all": {"all_to_all_single": 1},
    "broadcast": {"broadcast_": 1},
    "reduced_together": {"all_reduce_coalesced_": 1},
    "gathered_together": {"all_gather_into_tensor_coalesced": 1},
    "scattered_together": {"reduce_scatter_tensor_coalesced": 1},
    "returned_as_it_is": {"all_reduce_": 1},
    "one_after_another": {"all_reduce_": 2, "all_gather_into_tensor": 1},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each process found."""
    out = tmp_path_factory.mktemp("collectives")
    settings = {"--processes": [PROCESSES], "--elements": ELEMENTS, "--calls": [CALLS], "--large-calls": [LARGE_CALLS]}
    settings["--growth-calls"] = [GROWTH_CALLS]
    flags = [str(text) for flag, values in settings.items() for text in (flag, *values)]
    command = [sys.executable, str(pathlib.Path(collective_programs.__file__)), str(out), *flags]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(PROCESSES)]


@pytest.mark.parametrize("elements", ELEMENTS)
@pytest.mark.parametrize("f", collective_programs.FUNCTIONS, ids=lambda f: f.__name__)
def test_results_are_complete(found, f, elements):
    calls = CALLS if elements < 1_000_000 else LARGE_CALLS
    for one in found:
        outcome = one["differences"][f"{f.__name__} {elements}"]
        asked = {op: count * calls for op, count in ASKED[f.__name__].items()}
        assert outcome == {"wrong": 0, "asked": asked, "eager_graphs": {}}


def test_arguments_that_are_on_their_way_are_waited_for(found):
    assert [one["awaited"] for one in found] == [0] * PROCESSES


def test_results_are_not_kept(found):
    for one in found:
        assert one["growth"]["warnings"] == []
        # A result has 4 MiB.
        assert one["growth"]["grown"] < GROWTH_CALLS


@pytest.mark.parametrize("model", ["by_rows", "sharded"])
def test_models_train_that_are_split_over_processes(found, model):
    for one in found:
        outcome = one["trained"][model]
        assert outcome["graphs"] >= 2 and outcome["eager_graphs"] == {}
        assert outcome["apart"] < 1e-5


def test_processes_with_other_orders_are_told_before_they_wait(found):
    for one in found:
        orders = [f"process {process}: " + ", ".join(f"all_reduce(float32, {by})" for by in _orders(process)) for process in range(PROCESSES)]
        assert all(order in one["other_orders"] for order in orders), one["other_orders"]


def _orders(process):
    return ("sum", "max") if process else ("max", "sum")
