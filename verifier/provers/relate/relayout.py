"""Other readings of a fact: the same pieces on the ranks, as those of another whole.

A digit of the whole that says the rank takes no room in a piece. So it may stand in any other dim
of the whole, and the pieces are the same. And pieces along a mesh dim, whatever they are pieces of,
are the addends of their sum.
"""

import math
from collections.abc import Container, Iterator, Sequence

from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import (
    Atom,
    Layout,
    bound,
    cut_behind,
    global_extent,
    normal,
)
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Mesh, mesh_dims
from shardproof.verifier.ops.classes import REDUCING
from shardproof.verifier.provers.relate.facts import Fact
from shardproof.verifier.terms import Ref, Terms

MAX_READ = 3
"""Facts of a value that are read in other ways."""
MAX_DIMS = 5


def digit(layout: Layout, name: str) -> tuple[int, int] | None:
    """The dim that a mesh dim splits, and which atom of it."""
    for dim, atoms in enumerate(layout.dims):
        for at, atom in enumerate(atoms):
            if atom.mesh_dim == name:
                return dim, at
    return None


def opened(terms: Terms, ref: Ref, layout: Layout, dim: int, at: int) -> Ref:
    """The whole with one atom of a dim as a dim of its own, between what is around it."""
    atoms, shape = layout.dims[dim], layout.global_shape
    sizes = [math.prod(a.size for a in part) for part in (atoms[:at], atoms[at + 1 :])]
    return terms.reshape(ref, (*shape[:dim], sizes[0], atoms[at].size, sizes[1], *shape[dim + 1 :]))


