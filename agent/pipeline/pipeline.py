"""The road of one model: capture, plan, prove, emit, run, report. One phase, one event."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from shardproof.agent.cli.options import Wanted
from shardproof.agent.pipeline.finishing import finish
from shardproof.agent.pipeline.planning import Planning, Tried
from shardproof.agent.pipeline.writing import Written, write
from shardproof.agent.repair.repairing import asking
from shardproof.agent.report import summary
from shardproof.agent.run import events, outdir
from shardproof.agent.run.errors import Exit
from shardproof.agent.run.run import Outcome, Phase, Run
from shardproof.agent.training import strategy as strategies
from shardproof.agent.translation.trust import Bound
from shardproof.agent.verdict import verdicts
from shardproof.synthesis.emit import ModelFacts, loss_obstacle
from shardproof.synthesis.execute.job import collect_facts
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.captured import Captured, ModelFacts as CapturedFacts
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.hardware import Cluster
from shardproof.synthesis.planner.constraints import NO_WISHES, Wishes
from shardproof.synthesis.planner.describe import left_whole
from shardproof.synthesis.planner.plan import Plan
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.synthesis.planner.scoring import Needs, as_captured
from shardproof.synthesis.planner.search import axes
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.strategy.choice import Choice
from shardproof.synthesis.strategy.shape import mismatch
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.parser import to_text
from shardproof.verifier.verdict import Counterexample, Proof, Verdict


@dataclass(frozen=True)
class Job:
    """What `parallelize` was asked for."""

    request: CaptureRequest
    mesh: Mesh
    cluster: Cluster
    out: Path
    execute: bool | None = None
    """Whether to run the patch; None: where the model is small enough."""
    force: bool = False
    guard: bool = False
    """Whether the patch starts the guard, with the layouts of the plan."""
    inline: bool = False
    """Whether definitions are pasted into the patch instead of imported."""
    known_ops: Path | None = None
    """A folder where those who read patches of one model leave what ops give, for the next."""
    arguments: tuple[str, ...] = ()
    wishes: Wishes = NO_WISHES
    llm: str = "none"
    """`none`, `auto` or the name of a model: its proposals become starting points of the search."""
    wanted: Wanted = field(default_factory=Wanted)
    """Tokens and dtype that the mesh is priced for."""
    choice: Choice | None = None
    """The whole configuration and its price, where the model has one."""
    tokens: str = ""
    """For which tokens it is priced, in words."""
    inputs: str = ""
    """A hash of all that the result depends on; the out-directory records it."""

    @property
    def command(self) -> str:
        return shlex.join(("shardproof", *self.arguments))


def show_program(run: Run, asked: CaptureRequest) -> Outcome:
    """Capture a model and answer with its program as text."""
    captured = captured_in(run, asked)
    return Outcome(Exit.PROVED, answer=to_text(captured.program).rstrip("\n"))


def captured_in(run: Run, asked: CaptureRequest) -> Captured:
    """Capture in a phase of its own."""
    with run.phase("capture") as phase:
        captured = capture(asked, run.note)
        program, facts = captured.program, captured.facts
        grads = sum(o.role == "grad" for o in program.outputs)
        layers = "".join(f", {g.count} x {g.pattern()}" for g in facts.groups)
        phase.summary = (
            f"{facts.class_name}: {facts.param_count:,} parameters, "
            f"{sum(1 for _ in program.walk())} ops, {grads} gradients{layers}"
        )
        phase.facts.update(captured.timings)
        phase.facts["peak_bytes"] = captured.peak_bytes
    return captured


@dataclass(frozen=True)
class Model:
    """A model as it was captured, and what its source is."""

    captured: Captured
    facts: ModelFacts


def model_in(run: Run, asked: CaptureRequest, captured: Captured | None = None) -> Model:
    """Capture a model and look at its modules: all of the road that does not depend on a mesh.
    `captured` is that of the same request, from before."""
    captured = captured or captured_in(run, asked)
    with run.phase("inspect") as phase:
        facts = collect_facts(asked)
        phase.summary = f"{len(facts.modules)} modules called"
    return Model(captured, facts)


def parallelize(
    run: Run, job: Job, take: Callable[[Run, CaptureRequest], Model] = model_in
) -> Outcome:
    """Take a model down the whole road. `take` gives the model: captured now, or before.

    Raises:
        ShardproofError, or an error of a lower package that reads as one: nothing was written.
    """
    axes(job.mesh)
    outdir.check_free(job.out, force=job.force)
    model = take(run, job.request)
    captured, facts = model.captured, model.facts
    whole_loss = loss_obstacle(facts)
    if whole_loss:
        run.note(f"the loss is not vocabulary-parallel: {whole_loss}")
    chosen_before = job.choice is not None
    job, needs = _configured(job, captured)
    found = settled(run, job, captured, facts, split_loss=whole_loss is None, needs=needs)
    plan = found.made.plan
    job = _priced(run, job, captured, plan, given=not chosen_before)
    _tell_useless(run, found)
    return finish(
        run, job, captured, facts, found.made, found.verdict, found.tried, written=found.written
    )


def _tell_useless(run: Run, found: "Settled") -> None:
    """Warn of a plan that splits less than half of what the mesh could split, and say why."""
    plan = found.made.plan
    if plan.tp is None or plan.useful:
        return
    if all(m.style == "replicate" for m in plan.modules):
        said = "nothing is sharded: every rank computes the same"
    else:
        said = f"{plan.estimates['split_share']:.0%} of the shardable parameters are sharded"
    kept = left_whole(found.made.found, plan.tp, plan.tp_size)
    failed = found.tried.failed.values() if found.tried is not None else ()
    why = next((f"; a plan that shards more was {f.why}" for f in failed), "")
    module = f"; {kept[0].path or 'the model'} is replicated: {kept[1]}" if kept is not None else ""
    run.warn(f"not useful: over {plan.tp}={plan.tp_size} {said}{module}{why}")


def _configured(job: Job, captured: Captured) -> tuple[Job, Needs]:
    """The job with the configuration of its mesh, and what plans need in that. A limit that the
    owner sets for a mesh is one of the program as it is captured."""
    given = job.choice is None
    if given:
        sizes = dict(job.mesh.dims)
        found = strategies.given(job.wanted, captured, sizes.get("dp", 1), sizes.get("tp", 1))
        if found is not None:
            job = replace(job, choice=found[0], tokens=found[1])
    choice = job.choice
    if choice is None or (given and job.wishes.memory_bytes is not None):
        return job, as_captured
    if mismatch(choice.space.model, captured.facts.param_count):
        return job, as_captured
    return job, strategies.needs(choice)


def _priced(run: Run, job: Job, captured: Captured, plan: Plan, *, given: bool) -> Job:
    """The job with the price of its configuration, as the plan uses it, said for which tokens."""
    before = choice = job.choice
    said = job.tokens
    if choice is None:
        if job.request.seq is None and job.request.target.startswith("hf:"):
            shape = " x ".join(map(str, strategies.tokens_of(captured)))
            run.warn(f"planned for {shape or 'few'} tokens; --batch and --seq name others")
        return job
    off = mismatch(choice.space.model, captured.facts.param_count)
    if off:
        run.warn(f"the price is of another model: {off}")
    used = (choice.emitted or choice.best).plan
    proved = strategies.tokens_of(captured)
    if proved != (used.dp * used.micro_batch, used.seq):
        note = f"layouts are planned and proved at {' x '.join(map(str, proved))} tokens"
        said = f"{said}; {note}"
        if not given:
            run.warn(f"priced for {said}")
    choice = choice.with_sequence(split=plan.sequence_parallel)
    if given:
        choice = choice.compared()
        if choice.quicker is not None:
            run.warn(strategies.slowed(choice))
    if given or choice is not before:
        run.emit(strategies.event_of(choice, said))
    return replace(job, choice=choice, tokens=said)


def parallelize_bound(run: Run, job: Job, facts: CapturedFacts, bound: Bound) -> Outcome:
    """Plan and prove a translation that was compared with the code. Its source is not edited:
    what stands in a translation's place there is not what the plan is about.

    Raises:
        ShardproofError, or an error of a lower package that reads as one: nothing was written.
    """
    axes(job.mesh)
    outdir.check_free(job.out, force=job.force)
    captured = Captured(bound.program, bound.consts, facts)
    found = settled(run, job, captured, None, split_loss=True)
    verdict = found.verdict
    if isinstance(verdict, Proof):
        verdict = replace(verdict, assumptions=(*verdict.assumptions, *bound.assumptions))
    run.warn("no patch: the plan is proved of a translation, whose source is not edited")
    return finish(run, job, captured, None, found.made, verdict, found.tried)


def asked_in(job: Job, captured: Captured, split_loss: bool, needs: Needs = as_captured) -> Asked:
    """What a plan for the mesh of the job is asked for."""
    program, named = captured.program, kinds(captured)
    return Asked(program, job.mesh, job.cluster, named, split_loss, job.wishes, needs)


def planned(run: Run, job: Job, captured: Captured, split_loss: bool) -> Synthesis:
    """The plan of one search, proved or not."""
    with run.phase("plan") as phase:
        made = synthesize(asked_in(job, captured, split_loss), progress=run.note)
        priced(phase, made)
    chosen(run, made.plan)
    return made


@dataclass(frozen=True)
class Settled:
    """A plan, and how far it came."""

    made: Synthesis
    verdict: Verdict
    """On the plan."""
    written: Written | None = None
    """Its patch, with the verdict on that."""
    tried: Tried | None = None
    """What else the search looked at."""

    @property
    def word(self) -> Verdict:
        """What counts: the verdict on the patch, where there is one."""
        return self.verdict if self.written is None else self.written.verdict


def settled(
    run: Run,
    job: Job,
    captured: Captured,
    facts: ModelFacts | None,
    split_loss: bool,
    needs: Needs = as_captured,
) -> Settled:
    """The first plan that fits and whose patch is proved; the first of all where none is. `needs`
    says what is held against the memory that there is."""
    asked = asked_in(job, captured, split_loss, needs)
    model = asking(run, job.llm)
    try:
        planning = Planning(run, asked, facts, captured.consts, model)
        with run.phase("plan") as phase:
            made = planning.first()
            priced(phase, made)
        chosen(run, made.plan)
        first = found = _judged(run, job, captured, facts, made)
        while not isinstance(found.word, Proof):
            refuted = isinstance(found.verdict, Counterexample)
            reason = verdicts.message(found.word).split("\n")[0]
            with run.phase("plan") as phase:
                again = planning.other(found.made, "refuted" if refuted else "unproved", reason)
                phase.summary = "no other plan"
                if again is None:
                    found = first
                    break
                priced(phase, again)
            chosen(run, again.plan)
            found = _judged(run, job, captured, facts, again)
        tried = planning.tried(found.made, isinstance(found.word, Proof))
    finally:
        if model is not None:
            model.close()
    run.emit(events.TacticsCounted(counts=tried.counts))
    return replace(found, tried=tried)


def _judged(
    run: Run, job: Job, captured: Captured, facts: ModelFacts | None, made: Synthesis
) -> Settled:
    """The verdict on a plan; where it is proved and can be written, that on its patch too."""
    verdict = verified(run, captured, made)
    if facts is None or not isinstance(verdict, Proof):
        return Settled(made, verdict)
    return Settled(made, verdict, write(run, job, captured, facts, made))


def priced(phase: Phase, made: Synthesis) -> None:
    """Say in a phase how far a search came."""
    count = len(made.plan.modules)
    phase.summary = f"{count} modules planned, {made.found.scored} candidates priced"
    phase.facts["candidates"] = made.found.scored


def chosen(run: Run, plan: Plan) -> None:
    """Say which plan it is."""
    run.emit(
        events.PlanChosen(
            mesh=dict(plan.mesh.dims),
            strategy=summary.strategy(plan),
            estimates=dict(plan.estimates),
            useful=plan.useful,
        )
    )


def kinds(captured: Captured) -> dict[str, str]:
    """Class names of modules by path, with one path for all layers of a repeated block. Classes
    that are made of one that has styles count as that."""
    found = {path: module.base or module.kind for path, module in captured.facts.modules.items()}
    for group in captured.facts.groups:
        for offset, pattern in enumerate(group.patterns):
            head = f"{group.prefix}.{group.start + offset}"
            found |= {
                pattern + path.removeprefix(head): module.base or module.kind
                for path, module in captured.facts.modules.items()
                if path == head or path.startswith(head + ".")
            }
    return found


def verified(run: Run, captured: Captured, made: Synthesis) -> Verdict:
    with run.phase("verify") as phase:
        verdict = verify(
            Problem(
                made.sequential, made.lowered.program, made.lowered.contract, consts=captured.consts
            ),
            fixes=True,
        )
        phase.summary = verdicts.word(verdict)
        phase.facts.update(verdict.stats)
    return verdict
