"""Buffers that a checkpoint fills hold any value: code that is right for the constructor's alone is
not proved."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from shardproof.verifier.verdict import Proof

pytestmark = pytest.mark.torch

MODEL = """
class Scaled(nn.Module):
    def __init__(self, width=8, hidden=16):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.register_buffer("scale", torch.ones(hidden))
        self.register_buffer("gain", torch.tensor(1.0))
        self.register_buffer("packed", torch.zeros(hidden, width, dtype=torch.int8))
        self.register_buffer("seen", torch.ones(1, 1))
        self.register_buffer("bias", torch.tensor(1.0))
    def forward(self, x):
        y = self.norm(x)
        h = F.relu(self.up(y) + F.linear(y, self.packed.float() * self.scale[:, None]))
        y = self.down(h).masked_fill(self.seen == 0, 0.0)
        return x + y * self.gain + self.bias
"""
RANKS = """
class Right(ParallelMLP):
    def __init__(self, mesh, width=8, hidden=16):
        super().__init__(mesh, width, hidden)
        n = dist.get_world_size(self.group)
        self.register_buffer("scale", torch.ones(hidden // n))
        self.register_buffer("gain", torch.tensor(1.0))
        self.register_buffer("packed", torch.zeros(hidden // n, width, dtype=torch.int8))
        self.register_buffer("seen", torch.ones(1, 1))
        self.register_buffer("bias", torch.tensor(1.0))
    def weight(self):
        return self.packed.float() * self.scale[:, None]
    def last(self, y):
        return y * self.gain
    def forward(self, x):
        y = Copy.apply(self.norm(x), self.group)
        h = F.relu(self.up(y) + F.linear(y, self.weight()))
        y = Reduce.apply(F.linear(h, self.down.weight), self.group) + self.down.bias
        return x + self.last(y.masked_fill(self.seen == 0, 0.0)) + self.bias
class NoGain(Right):
    def last(self, y):
        return y
class NoWeight(Right):
    def weight(self):
        return self.packed.float() * 0
class NoScale(Right):
    def weight(self):
        return self.packed.float()
class Relu(Right):
    def last(self, y):
        return y * self.gain.relu()
class Root(Right):
    def last(self, y):
        return y * (self.gain * self.gain).sqrt()
class Nearly(Right):
    def last(self, y):
        return y * (self.gain + 1e-12)
class Other(Right):
    def last(self, y):
        return y * self.bias
class Attribute(Right):
    def __init__(self, mesh):
        super().__init__(mesh)
        del self.gain
        self.gain = torch.tensor(1.0)
class Filled(Right):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.gain.fill_(2.0)
"""


@pytest.fixture
def made(case: Callable[..., object]) -> Callable[[str], object]:
    def make(name: str) -> object:
        found = case(against="scaled.py:Scaled", inputs=["x=f32[4,8]"])
        head = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
        (found.folder / "scaled.py").write_text(head + textwrap.dedent(MODEL))
        return found.write(textwrap.dedent(RANKS), name)

    return make


def test_pieces_of_buffers_of_any_value_are_proved(made: Callable[[str], object]) -> None:
    captured = made("Right").proved().captured
    assert set(captured.one.filled) == {"scale", "gain", "packed", "bias"}
    assert captured.one.buffers == ("seen",)
    assert dict(captured.ranks[1].pieces) == {
        "scale": "S(0)@tp",
        "gain": "R",
        "packed": "S(0)@tp",
        "bias": "R",
    }


def test_a_factor_that_is_left_out_is_refuted(made: Callable[[str], object]) -> None:
    made("NoGain").refuted()


@pytest.mark.parametrize("name", ["NoWeight", "NoScale"])
def test_a_weight_that_is_right_for_the_constructors_values_alone_is_refuted(
    made: Callable[[str], object], name: str
) -> None:
    made(name).refuted()


@pytest.mark.parametrize("name", ["Relu", "Root", "Other"])
def test_what_is_the_same_for_some_values_alone_is_refuted(
    made: Callable[[str], object], name: str
) -> None:
    made(name).refuted()


def test_what_differs_by_less_than_numbers_show_is_not_proved(
    made: Callable[[str], object],
) -> None:
    assert not isinstance(made("Nearly").check().verdict, Proof)


def test_a_buffer_that_ranks_keep_otherwise_is_the_constructors(
    made: Callable[[str], object],
) -> None:
    captured = made("Attribute").proved().captured
    assert set(captured.one.filled) == {"scale", "packed", "bias"}
    assert "gain" in captured.one.buffers


def test_a_buffer_that_is_filled_otherwise_is_not_proved(made: Callable[[str], object]) -> None:
    made("Filled").refuted()
