"""Beam search over module styles, with tactics as seeds and the cost model as judge.

Repeated blocks are one module each, so a decision is made once however many layers there are.
A point is scored by lowering it and pricing the result; what leaves here is still a candidate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from shardproof.synthesis.optimum.best import Bound, lower_bound, suggested
from shardproof.synthesis.optimum.space import Restriction
from shardproof.synthesis.planner.assign import PlanError, Point, options
from shardproof.synthesis.planner.constraints import Rules, Supported, settle
from shardproof.synthesis.planner.narrowing import Narrowing, alike, layered
from shardproof.synthesis.planner.roles import UNREAD, Module, heads
from shardproof.synthesis.planner.scoring import (
    CAPTURED,
    Asked,
    Candidate,
    Refusal,
    Search,
    axes,
    prepare,
)
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.synthesis.planner.uses import multiplications
from shardproof.verifier.kernel.program.program import Program

__all__ = ["Candidate", "Found", "Refusal", "Search", "axes", "check_heads", "prepare", "search"]

ROOM = 1.02
"""Parameters per rank, relative to the tactic that splits most, that a plan may keep: a mesh dim
is asked for to split the model, so leaving it unused is not an answer however small the model."""
WIDTH, ROUNDS = 2, 2
"""Candidates that are kept, and rounds of moves from them."""
NEAR = 1.03
"""A plan that is certified to take at most so many times as long as any is not searched beyond."""


@dataclass
class Found:
    """The best candidate first, then the others that were scored, and those that failed."""

    program: Program
    """The one-device program that was lowered: in primitives, with nothing computed twice."""
    best: Candidate
    others: list[Candidate]
    failed: dict[str, str] = field(default_factory=dict[str, str])
    modules: list[Module] = field(default_factory=list[Module])
    scored: int = 0
    refused: list[Refusal] = field(default_factory=list[Refusal])
    """Points that are no candidates."""
    state: Search | None = None
    """To score further points by."""
    starts: list[tuple[str, Point, Candidate | Refusal]] = field(
        default_factory=list[tuple[str, Point, Candidate | Refusal]]
    )
    """(tactic or seed, its point, what came of the nearest point that keeps every constraint)"""
    obstacles: dict[str, str] = field(default_factory=dict[str, str])
    """Why modules stay whole that a tactic would split, by path."""
    bound: Bound | None = None
    """On every placement of the ops over tp; None where nothing is split, or in a search that
    started from an earlier one."""


def check_heads(found: list[Module], tp: str, size: int) -> None:
    """Raise PlanError where attention heads cannot be dealt out over tp, and less than half of the
    parameters are in modules without heads that can be split. One head alone stays whole."""
    sizes = {m.path: sum(prod(p.shape) for p in m.params) for m in found}
    free = [m for m in found if not m.heads and set(options(m, size)) - {"replicate"}]
    if free and 2 * sum(sizes[m.path] for m in free) >= sum(sizes.values()):
        return
    for module in found:
        if module.heads < 2 or module.heads % size == 0:
            continue
        if (
            module.heads < size
            and size % module.heads == 0
            and any(other.heads and other.heads % size == 0 for other in found)
        ):
            continue
        fits = [n for n in range(1, module.heads + 1) if module.heads % n == 0]
        raise PlanError(
            f"{module.path}: {module.heads} heads do not divide over {tp}={size}; "
            f"try {tp} in {', '.join(map(str, fits))}"
        )


def search(
    asked: Asked,
    supported: Supported | None = None,
    *,
    progress: Callable[[str], None] | None = None,
    seeds: Sequence[tuple[str, Point]] = (),
    like: Search | None = None,
) -> Found:
    """The cheapest plan found for a one-device joint program.

    Args:
        supported: whether a style can be emitted for a module.
        seeds: named starting points besides the tactics, scored like them.
        like: an earlier search of the same program, mesh, cluster and kinds, to save time.

    Raises:
        PlanError: a mesh the model cannot use; ConstraintError where a constraint cannot hold.
    """
    constraints, mesh = asked.constraints, asked.mesh
    state = _state(asked, like)
    if constraints.memory_bytes is not None:
        state.limit = float(constraints.memory_bytes)
    found, tp = state.modules, state.tp
    size = mesh[tp] if tp else 1
    if tp:
        check_heads(found, tp, size)
    rules = settle(constraints, found, size, supported)
    if tp and not constraints and all(list(s) == ["replicate"] for s in rules.allowed.values()):
        raise PlanError(
            f"no module of the model can be split over {tp}={size}: {_unsplit(state, size, tp)}"
        )
    beam: list[Candidate] = []
    least = float("inf")
    failed: dict[str, str] = {}
    starts: list[tuple[str, Point, Candidate | Refusal]] = []
    narrowing = Narrowing(state, rules)
    for name, start in _starts(rules, found, size, tp, seeds):
        point = rules.keep(start)
        if progress:
            progress(f"tactic {name}")
        result = state.score(point, name, name)
        starts.append((name, start, result))
        if isinstance(result, Candidate):
            beam.append(result)
        else:
            failed[name] = result.reason
            beam += narrowing.narrow(point, result)
    if not beam:
        raise PlanError("; ".join(f"{k}: {v}" for k, v in failed.items()))
    if tp:
        beam += _gathered(state, rules, min(beam, key=lambda c: c.estimate.parameters))
        least = min(c.estimate.parameters for c in beam)
        beam = [c for c in beam if c.estimate.parameters <= least * ROOM]
    bound = None
    if tp and like is None:
        fits = asked.pricing is CAPTURED and min(beam, key=lambda c: c.score).over == 0
        bound = lower_bound(state, Restriction({}, least * ROOM, state.limit if fits else None))
    if bound is not None:
        result = state.score(rules.keep(suggested(bound)), "optimum", "optimum")
        if isinstance(result, Candidate) and result.estimate.parameters <= least * ROOM:
            beam.append(result)
    movable = [g for g in narrowing.groups if all(len(rules.allowed[p]) > 1 for p in g)]
    for turn in range(ROUNDS if tp else 0):
        beam.sort(key=lambda c: c.score)
        best = beam[0]
        if bound is not None and best.over == 0 and best.estimate.step_s <= bound.seconds * NEAR:
            break
        beam = beam[:WIDTH]
        grown = _grown(state, rules, movable, beam, least * ROOM)
        if progress:
            progress(f"round {turn + 1}: {len(state.seen)} points")
        if not grown or min(c.score for c in grown) >= beam[0].score:
            break
        beam += grown
    scored = [c for c in state.seen.values() if isinstance(c, Candidate)]
    short = _Short(state) if tp else None
    ranked = sorted(
        scored,
        key=lambda c: (
            short is not None and short.of(c.point),
            c.estimate.parameters > least * ROOM,
            c.score,
        ),
    )
    if constraints.memory_bytes is not None:
        ranked.sort(key=lambda c: c.over > 0)
    refused = [r for r in state.seen.values() if isinstance(r, Refusal)]
    if tp and all(style == "replicate" for _, style in ranked[0].point.styles):
        reasons = [f"{name} {why}" for name, why in failed.items()]
        reasons = reasons or [r.reason for r in refused][:1] or [_unsplit(state, size, tp)]
        raise PlanError(
            f"no plan that splits the model over {tp}={size} can be written as module styles: "
            + "; ".join(reasons)
        )
    return Found(
        state.program,
        ranked[0],
        ranked[1:],
        failed,
        found,
        len(state.seen),
        refused,
        state,
        starts,
        narrowing.obstacles,
        bound,
    )


def _unsplit(state: Search, size: int, tp: str) -> str:
    """Why no module has a style that splits it."""
    held = ((m, p) for m in state.modules for p in m.params if len(p.shape) > 1)
    found = next((pair for pair in held if any(n % size == 0 for n in pair[1].shape)), None)
    if found is None:
        return f"no weight has a dim that {size} divides; try a smaller {tp}"
    module, weight = found
    nodes = (n for _, n in state.program.walk() if weight.name in n.inputs)
    at = next((f"  {n.source}" for n in nodes if n.source.line), "")
    return (
        f"{module.kind or 'the model'} works with {weight.path} itself, and styles are for "
        f"modules; put it into an nn.Linear or nn.Embedding{at}"
    )


def _state(asked: Asked, like: Search | None) -> Search:
    """A search with nothing scored yet."""
    split = asked.split_loss and asked.constraints.loss_parallel is not False
    if like is None:
        return prepare(replace(asked, split_loss=split))
    parallel = split and any(o.role == "loss" for o in like.program.outputs)
    limit = asked.cluster.device.memory_bytes
    return replace(like, loss_parallel=parallel, limit=limit, pricing=asked.pricing, seen={})


def _starts(
    rules: Rules,
    found: list[Module],
    size: int,
    tp: str | None,
    seeds: Sequence[tuple[str, Point]],
) -> list[tuple[str, Point]]:
    """The tactics' points, each once, then the seeds."""
    names = rules.tactics if tp else ("replicate",)
    points = {name: TACTICS[name](found, size) for name in names}
    first = {point: name for name, point in reversed(points.items())}
    starts = [(name, point) for name, point in points.items() if first[point] == name]
    return [*starts, *(seeds if tp else ())]


