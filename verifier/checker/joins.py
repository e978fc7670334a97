"""What must hold of claims joined from several ranks."""

from collections.abc import Sequence
from fractions import Fraction

from shardproof.verifier.checker.claims import Claim, Row, need
from shardproof.verifier.kernel.layout import Layout, normal
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import Where, coordinates
from shardproof.verifier.terms import Ref, Terms

JOINS = frozenset({"same", "sum", "concat"})
"""Claims that rest on several others about the same value."""


def join(row: Row, parts: Sequence[Claim], terms: Terms, mesh: Mesh) -> Ref:
    """The term that claims about one value on different ranks make up together."""
    how, *rest = row.rule.split(":")
    need(how == "joined" and len(rest) > 1, f"rule {row.rule}")
    kind, name, *rest = rest
    need(name in mesh, f"no mesh dim {name}")
    need(len(parts) > 1, "nothing is joined")
    first = parts[0]
    need(all(p.layout == first.layout for p in parts), "the parts are laid out differently")
    others = [{k: v for k, v in p.where if k != name} for p in parts]
    need(all(o == others[0] for o in others), "the parts differ along another mesh dim")
    need(dict(row.where).items() - {(name, at(row.where, name))} == others[0].items(), "ranks")
    places = [coordinates(p.where, mesh, name) for p in parts]
    covered = [c for place in places for c in place]
    need(len(set(covered)) == len(covered), "two parts on one rank")
    need(set(covered) == set(coordinates(row.where, mesh, name)), "ranks are left out")
    if kind == "same":
        need(row.layout == first.layout, "the parts are laid out otherwise")
        need(all(p.ref == first.ref for p in parts), "the parts are pieces of different values")
        return first.ref
    need(covered == list(range(mesh[name])), "the parts are not in rank order")
    need(all(len(place) == 1 for place in places), "a part stands for several ranks")
    need(name not in first.layout.mentioned, f"the parts depend on {name}")
    if kind == "sum":
        need(all(fold == "sum" for _, fold in first.layout.partial), "another fold is pending")
        pending = first.layout.with_partial((*first.layout.partial, (name, "sum")))
        need(row.layout == pending, "the sum is laid out otherwise")
        return terms.combine([(Fraction(1), p.ref) for p in parts])
    need(kind == "concat" and len(rest) == 1, f"rule {row.rule}")
    dims = [i for i in range(len(first.layout.dims)) if str(i) == rest[0]]
    need(len(dims) == 1, f"no dim {rest[0]}")
    (dim,) = dims
    leads(row.layout, first.layout, name, dim)
    return terms.apply("concat", [p.ref for p in parts], {"dim": dim}, ["f32"] * len(parts))


def at(where: Where, name: str) -> tuple[int, ...]:
    return dict(where).get(name, ())


def leads(split: Layout, one: Layout, name: str, dim: int) -> None:
    """`split` is `one` with `name` as the outermost split of a dim."""
    need(len(split.dims) == len(one.dims) and split.partial == one.partial, "laid out otherwise")
    for i, (a, b) in enumerate(zip(split.dims, one.dims, strict=True)):
        if i != dim:
            need(a == b, "another dim changes")
            continue
        need(bool(a) and a[0].mesh_dim == name, f"{name} does not split the dim outermost")
        need(normal(a[1:]) == b, "the pieces are laid out otherwise")
