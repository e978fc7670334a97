"""What a call leaves in a dict that it was given is not compared, and the verdict says so."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.commands import COMMAND, environment

pytestmark = [pytest.mark.torch, pytest.mark.slow]

FILE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)

    def forward(self, batch):
        return self.lin(batch["x"])


class Counts(Net):
    def __init__(self, mesh):
        super().__init__()

    def forward(self, batch):
        batch["seen"] = batch.get("seen", 0) + 1
        return self.lin(batch["x"]) * batch["seen"]


def example_inputs():
    return {"batch": {"x": torch.zeros(4, 8)}}
"""


def test_a_count_that_is_left_in_a_dict_is_covered_by_a_printed_assumption(tmp_path: Path) -> None:
    (tmp_path / "held.py").write_text(FILE)
    words = ("check", "held.py:Counts", "--against", "held.py:Net", "--mesh", "tp=2", "--no-run")
    ran = subprocess.run(
        [*COMMAND, *words], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    said = ran.stdout + ran.stderr
    assert "Each call is given dicts, lists and objects of its own: batch." in said
