"""Local SPMD types: claims about what ranks hold, held against the relation that the core finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardproof.compat.errors import ProgramError, SPMDConsistencyError
from shardproof.compat.program import Ranks, Unchanged
from shardproof.compat.sharding import LocalSPMDType
from shardproof.compat.tensor import TensorState
from shardproof.verifier.kernel.layout import Atom, Layout
from shardproof.verifier.kernel.ops import Refused, lookup
from shardproof.verifier.kernel.program.types import Attr, Mesh
from shardproof.verifier.provers.placement import Operands, Placed, place

R, INV, V, P = LocalSPMDType


def read(kind: LocalSPMDType | str, what: str) -> LocalSPMDType:
    """Raises ProgramError for a word that is no type."""
    try:
        return LocalSPMDType(kind)
    except ValueError:
        raise ProgramError(f"{what}: {kind!r}; expected one of R, I, V, P") from None


def fits(kind: LocalSPMDType, layout: Layout) -> bool:
    """Whether a value laid out so is of this type."""
    if kind is V:
        return True
    return bool(layout.pending) if kind is P else not layout.mentioned


@dataclass
class Reinterpret(Unchanged):
    """The same numbers under another type. Both types must be what the core finds."""

    x: str
    output: str
    src_type: LocalSPMDType | str
    dst_type: LocalSPMDType | str
    expert_mode: bool = False
    """Kept for callers that pass it; types are decided with and without."""

    def claim(self, before: Layout | None, after: Layout | None) -> None:
        """Raise ProgramError where a type is not what the value is."""
        for word, kind, layout in (
            (self.x, self.src_type, before),
            (self.output, self.dst_type, after),
        ):
            claimed = read(kind, str(self))
            if layout is None or not fits(claimed, layout):
                found = layout if layout is not None else "without a relation"
                hint = "; an AllReduce makes it so" if claimed in (R, INV) else ""
                raise ProgramError(f"{self}: {word} is not {claimed.value}, it is {found}{hint}")

    def mark(self, result: TensorState, states: Sequence[TensorState]) -> None:
        super().mark(result, states)
        result.local_type = read(self.dst_type, str(self))


@dataclass
class Convert(Reinterpret):
    """A change of type that keeps the whole: replicated to partial leaves it on one rank, and
    zeros on the others. What needs communication is not a conversion."""

    def on_ranks(self, at: Ranks, *operands: str) -> str:
        source, target = read(self.src_type, str(self)), read(self.dst_type, str(self))
        if source in (R, INV) and target is P:
            name = at.one_dim(None, str(self))
            return at.b.add("on_coord", operands[0], mesh_dim=name, index=0)
        return operands[0]


MESH = Mesh.of(ranks=2)
AS_LAYOUT = {
    R: Layout(((Atom(4),),)),
    INV: Layout(((Atom(4),),)),
    V: Layout(((Atom(2, "ranks"), Atom(2)),)),
    P: Layout(((Atom(4),),), (("ranks", "sum"),)),
}


def _place(op: str, *kinds: LocalSPMDType, **attrs: Attr) -> Placed:
    given = lookup(op).with_defaults({**attrs})
    layouts = tuple(AS_LAYOUT[k] for k in kinds)
    try:
        found = place(lookup(op), Operands(layouts, tuple(given.items()), MESH))
    except Refused as refused:
        shown = ", ".join(f"{k.name} ({k.value})" for k in kinds)
        raise SPMDConsistencyError(f"SPMD violation: {op} of {shown}: {refused.reason}") from None
    return found[0]


def _type(value: LocalSPMDType | TensorState) -> LocalSPMDType:
    return value.spmd_type if isinstance(value, TensorState) else value


class SPMDGuard:
    """Types that ops accept, as the core's placement rules have them on two ranks.

    Every check raises SPMDConsistencyError.
    """

    @staticmethod
    def check_multiply(a: LocalSPMDType | TensorState, b: LocalSPMDType | TensorState) -> None:
        """A product of two pending sums is not the sum of products."""
        _place("mul", _type(a), _type(b))

    @staticmethod
    def check_allreduce_input(x: LocalSPMDType | TensorState) -> None:
        """A sum over ranks of what all hold is that, times the ranks."""
        kind = _type(x)
        if _place("all_reduce", kind, mesh_dim="ranks").scale != 1:
            raise SPMDConsistencyError(
                f"SPMD violation: all_reduce of {kind.name} ({kind.value}): no sum is pending; "
                "the result is the value times the number of ranks"
            )

    @staticmethod
    def check_allgather_input(x: LocalSPMDType | TensorState) -> None:
        _place("all_gather", _type(x), mesh_dim="ranks", dim=0)

    @staticmethod
    def check_reduce_scatter_input(x: LocalSPMDType | TensorState) -> None:
        kind = _type(x)
        if _place("reduce_scatter", kind, mesh_dim="ranks", dim=0).scale != 1:
            raise SPMDConsistencyError(
                f"SPMD violation: reduce_scatter of {kind.name} ({kind.value}): no sum is pending"
            )
