"""Tactics: named starting points for the search, read off the shape of the model."""

from collections.abc import Callable, Sequence

from shardproof.synthesis.planner.assign import Point, options
from shardproof.synthesis.planner.roles import Module

TAKE = ("row", "channels")
"""Styles that take split channels."""
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
    mixed = _mixed(modules)
    for m in modules:
        allowed = options(m, tp)
        if m.use == "embedding":
            want = "column" if m.heads else "vocab"
        elif m.use in ("linear", "conv"):
            fused = m.pieces > 1 if m.use == "conv" else m.parts > 1
            wide = "fused_column" if fused else "column"
            want = "row" if m.follows and m.follows <= columns - mixed else wide
            if want not in allowed and "channels" in allowed:
                want = "channels" if want == "row" else "replicate"
            columns |= {p.name for p in m.params} if want in (wide, "channels") else set()
        elif m.use == "channels":
            want = "channels" if m.follows and m.follows <= columns else "replicate"
        else:
            want = m.use if m.use in ("experts", "recurrent") else "replicate"
        out.append((m.path, want if want in allowed else "replicate"))
    return _in_pairs(modules, out)


def _mixed(modules: Sequence[Module]) -> set[str]:
    """Convolutions that one module reads alone and another with more, or in part: their result is
    whole. Not those of groups, which only pass on channels that are split: a gate on these is a
    pair too."""
    convs = {m.weight.name for m in modules if m.use == "conv" and m.parts == 1}
    readers = [m.follows for m in modules if m.use in ("conv", "linear")]
    beside = frozenset[str]().union(*(m.beside for m in modules))
    return {w for w in convs if w in beside or len({r for r in readers if w in r}) > 1}


def _in_pairs(modules: Sequence[Module], styles: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without the convolutions whose split channels no row takes up, and what works on these."""
    by_path = dict(styles)
    taken: set[str] = set()
    for m in reversed(modules):
        name, style = m.weight.name, by_path[m.path]
        if style == "row" or (m.use == "conv" and style == "channels" and name in taken):
            taken |= m.follows
        elif m.use == "conv" and name not in taken:
            by_path[m.path] = "replicate"
    convs = {m.weight.name for m in modules if m.use == "conv" and by_path[m.path] == "replicate"}
    whole = {m.path for m in modules if m.follows & convs and by_path[m.path] in TAKE}
    return [(path, "replicate" if path in whole else style) for path, style in by_path.items()]


@tactic
def column_row(modules: Sequence[Module], tp: int) -> Point:
    """Column-row pairs in every block, vocabulary-parallel embedding (Shoeybi et al. 2019)."""
    return Point(tuple(pairs(modules, tp)))


@tactic
def sequence_parallel(modules: Sequence[Module], tp: int) -> Point:
    """Column-row pairs with the residual stream split over the sequence (Korthikanti et al.
    2022)."""
    return Point(tuple(pairs(modules, tp)), "S(1)")
