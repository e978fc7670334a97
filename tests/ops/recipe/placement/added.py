"""How placements pass through two ops that were added."""

from shardproof.verifier.ops.keep_piece import KEPT
from shardproof.verifier.ops.mirror import REVERSED

from shardproof.verifier.kernel.layout import bound
from shardproof.verifier.kernel.program.registry import Op, Refused
from shardproof.verifier.kernel.program.types import mesh_dims
from shardproof.verifier.provers.placement.collectives import beside_zeros
from shardproof.verifier.provers.placement.rule import Operands, Placed, of_ops


@of_ops(REVERSED)
def _mirror_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    for dim in x.dims:
        if bound(dim):
            raise Refused(f"reverses a dim that is split over {bound(dim)[0]}", bound(dim)[0], 0)
    return [Placed((x,), given.attrs)]


@of_ops(KEPT)
def _keep_piece_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    names = tuple(n for n in mesh_dims(given.attr("mesh_dim")) if given.mesh[n] > 1)
    for name in names:
        if name in x.mentioned:
            raise Refused(f"keeps a piece over {name} of a value that depends on it", name, 0)
    return [Placed((beside_zeros(x, names),), moves=True)]
