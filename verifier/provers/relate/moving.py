"""Facts about values that change ranks."""

from dataclasses import replace

from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.ops import Refused, lookup
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import Where, common, moved
from shardproof.verifier.ops import facets
from shardproof.verifier.provers.placement.movement import leading, without
from shardproof.verifier.provers.relate.facts import Break, Fact, Related
from shardproof.verifier.provers.relate.rules import Rules
from shardproof.verifier.terms import Ref, Terms

NO_FACTS = frozenset[int]()
PIECE = "only:piece:"


def moved_facts(
    terms: Terms,
    node: Node,
    operands: list[list[Fact]],
    region: Where,
    rules: Rules,
    path: str,
    out: Related,
) -> list[Fact]:
    """Facts about the result of a movement; a `Break` where there is none."""
    attrs = lookup(node.op).with_defaults(node.attrs)
    found: list[Fact] = []
    refused: Refused | None = None
    for k, facts in enumerate(operands):
        for i, fact in enumerate(facts):
            premises = tuple(i if j == k else -1 for j in range(len(operands)))
            try:
                found += _moved(terms, node, attrs, fact, premises, region, rules)
            except Refused as refusal:
                refused = refused or refusal
    if not found and refused is not None:
        out.breaks.append(Break(node, refused, tuple(f[0] for f in operands), path))
    return list({(f.ref, f.layout, f.where): f for f in reversed(found)}.values())[::-1]


def _moved(
    terms: Terms,
    node: Node,
    attrs: dict[str, object],
    fact: Fact,
    premises: tuple[int, ...],
    region: Where,
    rules: Rules,
) -> list[Fact]:
    if lookup(node.op).traits.alias:
        where = _kept(fact.where, region, fact.layout)
        out = [Fact(fact.ref, fact.layout, premises, node.op, where)]
        if node.op == "only":
            out += pieces(terms, fact, premises, where)
        return out
    name = attrs["mesh_dim"]
    assert isinstance(name, str)
    if node.op == "ring_shift" and name in fact.layout.sharded:
        turned = _turned(terms, fact, premises, rules.mesh, name, attrs["shift"])
        return [replace(turned, where=_kept(turned.where, region, turned.layout))]
    if node.op == "ring_shift" and len(dict(fact.where).get(name, ())) == 1:
        if name in fact.layout.mentioned:
            raise Refused(f"turns one piece over {name} around", name, 0)
        (at,) = dict(fact.where)[name]
        target = (at + int(str(attrs["shift"]))) % rules.mesh[name]
        where = moved(fact.where, rules.mesh, name, target)
        return [Fact(fact.ref, fact.layout, premises, node.op, _kept(where, region, fact.layout))]
    lands = landing(node.op, attrs, fact.where, rules.mesh)
    placed = rules.place(node, (fact.layout,), NO_FACTS)
    where = _kept(lands, region, *(p.layouts[0] for p in placed))
    return [
        Fact(Ref(fact.ref.coef * p.scale, fact.ref.id), p.layouts[0], premises, node.op, where)
        for p in placed
    ]


def _kept(where: Where, region: Where, *layouts: Layout) -> Where:
    """The ranks of a fact on which the node runs."""
    kept = common(where, region)
    if kept is None:
        raise Refused("no rank that runs it holds the value")
    if any(set(dict(kept)) & layout.pending for layout in layouts):
        raise Refused("keeps a part of a pending sum")
    return kept


def landing(op: str, attrs: dict[str, object], held: Where, mesh: Mesh) -> Where:
    """The ranks that hold the result where the operand's fact holds on `held`.

    Raises:
        Refused: the fact says nothing of the ranks that matter.
    """
    name = attrs["mesh_dim"]
    assert isinstance(name, str)
    key = facets(op).source
    if not key:
        if name in dict(held):
            raise Refused(f"the ranks along {name} hold different values", name, 0)
        index = attrs.get("index")
        return moved(held, mesh, name, index) if isinstance(index, int) else held
    place = attrs[key]
    assert isinstance(place, int)
    where = common(held, ((name, (place,)),)) if mesh[name] > 1 else held
    if where is None:
        raise Refused(f"another value lives on {name}={place}", name, 0)
    if "dst" not in attrs:
        return tuple(item for item in where if item[0] != name)
    target = attrs["dst"]
    assert isinstance(target, int)
    return moved(where, mesh, name, target)


def pieces(terms: Terms, fact: Fact, premises: tuple[int, ...], where: Where) -> list[Fact]:
    """On ranks with one coordinate along a mesh dim, a piece is a slice of the whole."""
    out: list[Fact] = []
    for name, chosen in where:
        dim = leading(fact.layout, name)
        if len(chosen) == 1 and dim is not None:
            ref = cut(terms, fact.ref, fact.layout, name, dim, chosen[0])
            layout = without(fact.layout, name)
            out.append(Fact(ref, layout, premises, f"{PIECE}{name}", where))
    return out


def cut(terms: Terms, ref: Ref, layout: Layout, name: str, dim: int, at: int) -> Ref:
    """The slice of the whole that coordinate `at` holds, where `name` splits `dim` outermost."""
    extent = layout.global_shape[dim] // layout.dims[dim][0].size
    attrs = {"dim": dim, "start": at * extent, "stop": (at + 1) * extent, "step": 1}
    return terms.apply("slice", [ref], attrs, ["f32"])


def _turned(
    terms: Terms, fact: Fact, premises: tuple[int, ...], mesh: Mesh, name: str, shift: object
) -> Fact:
    """Pieces that go around a ring make up the whole, rolled."""
    dim = leading(fact.layout, name)
    assert isinstance(shift, int)
    if dim is None:
        raise Refused(f"turns pieces that {name} does not split outermost", name, 0)
    if name in dict(fact.where):
        raise Refused(f"the ranks along {name} hold different values", name, 0)
    ref = rolled(terms, fact.ref, fact.layout, mesh[name], dim, shift)
    return Fact(ref, fact.layout, premises, "ring_shift", fact.where)


def rolled(terms: Terms, ref: Ref, layout: Layout, size: int, dim: int, shift: int) -> Ref:
    """The whole whose piece at coordinate i is the operand's piece at i - shift."""
    extent = layout.global_shape[dim] // size
    order = [(i - shift) % size for i in range(size)]
    if order == list(range(size)):
        return ref
    parts = [
        terms.apply(
            "slice",
            [ref],
            {"dim": dim, "start": k * extent, "stop": (k + 1) * extent, "step": 1},
            ["f32"],
        )
        for k in order
    ]
    return terms.apply("concat", parts, {"dim": dim}, ["f32"] * size)
