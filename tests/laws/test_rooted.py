"""Every claim about a value that goes to one rank of a group or comes from it, on values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from verifier.domains.base import Array, Domain
from verifier.domains.field import Field
from verifier.domains.floats import Floats
from verifier.domains.symbolic import Symbolic
from verifier.evaluate import simulate
from verifier.ir import Attr, Builder, IRError, Mesh, Program, TensorType
from verifier.ir.where import EVERYWHERE, Where, ranks_where
from verifier.laws import differs
from verifier.layout import Layout
from verifier.ops import REGISTRY, Operands, Placed, Refused
from verifier.regions import regions
from verifier.samples import MESHES, layouts
from verifier.scatter import copies, gather, scatter

TAKES_ALL = ("gather", "reduce_to")
"""Ops in which every rank of a group gives its piece; the others read the root's alone."""
OPS = (*TAKES_ALL, "scatter", "broadcast")
LIMIT = 150
"""Applications that are tried on one mesh."""


def choices(op: str, mesh: Mesh) -> Iterator[dict[str, Attr]]:
    for name, size in mesh.dims:
        for index in (0, size - 1):
            base: dict[str, Attr] = {"mesh_dim": name, "index": index}
            if op == "reduce_to":
                yield from ({**base, "reduce": how} for how in ("sum", "avg", "max", "min"))
            elif op == "broadcast":
                yield base
            else:
                yield from ({**base, "dim": dim} for dim in (0, 1))


def program(op: str, layout: Layout, mesh: Mesh, attrs: dict[str, Attr]) -> tuple[Program, Where]:
    """The op alone. What is read of the root alone lives there alone."""
    b = Builder(op, mesh)
    x = b.input("x", TensorType(layout.local_shape))
    if op not in TAKES_ALL:
        with b.on(**{str(attrs["mesh_dim"]): int(str(attrs["index"]))}):
            x = b.add("only", x)
    out = b.add(op, x, **attrs)
    b.output(out, path="y")
    made = b.build()
    return made, regions(made).values[out]


def check(made: Program, region: Where, layout: Layout, claim: Placed, domain: Domain) -> None:
    rng, mesh = np.random.default_rng(0), made.mesh
    whole = domain.random(layout.global_shape, rng)
    parts = scatter(whole, layout, mesh, domain, rng)
    states = simulate(made, [{"x": p} for p in parts], domain)
    (out,) = made.outputs
    results: list[Array] = [s.get(out.value, np.zeros(0)) for s in states]
    (after,) = claim.layouts
    want = domain.mul(whole, domain.const(claim.scale))
    for rank, origin in copies(after, mesh, region):
        assert differs(results[rank], results[origin], domain) is None
    assert differs(gather(results, after, mesh, domain, region), want, domain) is None


@pytest.mark.parametrize("name", OPS)
def test_every_claim_holds_where_the_result_lives(name: str) -> None:
    op = REGISTRY[name]
    claimed = refused = 0
    for mesh in MESHES:
        n = mesh.size
        pairs = list(product(layouts((2 * n, n), mesh), choices(name, mesh)))
        for layout, attrs in pairs[:: 1 + len(pairs) // LIMIT]:
            items = tuple(sorted(op.with_defaults(attrs).items()))
            if name not in TAKES_ALL and attrs["mesh_dim"] in layout.mentioned:
                continue  # a value on one coordinate depends on no other
            try:
                claims = op.place(op, Operands((layout,), items, mesh))
                made, region = program(name, layout, mesh, attrs)
            except (Refused, IRError):
                refused += 1
                continue
            for claim in claims:
                assert claim.moves
                claimed += 1
                for domain in (Floats(), Field(claimed), Symbolic(("max",))):
                    check(made, region, layout, claim, domain)
    assert claimed >= 16
    assert refused >= 16 or name not in TAKES_ALL


def test_regions_of_roots() -> None:
    mesh = Mesh.of(dp=2, tp=2)
    layout = Layout.replicate((4, 4))
    at: dict[str, Attr] = {"mesh_dim": "tp", "index": 1}
    root = ranks_where(mesh, {"tp": (1,)})
    assert program("reduce_to", layout, mesh, {**at, "reduce": "sum"})[1] == root
    assert program("scatter", layout, mesh, {**at, "dim": 0})[1] == EVERYWHERE
