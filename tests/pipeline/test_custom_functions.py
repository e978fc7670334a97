"""Models with `torch.autograd.Function`s of their own: the backward that they write is what runs,
and what is proved."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest

from tests.commands import COMMAND, environment

pytestmark = [pytest.mark.torch, pytest.mark.slow]

FILES = Path(__file__).parents[2] / "examples" / "custom_functions"
USEFUL = {"chunked_cross_entropy", "fused_swiglu", "tiled_attention"}
WRONG = {
    "fused_swiglu": ("return grad_gate, grad * silu", "return grad_gate, 2 * grad * silu"),
    "cuda_bias_gelu": ("return gz, gz.flatten(0, -2).sum(0)", "return gz, gz.sum(0).sum(0) / 2"),
}
"""An edit of a backward."""


def model(file: Path) -> str:
    names = [n.name for n in ast.parse(file.read_text()).body if isinstance(n, ast.ClassDef)]
    return f"{file.name}:{names[-1]}"


COUNTING = """
import torch
from torch import nn

SEEN = []


class Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 1 * x

    @staticmethod
    def backward(ctx, grad):
        SEEN.append(1)
        return len(SEEN) * grad


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(Counted.apply(torch.relu(self.up(x))))


def example_inputs():
    return {"x": torch.randn(4, 8)}
"""


def said(*words: str, where: Path) -> tuple[str, int]:
    """The verdict, and the exit code."""
    ran = subprocess.run(
        [*COMMAND, *words, "--json"], cwd=where, env=environment(), capture_output=True, text=True
    )
    last = [json.loads(line) for line in ran.stdout.splitlines()][-1]
    return last["verdict"], ran.returncode


@pytest.mark.parametrize("name", sorted(p.stem for p in FILES.glob("*.py")))
def test_a_backward_by_hand_is_captured_and_its_patch_proved(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text((FILES / file.name).read_text())
    asked = ("--require-useful",) if name in USEFUL else ()
    words = ("parallelize", model(file), "--mesh", "tp=2", "--run", *asked)
    assert said(*words, where=tmp_path) == ("proved", 0)


@pytest.mark.parametrize("name", WRONG)
def test_a_rank_with_another_backward_is_refuted(name: str, tmp_path: Path) -> None:
    file = FILES / f"{name}.py"
    old, new = WRONG[name]
    text = file.read_text()
    assert old in text
    (tmp_path / "ranks.py").write_text(text.replace(old, new))
    cls = model(file).partition(":")[2]
    words = (f"ranks.py:{cls}", "--against", f"{file}:{cls}", "--mesh", "tp=2", "--no-run")
    assert said("check", *words, where=tmp_path) == ("refuted", 1)


def test_a_backward_that_counts_its_calls_is_refused(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(COUNTING)
    words = [*COMMAND, "parallelize", "counting.py:Net", "--mesh", "tp=2", "--no-run"]
    ran = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert ran.returncode == 2
    assert "the second backward of Net does something else than the first" in ran.stderr
