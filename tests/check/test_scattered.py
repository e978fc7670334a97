"""What one rank computes and scatters: as all ranks compute it, where they have what it has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
        return self.fc(x).softmax(0)


class Ranks(One):
    def forward(self, x):
        rank = dist.get_rank()
        whole = torch.empty(2 * x.shape[0], 4)
        dist.all_gather_into_tensor(whole, self.fc(x))
        out = torch.empty_like(x)
        parts = None
        if rank == 0:
            parts = list(whole.softmax(0).chunk(2))
        dist.scatter(out, parts, src=0)
        return out


def example_inputs():
    return {"x": torch.randn(6, 4)}
"""
FAULTS = {
    "of its own rows": ("whole.softmax(0)", "torch.cat([self.fc(x)] * 2).softmax(0)"),
    "in another order": (
        "list(whole.softmax(0).chunk(2))",
        "list(whole.softmax(0).chunk(2))[::-1]",
    ),
    "of other values": ("whole.softmax(0)", "whole.softmax(1)"),
    "of another rank's rows": ("return out", "return out.flip(0)"),
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


def test_what_the_root_computes_and_scatters_is_proved(made: Case) -> None:
    made.proved()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_the_root_scatters_wrongly_is_refuted(made: Case, fault: tuple[str, str]) -> None:
    found = made.edit(*fault, file="both.py").check().verdict
    assert isinstance(found, Counterexample), found
