"""The manifest: a TOML or JSON file of jobs, read strictly; what is wrong is said with its line."""

import difflib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from shardproof.agent.actions.action import expected
from shardproof.agent.actions.batches import APART, entry
from shardproof.agent.actions.models import Parallelize
from shardproof.agent.run.errors import InputError

Values = str | list[str]
MATRIX = ("mesh", "batch", "seq", "hardware")
"""Entries that may be a list: one job for each."""


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _entries() -> dict[str, Any]:
    """An entry for each parameter of `parallelize` that a job may have, all left out at first."""
    found: dict[str, Any] = {}
    for name, (known, option) in Parallelize.parameters().items():
        if name in APART:
            continue
        kind: Any = list[str] if known.default == () else known.annotation
        if name == "config":
            kind = str | list[str] | dict[str, Any]
        elif name in MATRIX:
            (one,) = {k for k in get_args(kind) or (kind,) if k is not NoneType}
            kind = Annotated[one, option] | list[Annotated[one, option]]
        found[entry(name, option)] = (kind | None, None)
    return found


Entries = create_model("Entries", __base__=Strict, **_entries())


class Options(Entries):
    """What may stand in `[defaults]` and in a job. An entry of a job replaces the default."""

    timeout: float | None = Field(default=None, gt=0)


class Entry(Options):
    """One `[[job]]`: a model, or the models of many config files."""

    name: str | None = None
    target: str | None = None
    """Left out where the config files name their class (`architectures`)."""
    configs: Values | None = None
    """Patterns of config files: one job for each file."""
    translation: str | None = None


class Manifest(Strict):
    defaults: Options = Options()
    job: list[Entry] = Field(min_length=1)


FORMS = {
    "job": "a list of jobs, at least one: [[job]] with target and mesh",
    "defaults": "a table of options: [defaults]",
    "name": "a name",
    "target": "path/model.py:Class or hf:Class",
    "configs": 'a pattern of config files, "configs/*.json", or a list of them',
    "mesh": 'a mesh such as "dp=2,tp=2", or a list of them',
    "config": 'a file, a list such as ["llama.json", "num_hidden_layers=2"], or a table',
    "timeout": "seconds, more than 0",
    "translation": "a file",
}
"""What is expected of an entry that is not written as on the command line, for people."""


def form(name: str) -> str:
    """What is expected of an entry."""
    if name in FORMS:
        return FORMS[name]
    found = {entry(n, each[1]): each for n, each in Parallelize.parameters().items()}
    if name not in found:
        return ""
    word = expected(*found[name])
    return f"{word}, or a list of them" if name in MATRIX else word


Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Origin:
    """Where the entries of a manifest stand."""

    path: Path
    text: str = ""
    lines: Mapping[Place, int] = field(default_factory=dict[Place, int])

    def where(self, place: Place) -> str:
        """`batch.toml:12: job 2, mesh`; without the line where it is not known."""
        known = [n for n in range(len(place), 0, -1) if place[:n] in self.lines]
        line = f":{self.lines[place[: known[0]]]}" if known else ""
        shown: list[str] = []
        for part in place:
            if isinstance(part, int) and shown:
                shown[-1] += f" {part + 1}"
            else:
                shown.append(str(part))
        return f"{self.path}{line}" + (f": {', '.join(shown)}" if shown else "")


def read(path: Path) -> tuple[Manifest, Origin]:
    """Read a manifest.

    Raises:
        InputError: a file that cannot be read, or an entry that is not understood.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError("manifest not found", where=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("the manifest cannot be read", where=str(path), got=str(error)) from None
    toml = path.suffix == ".toml"
    try:
        data: Any = tomllib.loads(text) if toml else json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{path}:{error.lineno}"
        raise InputError("the manifest is not JSON", where=where, got=error.msg) from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        where = f"{path}:{line[1]}" if line else str(path)
        raise InputError("the manifest is not TOML", where=where, got=str(error)) from None
    origin = Origin(path, text, toml_lines(text) if toml else {})
    try:
        return Manifest.model_validate(data), origin
    except ValidationError as error:
        raise _refused(error, data, origin) from None


def _refused(error: ValidationError, data: Any, origin: Origin) -> InputError:
    """The first entry that is not understood, and how many more there are."""
    found = {_place(e["loc"], data): e for e in reversed(error.errors())}
    place, first = next(reversed(found.items()))
    name = next((str(p) for p in reversed(place) if isinstance(p, str)), "")
    more = len(found) - 1
    hint = f"and {more} more like it" if more else ""
    if first["type"] == "extra_forbidden":
        known = Manifest if len(place) == 1 else Options if place[0] == "defaults" else Entry
        names = list(known.model_fields)
        near = difflib.get_close_matches(name, names, 1)
        return InputError(
            f"no entry {name!r}",
            where=origin.where(place),
            expected=", ".join(names),
            hint="; ".join(filter(None, [f"did you mean {near[0]}?" if near else "", hint])),
        )
    missing = first["type"] == "missing"
    return InputError(
        f"{name or 'the manifest'} {'is missing' if missing else 'cannot be read'}",
        where=origin.where(place),
        expected=form(name) or first["msg"],
        got="" if missing else shown(_at(data, place)),
        hint=hint,
    )


def _place(location: Sequence[str | int], data: Any) -> Place:
    """The part of pydantic's location that is one in the data: no names of alternatives."""
    place: list[str | int] = []
    for part in location:
        inside = isinstance(data, list | tuple) if isinstance(part, int) else isinstance(data, dict)
        if not inside:
            break
        place.append(part)
        try:
            data = data[part]
        except (KeyError, IndexError):
            break
    return tuple(place)


def _at(data: Any, place: Place) -> Any:
    for part in place:
        data = data[part]
    return data


def shown(value: object) -> str:
    """A value as it was written, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except TypeError:
        text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


_HEADER = re.compile(r"\s*(\[\[?)\s*([\w-]+)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*([\w-]+)\s*[.=]")


def toml_lines(text: str) -> dict[Place, int]:
    """Lines of tables and of their entries, as manifests are commonly laid out."""
    lines: dict[Place, int] = {}
    table: Place = ()
    counts: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        header = _HEADER.match(line)
        if header is not None:
            name = header[2]
            table = (name,)
            if header[1] == "[[":
                table = (name, counts.get(name, 0))
                counts[name] = counts.get(name, 0) + 1
            lines[table] = number
        elif (key := _KEY.match(line)) is not None:
            lines.setdefault((*table, key[1]), number)
    return lines


def values(given: object) -> tuple[Any, ...]:
    """A value, or each of a list."""
    return tuple(cast("list[Any]", given)) if isinstance(given, list) else (given,)
