"""Joins facts of one value that hold on different ranks into facts that hold on all of them."""

from collections.abc import Container
from fractions import Fraction
from itertools import product

from shardproof.verifier.kernel.layout import Atom, Layout
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import Where, coordinates, joined as union
from shardproof.verifier.provers.relate.facts import MAX_FACTS, Fact
from shardproof.verifier.terms import Terms

MAX_CHOICES = 16


def joined(facts: list[Fact], terms: Terms, mesh: Mesh, known: Container[int]) -> list[Fact]:
    """The facts, followed by what they say together.

    Pieces that differ along a mesh dim are the addends of a pending sum, and the parts of a
    concatenation; `known` are terms that the one-device program computes.
    """
    out = list(facts)
    for _ in range(len(mesh.dims)):
        fresh = [f for name in mesh.names for f in _along(out, terms, mesh, name, known)]
        seen = {(f.ref, f.layout, f.where) for f in out}
        more: list[Fact] = []
        for fact in fresh:
            if (fact.ref, fact.layout, fact.where) not in seen:
                seen.add((fact.ref, fact.layout, fact.where))
                more.append(fact)
        if not more:
            break
        out += more[:MAX_FACTS]
    return out


def _along(
    facts: list[Fact], terms: Terms, mesh: Mesh, name: str, known: Container[int]
) -> list[Fact]:
    """What facts with different coordinates along one mesh dim say together."""
    groups: dict[tuple[Where, Layout], list[int]] = {}
    for index, fact in enumerate(facts):
        if name in dict(fact.where):
            rest = tuple(item for item in fact.where if item[0] != name)
            groups.setdefault((rest, fact.layout), []).append(index)
    out: list[Fact] = []
    for (rest, layout), members in groups.items():
        out += _alike(facts, members, mesh, name)
        if name in layout.mentioned:
            continue
        by_place: dict[tuple[int, ...], list[int]] = {}
        for index in members:
            place = coordinates(facts[index].where, mesh, name)
            by_place.setdefault(place, []).append(index)
        chosen = sorted(p for p in by_place if len(p) == 1)
        if [p[0] for p in chosen] != list(range(mesh[name])):
            continue
        options = product(*(by_place[p] for p in chosen))
        for count, picks in enumerate(options):
            if count == MAX_CHOICES:
                break
            out += _together(facts, picks, rest, layout, terms, mesh, name, known)
    return out


def _alike(facts: list[Fact], members: list[int], mesh: Mesh, name: str) -> list[Fact]:
    """Facts about one term whose ranks make up a larger set: all of them first, then pairs."""
    out: list[Fact] = []
    for ref in dict.fromkeys(facts[i].ref for i in members):
        parts: list[int] = []
        held: Where = ()
        for i in (i for i in members if facts[i].ref == ref):
            larger = union(held, facts[i].where, mesh) if parts else facts[i].where
            if larger is not None:
                parts, held = [*parts, i], larger
        if len(parts) > 2:
            layout = facts[parts[0]].layout
            out.append(Fact(ref, layout, tuple(parts), f"joined:same:{name}", held))
    for i, first in enumerate(members):
        for second in members[i + 1 :]:
            a, b = facts[first], facts[second]
            where = union(a.where, b.where, mesh) if a.ref == b.ref else None
            if where is not None:
                out.append(Fact(a.ref, a.layout, (first, second), f"joined:same:{name}", where))
    return out


def _together(
    facts: list[Fact],
    picks: tuple[int, ...],
    rest: Where,
    layout: Layout,
    terms: Terms,
    mesh: Mesh,
    name: str,
    known: Container[int],
) -> list[Fact]:
    refs = [facts[i].ref for i in picks]
    out: list[Fact] = []
    if all(fold == "sum" for _, fold in layout.partial):
        total = terms.combine([(Fraction(1), ref) for ref in refs])
        pending = layout.with_partial((*layout.partial, (name, "sum")))
        out.append(Fact(total, pending, picks, f"joined:sum:{name}", rest))
    for dim in range(len(layout.dims)):
        ref = terms.apply("concat", refs, {"dim": dim}, ["f32"] * len(refs))
        if ref.id in known:
            split = layout.with_dim(dim, (Atom(mesh[name], name), *layout.dims[dim]))
            out.append(Fact(ref, split, picks, f"joined:concat:{name}:{dim}", rest))
    return out
