"""The lines of a patch that start the guard, with the layouts that the plan was proved for."""

from collections.abc import Mapping

from shardproof.synthesis.emit.patch import EmitError
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.program import Program

CONSTANT = "LAYOUTS"
IMPORT = ("shardproof.runtime", "watch")


def layout_text(layout: Layout, stacked: int = 0) -> str:
    """`[tp dp 64] [64]`: a bracket a dim, in it the mesh dims that split it and what is whole.

    The first `stacked` dims, one for every `*` of the path, count layers and are left out.

    Raises:
        EmitError: layers that are split over ranks, or a parameter that is a pending sum.
    """
    counted, dims = layout.dims[:stacked], layout.dims[stacked:]
    if layout.partial or any(atom.mesh_dim for dim in counted for atom in dim):
        raise EmitError("a parameter that is split by layers, or a sum, cannot be watched")
    return " ".join("[" + " ".join(a.mesh_dim or str(a.size) for a in d) + "]" for d in dims)


def layouts(program: Program, contract: Contract) -> dict[str, str]:
    """The layout of every parameter, by its path.

    Raises:
        EmitError: one that cannot be said so.
    """
    return {
        item.path: layout_text(contract.inputs[item.name], item.path.count("*"))
        for item in program.inputs
        if item.role == "param" and item.name in contract.inputs
    }


def constant(found: Mapping[str, str]) -> str:
    """The dict of layouts as source."""
    rows = "".join(f'    "{path}": "{text}",\n' for path, text in found.items())
    return f"# What the plan was proved for: a bracket a dim.\n{CONSTANT} = {{\n{rows}}}"
