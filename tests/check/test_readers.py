"""Patches that are read again and proved are proved by `check` too."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.parallelize import Job
from benchmarks.readers import checked, planned

pytestmark = [pytest.mark.torch, pytest.mark.slow]

CHOSEN = """
class Chosen(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x, keep):
        assert torch.all(x > -1000.0)
        y = self.down(torch.relu(self.up(x)))
        out = torch.zeros_like(y)
        out[keep] = y[keep]
        return out.pow(2).sum()


def example_inputs():
    return {"x": torch.randn(4, 8), "keep": torch.tensor([True, False, True, True])}
"""
RECURRENT = """
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(4, 4, batch_first=True), nn.Linear(4, 4)

    def forward(self, x):
        return self.head(self.rnn(x)[0]).pow(2).mean()


def example_inputs():
    return {"x": torch.randn(2, 2, 4)}
"""
CASES = {"Chosen": (CHOSEN, "dp=2"), "Recurrent": (RECURRENT, "tp=2")}


@pytest.mark.parametrize("name", CASES)
def test_check_proves_what_parallelize_proves(tmp_path: Path, name: str) -> None:
    text, mesh = CASES[name]
    file = tmp_path / "owner" / "model.py"
    file.parent.mkdir()
    file.write_text(f"import torch\nfrom torch import nn\n\n{text}")
    assert planned(Job(name, f"{file}:{name}", (), ()), mesh, tmp_path / "out")
    verdict, said = checked(tmp_path / "out", tmp_path)
    assert verdict == "proved", said
