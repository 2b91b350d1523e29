"""What a function writes to its arguments, to views of them and to the state of a module is what eager mode writes."""

import pytest
import torch
from checks import check, compiled, copied, counted, each, same
from torch import nn, randn


@each(
    add_=lambda x, y: x.add_(y),
    sub_=lambda x, y: x.sub_(y, alpha=2),
    mul_=lambda x, y: x.mul_(y),
    div_=lambda x, y: x.div_(3),
    relu_=lambda x, y: torch.relu_(x),
    sigmoid_=lambda x, y: x.sigmoid_(),
    clamp_=lambda x, y: x.clamp_(-0.5, 0.5),
    fill_=lambda x, y: x.fill_(2),
    fill_with_a_tensor=lambda x, y: x.fill_(y[0, 0]),
    zero_=lambda x, y: x.zero_(),
    copy_=lambda x, y: x.copy_(y),
    copy_that_broadcasts=lambda x, y: x.copy_(y[0]),
    copy_that_converts=lambda x, y: x.copy_(y.double() * 2),
    lerp_=lambda x, y: x.lerp_(y, 0.25),
    addcmul_=lambda x, y: x.addcmul_(y, y, value=0.5),
    masked_fill_=lambda x, y: x.masked_fill_(y > 0, 0.0),
    where_is_copied=lambda x, y: x.copy_(torch.where(y > 0, x, y)),
    index_fill_=lambda x, y: x.index_fill_(1, torch.tensor([0, 2]), 9.0),
    index_add_=lambda x, y: x.index_add_(0, torch.tensor([1, 1, 0]), y[:3]),
    index_copy_=lambda x, y: x.index_copy_(0, torch.tensor([2, 0]), y[:2]),
    scatter_=lambda x, y: x.scatter_(1, torch.tensor([[0, 1], [2, 0]]), y),
    scatter_add_=lambda x, y: x.scatter_add_(0, torch.tensor([[0, 0, 1], [0, 2, 1]]), y),
    index_put_=lambda x, y: x.index_put_((torch.tensor([0, 1]), torch.tensor([1, 2])), y[0, :2]),
    index_put_accumulates=lambda x, y: x.index_put_((torch.tensor([0, 0]),), y[:2], accumulate=True),
    setitem_by_mask=lambda x, y: x.__setitem__(y > 0, 1.0),
    setitem_by_slice=lambda x, y: x.__setitem__((slice(1, 3), slice(None, None, 2)), y[:2, :2]),
    setitem_by_number=lambda x, y: x.__setitem__((1, 2), 4.0),
    tril_=lambda x, y: x.tril_(),
    addmm_=lambda x, y: x.addmm_(y, y.t() @ x),
    pow_=lambda x, y: x.pow_(2),
    neg_twice=lambda x, y: x.neg_().neg_(),
    both_arguments=lambda x, y: (x.add_(1), y.mul_(x)),
    swap=lambda x, y: (lambda old: (x.copy_(y), y.copy_(old)))(x.clone()),
)
def test_in_place(f):
    def g(x, y):
        f(x, y)
        return x * 2

    check(g, randn(4, 3), randn(4, 3))


@each(
    row=lambda x: x[1].add_(1),
    columns=lambda x: x[:, 1:3].mul_(2),
    every_other=lambda x: x.view(-1)[::2].zero_(),
    transposed=lambda x: x.t().copy_(x.clone().flip(0).t()),
    diagonal=lambda x: x.diagonal().fill_(3),
    unfolded=lambda x: x.unfold(0, 2, 2).mul_(-1),
    strided=lambda x: x.as_strided((2, 2), (3, 7), 1).add_(10),
    expanded_row=lambda x: x[:1].unsqueeze(0).squeeze(0).add_(1),
    chain=lambda x: x[1:].t()[2].view(-1)[1:].exp_(),
    two_views=lambda x: (x[0].add_(1), x[:, 0].mul_(3)),
    view_then_base=lambda x: (x[0].add_(1), x.mul_(2)),
    base_then_view=lambda x: (x.mul_(2), x[0].add_(1)),
    split_parts=lambda x: [part.mul_(scale) for scale, part in enumerate(x.split(2, 0))],
    row_to_row=lambda x: x[0].copy_(x[1]),
    shift_that_overlaps=lambda x: x[1:].copy_(x[:-1].clone()),
    as_other_type=lambda x: x.view(torch.int32).bitwise_and_(-256),
)
def test_in_place_on_a_view(f):
    def g(x):
        f(x)
        return x.sum(0)

    check(g, randn(4, 4))


