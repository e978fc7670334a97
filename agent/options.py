"""What is given on the command line, read into values, with one clear error for what is not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from agent.errors import InputError
from verifier.ir.types import DTYPES, Mesh, TensorType

MESH_DIMS = ("dp", "tp")
"""Mesh dims that synthesis has tactics for."""

_INPUT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<dtype>\w+)\[(?P<shape>[\d,\s]*)\]")


def read_mesh(text: str) -> Mesh:
    """Read `dp=2,tp=4`.

    Raises:
        InputError: not of that form, a dim named twice or unknown, a size below 1.
    """
    where = f"--mesh {text}"
    form = "NAME=SIZE[,NAME=SIZE...], for example dp=2,tp=4"
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not size.isdecimal():
            raise InputError(f"cannot read the mesh dim {part!r}", where=where, expected=form)
        if name not in MESH_DIMS:
            raise InputError(
                f"no strategy for the mesh dim {name!r}",
                where=where,
                expected=" and ".join(MESH_DIMS),
            )
        if name in sizes:
            raise InputError(f"mesh dim {name!r} is named twice", where=where, expected=form)
        if int(size) < 1:
            raise InputError(
                f"mesh dim {name!r} has size {size}", where=where, expected="1 or more"
            )
        sizes[name] = int(size)
    return Mesh(tuple(sizes.items()))


def read_input(text: str) -> tuple[str, TensorType]:
    """Read one `--input name=dtype[extents]`.

    Raises:
        InputError: not of that form, or an unknown dtype.
    """
    where = f"--input {text}"
    match = _INPUT.fullmatch(text.strip())
    extents = match["shape"].replace(" ", "") if match else ""
    if match is None or not re.fullmatch(r"(\d+(,\d+)*)?", extents):
        raise InputError(
            "cannot read the input",
            where=where,
            expected="NAME=DTYPE[EXTENTS], for example idx=i64[4,32]",
        )
    if match["dtype"] not in DTYPES:
        raise InputError(
            f"unknown dtype {match['dtype']!r}", where=where, expected=", ".join(DTYPES)
        )
    shape = tuple(int(n) for n in extents.split(",")) if extents else ()
    return match["name"], TensorType(shape, match["dtype"])


def read_inputs(texts: Iterable[str]) -> dict[str, TensorType]:
    """Read every `--input`.

    Raises:
        InputError: as `read_input`, or an input named twice.
    """
    found: dict[str, TensorType] = {}
    for text in texts:
        name, tensor = read_input(text)
        if name in found:
            raise InputError(f"input {name!r} is given twice", where=f"--input {text}")
        found[name] = tensor
    return found


def read_config(items: Sequence[str]) -> dict[str, Any]:
    """Merge `--config` items in order: `FILE.json`, or `key=value` with dots for nested keys.

    A value is JSON where it reads as JSON, else text.

    Raises:
        InputError: an item of neither form, or a file that is missing or no JSON object.
    """
    config: dict[str, Any] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_][\w.]*", key):
            _set(config, key, _value(value), item)
        elif item.endswith(".json"):
            config.update(_config_file(item))
        else:
            raise InputError(
                "cannot read the config",
                where=f"--config {item}",
                expected="key=value, or the path of a .json file",
            )
    return config


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def _set(config: dict[str, Any], key: str, value: Any, item: str) -> None:
    *parents, last = key.split(".")
    place = config
    for parent in parents:
        inner: Any = place.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise InputError(
                f"{parent!r} already has a value that holds no keys",
                where=f"--config {item}",
                got=repr(inner),
            )
        place = cast(dict[str, Any], inner)
    place[last] = value


def _config_file(name: str) -> dict[str, Any]:
    path = Path(name)
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("config file not found", where=f"--config {name}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("config file cannot be read", where=name, got=str(error)) from None
    except ValueError as error:
        raise InputError("config file is not JSON", where=name, got=str(error)) from None
    if not isinstance(data, dict):
        raise InputError(
            "config file holds no object", where=name, expected="{...}", got=type(data).__name__
        )
    return cast(dict[str, Any], data)
