"""What only a rank or a layer in between does is found; few layers of a deep module are traced where
that is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

import shardproof

pytestmark = pytest.mark.torch

HEAD = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


class Block(nn.Module):
    def __init__(self, slope=1.0):
        super().__init__()
        self.up, self.down, self.slope = nn.Linear(8, 18), nn.Linear(18, 8), slope

    def forward(self, x):
        return x + self.slope * self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self, depth=1, slopes=None):
        super().__init__()
        self.blocks = nn.ModuleList(Block((slopes or {}).get(i, 1.0)) for i in range(depth))
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Deep(Net):
    def __init__(self):
        super().__init__(8)


class Scaled(Deep):
    def forward(self, x):
        for block in self.blocks:
            x = 2 * block(x)
        return self.head(x) / EVERY


def example_inputs():
    return {"x": torch.randn(4, 8)}


def split(net, mesh):
    plan = {"blocks.*.up": ColwiseParallel(), "blocks.*.down": RowwiseParallel()}
    return parallelize_module(net, mesh, plan)
"""
ASKS = {
    "get_rank": "dist.get_rank() == 5",
    "local rank": "self.mesh.get_local_rank() == 5",
    "coordinate": "self.mesh.get_coordinate()[0] == 5",
    "rank of a group": "self.mesh.get_group().rank() == 5",
    "environment": 'os.environ["RANK"] == "5"',
    "another name": "ask() == 5",
}


def _checked(
    folder: Path, text: str, target: str, against: str, mesh: str, full_depth: bool = True
) -> object:
    file = folder / "net.py"
    file.write_text(HEAD + text)
    return shardproof.check(
        f"{file}:{target}",
        f"{file}:{against}",
        mesh,
        run=False,
        repair_seconds=0,
        mode="train",
        full_depth=full_depth,
    )


@pytest.mark.campaign
@pytest.mark.parametrize("asks", ASKS.values(), ids=ASKS)
def test_a_rank_in_between_that_does_otherwise_is_found(tmp_path: Path, asks: str) -> None:
    text = f"""
ask = dist.get_rank


class Odd(Net):
    def forward(self, x):
        return super().forward(2 * x if {asks} else x)


def ranks(mesh):
    net = Odd()
    net.mesh = mesh
    return split(net, mesh)
"""
    found = _checked(tmp_path, text, "ranks", "Net", "tp=9")
    assert not isinstance(found, shardproof.Proof)


def test_a_factory_that_takes_the_rank_is_built_for_each(tmp_path: Path) -> None:
    text = """
def ranks(mesh, rank):
    net = split(Net(), mesh)
    net.head.weight.requires_grad_(rank != 5)
    return net
"""
    assert not isinstance(_checked(tmp_path, text, "ranks", "Net", "tp=9"), shardproof.Proof)


def test_few_layers_tell_what_all_do(tmp_path: Path) -> None:
    text = "\n\ndef ranks(mesh):\n    return split(Deep(), mesh)\n"
    found = _checked(tmp_path, text, "ranks", "Deep", "tp=2", False)
    assert isinstance(found, shardproof.Proof)
    assert any("3 of the 8 layers of blocks were traced" in a for a in found.assumptions)


def test_a_layer_in_between_of_another_kind_is_found(tmp_path: Path) -> None:
    text = "\n\ndef ranks(mesh):\n    return split(Net(8, {5: 2.0}), mesh)\n"
    assert isinstance(
        _checked(tmp_path, text, "ranks", "Deep", "tp=2", False), shardproof.Counterexample
    )


@pytest.mark.parametrize(("power", "right"), [("2**3", False), ("2**8", True)])
def test_what_layers_add_up_to_is_that_of_all(tmp_path: Path, power: str, right: bool) -> None:
    text = f"""
EVERY = {power}


def ranks(mesh):
    return split(Scaled(), mesh)


class Plain(Deep):
    def forward(self, x):
        for block in self.blocks:
            x = 2 * block(x)
        return self.head(x) / 2**8
"""
    found = _checked(tmp_path, text, "ranks", "Plain", "tp=2", False)
    assert isinstance(found, shardproof.Proof) == right
