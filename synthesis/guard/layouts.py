"""The layouts of a proved plan, held against the shards that ranks really have.

A layout is text, one bracket a dim: `[tp dp 64] [64]` is a dim of tp x dp x 64 elements, tp
outermost, split over both mesh dims, and a whole one. `[3 tp 64]` are three parts, each split.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from shardproof.synthesis.guard.errors import GuardError
from shardproof.synthesis.guard.fingerprint.boxes import box_coverage, whole_coverage
from shardproof.synthesis.guard.fingerprint.mix import MASK
from shardproof.synthesis.guard.guard import Guard, active

SETTINGS = "SHARDPROOF_GUARD"
"""Environment variable with settings of the guard as JSON; they win over those in the code."""
Dims = tuple[tuple[str | int, ...], ...]


def parse(text: str) -> Dims:
    """The dims of a layout. Raises GuardError on anything else."""
    dims = re.findall(r"\[([^\]]*)\]", text)
    if re.sub(r"\[[^\]]*\]|\s", "", text):
        raise GuardError(f"layout {text!r}: expected one bracket a dim, such as [tp 64] [64]")
    return tuple(tuple(int(w) if w.isdecimal() else w for w in dim.split()) for dim in dims)


def shape_of(dims: Dims, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The global shape. Raises GuardError where a mesh dim is not in the mesh."""
    for word in (w for dim in dims for w in dim if isinstance(w, str)):
        if word not in sizes:
            known = ", ".join(sizes)
            raise GuardError(f"the plan splits over {word!r}, the mesh has {known}")
    return tuple(prod(sizes[w] if isinstance(w, str) else w for w in dim) for dim in dims)


def expected(
    dims: Dims, sizes: Mapping[str, int], at: Mapping[str, int]
) -> list[np.ndarray[Any, Any]]:
    """The indices, dim by dim, of the shard at these mesh coordinates."""
    claim: list[np.ndarray[Any, Any]] = []
    for dim, extent in zip(dims, shape_of(dims, sizes), strict=True):
        extents = [sizes[w] if isinstance(w, str) else w for w in dim]
        where = tuple(at[w] if isinstance(w, str) else slice(None) for w in dim)
        claim.append(np.arange(extent).reshape(extents)[where].reshape(-1))
    return claim


def claimed(param: Any) -> list[np.ndarray[Any, Any]]:
    """The indices that a parameter really stands for on this rank, from its placements.

    Placements act one after another, in the order of the mesh: `Shard` cuts what is left of a dim
    into chunks, `_StridedShard` each of `split_factor` equal parts of it.
    """
    claim: list[Any] = [np.arange(n) for n in param.shape]
    if not isinstance(param, DTensor):
        return claim
    coordinate = param.device_mesh.get_coordinate() or []
    for mesh_dim, placement in enumerate(param.placements):
        dim: Any = getattr(placement, "dim", None)
        if dim is None:
            continue
        n, me = param.device_mesh.size(mesh_dim), coordinate[mesh_dim]
        parts = int(getattr(placement, "split_factor", 1))
        held = claim[dim]
        rows: list[Any] = list(held.reshape(parts, -1)) if len(held) % parts == 0 else [held]
        claim[dim] = np.concatenate([_chunk(row, n, me) for row in rows])
    return claim


