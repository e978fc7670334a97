"""What a patch does to a tree, as values."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shardproof.agent.patching.record import Applicability

State = Literal["ready", "applied", "changed", "missing", "in the way", "unusable"]
"""Of a file: as the patch expects it, already patched, edited since, not there, there although the
patch makes it, or nothing that a patch may touch."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a patch does to one file."""

    path: str
    """Relative to the root."""
    added: int
    removed: int
    before: str | None
    """SHA-256 of the file that the patch was made for; None for a new file."""
    after: str
    state: State
    note: str = ""
    """Why it is not ready, one sentence."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A patch held against a tree. Nothing was written."""

    patch: Path
    root: Path
    diff: str
    files: tuple[FileChange, ...]
    applicability: Applicability
    because: tuple[str, ...] = ()
    """Why it is not safe."""
    stale: tuple[str, ...] = ()
    """Files that the model was captured from and that the patch leaves alone, but that changed."""

    @property
    def ready(self) -> bool:
        """Whether every file is as the patch expects it."""
        return not self.stale and all(f.state == "ready" for f in self.files)

    @property
    def applied(self) -> bool:
        return all(f.state == "applied" for f in self.files)


@dataclass(frozen=True, slots=True)
class Recovered:
    """An earlier run was stopped in the middle: its files are as they were before it."""

    doing: Literal["apply", "undo", "redo"]
    files: tuple[str, ...]
    left: tuple[str, ...] = ()
    """Files that were edited in between and were left alone."""

    def __str__(self) -> str:
        text = f"an {self.doing} that was stopped in the middle was taken back: " + (
            ", ".join(self.files) or "no file had been touched"
        )
        if self.left:
            text += "; edited since and left alone: " + ", ".join(self.left)
            text += " (as before they lie in the state folder)"
        return text.replace("an redo", "a redo")


@dataclass(frozen=True, slots=True)
class Applied:
    """An apply, undo or redo that went through."""

    doing: Literal["apply", "undo", "redo"]
    root: Path
    files: tuple[str, ...]
    recovered: Recovered | None = None
    """What had to be taken back first."""
