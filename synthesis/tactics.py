"""Tactics: named starting points for the search, read off the shape of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from synthesis.assign import Point, options
from synthesis.roles import Module

Tactic = Callable[[Sequence[Module], int], Point]
TACTICS: dict[str, Tactic] = {}


def tactic(rule: Tactic) -> Tactic:
    """Register a tactic under its function name."""
    if rule.__name__ in TACTICS:
        raise ValueError(f"tactic {rule.__name__} is registered twice")
    TACTICS[rule.__name__] = rule
    return rule


@tactic
def replicate(modules: Sequence[Module], tp: int) -> Point:
    """Every module whole on every rank: the baseline."""
    return Point(tuple((m.path, "replicate") for m in modules))


def pairs(modules: Sequence[Module], tp: int) -> list[tuple[str, str]]:
    """Column for the linears of a block, row for the last one; vocabulary rows for embeddings."""
    blocks: dict[str, list[Module]] = {}
    for m in modules:
        if m.use == "linear":
            blocks.setdefault(_block(m.path, modules), []).append(m)
    last = {max(ms, key=lambda m: m.order).path for ms in blocks.values() if len(ms) > 1}
    out: list[tuple[str, str]] = []
    for m in modules:
        allowed = options(m, tp)
        if m.use == "embedding":
            want = "vocab"
        elif m.use == "linear":
            want = "row" if m.path in last else "fused_column" if m.parts > 1 else "column"
        else:
            want = "replicate"
        out.append((m.path, want if want in allowed else "replicate"))
    return out


def _block(path: str, modules: Sequence[Module]) -> str:
    """The nearest enclosing module that holds several linears (`self_attn`, `mlp`)."""
    linears = [m.path for m in modules if m.use == "linear"]
    parent = path
    while "." in parent:
        parent = parent.rpartition(".")[0]
        inside = [p for p in linears if p.startswith(parent + ".")]
        if len(inside) > 1:
            return parent
    return path


@tactic
def column_row(modules: Sequence[Module], tp: int) -> Point:
    """Column-row pairs in every block, vocabulary-parallel embedding (Shoeybi et al. 2019)."""
    return Point(tuple(pairs(modules, tp)))


@tactic
def sequence_parallel(modules: Sequence[Module], tp: int) -> Point:
    """Column-row pairs with the residual stream split over the sequence (Korthikanti et al. 2022)."""
    return Point(tuple(pairs(modules, tp)), "S(1)")
