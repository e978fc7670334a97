"""Words for the names of jobs, from meshes, files and classes."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path


def is_field(item: str) -> bool:
    key, equals, _ = item.partition("=")
    return bool(equals) and key.isidentifier()


def worded(text: str) -> str:
    """Text as a part of a name."""
    return re.sub(r"[^A-Za-z0-9._=+-]+", "-", text.removesuffix(".json"))[-80:].strip("-.")


def slug(mesh: str) -> str:
    return re.sub(r"\s*,\s*", "-", mesh).replace("=", "").replace(" ", "")


def label(config: Iterable[str]) -> str:
    """A word for the config file in a name."""
    file = next((item for item in config if not is_field(item)), None)
    return _word(Path(file)) if file is not None else ""


def _word(file: Path) -> str:
    return Path(os.path.abspath(file)).parent.name if file.stem == "config" else file.stem  # noqa: PTH100


def labels(files: Sequence[Path | None]) -> dict[Path, str]:
    """A word for each file, with its folder where words alone are not distinct."""
    words = {file: _word(file) for file in files if file is not None}
    counts = Counter(words.values())
    return {
        file: word if counts[word] == 1 else f"{file.parent.name}-{file.stem}"
        for file, word in words.items()
    }
