"""Sequence, vocabulary and data parallelism, and groups of meshes of two dims."""

from __future__ import annotations

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Proof, Trace

pytestmark = pytest.mark.torch

SEQUENCE = {"target": "parallel.py:SequenceParallelMLP", "input_layouts": ["x=S(0)@tp"]}


def test_sequence_parallel_with_its_gradients_finished(case):
    case(after_backward="finish", **SEQUENCE).proved()


def test_sequence_parallel_norm_whose_gradient_nobody_adds_up(case):
    found = case(**SEQUENCE).refuted()
    assert set(found.verdict.wrong_outputs) == {
        "grad:norm.weight",
        "grad:norm.bias",
        "grad:down.bias",
    }


def test_one_gradient_forgotten(case):
    wrong = case(after_backward="finish", **SEQUENCE)
    wrong.edit("(*model.norm.parameters(), model.down.bias)", "model.norm.parameters()")
    found = wrong.refuted()
    assert found.verdict.wrong_outputs == ("grad:down.bias",)


EMBEDDING = {
    "target": "parallel.py:ParallelEmbedding",
    "against": "model.py:Embedding",
    "inputs": ["ids=i64[3,5]<12"],
}


@pytest.mark.parametrize("ranks", [2, 3])
def test_vocabulary_parallel_embedding(case, ranks):
    case(Mesh.of(tp=ranks), **EMBEDDING).proved()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(ids >= self.last)", "(ids > self.last)"),
        ("(ids < self.first)", "(ids <= self.first)"),
        ("        h[other, :] = 0.0\n", ""),
        ("        local[other] = 0\n", ""),
        ("(tp_rank + 1) * rows", "(tp_rank + 1) * rows - 1"),
        ("ids.clone() - self.first", "ids.clone()"),
    ],
)
def test_wrong_at_the_boundary(case, old, new):
    case(**EMBEDDING).edit(old, new).refuted_here("h = self.table(local)", "parallel.py")


KNOWN = {
    "zeros": "ids.new_zeros(3, 5)",
    "numbers": "ids.new_ones(3, 5).cumsum(-1) + 3",
    "a table": "ids.new_tensor([7, 3, 11, 3, 0]).expand_as(ids)",
}


def known(case, ids):
    """The lookup of ids that are the same in every call."""
    line = "        other = (ids < self.first) | (ids >= self.last)\n"
    found = case(**EMBEDDING).edit(line, f"        ids = {KNOWN[ids]}\n{line}")
    return found.edit("self.table(ids)", f"self.table({KNOWN[ids]})", "model.py")


@pytest.mark.parametrize("ids", KNOWN)
def test_known_ids_are_looked_up_in_the_rows_of_each_rank(case, ids):
    known(case, ids).proved()


@pytest.mark.parametrize("ids", ["numbers", "a table"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ids.clone() - self.first", "ids.clone() - 2 * self.first"),
        ("Reduce.apply(h, self.group)", "h"),
    ],
)
def test_known_ids_that_are_looked_up_wrongly(case, ids, old, new):
    assert not isinstance(known(case, ids).edit(old, new).check().verdict, Proof)


def test_an_index_outside_of_the_table_is_told_as_that(case):
    found = case(**EMBEDDING).edit("(ids >= self.last)", "(ids > self.last)").refuted()
    witness = found.verdict.witness
    assert isinstance(witness, Trace)
    assert "rank 0 looks up entry 6 of 6, for ids = 6" in witness.message


TWO = Mesh.of(dp=2, tp=2)
OVER = {"layouts": ["*=@tp"]}


def test_a_group_of_one_mesh_dim(case):
    case(TWO, **OVER).proved()


GROUP = """
class Wrong(ParallelMLP):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.group = {group}
"""


@pytest.mark.parametrize("group", ['mesh.get_group("dp")', "dist.group.WORLD"])
def test_the_wrong_group(case, group):
    wrong = case(TWO, **OVER).write(GROUP.format(group=group))
    wrong.refuted_here("dist.all_reduce(y, group=group)", "regions.py")


DATA = """
class Wrong(ParallelMLP):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.replicas = mesh.get_group("dp")


def finish(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.{op}, group=model.replicas)
"""
SPLIT = {
    "input_layouts": ["x=S(0)@dp"],
    "output_layouts": ["output=S(0)@dp"],
    "after_backward": "finish",
    **OVER,
}


