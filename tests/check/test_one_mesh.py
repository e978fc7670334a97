"""Parameters that no style splits lie on the mesh of all others, so that gradients are clipped by
the norm of one device."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardproof.verifier.kernel.program.types import Mesh
from tests.check.conftest import Case

pytestmark = pytest.mark.torch
MakeCase = Callable[..., Case]

TEXT = """
import torch
from shardproof.runtime import dp_shard, replicate_rest, whole_over, whole_params
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.up, self.down = nn.Linear(3, 6), nn.Linear(6, 3)
        self.listed = [self.scale]

    def forward(self, x):
        return self.down(self.up(x).relu()) * self.scale


class Recurrent(Net):
    def __init__(self):
        super().__init__()
        self.units = nn.GRU(3, 2, batch_first=True)

    def forward(self, x):
        return self.units(super().forward(x))[0]


class Listed(Net):
    def forward(self, x):
        return self.down(self.up(x).relu()) * self.listed[0]


def with_optimizer(model):
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def one():
    return with_optimizer(Net())


def split(model, mesh, reduce="avg"):
    originals = whole_params(model, mesh)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(model, mesh["tp"], plan)
    replicate_rest(model, mesh["tp"])
    if "dp" in mesh.mesh_dim_names:
        whole = whole_over(model, mesh, "dp", reduce, originals)
        fully_shard(model, mesh=mesh["dp"], shard_placement_fn=dp_shard(2), ignored_params=whole)
    return model


def ranks(mesh):
    return with_optimizer(split(Net(), mesh))


def added(mesh):
    return with_optimizer(split(Net(), mesh, "sum"))


def train_step(model, optimizer, x):
    loss = model(x).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""


def _case(case: MakeCase, target: str, against: str, mesh: Mesh | None = None, **what: str) -> Case:
    rows = ["x=S(0)@dp"] if mesh else []
    made = case(mesh=mesh, inputs=["x=f32[4,2,3]"], input_layouts=rows, **what)
    (made.folder / "net.py").write_text(TEXT)
    made.target, made.against = f"net.py:{target}", f"net.py:{against}"
    return made


@pytest.mark.parametrize("mesh", [None, Mesh.of(dp=2, tp=2)], ids=str)
def test_a_step_that_clips_all_gradients_is_proved(case: MakeCase, mesh: Mesh | None) -> None:
    _case(case, "ranks", "one", mesh, step="train_step").proved()


def test_gradients_added_up_in_place_of_their_mean_are_refuted(case: MakeCase) -> None:
    _case(case, "added", "one", Mesh.of(dp=2, tp=2), step="train_step").refuted()


def test_weights_that_a_module_keeps_in_a_list_of_its_own_are_followed(case: MakeCase) -> None:
    _case(case, "split", "Recurrent").proved()


def test_a_list_of_the_owners_that_has_the_old_parameter_is_refuted(case: MakeCase) -> None:
    _case(case, "split", "Listed").refuted()
