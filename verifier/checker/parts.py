"""What must hold of a claim about one coordinate, about shares, and about cuts inside blocks."""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from shardproof.verifier.analysis.replication import alike, positive
from shardproof.verifier.checker.claims import Claim, Row, need
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Atom, Dim, Layout, bound, cut_behind, normal
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.rank_sets import Regions
from shardproof.verifier.terms import Ref, Terms

KINDS = frozenset({"addend", "piece", "share", "spread", "home", "digits"})
"""Claims that rest on one other claim about the same value."""


Part = Callable[[Row, Sequence[Claim], str, Terms, Mesh], Ref]
"""The term of a claim that rests on one other claim about a value of this name."""


def known_part(program: Program, contract: Contract, places: Regions) -> Part:
    """`part` with what is known of the values of a program."""
    about, signs = alike(program, contract, places), positive(program)

    def known(row: Row, parts: Sequence[Claim], value: str, terms: Terms, mesh: Mesh) -> Ref:
        need(not KINDS.isdisjoint(row.rule.split(":")[1:2]), f"rule {row.rule}")
        same = about.get(value, frozenset[str]())
        return part(row, parts, value, same, value in signs, terms, mesh)

    return known


def part(
    row: Row,
    parts: Sequence[Claim],
    value: str,
    alike: frozenset[str],
    positive: bool,
    terms: Terms,
    mesh: Mesh,
) -> Ref:
    """The term of a claim that rests on one other claim about the same value."""
    _, kind, *rest = row.rule.split(":")
    more = {"home": 2, "spread": 1}.get(kind, 0)
    need(len(parts) == 1 and len(rest) == 1 + more, f"rule {row.rule}")
    need(all(n.isdecimal() for n in rest[1:]), f"rule {row.rule}")
    (given,), name = parts, rest[0]
    need(name in mesh and mesh[name] > 1, f"no mesh dim {name}")
    if kind == "home":
        return _home(row, given, name, int(rest[1]), int(rest[2]), terms)
    need(name not in dict(given.where), "it is about some ranks only")
    if kind == "spread":
        return _spread(row, given, name, int(rest[1]), mesh, terms)
    if kind == "digits":
        return _digits(row, given, name, terms)
    if kind == "share":
        return _share(row, given, name, mesh)
    others = tuple(item for item in row.where if item[0] != name)
    need(others == given.where, "it is about other ranks")
    chosen = dict(row.where).get(name, ())
    need(len(chosen) == 1, f"several coordinates of {name}")
    if kind == "piece":
        return _piece(row, given, name, chosen[0], terms)
    need(name in dict(given.layout.partial), f"nothing is pending over {name}")
    left = tuple(p for p in given.layout.partial if p[0] != name)
    need(row.layout == Layout(given.layout.dims, left), "laid out otherwise")
    for other, size in mesh.dims:
        if other == name or size == 1 or other in alike:
            continue
        single = len(dict(given.where).get(other, ())) == 1
        mentioned = any(other in bound(d) for d in given.layout.dims) or other in dict(left)
        need(single or mentioned, f"the ranks along {other} may hold other addends")
    return _addend(value, given, name, chosen[0], mesh[name], positive, terms)


def _share(row: Row, given: Claim, name: str, mesh: Mesh) -> Ref:
    """All ranks along a mesh dim hold the value: together that many times of it."""
    need(row.where == given.where, "it is about other ranks")
    need(name not in given.layout.mentioned, f"the value depends on {name}")
    need(all(fold == "sum" for _, fold in given.layout.partial), "another fold is pending")
    pending = given.layout.with_partial((*given.layout.partial, (name, "sum")))
    need(row.layout == pending, "laid out otherwise")
    return Ref(given.ref.coef * mesh[name], given.ref.id)


def _spread(row: Row, given: Claim, name: str, dim: int, mesh: Mesh, terms: Terms) -> Ref:
    """Every rank along a mesh dim holds the value: pieces of as many copies of each entry along a
    dim of which a rank has one."""
    need(row.where == given.where, "it is about other ranks")
    need(name not in given.layout.mentioned, f"the value depends on {name}")
    shape, atoms = given.layout.global_shape, given.layout.dims
    need(dim < len(shape) and all(a.mesh_dim is not None for a in atoms[dim]), "no single entry")
    copies = mesh[name]
    split = normal((*atoms[dim], Atom(copies, name)))
    need(row.layout == given.layout.with_dim(dim, split), "laid out otherwise")
    before, rest = shape[:dim], shape[dim + 1 :]
    apart = terms.reshape(given.ref, (*before, shape[dim], 1, *rest))
    wide = terms.expand(apart, (*before, shape[dim], copies, *rest))
    return terms.reshape(wide, (*before, shape[dim] * copies, *rest))


def _digit(given: Claim, name: str, terms: Terms) -> tuple[int, Dim, Ref]:
    """The dim that `name` splits, that dim without it, and the whole with its digit apart."""
    found = [d for d, atoms in enumerate(given.layout.dims) if name in bound(atoms)]
    need(len(found) == 1, f"{name} splits no dim")
    (dim,) = found
    atoms, shape = given.layout.dims[dim], given.layout.global_shape
    at = next(i for i, atom in enumerate(atoms) if atom.mesh_dim == name)
    outer, inner = math.prod(a.size for a in atoms[:at]), math.prod(a.size for a in atoms[at + 1 :])
    apart = (*shape[:dim], outer, atoms[at].size, inner, *shape[dim + 1 :])
    return dim, (*atoms[:at], *atoms[at + 1 :]), terms.reshape(given.ref, apart)


