"""What must hold of values that change ranks."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from shardproof.verifier.checker.claims import Claim, Row, need
from shardproof.verifier.checker.joins import at, leads
from shardproof.verifier.checker.rooted import rooted
from shardproof.verifier.kernel.layout import bound
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import coordinates, within
from shardproof.verifier.terms import Ref, Terms


def move(
    op: str, attrs: Mapping[str, Any], row: Row, given: Claim, terms: Terms, mesh: Mesh
) -> Ref:
    """The term of a value after it changed ranks."""
    need(row.rule.partition(":")[0] == op, f"rule {row.rule} for {op}")
    if op in ("merge", "only", "wait"):
        need(within(row.where, given.where), "the claim holds elsewhere")
        if ":" not in row.rule:
            need(row.layout == given.layout, "laid out otherwise")
            return given.ref
        return _piece(row, given, terms)
    name = attrs["mesh_dim"]
    size = mesh[name]
    here, there = coordinates(given.where, mesh, name), coordinates(row.where, mesh, name)
    ends, starts = (tuple(c for c in w if c[0] != name) for w in (row.where, given.where))
    need(within(ends, starts), "it moves along another mesh dim")
    if op in ("gather", "scatter"):
        return rooted(op, attrs, row, given, terms, mesh)
    if op == "ring_shift" and len(here) == 1 < size:
        need(there == ((here[0] + int(attrs["shift"])) % size,), "it arrives elsewhere")
        need(
            row.layout == given.layout and name not in given.layout.mentioned, "laid out otherwise"
        )
        return given.ref
    if op in ("ring_shift", "reduce_to"):
        need(len(here) == size, f"the ranks along {name} hold different values")
    if op == "ring_shift":
        need(len(there) == size, "some ranks get nothing")
        need(row.layout == given.layout, "laid out otherwise")
        if name not in given.layout.sharded:
            return given.ref
        return _around(given, terms, size, name, int(attrs["shift"]))
    if op == "reduce_to":
        need(there == (int(attrs["index"]),) or size == 1, "the result is on the root alone")
        return _reduced(attrs, row, given, size, name)
    need(row.layout == given.layout and name not in given.layout.mentioned, "depends on the rank")
    if op == "broadcast":
        need(int(attrs["index"]) in here, "the root holds another value")
        need(len(there) == size, "some ranks get nothing")
        return given.ref
    need(op in ("send", "recv"), f"no rule for {op}")
    source = int(attrs["src"] if op == "send" else attrs["dst"])
    need(source in here, f"another value is sent from {name}={source}")
    need(there == (int(attrs["dst"]),) or size == 1, "it arrives elsewhere")
    return given.ref


def _piece(row: Row, given: Claim, terms: Terms) -> Ref:
    """On ranks with one coordinate along a mesh dim, the piece is a slice of the whole."""
    name = row.rule.rpartition(":")[2]
    chosen = at(row.where, name)
    need(len(chosen) == 1, f"several coordinates of {name}")
    dims = [i for i, dim in enumerate(given.layout.dims) if name in bound(dim)]
    need(len(dims) == 1, f"{name} splits no dim")
    (dim,) = dims
    leads(given.layout, row.layout, name, dim)
    extent = row.layout.global_shape[dim]
    attrs = {"dim": dim, "start": chosen[0] * extent, "stop": (chosen[0] + 1) * extent, "step": 1}
    return terms.apply("slice", [given.ref], attrs, ["f32"])


def _around(given: Claim, terms: Terms, size: int, name: str, shift: int) -> Ref:
    dims = [i for i, dim in enumerate(given.layout.dims) if dim and dim[0].mesh_dim == name]
    need(len(dims) == 1, f"{name} splits no dim outermost")
    (dim,) = dims
    extent = given.layout.global_shape[dim] // size
    if shift % size == 0:
        return given.ref
    parts: list[Ref] = []
    for i in range(size):
        start = (i - shift) % size * extent
        attrs = {"dim": dim, "start": start, "stop": start + extent, "step": 1}
        parts.append(terms.apply("slice", [given.ref], attrs, ["f32"]))
    return terms.apply("concat", parts, {"dim": dim}, ["f32"] * size)


def _reduced(attrs: Mapping[str, Any], row: Row, given: Claim, size: int, name: str) -> Ref:
    how = attrs["reduce"]
    fold = "sum" if how == "avg" else how
    need(all(f == fold for _, f in given.layout.partial), f"a {how} of another pending fold")
    need(name not in given.layout.sharded, "a value that is split is reduced")
    rest = given.layout.with_partial(p for p in given.layout.partial if p[0] != name)
    need(row.layout == rest, "laid out otherwise")
    copies = size if fold == "sum" and name not in given.layout.pending else 1
    factor = Fraction(copies, size if how == "avg" else 1)
    return Ref(given.ref.coef * factor, given.ref.id)
