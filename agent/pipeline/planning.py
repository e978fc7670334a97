"""The plan of a run, and what is done where it does not hold.

A plan that no patch stands for or that is not proved is left for the next candidate; where none is
left, its offending choice is banned, or looked for by halves where no error names it; then a
language model's proposals become starting points, if one was asked for. At most three rounds know
of each other; then the search starts afresh with what was refused. Memory is weighed by the search
alone: where its choice needs more than there is, so do all others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shardproof.agent.pipeline.halving import READINGS, halves
from shardproof.agent.run import events
from shardproof.agent.run.run import Run
from shardproof.synthesis.emit import EmitError, ModelFacts
from shardproof.synthesis.planner.assign import PlanError, Point
from shardproof.synthesis.planner.constraints import (
    ConstraintError,
    Constraints,
    settle,
    show_bytes,
)
from shardproof.synthesis.planner.describe import describe
from shardproof.synthesis.planner.judging import WORDS, Judge, Judgement, Status
from shardproof.synthesis.planner.narrowing import layered
from shardproof.synthesis.planner.plan import PassedOver
from shardproof.synthesis.planner.planner import Asked, Synthesis, can_emit, synthesize
from shardproof.synthesis.planner.regions import Regions
from shardproof.synthesis.planner.scoring import Candidate, Refusal, prepare
from shardproof.synthesis.planner.search import ROOM, Search
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.verifier.verdict import Proof

if TYPE_CHECKING:
    from shardproof.agent.llm.client import Model

ROUNDS = 3
"""Rounds that know of each other."""
CONTEXTS = 2
TRIED = 4
"""Candidates of one search that are tried."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A plan that did not hold."""

    point: Point | None
    name: str
    tactic: str
    kind: Status
    reason: str
    step_s: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Tried:
    """What a search came by besides the plan that it ended with."""

    counts: dict[str, dict[str, int]]
    """How far the starting points of each tactic came, see `Planning.counts`."""
    failed: dict[Point, PassedOver]
    """Plans that did not hold, and what they failed at."""


