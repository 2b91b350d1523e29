"""Runs the checks of a script, and prints a line for each."""

import torch

import litz.dynamo


def run(checks: dict) -> int:
    """Runs functions without arguments, by their names, each with nothing compiled before: the exit status, 1 where one raises."""
    torch._dynamo.register_backend(name="litz")(litz.dynamo.backend)
    is_right = True
    for name, check in checks.items():
        torch._dynamo.reset()
        try:
            check()
            print(f"{name:22} right", flush=True)
        except Exception as error:
            is_right = False
            print(f"{name:22} WRONG {type(error).__name__}: {error}", flush=True)
    return 0 if is_right else 1
