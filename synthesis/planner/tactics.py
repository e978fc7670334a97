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


def pairs(modules: Sequence[Module], tp: int, *, gather: bool = False) -> list[tuple[str, str]]:
    """Column for linears that read the residual stream, row for those that read column linears;
    vocabulary rows for embeddings. Where convolutions may `gather`, one that reads channels which
    another takes up with more is a column that gathers them."""
    out: list[tuple[str, str]] = []
    columns: set[str] = set()
    twice = _read_twice(modules)
    mixed = _mixed(modules) if not gather else _mixed(modules) - twice
    for m in modules:
        allowed = options(m, tp)
        if m.use == "embedding":
            want = "column" if m.heads else "vocab"
        elif m.use in ("linear", "conv"):
            fused = m.pieces > 1 if m.use == "conv" else m.parts > 1
            wide = "fused_column" if fused else "column"
            cut = m.use == "conv" and m.pieces > 1  # heads, which a sum would make whole
            cut = cut or (m.use == "conv" and gather and m.follows <= twice)
            want = "row" if m.follows and m.follows <= columns - mixed and not cut else wide
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
    beside = frozenset[str]().union(*(m.beside for m in modules))
    return (_convs(modules) & beside) | _read_twice(modules)


def _convs(modules: Sequence[Module]) -> set[str]:
    return {m.weight.name for m in modules if m.use == "conv" and m.parts == 1}


def _read_twice(modules: Sequence[Module]) -> set[str]:
    """Convolutions that one module reads alone, and another with others."""
    readers = {m.follows for m in modules if m.use in ("conv", "linear")}
    return {w for w in _convs(modules) if sum(w in r for r in readers) > 1}


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
def gather_between(modules: Sequence[Module], tp: int) -> Point:
    """Column-row pairs of which a convolution between gathers what it reads."""
    return Point(tuple(pairs(modules, tp, gather=True)))


@tactic
def shared_whole(modules: Sequence[Module], tp: int) -> Point:
    """Column-row pairs that also read what is whole: one head of keys that all queries share
    (Shazeer 2019), the steps of a scan (Gu & Dao 2023)."""
    styles = dict(pairs(modules, tp))
    whole = {p.name for m in modules if styles[m.path] == "row" for p in m.params}
    for m in modules:
        read = [o for o in modules if not m.near.isdisjoint(p.name for p in o.params)]
        if m.use != "linear" or not read or "row" not in options(m, tp):
            continue
        columns = [o for o in read if o.use == "linear" and styles[o.path] != "row"]
        wide = {_width(o) for o in columns if o.heads > 1}
        one = [o for o in columns if o.heads < 2 and _width(o) in wide]
        found = {o.path: "replicate" for o in one}
        split = {p.name for o in read if o not in one for p in o.params}
        taken = {styles[o.path] for o in read if o not in one} - {"row"}
        if split - whole and taken <= {"column", "fused_column", "channels"}:
            styles |= found | {m.path: "row"}
            whole |= {p.name for p in m.params}
    return Point(tuple(styles.items()))


def _width(module: Module) -> int:
    """Of a head, or of an equal part where there are no heads."""
    return module.weight.shape[module.out_dim] // module.parts // max(1, module.heads)


@tactic
def sequence_parallel(modules: Sequence[Module], tp: int) -> Point:
    """Column-row pairs with the residual stream split over the sequence (Korthikanti et al.
    2022)."""
    return Point(tuple(pairs(modules, tp)), "S(1)")
