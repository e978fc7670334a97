"""From a verdict to the out-directory: checked again, written as a patch, tried, reported."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shardproof.agent.chat.state import Spent
from shardproof.agent.patching.record import describe
from shardproof.agent.pipeline.launching import asked_of, launch
from shardproof.agent.pipeline.writing import Written, told, write
from shardproof.agent.report import render_html, render_markdown, summary
from shardproof.agent.run import events, outdir
from shardproof.agent.run.errors import Exit
from shardproof.agent.run.machine import peak_memory, versions
from shardproof.agent.run.run import Outcome, Run, completed
from shardproof.agent.training import strategy
from shardproof.agent.verdict import verdicts
from shardproof.agent.verdict.certificates import answers, certificate_text, second
from shardproof.synthesis.emit import ModelFacts, Patch
from shardproof.synthesis.emit.emit import as_written
from shardproof.synthesis.emit.launcher import FILE as LAUNCHER
from shardproof.synthesis.emit.tp_plan import tp_plan
from shardproof.synthesis.execute.run.running import PARAMETERS, PROCESSES
from shardproof.synthesis.frontends.torch.captured import Captured
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.planner.cost import Estimate
from shardproof.synthesis.planner.dialects import TRANSFORMERS
from shardproof.synthesis.planner.judging import passed_over
from shardproof.synthesis.planner.plan import Plan, to_json as plan_json
from shardproof.synthesis.planner.planner import Synthesis
from shardproof.synthesis.strategy.certificate import FILE as STRATEGY
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.jsonio import dumps
from shardproof.verifier.verdict import Proof, Unknown, Verdict

if TYPE_CHECKING:
    from shardproof.agent.pipeline.pipeline import Job
    from shardproof.agent.pipeline.planning import Tried

BYTES = 4 << 30
"""A run of more on this machine is tried only where that is asked for."""
ENOUGH = 1 << 30
"""Bytes that a run takes where it can do with fewer sequences than are planned."""


def finish(
    run: Run,
    job: Job,
    captured: Captured,
    facts: ModelFacts | None,
    made: Synthesis,
    verdict: Verdict,
    tried: Tried | None = None,
    spent: Spent | None = None,
    written: Written | None = None,
) -> Outcome:
    """From a verdict to the out-directory: a patch, read again, checked, run, reported.

    `verdict` is that on the plan; where there is a patch, that on the patch counts. Without `facts`
    of the source there is none. `tried` is what else the search looked at; `spent` what a
    language model took, by default what the events of this run say.
    """
    if written is None and isinstance(verdict, Proof) and facts is not None:
        written = write(run, job, captured, facts, made)
    if written is not None:
        made, verdict = written.made, written.verdict
    if job.launched is not None and facts is not None:
        made = replace(made, plan=replace(made.plan, stages=asked_of(job, facts).cut.stages))
    found = summary.Findings(
        target=job.request.target,
        command=job.command,
        captured=captured,
        cluster=job.cluster,
        plan=made.plan,
        verdict=verdict,
        before=made.one_device,
        after=made.found.best.price,
        stats=verdict.stats,
        candidates=passed_over(made, tried.failed if tried else {}),
        configuration=strategy.told(job.choice, job.tokens) if job.choice else None,
        versions=versions(),
        seconds=run.seconds,
        model=summary.model_use(spent or summary.spent_in(run.seen)),
    )
    if written is not None:
        found.again = told(written.reading, written.judged)
        found.read = written.judged if written.reading is not None else None
    judged = _judged(made, written)
    if isinstance(verdict, Proof):
        found.verdict, found.checked = second(run, verdict, judged, answers())
        found.checked_s = run.seconds["check"]
    if isinstance(found.verdict, Proof) and facts and made.plan.dialect == TRANSFORMERS.name:
        from shardproof.agent.pipeline.loaded import loaded

        rules = tp_plan(facts, as_written(facts, made.plan))
        found.verdict = loaded(run, job.asked, rules, found.verdict, captured.facts.param_count)
    if isinstance(found.verdict, Proof) and written is not None:
        found.patch = written.patch
        _try(run, job, made, found, written.patch)
    if found.patch is not None and facts is not None and job.asked.launcher:
        reason = found.run_note if found.ran is None else ""
        found.launcher = launch(run, job, captured, facts, made.plan, found.patch, reason)
    if isinstance(found.verdict, Proof):
        found.verdict = replace(found.verdict, assumptions=summary.assumptions(found))
    outcome = verdicts.report(run, found.verdict, patch=found.patch_standing)
    if job.asked.require_useful and outcome.exit is Exit.PROVED and not made.plan.useful:
        outcome = replace(outcome, exit=Exit.NOTHING)
    if found.launcher is not None and found.launcher.verdict != "proved":
        outcome = replace(outcome, exit=Exit.NOT_PROVED)
    found.exit_code = int(outcome.exit)
    found.peak_memory = max(peak_memory(), captured.peak_bytes)
    return _write(run, job, found, judged, outcome, tried)


def _judged(made: Synthesis, written: Written | None) -> Problem:
    """The programs that a verdict is on: read from the patch; without one, those of the plan."""
    reading = written.reading if written is not None else None
    if reading is None:
        return Problem(made.found.program, made.lowered.program, made.lowered.contract)
    return Problem(made.sequential, reading.program, reading.contract)


def _try(run: Run, job: Job, made: Synthesis, found: summary.Findings, patch: Patch) -> None:
    """Run the patch on local processes. What fails to run as proved does not leave."""
    asked, needed = small(job.request, made.plan, made.baseline, made.found.best.estimate)
    found.run_note = reason_not_to_run(job.asked.run, found.captured, made.plan, needed)
    if found.run_note:
        run.warn(found.run_note)
        return
    from shardproof.agent.pipeline.patch_run import execute
    from shardproof.agent.verdict import real_run
    from shardproof.synthesis.execute.run.launcher import LaunchError

    facts = found.captured.facts
    with run.phase("run") as phase:
        try:
            ran = execute(
                asked, patch, made.plan, facts.inputs, facts.train, parameters=facts.param_count
            )
        except LaunchError as problem:
            found.verdict = Unknown(f"the patch is proved, but did not run: {problem}")
            phase.summary = "no result"
        else:
            found.verdict = real_run.judged(found.verdict, ran, made.plan.mesh, "the patch", True)
            phase.summary = real_run.summary(ran)
            found.ran = ran if ran.failed is None and not ran.unlike else None
            if asked.batch != job.request.batch:
                found.run_note = f"run on {asked.batch} of {job.request.batch:,} sequences"
                phase.summary += f", {found.run_note}"
            real_run.told(run, ran, made.plan.mesh)
    if not isinstance(found.verdict, Proof):
        found.patch = None


def reason_not_to_run(asked: bool | None, captured: Captured, plan: Plan, needed: float = 0) -> str:
    """Empty where the patch is to be run, else why it is not. `needed`: bytes on this machine."""
    if captured.facts.draws and plan.data_size > 1:
        ranks = " and ".join(plan.data_dims)
        return f"the patch was not run: its {ranks} ranks draw random numbers of their own"
    if asked is not None:
        return "" if asked else "the patch was not run: --no-run"
    if captured.facts.param_count > PARAMETERS:
        return f"the patch was not run: more than {PARAMETERS:,} parameters; --run insists"
    if plan.mesh.size > PROCESSES:
        return f"the patch was not run: more than {PROCESSES} processes; --run insists"
    if needed > BYTES:
        return f"the patch was not run: it takes about {needed / 1e9:.0f} GB here; --run insists"
    return ""


def small(
    request: CaptureRequest, plan: Plan, whole: Estimate, rank: Estimate
) -> tuple[CaptureRequest, float]:
    """What to run, and the bytes it takes here in float64: with fewer sequences where the batch is
    ours to choose and that of the plan is large. `whole` and `rank` are of the captured batch.
    """
    wide = 8 / (4 if request.dtype in ("", "f32") else 2)
    states = wide * max(e.parameters + e.gradients for e in (whole, rank)) * plan.mesh.size
    each = wide * max(whole.activations, rank.activations * plan.mesh.size)
    batch, least = request.batch or 1, plan.mesh.size
    share = batch
    while states + each * share / batch > ENOUGH and share % 2 == 0 and share // 2 % least == 0:
        share //= 2
    smaller = request if request.batch is None else replace(request, batch=share)
    return smaller, states + each * share / batch


def _write(
    run: Run,
    job: Job,
    found: summary.Findings,
    judged: Problem,
    outcome: Outcome,
    tried: Tried | None,
) -> Outcome:
    """The out-directory, whole or not at all."""
    verdict = found.verdict
    with run.phase("report"), outdir.staged(job.out, force=job.asked.force) as out:
        out.write("plan.json", plan_json(found.plan))
        if job.choice is not None:
            out.write(STRATEGY, strategy.strategy_json(job.choice, job.tokens))
            out.write("timeline.json", strategy.timeline_json(job.choice))
        if tried is not None:
            out.write("tactics.json", json.dumps(tried.counts, indent=1) + "\n")
        out.write("program.json", dumps(judged.sequential))
        out.write("distributed.json", dumps(judged.distributed))
        out.write("contract.json", json.dumps(judged.contract.to_json(), indent=1) + "\n")
        if isinstance(verdict, Proof):
            text = certificate_text(verdict.certificate)
            found.certificate_sha256 = hashlib.sha256(text.encode()).hexdigest()
            out.write("certificate.json", text)
        if found.patch is not None:
            out.write("patch.diff", found.patch.diff)
        if found.launcher is not None and found.launcher.text:
            out.write(LAUNCHER, found.launcher.text)
        page = summary.build(found)
        out.write("report.md", render_markdown(page))
        out.write("report.html", render_html(page))
        outcome = replace(
            outcome,
            directory=str(job.out),
            report=str(job.out / "report.html"),
            answer=_answer(job, found),
        )
        lines = [event.model_dump_json() for event in (*run.seen, completed(run, outcome))]
        out.write("events.jsonl", "\n".join(lines) + "\n")
        noted = {"patch": _noted(found)} if found.patch is not None else {}
        inputs = {"inputs": job.inputs} if job.inputs else {}
        recorded = {
            "command": job.command,
            "verdict": outcome.verdict,
            "request": job.request.to_json(),
            "assumptions": list(summary.assumptions(found)),
        }
        out.seal({**recorded, **inputs, **noted})
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
    return describe(
        found.patch.files,
        sources,
        isinstance(found.verdict, Proof),
        read=found.patch.diff if isinstance(found.read, Proof) else "",
        function=found.patch.function,
    )


def _answer(job: Job, found: summary.Findings) -> str:
    """What a person reads last."""
    lines = [f"{verdicts.word(found.verdict)}: {job.request.target} on {job.mesh}"]
    if found.ran is not None:
        lines.append(
            f"largest relative difference: {found.ran.largest:.2e} "
            f"({found.ran.ranks} processes against one, {found.ran.dtype})"
        )
    standing = found.patch_standing
    lines += [f"patch: {standing}"] if standing else []
    if found.patch is not None:
        lines.append(f"diff: {job.out / 'patch.diff'}")
    if found.launcher is not None:
        lines.append(f"launcher: {found.launcher.standing}")
        lines += [f"launch: {found.launcher.launch}"] if found.launcher.launch else []
    lines.append(f"report: {job.out / 'report.html'}")
    if not found.plan.useful:
        lines.append(f"not useful: shards {summary.sharded(found.plan)}")
    return "\n".join(lines)
