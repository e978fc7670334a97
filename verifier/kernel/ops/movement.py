"""Values that change ranks: between pipeline stages, around a ring, from one rank to all.

Each takes the values of the ranks of one group, in group order, `None` where a rank holds none,
and returns theirs. Unlike a collective, the ranks that call it need not be a whole group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from verifier.domains.base import Array, Domain
from verifier.kernel.ops.collectives import check_reduce
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.errors import IRError
from verifier.kernel.program.registry import (
    REQUIRED,
    AttrMap,
    Op,
    Refused,
    Site,
    register,
)
from verifier.kernel.program.traits import Traits, among, reduced
from verifier.kernel.program.types import Mesh, TensorType
from verifier.kernel.program.where import Where, common, coordinates, joined, moved, show, within

Pieces = list[Array | None]


def _held(attrs: AttrMap, wheres: Sequence[Where], on: Where, mesh: Mesh) -> Where:
    (held,) = wheres
    if on and not within(on, held):
        raise Refused(f"runs on {show(on)}, but its operand lives on {show(held)} only")
    return on or held


def _sent(attrs: AttrMap, wheres: Sequence[Where], on: Where, mesh: Mesh) -> Where:
    name, source, target = attrs["mesh_dim"], attrs["src"], attrs["dst"]
    held: Where | None = _held(attrs, wheres, on, mesh)
    if mesh[name] > 1:
        held = common(held, ((name, (source,)),))
    if held is None:
        raise Refused(
            f"sends from {name}={source}, but the value lives on {show(wheres[0])}", name, 0
        )
    return moved(held, mesh, name, target)


def _received(attrs: AttrMap, wheres: Sequence[Where], on: Where, mesh: Mesh) -> Where:
    name, target = attrs["mesh_dim"], attrs["dst"]
    held = _held(attrs, wheres, on, mesh)
    if coordinates(held, mesh, name) != (target,):
        raise Refused(
            f"receives on {name}={target}, but the message was sent to {show(held) or 'all'}",
            name,
            0,
        )
    return held


def _everyone(attrs: AttrMap, wheres: Sequence[Where], on: Where, mesh: Mesh) -> Where:
    """Ranks that hold the result of a broadcast: the whole groups of the root's."""
    name, root = attrs["mesh_dim"], attrs["index"]
    (held,) = wheres
    if root not in coordinates(held, mesh, name):
        raise Refused(f"the root {name}={root} does not hold the value", name, 0)
    spread = tuple(item for item in held if item[0] != name)
    if within(spread, on):
        return spread
    if name in dict(on):
        raise Refused(
            f"the other ranks of the group never join: it runs on {show(on)} alone", name, 0
        )
    if not within(on, spread):
        raise Refused(f"runs on {show(on)}, but its roots are on {show(held)}", name, 0)
    return on


def _to_root(attrs: AttrMap, wheres: Sequence[Where], on: Where, mesh: Mesh) -> Where:
    """The ranks that hold the result of a rooted reduction: the roots of whole groups."""
    name, root = attrs["mesh_dim"], attrs["index"]
    held = _held(attrs, wheres, on, mesh)
    if name in dict(held):
        raise Refused(f"only {show(held)} joins: the other ranks of the group never do", name, 0)
    return moved(held, mesh, name, root)


def _whole_groups(attrs: AttrMap, wheres: Sequence[Where], on: Where, mesh: Mesh) -> Where:
    held = _held(attrs, wheres, on, mesh)
    name = attrs["mesh_dim"]
    if name in dict(held):
        raise Refused(f"only {show(held)} joins: the other ranks of the ring never do", name, 0)
    return held


def _union(attrs: AttrMap, wheres: Sequence[Where], on: Where, mesh: Mesh) -> Where:
    left: list[Where] = list(wheres)
    while len(left) > 1:
        both = _pair(left, mesh)
        if both is None:
            raise Refused("merges " + " with ".join(show(w) or "all ranks" for w in left))
        left = both
    (out,) = left
    if on and not within(on, out):
        raise Refused(f"runs on {show(on)}, but its operands live on {show(out)}")
    return on or out


def _pair(wheres: list[Where], mesh: Mesh) -> list[Where] | None:
    """The same ranks with two of the sets joined; None where no two can be."""
    for j, second in enumerate(wheres):
        for i, first in enumerate(wheres[:j]):
            both = joined(first, second, mesh)
            if both is not None:
                return [both, *(w for k, w in enumerate(wheres) if k not in (i, j))]
    return None


def _peers(site: Site) -> tuple[TensorType, ...]:
    name = site.attrs["mesh_dim"]
    if name not in site.mesh:
        raise site.fail(f"the mesh ({site.mesh or 'none'}) has no dim {name!r}")
    for key in ("src", "dst", "index"):
        if key in site.attrs and not 0 <= site.attrs[key] < site.mesh[name]:
            raise site.fail(f"{key}={site.attrs[key]} of {name}={site.mesh[name]}")
    if "src" in site.attrs and site.attrs["src"] == site.attrs["dst"] and site.mesh[name] > 1:
        raise site.fail("a rank sends to itself")
    return (site.types[0],)


def _reducible(site: Site) -> tuple[TensorType, ...]:
    check_reduce(site)
    return _peers(site)


def _alike(site: Site) -> tuple[TensorType, ...]:
    if not site.types:
        raise site.fail("nothing to merge")
    for other in site.types[1:]:
        if other != site.types[0]:
            raise site.fail("the pieces have different types")
    return (site.types[0],)


