"""Queries, keys and values of unequal widths in one linear: the code of ranks, and faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Proof

pytestmark = pytest.mark.torch
Make = Callable[..., Any]
CODE = """
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle, RowwiseParallel, parallelize_module


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads, self.q, self.kv = 4, 16, 8
        self.qkv = nn.Linear(8, 32)
        self.out = nn.Linear(16, 8)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).split([self.q, self.kv, self.kv], dim=-1)
        q, k, v = (z.view(b, t, -1, 4).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(b, t, self.q))


class Pieces(ParallelStyle):
    def _apply(self, module, mesh):
        size, rank = mesh.size(), mesh.get_local_rank()
        module.weight = nn.Parameter(distribute_tensor(module.weight, mesh, [Shard(0)]))
        module.bias = nn.Parameter(distribute_tensor(module.bias, mesh, [Replicate()]))

        def own(param):
            whole = param.redistribute(placements=[Replicate()])
            pieces = whole.to_local(grad_placements=[Partial()]).split([16, 8, 8])
            shares = [p.chunk(size) for p in pieces]
            return [share[rank] for share in shares]

        def forward(x):
            x = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
            x = x.to_local(grad_placements=[Partial()])
            given = zip(own(module.weight), own(module.bias))
            return torch.cat([F.linear(x, w, b) for w, b in given], -1)

        module.forward = forward
        return module


def build(mesh):
    model = Attention()
    plan = {"qkv": Pieces(), "out": RowwiseParallel()}
    parallelize_module(model, mesh, plan)
    model.q //= 2
    model.kv //= 2
    return model
"""
WRONG = {
    "pieces of other widths": ("split([16, 8, 8])", "split([8, 16, 8])"),
    "the next rank's keys": (
        "share[rank] for share in shares]",
        "share[(rank + i) % 2] for i, share in enumerate(shares)]",
    ),
    "a share for the gradient": ("whole.to_local(grad_placements=[Partial()])", "whole.to_local()"),
    "values for keys": ("zip(own(module.weight)", "zip([own(module.weight)[i] for i in (0, 2, 1)]"),
}


def test_unequal_pieces_of_each_rank_are_proved(case: Make) -> None:
    made = case(mesh=Mesh.of(tp=2), inputs=["x=f32[2,3,8]"])
    made.write(CODE, "build")
    made.against = f"{made.target.partition(':')[0]}:Attention"
    found = made.check().verdict
    assert isinstance(found, Proof), found


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_pieces_are_refuted(case: Make, fault: str) -> None:
    old, new = WRONG[fault]
    assert CODE.count(old) == 1
    made = case(mesh=Mesh.of(tp=2), inputs=["x=f32[2,3,8]"])
    made.write(CODE.replace(old, new), "build")
    made.against = f"{made.target.partition(':')[0]}:Attention"
    found = made.check().verdict
    assert isinstance(found, Counterexample), found
