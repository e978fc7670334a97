"""`shardproof batch`: all jobs read, then run apart, then told in one summary."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing

from shardproof.agent.actions.batches import Batch
from shardproof.agent.batch import cluster, expand, keys, processes, rows, summary
from shardproof.agent.batch.folder import Folder, check, held
from shardproof.agent.batch.forked import Warm
from shardproof.agent.batch.jobs import asked
from shardproof.agent.batch.pool import Ended, Pool, Task
from shardproof.agent.batch.progress import Planned, Progress
from shardproof.agent.batch.rows import Row
from shardproof.agent.batch.worker import Order
from shardproof.agent.run import events, outdir
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome, Run
from shardproof.synthesis.planner.constraints import read_bytes

AT_ONCE = 4
"""Jobs at once where it is not said: captures of large models take gigabytes."""


def begun(run: Run, asked: Batch) -> Outcome:
    """`shardproof batch`: run the jobs, or list them. Raises InputError."""
    return show(run, asked) if asked.listed else batch(run, asked)


def batch(
    run: Run, what: Batch, start: Callable[[Task], Sequence[str]] = processes.command
) -> Outcome:
    """Run every job that was selected and is not done. `start` is how a process is started.

    Raises:
        InputError: a manifest, a job or a folder that cannot be used; nothing was run.
    """
    if what.resume and what.force:
        raise InputError("--resume and --force", expected="one of them")
    planned = read(run, what)
    if not any(p.chosen for p in planned):
        return nothing(run, what, planned)
    root = what.out.absolute()
    check(root, resume=what.resume, force=what.force)
    with held(root) as (folder, lock):
        progress = Progress(run, what, folder, planned)
        for name in folder.strangers(p.job.name for p in planned):
            run.warn(f"jobs/{name} is of no job of this batch; it is left as it is")

        def fresh(task: Task) -> Sequence[str]:
            outdir.discard(folder.job(task.name))
            folder.forget(task.name)
            return start(task)

        pool = workers(what, folder, fresh, lock, warm=start is processes.command)
        try:
            stopped = work(progress, begin(progress), pool)
        except KeyboardInterrupt:
            return interrupted(progress)
        finally:
            pool.executor.end_all()
        return finished(progress, progress.write(complete=not stopped), stopped)


def workers(
    what: Batch,
    folder: Folder,
    start: Callable[[Task], Sequence[str]],
    lock: int,
    warm: bool,
) -> Pool:
    """Where jobs run, and how many at once. `warm`: those of this machine are forked.

    Raises:
        InputError: a Ray cluster that cannot be used.
    """
    if what.executor == "local":
        here = processes.Processes(start, (lock,), processes.GRACE_S)
        if warm:
            here.warm = Warm({**processes.environment()}, (lock,))
        return Pool(what.workers or min(AT_ONCE, cores()), here)
    needs = what.cpus, 0 if what.ram is None else read_bytes(what.ram)
    there = cluster.joined(what.address, needs, start, lambda n: str(folder.job(n)), (lock,))
    return Pool(what.workers or there.size.cpus, there)


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read(run: Run, what: Batch) -> list[Planned]:
    """All jobs, with what their results depend on."""
    with run.phase("read") as phase:
        jobs = expand.gather(what.what, what.given)
        chosen = {job.name for job in expand.selected(jobs, what.only)}
        planned: list[Planned] = []
        models: dict[str, str] = {}
        for job in jobs:
            on = asked(job, what.out / job.name)
            request = on.request
            said = f"{request.to_json()}"
            if said not in models:
                models[said] = keys.of_model(request)
            inputs = keys.of_job(job, on, models[said])
            planned.append(Planned(job, inputs, models[said], job.name in chosen))
        phase.summary = f"{len(jobs)} jobs, {len({p.model for p in planned})} models"
        if what.only:
            phase.summary += f", {len(chosen)} selected"
        phase.facts.update(jobs=len(jobs), selected=len(chosen), models=len(models))
    return planned


def nothing(run: Run, what: Batch, planned: Sequence[Planned]) -> Outcome:
    """No job is selected: an error of its own, since nothing that was asked for is proved."""
    names = ", ".join(p.job.name for p in planned[:8])
    more = f" and {len(planned) - 8} more" if len(planned) > 8 else ""
    run.emit(
        events.Problem(
            kind="input",
            message="no job is selected",
            where=" ".join(f"--only {p}" for p in what.only),
            expected=f"a pattern for one of {names}{more}",
        )
    )
    return Outcome(Exit.NOTHING)


def begin(progress: Progress) -> list[Planned]:
    """What was done before becomes rows; gives the jobs that are to be run.

    Raises:
        InputError: the directory of a job holds what is not ours.
    """
    folder, what = progress.folder, progress.asked
    left: list[Planned] = []
    kept: list[Row] = []
    before = summary.rows_in(folder.root) if what.resume else {}
    for planned in progress.planned:
        job = planned.job
        redo = planned.chosen and not what.resume
        if not redo and folder.current(job.name, planned.inputs):
            row = rows.of_directory(folder, job, planned.inputs, kept=True)
            progress.rows[job.name] = row
            kept += [row] if planned.chosen else []
            continue
        row = before.get(job.name, rows.blank(folder, job, planned.inputs))
        ended = not row.directory and row.inputs == planned.inputs
        if ended and not planned.chosen:
            progress.rows[job.name] = row.model_copy(update={"kept": row.status != "not run"})
            continue
        progress.rows[job.name] = rows.blank(folder, job, planned.inputs)
        if planned.chosen:
            outdir.check_free(folder.job(job.name), force=True)
            left.append(planned)
    progress.write(complete=False)
    for row in kept:
        progress.ended(row)
    return left


def work(progress: Progress, left: Sequence[Planned], pool: Pool) -> str:
    """Run jobs; why it stopped before the last of them, or nothing."""
    by_name = {p.job.name: p for p in left}
    tasks = [_task(progress.folder, planned) for planned in left]
    with progress.run.phase("jobs") as phase:
        with closing(pool.run(tasks)) as happenings:
            for happening in happenings:
                if not isinstance(happening, Ended):
                    _, task, at = happening
                    if task.name not in progress.running:
                        progress.run.emit(events.JobStarted(job=task.name))
                    progress.running[task.name] = at
                    progress.note()
                    continue
                row = told(progress.folder, by_name[happening.task.name], happening)
                progress.ended(row)
                progress.note()
                if progress.asked.fail_fast and row.status != "proved":
                    return f"{row.name} is {row.status}, and --fail-fast ends the batch"
        tally = Counter(progress.rows[name].status for name in by_name)
        phase.summary = ", ".join(f"{n} {status}" for status, n in tally.items())
        phase.summary = phase.summary or "nothing left to do"
    return pool.executor.lost


def _task(folder: Folder, planned: Planned) -> Task:
    job = planned.job
    order = Order(
        job=job,
        out=str(folder.job(job.name)),
        shelf=str(folder.shelf),
        model=planned.model,
        inputs=planned.inputs,
    )
    shared = "" if job.translation is not None else planned.model
    return Task(job.name, order.model_dump_json(), shared, job.timeout, job.target)


def told(folder: Folder, planned: Planned, ended: Ended) -> Row:
    """The row of a job that ended. A directory counts only where it is whole and of this job."""
    if folder.current(planned.job.name, planned.inputs):
        return rows.of_directory(folder, planned.job, planned.inputs, kept=False)
    if ended.as_of:
        outdir.discard(folder.job(planned.job.name))
    else:
        rows.keep_log(folder, planned.job.name, ended)
    return rows.of_ended(folder, planned.job, planned.inputs, ended)


def interrupted(progress: Progress) -> Outcome:
    """Ctrl-C: what is done stays, and the summary says that it is not all."""
    for name in progress.running:
        job = next(p for p in progress.planned if p.job.name == name)
        if progress.folder.current(name, job.inputs):
            row = rows.of_directory(progress.folder, job.job, job.inputs, kept=False)
            progress.rows[name] = row
    progress.write(complete=False)
    chosen = [progress.rows[p.job.name] for p in progress.planned if p.chosen]
    done = sum(row.status != "not run" for row in chosen)
    progress.run.emit(
        events.Problem(
            kind="interrupted",
            message=f"interrupted; {done} of {len(chosen)} jobs are done and kept",
            hint="the same command with --resume continues",
        )
    )
    return Outcome(
        Exit.INTERRUPTED,
        directory=str(progress.asked.out),
        report=str(progress.asked.out / "summary.html"),
    )


def finished(progress: Progress, found: summary.Summary, stopped: str) -> Outcome:
    """The end: zero only where every job that was selected is proved."""
    out = progress.asked.out
    chosen = [progress.rows[p.job.name] for p in progress.planned if p.chosen]
    proved = all(row.status == "proved" for row in chosen)
    refuted = any(row.status == "refuted" for row in chosen)
    if stopped:
        progress.run.warn(stopped)
    report = str(out / "summary.html")
    progress.run.emit(events.Written(directory=str(out), report=report))
    lines = [f"{summary.headline(found)}, {found.seconds:.1f} s"]
    for group in found.causes:
        names = ", ".join(group.jobs[:4]) + (" ..." if len(group.jobs) > 4 else "")
        message = group.message.split("\n")[0] + ("" if group.alike else " (and similar)")
        lines.append(f"  {len(group.jobs)} {group.status}: {message}: {names}")
    lines.append(f"summary: {report}")
    return Outcome(
        Exit.PROVED if proved else Exit.NOT_PROVED,
        "proved" if proved else "refuted" if refuted else "unknown",
        directory=str(out),
        report=report,
        answer="\n".join(lines),
    )


def show(run: Run, what: Batch) -> Outcome:
    """The jobs, and which of them are done; nothing is run or written."""
    planned = read(run, what)
    chosen = [p for p in planned if p.chosen]
    if not chosen:
        return nothing(run, what, planned)
    folder = Folder(what.out.absolute())
    lines: list[str] = []
    wide = max(len(p.job.name) for p in chosen)
    for p in chosen:
        state = "done" if folder.current(p.job.name, p.inputs) else "to run"
        mesh = p.job.mesh or ""
        lines.append(f"{p.job.name:<{wide}}  {state:<6}  {mesh:<12}  {p.job.target}")
    return Outcome(Exit.PROVED, answer="\n".join(lines))
