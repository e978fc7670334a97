"""The public face of the lifter of tensor programs (`synthesis/frontends/tir`).

    program = lift(text, "gemm.py")
    verdict = verify_lifted(text, Mesh.of(tp=2), {"A": {"tp": "S(1)"}, "B": {"tp": "S(0)"}},
                            collectives=[Collective("C", "all_reduce", {"mesh_dim": "tp"})])

A syntax tree that is built by hand lifts like one that was parsed: `TIRLifter().lift(func)`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from shardproof.synthesis.frontends.tir.check import compare
from shardproof.synthesis.frontends.tir.command import main_lift
from shardproof.synthesis.frontends.tir.errors import TirError
from shardproof.synthesis.frontends.tir.interpret import interpret
from shardproof.synthesis.frontends.tir.lift import (
    Collective,
    LiftedBlock,
    LiftResult,
    lift,
    lift_func,
    lift_text,
)
from shardproof.synthesis.frontends.tir.script import parse
from shardproof.synthesis.frontends.tir.sharded import (
    Placements,
    Sharded,
    layouts_of,
    shard,
    verify_lifted,
)
from shardproof.synthesis.frontends.tir.tree import (
    Alloc,
    Apply,
    Const,
    Expr,
    Load,
    Store,
    TIRBlock,
    TIRBlockAxis,
    TIRBuffer,
    TIRBufferRegion,
    TIRFunc,
    TIRGrid,
    TIRVar,
)
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.types import NO_MESH, Mesh

__all__ = [
    "Alloc",
    "Apply",
    "Collective",
    "Const",
    "Expr",
    "Layout",
    "LiftResult",
    "LiftedBlock",
    "Load",
    "Sharded",
    "Store",
    "TIRBlock",
    "TIRBlockAxis",
    "TIRBuffer",
    "TIRBufferRegion",
    "TIRFunc",
    "TIRGrid",
    "TIRLifter",
    "TIRVar",
    "TirError",
    "compare",
    "interpret",
    "lift",
    "lift_func",
    "lift_text",
    "main_lift",
    "parse",
    "shard",
    "verify_lifted",
]


class TIRLifter:
    """Lifts functions whose parameters have given placements on a mesh.

    Args:
        sharding_specs: parameter -> mesh dim -> placement; what is not said is replicated.
    """

    def __init__(
        self,
        sharding_specs: Placements | None = None,
        mesh: Mesh = NO_MESH,
        inout: Collection[str] = (),
    ) -> None:
        self.sharding_specs: Mapping[str, Mapping[str, str]] = sharding_specs or {}
        self.mesh = mesh
        self.inout = tuple(inout)

    def lift(self, func: TIRFunc) -> LiftResult:
        """The one-device program of a function, and the layouts of its parameters.

        Raises:
            TirError: located; a function that cannot be lifted, placements that do not fit it.
        """
        made = lift_func(func, inout=self.inout)
        return replace(made, layouts=layouts_of(func, self.mesh, self.sharding_specs))