@each(
    value_before=lambda x: (x.clone(), x.add_(1)),
    computed_before=lambda x: (x * 2, x.add_(1), x * 2),
    view_before=lambda x: (lambda row: (x.add_(1), row))(x[0]),
    view_after=lambda x: (x.add_(1), x[0]),
    only_view_of_changed=lambda x: x.add_(1)[1:],
    changed_and_sum=lambda x: (x.mul_(3).sum(), x),
    changed_by_its_own_row=lambda x: x.add_(x[0] * 1),
    changed_twice=lambda x: x.add_(1).mul_(x),
    changed_and_undone=lambda x: x.add_(1).sub_(1),
    changed_copy_only=lambda x: x.clone().add_(1),
)
def test_order_of_reads_and_writes(f):
    check(f, randn(3, 4))


@each(
    t_=lambda x: x.t_(),
    transpose_=lambda x: x.transpose_(0, 1),
    unsqueeze_=lambda x: x.unsqueeze_(1),
    squeeze_=lambda x: x.squeeze_(),
    t_and_add=lambda x: x.t_().add_(1),
)
def test_in_place_change_of_the_shape(f):
    def g(x):
        f(x)
        return x + 1

    check(g, randn(3, 4), fullgraph=False)


@each(
    add=lambda x, y, z: torch.add(x, y, out=z),
    mul=lambda x, y, z: torch.mul(x, y, out=z),
    matmul=lambda x, y, z: torch.matmul(x, y, out=z),
    sum=lambda x, y, z: torch.sum(x, 1, out=z[1]),
    cat=lambda x, y, z: torch.cat([x[:2], y[2:]], out=z),
    maximum_over_argument=lambda x, y, z: torch.maximum(x, y, out=x),
)
def test_out(f):
    check(f, randn(4, 4), randn(4, 4), randn(4, 4))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64])
def test_in_place_of_each_type(dtype):
    def f(x, y):
        x.copy_(y)
        x[0] = x[1]
        return x.logical_not_() if x.dtype == torch.bool else x.add_(1)

    check(f, torch.ones(3, 4, dtype=dtype), (randn(3, 4) > 0).to(dtype))


@pytest.mark.parametrize("shape, stride", [((3, 4), (1, 3)), ((3, 4), (8, 2)), ((2, 3, 4), (12, 1, 3)), ((3, 4), (5, 1))])
def test_in_place_of_each_layout(shape, stride):
    x = torch.empty_strided(shape, stride).copy_(randn(shape))
    check(lambda x: x.mul_(2).add_(x.flip(0)), x)


@each(
    read_overlapping=lambda x, y: (x.add_(1), y * 2),
    write_both=lambda x, y: (x.add_(1), y.mul_(2)),
    write_the_second=lambda x, y: (x * 2, y.add_(1)),
    return_both=lambda x, y: (x.add_(1), y),
)
@pytest.mark.parametrize("pattern", ["overlapping", "equal", "shifted"])
def test_arguments_that_share_memory(f, pattern):
    base = randn(6, 4)
    views = {"overlapping": (base[:4], base[2:]), "equal": (base, base), "shifted": (base[1:5], base.view(-1)[:16].view(4, 4))}
    check(f, *views[pattern])


def test_arguments_that_share_memory_after_others_that_do_not():
    def f(x, y):
        x.add_(1)
        return x + y

    fast = compiled(f)
    base = randn(4)
    for make in (lambda: (randn(4), randn(4)), lambda: (base, base), lambda: (randn(4), base)):
        args = make()
        other = copied(args)
        same(fast(*args), f(*other))
        same(args, other)


