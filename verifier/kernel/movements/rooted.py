"""Collectives between one rank of a group and all of them: gather to a root, scatter from it.

The result of a gather lives on the root alone, and so may the operand of a scatter. On the other
ranks there is no such value, and a program that reads it there is misplaced.
"""

from collections.abc import Sequence

from shardproof.verifier.kernel.movements.movement import movement
from shardproof.verifier.kernel.program.registry import REQUIRED, AttrMap, Refused, Site
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.kernel.program.where import Where, coordinates, moved, show, within


def to_root(attrs: AttrMap, wheres: Sequence[Where], on: Where, mesh: Mesh) -> Where:
    """The ranks that hold a gathered result: the root of each whole group."""
    name, root = attrs["mesh_dim"], attrs["index"]
    (held,) = wheres
    if on and not within(on, held):
        raise Refused(f"runs on {show(on)}, but its operand lives on {show(held)} only", name, 0)
    joins = on or held
    if name in dict(joins):
        raise Refused(f"only {show(joins)} joins: the other ranks of the group never do", name, 0)
    return moved(joins, mesh, name, root)


def from_root(attrs: AttrMap, wheres: Sequence[Where], on: Where, mesh: Mesh) -> Where:
    """The ranks that hold a scattered result: the whole groups of the roots."""
    name, root = attrs["mesh_dim"], attrs["index"]
    (held,) = wheres
    if root not in coordinates(held, mesh, name):
        raise Refused(f"the root {name}={root} does not hold the value", name, 0)
    whole = tuple(item for item in held if item[0] != name)
    if not on:
        return whole
    if name in dict(on) or not within(on, whole):
        raise Refused(f"runs on {show(on)}, where not every group has all its ranks", name, 0)
    return on


def _check(site: Site, scatters: bool) -> tuple[TensorType, ...]:
    name: str | tuple[str, ...] = site.attrs["mesh_dim"]
    index: int = site.attrs["index"]
    dim: int = site.attrs["dim"]
    (x,) = site.types
    if not isinstance(name, str) or name not in site.mesh:
        raise site.fail(f"mesh_dim={name!r}; expected one dim of the mesh ({site.mesh or 'none'})")
    n = site.mesh[name]
    if not 0 <= index < n:
        raise site.fail(f"index={index} of {name}={n}")
    if not 0 <= dim < len(x.shape):
        raise site.fail(f"dim={dim} of a tensor of {len(x.shape)} dims")
    extent = x.shape[dim]
    if scatters and extent % n:
        raise site.fail(f"dim {dim} of extent {extent} does not divide into {n} equal pieces")
    made = extent // n if scatters else extent * n
    return (TensorType((*x.shape[:dim], made, *x.shape[dim + 1 :]), x.dtype),)


_ATTRS = {"mesh_dim": REQUIRED, "dim": REQUIRED, "index": 0}
gather = movement(
    "gather",
    lambda site: _check(site, scatters=False),
    to_root,
    dict(_ATTRS),
    Traits(meets="gather"),
)
scatter = movement(
    "scatter",
    lambda site: _check(site, scatters=True),
    from_root,
    dict(_ATTRS),
    Traits(meets="scatter"),
)
