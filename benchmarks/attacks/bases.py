"""Models and their parallel forms, with places that a generated step can take."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """import functools, os, random, sys, threading, time
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
"""
REGIONS = """

class ToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, g):
        ctx.g = g
        return t.view_as(t)

    @staticmethod
    def backward(ctx, d):
        d = d.clone()
        dist.all_reduce(d, group=ctx.g)
        return d, None


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, g):
#reduce
    @staticmethod
    def backward(ctx, d):
        return d, None
"""
PLAIN = ("t = t.clone()", "dist.all_reduce(t, group=g)", "return t")


@dataclass(frozen=True)
class Base:
    """A model M and the ranks P, as text.

    A line `#place NAME VARIABLE` is where a step may stand, `#init` where it sets itself up.
    """

    name: str
    mesh: str
    model: str
    ranks: str
    """Empty where M alone is given, for `parallelize`."""
    inputs: str
    places: tuple[str, ...]
    options: tuple[tuple[str, object], ...] = ()


def _two(name: str, model: str, ranks: str, inputs: str, places: str) -> Base:
    return Base(name, "tp=2", model, ranks, inputs, tuple(places.split()))


MLP = """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        #init

    def forward(self, x):
        #place input x
        h = torch.tanh(self.up(x))
        #place hidden h
        y = self.down(h)
        #place output y
        return y
