"""Source files as a model's lines name them: the owner's, which a patch may change, and those of
libraries, which stay as they are."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from shardproof.synthesis.frontends.torch.homes import is_users


def placed(path: str) -> Path:
    """`transformers/models/...` where the library lies; other paths as they are."""
    place = Path(path)
    name = place.parts[0].removesuffix(".py")
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or place.is_absolute():
        return place
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).parent / place
    return Path(spec.origin or place)


def read(path: str) -> str:
    """The text of a file of a library."""
    return placed(path).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Sources:
    """The files of an owner's model."""

    base: Path
    """The folder that the model's file is imported from: names of files are relative to it."""
    root: Path
    """The folder that the paths of a patch are relative to."""

    def place(self, name: str) -> Path:
        """Where a file lies."""
        own = (self.base / name).resolve()
        return own if own.is_file() else placed(name)

    def shown(self, path: Path) -> str | None:
        """What a patch calls a file; None of one that it cannot change."""
        inside = path.is_relative_to(self.root) and is_users(str(path))
        return path.relative_to(self.root).as_posix() if inside else None

    def read(self, name: str) -> str:
        """The text of a file."""
        return self.place(name).read_bytes().decode("utf-8")
