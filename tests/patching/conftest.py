"""A tree of an owner, and an out-directory with a patch for it, as a run seals them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardproof.agent.patching import describe
from shardproof.agent.patching.record import Origin
from shardproof.agent.patching.store import Record, locked
from shardproof.agent.run import outdir
from shardproof.synthesis.emit.patch import patch

MODEL = "import torch\n\nwidth = 4\nheads = 2\n"
LOCAL = "import torch\n\nwidth = 4\nheads = 2 // 2\n"

Texts = Mapping[str, tuple[str | None, str]]
DEFAULT: Texts = {"src/model.py": (MODEL, LOCAL), "parallel/run.py": (None, "print(1)\n")}


@dataclass
class Tree:
    """`root` with the files before the patch, `out` with the patch, `state` beside both."""

    root: Path
    out: Path
    state: Path

    def files(self) -> dict[str, tuple[bytes, int]]:
        """Every file under the root: bytes and mode."""
        return {
            p.relative_to(self.root).as_posix(): (p.read_bytes(), p.stat().st_mode)
            for p in sorted(self.root.rglob("*"))
            if p.is_file()
        }

    def folders(self) -> set[str]:
        return {p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_dir()}


Make = Callable[..., Tree]


def history(root: Path, state: Path) -> list[Record]:
    """What is kept of every patch of a tree, oldest first."""
    with locked(root.resolve(), state) as (store, _):
        return store.records()


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that it wrote: syncing matters for power cuts alone."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(
        files: Texts = DEFAULT,
        origin: Origin = "captured",
        verdict: str = "proved",
        sources: Mapping[str, str] | None = None,
        name: str = "out",
    ) -> Tree:
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        for path, (old, _) in files.items():
            if old is not None:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(old.encode())
        with outdir.staged(tmp_path / name) as out:
            out.write("patch.diff", patch(files, (), "").diff)
            noted = describe(files, sources or {}, verdict == "proved", origin)
            out.seal({"verdict": verdict, "patch": noted})
        return Tree(root, tmp_path / name, tmp_path / "state")

    return build
