"""What ranks reduce to one, or gather on one, that gives it to all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample
from tests.check.conftest import Case

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

TEXT = """
import torch
import torch.distributed as dist
from torch import nn


class One(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        y = self.fc(x)
        return y.softmax(0) * y.sum()


class Ranks(One):
    def forward(self, x):
        rank = dist.get_rank()
        y = self.fc(x)
        total = y.sum()
        dist.reduce(total, dst=1)
        total *= 3
        dist.broadcast(total, src=1)
        parts = [torch.empty_like(y) for _ in range(2)] if rank == 0 else None
        dist.gather(y, parts, dst=0)
        out = torch.empty_like(y)
        dist.scatter(out, list(torch.cat(parts).softmax(0).chunk(2)) if parts else None, src=0)
        return out * total / 3


def example_inputs():
    return {"x": torch.randn(6, 4)}
"""
FAULTS = {
    "not sent back": ("        dist.broadcast(total, src=1)\n", ""),
    "sent by another rank": ("dist.broadcast(total, src=1)", "dist.broadcast(total, src=0)"),
    "reduced to another rank": ("dist.reduce(total, dst=1)", "dist.reduce(total, dst=0)"),
    "the largest of all": ("dst=1)", "dst=1, op=dist.ReduceOp.MAX)"),
    "factor on one rank alone": ("total *= 3", "total = total if rank else total * 3"),
    "in another order": ("torch.cat(parts)", "torch.cat(parts[::-1])"),
}


@pytest.fixture
def made(case: Callable[..., Case]) -> Case:
    found = case(
        mesh=Mesh.of(dp=2),
        target="both.py:Ranks",
        against="both.py:One",
        input_layouts=["x=S(0)@dp"],
        output_layouts=["output=S(0)@dp"],
        gradients=False,
    )
    (found.folder / "both.py").write_text(TEXT)
    return found


def test_what_one_rank_gets_and_gives_to_all_is_proved(made: Case) -> None:
    made.proved()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_one_rank_gets_wrongly_is_refuted(made: Case, fault: tuple[str, str]) -> None:
    found = made.edit(*fault, file="both.py").check().verdict
    assert isinstance(found, Counterexample), found


def test_what_reduce_leaves_on_other_ranks_is_not_read(made: Case) -> None:
    """Multiplied by 0, it may still be no number."""
    left = "left = self.fc(x).sum(); dist.reduce(left, dst=0); out = left * 0 + out"
    made.edit("return out", f"{left}\n        return out", file="both.py")
    with pytest.raises(CaptureError, match="nothing was written to"):
        made.check()
