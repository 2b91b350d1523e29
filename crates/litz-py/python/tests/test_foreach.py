"""Operators on lists of tensors and whole optimizers, compiled, change parameters as in eager mode."""

import re

import pytest
import torch
from checks import BACKEND, check, compiled, each, needs_litz, same
from torch import nn, randn

litz = pytest.importorskip("litz") if BACKEND == "litz" else None


@each(
    add=lambda xs, ys: torch._foreach_add(xs, ys),
    add_scaled=lambda xs, ys: torch._foreach_add(xs, ys, alpha=2),
    add_number=lambda xs, ys: torch._foreach_add(xs, 1.5),
    add_numbers=lambda xs, ys: torch._foreach_add(xs, [1.0, 2.0, 3.0]),
    sub=lambda xs, ys: torch._foreach_sub(xs, ys),
    mul=lambda xs, ys: torch._foreach_mul(xs, ys),
    mul_tensor=lambda xs, ys: torch._foreach_mul(xs, ys[0][0]),
    div=lambda xs, ys: torch._foreach_div(xs, torch._foreach_add(torch._foreach_abs(ys), 1)),
    lerp=lambda xs, ys: torch._foreach_lerp(xs, ys, 0.3),
    addcmul=lambda xs, ys: torch._foreach_addcmul(xs, ys, ys, 0.5),
    addcdiv=lambda xs, ys: torch._foreach_addcdiv(xs, ys, torch._foreach_exp(ys), [1.0, 2.0, 3.0]),
    sqrt=lambda xs, ys: torch._foreach_sqrt(torch._foreach_abs(xs)),
    norm=lambda xs, ys: torch._foreach_norm(xs),
    neg=lambda xs, ys: torch._foreach_neg(xs),
    maximum=lambda xs, ys: torch._foreach_maximum(xs, ys),
    clamp_min=lambda xs, ys: torch._foreach_clamp_min(xs, 0.1),
    pow=lambda xs, ys: torch._foreach_pow(xs, 2),
    sign=lambda xs, ys: torch._foreach_sign(xs),
    chain=lambda xs, ys: torch._foreach_mul(torch._foreach_add(xs, ys), torch._foreach_sub(xs, 1)),
)
def test_lists(f):
    check(f, [randn(3), randn(2, 4), randn(5)], [randn(3), randn(2, 4), randn(5)])


@each(
    add_=lambda xs, ys: torch._foreach_add_(xs, ys, alpha=0.5),
    mul_=lambda xs, ys: torch._foreach_mul_(xs, 0.9),
    copy_=lambda xs, ys: torch._foreach_copy_(xs, ys),
    zero_=lambda xs, ys: torch._foreach_zero_(xs),
    lerp_=lambda xs, ys: torch._foreach_lerp_(xs, ys, 0.1),
    addcdiv_=lambda xs, ys: torch._foreach_addcdiv_(xs, ys, torch._foreach_exp(xs), -0.1),
    several=lambda xs, ys: (torch._foreach_mul_(xs, 0.5), torch._foreach_add_(xs, ys), torch._foreach_sqrt_(torch._foreach_abs_(xs))),
)
def test_lists_in_place(f):
    def g(xs, ys):
        f(xs, ys)

    check(g, [randn(3), randn(2, 4), randn(5)], [randn(3), randn(2, 4), randn(5)])


def test_lists_of_many_and_of_mixed_types():
    check(lambda xs: torch._foreach_mul(xs, 2), [randn(n) for n in range(1, 40)])
    check(lambda xs: torch._foreach_add(xs, 1), [randn(3), randn(3).double(), randn(2).bfloat16(), torch.arange(3)])


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    "sgd_maximize": (torch.optim.SGD, {"lr": 0.1, "maximize": True, "dampening": 0.1, "momentum": 0.5}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "adam_amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}),
    "adam_capturable": (torch.optim.Adam, {"lr": torch.tensor(0.01), "foreach": False}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}),
    "adamw_one_by_one": (torch.optim.AdamW, {"lr": 0.01, "foreach": False}),
    "adamax": (torch.optim.Adamax, {"lr": 0.01}),
    "nadam": (torch.optim.NAdam, {"lr": 0.01}),
    "radam": (torch.optim.RAdam, {"lr": 0.01}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.01}),
    "adadelta": (torch.optim.Adadelta, {"lr": 0.5}),
    "asgd": (torch.optim.ASGD, {"lr": 0.01}),
    "rprop": (torch.optim.Rprop, {"lr": 0.01}),
}


def steps(name, wrap, count=4, foreach=True):
    torch.manual_seed(4)
    parameters = [nn.Parameter(randn(3, 4)), nn.Parameter(randn(4)), nn.Parameter(randn(()))]
    make, settings = OPTIMIZERS[name]
    optimizer = make(parameters, **{"foreach": foreach, **settings})
    step = wrap(optimizer.step)
    for number in range(count):
        for parameter in parameters:
            parameter.grad = torch.sin(parameter.detach() * (number + 1))
        step()
    return parameters, optimizer.state_dict()["state"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    found, state = steps(name, lambda step: compiled(step, fullgraph=False))
    wanted, other = steps(name, lambda step: step)
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)
    assert state.keys() == other.keys()
    for index in other:
        for key, value in other[index].items():
            if value is not None:
                torch.testing.assert_close(state[index][key], value, rtol=1e-5, atol=1e-6)


