"""`shardproof guard`: an unmodified script with the guard in its processes."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from shardproof.agent.actions.runs import Guard
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome, Run


def guard(run: Run, asked: Guard) -> Outcome:
    """Run the command with the guard, and say what it saw.

    The exit code is the command's own; with an alarm it is 6.

    Raises:
        InputError: no command, or one that cannot be started.
    """
    if asked.level not in ("R", "T3"):
        raise InputError("no such level", where="--level", expected="R or T3", got=asked.level)
    with tempfile.TemporaryDirectory() as scratch, run.phase("guard") as phase:
        settings: dict[str, Any] = {
            "every": asked.every,
            "cycle": asked.cycle,
            "level": asked.level,
            "on_fault": "log" if asked.keep_going else "raise",
            "timeout": asked.patience,
            "report": scratch,
            "log": str(asked.log.resolve()) if asked.log else None,
        }
        code = _run(asked.script, settings, run.in_events)
        reports = [json.loads(p.read_text()) for p in sorted(Path(scratch).glob("rank*.json"))]
        found = _alarms(reports)
        phase.summary = _summary(reports, found)
        phase.facts.update(_numbers(reports))
        phase.facts["alarms"] = len(found)
        phase.facts["command_exit"] = code
    for alarm in found:
        run.emit(
            events.VerdictReached(
                verdict="refuted", message=alarm["text"], where=f"step {alarm['step']}"
            )
        )
    failed = dict.fromkeys(str(r["failed"]) for r in reports if r["failed"])
    for text in failed:
        run.warn(text)
    silent = sorted(r["rank"] for r in reports if not (r["ended"] or r["failed"] or r["found"]))
    if silent:
        run.warn(
            f"{'rank' if len(silent) == 1 else 'ranks'} {', '.join(map(str, silent))} ended "
            "without a word: killed, or stopped by the launcher when another rank ended"
        )
    if not reports:
        run.warn("no process made a process group of two ranks or more: nothing was watched")
    if found:
        return Outcome(Exit.ALARM, "refuted")
    return Outcome(cast(Exit, code))


def _run(command: Sequence[str], settings: dict[str, Any], quiet: bool) -> int:
    """The exit code of the command; a signal n is 128 + n, as shells say it."""
    import shardproof.synthesis.guard
    from shardproof.installed import IMPORTED_FROM

    here = Path(shardproof.synthesis.guard.__file__).resolve().parent
    path = [str(here / "site"), os.environ.get("PYTHONPATH", ""), IMPORTED_FROM]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in path if p),
        "SHARDPROOF_GUARD": json.dumps(settings),
    }
    try:
        process = subprocess.Popen(list(command), env=env, stdout=sys.stderr if quiet else None)
    except OSError as error:
        raise InputError(
            "the command cannot be started", where=command[0], got=str(error)
        ) from None
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    return code if code >= 0 else 128 - code


def _alarms(reports: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every alarm once: all ranks report the same."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for report in reports:
        for alarm in report["found"]:
            found.setdefault((alarm["step"], alarm["group"], alarm["seq"], alarm["op"]), alarm)
    return [found[k] for k in sorted(found, key=str)]


def _numbers(reports: Sequence[dict[str, Any]]) -> dict[str, float]:
    names = ("steps", "watched", "calls", "sampled", "judged", "unjudged", "unread")
    return {name: max((int(r[name]) for r in reports), default=0) for name in names}


def _summary(reports: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]]) -> str:
    n = _numbers(reports)
    left = f", {n['watched']} watched" if n["watched"] < n["steps"] else ""
    return (
        f"{len(reports)} ranks, {n['steps']} steps{left}, {n['calls']} calls a rank seen, "
        f"{n['judged']} judged, {n['unjudged'] + n['unread']} could not be; {len(found)} alarms"
    )
