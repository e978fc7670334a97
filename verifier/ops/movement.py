"""Values that change ranks: what each op makes of them, and its gradient.

Each takes the values of the ranks of one group, in group order, `None` where a rank holds none,
and returns theirs.
"""

from collections.abc import Sequence
from typing import Any

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.kernel.movements import movement
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import AttrMap
from shardproof.verifier.ops.bounds import reduced
from shardproof.verifier.ops.collectives import all_reduce, dual
from shardproof.verifier.ops.facets import Names, Pulled, describe, moves

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


send = moves(
    movement.send,
    _send,
    "The value of coordinate `src`, on its way to coordinate `dst` of a mesh dim.",
    source="src",
)
recv = moves(
    movement.recv,
    _recv,
    "The value that `send` put on its way, on coordinate `dst`.",
    source="dst",
)
broadcast = moves(
    movement.broadcast,
    _broadcast,
    "The value of one coordinate of a mesh dim, on all of them.",
    source="index",
)
reduce_to = describe(
    movement.reduce_to,
    _reduce,
    "Partial to the root alone: the reduced value, on one coordinate of a mesh dim.",
    bounds=reduced,
)
ring_shift = moves(
    movement.ring_shift,
    _ring,
    "Every rank gets the value of the coordinate `shift` before its own, around the ring; of "
    "one after it where `shift` is negative.",
)
merge = moves(
    movement.merge,
    _keep,
    "One value from pieces that live on different ranks.",
)
only = moves(
    movement.only,
    _keep,
    "The same value; with `on(...)`, on fewer ranks.",
)
wait = moves(
    movement.wait,
    _keep,
    "The same value, once the `async` op that makes it is done.",
)


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


send.vjp(dual("recv", {"src": "dst", "dst": "src"}))
recv.vjp(dual("send", {"src": "dst", "dst": "src"}))
broadcast.vjp(dual("reduce_to", {"index": "index"}))
reduce_to.vjp(dual("broadcast", {"index": "index"}))
ring_shift.vjp(_turned_back)
merge.vjp(_to_each)
only.vjp(lambda b, ins, outs, cts, attrs: [cts[0]])
wait.vjp(lambda b, ins, outs, cts, attrs: [cts[0]])