def test_replicas_add_up(case):
    case(TWO, **SPLIT).write(DATA.format(op="SUM")).proved()


def test_replicas_average_what_must_be_added_up(case):
    case(TWO, **SPLIT).write(DATA.format(op="AVG")).refuted_here("dist.all_reduce(p.grad")


LOSS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        loss = self.head(x).square().mean()
        return loss


class Wrong(Model):
    pass


def finish(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.{op})


def example_inputs():
    return {{"x": torch.randn(4, 8)}}
"""
MEAN = {
    "against": "wrong.py:Model",
    "input_layouts": ["x=S(0)@dp"],
    "after_backward": "finish",
    "no_grad": ["x"],
    "skip": ["loss"],
}


def test_a_mean_over_replicas_is_averaged(case):
    case(Mesh.of(dp=2), **MEAN).write(LOSS.format(op="AVG")).proved()


def test_a_mean_over_replicas_that_is_added_up(case):
    case(Mesh.of(dp=2), **MEAN).write(LOSS.format(op="SUM")).refuted()


FLATTENED = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard


def build():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def ranks(mesh):
    model, _ = build()
    for part in (model[0], model[2], model):
        fully_shard(part)
    FACTOR
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return {}
"""


@pytest.mark.parametrize("factor", ["", "model[0].set_gradient_divide_factor(2.0)"])
def test_a_mesh_of_one_dim_over_all_ranks(case, factor):
    """That of fully_shard, where none is given: the dims of the mesh in order, flattened."""
    rows = [f"{name}=S(0)@replica,S(0)@dp" for name in ("x", "y")]
    made = case(
        mesh=Mesh.of(replica=2, dp=2),
        target="both.py:ranks",
        against="both.py:build",
        step="step",
        inputs=["x=f32[8,8]", "y=f32[8,8]"],
        input_layouts=rows,
    )
    (made.folder / "both.py").write_text(FLATTENED.replace("FACTOR", factor or "pass"))
    found = made.check().verdict
    assert isinstance(found, Counterexample if factor else Proof), found


UNEVEN = """
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.up, self.down = nn.Linear(6, 5), nn.Linear(5, 1)

    def forward(self, ids):
        return self.down(torch.relu(self.up(self.words(ids)))).square().mean()


def ranks(mesh):
    model = Net()
    for part in (model.up, model):
        fully_shard(part)
    FACTOR
    return model
"""


@pytest.mark.parametrize("factor", ["", "model.up.set_gradient_divide_factor(2.0)"])
def test_rows_that_do_not_divide_are_cut_and_gathered_as_fully_shard_does(case, factor):
    """Of 11, 5 and 1 rows four ranks hold 3, 3, 3, 2, then 2, 2, 1, 0, then 1, 0, 0, 0."""
    made = case(
        mesh=Mesh.of(dp=4),
        target="both.py:ranks",
        against="both.py:Net",
        inputs=["ids=i64[4,3]<11"],
        input_layouts=["ids=S(0)@dp"],
    )
    (made.folder / "both.py").write_text(UNEVEN.replace("FACTOR", factor or "pass"))
    found = made.check().verdict
    assert isinstance(found, Counterexample if factor else Proof), found


@pytest.mark.parametrize("ask", ["to_local().sum()", "exp().sum().full_tensor()"])
def test_uneven_rows_that_the_code_reads_are_not_traced(case, ask):
    """The trace pads them: a run has fewer."""
    made = case(
        mesh=Mesh.of(dp=4),
        target="both.py:ranks",
        against="both.py:Net",
        inputs=["ids=i64[4,3]<11"],
        input_layouts=["ids=S(0)@dp"],
    )
    read = f"self.up(self.words(ids) + self.up.weight.{ask})"
    text = UNEVEN.replace("self.up(self.words(ids))", read).replace("FACTOR", "pass")
    net = UNEVEN[: UNEVEN.index("def ranks")]
    ranks = text.replace("class Net", "class Other").replace("model = Net", "model = Other")
    (made.folder / "both.py").write_text(net + ranks)
    with pytest.raises(CaptureError, match="rows"):
        made.check()
