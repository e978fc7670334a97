"""Patches: files before and after, as a unified diff that git applies."""

import ast
import difflib
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shardproof.synthesis.frontends.torch.process import environment


class EmitError(Exception):
    """A plan that cannot be written as source: where, what, and what to try."""


def unsaid(dialect: str, path: str, what: str) -> EmitError:
    """That a dialect has no words for something of a module, or of the model."""
    where = f"{path}: " if path else ""
    return EmitError(f"{where}a plan of {dialect} has no words for {what}; --dialect pytorch")


@dataclass(frozen=True, slots=True)
class Patch:
    files: Mapping[str, tuple[str | None, str]]
    """{path relative to the root the diff applies to: (old text or None, new text)}, text with
    the line ends of the file."""
    diff: str
    obligations: tuple[str, ...]
    """What the caller must do, one sentence each."""
    entry: str
    """How to call it: Python, a few lines."""
    function: str = "parallelize"
    """Name of the function that parallelizes a model."""


COMMENT = "# Made by shardproof: not proved yet."
"""Stands before the function that parallelizes until it is known by what it is proved."""


def stamped(patched: Patch, comment: str) -> Patch:
    """The patch with another comment in the place of `COMMENT`: the same code, on the same lines.

    Raises:
        EmitError: the comment is not one line, or is found elsewhere.
    """
    found = [path for path, (_, new) in patched.files.items() if COMMENT in new]
    path = found[0] if found else next(iter(patched.files))
    old, new = patched.files[path]
    if len(found) != 1 or new.count(COMMENT) != 1 or "\n" in comment or comment[:1] != "#":
        raise EmitError(f"{path}: {COMMENT!r} does not stand there once")
    text = new.replace(COMMENT, comment)
    if ast.dump(ast.parse(text)) != ast.dump(ast.parse(new)):
        raise EmitError(f"{path}: {COMMENT!r} is not a comment there")
    files = {**patched.files, path: (old, text)}
    return patch(files, patched.obligations, patched.entry, patched.function)


def _lines(text: str) -> list[str]:
    """Lines with their ends, split on newline only (a form feed is no line end to git)."""
    parts = text.split("\n")
    lines = [part + "\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def unified(path: str, old: str | None, new: str) -> str:
    """The diff of one file, `a/path` to `b/path`, byte-stable; `/dev/null` for a new file."""
    out: list[str] = [f"diff --git a/{path} b/{path}\n"]
    if old is None:
        out.append("new file mode 100644\n")
    hunks = difflib.unified_diff(
        _lines(old or ""),
        _lines(new),
        "/dev/null" if old is None else f"a/{path}",
        f"b/{path}",
        lineterm="\n",
    )
    for line in hunks:
        out.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(out) if len(out) > 2 - (old is not None) else ""


def patch(
    files: Mapping[str, tuple[str | None, str]],
    obligations: tuple[str, ...],
    entry: str,
    function: str = "parallelize",
) -> Patch:
    diff = "".join(unified(path, *files[path]) for path in sorted(files))
    return Patch(dict(files), diff, obligations, entry, function)


def write_old(patched: Patch, root: Path) -> None:
    """Write the files as they were before the patch under `root`."""
    for path, (old, _) in patched.files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if old is not None:
            place.write_text(old, encoding="utf-8", newline="")


def git_apply(patched: Patch, root: Path) -> None:
    """Check and apply the diff to `root`, a folder with the files as they were before.

    Raises:
        EmitError: git refuses the diff, or leaves other text than the patch holds.
    """
    apply_diff(patched.diff, root)
    for path, (_, new) in patched.files.items():
        if (root / path).read_bytes().decode("utf-8") != new:
            raise EmitError(f"{path}: git apply gave other text than the patch holds")


def apply_diff(diff: str, root: Path) -> None:
    """Check and apply a diff to `root`. Raises EmitError where git refuses it."""
    base = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn"]
    env = environment() | {"HOME": str(root)}
    subprocess.run(["git", "init", "-q"], cwd=root, check=True, capture_output=True, env=env)
    for options in (["--check"], []):
        done = subprocess.run(
            [*base, *options],
            cwd=root,
            input=diff.encode(),
            capture_output=True,
            env=env,
        )
        if done.returncode:
            raise EmitError(f"git apply refuses the patch: {done.stderr.decode().strip()}")


def check_applies(patched: Patch) -> None:
    """Apply the patch in a scratch folder; raises EmitError where git refuses."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        write_old(patched, root)
        git_apply(patched, root)
