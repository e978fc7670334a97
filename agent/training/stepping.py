"""`step`: a model's whole training step, planned for a mesh and proved."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shardproof.agent.pipeline.pipeline import captured_in
from shardproof.agent.report.summary import strategy
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.run import Outcome, Run
from shardproof.agent.verdict import verdicts
from shardproof.agent.verdict.certificates import answers, second
from shardproof.synthesis.emit import loss_obstacle
from shardproof.synthesis.execute.job import collect_facts
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.hardware import Cluster
from shardproof.synthesis.planner.planner import Asked, synthesize
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.schedules import Schedule, check_schedule, generate
from shardproof.synthesis.strategy.choice import Choice
from shardproof.synthesis.training.captured import captured_step
from shardproof.synthesis.training.staged import PIPELINE, staged
from shardproof.synthesis.training.step import Step, TrainingError
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.parser import to_text
from shardproof.verifier.verdict import Proof, Unknown

FILES = ("sequential.txt", "distributed.txt", "contract.json", "certificate.json")


@dataclass(frozen=True)
class Job:
    """What `step` was asked for."""

    request: CaptureRequest
    mesh: Mesh
    cluster: Cluster
    micro_batches: int
    out: Path | None = None
    schedule: str = "1f1b"
    """In which order the stages of a pipeline take the micro-batches."""
    choice: Choice | None = None
    """How mesh, micro-batches and schedule were chosen, where they were."""


def prove(run: Run, job: Job) -> Outcome:
    """Capture, plan, cut into stages, put the step around the pass, and prove it.

    Raises:
        InputError: a model without a loss, layers that cannot be cut into the stages asked for, an
            unknown schedule, or an `out` that cannot be written.
    """
    line = _pipeline(job)
    if job.out is not None:
        held = [name for name in FILES if (job.out / name).exists()]
        if held:
            raise InputError(
                "the directory holds a step already",
                where=str(job.out / held[0]),
                hint="name another one, or remove it",
            )
    captured = captured_in(run, job.request)
    with run.phase("plan") as phase:
        split = loss_obstacle(collect_facts(job.request)) is None
        inner = Mesh(tuple(dim for dim in job.mesh.dims if dim[0] != PIPELINE))
        made = synthesize(Asked(captured.program, inner, job.cluster, split_loss=split))
        phase.summary = strategy(made.plan)
    if job.choice is not None and job.choice.emitted is not None:
        taken = job.choice.with_sequence(split=made.found.best.point.stream != "R").emitted
        if taken is not None and taken.plan != job.choice.emitted.plan:
            run.warn(
                "the step was priced with activations split along the sequence; the plan that is "
                f"proved keeps them whole, at {taken.step_s:.3g} s"
            )
    with run.phase("write") as phase:
        try:
            given = made.found.program, made.lowered.program, made.lowered.contract
            if line is not None:
                given = staged(*given, len(line.stages))
            step = _assuming(captured_step(*given, job.micro_batches), captured.assumptions)
        except TrainingError as error:
            raise InputError("no training step", where=job.request.target, got=str(error)) from None
        counts = (sum(1 for _ in p.walk()) for p in (step.sequential, step.distributed))
        phase.summary = f"{job.micro_batches} micro-batches, {' and '.join(map(str, counts))} ops"
    problem = Problem(step.sequential, step.distributed, step.contract)
    with run.phase("verify") as phase:
        verdict = verify(problem)
        phase.facts.update(verdict.stats)
    if line is not None:
        with run.phase("schedule") as phase:
            faults = check_schedule(line)
            phase.summary = f"{line.name}: {len(faults) or 'no'} faults"
            if faults:
                verdict = Unknown(f"the schedule: {faults[0]}")
    verdict, _ = second(run, verdict, problem, answers())
    if job.out is not None:
        _write(job.out, step, verdict.certificate if isinstance(verdict, Proof) else None)
    return verdicts.report(run, verdict)


def _assuming(step: Step, assumptions: Sequence[str]) -> Step:
    """The step, with what capture took for granted among what its contract assumes."""
    more = (*step.contract.assumptions, *assumptions)
    return replace(step, contract=replace(step.contract, assumptions=more))


def _pipeline(job: Job) -> Schedule | None:
    """The order of the stages, where there are several."""
    if PIPELINE not in job.mesh:
        return None
    try:
        return generate(job.schedule, job.mesh[PIPELINE], job.micro_batches)
    except MalformedError as error:
        raise InputError("no such schedule", where="--schedule", got=str(error)) from None


def _write(out: Path, step: Step, certificate: object) -> None:
    texts = {
        "sequential.txt": to_text(step.sequential),
        "distributed.txt": to_text(step.distributed),
        "contract.json": json.dumps(step.contract.to_json(), indent=1),
    }
    if certificate is not None:
        texts["certificate.json"] = json.dumps(certificate)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError("cannot be written", where=str(out), got=str(error)) from None
