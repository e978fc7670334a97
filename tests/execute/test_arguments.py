"""Biases of scores that are made once for all heads, outside attention."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.contract import ContractError
from shardproof.verifier.verdict import Counterexample, Proof, Unknown
from tests.execute.test_pieces import BOTH, TP, planned

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.xdist_group("gloo")]

SOURCE = '''"""Attention that is given a bias of all heads."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, n=8, heads=4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(n, 3 * n), nn.Linear(n, n)

    def forward(self, x, bias):
        b, t, _ = x.shape
        q, k, v = (
            z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, dim=-1)
        )
        y = (q @ k.transpose(-2, -1) + bias).softmax(-1) @ v
        return x + self.out(y.transpose(1, 2).flatten(2))


class Merged(Attention):
    """The heads of all rows lie side by side, in scores and in the bias."""

    def forward(self, x, bias):
        b, t, _ = x.shape
        q, k, v = (
            z.view(b, t, self.heads, -1).transpose(1, 2).reshape(b * self.heads, t, -1)
            for z in self.qkv(x).chunk(3, dim=-1)
        )
        y = bias.baddbmm(q, k.transpose(1, 2)).softmax(-1) @ v
        y = y.view(b, self.heads, t, -1).transpose(1, 2).reshape(b, t, -1)
        return x + self.out(y)


class Slopes(nn.Module):
    """A table for each row and head (Press et al. 2022)."""

    def __init__(self, n=8, heads=4):
        super().__init__()
        self.heads = heads
        self.layers = nn.ModuleList([Merged(n, heads) for _ in range(2)])

    def forward(self, x):
        b, t, _ = x.shape
        slopes = 2.0 ** -torch.arange(1.0, 1 + self.heads)
        bias = slopes[None, :, None] * torch.arange(float(t))
        bias = bias.expand(b, self.heads, t).reshape(b * self.heads, 1, t)
        for layer in self.layers:
            x = layer(x, bias)
        return x


class Learned(nn.Module):
    """A bias that is looked up by edges, with a mean over the heads, given by name."""

    def __init__(self, n=8, heads=4):
        super().__init__()
        self.first, self.far = nn.Embedding(5, heads), nn.Parameter(torch.randn(heads, 1, 1))
        self.layers = nn.ModuleList([Attention(n, heads) for _ in range(2)])

    def forward(self, x, edges):
        bias = self.first(edges).permute(0, 3, 1, 2).tanh() + self.far
        bias = bias - bias.mean(1, keepdim=True)
        for layer in self.layers:
            x = layer(x, bias=bias)
        return x


def example_inputs():
    return {"x": torch.randn(4, 3, 8)}
'''
GIVEN = {"Slopes": "tp, 1, 0, 4", "Learned": 'tp, "bias", 1'}
OTHERS = """    def other(layer, args, kwargs):
        x = kwargs["bias"]
        return args, {**kwargs, "bias": x.chunk(2, 1)[1 - tp.get_local_rank()]}

    for layer in model.layers:
        layer.register_forward_pre_hook(other, with_kwargs=True)
    return model
"""
"""Wrong lines: a rank takes the share of the other."""
PLAIN = OTHERS.replace("1 - tp", "tp")
"""Wrong lines: the gradient of what is taken is that of the share of each rank."""
TWO = '    own_argument(model.layers[{}], tp, "bias", 1)\n'


def source(name: str) -> str:
    """With inputs that fit the model."""
    more = ', "edges": torch.randint(0, 5, (4, 3, 3))' if name == "Learned" else ""
    return SOURCE.replace("(4, 3, 8)}", f"(4, 3, 8){more}}}")


@pytest.mark.parametrize("name", GIVEN)
def test_a_module_takes_its_share_of_a_bias(name: str, tmp_path: Path) -> None:
    found = planned(tmp_path, name, TP, source(name))
    kinds = {path.rpartition(".")[2]: style for path, style in found.styles.items()}
    assert kinds["qkv"] == "fused_column"
    assert kinds["out"] == "row"
    (new,) = (after for _, after in found.patch.files.values())
    assert all(f"own_argument(model.layers[{at}], {GIVEN[name]})" in new for at in (0, 1))
    verdict = found.judged()
    assert isinstance(verdict, Proof), verdict


def test_heads_and_rows_are_split_at_once(tmp_path: Path) -> None:
    verdict = planned(tmp_path, "Learned", BOTH, source("Learned")).judged()
    assert isinstance(verdict, Proof), verdict


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Slopes", "tp, 1, 0, 4)", "tp, 1, 0)"),
        ("Slopes", "tp, 1, 0, 4)", "tp, 1, 0, 8)"),
        ("Slopes", "tp, 1, 0, 4)", "tp, 0, 0, 4)"),
        ("Learned", 'tp, "bias", 1)', 'tp, "bias", 0)'),
        ("Learned", "    return model\n", OTHERS),
        ("Learned", "    return model\n", PLAIN),
    ],
)
def test_another_share_is_not_proved(name: str, old: str, new: str, tmp_path: Path) -> None:
    wrong = planned(tmp_path, name, TP, source(name))
    if new.endswith("return model\n"):
        for at in (0, 1):
            wrong = wrong.edited(TWO.format(at), "")
    wrong = wrong.edited(old, new)
    try:
        verdict = wrong.judged()
    except (CaptureError, ContractError):
        return  # it does not run
    assert isinstance(verdict, Counterexample | Unknown), verdict
