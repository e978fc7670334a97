"""Programs as JSON data, and their digest."""

import hashlib
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import IN_ORDER, Node, Program
from shardproof.verifier.kernel.program.types import Affine, Attr, Mesh, Source, TensorType
from shardproof.verifier.kernel.program.where import Where

FORMAT = "shardproof.program/1"


def to_json(program: Program, sources: bool = True) -> dict[str, Any]:
    """The program as JSON data."""
    head = {"format": FORMAT, "name": program.name, "mesh": mesh_to_json(program.mesh)}
    return {**head, **lists(program, sources)}


def digest(program: Program, bodies: dict[int, str] | None = None) -> str:
    """SHA-256 (hex) of the canonical JSON of a program without its source locations.

    A body stands in it by its own digest, which is made once where several nodes share the body.
    """
    known = {} if bodies is None else bodies

    def named(body: Program) -> str:
        if id(body) not in known:
            known[id(body)] = digest(body, known)
        return known[id(body)]

    head = {"format": FORMAT, "name": program.name, "mesh": mesh_to_json(program.mesh)}
    rows = {**head, **lists(program, False, named)}
    plain = json.dumps(rows, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def mesh_to_json(mesh: Mesh) -> list[list[str | int]]:
    return [[name, size] for name, size in mesh.dims]


def lists(
    program: Program, sources: bool, nested: Callable[[Program], Any] | None = None
) -> dict[str, list[dict[str, Any]]]:
    return {
        "inputs": [
            {"name": i.name, "type": _type(i.type), "role": i.role, "path": i.path, **_on(i.where)}
            for i in program.inputs
        ],
        "nodes": [_node(program, node, sources, nested) for node in program.nodes],
        "outputs": [{"value": o.value, "role": o.role, "path": o.path} for o in program.outputs],
    }


def _type(type: TensorType) -> dict[str, Any]:
    return {"dtype": type.dtype, "shape": list(type.shape)}


def _on(where: Where) -> dict[str, Any]:
    return {"on": [[name, list(chosen)] for name, chosen in where]} if where else {}


def _node(
    program: Program, node: Node, sources: bool, nested: Callable[[Program], Any] | None
) -> dict[str, Any]:
    out: dict[str, Any] = {
        "op": node.op,
        "inputs": list(node.inputs),
        "outputs": [{"name": v, "type": _type(program.types[v])} for v in node.outputs],
        "attrs": {k: attr_to_json(node.attrs[k]) for k in sorted(node.attrs)},
    }
    out |= _on(node.where)
    if node.timing != IN_ORDER:
        timing = node.timing
        out["timing"] = {
            "async": timing.asynchronous,
            "stream": timing.stream,
            "buffer": timing.buffer,
        }
    if sources and node.source != Source():
        src = node.source
        said = {"file": src.file, "line": src.line, "module": src.module, "text": src.text}
        calls = {"calls": [list(call) for call in src.calls]} if src.calls else {}
        out["source"] = {**said, **calls}
    if node.body is not None:
        out["body"] = nested(node.body) if nested else to_json(node.body, sources)
    return out


def attr_to_json(attr: Attr) -> Any:
    """Rationals and affine values become objects; the rest is JSON's own.

    Raises IRError for a value that is no attribute.
    """
    match attr:
        case bool() | int() | str():
            return attr
        case Fraction():
            return {"rational": f"{attr.numerator}/{attr.denominator}"}
        case Affine():
            return {"affine": attr.const, "terms": [[name, c] for name, c in attr.terms]}
        case tuple():
            return list(attr)
        case _:
            raise IRError(f"{attr!r} is not an attribute value (a {type(attr).__name__})")
