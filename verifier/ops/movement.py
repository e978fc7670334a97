"""Values that change ranks: what each op makes of them, and its gradient.

Each takes the values of the ranks of one group, in group order, `None` where a rank holds none,
and returns theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from verifier.domains.base import Array, Domain
from verifier.kernel.movements import movement
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.errors import IRError
from verifier.kernel.program.registry import AttrMap
from verifier.ops.bounds import among, reduced
from verifier.ops.collectives import all_reduce
from verifier.ops.facets import Facets, Names, Pulled, describe

Pieces = list[Array | None]


def _send(d: Domain, group: Sequence[Array | None], src: int, dst: int, **_: Any) -> Pieces:
    return [group[src] if i == dst else None for i in range(len(group))]


def _recv(d: Domain, group: Sequence[Array | None], dst: int, **_: Any) -> Pieces:
    return [x if i == dst else None for i, x in enumerate(group)]


def _ring(d: Domain, group: Sequence[Array | None], shift: int, **_: Any) -> Pieces:
    return [group[(i - shift) % len(group)] for i in range(len(group))]


def _broadcast(d: Domain, group: Sequence[Array | None], index: int, **_: Any) -> Pieces:
    return [group[index]] * len(group)


def _reduce(d: Domain, group: Sequence[Array | None], index: int, **attrs: Any) -> Pieces:
    results: list[Array] = all_reduce.meaning(d, group, **attrs)
    return [x if i == index else None for i, x in enumerate(results)]


def _keep(d: Domain, *pieces: Array) -> Array:
    return pieces[0]


send = describe(
    movement.send,
    Facets(
        _send,
        "The value of coordinate `src`, on its way to coordinate `dst` of a mesh dim.",
        analytic=True,
        bounds=among,
        source="src",
    ),
)
recv = describe(
    movement.recv,
    Facets(
        _recv,
        "The value that `send` put on its way, on coordinate `dst`.",
        analytic=True,
        bounds=among,
        source="dst",
    ),
)
broadcast = describe(
    movement.broadcast,
    Facets(
        _broadcast,
        "The value of one coordinate of a mesh dim, on all of them.",
        analytic=True,
        bounds=among,
        source="index",
    ),
)
reduce_to = describe(
    movement.reduce_to,
    Facets(
        _reduce,
        "Partial to the root alone: the reduced value, on one coordinate of a mesh dim.",
        bounds=reduced,
    ),
)
ring_shift = describe(
    movement.ring_shift,
    Facets(
        _ring,
        "Every rank gets the value of the coordinate `shift` before its own, around the ring; of "
        "one after it where `shift` is negative.",
        analytic=True,
        bounds=among,
    ),
)
merge = describe(
    movement.merge,
    Facets(
        _keep,
        "One value from pieces that live on different ranks.",
        analytic=True,
        bounds=among,
    ),
)
only = describe(
    movement.only,
    Facets(
        _keep,
        "The same value; with `on(...)`, on fewer ranks.",
        analytic=True,
        bounds=among,
    ),
)
wait = describe(
    movement.wait,
    Facets(
        _keep,
        "The same value, once the `async` op that makes it is done.",
        analytic=True,
        bounds=among,
    ),
)


def _returned(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    peers = {"mesh_dim": attrs["mesh_dim"], "src": attrs["dst"], "dst": attrs["src"]}
    return [b.add("recv", cts[0], **peers)]


def _sent_back(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    peers = {"mesh_dim": attrs["mesh_dim"], "src": attrs["dst"], "dst": attrs["src"]}
    return [b.add("send", cts[0], **peers)]


def _summed_at_root(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    return [b.add("reduce_to", cts[0], mesh_dim=attrs["mesh_dim"], index=attrs["index"])]


def _spread(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    if attrs["reduce"] not in ("sum", "avg"):
        raise IRError(f"a {attrs['reduce']} over {attrs['mesh_dim']} has no vjp")
    ct = cts[0]
    if attrs["reduce"] == "avg":
        ct = b.add("mul_scalar", ct, value=Fraction(1, b.mesh[attrs["mesh_dim"]]))
    return [b.add("broadcast", ct, mesh_dim=attrs["mesh_dim"], index=attrs["index"])]


def _turned_back(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    size = b.mesh[attrs["mesh_dim"]]
    back = (size - attrs["shift"]) % size
    return [b.add("ring_shift", cts[0], mesh_dim=attrs["mesh_dim"], shift=back)]


def _to_each(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    """Each piece gets the cotangent on the ranks that it lives on."""
    out: list[str | None] = []
    for value in ins:
        with b.on(**dict(b.held[value])):
            out.append(b.add("only", cts[0]))
    return out


def _as_it_is(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    return [cts[0]]


send.vjp(_returned)
recv.vjp(_sent_back)
broadcast.vjp(_summed_at_root)
reduce_to.vjp(_spread)
ring_shift.vjp(_turned_back)
merge.vjp(_to_each)
only.vjp(_as_it_is)
wait.vjp(_as_it_is)
