"""A count of calls that the model alone keeps is left out, and told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardproof.agent.run.errors import InputError
from shardproof.verifier.kernel.program.types import Mesh
from tests.check.conftest import Case

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

TEXT = """
import torch
import torch.distributed as dist
from torch import nn


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        self.calls += 1
        return self.fc(x)


class CountingRanks(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x)
"""
FAULTS = {
    "read by the output": (
        "        return self.fc(x)\n\n\nclass",
        "        return self.fc(x) * self.calls\n\n\nclass",
    ),
    "a mean of what came": (
        "torch.tensor(0))\n\n    def forward(self, x):\n        self.calls += 1",
        "torch.zeros(4))\n\n    def forward(self, x):\n        self.calls += x.detach().mean(0)",
    ),
    "kept by ranks that do not count": (
        "        self.fc = nn.Linear(4, 4)\n\n    def forward(self, x):\n        return",
        "        self.fc = nn.Linear(4, 4)\n        self.register_buffer('calls', torch.tensor(0))"
        "\n\n    def forward(self, x):\n        return",
    ),
}


@pytest.fixture
def made(case: Callable[..., Case]) -> Case:
    found = case(
        mesh=Mesh.of(dp=2),
        target="counted.py:CountingRanks",
        against="counted.py:Counting",
        inputs=["x=f32[6,4]"],
        input_layouts=["x=S(0)@dp"],
        output_layouts=["output=S(0)@dp"],
        gradients=False,
    )
    (found.folder / "counted.py").write_text(TEXT)
    return found


def test_a_count_that_nothing_else_reads_is_left_out(made: Case) -> None:
    assert made.proved().left == ("state:calls",)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_is_more_than_a_count_is_not_left_out(made: Case, fault: tuple[str, str]) -> None:
    with pytest.raises(InputError, match="calls"):
        made.edit(*fault, file="counted.py").check()
