"""Starts every test from a Dynamo without compiled code and from the same random numbers."""

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
