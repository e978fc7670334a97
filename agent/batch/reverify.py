"""`shardproof verify` on the folder of a batch: every job that was proved, checked again."""

import json
from pathlib import Path
from typing import Any, cast

from shardproof.agent.batch.folder import KIND
from shardproof.agent.run import outdir
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.files import sha256
from shardproof.agent.run.run import Outcome, Run
from shardproof.agent.verdict import reverify as recheck


def folder_again(run: Run, root: Path, recapture: bool = False, sources: Path = Path()) -> Outcome:
    """Hashes of the summaries, then each job's directory. Zero only where every job of the batch
    is proved, and its certificate is accepted again; with `recapture`, its patch is read and proved
    (paths of patches are relative to `sources`).

    Raises:
        InputError: no folder of a batch, or a summary that cannot be read.
    """
    with run.phase("files") as phase:
        recorded = cast("dict[str, str]", outdir.manifest(root, KIND)["files"])
        changed = sorted(name for name in recorded if _sha256(root / name) != recorded[name])
        rows = _rows(root)
        phase.summary = f"{len(recorded)} files, {len(rows)} jobs"
    lines = [f"changed since it was written: {name}" for name in changed]
    written = {Path(name).parts[1] for name in recorded if name.startswith("jobs/")}
    lines += [f"left out of summary.json: {name}" for name in sorted(written - set(rows))]
    words: set[str] = {"rejected"} if lines else set() if rows else {"unknown"}
    for name, status in rows.items():
        found = status
        if status == "proved":
            again = recheck.examined(run, root / "jobs" / name, recapture, sources)[0]
            found = again.verdict if again.exit is Exit.PROVED else "no longer proved"
            words.add(again.verdict)
        else:
            words.add("unknown")
        lines.append(f"{found:<10}  {name}")
    every = words <= {"accepted", "proved"}
    whole = "proved" if recapture else "accepted"
    return Outcome(
        Exit.PROVED if every else Exit.NOT_PROVED,
        whole if every else "rejected" if "rejected" in words else "unknown",
        directory=str(root),
        answer="\n".join(lines),
    )


def _rows(root: Path) -> dict[str, str]:
    """Status by name, as the summary has it."""
    path = root / "summary.json"
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        return {str(row["name"]): str(row["status"]) for row in data["jobs"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError("the summary cannot be read", where=str(path), got=str(error)) from None


def _sha256(path: Path) -> str:
    try:
        return sha256(path)
    except OSError:
        return ""
