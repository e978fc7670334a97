"""A patch goes in whole and comes out exactly; what does not fit is one clear refusal."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from shardproof.agent.patching import apply_patch, describe, preview, redo, undo
from shardproof.agent.patching.disk import place
from shardproof.agent.run import outdir
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.emit.patch import patch
from tests.patching.conftest import LOCAL, MODEL, Make, Tree, history


def refused(what: str, tree: Tree, **options: bool) -> None:
    """Apply is refused with these words, and neither tree nor history changed."""
    before = tree.files()
    with pytest.raises(InputError) as told:
        apply_patch(tree.out, tree.root, tree.state, **options)
    assert what in f"{told.value.what} {told.value.got}"
    assert tree.files() == before
    assert history(tree.root, tree.state) == []


def test_apply_undo_redo(make: Make) -> None:
    tree = make()
    (tree.root / "src/model.py").chmod(0o755)
    before, folders = tree.files(), tree.folders()
    seen = preview(tree.out, tree.root)
    assert seen.ready
    assert [(f.path, f.added, f.removed, f.state) for f in seen.files] == [
        ("parallel/run.py", 1, 0, "ready"),
        ("src/model.py", 1, 1, "ready"),
    ]
    assert tree.files() == before
    done = apply_patch(tree.out / "patch.diff", tree.root, tree.state)
    assert done.files == ("parallel/run.py", "src/model.py")
    after = tree.files()
    assert after["src/model.py"] == (LOCAL.encode(), 0o100755)
    assert after["parallel/run.py"][0] == b"print(1)\n"
    assert preview(tree.out, tree.root).applied
    for _ in range(2):
        undo(tree.root, tree.state)
        assert (tree.files(), tree.folders()) == (before, folders)
        redo(tree.root, tree.state)
        assert tree.files() == after
    assert [e.state for e in history(tree.root, tree.state)] == ["applied"]
    assert not list(tree.root.rglob(".*shardproof*"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a = 1\r\nb = 2\r\n", "a = 1\r\nb = 3\r\nc = 4\r\n"),
        ("a = 1\nb = 2", "a = 1\nb = 3"),
        ("a = 1\nb = 2", "a = 1\nb = 2\n"),
        ("a = '\x0c'\nb = '\u2028'\n", "a = '\x0c'\nb = '\u2028é'\n"),
        ("\ufeffa = 1\r\nb\n", "\ufeffa = 1\r\nc\n"),
    ],
    ids=["CRLF", "no final newline", "newline added", "odd separators", "BOM and mixed ends"],
)
def test_bytes_are_exact(make: Make, old: str, new: str) -> None:
    tree = make({"m.py": (old, new)})
    before = tree.files()
    apply_patch(tree.out, tree.root, tree.state)
    assert (tree.root / "m.py").read_bytes() == new.encode()
    undo(tree.root, tree.state)
    assert tree.files() == before


TEXT = st.lists(st.sampled_from(["a", "b", "", "x\r", " "]), max_size=6).map("\n".join)


@settings(max_examples=15, deadline=None)
@given(TEXT.filter(bool), TEXT.filter(bool))
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, old: str, new: str) -> None:
    if old == new:
        return
    home = tmp_path_factory.mktemp("tree")
    files = {"m.py": (old, new)}
    (home / "root").mkdir()
    (home / "root/m.py").write_bytes(old.encode())
    with outdir.staged(home / "out") as out:
        out.write("patch.diff", patch(files, (), "").diff)
        out.seal({"verdict": "proved", "patch": describe(files, {}, proved=True)})
    apply_patch(home / "out", home / "root", home / "state")
    assert (home / "root/m.py").read_bytes() == new.encode()
    undo(home / "root", home / "state")
    assert (home / "root/m.py").read_bytes() == old.encode()


def test_a_file_that_changed_is_not_patched(make: Make) -> None:
    tree = make()
    (tree.root / "src/model.py").write_text(MODEL + "# mine\n")
    assert [f.state for f in preview(tree.out, tree.root).files] == ["ready", "changed"]
    refused("it changed since the patch was made", tree)


def test_edits_after_apply_are_not_undone(make: Make) -> None:
    tree = make()
    apply_patch(tree.out, tree.root, tree.state)
    (tree.root / "src/model.py").write_text(LOCAL + "# mine\n")
    before = tree.files()
    with pytest.raises(InputError, match="changed since; nothing was written"):
        undo(tree.root, tree.state)
    assert tree.files() == before
    (tree.root / "src/model.py").write_text(LOCAL)
    undo(tree.root, tree.state)
    assert tree.files()["src/model.py"][0] == MODEL.encode()


def test_undo_goes_back_patch_by_patch_and_a_new_patch_ends_redo(make: Make) -> None:
    first = make({"m.py": ("a\n", "b\n")})
    apply_patch(first.out, first.root, first.state)
    second = make({"m.py": ("b\n", "c\n")}, name="second")
    third = make({"m.py": ("b\n", "d\n")}, name="third")
    apply_patch(second.out, first.root, first.state)
    undo(first.root, first.state)
    apply_patch(third.out, first.root, first.state)
    assert [e.state for e in history(first.root, first.state)] == ["applied", "dropped", "applied"]
    with pytest.raises(InputError, match="nothing to redo"):
        redo(first.root, first.state)
    undo(first.root, first.state)
    undo(first.root, first.state)
    assert (first.root / "m.py").read_text() == "a\n"
    redo(first.root, first.state)
    assert (first.root / "m.py").read_text() == "b\n"
    with pytest.raises(InputError, match="nothing to undo"):
        undo(first.out, first.state)


def test_how_far_a_patch_is_trusted_decides(make: Make) -> None:
    tried = make(origin="tried", name="tried")
    refused("the patch is unsafe", tried)
    for name, options in {
        "unbound": {"origin": "unbound"},
        "refuted": {"verdict": "refuted"},
    }.items():
        refused("the patch is for reading only", make(name=name, **options), unsafe=True)
    apply_patch(tried.out, tried.root, tried.state, unsafe=True)


def test_the_code_that_was_proved_must_be_the_code_there(make: Make) -> None:
    import hashlib

    tree = make(sources={"src/layers.py": hashlib.sha256(b"x = 1\n").hexdigest()})
    layers = tree.root / "src/layers.py"
    layers.write_text("x = 2\n")
    assert preview(tree.out, tree.root).stale == ("src/layers.py",)
    refused("the code that was proved changed since", tree)
    layers.write_text("x = 1\n")
    apply_patch(tree.out, tree.root, tree.state)


def _link_file(tree: Tree) -> None:
    real = tree.root / "real.py"
    (tree.root / "src/model.py").rename(real)
    (tree.root / "src/model.py").symlink_to(real)


def _link_folder(tree: Tree) -> None:
    outside = tree.root.parent / "outside"
    (tree.root / "src").rename(outside)
    (tree.root / "src").symlink_to(outside)


def _made_by_hand(tree: Tree) -> None:
    (tree.root / "parallel").mkdir()
    (tree.root / "parallel/run.py").write_text("mine\n")


def _after(change: Callable[[Tree], object]) -> Callable[[Tree], object]:
    return change


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (_link_file, "symbolic link"),
        (_link_folder, "leads out of the root"),
        (_after(lambda t: (t.root / "src/model.py").chmod(0o444)), "read-only"),
        (_after(lambda t: (t.root / "src/model.py").write_bytes(b"\0\xff")), "changed since"),
        (_after(lambda t: (t.root / "src/model.py").unlink()), "there is no such file"),
        (
            _after(lambda t: (t.root / "parallel").write_text("a file")),
            "a folder of the path is a file",
        ),
        (_made_by_hand, "makes this file anew"),
        (_after(lambda t: (t.out / "patch.diff").write_text("other")), "the out-directory changed"),
        (_after(lambda t: (t.out / "manifest.json").unlink()), "not an out-directory"),
    ],
)
def test_what_does_not_fit_is_refused(
    make: Make, spoil: Callable[[Tree], object], what: str
) -> None:
    tree = make()
    spoil(tree)
    refused(what, tree)


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "a/../../x", "a//b", ".git/hooks/x", "a\nb", ""]
)
def test_paths_stay_in_the_root(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        place(tmp_path.resolve(), name)


def test_a_record_that_differs_from_the_diff_is_refused(make: Make, tmp_path: Path) -> None:
    tree = make({"m.py": ("a\n", "b\n")})
    files = {"m.py": ("a\n", "c\n")}
    with outdir.staged(tmp_path / "forged") as out:
        out.write("patch.diff", patch({"m.py": ("a\n", "b\n")}, (), "").diff)
        out.seal({"verdict": "proved", "patch": describe(files, {}, proved=True)})
    refused("git makes another text", Tree(tree.root, tmp_path / "forged", tree.state))
    with outdir.staged(tmp_path / "more") as out:
        out.write("patch.diff", patch({"m.py": ("a\n", "b\n"), "n.py": (None, "x\n")}, (), "").diff)
        out.seal({"verdict": "proved", "patch": describe(files, {}, proved=True)})
    refused("touches other files", Tree(tree.root, tmp_path / "more", tree.state))


def test_no_root(make: Make, tmp_path: Path) -> None:
    tree = make()
    for root in (tmp_path / "nowhere", tree.out / "patch.diff"):
        with pytest.raises(InputError, match="root"):
            preview(tree.out, root)


def test_two_at_once(make: Make) -> None:
    from shardproof.agent.patching.store import locked

    tree = make()
    with locked(tree.root.resolve(), tree.state), pytest.raises(InputError, match="another"):
        apply_patch(tree.out, tree.root, tree.state)
    assert os.environ.get("GIT_DIR") is None
