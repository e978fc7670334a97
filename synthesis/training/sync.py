"""What follows the last backward pass: gradient reduction, clipping, AdamW, and the new values.

ZeRO (Rajbhandari et al. 2020): 1 splits the moments over the data ranks, 2 also scatters the
gradients, 3 keeps the parameters themselves split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from synthesis.training.model import Degrees, Optimizer
from synthesis.training.optimizer import State, adamw, squares
from synthesis.training.weights import Weight
from verifier.ir.builder import Builder
from verifier.ir.types import Attr


def over(names: Sequence[str]) -> Attr:
    """The `mesh_dim` attribute for one or several mesh dims."""
    return names[0] if len(names) == 1 else tuple(names)


def reduced(
    b: Builder, table: Sequence[Weight], grads: Mapping[str, str], degrees: Degrees
) -> dict[str, str]:
    """The summed gradient of each weight: whole, or the piece of this rank from ZeRO 2 on."""
    out: dict[str, str] = {}
    for w in table:
        g, data = grads[w.name], w.data(degrees)
        if degrees.sequence_parallel and w.is_norm:
            g = b.add("all_reduce", g, mesh_dim="tp", reduce="sum")
        if data and degrees.zero in (0, 1):
            g = b.add("all_reduce", g, mesh_dim=over(data), reduce="sum")
        if data and degrees.zero == 1:
            g = b.add("shard_slice", g, mesh_dim=over(data), dim=w.zero_dim(degrees))
        if data and degrees.zero == 2:
            g = b.add(
                "reduce_scatter", g, mesh_dim=over(data), dim=w.zero_dim(degrees), reduce="sum"
            )
        out[w.name] = g
    return out


def norm_squared(
    b: Builder, table: Sequence[Weight], grads: Mapping[str, str], degrees: Degrees
) -> str:
    """The sum of squares of the whole gradients of these weights, each element counted once."""
    by_dims: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for w in table:
        zero = w.data(degrees) if degrees.zero else ()
        by_dims[(*zero, *w.split(degrees))].append(grads[w.name])
    out = ""
    for dims, group in by_dims.items():
        share = squares(b, group)
        if dims:
            share = b.add("all_reduce", share, mesh_dim=over(dims), reduce="sum")
        out = b.add("add", out, share) if out else share
    return out


def updated(
    b: Builder,
    w: Weight,
    grad: str,
    factor: str,
    degrees: Degrees,
    opt: Optimizer,
) -> tuple[str, str, str]:
    """The new parameter and moments, laid out as the old ones."""
    param, data = w.name, w.data(degrees)
    apart = bool(data) and degrees.zero in (1, 2)
    if apart:
        param = b.add("shard_slice", param, mesh_dim=over(data), dim=w.zero_dim(degrees))
    state = State(param, grad, f"{w.name}.first", f"{w.name}.second")
    new, first, second = adamw(b, state, factor, opt, decay=w.decays)
    if apart:
        new = b.add("all_gather", new, mesh_dim=over(data), dim=w.zero_dim(degrees))
    return new, first, second
