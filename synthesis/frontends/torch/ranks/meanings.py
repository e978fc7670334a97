"""Custom ops without a body in Python that are said to be collectives."""

# pyright: basic
# (PyTorch has no types for what is used here.)

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from shardproof.synthesis.frontends.torch.errors import CaptureError

TORCH = ("aten", "prim", "prims", "c10d", "_c10d_functional", "_dtensor", "fsdp")
KINDS = ("all_reduce", "all_gather", "reduce_scatter")


@dataclass(frozen=True)
class Meaning:
    """`vllm.all_reduce=all_reduce@tp`: what an op does to its first operand."""

    op: str
    """Namespace and name: `vllm.all_reduce`."""
    kind: str
    mesh_dim: str
    dim: int = 0
    """The dim that is gathered, or scattered; from the end if below 0."""

    @classmethod
    def read(cls, text: str) -> Meaning:
        """`OP=KIND@MESH_DIM`, `OP=KIND@MESH_DIM:DIM`.

        Raises:
            CaptureError: another form, another kind.
        """
        op, _, said = text.partition("=")
        kind, _, where = said.partition("@")
        mesh_dim, _, dim = where.partition(":")
        shaped = op.count(".") == 1 and mesh_dim and dim.removeprefix("-").isdigit() | (not dim)
        if not shaped or kind not in KINDS:
            raise CaptureError(
                f"--op {text}: no meaning of an op",
                hint="write vllm.all_reduce=all_reduce@tp, or vllm.all_gather=all_gather@tp:-1; "
                f"covered are {', '.join(KINDS)}",
            )
        if op.partition(".")[0] in TORCH:
            raise CaptureError(
                f"--op {text}: an op of PyTorch means what PyTorch says",
                hint="name a custom op of a library",
            )
        return cls(op, kind, mesh_dim, int(dim or 0))

    def __str__(self) -> str:
        along = "" if self.kind == "all_reduce" else f" along dim {self.dim}"
        return f"{self.kind} over {self.mesh_dim}{along}"

    def run(self, x: torch.Tensor, group: Any) -> torch.Tensor:
        """The functional collective, of which the result is waited for."""
        ops: Any = torch.ops._c10d_functional
        name, size = group.group_name, dist.get_world_size(group)
        if self.kind == "all_reduce":
            return ops.wait_tensor(ops.all_reduce(x, "sum", name))
        front = x.movedim(self.dim, 0).contiguous()
        if self.kind == "all_gather":
            made = ops.all_gather_into_tensor(front, size, name)
        else:
            made = ops.reduce_scatter_tensor(front, "sum", size, name)
        return ops.wait_tensor(made).movedim(0, self.dim).contiguous()
