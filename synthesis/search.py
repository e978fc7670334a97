"""Beam search over module styles, with tactics as seeds and the cost model as judge.

Repeated blocks are one module each, so a decision is made once however many layers there are.
A point is scored by lowering it and pricing the result; what leaves here is still a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from synthesis.assign import PlanError, Point, choices, options
from synthesis.cost import Estimate, estimate
from synthesis.emittable import obstacle
from synthesis.hardware import Cluster
from synthesis.lower import Lowered, LoweringError, Move, lower
from synthesis.roles import Module, Param, modules
from synthesis.share import share
from synthesis.tactics import TACTICS
from verifier.inline import inline, live
from verifier.ir.program import Program
from verifier.ir.types import Mesh

ROOM = 1.02
"""Parameters per rank, relative to the tactic that splits most, that a plan may keep: a mesh dim
is asked for to split the model, so leaving it unused is not an answer however small the model."""

NEAR = 1.2
"""Candidates of the beam whose score is further from the best than this are not grown."""

Supported = Callable[[Module, str], bool]


@dataclass(frozen=True)
class Candidate:
    """A scored point."""

    point: Point
    score: float
    """Seconds of a step, with a penalty for memory that is not there."""
    estimate: Estimate
    lowered: Lowered
    origin: str = ""
    """The tactic or the move it came from."""


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


@dataclass
class Search:
    """What stays the same while points are scored."""

    program: Program
    mesh: Mesh
    cluster: Cluster
    tp: str | None
    dp: str | None
    owners: dict[str, tuple[Module, Param]]
    modules: list[Module]
    loss_parallel: bool
    kinds: Mapping[str, str]
    memo: dict[Any, Any] = field(default_factory=dict[Any, Any])
    least: float = float("inf")
    """The best score so far."""
    seen: dict[Point, Candidate | str] = field(default_factory=dict[Point, "Candidate | str"])

    def score(self, point: Point, origin: str) -> Candidate | str:
        """A candidate, or why the point cannot be lowered."""
        known = self.seen.get(point)
        if known is not None:
            return known
        out = self._lowered(point, origin, frozenset())
        if isinstance(out, Candidate) and out.score <= NEAR * self.least:
            again = self._lowered(point, origin, out.lowered.moved)
            if isinstance(again, Candidate) and again.score < out.score:
                out = again
            self.least = min(self.least, out.score)
        self.seen[point] = out
        return out

    def _lowered(self, point: Point, origin: str, paid: frozenset[Move]) -> Candidate | str:
        try:
            made = self.price(point, origin, paid)
        except LoweringError as error:
            return str(error)
        why = None
        if self.tp:
            program, size = made.lowered.program, self.mesh[self.tp]
            why = obstacle(program, self.modules, self.kinds, self.tp, size)
        return why or made

    def price(
        self, point: Point, origin: str = "", paid: frozenset[Move] = frozenset()
    ) -> Candidate:
        """Lower a point and price it, whether or not it can be written as module styles.

        Raises:
            LoweringError: an op for which no distribution was found.
        """
        picked = choices(
            self.program, self.owners, point, self.mesh, self.tp, self.dp, self.loss_parallel
        )
        lowered = lower(self.program, self.mesh, picked, self.cluster, self.memo, paid)
        cost = estimate(lowered.program, self.cluster)
        over = max(0.0, cost.memory_bytes / self.cluster.device.memory_bytes - 1.0)
        return Candidate(point, cost.step_s * (1 + 10 * over), cost, lowered, origin)


def axes(mesh: Mesh) -> tuple[str | None, str | None]:
    """The tensor- and data-parallel dims of a mesh. Raises PlanError for any other dim."""
    for name, size in mesh.dims:
        if name not in ("tp", "dp"):
            raise PlanError(
                f"mesh dim {name}={size}: only tp and dp are planned; try --mesh dp=2,tp=2"
            )
    tp = "tp" if "tp" in mesh and mesh["tp"] > 1 else None
    dp = "dp" if "dp" in mesh and mesh["dp"] > 1 else None
    return tp, dp


def _relaxed(state: Search, point: Point, origin: str) -> list[Candidate]:
    """Candidates near a point that cannot be written: the same with one module left whole."""
    out: list[Candidate] = []
    for module in reversed(state.modules):
        if point.style(module.path) == "replicate" or point.stream != "R":
            continue
        result = state.score(
            point.with_style(module.path, "replicate"), f"{origin}, {module.path} whole"
        )
        if isinstance(result, Candidate):
            out.append(result)
    return out


def check_heads(found: list[Module], tp: str, size: int) -> None:
    """Raise PlanError where attention heads cannot be dealt out over tp."""
    for module in found:
        if not module.heads or module.heads % size == 0:
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


def prepare(
    program: Program,
    mesh: Mesh,
    cluster: Cluster,
    kinds: Mapping[str, str] | None = None,
    split_loss: bool = True,
) -> Search:
    """What a search starts from: the program in primitives, its modules, the dims of the mesh.

    Raises:
        PlanError: a mesh dim that is not planned.
    """
    tp, dp = axes(mesh)
    lean = share(live(inline(program)))
    found = modules(lean, kinds)
    owners = {p.name: (m, p) for m in found for p in m.params}
    parallel = split_loss and any(o.role == "loss" for o in lean.outputs)
    return Search(lean, mesh, cluster, tp, dp, owners, found, parallel, kinds or {})


def search(
    program: Program,
    mesh: Mesh,
    cluster: Cluster,
    kinds: Mapping[str, str] | None = None,
    supported: Supported | None = None,
    split_loss: bool = True,
    width: int = 2,
    rounds: int = 2,
    progress: Callable[[str], None] | None = None,
) -> Found:
    """The cheapest plan found for a one-device joint program.

    Args:
        kinds: class names of modules by path, for what the emitter supports.
        supported: whether a style can be emitted for a module.
        split_loss: whether the loss may be computed on logits split over the vocabulary.

    Raises:
        PlanError: a mesh the model cannot use.
    """
    state = prepare(program, mesh, cluster, kinds, split_loss)
    found, tp = state.modules, state.tp
    size = mesh[tp] if tp else 1
    if tp:
        check_heads(found, tp, size)
    allowed = {
        m.path: [
            s for s in options(m, size) if supported is None or s == "replicate" or supported(m, s)
        ]
        for m in found
    }
    if tp and all(styles == ["replicate"] for styles in allowed.values()):
        raise PlanError(
            f"no module of the model can be split over {tp}={size}: no weight has a dim that "
            f"{size} divides; try a smaller {tp}"
        )
    beam: list[Candidate] = []
    least = float("inf")
    failed: dict[str, str] = {}
    for name, rule in TACTICS.items():
        if tp is None and name != "replicate":
            continue
        point = rule(found, size)
        point = Point(
            tuple((p, s if s in allowed[p] else "replicate") for p, s in point.styles), point.stream
        )
        if progress:
            progress(f"tactic {name}")
        result = state.score(point, name)
        if isinstance(result, Candidate):
            beam.append(result)
        else:
            failed[name] = result
            beam += _relaxed(state, point, name)
    if not beam:
        raise PlanError("; ".join(f"{k}: {v}" for k, v in failed.items()))
    if tp:
        least = min(c.estimate.parameters for c in beam)
        beam = [c for c in beam if c.estimate.parameters <= least * ROOM]
    movable = [m for m in found if len(allowed[m.path]) > 1]
    for turn in range(rounds if tp else 0):
        beam.sort(key=lambda c: c.score)
        beam = beam[: max(width, 1)]
        grown: list[Candidate] = []
        for candidate in beam:
            if candidate.score > NEAR * beam[0].score:
                continue
            for module in movable:
                for style in allowed[module.path]:
                    if style == candidate.point.style(module.path):
                        continue
                    point = candidate.point.with_style(module.path, style)
                    if point in state.seen:
                        continue
                    result = state.score(point, f"{module.path} -> {style}")
                    if isinstance(result, Candidate) and result.estimate.parameters <= least * ROOM:
                        grown.append(result)
        if progress:
            progress(f"round {turn + 1}: {len(state.seen)} points")
        if not grown or min(c.score for c in grown) >= beam[0].score:
            break
        beam += grown
    scored = [c for c in state.seen.values() if isinstance(c, Candidate)]
    ranked = sorted(scored, key=lambda c: (c.estimate.parameters > least * ROOM, c.score))
    if tp and all(style == "replicate" for _, style in ranked[0].point.styles):
        raise PlanError(
            f"no plan that splits the model over {tp}={size} can be written as module styles: "
            + "; ".join(f"{name} {why}" for name, why in failed.items())
        )
    return Found(state.program, ranked[0], ranked[1:], failed, found, len(state.seen))