def test_views_of_arguments_that_share_memory_at_the_first_call_only():
    def f(w, x, y):
        return (w.sin() * y.view(2, 2)[1]).cos(), w * x[1:3]

    fast = compiled(f)
    base = torch.arange(8.0)
    for x, y in ((base[:4], base[4:]), (torch.arange(4.0), torch.arange(4.0) + 10)):
        leaves = [torch.ones(2, requires_grad=True) for _ in range(2)]
        for g, w in zip((fast, f), leaves):
            sum(part.sum() for part in g(w, x, y)).backward()
        same(leaves[0].grad, leaves[1].grad)


def test_a_captured_tensor_is_changed():
    state = torch.zeros(3)

    def f(x):
        state.add_(x)
        return state * 2

    fast = compiled(f)
    same(fast(torch.ones(3)), torch.full((3,), 2.0))
    same(fast(torch.ones(3)), torch.full((3,), 4.0))
    same(state, torch.full((3,), 2.0))


def test_a_list_of_tensors_is_changed():
    def f(xs):
        xs[0].add_(xs[1])
        xs.append(xs[0] * 2)
        return xs[1] + 1

    check(f, [randn(3), randn(3)])


def test_a_dictionary_is_changed():
    def f(cache, x):
        cache["seen"].add_(x)
        cache["last"] = x * 2
        return cache["seen"] + 1

    check(f, {"seen": torch.zeros(3), "last": None}, randn(3))


def test_an_argument_with_gradient_is_changed_without_gradient():
    def f(w, x):
        with torch.no_grad():
            w.mul_(0.5)
        return (w * x).sum()

    w = randn(3).requires_grad_()
    check(f, w, randn(3))


def test_a_detached_argument_is_changed():
    def f(w, x):
        w.detach().add_(1)
        return w.detach() * x

    check(f, randn(3).requires_grad_(), randn(3))


def test_an_argument_of_a_graph_is_changed():
    def f(x, w):
        y = x * w
        y.add_(1)
        z = y * 2
        z[0] = w[0]
        return z

    check(f, randn(3, 4), randn(4), gradients=True)


def test_a_non_leaf_is_changed_and_differentiated():
    def run(f):
        leaf = torch.linspace(-1, 1, 6).requires_grad_()
        argument = leaf * 2
        result = f(argument)
        (result.sum() + argument.pow(2).sum()).backward()
        return result, argument, leaf.grad

    def f(x):
        x.mul_(3)
        return x.sin()

    same(run(compiled(f)), run(f))


