"""Preview, apply, undo and redo of a patch on a tree. No git command runs in the tree."""

import datetime
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from shardproof.agent.patching import diffs
from shardproof.agent.patching.disk import (
    Content,
    check_writable,
    look,
    missing_folders,
    place,
    resolved_root,
)
from shardproof.agent.patching.facts import Applied, FileChange, Preview, Recovered
from shardproof.agent.patching.record import Digest, Recorded, read, sha256
from shardproof.agent.patching.store import Doing, Image, Record, Store, default_state, key, locked
from shardproof.agent.run.errors import InputError


def preview(patch: Path, root: Path) -> Preview:
    """Hold the patch of an out-directory against a tree. Writes nothing.

    `patch` is the out-directory or the `patch.diff` in it; `root` the folder that its paths are
    relative to.

    Raises:
        InputError: no patch of ours, changed since it was written, or no root.
    """
    return _preview(read(patch), resolved_root(root))


def _preview(stated: Recorded, base: Path) -> Preview:
    counted = diffs.counts(stated.diff)
    if set(counted) != set(stated.files):
        raise InputError(
            "the patch touches other files than its record says",
            where=str(stated.path),
            expected=", ".join(sorted(stated.files)),
            got=", ".join(sorted(counted)),
        )
    files = [
        _change(base, path, hashes, counted[path]) for path, hashes in sorted(stated.files.items())
    ]
    return Preview(
        stated.path,
        base,
        stated.shown,
        tuple(files),
        stated.applicability,
        stated.because,
        tuple(p for p, digest in sorted(stated.sources.items()) if _other(base, p, digest)),
    )


def _other(base: Path, name: str, digest: str) -> bool:
    try:
        content = look(place(base, name).resolve())
    except InputError:
        return True
    return content is None or sha256(content.data) != digest


def _change(
    base: Path, name: str, hashes: tuple[Digest, str], lines: tuple[int, int]
) -> FileChange:
    before, after = hashes
    change = FileChange(name, *lines, before, after, "ready")
    try:
        path = place(base, name)
        content = look(path)
        found = None if content is None else sha256(content.data)
        if found == after:
            return replace(change, state="applied", note="it is as the patch leaves it")
        if found != before:
            if content is None:
                return replace(change, state="missing", note="there is no such file")
            if before is None:
                return replace(change, state="in the way", note="the patch makes this file anew")
            return replace(change, state="changed", note="it changed since the patch was made")
        check_writable(path)
    except InputError as error:
        return replace(change, state="unusable", note=_sentence(error))
    return change


def apply_patch(
    patch: Path, root: Path, state_dir: Path | None = None, *, unsafe: bool = False
) -> Applied:
    """Apply the patch of an out-directory: every file of it, or none.

    Args:
        state_dir: where images of the files and the history are kept; the user's state folder
            where not given.
        unsafe: also apply what was proved under more than the ordinary assumptions.

    Raises:
        InputError: it may not be applied, or not to this tree; nothing was written.
    """
    base = resolved_root(root)
    with locked(base, state_dir) as (store, recovered):
        return _apply(store, recovered, read(patch), base, unsafe=unsafe)


def apply_texts(
    diff: str,
    files: Mapping[str, tuple[str | None, str]],
    sources: Mapping[str, str],
    root: Path,
    state_dir: Path | None = None,
) -> Applied:
    """Apply a proved change of files: all of it, or nothing.

    Args:
        files: {path: (text before, or None for a new file, text that was proved)}.
        sources: {path: text} of the other files that the proof rests on.

    Raises:
        InputError: a file is not as it was; nothing was written.
    """
    base = resolved_root(root)
    hashes: dict[str, tuple[Digest, str]] = {
        p: (None if old is None else sha256(old.encode()), sha256(new.encode()))
        for p, (old, new) in files.items()
    }
    others = {p: sha256(text.encode()) for p, text in sources.items() if p not in files}
    stated = Recorded(base / next(iter(files)), diff.encode(), hashes, others, "safe", ())
    with locked(base, state_dir) as (store, recovered):
        return _apply(store, recovered, stated, base, unsafe=False)


def _apply(
    store: Store, recovered: Recovered | None, stated: Recorded, base: Path, *, unsafe: bool
) -> Applied:
    seen = _preview(stated, base)
    check_ready(seen, unsafe=unsafe)
    bases, after = _carried_out(stated, seen, base)
    records = store.records()
    number = max((r.number for r in records), default=0) + 1
    record, contents = _record(store, stated, bases, after, number)
    store.add(record, contents)
    store.swap(record, "apply")
    for old in records:
        if old.state == "undone":
            store.save(old.model_copy(update={"state": "dropped"}))
    return Applied("apply", base, record.paths, recovered)


