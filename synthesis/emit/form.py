"""How emitted code is written: line length, and where its definitions come from."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

FILES = ("ruff.toml", ".ruff.toml", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class Form:
    width: int = 88
    """Columns of a line at most; 88 is what ruff and black take by themselves."""
    inline: bool = False
    """Definitions are pasted into the file instead of imported from `shardproof.runtime`."""


PLAIN = Form()


def line_length(folder: Path) -> int:
    """The line length that ruff or black is set to for files of this folder, else 88."""
    for place in (folder, *folder.parents):
        for name in FILES:
            found = _stated(place / name) if (place / name).is_file() else None
            if found is not None:
                return found
    return PLAIN.width


def _stated(path: Path) -> int | None:
    try:
        data: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    tools = cast("Mapping[str, Mapping[str, Any]]", data.get("tool", {}))
    tables = (data,) if path.name != "pyproject.toml" else (tools.get("ruff"), tools.get("black"))
    lengths = [t.get("line-length") for t in tables if t is not None]
    return next((n for n in lengths if isinstance(n, int)), None)


def call(head: str, arguments: Sequence[str], indent: int, tail: str = "", width: int = 88) -> str:
    """`head(arguments)tail`, on one line if it fits, else one argument a line."""
    pad = " " * indent
    line = f"{pad}{head}({', '.join(arguments)}){tail}"
    if len(line) <= width:
        return line
    inner = "".join(f"{pad}    {a},\n" for a in arguments)
    return f"{pad}{head}(\n{inner}{pad}){tail}"


def literal(value: object, indent: int = 0) -> str:
    """A Python literal with double quotes, one entry of a dict a line."""
    if isinstance(value, str):
        text = repr(value)
        plain = text[0] == "'" and '"' not in text and "\\" not in text
        return f'"{text[1:-1]}"' if plain else text
    if isinstance(value, Mapping):
        pad = " " * (indent + 4)
        entries = cast(Mapping[object, object], value).items()
        rows = "".join(f"{pad}{literal(k)}: {literal(v, indent + 4)},\n" for k, v in entries)
        return "{\n" + rows + " " * indent + "}" if rows else "{}"
    if isinstance(value, list | tuple):
        items = cast(list[object], value)
        return "[" + ", ".join(literal(v, indent) for v in items) + "]"
    return repr(value)
