"""Collectives over one or more mesh dims. On one device they are the identity."""

from collections.abc import Callable
from typing import Any

from shardproof.verifier.kernel.program.registry import REQUIRED, Op, Site, register
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import TensorType, mesh_dims

REDUCE = ("sum", "avg", "max", "min")


def group_size(site: Site) -> int:
    size = 1
    names = mesh_dims(site.attrs["mesh_dim"])
    if len(set(names)) != len(names):
        raise site.fail(f"a mesh dim is named twice in {', '.join(names)}")
    for name in names:
        if name not in site.mesh:
            raise site.fail(f"the mesh ({site.mesh or 'none'}) has no dim {name!r}")
        size *= site.mesh[name]
    return size


def _dim(site: Site, key: str) -> int:
    dim = site.attrs[key]
    if not 0 <= dim < len(site.types[0].shape):
        raise site.fail(f"{key}={dim} of a tensor of {len(site.types[0].shape)} dims")
    return dim


def _resized(type: TensorType, dim: int, extent: int) -> TensorType:
    return TensorType((*type.shape[:dim], extent, *type.shape[dim + 1 :]), type.dtype)


def check_reduce(site: Site) -> None:
    """Raises ShapeError where values of this kind are not reduced so."""
    if site.attrs.get("reduce", "sum") not in REDUCE:
        raise site.fail(f"reduce={site.attrs['reduce']!r}; expected one of {', '.join(REDUCE)}")
    how, x = site.attrs.get("reduce"), site.types[0]
    if how == "sum" and x.dtype == "u8":
        raise site.fail("u8 wraps at 256; cast to i64 first")
    if (how == "sum" and x.kind == "bool") or (how == "avg" and x.kind != "float"):
        raise site.fail(f"no {how} of {x.dtype} values; cast them first")


def _same(site: Site) -> tuple[TensorType, ...]:
    size = group_size(site)
    check_reduce(site)
    if not 0 <= site.attrs.get("index", 0) < size:
        raise site.fail(f"coordinate {site.attrs['index']} of a mesh dim of size {size}")
    if "index" in site.attrs and len(mesh_dims(site.attrs["mesh_dim"])) > 1:
        raise site.fail("one coordinate of several mesh dims")
    return (site.types[0],)


def _gather_types(site: Site) -> tuple[TensorType, ...]:
    dim = _dim(site, "dim")
    return (_resized(site.types[0], dim, site.types[0].shape[dim] * group_size(site)),)


def _scatter_types(site: Site) -> tuple[TensorType, ...]:
    dim, n = _dim(site, "dim"), group_size(site)
    check_reduce(site)
    extent = site.types[0].shape[dim]
    if extent % n:
        raise site.fail(f"dim {dim} of extent {extent} does not divide into {n} equal pieces")
    return (_resized(site.types[0], dim, extent // n),)


def _all_to_all_types(site: Site) -> tuple[TensorType, ...]:
    split, concat, n = _dim(site, "split_dim"), _dim(site, "concat_dim"), group_size(site)
    x = site.types[0]
    if x.shape[split] % n:
        raise site.fail(f"dim {split} of extent {x.shape[split]} does not divide into {n} pieces")
    if split == concat:
        return (x,)
    return (_resized(_resized(x, split, x.shape[split] // n), concat, x.shape[concat] * n),)


def _collective(
    name: str,
    types: Callable[[Site], tuple[TensorType, ...]],
    attrs: dict[str, Any],
    traits: Traits,
) -> Op:
    attrs = {"mesh_dim": REQUIRED, **attrs}
    return register(Op(name, "collective", "... -> ...", types, (frozenset({0}),), attrs, traits))


all_reduce = _collective(
    "all_reduce", _same, {"reduce": "sum"}, Traits(keeps=1, meets="all_reduce", levels=True)
)
all_gather = _collective(
    "all_gather", _gather_types, {"dim": REQUIRED}, Traits(keeps=1, meets="all_gather", levels=True)
)
reduce_scatter = _collective(
    "reduce_scatter",
    _scatter_types,
    {"dim": REQUIRED, "reduce": "sum"},
    Traits(keeps=1, meets="reduce_scatter"),
)
shard_slice = _collective("shard_slice", _scatter_types, {"dim": REQUIRED}, Traits(keeps=1))
shard_pad = _collective("shard_pad", _gather_types, {"dim": REQUIRED}, Traits(keeps=0))
all_to_all = _collective(
    "all_to_all",
    _all_to_all_types,
    {"split_dim": REQUIRED, "concat_dim": REQUIRED},
    Traits(keeps=1, meets="all_to_all"),
)
on_coord = _collective("on_coord", _same, {"index": 0}, Traits(keeps=0))
