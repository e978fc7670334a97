"""Cells of recurrent networks whose hidden units are split: one step, with its state gathered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.check.conftest import Case

pytestmark = pytest.mark.torch
MakeCase = Callable[..., Case]

TEXT = """
import torch
from shardproof.runtime import RecurrentParallel
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x):
        h = self.cell(x[:, 0])
        return self.cell(x[:, 1], h)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, x):
        h, c = self.cell(x[:, 0])
        return self.cell(x[:, 1], (h, c))[0] * c


def split(model, mesh):
    return parallelize_module(model, mesh["tp"], {"cell": RecurrentParallel()})


def mixed(model, mesh):
    rows = {
        name: nn.Parameter(distribute_tensor(p, mesh["tp"], [Shard(0)]))
        for name, p in model.cell.named_parameters()
    }
    split(model, mesh)
    for name, p in rows.items():
        setattr(model.cell, name, p)
    return model


def partly(model, mesh):
    split(model, mesh)
    whole = model.cell.forward

    def forward(x, state=None):
        h = whole(x, state)
        return torch.cat((h[:, :2], h[:, :2]), -1) if state is not None else h

    model.cell.forward = forward
    return model
"""


def _case(case: MakeCase, target: str, against: str) -> Case:
    made = case(inputs=["x=f32[4,2,3]"])
    (made.folder / "cells_split.py").write_text(TEXT)
    made.target, made.against = f"cells_split.py:{target}", f"cells_split.py:{against}"
    return made


@pytest.mark.parametrize("model", ["Gru", "Lstm"])
def test_a_cell_whose_units_are_split_is_proved(case: MakeCase, model: str) -> None:
    _case(case, "split", model).proved()


@pytest.mark.parametrize("wrong", ["mixed", "partly"])
def test_units_that_are_dealt_out_in_another_way_are_refuted(case: MakeCase, wrong: str) -> None:
    """Rows of the gates side by side; the units of one rank twice."""
    _case(case, wrong, "Gru").refuted()
