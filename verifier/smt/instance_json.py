"""Instances of rules as JSON data."""

from typing import Any

from shardproof.verifier.kernel.contract import layout_from_json, layout_to_json, where_from_json
from shardproof.verifier.kernel.instance import Instance, Piece
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.text.digest import attr_to_json
from shardproof.verifier.text.jsonio import attr_from_json


def to_json(instance: Instance) -> dict[str, Any]:
    return {
        "rule": instance.rule,
        "op": instance.op,
        "attrs": {k: attr_to_json(v) for k, v in instance.attrs},
        "given": [_piece_to_json(p) for p in instance.given],
        "made": _piece_to_json(instance.made),
        "mesh": [list(d) for d in instance.mesh.dims],
    }


def _piece_to_json(piece: Piece) -> list[Any]:
    where = [[name, list(at)] for name, at in piece.where]
    return [layout_to_json(piece.layout), where, piece.dtype, piece.zero]


def from_json(at: Cursor) -> Instance:
    """Raises MalformedError."""
    at.only("rule", "op", "attrs", "given", "made", "mesh")
    attrs = tuple((k, attr_from_json(v)) for k, v in at["attrs"].entries())
    given = tuple(_piece_from_json(p) for p in at["given"].items())
    dims = [item.tuple(2, "[mesh dim, size]") for item in at["mesh"].items()]
    mesh = Mesh(tuple((name.text(), size.integer()) for name, size in dims))
    made = _piece_from_json(at["made"])
    return Instance(at["rule"].text(), at["op"].text(), attrs, given, made, mesh)


def _piece_from_json(at: Cursor) -> Piece:
    layout, where, dtype, zero = at.tuple(4, "[layout, ranks, dtype, whether 0]")
    return Piece(layout_from_json(layout), where_from_json(where), dtype.text(), zero.flag())
