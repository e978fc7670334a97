"""The road of one model: capture, plan, prove, emit, run, report. One phase, one event."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent import events, outdir, summary, verdicts
from agent.errors import Exit, InputError
from agent.execution import proved_again, reason_not_to_run
from agent.machine import peak_memory, versions
from agent.patching.record import describe
from agent.planning import Planning
from agent.repairing import asking
from agent.report import write_report
from agent.report.model import Candidate
from agent.run import Outcome, Phase, Run, completed
from agent.translation.trust import Bound
from synthesis.emit import ModelFacts, Patch, emit, loss_obstacle
from synthesis.emit.guarding import layouts
from synthesis.execute import ExecuteError, collect_facts, execute
from synthesis.hardware import Cluster
from synthesis.plan import to_json as plan_json
from synthesis.planner import Asked, Synthesis, rejected, synthesize
from synthesis.search import axes
from synthesis.wishes import NO_WISHES, Wishes
from verifier.checker import Accepted, Rejected, check
from verifier.frontend.capture import capture
from verifier.frontend.captured import Captured
from verifier.frontend.captured import ModelFacts as CapturedFacts
from verifier.frontend.request import CaptureRequest, InputSpec, read_config
from verifier.ir.jsonio import dumps
from verifier.ir.text import to_text
from verifier.ir.types import Mesh
from verifier.verdict import Counterexample, Proof, Unknown, Verdict
from verifier.verify import verify


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
    arguments: tuple[str, ...] = ()
    wishes: Wishes = NO_WISHES
    llm: str = "none"
    """`none`, `auto` or the name of a model: its proposals become starting points of the search."""

    @property
    def command(self) -> str:
        return shlex.join(("shardproof", *self.arguments))


def request(
    target: str,
    config: Sequence[str],
    inputs: Sequence[str],
    batch: int | None,
    seq: int | None,
    full_depth: bool,
    gradients: bool = True,
) -> CaptureRequest:
    """What to capture, from the words of the command line.

    Raises:
        CaptureError: a word that cannot be read.
    """
    file, fields = read_config(config)
    specs = tuple(InputSpec.parse(text) for text in inputs)
    for name, count in Counter(spec.name for spec in specs).items():
        if count > 1:
            raise InputError(f"input {name!r} is given {count} times", where="--input")
    return CaptureRequest(
        target=target,
        config=fields,
        config_file=file,
        inputs=specs,
        batch=batch,
        seq=seq,
        gradients=gradients,
        full_depth=full_depth,
    )


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


def parallelize(run: Run, job: Job) -> Outcome:
    """Take a model down the whole road.

    Raises:
        ShardproofError, or an error of a lower package that reads as one: nothing was written.
    """
    axes(job.mesh)
    outdir.check_free(job.out, force=job.force)
    captured = captured_in(run, job.request)
    with run.phase("inspect") as phase:
        facts = collect_facts(job.request)
        whole_loss = loss_obstacle(facts)
        phase.summary = f"{len(facts.modules)} modules called"
    if whole_loss:
        run.note(f"the loss stays whole: {whole_loss}")
    made, verdict, counts = settled(run, job, captured, facts, split_loss=whole_loss is None)
    return finish(run, job, captured, facts, made, verdict, counts)


def parallelize_bound(run: Run, job: Job, facts: CapturedFacts, bound: Bound) -> Outcome:
    """Plan and prove a translation that was compared with the code. Its source is not edited:
    what stands in a translation's place there is not what the plan is about.

    Raises:
        ShardproofError, or an error of a lower package that reads as one: nothing was written.
    """
    axes(job.mesh)
    outdir.check_free(job.out, force=job.force)
    captured = Captured(bound.program, bound.consts, facts)
    made, verdict, counts = settled(run, job, captured, None, split_loss=True)
    if isinstance(verdict, Proof):
        verdict = replace(verdict, assumptions=(*verdict.assumptions, *bound.assumptions))
    run.warn("no patch: the plan is proved of a translation, whose source is not edited")
    return finish(run, job, captured, None, made, verdict, counts)


def finish(
    run: Run,
    job: Job,
    captured: Captured,
    facts: ModelFacts | None,
    made: Synthesis,
    verdict: Verdict,
    counts: dict[str, dict[str, int]] | None = None,
) -> Outcome:
    """From a verdict to the out-directory: checked again, written as a patch, tried, reported.

    Without `facts` of the source there is no patch. `counts` say how far each tactic came.
    """
    found = summary.Findings(
        target=job.request.target,
        command=job.command,
        captured=captured,
        cluster=job.cluster,
        plan=made.plan,
        verdict=verdict,
        before=made.baseline,
        after=made.found.best.estimate,
        candidates=[Candidate(name=name, reason=why) for name, why in rejected(made.found)],
        versions=versions(),
        seconds=run.seconds,
    )
    if isinstance(verdict, Proof):
        _check(run, made, verdict, found)
    if isinstance(found.verdict, Proof) and facts is not None:
        _emit(run, job, facts, made, found)
    outcome = verdicts.report(run, found.verdict)
    found.exit_code = int(outcome.exit)
    found.peak_memory = max(peak_memory(), captured.peak_bytes)
    return _write(run, job, found, made, outcome, counts)


def planned(run: Run, job: Job, captured: Captured, split_loss: bool) -> Synthesis:
    """The plan of one search, proved or not."""
    with run.phase("plan") as phase:
        made = synthesize(
            captured.program,
            job.mesh,
            job.cluster,
            kinds(captured),
            split_loss,
            progress=run.note,
            wishes=job.wishes,
        )
        _count(phase, made)
    _chosen(run, made)
    return made


def settled(
    run: Run, job: Job, captured: Captured, facts: ModelFacts | None, split_loss: bool
) -> tuple[Synthesis, Verdict, dict[str, dict[str, int]]]:
    """The first plan that can be written, fits and is proved; the first of all where none is
    proved. With it, how far each tactic came."""
    asked = Asked(captured.program, job.mesh, job.cluster, kinds(captured), split_loss, job.wishes)
    model = asking(run, job.llm)
    try:
        planning = Planning(run, asked, facts, captured.consts, model)
        with run.phase("plan") as phase:
            made = planning.first()
            _count(phase, made)
        _chosen(run, made)
        first = found = made, verified(run, captured, made)
        while not isinstance(found[1], Proof):
            refuted = isinstance(found[1], Counterexample)
            reason = verdicts.message(found[1]).split("\n")[0]
            with run.phase("plan") as phase:
                again = planning.other(found[0], "refuted" if refuted else "unproved", reason)
                phase.summary = "no other plan"
                if again is None:
                    found = first
                    break
                _count(phase, again)
            _chosen(run, again)
            found = again, verified(run, captured, again)
        counts = planning.counts(found[0], isinstance(found[1], Proof))
    finally:
        if model is not None:
            model.close()
    run.emit(events.TacticsCounted(counts=counts))
    return *found, counts


def _count(phase: Phase, made: Synthesis) -> None:
    count = len(made.plan.modules)
    phase.summary = f"{count} modules planned, {made.found.scored} candidates priced"
    phase.facts["candidates"] = made.found.scored


def _chosen(run: Run, made: Synthesis) -> None:
    plan = made.plan
    run.emit(
        events.PlanChosen(
            mesh=dict(plan.mesh.dims),
            strategy=summary.strategy(plan),
            estimates=dict(plan.estimates),
        )
    )


def kinds(captured: Captured) -> dict[str, str]:
    """Class names of modules by path, with one path for all layers of a repeated block."""
    found = {path: module.kind for path, module in captured.facts.modules.items()}
    for group in captured.facts.groups:
        for offset, pattern in enumerate(group.patterns):
            head = f"{group.prefix}.{group.start + offset}"
            found |= {
                pattern + path.removeprefix(head): module.kind
                for path, module in captured.facts.modules.items()
                if path == head or path.startswith(head + ".")
            }
    return found


def verified(run: Run, captured: Captured, made: Synthesis) -> Verdict:
    with run.phase("verify") as phase:
        verdict = verify(
            made.sequential,
            made.lowered.program,
            made.lowered.contract,
            consts=captured.consts,
            fixes=True,
        )
        phase.summary = verdicts.word(verdict)
        phase.facts.update(verdict.stats)
    return verdict


def _check(run: Run, made: Synthesis, proof: Proof, found: summary.Findings) -> None:
    """The second opinion. A certificate that it rejects is no proof."""
    with run.phase("check") as phase:
        lowered = made.lowered
        result = check(proof.certificate, made.sequential, lowered.program, lowered.contract)
        match result:
            case Accepted(claims=claims):
                phase.summary = f"certificate accepted, {claims} claims"
            case Rejected(reason=reason, where=where):
                phase.summary = "certificate rejected"
                found.verdict = Unknown(f"the checker rejects the certificate: {reason} ({where})")
    found.checked, found.checked_s = result, run.seconds["check"]


def _emit(run: Run, job: Job, facts: ModelFacts, made: Synthesis, found: summary.Findings) -> None:
    """Write the proved plan as a patch and try it. What fails to run as proved does not leave."""
    with run.phase("emit") as phase:
        _same_code(found, facts)
        lowered = made.lowered
        watched = layouts(lowered.program, lowered.contract) if job.guard else None
        found.patch = emit(facts, made.plan, layouts=watched)
        added = sum(
            line.startswith("+") and not line.startswith("+++")
            for line in found.patch.diff.split("\n")
        )
        phase.summary = f"{added} lines added, git apply --check passes"
    found.run_note = reason_not_to_run(job.execute, found.captured, made.plan)
    if found.run_note:
        run.warn(found.run_note)
        return
    with run.phase("run") as phase:
        try:
            ran = execute(job.request, found.patch, made.plan)
        except ExecuteError as error:
            found.verdict = Unknown(f"the plan is proved, but its patch did not run: {error}")
            phase.summary = "no result"
        else:
            found.ran = ran
            phase.summary = f"{ran.ranks} processes against one, {len(ran.differences)} tensors"
            if not ran.max_rel_diff <= found.tolerance:
                worst = max(ran.differences, key=lambda d: d.relative)
                found.verdict = Unknown(
                    f"the plan is proved, but its patch differs from one process: {worst.kind} "
                    f"{worst.name} by {worst.relative:.1e}, tolerance {found.tolerance:.0e}"
                )
    if found.ran is not None:
        run.emit(
            events.Executed(
                processes=found.ran.ranks,
                agrees=found.ran.max_rel_diff <= found.tolerance,
                largest_relative_difference=found.ran.max_rel_diff,
                tolerance=found.tolerance,
            )
        )
    if isinstance(found.verdict, Proof) and made.plan.tp_size > 1:
        _reprove(run, job, made, found, found.patch)
    if not isinstance(found.verdict, Proof):
        found.patch = None


def _reprove(run: Run, job: Job, made: Synthesis, found: summary.Findings, patch: Patch) -> None:
    """Prove the patch itself. Only a difference speaks against it."""
    with run.phase("reprove") as phase:
        again, found.again = proved_again(job.request, patch, made.plan)
        phase.summary = found.again
        if isinstance(again, Counterexample):
            found.verdict = Unknown(
                f"the plan is proved, but {found.again}",
                again.location,
                again.wrong_outputs,
                stats=again.stats,
            )
    if not isinstance(again, Proof):
        run.warn(found.again)


def _write(
    run: Run,
    job: Job,
    found: summary.Findings,
    made: Synthesis,
    outcome: Outcome,
    counts: dict[str, dict[str, int]] | None,
) -> Outcome:
    """The out-directory, whole or not at all."""
    lowered, verdict = made.lowered, found.verdict
    with run.phase("report"), outdir.staged(job.out, force=job.force) as out:
        out.write("plan.json", plan_json(made.plan))
        if counts is not None:
            out.write("tactics.json", json.dumps(counts, indent=1) + "\n")
        out.write("program.json", dumps(made.sequential))
        out.write("distributed.json", dumps(lowered.program))
        out.write("contract.json", json.dumps(lowered.contract.to_json(), indent=1) + "\n")
        claims: dict[str, list[str]] = {}
        if isinstance(verdict, Proof):
            text = json.dumps(verdict.certificate, separators=(",", ":")) + "\n"
            found.certificate_sha256 = hashlib.sha256(text.encode()).hexdigest()
            out.write("certificate.json", text)
            claims = {"scope": list(verdict.scope), "assumptions": list(verdict.assumptions)}
        if found.patch is not None:
            out.write("patch.diff", found.patch.diff)
        write_report(summary.build(found), out.staging)
        outcome = replace(
            outcome,
            directory=str(job.out),
            report=str(job.out / "report.html"),
            answer=_answer(job, found),
        )
        lines = [event.model_dump_json() for event in (*run.seen, completed(run, outcome))]
        out.write("events.jsonl", "\n".join(lines) + "\n")
        noted = {"patch": _noted(found)} if found.patch is not None else {}
        out.seal({"command": job.command, "verdict": outcome.verdict, **claims, **noted})
    run.emit(events.Written(directory=outcome.directory, report=outcome.report))
    return outcome


def _noted(found: summary.Findings) -> dict[str, object]:
    """What `apply` must know of the patch: its files before and after, and what else was proved."""
    assert found.patch is not None
    files = [f for f in found.captured.facts.files if f.location]
    roots = [
        Path(f.location.removesuffix(path))
        for path in found.patch.files
        for f in files
        if f.location.endswith(f"/{path}")
    ]
    sources = {
        Path(f.location).relative_to(roots[0]).as_posix(): f.sha256
        for f in files
        if roots and Path(f.location).is_relative_to(roots[0])
    }
    return describe(found.patch.files, sources, isinstance(found.verdict, Proof))


def _same_code(found: summary.Findings, facts: ModelFacts) -> None:
    """Raise InputError where the owner's file is no longer what was captured."""
    for file in found.captured.facts.files:
        if facts.file is None or not file.location:
            continue
        place = Path(file.location)
        if not place.is_file() or hashlib.sha256(place.read_bytes()).hexdigest() != file.sha256:
            raise InputError(
                "the file changed while it was planned", where=file.location, hint="run it again"
            )


def _answer(job: Job, found: summary.Findings) -> str:
    """What a person reads last."""
    lines = [f"{verdicts.word(found.verdict)}: {job.request.target} on {job.mesh}"]
    if found.ran is not None:
        lines.append(
            f"largest relative difference: {found.ran.max_rel_diff:.2e} "
            f"({found.ran.ranks} processes against one, float64)"
        )
    if found.patch is not None:
        lines.append(f"patch: {job.out / 'patch.diff'}")
    lines.append(f"report: {job.out / 'report.html'}")
    return "\n".join(lines)
