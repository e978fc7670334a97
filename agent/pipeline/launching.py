"""The launcher of a patch: written, its step proved, and run with its checkpoints."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shardproof.agent.actions.programs import Check
from shardproof.agent.check.command import decided
from shardproof.agent.report import model as m
from shardproof.agent.run import events
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.run import Run
from shardproof.agent.verdict import real_run, verdicts
from shardproof.synthesis.emit import EmitError, ModelFacts, Patch
from shardproof.synthesis.emit.launcher import (
    FILE,
    Launcher,
    Training as Asked,
    launcher,
    obstacle,
    stamped,
)
from shardproof.synthesis.emit.stages import PP, Cut, cut
from shardproof.synthesis.execute.job import patched_folder, place_of
from shardproof.synthesis.execute.run.launcher import LaunchError
from shardproof.synthesis.execute.run.running import PROCESSES, Ran, of_file
from shardproof.synthesis.execute.run.training import STEPS, Training, train
from shardproof.synthesis.frontends.torch.captured import Captured
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import Moved, home_of
from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec, split_target
from shardproof.synthesis.planner.context import CP
from shardproof.synthesis.planner.plan import Plan
from shardproof.synthesis.planner.scoring import axes, within as inner_mesh
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Proof, Unknown, Verdict

if TYPE_CHECKING:
    from shardproof.agent.pipeline.pipeline import Job

STEP = "train_step=one_step"
PROVED = (
    "# Proved: leaves in parameters, optimizer and results what one_step leaves; see report.md."
)


def within(mesh: Mesh, launcher: bool) -> tuple[Mesh, Mesh | None]:
    """The mesh of a patch, and where a launcher puts its stages on a dim more, that of both. With
    that dim alone, the patch is of one device.

    Raises:
        InputError: stages without a launcher, or of a sequence that is split.
    """
    if dict(mesh.dims).get(PP, 1) == 1:
        return mesh, None
    if not launcher:
        raise InputError(
            "a launcher runs the stages", where=f"--mesh {mesh}", hint="add --launcher"
        )
    if dict(mesh.dims).get(CP, 1) > 1:
        problem = f"a pipeline's patch does not split the sequence over {CP}"
        raise InputError(problem, where=f"--mesh {mesh}", hint=f"leave out {CP} or {PP}")
    inner = tuple(dim for dim in mesh.dims if dim[0] not in (PP, CP)) or (("tp", 1),)
    return Mesh(inner), Mesh((*mesh.dims, *(dim for dim in inner if dim not in mesh.dims)))


def refuse(job: Job, captured: Captured, facts: ModelFacts | None) -> None:
    """Refuse a model, a mesh or a batch that no launcher can be written for.

    Raises:
        InputError: what, and what to try.
    """
    if not job.asked.launcher:
        return
    mesh = inner_mesh(job.mesh)
    _, dp = axes(mesh)
    ranks = mesh[dp] if dp else 1
    reason = "the source is not captured" if facts is None else None
    try:
        if facts is not None:
            reason = obstacle(facts, captured.facts.inputs, ranks, asked_of(job, facts))
    except EmitError as problem:
        reason = str(problem)
    if reason is not None:
        raise InputError(f"no launcher can be written: {reason}", where="--launcher")


def asked_of(job: Job, facts: ModelFacts) -> Asked:
    """What the step of a job is to be.

    Raises:
        EmitError: the model cannot be cut into its stages.
    """
    mesh = job.launched
    parts = Cut() if mesh is None else cut(facts, mesh[PP])
    return Asked(job.asked.micro_batches, job.asked.optimizer, mesh, parts)


def launch(
    run: Run,
    job: Job,
    captured: Captured,
    facts: ModelFacts,
    plan: Plan,
    patch: Patch,
    not_run: str,
) -> m.Launcher:
    """Write the launcher of a proved patch, prove its step, and run it unless there is a reason,
    `not_run`, not to.

    Raises:
        EmitError: it cannot be written.
    """
    inputs = captured.facts.inputs
    mesh = job.launched or plan.mesh
    script = launcher(facts, plan, patch, inputs, asked_of(job, facts), job.asked.inline)
    path = f"PYTHONPATH={shlex.quote(script.folder)}"
    torchrun = f"{path} torchrun {script.torchrun} {shlex.quote(str(job.out / FILE))}"
    words = _asked(job.out / FILE, inputs, mesh, job.request).words()
    check = f"{path} {shlex.join(('shardproof', *words))}"
    with _placed(job.request, patch, script.text) as (place, moved):
        verdict = _proved(run, _asked(place, inputs, mesh, job.request))
        ran = None
        drawn = captured.facts.draws or any(m.training_dropout for m in facts.modules)
        not_run = not_run or _reason(run, job, mesh, bool(drawn))
        if not not_run and not isinstance(verdict, Counterexample):
            side = of_file("parallel", place, {}, moved)
            rows, parts = inputs[0].shape[0], mesh.size * job.asked.micro_batches
            divides = plan.data_dims == plan.batch_dims[:1] and job.launched is None
            training = Training(
                side,
                mesh,
                job.asked.run_steps or STEPS,
                plan.dp,
                divides=divides and (plan.batch_ranks == 1 or rows % parts == 0),
                env=job.request.env,
                library="transformers" if job.request.target.startswith("hf:") else "",
            )
            verdict, ran = _run(run, training, verdict)
    text = _text(script, verdict)
    parts = [f"step {verdicts.word(verdict)}{f' on {mesh}' if job.launched else ''}"]
    if ran is not None:
        how = "agrees" if ran.agrees else "differs"
        parts.append(f"steps and checkpoints run on {ran.ranks} processes, {how}")
    made = m.Launcher(
        verdict=verdicts.word(verdict),
        standing=" | ".join([*parts, *([] if text else ["not written"])]),
        found=verdicts.message(verdict),
        assumptions=verdict.assumptions if isinstance(verdict, Proof) else (),
        launch=torchrun if text else "",
        check=check if text else "",
        text=text,
    )
    run.emit(
        events.LauncherJudged(
            verdict=made.verdict,
            message=made.found,
            where=verdicts.place(verdict),
            assumptions=list(made.assumptions),
            standing=made.standing,
            launch=made.launch,
            check=made.check,
        )
    )
    return made


def step_again(
    run: Run, request: CaptureRequest, inputs: Sequence[InputSpec], patch: Patch, text: str
) -> Verdict:
    """The verdict on the step of a launcher that was written, with its patch, on its own mesh.

    Unknown where the run that wrote it did not prove it, or where no mesh stands in it.
    """
    if text.count(PROVED) != 1:
        return Unknown("the run that wrote it did not prove its step")
    found = (n for n in ast.parse(text).body if isinstance(n, ast.Assign))
    named = [n.value for n in found if [ast.unparse(t) for t in n.targets] == ["MESH"]]
    try:
        (value,) = named
        mesh = Mesh(tuple(ast.literal_eval(value).items()))
    except (ValueError, AttributeError, IRError):
        return Unknown("it does not state its mesh once")
    with _placed(request, patch, text) as (place, _):
        return _proved(run, _asked(place, inputs, mesh, request))


@contextmanager
def _placed(
    request: CaptureRequest, patch: Patch, text: str
) -> Generator[tuple[Path, Moved | None]]:
    """A launcher beside what it imports, in a folder that is patched."""
    _, root = place_of(request, patch)
    with patched_folder(patch, root) as folder:
        tree = folder / "tree"
        home = split_target(request.target)[0]
        base = tree if root is None else tree / home_of(home).base.relative_to(root)
        place = base / FILE
        place.unlink(missing_ok=True)  # a link to a file of the owner's
        place.write_text(text, encoding="utf-8")
        yield place, None if root is None else Moved(root, tree.resolve())


def _asked(place: Path, inputs: Sequence[InputSpec], mesh: Mesh, request: CaptureRequest) -> Check:
    """What `check` is asked of the step of a launcher at a place."""
    return Check(
        target=f"{place}:parallel",
        against=f"{place}:one_device",
        mesh=",".join(f"{n}={size}" for n, size in mesh.dims),
        step=STEP,
        inputs=tuple(f"{i.name}={i.dtype}[{','.join(map(str, i.shape))}]{i.range}" for i in inputs),
        env=request.env,
    )


def _reason(run: Run, job: Job, mesh: Mesh, drawn: bool) -> str:
    """Why the launcher of a patch that was run is not run itself: empty where it is. `drawn`: the
    model draws random numbers."""
    if job.launched is None:
        return ""
    reason = ""
    if drawn:
        reason = "the launcher was not run: its stages draw random numbers of their own"
    elif mesh.size > PROCESSES and job.asked.run is None:
        reason = f"the launcher was not run: more than {PROCESSES} processes; --run insists"
    if reason:
        run.warn(reason)
    return reason


def _text(script: Launcher, verdict: Verdict) -> str:
    """The file with what is known of it; empty where its step is refuted."""
    match verdict:
        case Proof():
            return stamped(script.text, PROVED)
        case Counterexample():
            return ""
        case Unknown(reason=reason):
            return stamped(script.text, f"# Not proved: {' '.join(reason.split())[:60]}")


def _proved(run: Run, asked: Check) -> Verdict:
    """The verdict on the step, as `check` gives it."""
    quiet = Run([_Notes(run)])
    with run.phase("step") as phase:
        try:
            alone = asked.model_copy(update={"run": False, "repair_seconds": 0})
            verdict, _, _ = decided(quiet, alone)
        except (CaptureError, InputError, IRError) as problem:
            verdict = Unknown(str(problem))
        phase.summary = f"train_step against one_step: {verdicts.word(verdict)}"
    return verdict


class _Notes:
    """Passes on what the work is at, and no events."""

    def __init__(self, run: Run) -> None:
        self.note = run.note

    def show(self, event: events.Event) -> None:
        pass

    def close(self) -> None:
        pass


def _run(run: Run, training: Training, verdict: Verdict) -> tuple[Verdict, Ran | None]:
    """Run the launcher, and what that does to the verdict on its step."""
    with run.phase("launch") as phase:
        try:
            ran = train(training)
        except LaunchError as problem:
            phase.summary = f"not run: {problem}"
            return Unknown(f"the launcher did not run: {problem}"), None
        verdict = real_run.judged(verdict, ran, training.mesh, "the launcher", True)
        phase.summary = "; ".join(training.modes)
        if ran.failed is not None:
            phase.summary = (
                f"{ran.failed.who} failed: {ran.failed.message.strip().splitlines()[-1]}"
            )
    real_run.told(run, ran, training.mesh)
    return verdict, ran
