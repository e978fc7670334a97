"""A mean over the tokens that count, written by hand, under data parallelism."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Command

pytestmark = [pytest.mark.torch]

MODEL = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.head = nn.Linear(8, 16)

    def forward(self, tokens, target):
        logits = self.head(self.embed(tokens)).log_softmax(-1)
        keep = (target != 3).float()
        per = -logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return (per * keep).sum() / keep.sum()


def example_inputs():
    return (torch.randint(0, 16, (4, 6)), torch.randint(0, 16, (4, 6)))
"""
MEAN = "(per * keep).sum() / keep.sum()"
GIVEN = "the number of labels that count is the same on every rank along dp"


@pytest.mark.parametrize(
    ("mean", "proved"),
    [
        (MEAN, True),
        ("((per * keep).sum(0) / keep.sum(0)).mean()", True),
        ("(per * keep).sum() / keep[0].sum()", False),
        ("(per * keep).sum() / keep.sum() ** 2", False),
    ],
    ids=["of tokens", "of positions", "by the count of one row", "by a square"],
)
def test_mean_over_tokens_that_count(
    mean: str, proved: bool, here: Command, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(MODEL.replace(MEAN, mean))
    given = ("net.py:Net", "--mesh", "dp=2", "--no-run", "--out", "out")
    done = here("parallelize", *given, cwd=tmp_path)
    shown = done.out + done.err
    assert (done.code == 0) == proved, shown
    assert "the deciders disagree" not in shown
    if proved:
        assert GIVEN in shown
        assert "patch: read again and proved" in shown
    else:
        assert done.code == 1, shown
