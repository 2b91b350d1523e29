"""Models train as in eager mode: gradients, steps of optimizers, modes, checkpoints, hooks, and what differentiates twice or not at all."""

import pytest
import torch
import torch.nn.functional as F
from checks import BACKEND, check, compiled, each, needs_litz, same
from torch import nn, randn
from torch.autograd import forward_ad
from torch.func import grad, vmap
from torch.utils.checkpoint import checkpoint

if BACKEND == "litz":
    import litz
    from litz import host


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 10), nn.Linear(10, 3)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.body(x.view(-1, 1, 4, 4)))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(self.layer(self.table(x))) @ self.table.weight.t()


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(6, 8, bias=False), nn.Linear(6, 8, bias=False), nn.Linear(8, 6, bias=False)
        self.norm = nn.RMSNorm(6)

    def forward(self, x):
        x = self.norm(x)
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 5)

    def forward(self, x):
        hidden = x.new_zeros(x.shape[0], 5)
        for _ in range(3):
            hidden = self.cell(x, hidden)
        return hidden


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(torch.relu(self.layer(x))) + F.linear(x, self.layer.weight.t())


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 2)
        self.first.requires_grad_(False)

    def forward(self, x):
        return self.second(self.first(x).relu())


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x):
        return self.used(x)


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.left, self.right = nn.Linear(6, 5), nn.Linear(5, 2), nn.Linear(5, 1)

    def forward(self, x):
        body = self.body(x).relu()
        return {"left": self.left(body), "right": self.right(body), "body": body, "detached": body.detach(), "count": (body > 0).sum()}


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(lambda x, layer=layer: torch.tanh(layer(x)), x, use_reentrant=False)
        return x


VECTORS = {"perceptron": Perceptron, "gated": Gated, "recurrent": Recurrent, "shared": Shared, "frozen": Frozen, "unused": Unused,
           "several": Several, "checkpointed": Checkpointed}


@pytest.mark.parametrize("name", VECTORS)
def test_gradients_of_models(name):
    check(VECTORS[name](), randn(4, 6), gradients=True)


def test_gradients_of_an_image_model():
    check(Image(), randn(5, 16), gradients=True)


def test_gradients_of_a_language_model():
    check(Language(), torch.randint(9, (2, 5)), gradients=True)


@each(
    rnn_cell=lambda: nn.RNNCell(6, 5),
    lstm_cell=lambda: nn.LSTMCell(6, 5),
    gru_cell=lambda: nn.GRUCell(6, 5),
    bilinear=lambda: nn.Bilinear(6, 6, 4),
)
def test_gradients_of_layers(f):
    module = f()
    args = (randn(3, 6), randn(3, 6)) if isinstance(module, nn.Bilinear) else (randn(3, 6),)
    check(module, *args, gradients=True)


# Adam divides by the size of gradients: a large epsilon keeps those that are rounding errors alone, of biases that nothing depends on, small.
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, eps=1e-3),
}


