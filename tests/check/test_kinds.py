"""What only a rank or a layer in between does is found; few layers are traced where
that is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import shardproof

pytestmark = pytest.mark.torch
ROOT = Path(__file__).resolve().parents[2]

HEAD = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
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
ASKS = """
import os
import torch.distributed as dist
from torch.distributed import get_rank as who


def by_rank(mesh): return dist.get_rank()
def by_another_name(mesh): return who()
def by_local_rank(mesh): return mesh.get_local_rank("tp")
def by_coordinate(mesh): return mesh.get_coordinate()
def by_coordinate_that_nothing_names(mesh): return getattr(mesh, "get_" + "coordinate")()
def by_group(mesh): return mesh.get_group("tp").rank()
def by_ranks_of_a_group(mesh): return dist.get_process_group_ranks(mesh.get_group("tp"))
def by_submesh(mesh): return mesh["tp"].mesh.tolist()
def by_variable(mesh): return os.environ["RANK"]
def by_bytes(mesh): return os.environb[b"RANK"]
def by_getenv(mesh): return os.getenv("LOCAL_RANK")
def by_copy(mesh): return dict(os.environ)
"""
ASKS_NOT = """
import os
import torch
import torch.distributed as dist


def by_size(mesh): return mesh.size(), dist.get_world_size(), os.environ["WORLD_SIZE"]
def by_group(mesh): return mesh["tp"].get_group()
def by_nothing(mesh): return torch.zeros(2) + 1
"""


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


@pytest.mark.parametrize(("text", "asks"), [(ASKS, True), (ASKS_NOT, False)])
def test_what_asks_for_its_rank_is_noted(tmp_path: Path, text: str, asks: bool) -> None:
    file = tmp_path / "owner.py"
    file.write_text(text)
    command = [sys.executable, "-W", "ignore", "-m", "tests.check.asking", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    noted = json.loads(done.stdout.splitlines()[-1])
    assert len(noted) == text.count("def by_")
    assert [name for name, line in noted.items() if bool(line) != asks] == []


@pytest.mark.campaign
def test_a_rank_in_between_that_does_otherwise_is_found(tmp_path: Path) -> None:
    text = """
class Odd(Net):
    def forward(self, x):
        return super().forward(2 * x if dist.get_rank() == 5 else x)


def ranks(mesh):
    return split(Odd(), mesh)
"""
    found = _checked(tmp_path, text, "ranks", "Net", "tp=9")
    assert isinstance(found, shardproof.Counterexample)


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


@pytest.mark.parametrize(("slope", "right"), [(1.0, True), (2.0, False)])
def test_chunks_are_cut_of_every_layer(tmp_path: Path, slope: float, right: bool) -> None:
    text = f"""
class Three(Net):
    def __init__(self):
        super().__init__(3)


def ranks(mesh):
    net = Net(3, {{1: {slope}}})
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(net, mesh=mesh)
"""
    found = _checked(tmp_path, text, "ranks", "Three", "dp=2")
    assert isinstance(found, shardproof.Proof if right else shardproof.Counterexample)
