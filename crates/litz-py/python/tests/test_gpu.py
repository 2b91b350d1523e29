"""Graphs of tensors on GPUs, as texts: fake tensors need no GPU."""

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from litz import converting, host, whole
from litz.errors import NotConverted

aten = torch.ops.aten


def text(function, *shapes, device="cuda:0", dtype=torch.bfloat16):
    """The text of a function of tensors of these shapes."""
    with FakeTensorMode():
        graph = make_fx(function, tracing_mode="fake")(*(torch.empty(shape, device=device, dtype=dtype) for shape in shapes))
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return converting.convert(graph)


FUSED = {
    "flash": lambda q, k, v: aten._scaled_dot_product_flash_attention.default(q, k, v, 0.0, True),
    "efficient": lambda q, k, v: aten._scaled_dot_product_efficient_attention.default(q, k, v, None, False, 0.0, True, scale=0.5),
    "cudnn": lambda q, k, v: aten._scaled_dot_product_cudnn_attention.default(q, k, v, None, False, 0.0, True, scale=0.5),
}


@pytest.mark.parametrize("name", FUSED)
def test_attention_is_that_of_litz_where_its_result_alone_is_used(name):
    shape = (2, 8, 16, 64)
    converted = text(lambda q, k, v: (FUSED[name](q, k, v)[0] + 1,), shape, shape, shape)
    scale = "none" if name == "flash" else "0.5"
    assert f"aten.scaled_dot_product_attention.default(%q_1, %k_1, %v_1, none, 0.0, true, {scale}, false)" in converted.text
    assert converted.gpu == 0


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16])
def test_attention_with_a_mask_stays_one_operator(dtype):
    """PyTorch chooses kernels for it as tracing goes, and takes it apart into products of f32 where it finds none."""

    def attend(query, mask):
        return (torch.nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=mask),)

    with FakeTensorMode(), torch.no_grad():
        query = torch.empty(2, 4, 8, 16, device="cuda:0", dtype=torch.bfloat16)
        mask = torch.empty(2, 1, 1, 8, device="cuda:0", dtype=dtype).expand(2, 1, 8, 8)
        with enable_python_dispatcher(), whole.kept():
            graph = make_fx(attend, tracing_mode="fake")(query, mask)
    graph.graph.eliminate_dead_code()
    assert " = aten.scaled_dot_product_attention.default(%query_1, %query_1, %query_1, " in converting.convert(graph).text


def test_groups_of_heads_share_keys_and_values():
    converted = text(lambda q, k, v: (FUSED["flash"](q, k, v)[0],), (2, 8, 16, 64), (2, 2, 16, 64), (2, 2, 16, 64))
    assert "aten.scaled_dot_product_attention.default(%q_1, %k_1, %v_1, none, 0.0, true, none, true)" in converted.text


def test_attention_of_which_gradients_need_more_is_that_of_pytorch():
    shape = (2, 8, 16, 64)
    converted = text(lambda q, k, v: tuple(FUSED["efficient"](q, k, v)[:2]), shape, shape, shape)
    assert "= aten._scaled_dot_product_efficient_attention.default(" in converted.text


def test_devices_of_arguments_are_the_one_that_there_is():
    converted = text(lambda x: (x + torch.ones(4, device=x.device),), (3, 4), dtype=torch.float32)
    assert "on cpu {" in converted.text and "cuda" not in converted.text


def test_texts_are_the_same_for_each_gpu():
    first, second = (text(lambda x: (x + 1,), (3, 4), device=device) for device in ("cuda:0", "cuda:1"))
    assert first.text == second.text
    assert (first.gpu, second.gpu) == (0, 1)


def test_graphs_with_tensors_on_two_gpus_are_refused():
    with FakeTensorMode():
        of_first = torch.empty(3, device="cuda:0")
        graph = make_fx(lambda x: (x + 1, x.to("cuda:1") * 2), tracing_mode="fake")(of_first)
    with pytest.raises(NotConverted, match="tensors on cuda:0 and cuda:1: a graph runs on one GPU"):
        converting.convert(graph)


def of_both(function, shape):
    """What becomes of a function of a tensor on a GPU and one of the host."""
    with FakeTensorMode():
        on_gpu, on_host = torch.empty(3, device="cuda:0"), torch.empty(shape)
        graph = make_fx(function, tracing_mode="fake")(on_gpu, on_host)
    return converting.convert(graph)


def test_numbers_of_the_host_are_brought_to_the_gpu():
    assert "%y_1: f32[]{} = input" in of_both(lambda x, y: (x * y,), ()).text.replace("f32[] =", "f32[]{} =")


def test_tensors_of_the_host_are_computed_on_the_gpu():
    converted = of_both(lambda x, y: (x[y.long().to("cuda:0")] + (y + 1).cuda(),), (3,))
    assert "%y_1: f32[3]" in converted.text and "cuda" not in converted.text
    assert converted.gpu == 0 and converted.returned == [("result", 0)]


def test_results_on_the_host_are_copied_there():
    converted = of_both(lambda x, y: (x + 1, y + 1, (x * 2).cpu(), y, y[1:]), (3,))
    *computed, given, part = converted.returned
    assert computed == [("result", 0), ("host", 1), ("host", 2)]
    assert given == ("argument", 1) and part[:2] == ("view", ("argument", 1))


def test_views_of_results_on_the_host_are_views_of_one_copy():
    def apart(x, y):
        made = y + 1
        return x + 1, made, made[1:], made

    _, made, part, again = of_both(apart, (3,)).returned
    assert made == again == ("host", 1) and part[:2] == ("view", ("host", 1))


@pytest.mark.parametrize("shape", [(), (3,)])
def test_new_contents_of_tensors_of_the_host_are_refused(shape):
    with pytest.raises(NotConverted, match="new contents of a tensor on cpu"):
        of_both(lambda x, y: (x + 1, y.copy_(y + 1)), shape)


def test_tensors_on_two_gpus_are_refused():
    with FakeTensorMode():
        graph = make_fx(lambda x, y: (x + 1, y + 1), tracing_mode="fake")(torch.empty(3, device="cuda:0"), torch.empty(3, device="cuda:1"))
    with pytest.raises(NotConverted, match="a graph runs on one GPU"):
        converting.convert(graph)


def test_names_of_single_results_are_left_out_of_declarations():
    assert "-> Tensor output" in str(aten.cudnn_grid_sampler.default._schema)
    assert " -> Tensor any" in host.HOST.declaration("aten.cudnn_grid_sampler.default")