def train(wrap, make, optimizer, batches, steps=5):
    torch.manual_seed(9)
    model = make()
    run, optimizer = wrap(model), OPTIMIZERS[optimizer](model.parameters())
    losses = []
    for step in range(steps):
        x, target = batches[step % len(batches)]
        optimizer.zero_grad()
        loss = F.cross_entropy(run(x).flatten(0, -2), target.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, dict(model.state_dict())


def close(found, wanted):
    """Asserts that trained weights are the same, up to what steps multiply rounding by."""
    for one, other in zip(found[0], wanted[0], strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-4)
    assert found[1].keys() == wanted[1].keys()
    for name in found[1]:
        torch.testing.assert_close(found[1][name], wanted[1][name], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("make", [Perceptron, Image, Language])
def test_steps(make, optimizer):
    def batch(rows):
        if make is Language:
            tokens = torch.randint(9, (rows, 6))
            return tokens[:, :-1], tokens[:, 1:]
        return randn(rows, 16 if make is Image else 6), torch.randint(3, (rows,))

    batches = [batch(4), batch(4), batch(6)]
    close(train(compiled, make, optimizer, batches), train(lambda model: model, make, optimizer, batches))


def test_gradients_accumulate():
    def run(wrap):
        torch.manual_seed(3)
        model = Perceptron()
        fast = wrap(model)
        for rows in (2, 3):
            fast(torch.linspace(-1, 1, rows * 6).view(rows, 6)).square().sum().backward()
        return [parameter.grad for parameter in model.parameters()]

    same(run(compiled), run(lambda model: model))


@needs_litz
def test_a_gradient_takes_the_memory_of_a_saved_tensor():
    """TR-1: of one that is neither an argument nor a result, and in calls of `backward` that do not keep the graph."""
    f = compiled(lambda x: (x * 3).relu().sin())
    expected = lambda x: torch.autograd.grad((x * 3).relu().sin().sum(), x)[0]

    def run(keeps_graph):
        x = randn(64, 7, requires_grad=True)
        y = f(x)
        saved = {tensor.data_ptr() for tensor in y.grad_fn.saved_tensors}
        (gradient,) = torch.autograd.grad(y.sum(), x, retain_graph=keeps_graph)
        same(gradient, expected(x))
        if keeps_graph:
            same(torch.autograd.grad(y.sum(), x)[0], expected(x))
        return gradient.data_ptr() in saved

    assert run(keeps_graph=False)
    assert not run(keeps_graph=True)
    assert run(keeps_graph=False)
    torch.compiler.reset()
    f = compiled(lambda x: (x * 3).relu().sin())
    assert not run(keeps_graph=True)


def test_saved_tensors_that_others_have_stay_as_they_are():
    """A constant of the graph, a result, a view of an argument, and what hooks keep are not given up with the graph."""
    scale = torch.tensor([1.0, -2.0, 3.0])

    def f(x):
        hidden = (x * 2).sigmoid()
        return hidden, (hidden * torch.tensor([0.5, 2.0, -1.0])).exp() * scale

    g, x = compiled(f), randn(4, 3, requires_grad=True)
    for _ in range(3):
        hidden, y = g(x)
        before = hidden.detach().clone()
        (gradient,) = torch.autograd.grad(y.sum(), x)
        same(hidden.detach(), before)
        same(gradient, torch.autograd.grad(f(x)[1].sum(), x)[0])


@each(
    itself=lambda v: v,
    squeezed=lambda v: v.squeeze(-2),
    element=lambda v: v[..., 0],
    transposed=lambda v: v.mT,
    part_of_a_part=lambda v: v[1:].t()[:2],
    one_of_several=lambda v: v.unbind(0)[1],
    all_of_several=lambda v: v.split(2),
)
def test_results_that_see_what_is_saved(f):
    """Arithmetic with an element of a tensor is written anew by PyTorch, which does not tell that the results lie in memory that is saved."""

    def shifted(x, y):
        v = x - y.amax().item()
        seen = f(v)
        return v * v, *(seen if isinstance(seen, tuple) else (seen,))

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        fast, x, y = compiled(shifted), randn(4, 3, requires_grad=True), randn(5)
        for _ in range(2):
            results = fast(x, y)
            before = [result.detach().clone() for result in results]
            (gradient,) = torch.autograd.grad(sum(result.sum() for result in results), x)
            same([result.detach().clone() for result in results], before)
            same(gradient, torch.autograd.grad(sum(result.sum() for result in shifted(x, y)), x)[0])


def test_two_backward_passes_through_one_graph():
    x = randn(4, requires_grad=True)
    y = compiled(lambda x: x.sin() * x)(x)
    y.sum().backward(retain_graph=True)
    first = x.grad.clone()
    y.sum().backward()
    same(x.grad, first * 2)


def test_gradients_of_some_results():
    for pick in range(3):
        x = randn(4).requires_grad_()
        results = compiled(lambda x: (x.sin(), x.cos(), x.detach() * x))(x)
        results[pick].sum().backward()
        wanted = [x.cos(), -x.sin(), x][pick]
        same(x.grad, wanted.detach())


def test_gradients_by_torch_autograd_grad():
    x, w = randn(3, 4, requires_grad=True), randn(4, requires_grad=True)
    y = compiled(lambda x, w: (x * w).exp().sum(1))(x, w)
    grads = torch.autograd.grad(y, (x, w), torch.arange(3.0))
    same(grads, torch.autograd.grad((x * w).exp().sum(1), (x, w), torch.arange(3.0)))


def test_only_some_arguments_need_gradients():
    for needs in ((True, False), (False, True), (False, False)):
        x, w = (randn(3).requires_grad_(need) for need in needs)
        y = compiled(lambda x, w: (x * w).sum())(x, w)
        assert y.requires_grad == any(needs)
        if any(needs):
            y.backward()
        same(x.grad, w.detach() if needs[0] else None)
        same(w.grad, x.detach() if needs[1] else None)


def test_gradient_of_an_expanded_gradient():
    x = randn(3, 4, requires_grad=True)
    compiled(lambda x: x.sin())(x).sum().backward()
    same(x.grad, x.cos().detach())


def test_gradient_given_in_another_layout():
    x = randn(3, 4, requires_grad=True)
    grad = randn(4, 3).t()
    compiled(lambda x: x.sin())(x).backward(grad)
    same(x.grad, x.cos().detach() * grad)


@each(
    train=lambda model, x: model.train()(x),
    eval=lambda model, x: model.eval()(x),
)
def test_modes(f):
    torch.manual_seed(6)
    eager, other = Image(), Image()
    other.load_state_dict(eager.state_dict())
    fast = compiled(other)
    for _ in range(2):
        x = randn(5, 16)
        same(f(fast, x), f(eager, x))
    same(dict(other.state_dict()), dict(eager.state_dict()))


def test_alternating_modes():
    torch.manual_seed(6)
    eager, other = Image(), Image()
    other.load_state_dict(eager.state_dict())
    fast = compiled(other)
    for mode in (True, False, True, False):
        x = randn(5, 16)
        eager.train(mode)
        fast.train(mode)
        same(fast(x), eager(x))
    same(dict(other.state_dict()), dict(eager.state_dict()))


@each(no_grad=torch.no_grad, inference_mode=torch.inference_mode, enable_grad=torch.enable_grad)
def test_modes_of_autograd_around(f):
    model = Perceptron()
    fast = compiled(model)
    with f():
        x = randn(4, 6)
        found, wanted = fast(x), model(x)
        same(found, wanted)
        assert found.is_inference() == wanted.is_inference()


def test_modes_of_autograd_follow_each_other():
    model = Perceptron()
    fast = compiled(model)
    x = randn(4, 6)
    with torch.no_grad():
        same(fast(x), model(x))
    same(fast(x), model(x))
    with torch.inference_mode():
        found = fast(x)
    assert found.is_inference()
    found = fast(x)
    found.sum().backward()
    same(model.second.bias.grad, torch.full((3,), 4.0))


@each(
    part_without=lambda x, w: x * w + without_gradient(w),
    detached=lambda x, w: (x * w).detach() * w,
    part_with=lambda x, w: with_gradient(x * w),
    stopped=lambda x, w: (x.detach() + w).sin(),
    toggled=lambda x, w: torch.where(x > 0, x * w, (x * w).detach()),
)
def test_modes_of_autograd_inside(f):
    check(f, randn(3, 4), randn(4), gradients=True)


def without_gradient(w):
    with torch.no_grad():
        return w.exp()


def with_gradient(y):
    with torch.enable_grad():
        return y * 2


def test_a_hook_of_a_tensor():
    def run(wrap):
        x = torch.linspace(-1, 1, 4).requires_grad_()
        y = wrap(lambda x: x.sin())(x)
        seen = []
        y.register_hook(lambda grad: seen.append(grad) or grad * 2)
        (y * 3).sum().backward()
        return x.grad, seen

    same(run(compiled), run(lambda f: f))


def test_hooks_of_modules():
    def run(wrap):
        torch.manual_seed(1)
        model = Perceptron()
        model.first.register_forward_hook(lambda module, args, result: result * 2)
        model.second.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        model.first.weight.register_hook(lambda grad: grad * 0.5)
        y = wrap(model)(torch.linspace(-1, 1, 12).view(2, 6))
        y.sum().backward()
        return y, model.first.weight.grad

    same(run(compiled), run(lambda model: model))


def test_gradient_clipping():
    def run(wrap):
        torch.manual_seed(1)
        model = Perceptron()
        wrap(model)(torch.linspace(-9, 9, 12).view(2, 6)).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        return norm, [parameter.grad for parameter in model.parameters()]

    same(run(compiled), run(lambda model: model))


def test_a_loss_inside_of_the_graph():
    model = Perceptron()
    check(lambda x, t: F.cross_entropy(model(x), t), randn(4, 6), torch.tensor([0, 2, 1, 1]), gradients=True, reference=False)


def test_gradient_inside_of_the_graph():
    check(lambda x: grad(lambda x: (x.sin() * x).sum())(x), randn(4))
    check(lambda x: vmap(lambda row: row.softmax(0) @ row)(x), randn(3, 4))
    check(lambda x: vmap(grad(lambda row: row.exp().sum().log()))(x), randn(3, 4))


@each(
    jvp=lambda x: torch.func.jvp(lambda x: x.sin() * 2, (x,), (torch.ones_like(x),)),
    vjp=lambda x: torch.func.vjp(lambda x: x.sin() * 2, x)[1](torch.ones_like(x)),
    jacrev=lambda x: torch.func.jacrev(lambda x: x.cumsum(0).sin())(x),
    jacfwd=lambda x: torch.func.jacfwd(lambda x: x.cumsum(0).sin())(x),
    hessian=lambda x: torch.func.hessian(lambda x: x.sin().prod())(x),
)
def test_transforms(f):
    check(f, randn(3))


def test_rows_one_by_one():
    model = Perceptron()
    fast = compiled(model)
    x = randn(3, 6)
    same(torch.stack([fast(row[None])[0] for row in x]), model(x))


def test_a_second_derivative_is_refused():
    x = randn(3, requires_grad=True)
    y = compiled(lambda x: x.pow(3))(x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    same(first.detach(), 3 * x.detach() ** 2)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(first.sum(), x)


def test_reentrant_calls_of_one_compiled_function():
    fast = compiled(lambda x, w: torch.tanh(x @ w))
    w = randn(4, 4, requires_grad=True)
    x = randn(2, 4)
    y = fast(fast(fast(x, w), w), w)
    y.sum().backward()
    found, w.grad = w.grad, None
    z = x
    for _ in range(3):
        z = torch.tanh(z @ w)
    z.sum().backward()
    same(y, z)
    same(found, w.grad)


def test_graph_outlives_the_model():
    def make():
        model = Perceptron()
        return compiled(model)(torch.ones(2, 6)), model.second.bias

    y, bias = make()
    y.sum().backward()
    same(bias.grad, torch.full((3,), 2.0))


def test_half_precision_training():
    check(Perceptron().bfloat16(), randn(4, 6).bfloat16(), gradients=True)


def test_autocast_training():
    def run(wrap):
        torch.manual_seed(3)
        model = Perceptron()
        x = torch.linspace(-1, 1, 24).view(4, 6)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = wrap(model)(x)
            loss = y.float().square().mean()
        loss.backward()
        return y.dtype, loss.detach(), [parameter.grad for parameter in model.parameters()]

    found, wanted = run(compiled), run(lambda model: model)
    assert found[0] == wanted[0]
    torch.testing.assert_close(found[1:], wanted[1:], rtol=3e-2, atol=3e-2)


@each(
    conjugate=lambda y: y.backward(torch.tensor([1 + 1j, 2 - 3j]).conj()),
    of_a_loss=lambda y: (y.conj() * torch.tensor([1 + 1j, 2 - 3j])).imag.sum().backward(),
    opposite=lambda y: torch.view_as_real(y).backward(torch._neg_view(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))),
    opposite_of_a_real_one=lambda y: y.real.sum().backward(torch._neg_view(torch.tensor(2.0))),
)
def test_gradients_that_are_conjugates_or_opposites_when_they_are_read(f):
    def run(wrap):
        x = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
        f(wrap(lambda x: x * x)(x))
        return x.grad.resolve_conj()

    same(run(compiled), run(lambda f: f))


def test_a_gradient_that_is_the_opposite_of_what_is_in_memory():
    def run(wrap):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        wrap(lambda x: x * x)(x).backward(torch._neg_view(torch.tensor([1.0, 3.0])))
        return x.grad

    same(run(compiled), run(lambda f: f))


@torch.library.custom_op("litz_tests::shrunk", mutates_args=())
def shrunk(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5


shrunk.register_fake(torch.empty_like)
shrunk.register_autograd(lambda context, gradient: shrunk(gradient.transpose(3, 4)).transpose(3, 4))


@needs_litz
def test_operands_of_unknown_operators_in_backward_graphs(monkeypatch):
    """TR-2: an operator of PyTorch's that Litz does not have gets contiguous operands in a backward graph, and others the strides of eager mode."""
    seen = {}

    class Recorder(host.Dispatcher):
        def call(self, name, args, results):
            seen.setdefault(name, []).append([arg.stride() for arg in args if isinstance(arg, torch.Tensor)])
            return super().call(name, args, results)

    def run(wrap):
        torch.manual_seed(0)
        x, grid = randn(2, 3, 4, 5, 6, requires_grad=True), torch.rand(2, 4, 5, 6, 3)
        y = wrap(lambda x, grid: shrunk(F.grid_sample(x.transpose(2, 3), grid, align_corners=False)))(x, grid)
        return y, *torch.autograd.grad(y.square().sum(), x)

    monkeypatch.setattr(host, "HOST", Recorder())
    same(run(compiled), run(lambda f: f))
    row_major = lambda *sizes: torch.empty(sizes).stride()
    assert seen["aten.grid_sampler_3d_backward.default"] == [[row_major(2, 3, 4, 5, 6), row_major(2, 3, 5, 4, 6), row_major(2, 4, 5, 6, 3)]]
    forward, backward = seen["litz_tests.shrunk.default"]
    assert forward == [row_major(2, 3, 4, 5, 6)] and backward == [(360, 120, 30, 1, 6)]


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(300, 300) for _ in range(6)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x


@pytest.fixture
def one_process(tmp_path):
    """A group of one process."""
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{tmp_path}/store")
    yield
    torch.distributed.destroy_process_group()


@needs_litz
@pytest.mark.parametrize("freeze", [False, True])
def test_a_distributed_model_is_compiled(one_process, freeze):
    """Dynamo compiles such a model in parts, one for each bucket of gradients, and gives the backend fake tensors for what it will call them with."""
    model, x = Layers(), randn(2, 300)
    litz.reset_stats()
    parallel = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    fast = compiled(parallel, fullgraph=False, options={"fallback": "error", "freeze": freeze})
    for _ in range(2):
        model.zero_grad()
        found = fast(x)
        found.sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    statistics = litz.stats()
    model.zero_grad()
    wanted = model(x)
    wanted.sum().backward()
    same(found, wanted)
    same(gradients, [parameter.grad for parameter in model.parameters()])
    assert statistics["graphs"] >= 4 and statistics["calls"] == 2 * statistics["graphs"]
    assert statistics["eager_graphs"] == {} and statistics["eager_calls"] == 0
    with torch.no_grad():
        same(fast(x), wanted.detach())


def test_tangents_are_not_lost():
    """A function that has been compiled for plain tensors is called with dual ones, and with plain ones beside them."""
    f = lambda x, y: (x.sin() * y, y.exp())
    fast = compiled(f)
    x, y, direction = randn(3), randn(3), randn(3)
    same(fast(x, y), f(x, y))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, direction)
        found, wanted = fast(dual, y), f(dual, y)
        same([forward_ad.unpack_dual(one).tangent for one in found], [forward_ad.unpack_dual(one).tangent for one in wanted])
        same(fast(x, y), f(x, y))
    same(fast(x, y), f(x, y))


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_table_that_is_the_last_weight_as_well(padding, dtype):
    words = torch.tensor([[3, 1, 3, 2], [0, 3, 8, 8]])
    table, weight = randn(9, 16, dtype=dtype, requires_grad=True), randn(16, 16, dtype=dtype, requires_grad=True)

    def f(words, table, weight):
        return F.linear(torch.tanh(F.embedding(words, table, padding) @ weight), table)

    check(f, words, table, weight, gradients=True)
