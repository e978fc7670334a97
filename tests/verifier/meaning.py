"""What a term and a fact mean on numbers, written apart from the rules that derive them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import members
from shardproof.verifier.ops import facets
from shardproof.verifier.provers.relate.facts import Fact
from shardproof.verifier.refute.scatter import copies, gather, piece
from shardproof.verifier.terms import Ref, Terms


class RoundedApartError(ValueError):
    """What is compared differs by a rounding: the numbers say nothing of the program."""


class Plain(Floats):
    """Numbers whose comparisons do not depend on how they were rounded."""

    def _compare(self, name: str, a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(_float(a), _float(b))
        if np.any((a != b) & (np.abs(a - b) <= 1e-12 * np.maximum(np.abs(a), np.abs(b)))):
            raise RoundedApartError
        return super()._compare(name, a, b)


FLOATS = Plain()


class Meaning:
    """Values of terms, given values of the inputs of the one-device program."""

    def __init__(self, terms: Terms, inputs: Mapping[str, Array]) -> None:
        self.terms, self.inputs = terms, inputs
        self.seen: dict[int, Array] = {}

    def of(self, ref: Ref) -> Array:
        if ref.id not in self.seen:
            self.seen[ref.id] = np.asarray(self._term(ref.id))
        value = self.seen[ref.id]
        return value if ref.coef == 1 else _float(value) * float(ref.coef)

    def _term(self, id: int) -> Array:
        term = self.terms[id]
        args = [self.of(a) for a in term.args]
        match term.op:
            case "var":
                return self.inputs[term.attrs[0]]
            case "ones":
                return np.ones(term.shape)
            case "ramp":
                return np.arange(term.shape[0])
            case "lin":
                return np.asarray(sum(_float(a) for a in args))
            case "prod":
                out = np.ones(())
                for a, power in zip(args, term.attrs, strict=True):
                    out = out * _float(a) ** power
                return np.asarray(out)
            case "nought":
                return _float(args[0]) * 0
            case "matmul":
                return _float(args[0]) @ _float(args[1])
            case "sum":
                return _float(args[0]).sum(axis=term.attrs[0])
            case "amax":
                return args[0].max(axis=term.attrs[0])
            case "expand":
                return np.broadcast_to(args[0], term.shape)
            case "reshape":
                return args[0].reshape(term.shape)
            case "cast":
                kind = {"bool": "bool", "int": "i64", "u8": "u8"}[term.attrs[0]]
                return facets("cast").meaning(FLOATS, args[0], dtype=kind)
            case "pow":
                return facets("pow").meaning(FLOATS, _float(args[0]), exponent=term.attrs[0])
            case _:
                names = ATTRS.get(term.op, ())
                attrs = dict(zip(names, term.attrs, strict=True))
                if "index" in lookup(term.op).kind:
                    args[1] = args[1].astype(np.int64)
                if term.op in ("index_add", "put_along"):
                    attrs["size"] = term.shape[attrs.get("dim", 0)]
                return facets(term.op).meaning(FLOATS, *args, **attrs)


ATTRS: dict[str, tuple[str, ...]] = {
    "permute": ("dims",),
    "slice": ("dim", "start", "stop", "step"),
    "concat": ("dim",),
    "pad": ("dim", "lo", "hi"),
    "flip": ("dim",),
    "take": ("dim", "offset"),
    "take_along": ("dim", "offset"),
    "index_add": ("offset",),
    "put_along": ("dim", "offset"),
}
"""Names of the attributes that a term keeps; index_add and put_along keep `size` as a shape."""


def _float(value: Array) -> Array:
    return value.astype(np.float64)


def holds(fact: Fact, parts: Sequence[Array | None], mesh: Mesh, meaning: Meaning) -> str:
    """Empty where the pieces make up what the fact says; else what is wrong."""
    want = meaning.of(fact.ref)
    layout = fact.layout
    if want.shape != layout.global_shape:
        return f"the whole has shape {want.shape}, laid out as {layout}"
    where, coords = fact.where, mesh.coords()
    if set(dict(where)) & layout.pending:
        return f"a part of a pending fold under {layout}"
    held = {r: _float(p) for r, p in enumerate(parts) if p is not None}
    if set(dict(where)) & layout.sharded:
        folds = {"sum": np.sum, "max": np.max, "min": np.min}
        for rank in members(where, mesh):
            fixed = {k: v for k, v in coords[rank].items() if k not in layout.pending}
            share = [held[r] for r, c in enumerate(coords) if fixed.items() <= c.items()]
            fold = folds[next((f for _, f in layout.partial), "sum")]
            if not close(fold(share, axis=0), piece(_float(want), layout, coords[rank])):
                return f"rank {rank} holds another piece under {layout}"
        return ""
    local = np.zeros(layout.local_shape)
    whole = gather([held.get(r, local) for r in range(mesh.size)], layout, mesh, FLOATS, where)
    if not close(whole, want):
        return f"the pieces as {layout} make up another value"
    for rank, origin in copies(layout, mesh, where):
        if not close(held[rank], held[origin]):
            return f"ranks {rank} and {origin} differ under {layout}"
    return ""


def close(a: Array, b: Array) -> bool:
    a, b = _float(np.asarray(a)), _float(np.asarray(b))
    both = np.isfinite(a) & np.isfinite(b)
    top = max(1.0, float(np.max(np.abs(b[both]), initial=0.0)))
    return bool(np.all(np.abs(a[both] - b[both]) <= 1e-7 * top))
