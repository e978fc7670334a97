"""Pairs within the batch: each rank's examples against those of all, with labels that are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardproof.synthesis.emit import Patch
from shardproof.synthesis.emit.patch import patch as make_patch
from shardproof.synthesis.execute.reading import Reading, read_patch
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.captured import Captured
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.planner.plan import Plan
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.program import Program, live
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Verdict

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.xdist_group("gloo")]

SOURCE = '''"""Every example against all others of the batch."""

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as funcol
from torch.nn import functional as F


class Pairs(nn.Module):
    def __init__(self, rows=8, ignored=-100, table=()):
        super().__init__()
        self.ignored = ignored
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)
        self.register_buffer("table", torch.tensor(table or range(rows)))

    def forward(self, x):
        y = self.down(F.relu(self.up(x)))
        every = y
        labels = LABELS
        return F.cross_entropy(y @ every.t(), labels, ignore_index=self.ignored)


def example_inputs():
    return {"x": torch.randn(8, 4)}
'''
SHARD = """

def parallelize(model, mesh):
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=mesh["dp"])
    return model
"""
GATHER = "every = funcol.all_gather_tensor_autograd(y, 0, dist.group.WORLD)"
SHIFTED = "torch.arange(len(y)) + len(y) * dist.get_rank()"
CHUNK = "torch.arange(len(every)).chunk(2)[dist.get_rank()]"
OF_TABLE = "self.table.chunk(2)[dist.get_rank()]"
UNEVEN = (3, 1, 2, 0, 7, 5, -100, 4)
EVEN = (3, 1, 2, 0, 7, 5, 6, 4)


def judged(folder: Path, labels: str, patched: str, gather: str = GATHER, **config: Any) -> Verdict:
    """The verdict on a patch that gathers the rows of all ranks and takes other labels."""
    source = SOURCE.replace("LABELS", labels)
    path = folder / "pairs.py"
    path.write_text(source)
    request = CaptureRequest(f"{path}:Pairs", config)
    captured = capture(request)
    new = SOURCE.replace("LABELS", patched).replace("every = y", gather) + SHARD
    patch = make_patch({"pairs.py": (source, new)}, (), "")
    one = live(inline(captured.program))
    made = reading(request, captured, one, patch)
    return verify(Problem(one, made.program, made.contract, consts=captured.consts))


def reading(request: CaptureRequest, captured: Captured, one: Program, patch: Patch) -> Reading:
    plan = Plan(Mesh.of(dp=2), dp="dp", data="fsdp")
    planned = Contract(
        {
            i.name: from_placements(i.type.shape, [("dp", 2, "S(0)")] if i.role == "input" else [])
            for i in one.inputs
        },
        {output_key(o): from_placements(one.types[o.value].shape, []) for o in one.outputs},
    )
    return read_patch(request, patch, plan, captured.facts, one, planned, captured.consts)


@pytest.mark.parametrize("patched", [SHIFTED, CHUNK, OF_TABLE])
def test_rows_against_those_of_all_ranks_are_proved(tmp_path: Path, patched: str) -> None:
    verdict = judged(tmp_path, "torch.arange(len(x))", patched)
    assert isinstance(verdict, Proof), verdict


def test_a_table_of_labels_is_proved(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "self.table", OF_TABLE, table=EVEN)
    assert isinstance(verdict, Proof), verdict


@pytest.mark.parametrize(
    ("patched", "gather"),
    [
        ("torch.arange(len(y))", GATHER),
        (CHUNK.replace("get_rank()", "get_rank() - 1"), GATHER),
        (SHIFTED, GATHER.replace("_autograd(y", "(y.detach()")),
        ("torch.arange(len(y))", "every = y"),
    ],
    ids=["labels of the first rank", "labels of the other", "no gradient back", "own rows alone"],
)
def test_wrong_labels_or_rows_are_refuted(tmp_path: Path, patched: str, gather: str) -> None:
    verdict = judged(tmp_path, "torch.arange(len(x))", patched, gather)
    assert isinstance(verdict, Counterexample), verdict


def test_ranks_that_count_other_numbers_of_labels_are_not_joined(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="ranks"):
        judged(tmp_path, "self.table", OF_TABLE, table=UNEVEN)


def test_a_class_that_is_ignored_on_one_rank_is_refuted(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "torch.arange(len(x))", SHIFTED, ignored=2)
    assert isinstance(verdict, Counterexample), verdict
