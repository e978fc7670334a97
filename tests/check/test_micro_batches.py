"""A batch in parts, one after the other: gradient accumulation, on one device and on ranks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Proof
from tests.check.conftest import Case

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

MakeCase = Callable[..., Case]
TEXT = """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.table = nn.Embedding(12, 8)
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.head = nn.Linear(8, 12, bias=False)

    def loss(self, ids, labels):
        x = self.table(ids)
        x = x + self.down(F.gelu(self.up(self.norm(x))))
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())

    def forward(self, ids, labels):
        return self.loss(ids, labels)


def example_inputs():
    return {"ids": torch.randint(0, 12, (8, 6)), "labels": torch.randint(0, 12, (8, 6))}


def mean(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=model.group)
"""
RANKS = """
import torch
from micro_model import *


class Ranks(Model):
    def __init__(self, group):
        super().__init__(group)

    def forward(self, ids, labels):
"""
CHUNKS = "parts = list(zip(ids.chunk(4), labels.chunk(4)))"
SUM = "return sum(self.loss(i, t) / 4 for i, t in parts)"
RIGHT = {
    "chunks": (CHUNKS, SUM),
    "two": (
        "parts = zip(ids.split(4), labels.split(4))",
        "return sum(map(self.loss, *zip(*parts))) / 2",
    ),
    "slices": (
        "total = 0.0",
        "for at in range(0, 8, 2):",
        "    total = total + self.loss(ids[at : at + 2], labels[at : at + 2])",
        "return total / 4",
    ),
    "a dim of their own": (
        "ids, labels = ids.view(4, 2, 6), labels.view(4, 2, 6)",
        "return torch.stack([self.loss(i, t) for i, t in zip(ids, labels)]).mean()",
    ),
}
WRONG = {
    "not divided": (CHUNKS, "return sum(self.loss(i, t) for i, t in parts)  # here"),
    "one left out": (CHUNKS, "return sum(self.loss(i, t) / 4 for i, t in parts[:3])  # here"),
    "one twice": (CHUNKS, "parts[1] = parts[0]  # here", SUM),
    "labels of another": ("parts = zip(ids.chunk(4), labels.roll(2, 0).chunk(4))  # here", SUM),
    "one is not trained": (
        CHUNKS,
        "losses = [self.loss(i, t) / 4 for i, t in parts]",
        "return sum(losses[1:]) + losses[0].detach()  # here",
    ),
    "the last alone": (CHUNKS, "return [self.loss(i, t) for i, t in parts][-1]  # here"),
}


def _case(case: MakeCase, lines: tuple[str, ...], dp: int = 1, after: str = "") -> Case:
    data = [f"{name}=S(0)@dp" for name in ("ids", "labels")] if dp > 1 else []
    asked = case(
        Mesh.of(dp=dp), against="micro_model.py:Model", input_layouts=data, after_backward=after
    )
    (asked.folder / "micro_model.py").write_text(TEXT)
    body = "".join(f"        {line}\n" for line in lines)
    (asked.folder / "wrong.py").write_text(RANKS + body)
    asked.target = "wrong.py:Ranks"
    return asked


@pytest.mark.parametrize("lines", RIGHT.values(), ids=RIGHT)
def test_right_ones_are_proved(case: MakeCase, lines: tuple[str, ...]) -> None:
    verdict = _case(case, lines).proved().verdict
    assert isinstance(verdict, Proof)
    assert verdict.scope[-1].startswith("micro: ")


@pytest.mark.parametrize("lines", WRONG.values(), ids=WRONG)
def test_wrong_ones_are_refuted(case: MakeCase, lines: tuple[str, ...]) -> None:
    _case(case, lines).refuted()


def test_replicas_reduce_what_they_accumulated(case: MakeCase) -> None:
    lines = (
        "parts = zip(ids.chunk(2), labels.chunk(2))",
        "return sum(self.loss(i, t) / 2 for i, t in parts)",
    )
    _case(case, lines, 2, "mean").proved()


def test_replicas_that_reduce_nothing_are_refuted(case: MakeCase) -> None:
    lines = (
        "parts = zip(ids.chunk(2), labels.chunk(2))",
        "return sum(self.loss(i, t) / 2 for i, t in parts)",
    )
    _case(case, lines, 2).refuted()
