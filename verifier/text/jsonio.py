"""The JSON form of programs (schema: `schema.json` beside this file), read strictly."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from shardproof.verifier.kernel.program import jsondata as data
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.program import IN_ORDER, Program, Timing
from shardproof.verifier.kernel.program.types import Affine, Attr, Mesh, Source, TensorType
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where
from shardproof.verifier.text.assemble import Assembly, mesh_of, tensor_type
from shardproof.verifier.text.digest import FORMAT, lists, mesh_to_json


def dumps(program: Program) -> str:
    """The JSON text of a program, one input, node or output a line; `loads` gives it back."""
    head = {"format": FORMAT, "name": program.name, "mesh": mesh_to_json(program.mesh)}
    fields = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in head.items()]
    for key, rows in lists(program, sources=True).items():
        body = ",\n    ".join(map(json.dumps, rows))
        fields.append(f'"{key}": [\n    {body}\n  ]' if rows else f'"{key}": []')
    return "{\n  " + ",\n  ".join(fields) + "\n}\n"


def loads(text: str, filename: str = "<json>") -> Program:
    """Read the JSON form.

    Raises:
        MalformedError: one message with the file and line, or the path inside the document.
    """
    return from_json(parse(text, filename), filename)


def from_json(document: object, filename: str = "<json>") -> Program:
    """The program in JSON data. Raises MalformedError."""
    return _program(data.Cursor(document, filename), 0)


def _program(at: data.Cursor, depth: int) -> Program:
    at.only("format", "name", "mesh", "inputs", "nodes", "outputs")
    if at["format"].text() != FORMAT:
        raise at["format"].fail(f"unknown format {at['format'].text()}", FORMAT)
    with at.located():
        parts = Assembly(at["name"].text(), _read_mesh(at["mesh"]), depth)
    for item in at["inputs"].items():
        item.only("name", "type", "role", "path", "on")
        type = _read_type(item["type"])
        with item.located():
            where = _read_where(item, parts)
            parts.input(item["name"].text(), type, item["role"].text(), item["path"].text(), where)
    for item in at["nodes"].items():
        _read_node(item, parts)
    for item in at["outputs"].items():
        item.only("value", "role", "path")
        with item.located():
            parts.output(item["value"].text(), item["role"].text(), item["path"].text())
    return parts.build()


def _read_mesh(at: data.Cursor) -> Mesh:
    with at.located():
        return mesh_of([_pair(item) for item in at.items()])


def _pair(at: data.Cursor) -> tuple[str, int]:
    name, number = at.tuple(2, "[mesh dim, integer]")
    return name.text(), number.integer()


def _read_type(at: data.Cursor) -> TensorType:
    at.only("dtype", "shape")
    with at.located():
        return tensor_type(at["dtype"].text(), [n.integer() for n in at["shape"].items()])


def _read_node(at: data.Cursor, parts: Assembly) -> None:
    at.only("op", "inputs", "outputs", "attrs", "source", "body", "on", "timing")
    names: list[str] = []
    types: list[TensorType] = []
    for item in at["outputs"].items():
        item.only("name", "type")
        names.append(item["name"].text())
        types.append(_read_type(item["type"]))
    source = _read_source(at["source"]) if "source" in at else Source()
    body = _program(at["body"], parts.depth + 1) if "body" in at else None
    attrs = {key: attr_from_json(at["attrs"][key]) for key in at["attrs"].object()}
    inputs = [item.text() for item in at["inputs"].items()]
    with at.located():
        where, timing = _read_where(at, parts), _read_timing(at)
        parts.node(at["op"].text(), inputs, names, attrs, source, body, types, where, timing)


def _read_where(at: data.Cursor, parts: Assembly) -> Where:
    if "on" not in at:
        return EVERYWHERE
    chosen: list[tuple[str, list[int]]] = []
    for item in at["on"].items():
        name, coords = item.tuple(2, "[mesh dim, [coordinates]]")
        chosen.append((name.text(), [c.integer() for c in coords.items()]))
    return parts.where(chosen)


def _read_timing(at: data.Cursor) -> Timing:
    if "timing" not in at:
        return IN_ORDER
    found = at["timing"]
    found.only("async", "stream", "buffer")
    return Timing(found["async"].flag(), found["stream"].text(), found["buffer"].text())


def _read_source(at: data.Cursor) -> Source:
    at.only("file", "line", "module", "text", "calls")
    line = _line(at["line"])
    calls: list[tuple[str, int]] = []
    for item in at["calls"].items() if "calls" in at else ():
        file, number = item.tuple(2, "[file, line]")
        calls.append((file.text(), _line(number)))
    return Source(at["file"].text(), line, at["module"].text(), at["text"].text(), tuple(calls))


def _line(at: data.Cursor) -> int:
    line = at.integer()
    if line < 0:
        raise at.fail("no line of a file", "0 or more")
    return line


def attr_from_json(at: data.Cursor) -> Attr:
    """Raises MalformedError."""
    found = at.value
    if isinstance(found, bool | int | str):
        return found
    if isinstance(found, Mapping):
        if "rational" in at:
            at.only("rational")
            return at["rational"].rational()
        at.only("affine", "terms")
        terms = [_pair(item) for item in at["terms"].items()]
        if len({name for name, _ in terms}) != len(terms):
            raise at.fail("an affine value names a mesh dim twice", "each mesh dim once")
        return Affine.of(at["affine"].integer(), dict(terms))
    if isinstance(found, Sequence):
        items = at.items()
        if items and isinstance(items[0].value, str):
            return tuple(item.text() for item in items)
        return tuple(item.integer() for item in items)
    raise at.fail("an attribute value", "a number, string, flag, list, rational or affine value")


def parse(text: str, filename: str) -> Any:
    """JSON data, without the leniences of `json`: no NaN, no repeated keys.

    Raises:
        MalformedError: with line and column where the text is not JSON.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_constant, parse_float=_constant
        )
    except json.JSONDecodeError as error:
        where = f"{filename}:{error.lineno}:{error.colno}"
        raise MalformedError(f"malformed JSON: {error.msg}", where=where) from None
    except RecursionError:
        raise MalformedError("malformed JSON: nested too deeply", where=f"{filename}:1:1") from None
    except MalformedError as error:
        raise error.at(f"{filename}:1:1") from None
    except ValueError:
        raise MalformedError(
            "malformed JSON: an integer is too long", where=f"{filename}:1:1"
        ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise MalformedError(f"malformed JSON: key {twice!r} is given twice in one object")
    return out


def _constant(text: str) -> NoReturn:
    raise MalformedError(
        "malformed JSON: a number that is not an integer",
        got=text[:40],
        hint='use {"rational": "1/2"}',
    )
