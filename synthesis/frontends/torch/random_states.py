"""What ranks draw: which of them must do so from one random state, and which from states of their
own.

Entries that are drawn are independent of each other. So pieces that different ranks hold must be
drawn from different random states, and a piece that several ranks hold from the same state. One
state cannot do both along one mesh dim.
"""

from collections.abc import Iterator, Mapping, Sequence

from shardproof.synthesis.frontends.torch.captured import Draw
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.types import Mesh

ALIKE = (
    "Random numbers at {lines} for values that are whole on every {dim} rank: ranks along {dim} "
    "draw the same (same random state)."
)
APART = (
    "Random numbers at {lines} for pieces over {dim}: ranks along {dim} draw their own (different "
    "random states)."
)
LAW = "Results are equal in distribution: for whatever is drawn."


def along(
    draws: Sequence[Draw], layouts: Mapping[str, Layout], mesh: Mesh
) -> Iterator[tuple[str, list[Draw], list[Draw]]]:
    """For each mesh dim of several ranks the draws that all along it hold, and those of which each
    holds a piece."""
    for dim, size in mesh.dims:
        if size > 1:
            split = [d for d in draws if dim in layouts[d.name].sharded]
            yield dim, [d for d in draws if d not in split], split


def clash(
    draws: Sequence[Draw], layouts: Mapping[str, Layout], mesh: Mesh
) -> tuple[str, Draw, Draw] | None:
    """A mesh dim along which one draw must be the same on all ranks and another differ."""
    found = ((dim, alike, split) for dim, alike, split in along(draws, layouts, mesh))
    return next(((dim, a[0], s[0]) for dim, a, s in found if a and s), None)


def assumed(draws: Sequence[Draw], layouts: Mapping[str, Layout], mesh: Mesh) -> Iterator[str]:
    """What is taken for granted of random states."""
    said = False
    for dim, alike, split in along(draws, layouts, mesh):
        for text, some in ((ALIKE, alike), (APART, split)):
            if some:
                said = True
                yield text.format(lines=", ".join(dict.fromkeys(map(str, some))), dim=dim)
    if said:
        yield LAW
