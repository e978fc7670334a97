"""The pipeline of one model: capture, plan, emit, read, run, report. One phase, one event."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shardproof.agent.actions.models import Parallelize
from shardproof.agent.actions.words import mesh_for
from shardproof.agent.pipeline import launching
from shardproof.agent.pipeline.finishing import finish
from shardproof.agent.pipeline.planning import Planning, Tried
from shardproof.agent.pipeline.writing import UNDIVIDED, Written, write
from shardproof.agent.report import summary
from shardproof.agent.run import events, outdir
from shardproof.agent.run.errors import Exit
from shardproof.agent.run.run import Outcome, Phase, Run
from shardproof.agent.training import strategy as strategies
from shardproof.agent.verdict import verdicts
from shardproof.synthesis.emit import EmitError, ModelFacts, loss_obstacle
from shardproof.synthesis.execute.job import collect_facts
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.captured import Captured, ModelFacts as CapturedFacts
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.hardware import Cluster, load
from shardproof.synthesis.planner.assign import PlanError
from shardproof.synthesis.planner.constraints import NO_CONSTRAINTS, Constraints
from shardproof.synthesis.planner.plan import Plan
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.synthesis.planner.scoring import CAPTURED as AS_CAPTURED, Pricing
from shardproof.synthesis.planner.search import axes
from shardproof.synthesis.planner.shares import left_whole
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.strategy.choice import Choice
from shardproof.synthesis.strategy.shape import mismatch
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Verdict

if TYPE_CHECKING:
    from shardproof.agent.translation.trust import Bound


@dataclass(frozen=True)
class Job:
    """What `parallelize` was asked for."""

    asked: Parallelize
    request: CaptureRequest
    mesh: Mesh
    """Of the patch."""
    cluster: Cluster
    out: Path
    known_ops: Path | None = None
    """A folder where those who read patches of one model leave what ops give, for the next."""
    constraints: Constraints = NO_CONSTRAINTS
    choice: Choice | None = None
    """The whole configuration and its price, where the model has one."""
    tokens: str = ""
    """For which tokens it is priced, in words."""
    inputs: str = ""
    """A hash of all that the result depends on; the out-directory records it."""
    launched: Mesh | None = None
    """The mesh of the launcher, where that has a pipeline of patched stages."""

    @property
    def command(self) -> str:
        return shlex.join(("shardproof", *self.asked.words()))


def job_of(
    asked: Parallelize, out: Path, request: CaptureRequest | None = None, inputs: str = ""
) -> Job:
    """What the words ask for, written to `out`.

    Raises:
        InputError, CaptureError, HardwareError, ConstraintError: words that cannot be read.
    """
    mesh, launched = launching.within(mesh_for(asked.mesh, asked.gpus), asked.launcher)
    return Job(
        asked.model_copy(update={"out": out}),
        request or asked.request(),
        mesh,
        load(asked.hardware),
        out,
        constraints=asked.constraints().in_dialect(asked.dialect),
        inputs=inputs,
        launched=launched,
    )


def show_program(run: Run, asked: CaptureRequest) -> Outcome:
    """Capture a model and answer with its program as text."""
    from shardproof.verifier.text.parser import to_text

    captured = captured_in(run, asked)
    return Outcome(Exit.PROVED, answer=to_text(captured.program).rstrip("\n"))


FEW_LAYERS = 12
"""Repeated layers, at most, that are captured one by one where no plan is proved of them as one."""


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
    """Capture a model and look at its modules: all of the pipeline that does not depend on a mesh.
    `captured` is that of the same request, from before."""
    captured = captured or captured_in(run, asked)
    with run.phase("inspect") as phase:
        facts = collect_facts(asked)
        phase.summary = f"{len(facts.modules)} modules called"
    return Model(captured, facts)


def parallelize(
    run: Run, job: Job, take: Callable[[Run, CaptureRequest], Model] = model_in
) -> Outcome:
    """Take a model through the whole pipeline. `take` gives the model: captured now, or before.

    Raises:
        ShardproofError, or an error of a lower package that reads as one: nothing was written.
    """
    axes(job.mesh, rows=True)
    outdir.check_free(job.out, force=job.asked.force)
    model = take(run, job.request)
    captured, facts = model.captured, model.facts
    launching.refuse(job, captured, facts)
    whole_loss = loss_obstacle(facts)
    if whole_loss:
        run.note(f"the loss is not vocabulary-parallel: {whole_loss}")
    pricing = _configured(job, captured)
    found = settled(run, job, captured, facts, split_loss=whole_loss is None, pricing=pricing)
    layers = sum(g.count for g in captured.facts.groups)
    if not isinstance(found.verdict, Proof) and 0 < layers <= FEW_LAYERS:
        # What layers leave for their backward is one value on ranks and another on one device.
        apart = replace(job, request=replace(job.request, rolled=False))
        model = take(run, apart.request)
        whole = whole_loss is None
        other = settled(run, apart, model.captured, facts, split_loss=whole, pricing=pricing)
        if isinstance(other.verdict, Proof):
            job, captured, found = apart, model.captured, other
    job = priced_as(run, job, captured, found.made)
    _tell_useless(run, found)
    return finish(
        run, job, captured, facts, found.made, found.verdict, found.tried, written=found.written
    )


def _tell_useless(run: Run, found: Settled) -> None:
    """Warn of a plan that splits less than half of what the mesh could split, and of attention that
    stays whole, and say why."""
    plan = found.made.plan
    if plan.tp is None:
        return
    if plan.whole_attention:
        run.warn(f"attention stays whole: {', '.join(plan.whole_attention)}")
    if plan.useful:
        return
    if all(m.style == "replicate" for m in plan.modules):
        said = "nothing is sharded: every rank computes the same"
    else:
        said = f"{summary.sharded(plan)} are sharded"
    kept = left_whole(found.made.found, plan.tp, plan.tp_size)
    failed = found.tried.failed.values() if found.tried is not None else ()
    why = next((f"; a plan that shards more was {f.why}" for f in failed), "")
    module = f"; {kept[0].path or 'the model'} is replicated: {kept[1]}" if kept is not None else ""
    run.warn(f"not useful: over {plan.tp}={plan.tp_size} {said}{module}{why}")


def _configured(job: Job, captured: Captured) -> Pricing:
    """How the plans of a job are priced, see `strategies.configured`."""
    if job.choice is not None:
        return strategies.Configured(job.choice, job.tokens)
    facts = captured.facts
    if len(facts.tokens) != 2 and not facts.target.startswith("hf:"):
        return AS_CAPTURED  # neither sequences of tokens nor a config of a library: no decoder
    limit = job.constraints.memory_bytes
    return strategies.configured(job.asked, captured, job.launched or job.mesh, limit)


def priced_as(run: Run, job: Job, captured: Captured, made: Synthesis) -> Job:
    """The job with the price of its configuration, as the plan uses it, said for which tokens."""
    pricing, given = made.asked.pricing, job.choice is None
    if not isinstance(pricing, strategies.Configured):
        if job.request.seq is None and job.request.target.startswith("hf:"):
            shape = " x ".join(map(str, captured.facts.tokens))
            run.warn(f"planned for {shape or 'few'} tokens; --batch and --seq name others")
        return job
    off = mismatch(pricing.choice.space.model, captured.facts.param_count)
    if off:
        run.warn(f"the price is of another model: {off}")
    choice, said = pricing.applied(made.found.best), pricing.tokens
    used = (choice.emitted or choice.best).plan
    proved = captured.facts.tokens
    parts = used.micro_batches if job.asked.launcher else 1
    if proved != (used.dp * used.micro_batch * parts, used.seq):
        note = f"layouts are planned and proved at {' x '.join(map(str, proved))} tokens"
        said = f"{said}; {note}"
        if not given:
            run.warn(f"priced for {said}")
    if given:
        choice = choice.compared()
        if slower := strategies.slowed(choice):
            run.warn(slower)
    if given or choice is not job.choice:
        run.emit(strategies.event_of(choice, said))
    return replace(job, choice=choice, tokens=said)


def parallelize_bound(run: Run, job: Job, facts: CapturedFacts, bound: Bound) -> Outcome:
    """Plan and prove a translation that was compared with the code. Its source is not edited:
    what stands in a translation's place there is not what the plan is about.

    Raises:
        ShardproofError, or an error of a lower package that reads as one: nothing was written.
    """
    axes(job.mesh)
    outdir.check_free(job.out, force=job.asked.force)
    captured = Captured(bound.program, bound.consts, facts)
    found = settled(run, job, captured, None, split_loss=True)
    verdict = found.verdict
    if isinstance(verdict, Proof):
        verdict = replace(verdict, assumptions=(*verdict.assumptions, *bound.assumptions))
    run.warn("no patch: the plan is proved of a translation, whose source is not edited")
    return finish(run, job, captured, None, found.made, verdict, found.tried)


def asked_in(
    job: Job, captured: Captured, split_loss: bool, pricing: Pricing = AS_CAPTURED
) -> Asked:
    """What a plan for the mesh of the job is asked for."""
    program, named = captured.program, kinds(captured)
    return Asked(program, job.mesh, job.cluster, named, split_loss, job.constraints, pricing)


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
    """On the patch; on the plan where that is not proved, or has no patch."""
    written: Written | None = None
    """The patch of a plan, if it was written and the fault is not in the plan itself."""
    tried: Tried | None = None
    """What else the search looked at."""


def settled(
    run: Run,
    job: Job,
    captured: Captured,
    facts: ModelFacts | None,
    split_loss: bool,
    pricing: Pricing = AS_CAPTURED,
) -> Settled:
    """The first plan that fits and whose patch is proved; the first of all where none is.

    Raises:
        PlanError: none is found; of a mesh that was chosen, none that splits the sequence is
            proved.
    """
    asked = replace(asked_in(job, captured, split_loss, pricing), patched=facts is not None)
    model = job.asked.asker(run)
    try:
        planning = Planning(run, asked, facts, captured.consts, model)
        with run.phase("plan") as phase:
            made = planning.first()
            priced(phase, made)
        chosen(run, made.plan)
        first = found = _judged(run, job, captured, facts, made)
        proved = found if isinstance(found.verdict, Proof) else None
        while found is not proved or planning.halving:
            refuted = isinstance(found.verdict, Counterexample)
            reason = verdicts.message(found.verdict).split("\n")[0]
            if UNDIVIDED in reason:
                break  # with any plan over dp
            with run.phase("plan") as phase:
                if found is proved:
                    again, phase.summary = planning.more(), "no larger plan"
                else:
                    again = planning.other(found.made, "refuted" if refuted else "unproved", reason)
                    phase.summary = "no other plan"
                if again is None:
                    break
                priced(phase, again)
            chosen(run, again.plan)
            found = _judged(run, job, captured, facts, again)
            proved = found if isinstance(found.verdict, Proof) else proved
        if found is not (proved or first):
            found = proved or first
            chosen(run, found.made.plan)
        if found is not proved and _of_patch(found.made) and job.choice is not None:
            raise PlanError(verdicts.message(found.verdict).split("\n")[0])
        tried = planning.tried(found.made, isinstance(found.verdict, Proof))
    finally:
        if model is not None:
            model.close()
    run.emit(events.TacticsCounted(counts=tried.counts))
    return replace(found, tried=tried)


def _judged(
    run: Run, job: Job, captured: Captured, facts: ModelFacts | None, made: Synthesis
) -> Settled:
    """The verdict on the patch of a plan. The plan is judged where there is no patch, and where the
    patch is not proved, to say which of the two is at fault.

    Raises:
        InputError: the owner's file is no longer what was captured.
        EmitError: a proved plan that cannot be written.
    """
    written, unwritten = None, None
    try:
        written = write(run, job, captured, facts, made) if facts is not None else None
    except EmitError as problem:
        unwritten = problem
    if written is not None and isinstance(written.verdict, Proof):
        return Settled(made, written.verdict, written)
    if _of_patch(made):
        if written is None:
            raise unwritten or EmitError(f"{made.plan.mesh} is written where the source is at hand")
        return Settled(made, written.verdict, written)
    verdict = verified(run, captured, made)
    if not isinstance(verdict, Proof):
        return Settled(made, verdict)
    if unwritten is not None:
        raise unwritten
    return Settled(made, verdict if written is None else written.verdict, written)


def _of_patch(made: Synthesis) -> bool:
    """Whether the mesh has dims that the plan's own program lacks: `cp`, groups of `dp`."""
    return made.plan.mesh != made.lowered.program.mesh


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
                made.found.program,
                made.lowered.program,
                made.lowered.contract,
                consts=captured.consts,
            ),
            fixes=True,
        )
        phase.summary = verdicts.word(verdict)
        phase.facts.update(verdict.stats)
    return verdict
