"""Diffs, read and carried out by git in a scratch folder, never in the owner's tree."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from shardproof.agent.run.errors import InputError

GIT = ("git", "-c", "core.autocrlf=false", "-c", "core.safecrlf=false", "apply")


def counts(diff: bytes) -> dict[str, tuple[int, int]]:
    """{path: (lines added, lines removed)} of every file that a diff touches.

    Raises:
        InputError: no diff that git can read, or one of binary files.
    """
    with tempfile.TemporaryDirectory() as scratch:
        said = _git(Path(scratch), diff, "--numstat", "-z")
    out: dict[str, tuple[int, int]] = {}
    for row in said.split(b"\0"):
        if not row:
            continue
        added, removed, name = row.split(b"\t", 2)
        if added == b"-":
            raise InputError("the patch changes a binary file", where=os.fsdecode(name))
        out[os.fsdecode(name)] = (int(added), int(removed))
    return out


def results(diff: bytes, bases: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """The files after the diff. `bases`: {path: bytes before, or None for a new file}.

    Raises:
        InputError: git does not apply it.
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for name, data in bases.items():
            if data is not None:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(data)
        _git(root, diff, "--check")
        _git(root, diff)
        return {name: (root / name).read_bytes() for name in bases}


def _git(folder: Path, diff: bytes, *options: str) -> bytes:
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
        "LC_ALL": "C",
    }
    try:
        done = subprocess.run(
            [*GIT, "--whitespace=nowarn", *options],
            cwd=folder,
            input=diff,
            capture_output=True,
            env=env,
        )
    except FileNotFoundError:
        raise InputError(
            "git is not installed", hint="patches are checked with git apply"
        ) from None
    if done.returncode:
        raise InputError("git cannot apply the patch", got=done.stderr.decode(errors="replace"))
    return done.stdout
