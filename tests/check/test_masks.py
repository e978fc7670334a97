"""Masks in the words of libraries: what is infinite, or the largest number of a dtype."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Proof

pytestmark = pytest.mark.torch

SCORES = """import torch
from torch import nn


class Scores(nn.Module):
    def __init__(self, mesh=None):
        super().__init__()
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        later = torch.ones(4, 4, dtype=torch.bool).triu(1)
        mask = torch.where(later, LOW, 0.0)
        return torch.softmax(self.q(x) @ self.k(x).transpose(1, 2) + mask, -1)


def example_inputs():
    return {"x": torch.randn(4, 4, 4)}
"""


@pytest.mark.parametrize(
    ("low", "verdict"),
    [
        ('float("-inf")', Proof),
        ("torch.finfo(torch.bfloat16).min", Proof),
        ("-1.0", Counterexample),
        ("torch.finfo(torch.float32).max", Counterexample),
    ],
)
def test_a_mask_of_the_lowest_number_is_an_infinite_one(
    case: Callable[..., object], tmp_path: Path, low: str, verdict: type
) -> None:
    (tmp_path / "one.py").write_text(SCORES.replace("LOW", "torch.finfo(torch.float32).min"))
    (tmp_path / "many.py").write_text(SCORES.replace("LOW", low))
    asked = case(mesh=Mesh.of(dp=2), target="many.py:Scores", against="one.py:Scores")
    asked.input_layouts, asked.gradients = ["x=S(0)@dp"], False
    assert isinstance(asked.check().verdict, verdict)
