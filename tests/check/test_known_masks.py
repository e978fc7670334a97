"""Masks that are made of numbers in the code choose rows that are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.program.types import Mesh

pytestmark = pytest.mark.torch
ONE = """
import torch
from torch import nn


class Apart(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.count += 1
        scores = x @ x.T
        mask = torch.eye(8, dtype=torch.bool)
        return scores[~mask].view(8, 7)


class Spread(nn.Module):
    def forward(self, x):
        c = x.T @ x
        return c[~torch.eye(4, dtype=torch.bool)].pow(2).sum().reshape(1)
"""
MANY = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather, all_reduce


class Apart(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.group = mesh.get_group("dp")
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.count += 1
        scores = x @ torch.cat(all_gather(x, group=self.group)).T
        rows = torch.arange(4)
        mask = torch.zeros(4, 8, dtype=torch.bool)
        mask[(rows, rows + 4 * dist.get_rank(self.group))] = True
        return scores[~mask].view(4, 7)


class Spread(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.group = mesh.get_group("dp")

    def forward(self, x):
        c = all_reduce(x.T @ x, group=self.group)
        return c[~torch.eye(4, dtype=torch.bool)].pow(2).sum().reshape(1)
"""
MARKED = "        return scores[~mask]"
OTHER = ("dist.get_rank(self.group)", "(1 - dist.get_rank(self.group))")
UNKNOWN = {
    "a counter": (MARKED, f"        mask = mask & (self.count < 5)\n{MARKED}"),
    "an entry of data": (MARKED, f"        mask[0, 0] = x[0, 0] > 0\n{MARKED}"),
    "a view": (MARKED, f"        mask.view(-1)[3] = x.sum() > 0\n{MARKED}"),
    "out": (MARKED, f"        torch.logical_and(mask, scores > 0, out=mask)\n{MARKED}"),
    "data": (MARKED, f"        mask.data.copy_(scores > 0)\n{MARKED}"),
    "ranks": (
        MARKED,
        "        whole = mask.int()\n        dist.all_reduce(whole, group=self.group)\n"
        f"        mask = whole > 0\n{MARKED}",
    ),
    "other memory": (MARKED, f"        mask.data = scores > 0\n{MARKED}"),
    "swapped": (MARKED, f"        torch.utils.swap_tensors(mask, scores > 0)\n{MARKED}"),
    "set": (MARKED, f"        mask.set_(scores > 0)\n{MARKED}"),
    "a copy": (MARKED, f"        mask = torch.where(scores > 0, mask, ~mask)\n{MARKED}"),
    "a product": (MARKED, f"        mask = mask * (x.sum() > 0)\n{MARKED}"),
    "drawn": (MARKED, f"        mask = mask | (torch.rand(4, 8) > 0.9)\n{MARKED}"),
    "never written": (MARKED, f"        mask = torch.empty(4, 8, dtype=torch.bool)\n{MARKED}"),
}


@pytest.fixture
def made(case: Callable[..., Any]) -> Callable[..., Any]:
    def make(name: str, *edits: tuple[str, str]) -> Any:
        text = MANY
        for old, new in edits:
            assert text.count(old) == 1
            text = text.replace(old, new)
        step = case(
            mesh=Mesh.of(dp=2),
            target=f"many.py:{name}",
            against=f"one.py:{name}",
            inputs=["x=f32[8,4]"],
            input_layouts=["x=S(0)@dp"],
            output_layouts=["*=S(0)@dp"] if name == "Apart" else [],
            gradients=name == "Apart",
        )
        (step.folder / "one.py").write_text(ONE)
        (step.folder / "many.py").write_text(text)
        return step

    return make


@pytest.mark.parametrize("name", ["Apart", "Spread"])
def test_entries_that_a_known_mask_chooses_are_known(made: Any, name: str) -> None:
    made(name).proved()


def test_the_mask_of_another_rank_is_refuted(made: Any) -> None:
    made("Apart", OTHER).refuted()


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_mask_that_numbers_alone_do_not_make_is_not_known(made: Any, name: str) -> None:
    with pytest.raises(CaptureError):
        made("Apart", UNKNOWN[name]).check()