"""
MLP_RANKS = """
class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.g = mesh.get_group("tp")
        self.n, self.r = dist.get_world_size(self.g), dist.get_rank(self.g)
        self.up = nn.Linear(8, 16 // self.n)
        self.down = nn.Linear(16 // self.n, 8)
        #init

    def forward(self, x):
        #place input x
        h = torch.tanh(self.up(ToRanks.apply(x, self.g)))
        #place hidden h
        y = F.linear(h, self.down.weight)
        #place partial y
        y = Summed.apply(y, self.g) + self.down.bias
        #place output y
        return y
"""
ATTENTION = """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.o = nn.Linear(8, 8)
        #init

    def forward(self, x):
        #place input x
        q, k, v = (f(x).unflatten(-1, (-1, 4)).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = (q @ k.transpose(-1, -2) / 2).softmax(-1) @ v
        h = a.transpose(1, 2).flatten(-2)
        #place hidden h
        y = self.o(h)
        #place output y
        return y
"""
ATTENTION_RANKS = """
class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.g = mesh.get_group("tp")
        self.n, self.r = dist.get_world_size(self.g), dist.get_rank(self.g)
        self.q, self.k, self.v = (nn.Linear(8, 8 // self.n) for _ in range(3))
        self.o = nn.Linear(8 // self.n, 8)
        #init

    def forward(self, x):
        #place input x
        x = ToRanks.apply(x, self.g)
        q, k, v = (f(x).unflatten(-1, (-1, 4)).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = (q @ k.transpose(-1, -2) / 2).softmax(-1) @ v
        h = a.transpose(1, 2).flatten(-2)
        #place hidden h
        y = F.linear(h, self.o.weight)
        #place partial y
        y = Summed.apply(y, self.g) + self.o.bias
        #place output y
        return y
"""
MOE = """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.up = nn.Parameter(torch.randn(4, 8, 6))
        self.down = nn.Parameter(torch.randn(4, 6, 8))
        #init

    def forward(self, x):
        #place input x
        p = self.gate(x).softmax(-1)
        h = torch.tanh(torch.einsum("bi,eij->ebj", x, self.up))
        #place hidden h
        y = torch.einsum("ebj,ejo,be->bo", h, self.down, p)
        #place output y
        return y
"""
MOE_RANKS = """
class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.g = mesh.get_group("tp")
        self.n, self.r = dist.get_world_size(self.g), dist.get_rank(self.g)
        self.gate = nn.Linear(8, 4)
        self.up = nn.Parameter(torch.randn(4 // self.n, 8, 6))
        self.down = nn.Parameter(torch.randn(4 // self.n, 6, 8))
        #init

    def forward(self, x):
        #place input x
        p = ToRanks.apply(self.gate(x).softmax(-1), self.g)
        mine = p.chunk(self.n, -1)[self.r]
        h = torch.tanh(torch.einsum("bi,eij->ebj", ToRanks.apply(x, self.g), self.up))
        #place hidden h
        y = torch.einsum("ebj,ejo,be->bo", h, self.down, mine)
        #place partial y
        y = Summed.apply(y, self.g)
        #place output y
        return y
"""
EMBEDDING = """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(12, 8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 12)
        #init

    def forward(self, ids, label):
        x = self.emb(ids)
        #place input x
        h = torch.tanh(self.up(x))
        #place hidden h
        y = self.down(h)
        #place output y
        return {"loss": F.cross_entropy(y, label)}
"""
EMBEDDING_RANKS = """
class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.g = mesh.get_group("tp")
        self.n, self.r = dist.get_world_size(self.g), dist.get_rank(self.g)
        self.emb = nn.Embedding(12, 8)
        self.up = nn.Linear(8, 16 // self.n)
        self.down = nn.Linear(16 // self.n, 12)
        #init

    def forward(self, ids, label):
        x = self.emb(ids)
        #place input x
        h = torch.tanh(self.up(ToRanks.apply(x, self.g)))
        #place hidden h
        y = F.linear(h, self.down.weight)
        #place partial y
        y = Summed.apply(y, self.g) + self.down.bias
        #place output y
        return {"loss": F.cross_entropy(y, label)}
"""
CONV = """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.fc = nn.Linear(8, 4)
        #init

    def forward(self, x):
        #place input x
        h = self.norm(self.conv(x))
        #place hidden h
        y = self.fc(torch.tanh(h))
        #place output y
        return {"loss": y.pow(2).mean()}
"""
DDP = """
from torch.nn.parallel import DistributedDataParallel as DDP

#class
def P(mesh):
    #around
    return DDP(Own(), process_group=mesh.get_group())
"""
OWN = "class Own(nn.Module):"
X, SEQUENCE = "torch.randn(4, 8)", "torch.randn(2, 3, 8)"
WORDS = 'torch.randint(0, 12, (6,)), "label": torch.randint(0, 12, (6,))'


def _dp(name: str, model: str, inputs: str, split: tuple[str, ...]) -> Base:
    options = (("input_layout", [f"{n}=S(0)@dp" for n in split]),)
    return Base(name, "dp=2", model, DDP, inputs, ("input", "hidden", "output"), options)


FOUR = "input hidden partial output"
TENSOR = (
    _two("mlp", MLP, MLP_RANKS, f'"x": {X}', FOUR),
    _two("attention", ATTENTION, ATTENTION_RANKS, f'"x": {SEQUENCE}', FOUR),
    _two("moe", MOE, MOE_RANKS, f'"x": {X}', FOUR),
    _two("embedding", EMBEDDING, EMBEDDING_RANKS, f'"ids": {WORDS}', FOUR),
)
DATA = (
    _dp("conv over dp", CONV, '"x": torch.randn(4, 4, 8)', ("x",)),
    _dp("embedding over dp", EMBEDDING, f'"ids": {WORDS}', ("ids", "label")),
)
ALONE = (
    Base("mlp alone", "tp=2", MLP, "", f'"x": {X}', ("hidden",)),
    Base("attention alone", "tp=2", ATTENTION, "", f'"x": {SEQUENCE}', ("hidden",)),
    Base("conv alone", "dp=2", CONV, "", '"x": torch.randn(4, 4, 8)', ("hidden", "output")),
)


def plain(base: Base) -> str:
    """The model without a step."""
    return placed(base.model, "", "", (), ())


def placed(text: str, place: str, call: str, init: tuple[str, ...], reduce: tuple[str, ...]) -> str:
    """`text` with a step at a place; `call` has `@` for the variable there."""
    out: list[str] = []
    for line in text.splitlines():
        word, *rest = line.split() or [""]
        indent = line[: len(line) - len(line.lstrip())]
        if word == "#init":
            out += [indent + i for i in init]
        elif word == "#reduce":
            out += ["        " + i for i in reduce or PLAIN] + [""]
        elif word == "#place":
            if rest[0] == place:
                out += [indent + i for i in call.replace("@", rest[1]).splitlines()]
        else:
            out.append(line)
    return "\n".join(out) + "\n"
