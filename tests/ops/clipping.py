"""Gradients clipped by the norm of all of them together, as a program writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from shardproof.verifier.kernel.program.builder import Builder


def global_norm(
    b: Builder, grads: Sequence[str], over: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Append the norm of all gradients together.

    Args:
        over: gradient -> the mesh dims that split it, whose sums of squares are all_reduced.

    Raises:
        ValueError: no gradient is given.
    """
    if not grads:
        raise ValueError("the norm of no gradients")
    total: dict[tuple[str, ...], str] = {}
    for grad in grads:
        names = tuple((over or {}).get(grad, ()))
        part = b.add("square_norm", grad)
        total[names] = b.add("add", total[names], part) if names in total else part
    parts = [
        b.add("all_reduce", part, mesh_dim=names[0] if len(names) == 1 else names, reduce="sum")
        if names
        else part
        for names, part in total.items()
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = b.add("add", whole, part)
    return b.add("sqrt", whole)


def clip_by_global_norm(
    b: Builder,
    grads: Sequence[str],
    max_norm: Fraction,
    over: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """Append all gradients scaled so that their norm together is at most `max_norm`."""
    norm = global_norm(b, grads, over)
    return [b.add("clip_by_norm", grad, norm, max_norm=max_norm) for grad in grads]