def _home(row: Row, given: Claim, name: str, to: int, outer: int, terms: Terms) -> Ref:
    """A digit that says the rank has no room in a piece: it may stand in any dim, before, behind
    and between the atoms there."""
    need(row.where == given.where, "it is about other ranks")
    need(to < len(given.layout.dims), "no such dim")
    dim, left, apart = _digit(given, name, terms)
    size = terms.shape(apart)[dim + 1]
    rest = given.layout.with_dim(dim, left)
    cut = cut_behind(rest.dims[to], outer) if outer > 0 else None
    need(cut is not None, "no such place in the dim")
    before, behind = cut or ((), ())
    moved = rest.with_dim(to, (*before, Atom(size, name), *behind))
    need(row.layout == moved, "laid out otherwise")
    old = math.prod(terms.shape(apart)[: dim + 1])
    new = math.prod(rest.global_shape[:to]) * outer
    first, last = min(old, new), max(old, new)
    need(last % first == 0, "the places do not divide")
    count = math.prod(rest.global_shape)
    between = (size, last // first) if old <= new else (last // first, size)
    wide = terms.reshape(given.ref, (first, *between, count // last))
    return terms.reshape(terms.permute(wide, (0, 2, 1, 3)), row.layout.global_shape)


def _digits(row: Row, given: Claim, name: str, terms: Terms) -> Ref:
    """Pieces along a mesh dim, all ranks of it, are the addends of their sum."""
    need(row.where == given.where, "it is about other ranks")
    need(all(fold == "sum" for _, fold in given.layout.partial), "another fold is pending")
    dim, left, apart = _digit(given, name, terms)
    split = given.layout.with_dim(dim, left)
    need(row.layout == split.with_partial((*split.partial, (name, "sum"))), "laid out otherwise")
    total = terms.reduce("sum", apart, (dim + 1,), False)
    return terms.reshape(total, row.layout.global_shape)


def _piece(row: Row, given: Claim, name: str, at: int, terms: Terms) -> Ref:
    dims = [i for i, dim in enumerate(given.layout.dims) if name in bound(dim)]
    need(len(dims) == 1, f"{name} splits no dim")
    (dim,) = dims
    atoms = given.layout.dims[dim]
    need(atoms[0].mesh_dim == name and bound(atoms) == (name,), f"{name} is not outermost")
    need(row.layout == given.layout.with_dim(dim, atoms[1:]), "laid out otherwise")
    extent = row.layout.global_shape[dim]
    attrs = {"dim": dim, "start": at * extent, "stop": (at + 1) * extent, "step": 1}
    return terms.apply("slice", [given.ref], attrs, ["f32"])


def _addend(
    value: str, given: Claim, name: str, at: int, n: int, positive: bool, terms: Terms
) -> Ref:
    """Nothing is known of the parts of a fold but their sum: the last is what the others leave."""
    whole, shape = Ref(Fraction(1), given.ref.id), terms.shape(given.ref)
    singles = [
        terms.intern(
            "addend",
            [whole],
            (value, name, k, given.layout, given.where, given.ref.coef, positive),
            shape,
        )
        for k in range(n)
    ]
    if at < n - 1 or dict(given.layout.partial)[name] != "sum":
        return singles[at]
    return terms.combine([(Fraction(1), given.ref), *((Fraction(-1), s) for s in singles[:-1])])


def blocks(
    op: str, attrs: Mapping[str, Any], args: Sequence[Claim], layout: Layout, terms: Terms
) -> Ref:
    """A cut or join along a dim of which each rank holds one block: inside each block."""
    need(op in ("slice", "concat", "pad"), f"{op} is not a cut")
    need(all(isinstance(v, int) for v in attrs.values()), "it differs by rank")
    dim = int(attrs["dim"])
    outer = tuple(a for a in layout.dims[dim] if a.mesh_dim is not None)
    count = math.prod(a.size for a in outer)
    opened: list[Ref] = []
    for claim in args:
        have = claim.layout
        need(have.partial == layout.partial, "laid out otherwise")
        need(all(fold == "sum" for _, fold in have.partial), "another fold is pending")
        extent = have.global_shape[dim] // count
        need(have.dims[dim] == normal((*outer, Atom(extent))), "not one block a rank")
        for i, (a, b) in enumerate(zip(have.dims, layout.dims, strict=True)):
            need(i == dim or a == b, "another dim is laid out otherwise")
        shape = have.global_shape
        opened.append(terms.reshape(claim.ref, (*shape[:dim], count, extent, *shape[dim + 1 :])))
    made = terms.apply(op, opened, {**attrs, "dim": dim + 1}, ["f32"] * len(opened))
    shape = terms.shape(made)
    need(layout.dims[dim] == normal((*outer, Atom(shape[dim + 1]))), "laid out otherwise")
    return terms.reshape(made, (*shape[:dim], count * shape[dim + 1], *shape[dim + 2 :]))
