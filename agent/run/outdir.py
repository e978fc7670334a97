"""The out-directory: written whole or not at all, and never over files that are not ours."""

import json
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from shardproof.agent import __version__
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.files import sha256

MANIFEST = "manifest.json"
FORMAT = 2
ENTRIES = frozenset(
    {"format", "shardproof", "command", "verdict", "inputs", "request", "assumptions", "patch"}
    | {"files"}
)
"""All that the manifest of one model may hold. What it says of a proof is what the run said: who
checks a directory works scope, assumptions and verdict out anew."""


@dataclass(frozen=True)
class OutDirectory:
    """A directory being written next to its final place."""

    target: Path
    staging: Path
    force: bool = False

    def write(self, name: str, text: str) -> Path:
        """Write a text file as it stands: no newline translation."""
        path = self.staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8"))
        return path

    def seal(self, facts: Mapping[str, Any]) -> None:
        """Record every file with its hash, then put the directory in its place.

        Raises:
            InputError: the place was taken while we worked.
        """
        files = {name: sha256(self.staging / name) for name in _files(self.staging)}
        manifest = {"format": FORMAT, "shardproof": __version__, **facts, "files": files}
        self.write(MANIFEST, json.dumps(manifest, indent=2) + "\n")
        check_free(self.target, force=self.force)
        if self.target.exists():
            _remove_ours(self.target)
        self.staging.chmod(0o755)
        self.staging.replace(self.target)


@contextmanager
def staged(target: Path, *, force: bool = False) -> Generator[OutDirectory]:
    """A staging directory beside `target`; gone afterwards unless it was sealed.

    Raises:
        InputError: `target` cannot be used, see `check_free`.
    """
    target = target.resolve()
    check_free(target, force=force)
    made = [p for p in (target.parent, *target.parent.parents) if not p.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise InputError(
            "the out-directory cannot be made", where=f"--out {target}", got=str(error)
        ) from None
    try:
        yield OutDirectory(target, staging, force)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        for parent in made:
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()


def check_free(target: Path, *, force: bool) -> None:
    """Refuse a place that holds anything; with `force`, anything but our own unchanged output.

    Raises:
        InputError: `target` is a file, or holds files that we did not write or that changed since.
    """
    where = f"--out {target}"
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise InputError("the out-directory is a file", where=where)
    if not any(target.iterdir()):
        return
    if not force:
        raise InputError(
            "the out-directory is not empty",
            where=where,
            hint="name another, or pass --force to replace what an earlier run wrote there",
        )
    strangers = sorted(changed(target))
    if strangers:
        raise InputError(
            "the out-directory holds files that an earlier run did not write, or that were changed",
            where=where,
            got=", ".join(strangers[:5]) + (" ..." if len(strangers) > 5 else ""),
            hint="move them away, or name another directory",
        )


def discard(target: Path) -> None:
    """Remove a directory that we wrote and that nobody changed since; fine where there is none.

    Raises:
        InputError: it holds something else.
    """
    check_free(target, force=True)
    if target.exists():
        _remove_ours(target)


def manifest(directory: Path, kind: str = "") -> dict[str, Any]:
    """The manifest of a sealed directory; `kind` is `batch` for the folder of a batch.

    Raises:
        InputError: there is none, it cannot be read, or is of something else.
    """
    path = directory / MANIFEST
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            "not an out-directory of shardproof",
            where=str(directory),
            expected=f"a directory with a {MANIFEST}",
        ) from None
    except (OSError, ValueError) as error:
        raise InputError("the manifest cannot be read", where=str(path), got=str(error)) from None
    content = cast(dict[str, Any], data) if isinstance(data, dict) else {}
    if content.get("format") != FORMAT or not isinstance(content.get("files"), dict):
        raise InputError(
            "the manifest has another format",
            where=str(path),
            expected=f"format {FORMAT}",
            got=repr(content.get("format")),
        )
    if content.get("kind", "") != kind:
        raise InputError(
            "not the out-directory of one model" if not kind else f"not the folder of a {kind}",
            where=str(directory),
            hint="one of its jobs: " + str(directory / "jobs" / "NAME") if not kind else "",
        )
    return content


def changed(directory: Path) -> set[str]:
    """Files that the manifest does not name, or whose content differs from what it records.

    A file that it names and that is missing counts too.
    """
    try:
        recorded = cast(dict[str, str], manifest(directory)["files"])
    except InputError:
        return set(_files(directory)) or {p.name for p in directory.iterdir()}
    present = set(_files(directory)) - {MANIFEST}
    same = {n for n in present & set(recorded) if sha256(directory / n) == recorded[n]}
    return (present | set(recorded)) - same


def _remove_ours(target: Path) -> None:
    for name in _files(target):
        (target / name).unlink()
    for folder in sorted((p for p in target.rglob("*") if p.is_dir()), reverse=True):
        folder.rmdir()
    target.rmdir()


def _files(directory: Path) -> list[str]:
    return sorted(
        str(p.relative_to(directory))
        for p in directory.rglob("*")
        if not p.is_dir() or p.is_symlink()
    )
