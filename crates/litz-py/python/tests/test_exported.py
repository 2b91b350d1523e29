"""Exported programs: PyTorch runs what Litz does not have, and what nobody runs raises an error that names the operator and its line."""

import pytest
import torch
import torch.nn.functional as F

import litz

X = torch.arange(16.0).reshape(4, 4) % 5 - 2
POSITIVE = X @ X.T + torch.eye(4)


class Call(torch.nn.Module):
    """As that of `checks.py`, but here: errors name the line of the module's code, in this file."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


HOSTED = {
    "norm": ("aten._weight_norm_interface.default", lambda x: torch.ops.aten._weight_norm_interface(x, x[:, :1].abs() + 1)[0] * 2, X),
    "signal": ("aten.istft.default", lambda x: torch.istft(torch.complex(x.abs() + 1, x), 6, window=torch.ones(6)) + 1, X),
}

# What Litz has, and leaves to PyTorch where it is there: signs of vectors are then those of eager mode.
PREFERRED = {
    "svd": ("aten.linalg_svd.default", lambda x: torch.linalg.svd(x)[0] + 1, X),
    "vectors": ("aten.linalg_eigh.default", lambda x: torch.linalg.eigh(x).eigenvectors + 1, POSITIVE),
}


@pytest.mark.parametrize("name", HOSTED | PREFERRED)
def test_pytorch_runs_what_litz_does_not_have(name):
    op, f, x = (HOSTED | PREFERRED)[name]
    program = torch.export.export(Call(f), (x,))
    model = litz.compile(program)
    assert [found for found, *_ in model.fallbacks] == [op]
    torch.testing.assert_close(model(x)[0], f(x))
    torch.testing.assert_close(litz.compile(Call(f), (x,))(x)[0], f(x))


@pytest.mark.parametrize("name", HOSTED)
def test_without_a_host_the_operator_and_its_line_are_named(name, tmp_path):
    op, f, x = HOSTED[name]
    program = torch.export.export(Call(f), (x,))
    torch.export.save(program, tmp_path / "model.pt2")
    for compile in (lambda: litz.compile(program, options={"fallback": False}), lambda: litz.compile(tmp_path / "model.pt2")):
        with pytest.raises(litz.UnsupportedError, match=rf"{op}(.|\n)*test_exported.py:\d+"):
            compile()


def test_images_of_bytes_are_resized_by_pytorch():
    image = (torch.arange(2 * 3 * 5 * 7) * 37 % 256).to(torch.uint8).reshape(2, 3, 5, 7)
    for args in ({"mode": "bilinear", "antialias": True}, {"mode": "bilinear"}, {"mode": "nearest"}, {"mode": "bicubic"}):
        f = lambda x: F.interpolate(x, size=(9, 4), **args)
        (found,) = litz.compile(torch.export.export(Call(f), (image,)))(image)
        assert torch.equal(found, f(image)), args


def test_bags_of_embeddings():
    weight, places, starts = torch.randn(9, 4), torch.tensor([0, 8, 3, 3, 1]), torch.tensor([0, 2, 2])
    for mode in ("sum", "mean", "max"):
        f = lambda w, i, o: F.embedding_bag(i, w, o, mode=mode)
        program = torch.export.export(Call(f), (weight, places, starts))
        for model in (litz.compile(program), litz.compile(program.run_decompositions())):
            torch.testing.assert_close(model(weight, places, starts)[0], f(weight, places, starts))