def _chunk(row: np.ndarray[Any, Any], n: int, me: int) -> np.ndarray[Any, Any]:
    size = -(-len(row) // n)
    return row[me * size : (me + 1) * size]


def watch(
    model: nn.Module, mesh: Any, layouts: Mapping[str, str], *, every: int = 100
) -> Guard | None:
    """Check that every rank holds the shards of `layouts`, and start the guard (or take the one
    that is on). Every rank has to call it, after the model was parallelized.

    `layouts` has the layout of every parameter, `*` for a layer index, as the plan was proved for.
    The coverage of every parameter, known from the plan before, is held against what the ranks
    claim: all elements, as often as the mesh repeats them, and each rank those of its coordinates.

    Raises:
        GuardError: on every rank the same, where ranks have different plans or meshes, or hold
            other shards than the plan's.
    """
    if dist.get_backend() == "fake":  # traced, not run
        return None
    guard = active()
    if guard is None:
        settings: dict[str, Any] = {"every": every, **json.loads(os.environ.get(SETTINGS, "{}"))}
        guard = Guard(**settings).start()
    problems, claims, plan = _look(model, mesh, layouts)
    told = guard.tell_all(
        {"plan": plan, "problems": problems[:3], "claims": claims}, "the layouts of the plan"
    )
    plans = [row["plan"] for row in told]
    if len(set(plans)) > 1:
        each = ", ".join(f"rank {r}: {p}" for r, p in enumerate(plans))
        raise GuardError(f"the ranks disagree on the plan ({each}); give all ranks the same patch")
    said = [f"rank {r}: {p}" for r, row in enumerate(told) for p in row["problems"]]
    if not said:
        said = _uncovered([row["claims"] for row in told], layouts, mesh)
    if said:
        raise GuardError(
            "the shards are not those that the plan was proved for: " + "; ".join(said[:6])
        )
    return guard


def _look(
    model: nn.Module, mesh: Any, layouts: Mapping[str, str]
) -> tuple[list[str], dict[str, str], str]:
    """What differs on this rank, the coverage it claims by parameter, and a name of the plan."""
    names: tuple[str, ...] = tuple(mesh.mesh_dim_names or ())
    sizes: dict[str, int] = {name: int(mesh.size(i)) for i, name in enumerate(names)}
    digest = hashlib.sha256(json.dumps([sizes, sorted(layouts.items())]).encode()).hexdigest()
    plan = f"{digest[:12]} on " + ",".join(f"{k}={v}" for k, v in sizes.items())
    problems: list[str] = []
    claims: dict[str, str] = {}
    try:
        at: dict[str, int] = dict(zip(names, mesh.get_coordinate() or [], strict=True))
        for name, param in model.named_parameters():
            text = layouts.get(name) or layouts.get(re.sub(r"\.\d+\.", ".*.", name))
            if text is None:
                problems.append(f"{name} is not a parameter of the plan")
                continue
            dims = parse(text)
            problems += _differs(name, param, dims, sizes, at)
            claims[name] = f"{box_coverage(claimed(param)):x}"
    except (GuardError, ValueError) as error:
        problems.append(str(error))
    return problems, claims, plan


def _differs(
    name: str, param: Any, dims: Dims, sizes: Mapping[str, int], at: Mapping[str, int]
) -> list[str]:
    shape = shape_of(dims, sizes)
    if tuple(param.shape) != shape:
        return [f"{name} has shape {list(param.shape)}, the plan {list(shape)}"]
    local: Any = param.to_local() if isinstance(param, DTensor) else param
    want, have = expected(dims, sizes, at), claimed(param)
    if tuple(local.shape) != tuple(len(x) for x in want):
        placed = getattr(param, "placements", "whole")
        return [
            f"{name} holds {list(local.shape)} ({placed}), the plan has "
            f"{[len(x) for x in want]} of {list(shape)} here"
        ]
    if box_coverage(want) != box_coverage(have):
        dim = next(
            d for d, (a, b) in enumerate(zip(want, have, strict=True)) if not np.array_equal(a, b)
        )
        return [
            f"{name} holds {_span(have[dim])} of dim {dim}, the plan has {_span(want[dim])} here"
        ]
    return []


def _span(indices: np.ndarray[Any, Any]) -> str:
    if not len(indices):
        return "nothing"
    first, last = int(indices[0]), int(indices[-1])
    return f"{first}..{last}" + ("" if last - first + 1 == len(indices) else " in parts")


def _uncovered(
    claims: Sequence[Mapping[str, str]], layouts: Mapping[str, str], mesh: Any
) -> list[str]:
    """Parameters whose claims do not add up to all of them, as often as the mesh repeats them."""
    names: tuple[str, ...] = tuple(mesh.mesh_dim_names or ())
    sizes: dict[str, int] = {name: int(mesh.size(i)) for i, name in enumerate(names)}
    if dist.get_world_size() != prod(sizes.values()):
        return []
    wrong: list[str] = []
    for name in claims[0]:
        text = layouts.get(name) or layouts[re.sub(r"\.\d+\.", ".*.", name)]
        dims = parse(text)
        split = prod(sizes[w] for dim in dims for w in dim if isinstance(w, str))
        copies = prod(sizes.values()) // split
        want = whole_coverage(shape_of(dims, sizes)) * copies & MASK
        got = sum(int(row.get(name, "0"), 16) for row in claims) & MASK
        if got != want:
            wrong.append(f"{name}: the ranks' shards do not cover it {copies} times")
    return wrong
