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


def uneven(model: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters whose rows do not divide among the ranks of their one sharded mesh dim, by
    name, each with a whole tensor to be given in place of its piece.

    The pieces of `pad(whole)` are what ranks hold; a rank's own has fewer rows, or none.
    """
    found = _unevenly(model)
    return {
        name: found[id(p)]._sharded_local_tensor.new_empty(found[id(p)]._orig_size)
        for name, p in model.named_parameters()
        if id(p) in found
    }


def _unevenly(model: nn.Module) -> dict[int, Any]:
    parts = (p for _, group in _groups(model) for p in group.fsdp_params)
    return {
        id(p.sharded_param): p
        for p in parts
        if p._orig_size
        and p._orig_size[0] % p.mesh_info.shard_mesh_size
        and [q.dim for q in p.sharded_param.placements if not q.is_replicate()] == [0]
    }


def whole_of(model: nn.Module, param: Any, grad: torch.Tensor) -> torch.Tensor:
    """The whole gradient of an uneven parameter, of the pieces of ranks; others as they are."""
    found = _unevenly(model).get(id(param))
    if found is None:
        return grad
    group = found.mesh_info.shard_process_group
    return funcol.all_gather_tensor(grad, 0, group)[: found._orig_size[0]]


def over_inputs(model: nn.Module, given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Make the flat tensors of the DTensors' pieces, and forget the memory that an earlier call
    gathered into. Those of uneven parameters are cut from the whole tensors that are `given`; the
    pieces that their DTensors have then, which are padded and which nothing is to read, are
    returned. A divide factor of the user's is a division before a sum, not part of the collective.
    Call where the graph is recorded."""
    parts = _unevenly(model)
    params: dict[str, Any] = dict(model.named_parameters())
    pieces, flats = dict[str, torch.Tensor](), dict[int, torch.Tensor]()
    for name, whole in given.items():
        p = parts[id(params[name])]
        size, at = p.padded_sharded_param_size, p.mesh_info.shard_mesh_rank
        missing = size[0] * p.mesh_info.shard_mesh_size - whole.shape[0]
        padded = torch.cat([whole, whole.new_zeros(missing, *whole.shape[1:])])
        piece = padded[at * size[0] : (at + 1) * size[0]]
        flats[id(p)], pieces[name] = piece.reshape(-1), piece.view(size)
        params[name]._local_tensor = pieces[name]
        p.sharded_size, p.contiguous_sharded_stride = size, padded.stride()
    for _, group in _groups(model):
        group.force_sum_reduction_for_comms |= group.gradient_divide_factor is not None
        for p in group.fsdp_params:
            flat = flats.get(id(p))
            flat = p._sharded_local_tensor.reshape(-1) if flat is None else flat
            missing = p.padded_sharded_param_size.numel() - flat.numel()
            p.all_gather_outputs = []
            vars(p).pop("_unsharded_param", None)
            p._sharded_param_data = torch.cat([flat, flat.new_zeros(missing)]) if missing else flat
    return pieces


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
