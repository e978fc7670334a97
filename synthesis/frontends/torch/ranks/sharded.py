"""fully_shard while it is traced: its parameters over the inputs of the graph, its own ops as ops
of aten.

What runs is FSDP2 itself, its hooks and its groups. It keeps each parameter in two tensors, the
DTensor that users see and a flat one that collectives send; here the second is made of the first.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.distributed.tensor import DTensor

from shardproof.synthesis.frontends.torch.errors import CaptureError


def _groups(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Each group of parameters that is gathered together, with the path of its module."""
    for path, module in model.named_modules():
        state = getattr(module, "_get_fsdp_state", None)
        if state is None:
            continue
        found = state()
        for group in getattr(found, "_fsdp_param_groups", None) or [found._fsdp_param_group]:
            if group is not None:
                yield path, group


def refuse_uncovered(model: nn.Module, file: str) -> None:
    """Raises CaptureError for what FSDP2 does outside of the ops that are seen."""
    for path, group in _groups(model):
        where = path or "the module"
        if type(group.offload_policy).__name__ != "OffloadPolicy":
            raise CaptureError(f"{where} is offloaded to the CPU, which is not covered", file=file)
        for p in group.fsdp_params:
            if hasattr(p._sharded_local_tensor, "fsdp_pre_all_gather"):
                raise CaptureError(
                    f"{where} has parameters with an all-gather of their own, which is not covered",
                    file=file,
                )


def precisions(model: nn.Module) -> list[str]:
    """A sentence for each dtype that parameters are gathered, or gradients reduced, in."""
    said: dict[str, None] = {}
    for _, group in _groups(model):
        policy = group.mp_policy
        for what, dtype in (
            ("gathers parameters", policy.param_dtype),
            ("reduces gradients", policy.reduce_dtype or policy.param_dtype),
        ):
            if dtype is not None:
                said[f"fully_shard {what} in {str(dtype).removeprefix('torch.')}."] = None
    return list(said)


def averaging(model: nn.Module) -> Iterator[Any]:
    """The process groups over which it averages gradients."""
    for _, group in _groups(model):
        if group.gradient_divide_factor is not None:
            continue
        for name in ("shard_process_group", "replicate_process_group"):
            if (found := getattr(group.mesh_info, name, None)) is not None:
                yield found


def uneven(model: nn.Module, named: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """What is placed as a parameter whose rows do not divide among the ranks of its one sharded
    mesh dim, each with a whole tensor to be given in place of its piece.

    The pieces of `pad(whole)` are what ranks hold; a rank's own has fewer rows, or none.
    """
    placed = {
        _spec(p.sharded_param)
        for _, group in _groups(model)
        for p in group.fsdp_params
        if p._orig_size
        and p._orig_size[0] % p.mesh_info.shard_mesh_size
        and [q.dim for q in p.sharded_param.placements if not q.is_replicate()] == [0]
    }
    found = {n: t for n, t in named.items() if isinstance(t, DTensor) and _spec(t) in placed}
    return {name: t._local_tensor.new_empty(t.shape) for name, t in found.items()}


def _spec(t: DTensor) -> Any:
    return t.device_mesh, tuple(t.placements), tuple(t.shape)


def _sharded_dim(t: DTensor) -> int:
    return next(i for i, q in enumerate(t.placements) if not q.is_replicate())


def whole_of(t: DTensor, piece: torch.Tensor) -> torch.Tensor:
    """The whole tensor, of the padded pieces of ranks that are placed as `t`."""
    group = t.device_mesh.get_group(_sharded_dim(t))
    return funcol.all_gather_tensor(piece, 0, group)[: t.shape[0]]


def cut_from(whole: torch.Tensor, t: DTensor) -> None:
    """Make the piece of a DTensor one of a padded whole. Call where the graph is recorded."""
    at = _sharded_dim(t)
    count, rank = t.device_mesh.size(at), t.device_mesh.get_local_rank(at)
    missing = -whole.shape[0] % count
    padded = torch.cat([whole, whole.new_zeros(missing, *whole.shape[1:])])
    rows = padded.shape[0] // count
    t._local_tensor = padded[rank * rows : (rank + 1) * rows].clone()


def over_inputs(model: nn.Module) -> None:
    """Make the flat tensors of the DTensors' pieces, and forget the memory that an earlier call
    gathered into. A divide factor of the user's is a division before a sum, not part of the
    collective. Call where the graph is recorded."""
    for _, group in _groups(model):
        group.force_sum_reduction_for_comms |= group.gradient_divide_factor is not None
        for p in group.fsdp_params:
            p.sharded_size = p._sharded_local_tensor.shape
            p.contiguous_sharded_stride = p._sharded_local_tensor.stride()
            flat = p._sharded_local_tensor.reshape(-1)
            missing = p.padded_sharded_param_size.numel() - flat.numel()
            p.all_gather_outputs = []
            vars(p).pop("_unsharded_param", None)
            p._sharded_param_data = torch.cat([flat, flat.new_zeros(missing)]) if missing else flat


def reshard(model: nn.Module) -> None:
    """Every parameter a piece again: without a backward, those of the root stay gathered."""
    for _, group in _groups(model):
        group.reshard()


def _copy_in(
    pieces: list[torch.Tensor], out: torch.Tensor, sizes: list[int], count: int, rank: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a rank sends is a tensor of its own, not a part of what it receives."""
    return torch.cat(list(pieces)), out


def _split_out(
    gathered: torch.Tensor, sizes: list[int], dim: int = 0, *, out: list[torch.Tensor]
) -> None:
    for target, part in zip(out, torch.split(gathered, sizes, dim), strict=True):
        target.copy_(part)


def _chunk_cat(
    tensors: list[torch.Tensor], dim: int, num_chunks: int, *, out: torch.Tensor
) -> None:
    rows = []
    for t in tensors:
        flat = t.reshape(t.shape[0], -1) if t.ndim else t.reshape(1, 1)
        missing = -flat.shape[0] % num_chunks
        if missing:
            flat = torch.cat([flat, flat.new_zeros(missing, flat.shape[1])])
        rows.append(flat.reshape(num_chunks, -1))
    out.copy_(torch.cat(rows, 1))


OPS: dict[str, Any] = {
    "all_gather_copy_in": _copy_in,
    "split_with_sizes_copy": _split_out,
    "chunk_cat": _chunk_cat,
}
"""Ops of the namespace `fsdp` in ops of aten: copies into and out of what is sent in one piece."""