class _Short:
    """Which points split less than half of what could be split: of all parameters or products, or
    of those besides embedding and output projection."""

    def __init__(self, state: Search) -> None:
        read = [m for m in state.modules if m.order < UNREAD]
        self.sizes = {m.path: float(sum(prod(p.shape) for p in m.params)) for m in read}
        work = multiplications(state.program)
        self.work = {path: work.get(path, 0.0) for path in self.sizes}
        vocabulary = heads(state.modules)
        self.inner = {m.path for m in read if m.use != "embedding"} - vocabulary

    def of(self, point: Point) -> bool:
        left = {path for path, style in point.styles if style == "replicate"}
        return any(
            2 * sum(of[p] for p in left & some) > sum(of[p] for p in some)
            for of in (self.sizes, self.work)
            for some in (of.keys(), self.inner)
        )


def _gathered(state: Search, rules: Rules, best: Candidate) -> list[Candidate]:
    """Of a plan that splits less than half of what could be split, one that splits the largest
    kinds of what it leaves whole and gathers what these give, until half is split."""
    short = _Short(state)
    held = best.point
    whole = {path for path in short.sizes if held.style(path) == "replicate"}
    kinds = [k for group in alike(state.modules) if (k := [p for p in group if p in whole])]
    for paths in sorted(
        kinds, key=lambda k: (k[0] not in short.inner, -short.sizes[k[0]] * len(k))
    ):
        if best.point.stream != "R" or not short.of(held):
            break
        if all("gathered" in rules.allowed[path] for path in paths):
            point = held.styled(dict.fromkeys(paths, "gathered"))
            if state.refusal(point, "gathered", best.tactic) is None:
                held = point
    result = state.score(held, "gathered", best.tactic)
    return [result] if held != best.point and isinstance(result, Candidate) else []


def _grown(
    state: Search, rules: Rules, movable: list[list[str]], beam: list[Candidate], most: float
) -> list[Candidate]:
    """Candidates one move away from those of the beam."""
    grown: list[Candidate] = []
    for candidate in beam:
        for paths in movable:
            for style in rules.allowed[paths[0]]:
                if style == "gathered":
                    continue
                point = candidate.point.styled(dict.fromkeys(paths, style))
                if point in state.seen or state.parameters(point) > most:
                    continue
                origin = f"{layered(paths[0])} -> {style}"
                if state.refusal(point, origin, candidate.tactic) is not None:
                    continue
                result = state.score(point, origin, candidate.tactic)
                if isinstance(result, Candidate):
                    grown.append(result)
    return grown
