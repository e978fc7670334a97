"""Modules that are built without memory: tables on a weight's device have values."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from shardproof.synthesis.frontends.torch.materialize import parameters_on_meta
from shardproof.synthesis.frontends.torch.session import block_lists

pytestmark = pytest.mark.torch


class Tables(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)
        device = self.up.weight.device
        self.register_buffer("table", torch.arange(4.0, device=device).cos())
        with torch.no_grad():
            self.up.weight.mul_(torch.ones(4, 4, device=device))
            self.up.weight.copy_(torch.eye(4, device=device))
        self.register_buffer("scaled", self.up.weight * torch.ones(4, device=device))


def test_a_table_on_the_device_of_a_weight_has_values() -> None:
    with parameters_on_meta():
        made = Tables()
    assert made.up.weight.is_meta
    assert torch.equal(made.get_buffer("table"), torch.arange(4.0).cos())


def test_what_is_computed_of_a_weight_has_none() -> None:
    with parameters_on_meta():
        made = Tables()
    assert made.get_buffer("scaled").is_meta


def test_other_errors_stay_as_they_are() -> None:
    with parameters_on_meta(), pytest.raises(RuntimeError, match="size of tensor"):
        torch.ones(3) * torch.ones(4)


def test_a_list_with_an_empty_place_is_no_list_of_blocks() -> None:
    block = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model = nn.ModuleDict({"blocks": nn.ModuleList([block, block])})
    assert block_lists(model) == ["blocks"]
    model["blocks"].append(None)  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert block_lists(model) == []
