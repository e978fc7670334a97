"""Attention, hooks, tables, tensors of PyTorch's own, other names: as people write them."""

from __future__ import annotations

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from tests.check.conftest import Case

pytestmark = pytest.mark.torch

ATTENTION = """
import math

import torch
from torch import nn
from regions import Copy, Reduce


class Attention(nn.Module):
    def __init__(self, group=None, n=1, hidden=8, heads=4):
        super().__init__()
        self.group, self.heads, self.d = group, heads // n, hidden // heads
        self.qkv = nn.Linear(hidden, 3 * hidden // n)
        self.proj = nn.Linear(hidden // n, hidden, bias=False)
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.register_buffer("mask", torch.tril(torch.ones(3, 3)).bool())

    def heads_of(self, t):
        return t.view(*t.shape[:2], self.heads, self.d).transpose(1, 2)

    def forward(self, x):
        if self.group is not None:
            x = Copy.apply(x, self.group)
        q, k, v = (self.heads_of(t) for t in self.qkv(x).chunk(3, dim=-1))
        a = q @ k.transpose(-1, -2) / math.sqrt(self.d)
        a = a.masked_fill(~self.mask, float("-inf")).softmax(-1)
        y = self.proj((a @ v).transpose(1, 2).flatten(2))
        if self.group is not None:
            y = Reduce.apply(y, self.group)
        return y + self.bias


def one(hidden=8):
    return Attention(hidden=hidden)


def split(tp_group, tp_size):
    return Attention(tp_group, tp_size)


def example_inputs():
    return {"x": torch.randn(2, 3, 8)}
"""


def attention(case, **what):
    asked = case(target="att.py:split", against="att.py:one", **what)
    (asked.folder / "att.py").write_text(ATTENTION)
    return asked


def test_attention_with_fused_weights_by_heads(case):
    attention(case, layouts=["qkv.weight=[3 2@tp 4][8]", "qkv.bias=[3 2@tp 4]"]).proved()


def test_fused_weights_split_as_one_are_no_heads(case):
    attention(case).refuted_here(".chunk(3, dim=-1)", "att.py")


SEQUENCE = {"input_layouts": ["x=S(0)@tp"]}
HOOKS = """
class Wrong(SequenceParallelMLP):
    def __init__(self, mesh):
        super().__init__(mesh)
        for p in (*self.norm.parameters(), self.down.bias):
            p.{how}

    def before(self, grad):
        grad = {times} * grad
        dist.all_reduce(grad, group=self.group)
        return grad

    def after(self, p):
        dist.all_reduce(p.grad, group=self.group)
"""


@pytest.mark.parametrize(
    "how",
    ["register_hook(self.before)", "register_post_accumulate_grad_hook(self.after)"],
)
def test_hooks_of_parameters_run(case, how):
    case(**SEQUENCE).write(HOOKS.format(how=how, times=1)).proved()


def test_a_wrong_hook_is_seen(case):
    text = HOOKS.format(how="register_hook(self.before)", times=2)
    case(**SEQUENCE).write(text).refuted()


EARLY = """
class Wrong(ParallelMLP):
    def __init__(self, mesh):
        super().__init__(mesh)
        bias = nn.Parameter(torch.zeros(8))
        bias.register_hook(lambda g: 2 * g)
        self.down.bias = bias
"""


def test_a_hook_from_before_the_module_got_its_parameter(case):
    found = case().write(EARLY).refuted()
    assert found.verdict.wrong_outputs == ("grad:down.bias",)


FORWARDS = {
    "memory written in pieces": """
h = F.relu(self.up(Copy.apply(self.norm(x), self.group)))
y = F.linear(h, self.down.weight)
parts = torch.empty(2, *y.shape)
dist.all_gather(list(parts.unbind(0)), y.detach(), group=self.group)
rows = torch.empty(4, 8)
rows[:2] = parts.sum(0)[:2]
rows[2:] = parts[0, 2:] + parts[1, 2:]
y = Reduce.apply(y, self.group)
return x + y + (rows - y).detach() + self.down.bias
""",
    "a checkpoint": """
from torch.utils.checkpoint import checkpoint
h = Copy.apply(self.norm(x), self.group)
h = checkpoint(lambda t: F.relu(self.up(t)), h, use_reentrant=False)
y = Reduce.apply(F.linear(h, self.down.weight), self.group)
return x + y + self.down.bias
""",
    "functional collectives": """
import torch.distributed._functional_collectives as funcol
h = F.relu(self.up(Copy.apply(self.norm(x), self.group)))
y = funcol.all_gather_tensor(F.linear(h, self.down.weight).unsqueeze(0), 0, self.group).sum(0)
y = Reduce.apply(F.linear(h, self.down.weight), self.group) + 0 * y
return x + y + self.down.bias
""",
}


