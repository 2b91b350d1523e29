"""Functions with operators that PyTorch orders by tokens, or that look at what tensors hold. As a program, compares all of them with eager mode, called
and trained, and prints what it found.
"""

import json
import traceback

import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters
from torch._higher_order_ops.effects import _register_effectful_op
from torch._library.effects import EffectType

import litz.dynamo

# What a line with what was found begins with: functions print lines of their own.
FOUND = "found:"

# Calls of operators with effects, in order, and what they were given.
NOTED = []


@torch.library.custom_op("litz_effects::note", mutates_args=())
def note(x: torch.Tensor, name: str) -> torch.Tensor:
    NOTED.append((name, x.sum().item()))
    return x * 2


@torch.library.custom_op("litz_effects::both", mutates_args=())
def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    NOTED.append(("both", x.sum().item(), y.sum().item()))
    return x + y, x * y


@torch.library.custom_op("litz_effects::log", mutates_args=())
def log(x: torch.Tensor) -> None:
    NOTED.append(("log", x.sum().item()))


@torch.library.custom_op("litz_effects::several", mutates_args=())
def several(parts: list[torch.Tensor], scale: float, count: int) -> list[torch.Tensor]:
    NOTED.append(("several", len(parts), scale, count))
    return [part * scale for part in parts]


def _save_both(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _gradients_of_both(context, one, other):
    x, y = context.saved_tensors
    # A call with effects in the backward graph as well.
    torch.ops.litz_effects.log(one)
    return one + other * y, one + other * x


note.register_fake(lambda x, name: torch.empty_like(x))
note.register_autograd(lambda context, grad: (torch.ops.litz_effects.note(grad, "backward"), None))
both.register_fake(lambda x, y: (torch.empty_like(x), torch.empty_like(x)))
both.register_autograd(_gradients_of_both, setup_context=_save_both)
log.register_fake(lambda x: None)
several.register_fake(lambda parts, scale, count: [torch.empty_like(part) for part in parts])
several.register_autograd(
    lambda context, grads: ([grad * context.scale for grad in grads], None, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "scale", inputs[1]),
)
note.register_effect(EffectType.ORDERED)
for name in ("both", "log", "several"):
    _register_effectful_op(getattr(torch.ops.litz_effects, name).default, EffectType.ORDERED)


def printed(x):
    torch.ops.aten._print("before")
    y = x.sin() * x
    torch.ops.aten._print("behind")
    return y


def asserted(x):
    torch._assert_async((x.abs() < 100).all(), "too large")
    return x.sin() * x


def logged(x):
    y = x.exp()
    torch.ops.litz_effects.log(y)
    torch.ops.litz_effects.log(x)
    return y * y


def added_in_place(x):
    y = x * 1
    y.add_(torch.ops.litz_effects.note(y, "in place"))
    return y * torch.linalg.inv(x)


LINALG = torch.linalg
PROGRAMS = {
    "inv": LINALG.inv,
    "solve": lambda x: LINALG.solve(x, x.sin()),
    "cholesky": LINALG.cholesky,
    "tensorinv": lambda x: LINALG.tensorinv(x.view(2, 2, 4)),
    "tensorsolve": lambda x: LINALG.tensorsolve(x.view(2, 2, 2, 2), x[:2, :2].sin()),
    "matrix_power": lambda x: LINALG.matrix_power(x, -2),
    "lu_factor": lambda x: LINALG.lu_factor(x)[0],
    "cholesky_of_old": lambda x: torch.cholesky_inverse(LINALG.cholesky(x)),
    "several_factorizations": lambda x: (LINALG.inv(x), LINALG.cholesky(x), LINALG.solve(x, x.cos())),
    "print": printed,
    "assert": asserted,
    "note": lambda x: torch.ops.litz_effects.note(x.sin(), "one") * x,
    "note_twice": lambda x: torch.ops.litz_effects.note(torch.ops.litz_effects.note(x.sin(), "one").cos(), "other") * x,
    "both": lambda x: both(x.sin(), x)[1] * both(x, x.exp())[0],
    "several": lambda x: sum(several([x, x.sin(), x[:1]], 3.0, 2)) * x,
    "log": logged,
    "in_place": added_in_place,
    "index_select": lambda x: x.index_select(0, x.argmax(0)),
    "gather": lambda x: x.sin().gather(1, x.argmin(1, keepdim=True)),
    "embedding": lambda x: F.embedding(x.argmax(1), x.exp()),
    "index_put": lambda x: x.sin().index_put((x.argmax(1),), x[0], accumulate=True),
    "scatter_add": lambda x: x.cos().scatter_add(0, x.argsort(0), x),
    "take": lambda x: x.exp().take(x.argsort(1)),
    "cross_entropy": lambda x: F.cross_entropy(x, x.argmin(1)),
}


def with_neighbours(f):
    """A function whose operator stands beside others, one of which saves the argument and another one a result."""
    return lambda x: (f(x), x.square().sum(), x.exp())


def argument():
    """A symmetric matrix with large numbers on its diagonal."""
    row = torch.linspace(-1, 1, 4)
    return torch.diag(torch.arange(3.0, 7.0)) + row.outer(row)


def seen(f, train) -> tuple[list, list]:
    """Results of a call, what it left in its argument, and gradients; and which calls with effects there were."""
    NOTED.clear()
    x = argument().requires_grad_(train)
    with torch.set_grad_enabled(train):
        results = torch.utils._pytree.tree_leaves(f(x))
        if train:
            roots = [result for result in results if result.requires_grad]
            torch.autograd.backward(roots, [torch.linspace(-1, 2, root.numel()).view(root.shape) for root in roots])
    return [*(result.detach() for result in results), x.detach(), *([x.grad] if train else [])], [*NOTED]


def compare(f, train, **settings):
    """Compares two compiled calls with one in eager mode: results, the argument, gradients, and calls with effects."""
    wanted, wanted_calls = seen(f, train)
    fast = torch.compile(f, backend=litz.dynamo.backend, fullgraph=True, options={"fallback": "quiet"}, **settings)
    for _ in range(2):
        found, calls = seen(fast, train)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        assert torch.equal(found[-1 - train], argument()), "the argument has been written to"
        assert [call for call, *_ in calls] == [call for call, *_ in wanted_calls]
        torch.testing.assert_close([given for _, *given in calls], [given for _, *given in wanted_calls], rtol=1e-5, atol=1e-5)


def main():
    for name, f in PROGRAMS.items():
        for train in (False, True):
            torch.compiler.reset()
            hits, left, error = counters["aot_autograd"]["autograd_cache_hit"], sum(litz.stats()["eager_graphs"].values()), None
            try:
                compare(with_neighbours(f), train)
            except Exception:
                error = traceback.format_exc()
            hits, left = counters["aot_autograd"]["autograd_cache_hit"] - hits, sum(litz.stats()["eager_graphs"].values()) - left
            print(FOUND, json.dumps({"name": name, "train": train, "error": error, "hits": hits, "left": left}))


if __name__ == "__main__":
    import untouched

    untouched.install()
    main()
