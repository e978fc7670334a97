"""What came of each job: one row, read from its out-directory or from its last events."""

import re
import shlex
import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from shardproof.agent.actions.words import read_mesh
from shardproof.agent.batch.folder import Folder
from shardproof.agent.batch.jobs import Job
from shardproof.agent.batch.pool import Ended
from shardproof.agent.run import events, outdir
from shardproof.agent.run.errors import Exit
from shardproof.synthesis.planner import plan as plans

Status = Literal["failed", "timeout", "refused", "refuted", "unknown", "not run", "proved"]
ORDER: tuple[Status, ...] = (
    "refuted",
    "failed",
    "timeout",
    "unknown",
    "refused",
    "not run",
    "proved",
)
"""As rows are sorted: what needs a look comes first."""
MEANING: dict[Status, str] = {
    "proved": "the patch was read again and proved",
    "refuted": "the plan computes something else: a counterexample was replayed",
    "unknown": "a plan, but no proof of it or of its patch",
    "refused": "the model, its config or the mesh cannot be used: no plan",
    "timeout": "its time was over",
    "failed": "the job's process crashed, or has a fault of ours",
    "not run": "not selected, or the batch ended before",
}
PROVING = ("verify", "check", "read")


class Cause(BaseModel, frozen=True, extra="forbid"):
    """Why a job is not proved, as its process said it."""

    message: str
    where: str = ""
    expected: str = ""
    got: str = ""
    hint: str = ""
    group: str = ""
    """The message without what differs between models: numbers, paths of modules."""


class Row(BaseModel, frozen=True, extra="forbid"):
    """A job in the summary. Paths are relative to the folder of the batch."""

    name: str
    target: str
    mesh: str
    ranks: int
    hardware: str
    status: Status
    exit_code: int | None = None
    """Of its process, negative for a signal; None where there was none."""
    kept: bool = False
    """Whether it was done by an earlier run."""
    model_reused: bool = False
    """Whether its model was captured by another job."""
    seconds: float = 0.0
    phases: dict[str, float] = {}
    """Seconds by phase."""
    proof_s: float = 0.0
    """Seconds of proving and of checking the certificate."""
    strategy: str = ""
    useful: bool | None = None
    """Whether the plan splits at least half of what the mesh could split; None: no plan."""
    step_s: float | None = None
    one_device_step_s: float | None = None
    memory_bytes: int | None = None
    """Per rank, estimated."""
    one_device_memory_bytes: int | None = None
    comm_bytes: int | None = None
    collectives: dict[str, int] = {}
    """Calls in a step, by kind."""
    agrees: bool | None = None
    """Whether the patch, run on local processes, agrees with one process; None: not run."""
    largest_relative_difference: float | None = None
    assumptions: list[str] = []
    warnings: list[str] = []
    cause: Cause | None = None
    directory: str = ""
    report: str = ""
    patch: str = ""
    log: str = ""
    inputs: str = ""
    command: str = ""


def blank(folder: Folder, job: Job, inputs: str, status: Status = "not run") -> Row:
    """A row of a job that left nothing."""
    return Row(
        name=job.name,
        target=job.target,
        mesh=job.mesh or "",
        ranks=read_mesh(job.mesh or "").size,
        hardware=job.hardware,
        status=status,
        inputs=inputs,
        command=_command(job, folder),
    )


def _command(job: Job, folder: Folder) -> str:
    return shlex.join(("shardproof", *job.arguments(folder.job(job.name))))


def of_directory(folder: Folder, job: Job, inputs: str, *, kept: bool) -> Row:
    """The row of a job whose out-directory is whole."""
    directory = folder.job(job.name)
    recorded = outdir.manifest(directory)
    text = (directory / "events.jsonl").read_text(encoding="utf-8")
    seen = [events.parse(line) for line in text.splitlines() if line]
    plan = plans.from_json((directory / "plan.json").read_text(encoding="utf-8"))
    counts: Counter[str] = Counter()
    for use in plan.collectives:
        counts[use.op] += use.count
    estimates = plan.estimates
    found = _of_events(seen)
    status: Status = recorded["verdict"]
    relative = f"jobs/{job.name}"
    return blank(folder, job, inputs, status).model_copy(
        update={
            **found,
            "kept": kept,
            "step_s": estimates.get("step_s"),
            "one_device_step_s": estimates.get("one_device_step_s"),
            "memory_bytes": _whole(estimates.get("memory_bytes_after")),
            "one_device_memory_bytes": _whole(estimates.get("memory_bytes_before")),
            "comm_bytes": _whole(estimates.get("comm_bytes")),
            "collectives": dict(sorted(counts.items())),
            "directory": relative,
            "report": f"{relative}/report.html",
            "patch": f"{relative}/patch.diff" if (directory / "patch.diff").is_file() else "",
            "exit_code": int(Exit.PROVED if status == "proved" else Exit.NOT_PROVED),
            "cause": None if status == "proved" else _said(seen),
        }
    )


