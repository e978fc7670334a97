"""Functional collectives of a captured rank. They act on dim 0 of a tensor."""

from collections.abc import Sequence

from shardproof.synthesis.frontends.torch.aten.table import Emit, aten

_C10D = "_c10d_functional::"


@aten(_C10D + "wait_tensor.default")
def wait_tensor(e: Emit, x: str) -> str:
    return x


@aten(_C10D + "all_reduce.default")
def all_reduce(e: Emit, x: str, reduce: str, group: str) -> str:
    return e.add("all_reduce", x, mesh_dim=e.mesh_dim(group), reduce=reduce)


@aten(_C10D + "all_gather_into_tensor.default")
def all_gather_into_tensor(e: Emit, x: str, size: int, group: str) -> str:
    return e.add("all_gather", x, mesh_dim=e.mesh_dim(group), dim=0)


@aten(_C10D + "reduce_scatter_tensor.default")
def reduce_scatter_tensor(e: Emit, x: str, reduce: str, size: int, group: str) -> str:
    return e.add("reduce_scatter", x, mesh_dim=e.mesh_dim(group), dim=0, reduce=reduce)


@aten(_C10D + "broadcast.default")
def broadcast(e: Emit, x: str, src: int, group: str) -> str:
    return e.add("broadcast", x, mesh_dim=e.mesh_dim(group), index=src)


@aten(_C10D + "all_to_all_single.default")
def all_to_all_single(
    e: Emit, x: str, received: Sequence[int], sent: Sequence[int], group: str
) -> str:
    """Equal pieces of dim 0: piece i goes to rank i, pieces join in the order of their senders."""
    if len({*received, *sent}) != 1:
        raise NotImplementedError("all_to_all of unequal pieces")
    shape = e.shape(x)
    pieces = e.reshape(x, (len(sent), shape[0] // len(sent), *shape[1:]))
    moved = e.add("all_to_all", pieces, mesh_dim=e.mesh_dim(group), split_dim=0, concat_dim=1)
    return e.reshape(moved, shape)


@aten("_dtensor::shard_dim_alltoall.default")
def shard_dim_alltoall(e: Emit, x: str, gather_dim: int, shard_dim: int, group: str) -> str:
    return e.add(
        "all_to_all",
        x,
        mesh_dim=e.mesh_dim(group),
        split_dim=e.dim(x, shard_dim),
        concat_dim=e.dim(x, gather_dim),
    )