def home(terms: Terms, index: int, fact: Fact, name: str, dim: int, outer: int = 1) -> Fact | None:
    """The fact with the digit of `name` in another place: in a dim, behind what makes up `outer`
    of its extent."""
    place = digit(fact.layout, name)
    if place is None:
        return None
    source, at = place
    dims = list(fact.layout.dims)
    atoms, count = dims[source], dims[source][at].size
    dims[source] = normal((*atoms[:at], *atoms[at + 1 :]))
    cut = cut_behind(dims[dim], outer)
    old = math.prod(map(global_extent, (*dims[:source], atoms[:at])))
    new = math.prod(map(global_extent, dims[:dim])) * outer
    if cut is None or max(old, new) % min(old, new):
        return None
    dims[dim] = normal((*cut[0], atoms[at], *cut[1]))
    layout = Layout(tuple(dims), fact.layout.partial)
    if layout == fact.layout:
        return None
    left = math.prod(layout.global_shape) // count
    wide = (old, count, new // old, left // new)
    wide = wide if old <= new else (new, old // new, count, left // old)
    turned = terms.permute(terms.reshape(fact.ref, wide), (0, 2, 1, 3))
    ref = terms.reshape(turned, layout.global_shape)
    return Fact(ref, layout, (index,), f"joined:home:{name}:{dim}:{outer}", fact.where)


def homes(terms: Terms, index: int, fact: Fact) -> Iterator[Fact]:
    """The fact with the digit of a mesh dim in another dim."""
    for name in sorted(_split(fact)):
        for dim in range(len(fact.layout.dims)):
            made = home(terms, index, fact, name, dim)
            if made is not None:
                yield made


def spread(terms: Terms, index: int, fact: Fact, name: str, dim: int, n: int) -> Fact | None:
    """What all ranks along a mesh dim hold alike, as the pieces of as many copies along a dim."""
    layout = fact.layout
    if name in layout.mentioned or name in dict(fact.where) or layout.local_shape[dim] != 1:
        return None
    atoms, shape = layout.dims[dim], layout.global_shape
    before, rest = shape[:dim], shape[dim + 1 :]
    apart = terms.reshape(fact.ref, (*before, shape[dim], 1, *rest))
    copies = terms.expand(apart, (*before, shape[dim], n, *rest))
    ref = terms.reshape(copies, (*before, shape[dim] * n, *rest))
    split = layout.with_dim(dim, normal((*atoms, Atom(n, name))))
    return Fact(ref, split, (index,), f"joined:spread:{name}:{dim}", fact.where)


def addends(terms: Terms, index: int, fact: Fact, name: str) -> Fact | None:
    """The pieces along a mesh dim, read as the addends of their sum."""
    place = digit(fact.layout, name)
    sums = all(fold == "sum" for _, fold in fact.layout.partial)
    if place is None or not sums or name in dict(fact.where):
        return None
    source, at = place
    wide = opened(terms, fact.ref, fact.layout, source, at)
    atoms = fact.layout.dims[source]
    layout = fact.layout.with_dim(source, (*atoms[:at], *atoms[at + 1 :]))
    layout = layout.with_partial((*layout.partial, (name, "sum")))
    total = terms.reduce("sum", wide, (source + 1,), False)
    ref = terms.reshape(total, layout.global_shape)
    return Fact(ref, layout, (index,), f"joined:digits:{name}", fact.where)


def totals(terms: Terms, facts: list[Fact], known: Container[int]) -> list[Fact]:
    """The facts, followed by those that read pieces as addends of a sum that the one-device
    program computes: where each rank has one row, its sum over rows is a reshape."""
    out = list(facts)
    for index, fact in enumerate(facts[:MAX_READ]):
        for atoms in fact.layout.dims:
            made, at = list[Fact](), index
            for name in reversed(bound(atoms)):
                total = addends(terms, at, (*out, *made)[at], name)
                if total is None:
                    break
                made.append(total)
                at = len(out) + len(made) - 1
            if made and made[-1].ref.id in known:
                out += made
    return out


def reread(
    terms: Terms, node: Node, operands: Sequence[list[Fact]], mesh: Mesh
) -> list[list[Fact]]:
    """For each operand of an op that no rule admits, its facts read in other ways."""
    attrs = lookup(node.op).with_defaults(node.attrs)
    called = mesh_dims(attrs["mesh_dim"]) if lookup(node.op).kind == "collective" else ()
    along = [attrs[k] for k in ("dim", "concat_dim") if isinstance(attrs.get(k), int)]
    out: list[list[Fact]] = []
    for i, facts in enumerate(operands):
        beside = [f.layout for k, held in enumerate(operands) if k != i for f in held]
        others = {n for layout in beside for atoms in layout.dims for n in bound(atoms)}
        fresh: list[Fact | None] = []
        plain = [(k, f) for k, f in enumerate(facts) if not f.rule.startswith("joined:home")]
        for index, fact in plain[:MAX_READ]:
            rank = len(fact.layout.dims)
            for name in sorted(_split(fact)):
                if name in called:
                    fresh += [home(terms, index, fact, name, d) for d in along if d < rank]
                    if node.op in REDUCING and mesh[name] > 1:
                        fresh.append(addends(terms, index, fact, name))
                elif name in others:
                    dims, places = range(min(rank, MAX_DIMS)), sorted(_outer(beside, name) | {1})
                    fresh += [home(terms, index, fact, name, d, n) for d in dims for n in places]
            for name in sorted(others - _split(fact)):
                dims = range(min(rank, MAX_DIMS))
                fresh += [spread(terms, index, fact, name, d, mesh[name]) for d in dims]
        seen = {(f.ref, f.layout, f.where) for f in facts}
        new = [f for f in fresh if f is not None and (f.ref, f.layout, f.where) not in seen]
        out.append(list(dict.fromkeys(new)))
    return out


def _outer(layouts: Sequence[Layout], name: str) -> set[int]:
    """What stands before the digit of a mesh dim in the dims that it splits."""
    found = ((x, digit(x, name)) for x in layouts)
    return {global_extent(x.dims[at[0]][: at[1]]) for x, at in found if at is not None}


def _split(fact: Fact) -> set[str]:
    return {name for atoms in fact.layout.dims for name in bound(atoms)}


def asked(terms: Terms, program: Program, contract: Contract, facts: dict[str, list[Fact]]) -> None:
    """Add to the facts of outputs those that read them as the contract asks."""
    for out in program.outputs:
        layout = contract.outputs.get(output_key(out))
        held = facts.get(out.value, [])
        if layout is None:
            continue
        for index in range(len(held)):
            at = index
            for name, dim in _outermost(layout):
                made = home(terms, at, held[at], name, dim)
                if made is not None:
                    held.append(made)
                    at = len(held) - 1
            if at != index and held[at].layout == layout:
                break


def _outermost(layout: Layout) -> list[tuple[str, int]]:
    """The mesh dims that split a layout and the dims they split, innermost first."""
    found: list[tuple[str, int]] = []
    for dim, atoms in enumerate(layout.dims):
        names = [a.mesh_dim for a in atoms if a.mesh_dim is not None]
        found += [(name, dim) for name in reversed(names)]
    return found