def of_ended(folder: Folder, job: Job, inputs: str, ended: Ended) -> Row:
    """The row of a job that ended without an out-directory."""
    status, cause = _failure(ended, job)
    if ended.as_of:
        row = blank(folder, job, inputs, status)
        said = f"not run: job {ended.as_of} is about the same model, which was refused"
        return row.model_copy(update={"cause": cause, "warnings": [said]})
    log = folder.log(job.name, "jsonl")
    return blank(folder, job, inputs, status).model_copy(
        update={
            **_of_events(ended.events, ended.seconds),
            "seconds": ended.seconds,
            "exit_code": ended.code,
            "cause": cause,
            "log": str(log.relative_to(folder.root)) if log.is_file() else "",
        }
    )


def _failure(ended: Ended, job: Job) -> tuple[Status, Cause]:
    """What a process without an out-directory ended of."""
    problem = next((e for e in reversed(ended.events) if isinstance(e, events.Problem)), None)
    said = None
    if problem is not None:
        told = problem.model_dump(include={"where", "expected", "got", "hint"})
        said = _cause(problem.message, **told)
    if ended.stopped == "timeout" or ended.code == Exit.LIMIT:
        limit = f" of {job.timeout:g} s" if job.timeout is not None else ""
        doing = f" in {ended.phase}" if ended.phase else ""
        return "timeout", _cause(f"its time{limit} passed{doing}", group=f"its time passed{doing}")
    if ended.stopped:
        return "failed", _cause(ended.stopped)
    if ended.code < 0:
        doing = f" in {ended.phase}" if ended.phase else ""
        hint = "perhaps out of memory: fewer --jobs" if ended.code == -9 else ""
        return "failed", _cause(
            f"the process was ended by {_signal(-ended.code)}{doing}", hint=hint
        )
    if ended.code in (Exit.INPUT, Exit.ENDPOINT) and said is not None:
        return "refused", said
    if ended.code == Exit.NOT_PROVED:
        verdict = _said(ended.events)
        return "unknown", verdict or _cause("not proved, and nothing was written")
    if ended.code == Exit.INTERRUPTED:
        return "failed", _cause("something other than the batch ended the process")
    if said is not None:
        return "failed", said
    last = ended.words.strip().splitlines()[-1:]
    return "failed", _cause(
        f"the process ended with exit code {ended.code} and no result", got="".join(last)
    )


def _of_events(seen: Sequence[events.Event], seconds: float | None = None) -> dict[str, Any]:
    """What the stream says that no file does. A phase in which it ended counts as far as it got,
    to the last event or to `seconds`."""
    phases: dict[str, float] = {}
    found: dict[str, Any] = {"phases": phases}
    warnings: list[str] = []
    open_at: dict[str, float] = {}
    for event in seen:
        match event:
            case events.PhaseStarted(phase=phase, at=at):
                open_at = {phase: at}
            case events.PhaseCompleted(phase=phase, seconds=seconds):
                phases[phase] = round(phases.get(phase, 0.0) + seconds, 6)
                open_at = {}
                found["model_reused"] = found.get("model_reused", False) or phase == "reuse"
            case events.PlanChosen(strategy=strategy, useful=useful):
                found |= {"strategy": strategy, "useful": useful}
            case events.Executed(agrees=agrees, largest_relative_difference=largest):
                found |= {"agrees": agrees, "largest_relative_difference": largest}
            case events.VerdictReached(assumptions=assumptions):
                found["assumptions"] = assumptions
            case events.Warned(message=message):
                warnings.append(message)
            case events.RunCompleted(seconds=seconds):
                found["seconds"] = seconds
            case _:
                pass
    for phase, begun in open_at.items():
        over = seen[-1].at if seconds is None else seconds
        phases[phase] = round(phases.get(phase, 0.0) + max(over - begun, 0.0), 6)
    found["warnings"] = warnings
    found["proof_s"] = round(sum(phases.get(p, 0.0) for p in PROVING), 6)
    return found


def _said(seen: Iterable[events.Event]) -> Cause | None:
    verdict = next((e for e in reversed(list(seen)) if isinstance(e, events.VerdictReached)), None)
    return None if verdict is None else _cause(verdict.message, where=verdict.where)


_PLACE = re.compile(r"^[\w.*]+\.[\w.*]+: | \(in module [^)]*\)")
_NUMBERS = re.compile(r"\d+(, \d+)*")


def _cause(message: str, group: str = "", **said: str) -> Cause:
    first = _PLACE.sub("", message.split("\n")[0])
    return Cause(message=message, group=group or _NUMBERS.sub("#", first), **said)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def keep_log(folder: Folder, name: str, ended: Ended) -> None:
    """Keep the events and the last words of a job that wrote no directory."""
    path = folder.log(name, "jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [e.model_dump_json() for e in ended.events]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    words = [ended.words]
    for event in ended.events:
        if isinstance(event, events.Problem) and event.traceback_file:
            saved = Path(event.traceback_file)
            words += [saved.read_text(encoding="utf-8")] if saved.is_file() else []
    if any(words):
        folder.log(name, "txt").write_text("".join(words), encoding="utf-8")


def sort_key(row: Row) -> tuple[int, str]:
    return ORDER.index(row.status), row.name
