"""Parameters that are DTensors, those of fully_shard among them: the piece that a rank holds, and
the layout that its placements say."""

# pyright: basic
# (PyTorch has no types for what is used here.)

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.groups import dims_of
from shardproof.verifier.kernel.layout import Atom, Layout
from shardproof.verifier.kernel.program.types import Mesh


def local(value: Any) -> Any:
    """The piece of this rank; a plain tensor is its own."""
    return value._local_tensor if isinstance(value, DTensor) else value


def gradient(param: Any) -> torch.Tensor | None:
    """This rank's piece of a gradient, placed as the parameter is: as an optimizer takes it."""
    grad = param.grad
    if not isinstance(grad, DTensor):
        return grad
    if isinstance(param, DTensor) and grad.placements != param.placements:
        grad = grad.redistribute(placements=param.placements)
    return grad.to_local()


def layout_of(value: Any, mesh: Mesh, rank: int, name: str, *, sums: bool = False) -> Layout:
    """How a tensor is laid out over the mesh, read off its placements. With `sums`, the pieces may
    be parts of a sum, as those of a gradient are.

    Raises:
        CaptureError: a placement that has no layout: extents that do not divide, a mesh whose dims
            are none of `mesh`.
    """
    shape = tuple(value.shape)
    if not isinstance(value, DTensor):
        return Layout.replicate(shape)
    known = [_mesh_dims(value.device_mesh, i, mesh, rank) for i in range(value.device_mesh.ndim)]
    dims = [found for found in known if found is not None]
    strided = (
        type(p) is _StridedShard and len(n) > 1
        for n, p in zip(dims, value.placements, strict=False)
    )
    if len(dims) < len(known) or any(strided):
        raise CaptureError(
            f"{name} is placed on {value.device_mesh}, which is not a part of {mesh}"
        )
    over = [(n, p) for found, p in zip(dims, value.placements, strict=True) for n in found]
    layout = Layout.replicate(shape)
    for dim, extent in enumerate(shape):
        placed = [
            (n, mesh[n], int(getattr(p, "split_factor", 1)))
            for n, p in over
            if isinstance(p, (Shard, _StridedShard)) and p.dim % len(shape) == dim
        ]
        if placed:
            layout = layout.with_dim(dim, _atoms(extent, placed, f"{name}, dim {dim}"))
    waiting = [
        (n, str(p), getattr(p, "reduce_op", ""))
        for n, p in over
        if type(p) not in (Shard, _StridedShard, Replicate)
    ]
    for n, p, fold in waiting:
        if fold != "sum" or not sums:
            raise CaptureError(f"{name} is {p} over {n}, which no parameter can be")
    return layout.with_partial((n, fold) for n, _, fold in waiting)


def _mesh_dims(device_mesh: Any, index: int, mesh: Mesh, rank: int) -> tuple[str, ...] | None:
    """The dims of the mesh that one dim of a DeviceMesh is, outermost first: none for one of a
    single rank, several for a flattened one. None where it is no slice of the mesh."""
    import torch.distributed as dist

    group = dist.get_process_group_ranks(device_mesh.get_group(index))
    dims = dims_of(group, rank, mesh)
    if device_mesh.get_coordinate()[index] != group.index(rank):
        return None  # a mesh of the same ranks in another order
    return dims


def _atoms(extent: int, placed: list[tuple[str, int, int]], what: str) -> tuple[Atom, ...]:
    """Atoms of a dim that is split by (mesh dim, ranks, split factor), in the order of the mesh.

    A split with a factor k takes its pieces from each of k equal blocks of what is left of the dim
    (PyTorch's `_StridedShard`); those that come after it split the blocks further, from the left.
    """
    atoms = [Atom(extent)]
    for name, size, factor in placed:
        at = _free_after(atoms, factor, what)
        rest = atoms[at].size
        if rest % size:
            raise CaptureError(
                f"{what}: {extent} rows do not divide evenly over {name}={size}",
                hint="split a dim that divides, or pad it",
            )
        atoms[at : at + 1] = [Atom(size, name), Atom(rest // size)]
    return tuple(a for a in atoms if a.size > 1 or a.mesh_dim) or (Atom(1),)


def _free_after(atoms: list[Atom], factor: int, what: str) -> int:
    """The place of the free atom that lies below `factor` equal blocks of the free ones."""
    passed = 1
    for index, atom in enumerate(atoms):
        if atom.mesh_dim is not None:
            continue
        if passed == factor:
            return index
        need, left = divmod(factor, passed)
        if left or atom.size % need:
            if not left and need % atom.size == 0:
                passed *= atom.size
                continue
            raise CaptureError(f"{what}: a split factor of {factor} has no layout")
        if need == atom.size:
            passed *= atom.size
            continue
        atoms[index : index + 1] = [Atom(need), Atom(atom.size // need)]
        return index + 1
    atoms.append(Atom(1))
    return len(atoms) - 1


@contextmanager
def real_meshes() -> Iterator[None]:
    """A DeviceMesh is made of numbers that are there, also where tensors are fake: one that
    `init_device_mesh` makes numbers the ranks from 0 on."""
    device_mesh: Any = DeviceMesh
    before = {name: vars(device_mesh)[name] for name in ("__init__", "_unflatten", "mesh")}

    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        with unset_fake_temporarily():
            numbers = kwargs.get("_rank_map")
            if isinstance(numbers, FakeTensor):
                kwargs["_rank_map"] = torch.arange(numbers.numel(), dtype=torch.int)
            before["__init__"](self, *args, **kwargs)

    def unflatten(self: Any, *args: Any, **kwargs: Any) -> DeviceMesh:
        with unset_fake_temporarily():
            return before["_unflatten"](self, *args, **kwargs)

    def ranks(self: Any) -> torch.Tensor:
        with unset_fake_temporarily():
            return before["mesh"].fget(self)

    given = {"__init__": make, "_unflatten": unflatten, "mesh": property(ranks)}
    for name, value in given.items():
        setattr(device_mesh, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(device_mesh, name, value)
