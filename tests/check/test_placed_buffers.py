"""Buffers of modules that PyTorch's styles place: each rank is given that of the first rank."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from tests.check.conftest import Case

pytestmark = pytest.mark.torch
MakeCase = Callable[..., Case]

TEXT = """
class Scaled(nn.Linear):
    def __init__(self, inner, outer, scale=3.0):
        super().__init__(inner, outer)
        self.register_buffer("scale", torch.tensor(scale), persistent=False)

    def forward(self, x):
        return super().forward(x) * self.scale


class Model(nn.Module):
    def __init__(self, scale=3.0):
        super().__init__()
        self.up, self.down = Scaled(8, 16, scale), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def split(mesh, scale=3.0):
    model = Model(scale)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return parallelize_module(model, mesh, plan)


def alike(mesh):
    return split(mesh)


def other(mesh):
    return split(mesh, 4.0)


def own(mesh, rank):
    return split(mesh, 3.0 + rank)
"""
IMPORTS = """
import torch
from torch import nn
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
"""


def _case(case: MakeCase, name: str) -> Case:
    made = case(inputs=["x=f32[4,8]"])
    (made.folder / "scaled.py").write_text(IMPORTS + TEXT)
    made.target, made.against = f"scaled.py:{name}", "scaled.py:Model"
    return made


def test_a_buffer_that_is_placed_whole_is_the_models(case: MakeCase) -> None:
    _case(case, "alike").proved()


def test_another_value_of_it_is_refuted(case: MakeCase) -> None:
    _case(case, "other").refuted()


def test_a_value_of_each_rank_is_refused(case: MakeCase) -> None:
    with pytest.raises(CaptureError, match="is not alike on rank 0 and rank 1") as error:
        _case(case, "own").check()
    assert error.value.file == "scaled.py"
