"""Values that change ranks: between pipeline stages, around a ring, from one rank to all.

Unlike a collective, the ranks that call it need not be a whole group. `region` says on which ranks
the result lives.
"""

from collections.abc import Callable, Sequence
from typing import Any

from shardproof.verifier.kernel.ops.collectives import check_reduce
from shardproof.verifier.kernel.program.registry import (
    REQUIRED,
    AttrMap,
    Op,
    Refused,
    Site,
    register,
)
from shardproof.verifier.kernel.program.traits import NO_TRAITS, Traits
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.kernel.program.where import (
    Where,
    common,
    coordinates,
    joined,
    moved,
    show,
    within,
)


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


Region = Callable[[AttrMap, Sequence[Where], Where, Mesh], Where]


def movement(
    name: str,
    types: Callable[[Site], tuple[TensorType, ...]],
    region: Region,
    attrs: dict[str, Any],
    traits: Traits = NO_TRAITS,
    variadic: bool = False,
) -> Op:
    """Declare a movement; a `variadic` one takes any number of operands."""
    linear = () if variadic else (frozenset({0}),)
    made = Op(name, "movement", "... -> ...", types, linear, attrs, traits, region=region)
    return register(made)


_PEERS = {"mesh_dim": REQUIRED, "src": REQUIRED, "dst": REQUIRED}
_ROOT = {"mesh_dim": REQUIRED, "index": 0}
send = movement("send", _peers, _sent, dict(_PEERS))
recv = movement("recv", _peers, _received, dict(_PEERS))
broadcast = movement(
    "broadcast", _peers, _everyone, dict(_ROOT), Traits(meets="broadcast", levels=True)
)
reduce_to = movement(
    "reduce_to", _reducible, _to_root, {**_ROOT, "reduce": "sum"}, Traits(meets="reduce")
)
ring_shift = movement("ring_shift", _peers, _whole_groups, {"mesh_dim": REQUIRED, "shift": 1})
merge = movement("merge", _alike, _union, {}, Traits(alias=True), variadic=True)
only = movement("only", _first, _held, {}, Traits(alias=True))
wait = movement("wait", _first, _held, {}, Traits(alias=True))
