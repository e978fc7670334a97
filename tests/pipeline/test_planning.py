"""A plan that does not hold gives way to the next, step by step, and every step is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import cast

import pytest

from shardproof.agent.llm.answers import NoModel
from shardproof.agent.llm.client import Model
from shardproof.agent.pipeline.halving import halves
from shardproof.agent.pipeline.planning import CONTEXTS, ROUNDS, Planning
from shardproof.agent.run import events
from shardproof.agent.run.run import Run
from shardproof.synthesis.emit import EmitError, ModelFacts
from shardproof.synthesis.hardware import Cluster
from shardproof.synthesis.planner import judging
from shardproof.synthesis.planner.assign import PlanError
from shardproof.synthesis.planner.constraints import NO_CONSTRAINTS, ConstraintError, Constraints
from shardproof.synthesis.planner.cost import Estimate
from shardproof.synthesis.planner.judging import passed_over
from shardproof.synthesis.planner.plan import Plan
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.synthesis.planner.regions import Regions
from shardproof.synthesis.planner.scoring import Pricing, StepPrice
from shardproof.verifier.kernel.program.types import Mesh, Source
from tests.llm.scripted import Scripted
from tests.synthesis import decoder

PROGRAM = decoder.decoder(layers=2)


@cache
def alone() -> Synthesis:
    return synthesize(Asked(PROGRAM, Mesh.of(tp=2), decoder.CLUSTER))


@dataclass
class Seen:
    events: list[events.Event] = field(default_factory=list[events.Event])

    def show(self, event: events.Event) -> None:
        self.events.append(event)

    def note(self, doing: str) -> None: ...
    def close(self) -> None: ...

    @property
    def steps(self) -> list[events.PlanStep]:
        return [e for e in self.events if isinstance(e, events.PlanStep)]

    @property
    def warnings(self) -> list[str]:
        return [e.message for e in self.events if isinstance(e, events.Warned)]


@pytest.fixture
def seen() -> Seen:
    return Seen()


def planning(
    seen: Seen,
    constraints: Constraints = NO_CONSTRAINTS,
    cluster: Cluster = decoder.CLUSTER,
    model: Model | None = None,
) -> Planning:
    """With facts of a source that is only ever given to a replaced emitter."""
    asked = replace(alone().asked, constraints=constraints, cluster=cluster)
    like = alone().found.state
    return Planning(Run([seen]), asked, cast(ModelFacts, object()), None, model, like)


@pytest.fixture
def emitter(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Plan], str]], None]:
    """Give the emitter a rule: why it refuses a plan, or nothing."""

    def rule(refuses: Callable[[Plan], str]) -> None:
        def emit(facts: ModelFacts, plan: Plan) -> None:
            why = refuses(plan)
            if why:
                raise EmitError(why)

        monkeypatch.setattr(judging, "emit", emit)

    rule(lambda _: "")
    return rule


Rule = Callable[[Callable[[Plan], str]], None]


def style(plan: Plan, path: str) -> str:
    module = plan.module(path)
    return module.style if module is not None else "replicate"


def test_a_plan_that_holds_is_the_search_s_own(seen: Seen, emitter: Rule) -> None:
    loop = planning(seen)
    made = loop.first()
    assert (
        made.found.best.point
        == synthesize(Asked(PROGRAM, Mesh.of(tp=2), decoder.CLUSTER)).found.best.point
    )
    assert not seen.steps
    counts = loop.counts(made, proved=True)
    assert counts["column_row"] == dict.fromkeys(
        ("proposed", "fitted", "planned", "proved", "chosen"), 1
    )
    assert sum(row["chosen"] for row in counts.values()) == 1
    assert counts["replicate"]["proved"] == 0


def test_what_the_emitter_refuses_is_banned(seen: Seen, emitter: Rule) -> None:
    path = "layers.*.mlp.down"
    emitter(lambda plan: f"{path}: no row here" if style(plan, path) == "row" else "")
    made = planning(seen).first()
    assert style(made.plan, path) != "row"
    assert made.plan.params["head.weight"]["tp"] == "S(0)"
    assert [s.kind for s in seen.steps] == ["refused by the emitter"] * len(seen.steps)
    assert seen.steps[-1].next == f"without {path} row"
    assert all(s.round <= ROUNDS for s in seen.steps)


@pytest.mark.parametrize(
    ("reads", "module", "whole"),
    [
        ("head.weight", "", "head"),
        ("", "layers.0.mlp", "layers.*.mlp.up, layers.*.mlp.down"),
    ],
)
def test_the_place_of_a_line_that_a_plan_failed_at_stays_whole(
    seen: Seen, emitter: Rule, reads: str, module: str, whole: str
) -> None:
    """A plan that splits nothing is not taken before that is tried."""
    params = {i.name for i in PROGRAM.inputs}
    node = next(n for n in PROGRAM.nodes if params.intersection(n.inputs) == {reads} - {""})
    at = Source("model.py", 7, module=module)
    nodes = tuple(replace(n, source=at) if n is node else n for n in PROGRAM.nodes)
    path = whole.rpartition(", ")[2]
    emitter(lambda plan: "" if style(plan, path) == "replicate" else "at model.py:7   mixed")
    loop = planning(seen)
    loop.asked = replace(loop.asked, program=replace(PROGRAM, nodes=nodes))
    made = loop.first()
    assert made.plan.useful
    assert seen.steps[-1].next == f"with {whole} whole"


def test_a_refusal_that_names_nothing_leads_to_the_next_candidate(
    seen: Seen, emitter: Rule
) -> None:
    emitter(lambda plan: "" if plan.sequence_parallel else "git says no")
    made = planning(seen).first()
    assert made.plan.sequence_parallel
    assert seen.steps[0].next == "next candidate: sequence_parallel"


def test_where_nothing_can_be_emitted_the_first_reason_is_told(seen: Seen, emitter: Rule) -> None:
    emitter(lambda _: "no patch at all")
    with pytest.raises(EmitError, match=r"no patch at all; \d+ plans were tried"):
        planning(seen).first()
    assert seen.steps[-1].next == "give up"


def test_the_same_reason_twice_bans_the_tactic(seen: Seen, emitter: Rule) -> None:
    emitter(lambda plan: f"line {len(plan.modules)}: no")
    loop = planning(seen)
    with pytest.raises(EmitError):
        loop.first()
    assert loop.banned == ["sequence_parallel"]
    assert "without the tactic sequence_parallel" in {s.next for s in seen.steps}


def test_after_three_rounds_the_search_starts_afresh(seen: Seen, emitter: Rule) -> None:
    def refuses(plan: Plan) -> str:
        rows = [m.path for m in plan.modules if m.style in ("row", "column")]
        return f"{rows[0]}: no {style(plan, rows[0])}" if rows else "no patch at all"

    emitter(refuses)
    with pytest.raises(EmitError):
        planning(seen).first()
    assert max(s.round for s in seen.steps) == ROUNDS
    assert {s.context for s in seen.steps} == set(range(1, CONTEXTS + 1))
    assert "a fresh start with what was refused" in {s.next for s in seen.steps}
    told = [s.reason for s in seen.steps if s.next.startswith("without")]
    assert len(told) > 1


class Lean(Pricing):
    """An eighth of the memory of the program as it is captured."""

    def one_device(self, cost: Estimate) -> StepPrice:
        found = super().one_device(cost)
        return replace(found, bytes=found.bytes // 8)


def test_memory_is_what_the_configuration_needs(seen: Seen, emitter: Rule) -> None:
    """Of a program that is larger than the device, in micro-batches that are not."""
    cluster = decoder.CLUSTER
    small = replace(cluster, device=replace(cluster.device, memory_bytes=20e3))
    loop = planning(seen, cluster=small)
    loop.asked = replace(loop.asked, pricing=Lean())
    made = loop.first()
    assert made.found.best.estimate.memory_bytes > 20e3 > made.found.best.memory_bytes
    assert not made.plan.sequence_parallel
    assert not seen.steps
    assert not seen.warnings


def test_a_device_that_is_too_small_is_told_and_a_constraint_is_kept(
    seen: Seen, emitter: Rule
) -> None:
    cluster = decoder.CLUSTER
    small = replace(cluster, device=replace(cluster.device, memory_bytes=20e3))
    made = planning(seen, cluster=small).first()
    assert made.found.best.estimate.memory_bytes > 20e3
    assert any("the described device has 20kB" in w for w in seen.warnings)
    assert not seen.steps
    with pytest.raises(ConstraintError, match="memory 20kB: no plan that was found fits"):
        planning(Seen(), NO_CONSTRAINTS.with_constraint("constrain", "memory=20kB")).first()


def test_a_plan_that_is_not_proved_gives_way(seen: Seen, emitter: Rule) -> None:
    loop = planning(seen)
    made = loop.first()
    points = {made.found.best.point}
    while (other := loop.other(made, "unproved", "the walk stops at %3")) is not None:
        assert other.found.best.point not in points
        points.add(other.found.best.point)
        made = other
    assert len(points) > 1
    assert seen.steps[0].kind == "not proved"
    assert len(seen.steps) <= CONTEXTS * ROUNDS * 5


def reply(stream: str = "S(1)", **styles: str) -> str:
    placed = [{"module": path, "style": s} for path, s in styles.items()]
    return json.dumps(
        {
            "proposals": [
                {"tactic": "replicate", "stream": stream, "placements": placed, "reason": "why not"}
            ]
        }
    )


def test_proposals_are_starting_points_that_are_judged_like_any_other(
    seen: Seen, emitter: Rule
) -> None:
    model = Scripted([reply("R", **{"layers.*.mlp.up": "column", "layers.*.mlp.down": "row"})])
    loop = planning(seen, model=model)
    made = loop.first()
    assert "model: replicate" in {name for name, _, _ in made.found.starts}
    assert made.found.best.tactic != "model: replicate"
    counts = loop.counts(made, proved=True)["model: replicate"]
    assert counts == {"proposed": 1, "fitted": 1, "planned": 1, "proved": 1, "chosen": 0}
    user = model.heard[0][1]["content"]
    best = made.found.best
    assert f"column_row: ops {best.estimate.step_s * 1e3:.3f} ms" in user
    assert "80 GB at" in user
    assert "GB/s each between nodes" in user


def test_a_proposal_that_breaks_a_constraint_does_not_fit(seen: Seen, emitter: Rule) -> None:
    constraints = NO_CONSTRAINTS.with_constraint("pin", "head=column")
    loop = planning(seen, constraints, model=Scripted([reply("R", head="replicate")]))
    made = loop.first()
    assert made.found.best.point.style("head") == "column"
    assert loop.counts(made, proved=True)["model: replicate"]["fitted"] == 0


@pytest.mark.parametrize("line", [NoModel("no key"), "no JSON at all"])
def test_without_proposals_the_search_goes_on_and_says_so(
    seen: Seen, emitter: Rule, line: NoModel | str
) -> None:
    made = planning(seen, model=Scripted([line, line])).first()
    assert made.found.best.tactic == "column_row"
    assert len(seen.warnings) == 1
    assert seen.warnings[0].startswith("no proposals: ")


def test_a_wrong_proposal_is_left_out_with_a_word(seen: Seen, emitter: Rule) -> None:
    """and the right one beside it is a starting point all the same."""
    both = json.loads(reply("R", **{"layers.*.mlp.up": "column", "layers.*.mlp.down": "row"}))
    both["proposals"] += json.loads(reply("R", nowhere="column"))["proposals"]
    loop = planning(seen, model=Scripted([json.dumps(both)]))
    assert "model: replicate" in {name for name, _, _ in loop.first().found.starts}
    (warning,) = seen.warnings
    assert "proposals[1].placements[0].module: 'nowhere'" in warning


def test_a_cheaper_plan_that_was_refused_says_by_what(seen: Seen, emitter: Rule) -> None:
    path = "layers.*.mlp.down"
    emitter(lambda plan: f"{path}: no row" if style(plan, path) == "row" else "")
    loop = planning(seen)
    made = loop.first()
    rows = passed_over(made, loop.tried(made, proved=True).failed)
    assert "refused by the emitter: layers.*.mlp.down: no row" in {row.why for row in rows}
    chosen = made.found.best.estimate
    for row in rows:
        if row.step_s is not None and row.step_s < chosen.step_s * 0.99:
            assert "refused by" in row.why or "more of parameters" in row.why, row


def test_constraints_of_the_owner_are_not_bent(seen: Seen, emitter: Rule) -> None:
    with pytest.raises(ConstraintError, match="norm"):
        planning(seen, NO_CONSTRAINTS.with_constraint("pin", "norm=row")).first()
    path = "layers.*.mlp.down"
    emitter(lambda plan: f"{path}: no row" if style(plan, path) == "row" else "")
    loop = planning(seen, NO_CONSTRAINTS.with_constraint("pin", f"{path}=row"))
    with pytest.raises((EmitError, PlanError), match="no row"):
        loop.first()


@pytest.mark.parametrize("count", [2, 3, 5, 8, 13])
def test_one_part_at_fault_is_found_by_halves(count: int) -> None:
    parts = [frozenset({str(n)}) for n in range(count)]
    for fault in range(count):
        looked, asked = halves(parts), 0
        split, held = next(looked), frozenset[str]()
        while split:
            asked, holds = asked + 1, str(fault) not in split
            held = split if holds else held
            try:
                split = looked.send(holds)
            except StopIteration:
                split = frozenset()
        assert held == frozenset().union(*parts) - {str(fault)}
        assert asked <= 2 * (count - 1).bit_length()


@pytest.mark.parametrize("fault", ["layers.*.attn.q", "layers.*.mlp.down", "embed"])
def test_of_a_plan_that_fails_at_no_known_place_the_part_at_fault_stays_whole(
    seen: Seen, emitter: Rule, fault: str
) -> None:
    loop = planning(seen)
    emitter(lambda plan: "differs" if style(plan, fault) != "replicate" else "")
    made: Synthesis | None = loop.first()
    last = made
    while made is not None:
        last = made
        made = loop.more() if loop.halving else None
    assert last is not None
    split = {m.path for m in last.plan.modules}
    assert fault not in split
    assert last.plan.whole_attention == (("layers.*.attn",) if "attn" in fault else ())
    beside = fault.rpartition(".")[0]
    kept = {"layers.*.attn.q", "layers.*.attn.o", "layers.*.mlp.up", "layers.*.mlp.down"}
    assert {p for p in kept if beside not in p or not beside} <= split
    assert "differs" in next(iter(last.found.obstacles.values()))


def test_modules_are_split_together_where_one_takes_what_another_leaves_split() -> None:
    state, best = alone().found.state, alone().found.best
    assert state is not None
    split = {p for p, s in best.point.styles if s != "replicate"}
    parts = Regions(state.program, best.lowered, state.modules, split, "tp").parts
    attention = {f"layers.*.attn.{n}" for n in "qkvo"}
    mlp = {"layers.*.mlp.up", "layers.*.mlp.down"}
    assert attention in parts
    assert any(mlp <= part for part in parts)
    assert not any(part & attention and part & mlp for part in parts)