def test_a_leaf_with_gradient_refuses_to_be_changed():
    def f(x):
        x.add_(1)
        return x * 2

    with pytest.raises(Exception, match="leaf Variable"):
        compiled(f)(randn(3, requires_grad=True))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.calls += 1
        self.mean.lerp_(x.mean(0), 0.1)
        return x - self.mean * self.calls


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 8, 4))
        self.register_buffer("length", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.keys.index_copy_(1, self.length, x.unsqueeze(1))
        self.length.add_(1)
        seen = torch.arange(8) < self.length
        return (self.keys * seen[:, None]).sum(1)


class Reassigned(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("hidden", torch.zeros(4))

    def forward(self, x):
        self.hidden = torch.tanh(self.hidden + x)
        return self.hidden * 2


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(3, 4))

    def forward(self, x):
        self.rows[1] = x
        self.rows[2, 1:] += x[1:]
        return self.rows.t()


@pytest.mark.parametrize("module", [Counter, Reassigned, Rows, nn.Identity])
def test_buffers_between_calls(module):
    argument = randn(3, 4) if module is Counter else randn(4)
    check(module(), argument, calls=4)


def test_cache_between_calls():
    check(Cache(), randn(2, 4), calls=4)


def test_batch_norm_statistics_between_calls():
    check(nn.BatchNorm1d(4), randn(8, 4), calls=3, gradients=True)


def change_data_copy(model):
    model.weight.data.copy_(torch.ones(2, 3))


def change_data_fill(model):
    model.bias.data.fill_(7)


def change_no_grad(model):
    with torch.no_grad():
        model.weight.mul_(2)
        model.bias[0] = 5


def change_load(model):
    model.load_state_dict({"weight": torch.full((2, 3), 0.5), "bias": torch.tensor([1.0, 2.0])})


def change_load_assign(model):
    model.load_state_dict({"weight": torch.full((2, 3), 0.5), "bias": torch.tensor([1.0, 2.0])}, assign=True)


def change_data_of_another(model):
    model.weight.data = torch.full((2, 3), 3.0)


def change_data_of_another_layout(model):
    model.weight.data = torch.full((3, 2), 3.0).t()


def change_parameter(model):
    model.weight = nn.Parameter(torch.full((2, 3), 4.0))


def change_init(model):
    nn.init.constant_(model.weight, 0.25)


def change_step(model):
    model.weight.grad, model.bias.grad = torch.ones(2, 3), torch.ones(2)
    torch.optim.SGD(model.parameters(), lr=0.5).step()


@each(
    data_copy=change_data_copy,
    data_fill=change_data_fill,
    no_grad=change_no_grad,
    load=change_load,
    load_assign=change_load_assign,
    data_of_another=change_data_of_another,
    data_of_another_layout=change_data_of_another_layout,
    parameter=change_parameter,
    init=change_init,
    step=change_step,
)
@pytest.mark.parametrize("is_training", [False, True], ids=["inference", "training"])
def test_parameters_changed_between_calls(f, is_training):
    model = nn.Linear(3, 2)
    fast = compiled(model)
    x = randn(4, 3)
    with torch.set_grad_enabled(is_training):
        same(fast(x), model(x))
        for _ in range(2):
            f(model)
            found = fast(x)
            same(found, model(x))
    if is_training:
        found.sum().backward()
        same(model.bias.grad[0].item(), 4.0 + (1.0 if f is change_step else 0.0))


def test_an_optimizer_trains_a_compiled_model():
    def train(wrap):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        run = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = run(torch.linspace(-1, 1, 12).view(3, 4)).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, dict(model.state_dict())

    same(train(compiled), train(lambda model: model))


def test_changed_values_need_no_compilation():
    model = nn.Linear(3, 2)
    fast, counter = counted(model)
    with torch.no_grad():
        for _ in range(3):
            same(fast(torch.ones(1, 3)), model(torch.ones(1, 3)))
            model.weight.add_(1)
    assert counter.frame_count == 1


def test_a_result_is_changed_between_calls():
    fast = compiled(lambda x: x * 2)
    x = torch.ones(4)
    fast(x).zero_()
    same(fast(x), torch.full((4,), 2.0))


def test_an_argument_is_changed_between_calls():
    fast = compiled(lambda x: x * 2)
    x = torch.ones(4)
    for value in (1.0, 5.0):
        x.fill_(value)
        same(fast(x), x * 2)


def test_saved_tensors_are_guarded_against_changes():
    w = randn(4, requires_grad=True)
    x = randn(4)
    loss = compiled(lambda w, x: (w * x).sin().sum())(w, x)
    loss.backward()
    same(w.grad, (w * x).cos().detach() * x)


@each(
    argument=lambda x, y, run: (run(lambda x, y: x * y, x, y), y),
    view_of_an_argument=lambda x, y, run: (run(lambda x, y: y.t() @ x, x, y), y),
    part_of_an_argument=lambda x, y, run: (run(lambda x, y: x[0] * y[0], x, y), y[0]),
    result=lambda x, y, run: (run(lambda x, y: x.exp(), x, y),) * 2,
    one_of_two_results=lambda x, y, run: run(lambda x, y: (lambda z: (z.t() @ y, z))(x.exp()), x, y),
)
@pytest.mark.parametrize("wrap", [lambda f: f, compiled], ids=["eager", "compiled"])
def test_saved_tensors_that_were_changed_are_refused(f, wrap):
    x, y = randn(3, 3, requires_grad=True), randn(3, 3)
    result, changed = f(x, y, lambda g, *args: wrap(g)(*args))
    changed.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_a_view_of_nothing_that_is_returned_is_changed_with_gradient():
    result, weight = compiled(lambda x: (x + 1).t())(torch.zeros(2, 3)), torch.ones(3, 2, requires_grad=True)
    result.add_(weight).sum().backward()
    same(result.detach(), torch.full((2, 3), 2.0).t())
    same(weight.grad, torch.ones(3, 2))


def swapped(x, y):
    other = x.clone()
    x.copy_(y)
    y.copy_(other)


def rotated(x, y):
    x.copy_(y), y.copy_(x + y)
    return x + 1


@each(
    swapped=swapped,
    rotated=rotated,
    of_the_other=lambda x, y: (x.copy_(y), y.mul_(2))[0],
    and_returned=lambda x, y: (x.add_(1), y.copy_(x), x * 2),
    one_value_for_both=lambda x, y: [z.copy_(x.sin() + y) for z in (x, y)],
    in_another_order=lambda x, y: (x.copy_((x * y).t()), x.t()),
    reversed=lambda x, y: x.copy_(x.flip(0) + y.cumsum(0)),
    a_product=lambda x, y: (x.copy_(x @ y), y.copy_(y @ x)),
    from_another_type=lambda x, y: (x.copy_((y * 10).long()), y.copy_(x.double())),
    expanded=lambda x, y: (x.copy_(y.sum()), y.copy_(x[0] * 2)),
    views=lambda x, y: (x[::2].add_(1), y.t()[1:].mul_(x[:, 1:].t())),
    kept_for_later=lambda x, y: (x.sub_(y).relu_(), (x * y).sum(), x[0], y),
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_last_elements_of_arguments(f, dynamic):
    check(f, randn(6, 6), randn(6, 6), dynamic=dynamic)
    check(f, randn(6, 6), randn(7, 12)[1:, ::2].t(), dynamic=dynamic)
    check(f, randn(6, 6).t(), randn(6, 6), dynamic=dynamic)


def test_arguments_that_a_call_has_to_leave_as_they_were():
    def f(x):
        x.add_(1)
        count = x.sum().long().item()
        torch._check(count > 0)
        return x * count

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        fast = compiled(f)
        x = torch.zeros(4)
        same(fast(x), torch.full((4,), 4.0))
        same(x, torch.ones(4))
        x = torch.full((4,), -9.0)
        with pytest.raises(RuntimeError, match="Runtime assertion failed"):
            fast(x)
        # PyTorch has run the graph once more, up to the assertion.
        same(x, torch.full((4,), -9.0))


def given_other_data(x):
    x.data = x.data * 3
    return x + 1


def given_the_data_of_another(x, y):
    x.data = y.t()
    return x.sum(0)


def set_to_another(x, y):
    x.set_(y * 2)
    return x + 1


@each(
    returned=lambda x: (lambda y: (x.copy_(y), y)[1])(x * 2),
    twice=lambda x: (lambda y: (x.copy_(y), y, y + 1)[1:])(x * 2),
    of_a_norm=lambda x: (lambda y: (x.mul_(0.9).add_(y), y)[1])(x.square()),
)
@pytest.mark.parametrize("gradients", [False, True])
def test_a_result_that_an_argument_becomes_has_memory_of_its_own(f, gradients):
    def run(wrap):
        torch.manual_seed(0)
        fast, x, scale = wrap(lambda x, scale: (f(x), (x.detach() * scale).sum())), randn(3, 4), randn(4, requires_grad=gradients)
        results, loss = fast(x, scale)
        before = torch.clone(x)
        if gradients:
            loss.backward()
        memory = {tensor.untyped_storage().data_ptr() for tensor in (results if isinstance(results, tuple) else (results,))}
        return before, x, results, loss.detach(), x.untyped_storage().data_ptr() in memory

    same(run(compiled), run(lambda f: f))


@pytest.mark.eager_graphs(r"\S+, which changes what an input is, and not its elements")
@each(
    other_data=lambda x, y: given_other_data(x),
    the_data_of_another=given_the_data_of_another,
    set=set_to_another,
    resized=lambda x, y: x.resize_(2, 2) * y[:2, :2],
    twice=lambda x, y: (given_other_data(x), given_the_data_of_another(x, y)),
)
def test_arguments_get_other_memory(f):
    def run(wrap):
        torch.manual_seed(0)
        fast, seen = wrap(f), []
        for _ in range(2):
            x, y = randn(3, 4), randn(4, 3)
            result = fast(x, y)
            seen.append((x, y, result, x.stride(), x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()))
        return seen

    same(run(lambda f: compiled(f, fullgraph=False)), run(lambda f: f))
