"""The folder of a batch: one out-directory a job, a summary, and what is only there while it runs.

```text
OUT/jobs/NAME/       as `parallelize` writes it, whole or not there
OUT/logs/NAME.*      events and last words of jobs that wrote no directory
OUT/summary.*        of all jobs; each file replaced in one step
OUT/manifest.json    the hash of every summary and of every job's manifest
OUT/.work, OUT/.lock while a batch runs
```
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardproof.agent import __version__
from shardproof.agent.run import outdir
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.files import sha256, write_whole

KIND = "batch"
PATIENCE_S = 12.0
"""Seconds to wait for the last processes of a batch that was killed."""


@dataclass(frozen=True)
class Folder:
    """Where everything of a batch lies."""

    root: Path

    def job(self, name: str) -> Path:
        return self.root / "jobs" / name

    def log(self, name: str, suffix: str) -> Path:
        return self.root / "logs" / f"{name}.{suffix}"

    def forget(self, name: str) -> None:
        """Remove the logs of an earlier run of a job."""
        for suffix in ("jsonl", "txt"):
            self.log(name, suffix).unlink(missing_ok=True)

    @property
    def shelf(self) -> Path:
        return self.root / ".work" / "models"

    def current(self, name: str, inputs: str) -> bool:
        """Whether a job's directory is whole, unchanged, and of these inputs."""
        directory = self.job(name)
        try:
            recorded = outdir.manifest(directory)
        except InputError:
            return False
        return recorded.get("inputs") == inputs and not outdir.changed(directory)

    def seal(self, facts: Mapping[str, Any], written: Iterable[str], names: Iterable[str]) -> None:
        """Record the hashes of the summaries and of the jobs that have a directory."""
        manifests = [f"jobs/{name}/{outdir.MANIFEST}" for name in names]
        files = {n: sha256(self.root / n) for n in (*written, *manifests)}
        manifest = {"format": outdir.FORMAT, "kind": KIND, "shardproof": __version__}
        text = json.dumps({**manifest, **facts, "files": files}, indent=2) + "\n"
        write_whole(self.root / outdir.MANIFEST, text.encode())

    def strangers(self, names: Iterable[str]) -> list[str]:
        """Folders of jobs that are in no manifest any more."""
        known = set(names)
        there = (self.root / "jobs").glob("[!.]*") if (self.root / "jobs").is_dir() else ()
        return sorted(p.name for p in there if p.name not in known)


def check(root: Path, *, resume: bool, force: bool) -> None:
    """Refuse a folder that holds anything; with `resume` or `force`, anything but a batch.

    Raises:
        InputError: it cannot be used.
    """
    where = f"--out {root}"
    if not os.path.lexists(root):
        return
    if not root.is_dir():
        raise InputError("the folder of the batch is a file", where=where)
    if all(_passing(path) for path in root.iterdir()):
        return
    if not resume and not force:
        raise InputError(
            "the folder is not empty",
            where=where,
            hint="--resume continues the batch in it, --force runs it all again",
        )
    if not is_batch(root):
        raise InputError(
            "the folder holds no batch", where=where, expected=f"a {outdir.MANIFEST} of a batch"
        )


def is_batch(root: Path) -> bool:
    """Whether a folder is one of a batch."""
    try:
        outdir.manifest(root, KIND)
    except InputError:
        return False
    return True


def _passing(path: Path) -> bool:
    """What a batch that was killed at its very start leaves behind."""
    if path.name == "jobs" and path.is_dir():
        return not any(path.glob("[!.]*"))
    return path.name in (".lock", ".work") or path.name.startswith((".summary.", ".manifest."))


@contextmanager
def held(root: Path) -> Generator[tuple[Folder, int]]:
    """The folder for this batch alone, with the descriptor that the lock hangs on: processes that
    inherit it hold the folder, too, so that nothing of a killed batch still writes to it.

    Raises:
        InputError: another batch is at work in it, or it cannot be made.
    """
    try:
        (root / "jobs").mkdir(parents=True, exist_ok=True)
        lock = os.open(root / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(
            "the folder cannot be made", where=f"--out {root}", got=str(error)
        ) from None
    try:
        _lock(lock, root)
        folder = Folder(root)
        shutil.rmtree(root / ".work", ignore_errors=True)
        for left in (root / "jobs").glob(".*"):  # out-directories that a killed job began
            shutil.rmtree(left, ignore_errors=True)
        try:
            yield folder, lock
        finally:
            shutil.rmtree(root / ".work", ignore_errors=True)
    finally:
        os.close(lock)


def _lock(lock: int, root: Path) -> None:
    patience = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > patience:
                raise InputError(
                    "another batch is at work in this folder", where=f"--out {root}"
                ) from None
            time.sleep(0.1)
        except OSError as error:
            raise InputError(
                "the folder cannot be locked", where=f"--out {root}", got=str(error)
            ) from None
        else:
            return