def _first(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    return (x,)


def _send(d: Domain, group: Sequence[Array | None], src: int, dst: int, **_: Any) -> Pieces:
    return [group[src] if i == dst else None for i in range(len(group))]


def _recv(d: Domain, group: Sequence[Array | None], dst: int, **_: Any) -> Pieces:
    return [x if i == dst else None for i, x in enumerate(group)]


def _ring(d: Domain, group: Sequence[Array | None], shift: int, **_: Any) -> Pieces:
    return [group[(i - shift) % len(group)] for i in range(len(group))]


def _broadcast(d: Domain, group: Sequence[Array | None], index: int, **_: Any) -> Pieces:
    return [group[index]] * len(group)


def _reduce(d: Domain, group: Sequence[Array | None], index: int, **attrs: Any) -> Pieces:
    from verifier.kernel.program.registry import lookup

    results: list[Array] = lookup("all_reduce").meaning(d, group, **attrs)
    return [x if i == index else None for i, x in enumerate(results)]


def _keep(d: Domain, *pieces: Array) -> Array:
    return pieces[0]


Region = Callable[[AttrMap, Sequence[Where], Where, Mesh], Where]


def _movement(
    name: str,
    meaning: Callable[..., Any],
    types: Callable[[Site], tuple[TensorType, ...]],
    region: Region,
    attrs: dict[str, Any],
    doc: str,
    traits: Traits,
    variadic: bool = False,
) -> Op:
    return register(
        Op(
            name,
            "movement",
            "... -> ...",
            meaning,
            types,
            linear=() if variadic else (frozenset({0}),),
            attrs=attrs,
            flops=lambda types, results, _: 0,
            doc=doc,
            region=region,
            traits=traits,
        )
    )


_PEERS = {"mesh_dim": REQUIRED, "src": REQUIRED, "dst": REQUIRED}
send = _movement(
    "send",
    _send,
    _peers,
    _sent,
    dict(_PEERS),
    "The value of coordinate `src`, on its way to coordinate `dst` of a mesh dim.",
    Traits(analytic=True, bounds=among, source="src"),
)
recv = _movement(
    "recv",
    _recv,
    _peers,
    _received,
    dict(_PEERS),
    "The value that `send` put on its way, on coordinate `dst`.",
    Traits(analytic=True, bounds=among, source="dst"),
)
broadcast = _movement(
    "broadcast",
    _broadcast,
    _peers,
    _everyone,
    {"mesh_dim": REQUIRED, "index": 0},
    "The value of one coordinate of a mesh dim, on all of them.",
    Traits(analytic=True, bounds=among, meets="broadcast", levels=True, source="index"),
)
reduce_to = _movement(
    "reduce_to",
    _reduce,
    _reducible,
    _to_root,
    {"mesh_dim": REQUIRED, "index": 0, "reduce": "sum"},
    "Partial to the root alone: the reduced value, on one coordinate of a mesh dim.",
    Traits(meets="reduce", bounds=reduced),
)
ring_shift = _movement(
    "ring_shift",
    _ring,
    _peers,
    _whole_groups,
    {"mesh_dim": REQUIRED, "shift": 1},
    "Every rank gets the value of the coordinate `shift` before its own, around the ring; of one "
    "after it where `shift` is negative.",
    Traits(analytic=True, bounds=among),
)
merge = _movement(
    "merge",
    _keep,
    _alike,
    _union,
    {},
    "One value from pieces that live on different ranks.",
    Traits(analytic=True, bounds=among, alias=True),
    variadic=True,
)
only = _movement(
    "only",
    _keep,
    _first,
    _held,
    {},
    "The same value; with `on(...)`, on fewer ranks.",
    Traits(analytic=True, bounds=among, alias=True),
)
wait = _movement(
    "wait",
    _keep,
    _first,
    _held,
    {},
    "The same value, once the `async` op that makes it is done.",
    Traits(analytic=True, bounds=among, alias=True),
)


def _returned(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    peers = {"mesh_dim": attrs["mesh_dim"], "src": attrs["dst"], "dst": attrs["src"]}
    return [b.add("recv", cts[0], **peers)]


def _sent_back(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    peers = {"mesh_dim": attrs["mesh_dim"], "src": attrs["dst"], "dst": attrs["src"]}
    return [b.add("send", cts[0], **peers)]


def _summed_at_root(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [b.add("reduce_to", cts[0], mesh_dim=attrs["mesh_dim"], index=attrs["index"])]


def _spread(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    if attrs["reduce"] not in ("sum", "avg"):
        raise IRError(f"a {attrs['reduce']} over {attrs['mesh_dim']} has no vjp")
    ct = cts[0]
    if attrs["reduce"] == "avg":
        ct = b.add("mul_scalar", ct, value=Fraction(1, b.mesh[attrs["mesh_dim"]]))
    return [b.add("broadcast", ct, mesh_dim=attrs["mesh_dim"], index=attrs["index"])]


def _turned_back(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    size = b.mesh[attrs["mesh_dim"]]
    back = (size - attrs["shift"]) % size
    return [b.add("ring_shift", cts[0], mesh_dim=attrs["mesh_dim"], shift=back)]


def _to_each(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    """Each piece gets the cotangent on the ranks that it lives on."""
    out: list[str | None] = []
    for value in ins:
        with b.on(**dict(b.held[value])):
            out.append(b.add("only", cts[0]))
    return out


def _as_it_is(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [cts[0]]


send.vjp(_returned)
recv.vjp(_sent_back)
broadcast.vjp(_summed_at_root)
reduce_to.vjp(_spread)
ring_shift.vjp(_turned_back)
merge.vjp(_to_each)
only.vjp(_as_it_is)
wait.vjp(_as_it_is)
