"""A loss that the training script computes from the outputs: what ranks average, or add up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Proof
from tests.check.conftest import Case

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

MakeCase = Callable[..., Case]
TEXT = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 6)
        self.down = nn.Linear(6, 2)

    def forward(self, x):
        return {"y": self.down(torch.tanh(self.up(x)))}


def example_inputs():
    return {"x": torch.randn(4, 4)}


def replicated(mesh):
    return DDP(Model(), process_group=mesh.get_group())


def sharded(mesh):
    return fully_shard(Model(), mesh=mesh)


class Added(Model):
    def __init__(self, mesh, share=1.0):
        super().__init__()
        self.group = mesh.get_group()
        for p in self.parameters():
            p.register_post_accumulate_grad_hook(lambda p: reduced(p, self.group, share))


def reduced(p, group, share):
    dist.all_reduce(p.grad, group=group)
    p.grad.mul_(share)


def by_hand(mesh):
    return Added(mesh, 0.5)


class Averaged(Model):
    def __init__(self, mesh):
        super().__init__()
        self.group = mesh.get_group()
        for p in self.parameters():
            p.register_post_accumulate_grad_hook(
                lambda p: dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.group)
            )


def averaged_by_hand(mesh):
    return Averaged(mesh)


def twice(mesh):
    return DDP(Added(mesh, 0.5), process_group=mesh.get_group())


class Forgotten(Model):
    def __init__(self, mesh):
        super().__init__()
        self.group = mesh.get_group()
        for p in self.up.parameters():
            p.register_post_accumulate_grad_hook(lambda p: reduced(p, self.group, 0.5))


def one_layer(mesh):
    return Forgotten(mesh)
"""


@pytest.fixture
def outside(case: MakeCase) -> Callable[..., Case]:
    def make(name: str, loss: str = "") -> Case:
        made = case(Mesh((("dp", 2),)))
        (made.folder / "outside.py").write_text(TEXT)
        made.target, made.against = f"outside.py:{name}", "outside.py:Model"
        made.input_layouts, made.loss = ["x=S(0)@dp"], loss
        made.output_layouts = ["y=S(0)@dp"]
        return made

    return make


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("replicated", ""),
        ("replicated", "mean"),
        ("sharded", ""),
        ("Added", ""),
        ("Added", "sum"),
        ("by_hand", "mean"),
    ],
)
def test_gradients_are_those_of_the_loss_that_is_said(
    outside: Callable[..., Case], name: str, loss: str
) -> None:
    found = outside(name, loss).proved()
    assert isinstance(found.verdict, Proof)
    mean = [a for a in found.verdict.assumptions if "each dp rank takes that of its own rows" in a]
    assert len(mean) == (name != "Added")


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("replicated", "sum"),
        ("sharded", "sum"),
        ("Added", "mean"),
        ("by_hand", ""),
        ("by_hand", "sum"),
        ("averaged_by_hand", ""),
        ("one_layer", "mean"),
        ("one_layer", "sum"),
    ],
)
def test_gradients_of_another_loss_are_refuted(
    outside: Callable[..., Case], name: str, loss: str
) -> None:
    assert isinstance(outside(name, loss).check().verdict, Counterexample)


def test_gradients_that_are_averaged_twice_are_refused(outside: Callable[..., Case]) -> None:
    with pytest.raises(CaptureError, match="has a hook on its accumulated gradient"):
        outside("twice").check()


def test_a_model_that_returns_its_loss_says_how_the_losses_are_added(case: MakeCase) -> None:
    made = case(Mesh((("tp", 2),)))
    made.gradients, made.loss = False, "mean"
    with pytest.raises(InputError, match="no gradient is checked"):
        made.check()
