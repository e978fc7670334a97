"""Tactics: named starting points for the search, read off the shape of the model."""

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
    """Column for linears that read the residual stream, row for those that read column linears;
    vocabulary rows for embeddings."""
    out: list[tuple[str, str]] = []
    columns: set[str] = set()
    for m in modules:
        allowed = options(m, tp)
        if m.use == "embedding":
            want = "column" if m.heads else "vocab"
        elif m.use == "linear":
            wide = "fused_column" if m.parts > 1 else "column"
            want = "row" if m.follows and m.follows <= columns else wide
            columns |= {p.name for p in m.params} if want == wide else set()
        else:
            want = "experts" if m.use == "experts" else "replicate"
        out.append((m.path, want if want in allowed else "replicate"))
    return out


@tactic
def column_row(modules: Sequence[Module], tp: int) -> Point:
    """Column-row pairs in every block, vocabulary-parallel embedding (Shoeybi et al. 2019)."""
    return Point(tuple(pairs(modules, tp)))


@tactic
def sequence_parallel(modules: Sequence[Module], tp: int) -> Point:
    """Column-row pairs with the residual stream split over the sequence (Korthikanti et al.
    2022)."""
    return Point(tuple(pairs(modules, tp)), "S(1)")
