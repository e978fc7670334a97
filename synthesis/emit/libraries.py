"""Source files of libraries, which stay as they are."""

import importlib.util
from pathlib import Path


def placed(path: str) -> Path:
    """`transformers/models/...` where the library lies; other paths as they are."""
    place = Path(path)
    spec = None if place.is_absolute() else importlib.util.find_spec(place.parts[0])
    if spec is not None and spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0]).parent / place
    return place


def in_library(path: str) -> bool:
    """Whether a path, as it is shown, names a file of an installed package."""
    return not Path(path).is_absolute() and "-packages/" in placed(path).as_posix()


def read(path: str) -> str:
    """The text of a file."""
    return placed(path).read_text(encoding="utf-8")