def _carried_out(
    stated: Recorded, seen: Preview, base: Path
) -> tuple[dict[str, Content | None], dict[str, bytes]]:
    """The files before, as they are on the tree, and after.

    Raises:
        InputError: git does not apply the diff, or makes other files than are recorded.
    """
    bases = {f.path: look(place(base, f.path)) for f in seen.files}
    after = diffs.results(stated.diff, {p: None if c is None else c.data for p, c in bases.items()})
    for path, (_, digest) in stated.files.items():
        if sha256(after[path]) != digest:
            raise InputError("git makes another text than was recorded", where=path)
    return bases, after


def texts(patch: Path, root: Path) -> dict[str, tuple[str | None, str]]:
    """The files of a patch on a tree that it fits: text before (None: there is none) and after.

    Raises:
        InputError: no patch of ours, or it does not fit the tree; nothing was written.
    """
    base, stated = resolved_root(root), read(patch)
    seen = _preview(stated, base)
    check_ready(seen, unsafe=True)
    bases, after = _carried_out(stated, seen, base)
    return {
        path: (None if old is None else old.data.decode("utf-8"), after[path].decode("utf-8"))
        for path, old in bases.items()
    }


def check_ready(seen: Preview, *, unsafe: bool) -> None:
    """Raise InputError where a patch may not be applied, or not to its tree as it is."""
    if seen.applicability == "display-only":
        raise InputError(
            "the patch is for reading only", where=str(seen.patch), got="; ".join(seen.because)
        )
    if seen.applicability == "unsafe" and not unsafe:
        raise InputError(
            "the patch is unsafe",
            where=str(seen.patch),
            got="; ".join(seen.because),
            hint="--unsafe applies it all the same",
        )
    if seen.applied:
        raise InputError("the patch is applied already", where=str(seen.root))
    if seen.stale:
        raise InputError(
            "the code that was proved changed since",
            where=", ".join(seen.stale),
            hint="run parallelize again",
        )
    for file in seen.files:
        if file.state != "ready":
            hints = {
                "changed": "run parallelize again",
                "applied": "undo brings the others back",
                "missing": "--root names the folder that the paths of the patch are relative to",
                "in the way": "move it away",
            }
            raise InputError(
                "the patch does not fit this tree",
                where=str(seen.root / file.path),
                got=file.note,
                hint=hints.get(file.state, ""),
            )


def _record(
    store: Store,
    stated: Recorded,
    bases: dict[str, Content | None],
    after: dict[str, bytes],
    number: int,
) -> tuple[Record, list[tuple[Content | None, Content]]]:
    umask = os.umask(0)
    os.umask(umask)
    images: list[Image] = []
    contents: list[tuple[Content | None, Content]] = []
    folders: list[str] = []
    for path, (before, digest) in sorted(stated.files.items()):
        old = bases[path]
        mode = old.mode if old is not None else 0o666 & ~umask
        images.append(
            Image(path=path, before=before, after=digest, before_mode=mode, after_mode=mode)
        )
        contents.append((old, Content(after[path], mode)))
        made = missing_folders(store.root, place(store.root, path))
        folders += [f.relative_to(store.root).as_posix() for f in made]
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record = Record(
        number=number,
        state="pending",
        at=at,
        patch=str(stated.path.resolve()),
        images=tuple(images),
        folders=tuple(dict.fromkeys(folders)),
    )
    return record, contents


def undo(root: Path, state_dir: Path | None = None) -> Applied:
    """Take the last applied patch back: the exact bytes of before, new files removed.

    Raises:
        InputError: nothing to undo, or a file changed since it was applied; nothing was written.
    """
    return _again(root, state_dir, "undo")


def redo(root: Path, state_dir: Path | None = None) -> Applied:
    """Apply again what was undone last.

    Raises:
        InputError: nothing to redo, or a file changed since; nothing was written.
    """
    return _again(root, state_dir, "redo")


def _again(root: Path, state_dir: Path | None, doing: Doing) -> Applied:
    base = resolved_root(root)
    with locked(base, state_dir) as (store, recovered):
        records = store.records()
        if doing == "undo":
            fitting = [r for r in records if r.state == "applied"][-1:]
        else:
            fitting = [r for r in records if r.state == "undone"][:1]
        if not fitting:
            where = (state_dir or default_state()) / "*" / "root.txt"
            raise InputError(
                f"nothing to {doing}",
                where=f"--root {base}",
                hint=f"--root names the folder that was applied to; {where} list them",
            )
        record = fitting[0]
        for image in record.images:
            check_writable(place(base, image.path))
        store.swap(record, doing)
        return Applied(doing, base, record.paths, recovered)


def recover(root: Path, state_dir: Path | None = None) -> Recovered | None:
    """Take back what a run that was stopped in the middle had replaced; every command does so.

    A tree that was never changed is left without a state.
    """
    if not (state_dir or default_state()).joinpath(key(resolved_root(root))).is_dir():
        return None
    with locked(resolved_root(root), state_dir) as (_, recovered):
        return recovered


def _sentence(error: InputError) -> str:
    """What and where of an error in one line."""
    return ": ".join(part for part in (error.what, error.where, error.got) if part)
