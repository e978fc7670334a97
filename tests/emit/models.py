"""A small user file and what the emitter knows about it, without PyTorch."""

from __future__ import annotations

from pathlib import Path

from shardproof.synthesis.emit.facts import Argument, ForwardFact, ModelFacts, ModuleFact
from shardproof.synthesis.planner.plan import LocalExtent, ModulePlan, Plan
from shardproof.verifier.kernel.program.types import Mesh

SOURCE = '''"""A block."""

from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, n, heads):
        super().__init__()
        self.n, self.heads = n, heads
        self.qkv = nn.Linear(n, 3 * n)
        self.out = nn.Linear(n, n)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.qkv(x).split(self.n, dim=2)  # three parts
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, t, c))
'''

LINES = SOURCE.split("\n")


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(LINES, 1) if text in line)


def extents(file: str) -> tuple[LocalExtent, ...]:
    heads = [
        LocalExtent(file, line_of(f"{x} = {x}.view("), "reshape", "", (2, 4, 4, 2), (2, 4, 2, 2))
        for x in "qkv"
    ]
    return (
        LocalExtent(file, line_of(".split("), "split", "", (8,), (4,)),
        *heads,
        LocalExtent(file, line_of(".reshape("), "reshape", "", (2, 4, 8), (2, 4, 4)),
    )


def facts(path: Path) -> ModelFacts:
    x = Argument(0, "x", (2, 4, 8), True)

    def linear(name: str, n: int, out: int) -> ModuleFact:
        params = {"weight": (out, n), "bias": (out,)}
        return ModuleFact(name, "Linear", "Linear", params, {}, (x,), 1, "tensor", (2, 4, out))

    root = ModuleFact("", "Attention", "Attention", {}, {}, (x,), 1, "tensor", (2, 4, 8), 2)
    forward = ForwardFact(str(path), 14, "\n".join(LINES[13:]))
    modules = (root, linear("qkv", 8, 24), linear("out", 8, 8))
    config = {"n": 8, "heads": 4}
    return ModelFacts(f"{path}:Attention", "Attention", config, "", modules, {"Attention": forward})


def plan(file: str, tp: int = 2) -> Plan:
    return Plan(
        Mesh.of(tp=tp),
        tp="tp",
        modules=(
            ModulePlan("qkv", "Linear", "fused_column", "R", "S(-1)", parts=3),
            ModulePlan("out", "Linear", "row", "S(-1)", "R"),
        ),
        local_extents=extents(file),
    )
