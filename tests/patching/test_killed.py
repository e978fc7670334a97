"""SIGKILL before every change of the disk: the tree is as before or as after, never between."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from shardproof.agent.patching import apply_patch, recover, redo, undo
from tests.patching.conftest import DEFAULT, Make, Tree, history

CALLS = ("replace", "unlink", "fsync", "mkdir", "rmdir", "fchmod", "open")
FILES = {**DEFAULT, "b.py": ("b = 1\n", "b = 2\n")}


def killed_before(call: int, work: Callable[[], object]) -> bool:
    """Do the work in a fork that kills itself before its n-th change of the disk."""
    child = os.fork()
    if child == 0:
        left = [call]

        def counting(real: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any, **options: Any) -> Any:
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return real(*args, **options)

            return run

        for name in CALLS:
            setattr(os, name, counting(getattr(os, name)))
        work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("doing", ["apply", "undo", "redo"])
def test_killed_anywhere(make: Make, doing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = make(FILES)
    old = (tree.files(), tree.folders())
    apply_patch(tree.out, tree.root, tree.state)
    new = (tree.files(), tree.folders())
    undo(tree.root, tree.state)
    if doing == "undo":
        redo(tree.root, tree.state)
    start, end = (new, old) if doing == "undo" else (old, new)
    steps: dict[str, Callable[[Tree], object]] = {
        "apply": lambda t: apply_patch(t.out, t.root, t.state),
        "undo": lambda t: undo(t.root, t.state),
        "redo": lambda t: redo(t.root, t.state),
    }
    back = redo if doing == "undo" else undo
    taken_back = between = 0
    # Outcomes of git do not depend on when a process is killed; only its own writes count.
    from shardproof.agent.patching import diffs

    made = diffs.results((tree.out / "patch.diff").read_bytes(), bases(FILES))
    counted = diffs.counts((tree.out / "patch.diff").read_bytes())

    def results(diff: bytes, bases: Mapping[str, bytes | None]) -> dict[str, bytes]:
        return made

    def counts(diff: bytes) -> dict[str, tuple[int, int]]:
        return counted

    monkeypatch.setattr(diffs, "results", results)
    monkeypatch.setattr(diffs, "counts", counts)
    for call in range(200):
        dead = killed_before(call, lambda: steps[doing](tree))
        between += (tree.files(), tree.folders()) not in (start, end)
        taken_back += recover(tree.root, tree.state) is not None
        found = (tree.files(), tree.folders())
        assert found in (start, end), call
        states = [e.state for e in history(tree.root, tree.state)]
        assert ("applied" in states) == (found == new), call
        if found == end:
            back(tree.root, tree.state)
            assert (tree.files(), tree.folders()) == start
        if not dead:
            break
    else:
        pytest.fail("never came to its end")
    assert taken_back >= 5
    assert between >= 3


def bases(files: dict[str, tuple[str | None, str]]) -> dict[str, bytes | None]:
    return {path: None if old is None else old.encode() for path, (old, _) in files.items()}


def test_edits_made_while_it_lay_dead_are_kept(make: Make) -> None:
    tree = make({"a.py": ("a\n", "A\n"), "b.py": ("b\n", "B\n")})
    for call in range(200):
        assert killed_before(call, lambda: apply_patch(tree.out, tree.root, tree.state))
        if (tree.root / "a.py").read_text() == "A\n":
            break
        recover(tree.root, tree.state)
    (tree.root / "b.py").write_text("mine\n")
    found = recover(tree.root, tree.state)
    assert found is not None
    assert (found.files, found.left) == (("a.py",), ("b.py",))
    assert (tree.root / "a.py").read_text() == "a\n"
    assert (tree.root / "b.py").read_text() == "mine\n"
    assert "edited since" in str(found)
    kept = history(tree.root, tree.state)
    assert [e.state for e in kept] == ["dropped"]
    assert {p.read_text() for p in tree.state.rglob("before.*")} == {"a\n", "b\n"}


def test_killed_while_it_takes_back(make: Make) -> None:
    tree = make({"a.py": ("a\n", "A\n"), "b.py": ("b\n", "B\n")})
    start = tree.files()
    half = 0
    while (tree.root / "a.py").read_text() != "A\n":
        recover(tree.root, tree.state)
        assert killed_before(half, lambda: apply_patch(tree.out, tree.root, tree.state))
        half += 1
    for call in range(200):
        dead = killed_before(call, lambda: recover(tree.root, tree.state))
        recover(tree.root, tree.state)
        assert tree.files() == start, call
        assert history(tree.root, tree.state) == [], call
        if not dead:
            break
        assert killed_before(half - 1, lambda: apply_patch(tree.out, tree.root, tree.state))
    assert call > 5