@dataclass
class Planning:
    """The search of one run: `first` gives a plan, `other` the next after one that failed."""

    run: Run
    asked: Asked
    facts: ModelFacts | None = None
    consts: Mapping[str, Any] | None = None
    model: Model | None = None
    like: Search | None = None
    """An earlier search of the same program, mesh and cluster, to save time."""
    failures: list[Failure] = field(default_factory=list[Failure])
    seeds: list[tuple[str, Point]] = field(default_factory=list[tuple[str, Point]])
    banned: list[str] = field(default_factory=list[str])
    """Tactics that failed twice for one reason."""
    over: Synthesis | None = None
    """The first plan that needs more memory than a device has: taken where none fits."""
    spare: list[Synthesis] = field(default_factory=list[Synthesis])
    """Plans of little use: taken where none that failed can be fixed."""
    last: Synthesis | None = None
    raised: PlanError | None = None
    proposed: Counter[str] = field(default_factory=Counter[str])
    halving: bool = False
    """Whether the plan at hand splits a part of one that failed: `more` may give a larger one."""
    _held: bool = False
    _steps: Iterator[Synthesis] | None = None

    def first(self) -> Synthesis:
        """A plan that can be written and that fits.

        Raises:
            PlanError, EmitError: there is none; the error of the first that failed.
        """
        if self.model is not None:
            self._look()
            self._ask()
        self._steps = self._search()
        found = next(self._steps, None)
        if found is None:
            raise self._error()
        return found

    def _look(self) -> None:
        """What the search finds by itself, for the model to go on from."""
        try:
            self.last = synthesize(self.asked)
        except PlanError:
            return

    def other(self, made: Synthesis, kind: Status, reason: str) -> Synthesis | None:
        """The next plan, after one that failed later on; None where none is left."""
        assert self._steps is not None
        self._failed(made.found.best, Judgement(kind, reason))
        return next(self._steps, None)

    def more(self) -> Synthesis | None:
        """The next plan that splits more than one that was proved; None where none is left."""
        assert self._steps is not None
        self._held = True
        return next(self._steps, None)

    def _search(self) -> Iterator[Synthesis]:
        for context in range(1, CONTEXTS + 1):
            constraints = self._start()
            afresh = False
            for turn in range(1, ROUNDS + 1):
                known = len(self.failures)
                try:
                    asked = replace(self.asked, constraints=constraints)
                    made = synthesize(asked, seeds=self.seeds, like=self.like)
                except PlanError as error:
                    self._not_found(error)
                else:
                    self.last, self.like = made, made.found.state
                    yield from self._candidates(made, (turn, context), constraints)
                new = self.failures[known:]
                step, more = self._narrowed(constraints, new)
                if more is None or turn == ROUNDS:
                    yield from self._halved(new, (turn, context))
                    if self.halving:
                        return
                if more is None:
                    step, more = self._without_tactics(constraints)
                if more is None and self.model is not None and self._ask():
                    step, more = "starting points that the model proposes", constraints
                afresh = context < CONTEXTS and self._start() != constraints
                if more is None or turn == ROUNDS:
                    step = "a fresh start with what was refused" if afresh else "give up"
                if self.failures:
                    self._tell((turn, context), self.failures[-1], step)
                if more is None or turn == ROUNDS:
                    break
                constraints = more
            if not afresh:
                break
        for made in self.spare:
            if all(f.point != made.found.best.point for f in self.failures):
                yield made
        if self.over is not None and self.asked.constraints.memory_bytes is None:
            made, self.over = self.over, None
            needed = made.found.best.memory_bytes
            has = self.asked.cluster.device.memory_bytes
            self.run.warn(
                f"the plan needs {show_bytes(needed)} per rank and the described device has "
                f"{show_bytes(has)}; no other plan was found"
            )
            yield made

    def _not_found(self, error: PlanError) -> None:
        """A search that ended without a plan; at the very first only memory can be fixed."""
        memory = isinstance(error, ConstraintError) and error.constraint.startswith("memory")
        if not self.failures and not memory:
            raise error
        self.raised = self.raised or error
        kind: Status = "memory" if memory else "lowering"
        self.failures.append(Failure(None, "search", "", kind, str(error)))

    def _candidates(
        self, made: Synthesis, at: tuple[int, int], constraints: Constraints
    ) -> Iterator[Synthesis]:
        """The candidates of a search that nothing speaks against, in order of their price; where
        patches were not proved, those that keep more parameters on every rank come last."""
        judge, known = Judge(made, self.consts, self.facts), len(self.failures)
        gone = {f.point for f in self.failures}
        most = made.found.best.estimate.parameters * ROOM
        ranked = [made.found.best, *made.found.others]
        left = [c for c in ranked if c.point not in gone]
        lean = [c for c in left if c.estimate.parameters <= most][:TRIED]
        yield from self._each(made, lean, at, judge, constraints, known)
        if any(f.kind in ("unproved", "refuted") for f in self.failures if f.point not in gone):
            rest = [c for c in left if c not in lean][:TRIED]
            yield from self._each(made, rest, at, judge, constraints, known)

    def _each(
        self,
        made: Synthesis,
        left: list[Candidate],
        at: tuple[int, int],
        judge: Judge,
        constraints: Constraints,
        known: int,
    ) -> Iterator[Synthesis]:
        """Those of `left` that hold so far. One that is of little use is spared for the end where
        a failure since `known` can be fixed."""
        for index, candidate in enumerate(left):
            obstacle = judge.emitted(candidate)
            if obstacle is not None:
                self._failed(candidate, obstacle)
            elif candidate.over:
                self.over = self.over or self._with(made, candidate)
                return
            else:
                found = self._with(made, candidate)
                if not found.plan.useful and self._mendable(constraints, self.failures[known:]):
                    self.spare.append(found)
                    return
                yield found
            if index + 1 < len(left):
                self._tell(at, self.failures[-1], f"next candidate: {left[index + 1].origin}")

    def _mendable(self, constraints: Constraints, new: list[Failure]) -> bool:
        """Whether there is more to try after these failures than to split nothing."""
        return self._narrowed(constraints, new)[1] is not None or self._parts(new) is not None

    def _with(self, made: Synthesis, candidate: Candidate) -> Synthesis:
        """The same search with another candidate as its choice."""
        if candidate is made.found.best:
            return made
        others = [made.found.best, *(c for c in made.found.others if c is not candidate)]
        found = replace(made.found, best=candidate, others=others)
        plan = describe(found, self.asked, made.one_device)
        return replace(made, found=found, plan=plan, lowered=candidate.lowered)

    def _failed(self, candidate: Candidate, judgement: Judgement) -> None:
        self.failures.append(
            Failure(
                candidate.point,
                candidate.origin,
                candidate.tactic,
                judgement.status,
                judgement.reason,
                candidate.price.seconds,
                candidate.memory_bytes,
            )
        )

    def _tell(self, at: tuple[int, int], failure: Failure, following: str) -> None:
        self.run.emit(
            events.PlanStep(
                round=at[0],
                context=at[1],
                kind=WORDS[failure.kind],
                reason=f"{failure.name}: {failure.reason}",
                next=following,
            )
        )

    def _start(self) -> Constraints:
        """The owner's constraints, and no tactic that failed for a reason already known."""
        own = self.asked.constraints
        return replace(own, tactics=tuple(dict.fromkeys((*own.tactics, *self.banned))))

    def _ban_twice(self) -> list[str]:
        """Ban the tactics whose plans failed as another one had before."""
        seen: set[tuple[str, str]] = set()
        new: list[str] = []
        for failure in self.failures:
            reason = failure.kind, re.sub(r"\d+", "", failure.reason)
            name = failure.tactic
            left = set(TACTICS) - {*self.banned, *self.asked.constraints.tactics, name, "replicate"}
            if reason in seen and name in TACTICS and name not in self.banned and left:
                self.banned.append(name)
                new.append(name)
            seen.add(reason)
        return new

    def _halved(self, new: list[Failure], at: tuple[int, int]) -> Iterator[Synthesis]:
        """Plans that split parts of the first that failed, see `halves`. `halving` stays set where
        one of them was proved."""
        found = self._parts(new)
        if found is None:
            return
        failure, regions = found
        assert failure.point is not None
        assert self.last is not None
        state = self.last.found.state
        assert state is not None
        made, tried, proved = self.last, 0, False
        rules = settle(self.asked.constraints, state.modules, self._tp_size, can_emit)
        judge, asked = Judge(made, self.consts, self.facts), halves(regions.parts)
        every = frozenset[str]().union(*regions.parts)
        split = next(asked, None)
        while split is not None and tried < READINGS:
            name, given = f"{failure.name}, in part", split
            while True:
                whole = every - given
                point = rules.keep(failure.point.styled(dict.fromkeys(whole, "replicate")))
                result = state.score(point, name, failure.tactic)
                more = _met(result, regions.parts) - given if isinstance(result, Refusal) else None
                if not more:
                    break
                given |= more  # what meets a part that is whole is tried with it
            self._held = False
            fits = isinstance(result, Candidate) and not result.over and given < every
            if isinstance(result, Candidate) and fits and not judge.emitted(result):
                self._tell(at, failure, f"with {listed(whole)} whole")
                obstacles = dict.fromkeys(sorted(whole), f"{WORDS[failure.kind]}: {failure.reason}")
                part = self._with(made, result)
                known = part.found.obstacles | obstacles
                tried, self.halving = tried + 1, True
                yield replace(part, found=replace(part.found, obstacles=known))
                proved = proved or self._held
            try:
                split = asked.send(self._held)
            except StopIteration:
                split = None
        self.halving = proved

    def _parts(self, new: list[Failure]) -> tuple[Failure, Regions] | None:
        """The first failure of a plan that splits several parts; which can be left whole."""
        for failure in new:
            regions = None
            if failure.point is not None and failure.point.stream == "R":
                regions = self._regions(failure)
            if regions is not None and failure.kind != "memory" and len(regions.parts) > 1:
                return failure, regions
        return None

    def _regions(self, failure: Failure) -> Regions | None:
        state = self.last.found.state if self.last is not None else None
        if state is None or state.tp is None or failure.point is None:
            return None
        scored = state.seen.get(failure.point)
        if not isinstance(scored, Candidate):
            return None
        split = {path for path, style in failure.point.styles if style != "replicate"}
        return Regions(state.program, scored.lowered, state.modules, split, state.tp)

    @property
    def _tp_size(self) -> int:
        return dict(self.asked.mesh.dims).get("tp", 1)

    def _without_tactics(self, constraints: Constraints) -> tuple[str, Constraints | None]:
        """One more constraint for the search where no failure tells of a place."""
        names = self._ban_twice()
        if names:
            more = replace(
                constraints, tactics=tuple(dict.fromkeys((*constraints.tactics, *names)))
            )
            return "without the tactic " + ", ".join(names), more
        return "", None

    def _narrowed(
        self, constraints: Constraints, new: list[Failure]
    ) -> tuple[str, Constraints | None]:
        """One more constraint for a place that a failure tells of."""
        modules = [m.path for m in self.last.found.modules] if self.last is not None else []
        pinned = {path for path, _ in constraints.pins}
        for failure in new:
            if failure.kind == "memory" and constraints.sequence_parallel is None:
                return "activations split over the sequence", replace(
                    constraints, sequence_parallel=True
                )
            if failure.point is None or failure.kind == "memory":
                continue
            for path in sorted(modules, key=len, reverse=True):
                style = failure.point.style(path)
                if path not in failure.reason or style == "replicate" or path in pinned:
                    continue
                if (path, style) not in constraints.bans:
                    return f"without {path} {style}", constraints.with_constraint(
                        "ban", f"{path}={style}"
                    )
            whole = [p for p in self._reads(failure) if p not in pinned]
            if whole:
                more = tuple((path, "replicate") for path in whole)
                return f"with {', '.join(whole)} whole", replace(
                    constraints, pins=(*constraints.pins, *more)
                )
        return "", None

    def _reads(self, failure: Failure) -> list[str]:
        """The modules that a plan splits, and whose parameters the line reads that it failed at.
        Where it reads none, those in the module whose line it is that are split together with what
        the line works on; where none are, all in that module."""
        at = re.search(r"(\S+):(\d+)\b", failure.reason)
        if at is None or self.last is None or failure.point is None:
            return []
        owners = {i.name: i.path.rpartition(".")[0] for i in self.asked.program.inputs}
        nodes = [
            node
            for _, node in self.asked.program.walk()
            if str(node.source.line) == at[2] and _one_file(node.source.file, at[1])
        ]
        read = {_any_layer(owners[v]) for node in nodes for v in node.inputs if v in owners}
        inside = tuple(f"{_any_layer(n.source.module)}." for n in nodes if n.source.module)
        paths = [m.path for m in self.last.found.modules]
        split = {p: _any_layer(p) for p in paths if failure.point.style(p) != "replicate"}
        whole = [p for p, path in split.items() if path in read]
        around = [p for p, path in split.items() if path.startswith(inside)]
        regions = self._regions(failure)
        together = regions.at((at[1], int(at[2]))) if regions is not None else frozenset[str]()
        return whole or [p for p in around if p in together] or around

    def _ask(self) -> bool:
        """Whether the model has starting points that were not tried yet."""
        if self.model is None:
            return False
        from shardproof.agent.llm.dialogue import Read
        from shardproof.agent.llm.proposing import Task, described, priced, propose

        state = self.last.found.state if self.last is not None else prepare(self.asked)
        if state is None or state.tp is None:
            return False
        refused = tuple((f.name, f"{WORDS[f.kind]}: {f.reason}") for f in self.failures[-6:])
        table, obstacles = priced(self.last.found) if self.last is not None else ((), ())
        cluster = described(self.asked.cluster)
        task = Task(
            tuple(state.modules), self.asked.mesh, state.tp, cluster, table, obstacles, refused
        )
        reply = propose(self.model, task)
        if not isinstance(reply, Read):
            self.proposed["model"] += 1
            self.run.warn(f"no proposals: {reply}")
            return False
        for why in reply.value.left_out:
            self.run.warn(f"a proposal of the model is left out: {why}")
        tried = {point for _, point in self.seeds} | {f.point for f in self.failures}
        fresh = [p for p in reply.value.points if p.point not in tried]
        for proposal in reply.value.points:
            self.proposed[f"model: {proposal.tactic}"] += 1
        self.seeds += [(f"model: {p.tactic}", p.point) for p in fresh]
        return bool(fresh)

    def _error(self) -> Exception:
        first = self.failures[0]
        if self.raised is not None and first.point is None:
            return self.raised
        text = first.reason
        tried = len({f.point for f in self.failures if f.point is not None})
        if tried > 1:
            text += f"; {tried} plans were tried"
        if first.kind == "emitter":
            return EmitError(text)
        if first.kind == "memory":
            return ConstraintError(text, "memory", hint="a larger mesh, or a smaller batch")
        return PlanError(text)

    def tried(self, made: Synthesis, proved: bool) -> Tried:
        """What else was looked at; `made` is the plan that it ended with."""
        failed: dict[Point, PassedOver] = {}
        for each in self.failures:
            if each.point is not None:
                why = f"{WORDS[each.kind]}: {each.reason}"
                failed[each.point] = PassedOver(each.name, why, each.step_s, each.memory_bytes)
        return Tried(self.counts(made, proved), failed)

    def counts(self, made: Synthesis, proved: bool) -> dict[str, dict[str, int]]:
        """How far the starting points of each tactic came: proposed, fitted (it keeps every
        constraint), planned, proved and chosen. Only what was verified counts as proved."""
        out: dict[str, Counter[str]] = {}
        for name, start, result in made.found.starts:
            row = out.setdefault(name, Counter())
            row["proposed"] += 1
            row["fitted"] += result.point == start
            row["planned"] += isinstance(result, Candidate)
        judge = Judge(made, self.consts)
        for name, _, result in made.found.starts:
            if name.startswith("model: ") and isinstance(result, Candidate):
                out[name]["proved"] += isinstance(judge(result).verdict, Proof)
        best = made.found.best
        row = out.setdefault(best.tactic, Counter())
        row["chosen"] += 1
        if not best.tactic.startswith("model: "):
            row["proved"] += proved
        if self.proposed["model"]:
            out.setdefault("model", Counter())["proposed"] = self.proposed["model"]
        return {name: {word: row[word] for word in COUNTED} for name, row in sorted(out.items())}


def _one_file(a: str, b: str) -> bool:
    """Whether two names may be of one file, each relative to a folder of its own."""
    return a == b or a.endswith(f"/{b}") or b.endswith(f"/{a}")


def listed(paths: Iterable[str]) -> str:
    """Paths of modules, those of all layers as one, the first few by name."""
    named = list(dict.fromkeys(map(layered, sorted(paths))))
    more = f" and {len(named) - 4} more" if len(named) > 4 else ""
    return ", ".join(named[:4]) + more


def _any_layer(path: str) -> str:
    return re.sub(r"\.\d+(?=\.|$)", ".*", path)


COUNTED = ("proposed", "fitted", "planned", "proved", "chosen")


def _met(refused: Refusal, parts: Iterable[frozenset[str]]) -> frozenset[str]:
    """The parts that an op reads which is refused where some of them are whole."""
    at = refused.makers | {refused.module}
    return frozenset[str]().union(*(part for part in parts if at & part))