@needs_litz
@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_need_no_fallback(name, foreach):
    if foreach and "foreach" in OPTIMIZERS[name][1]:
        pytest.skip("is one that goes by single tensors")
    wrap = lambda step: compiled(step, fullgraph=False, options={"fallback": "error"})
    steps(name, wrap, count=2, foreach=foreach)


def test_a_whole_step_of_training():
    def run(wrap):
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        fast = wrap(step)
        x = torch.linspace(-1, 1, 24).view(6, 4)
        return [fast(x, x.sum(1, keepdim=True)) for _ in range(4)], dict(model.state_dict())

    found, wanted = run(lambda step: compiled(step, fullgraph=False)), run(lambda step: step)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_scheduler_changes_the_rate():
    def run(wrap):
        parameter = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([parameter], lr=torch.tensor(0.5))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        step = wrap(optimizer.step)
        for _ in range(4):
            parameter.grad = torch.ones(3)
            step()
            scheduler.step()
        return parameter.detach()

    same(run(lambda step: compiled(step, fullgraph=False)), run(lambda step: step))


def test_moving_average_of_weights():
    def run(wrap):
        torch.manual_seed(1)
        model, average = nn.Linear(3, 2), nn.Linear(3, 2)

        @wrap
        def update(parameters, averages):
            torch._foreach_lerp_(averages, parameters, 0.1)

        with torch.no_grad():
            for _ in range(3):
                update(list(model.parameters()), list(average.parameters()))
        return dict(average.state_dict())

    same(run(compiled), run(lambda f: f))


def parameters_of_bert(width):
    """The 199 parameters of BERT-base, whose width is 768, with rows and columns in proportion to another one."""
    layer = [(width, width), (width,)] * 4 + [(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,), (width,), (width,)]
    embeddings = [(30522 * width // 768, width), (512, width), (2, width), (width,), (width,)]
    return [nn.Parameter(randn(sizes)) for sizes in [*embeddings, *layer * 12, (width, width), (width,)]]


def bytes_moved(graph):
    """Bytes that one call of a graph reads and writes: each kernel reads what it loads once, and writes what it stores once."""
    kernels, moved = {}, 0
    for text in graph.text("kernel").split("kernel @")[1:]:
        places = re.findall(r"^  (?:read|write|update) (\S+): (\w)(\d+)\[([^\]]*)\]", text, re.MULTILINE)
        uses = [(f"load {name}[" in text) + (f"    {name}[" in text or f"\n  {name}[" in text) for name, *_ in places]
        kernels[text.split()[0]] = sum(times * int(bits) // 8 * int(size) for times, (_, _, bits, size) in zip(uses, places, strict=True))
    for name in re.findall(r"launch @(\w+)\(", graph.text("program")):
        moved += kernels[name]
    return moved


@needs_litz
@pytest.mark.parametrize(("make", "tensors"), [(torch.optim.SGD, 3), (torch.optim.Adagrad, 5), (torch.optim.Adam, 7), (torch.optim.AdamW, 7)])
def test_a_step_reads_and_writes_each_tensor_once(make, tensors):
    """TR-4, SW-2: a compiled step copies nothing, and reads and writes what its formula does, in 16 launches at most; gradient descent in 8.

    Adam and Adagrad have two kernels for each parameter, the first of which makes numbers of the count of its steps, a tensor of its own: they are all that takes
    memory.
    """
    parameters = parameters_of_bert(96)
    assert len(parameters) == 199
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = make(parameters, lr=1e-3, foreach=True)
    optimizer.step()
    (graph,) = litz.explain(optimizer.step, options={"threads": 2, "fallback": "error"}).graphs
    assert graph.launches <= (8 if make is torch.optim.SGD else 16)
    taken = sum(int(size) for size in re.findall(r"alloc \w+: u8\[(\d+)\]", graph.text("program")))
    assert taken <= (0 if make is torch.optim.SGD else 128 * len(parameters))
    formula = tensors * sum(parameter.numel() * 4 for parameter in parameters)
    assert formula <= bytes_moved(graph) <= 1.05 * formula
    assert graph.bytes <= 1.05 * formula


@needs_litz
@each(
    add=lambda x, y: x.add_(y),
    twice=lambda x, y: (x.mul_(y), x.add_(1), x.sum()),
    and_returned=lambda x, y: x.add_(y).exp_(),
)
def test_what_is_changed_in_place_takes_no_other_memory(f):
    x, y = randn(64, 32), randn(64, 32)
    (graph,) = litz.explain(f, x, y).graphs
    assert graph.launches == 1 and "alloc pool" not in graph.text("program")
    check(f, x, y)