@pytest.mark.parametrize("name", FORWARDS)
def test_other_ways_of_PyTorch(case, name):
    case().forward(FORWARDS[name]).proved()


SENT = {
    "a sum of ones": ("torch.ones(1)", "dist.all_reduce(n, group=self.group)", "n / 2", "n"),
    "a sum of whole numbers": (
        *("torch.ones(1, dtype=torch.int32)", "dist.all_reduce(n, group=self.group)"),
        *("n / 2", "n"),
    ),
    "a number of each rank": (
        *("torch.full((1,), 1.0 + dist.get_rank())", "dist.broadcast(n, 0, group=self.group)"),
        *("n", "(n + 1)"),
    ),
}


@pytest.mark.parametrize(("made", "sent", "right", "wrong"), SENT.values(), ids=SENT)
def test_constants_that_ranks_exchange_have_no_value_of_one_rank(case, made, sent, right, wrong):
    for by, judged in ((right, Case.proved), (wrong, Case.refuted)):
        judged(case().forward(f"n = {made}\n{sent}\nreturn super().forward(x) * {by}"))


ASKED = """
import torch.distributed._functional_collectives as funcol
n = torch.tensor([1])
{sent}
return super().forward(x) * (3 if n.item() > 1 else 1)
"""


@pytest.mark.parametrize(
    "sent",
    ["dist.all_reduce(n, group=self.group)", "n = funcol.all_reduce(n, 'sum', self.group)"],
)
def test_a_number_that_ranks_exchange_decides_nothing_while_it_is_traced(case, sent):
    with pytest.raises(CaptureError, match="reads the value of a tensor"):
        case().forward(ASKED.format(sent=sent)).check()


BUFFER = """
import numpy as np

class Wrong(ParallelMLP):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.register_buffer("by", torch.from_numpy(np.array([{by}])))
        self.same = self.by

    def forward(self, x):
        return super().forward(x) * self.same
"""


def test_a_buffer_of_float64_beside_parameters_of_float32(case):
    case().write(BUFFER.format(by=1.0)).proved()
    case().write(BUFFER.format(by=1.5)).refuted()


INSIDE = """
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

class Wrong(ParallelMLP):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.mesh = mesh

    def forward(self, x):
        h = F.relu(self.up(Copy.apply(self.norm(x), self.group)))
        y = DTensor.from_local(F.linear(h, self.down.weight), self.mesh, [{placed}])
        y = y.redistribute(placements=[Replicate()]).to_local()
        return x + y{more} + self.down.bias
"""


def test_a_DTensor_inside(case):
    case().write(INSIDE.format(placed="Partial()", more="")).proved()


def test_a_DTensor_that_is_placed_wrongly(case):
    case().write(INSIDE.format(placed="Shard(0)", more="[:4]")).refuted()


TABLE = """
class Model(nn.Module):
    def __init__(self, rank=0, n=1):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        table = torch.randn(4, 8, generator=generator)
        self.register_buffer("table", table.chunk(n)[{which}])
        self.w = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return (x + self.table) * self.w


def split(rank, world_size):
    return Model(rank, world_size)


def finish(model):
    dist.all_reduce(model.w.grad)


def example_inputs():
    return {{"x": torch.randn(4, 8)}}
"""
CHUNKS = {"against": "wrong.py:Model", "after_backward": "finish", **SEQUENCE}


def test_a_table_of_which_each_rank_has_its_rows(case):
    case(**CHUNKS).write(TABLE.format(which="rank"), "split").proved()


def test_a_table_whose_rows_are_exchanged(case):
    case(**CHUNKS).write(TABLE.format(which="(rank + 1) % n"), "split").refuted()


def test_other_names(case):
    text = (
        "class Wrong(nn.Module):\n"
        "    def __init__(self, mesh):\n"
        "        super().__init__()\n"
        "        self.inner = ParallelMLP(mesh)\n\n"
        "    def forward(self, hidden):\n"
        "        return self.inner(hidden)\n"
    )
    case(names=[("inner.*", "*")]).write(text).proved()
