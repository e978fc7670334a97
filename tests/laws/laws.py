"""The law of placement, checked on values and by Z3, and a table of what was checked.

The law: where a placement rule claims that the results of the ranks are pieces of `scale` times the
op on the whole operands, scattering the operands, running the op on every rank and gathering by the
claimed layout gives exactly that, and ranks that hold the same piece agree.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.domains.field import Field
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.domains.symbolic import Symbolic
from shardproof.verifier.kernel.instance import Instance, Piece
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.registry import Op, Refused
from shardproof.verifier.kernel.program.types import FLOATS
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, ranks_where
from shardproof.verifier.ops import REGISTRY, facets
from shardproof.verifier.provers.placement import Placed, place
from shardproof.verifier.smt import solver as smt
from shardproof.verifier.smt.pieces import broken, zeros
from tests.laws.lemmas import LEMMAS
from tests.laws.samples import MESHES, Case, cases


@dataclass(frozen=True, slots=True)
class Broken:
    """A claim that does not hold."""

    case: Case
    placed: Placed
    domain: str
    why: str

    def __str__(self) -> str:
        claim = ", ".join(map(str, self.placed.layouts))
        scale = f" times {self.placed.scale}" if self.placed.scale != 1 else ""
        attrs = ", ".join(f"{k}={v}" for k, v in self.placed.attrs)
        meant = "operand 0" if self.placed.moves else f"{self.case.op.name}(...; {attrs})"
        return f"{self.case}\n  claims {claim} of {meant}{scale}; on {self.domain}: {self.why}"


@dataclass(slots=True)
class Tally:
    """What was tried for one op."""

    op: str
    claims: int = 0
    refused: int = 0
    values: int = 0
    proofs: int = 0
    seconds: float = 0.0


def draw(case: Case, domain: Domain, rng: np.random.Generator) -> list[Array]:
    """Whole operands."""
    out: list[Array] = []
    for i, (layout, dtype) in enumerate(zip(case.layouts, case.dtypes, strict=True)):
        shape = layout.global_shape
        if i in case.zeros:
            out.append(zeros(shape, dtype, domain))
        elif dtype == "bool":
            out.append(rng.integers(2, size=shape).astype(bool))
        elif dtype == "i64":
            out.append(rng.integers(-1, 9, size=shape))
        else:
            values = domain.random(shape, rng)
            if isinstance(domain, Floats) and case.op.traits.needs:
                values = np.abs(values) + 0.1
            out.append(values)
    return out


def starts(case: Case) -> Where:
    """The ranks that hold the operands: one coordinate alone where the op reads no other."""
    key = facets(case.op.name).source
    if not key:
        return EVERYWHERE
    name, at = str(case.operands.attr("mesh_dim")), case.operands.number(key)
    return ranks_where(case.mesh, {name: (at,)})


def lands(case: Case) -> Where:
    """The ranks that hold the result. Raises Refused."""
    if case.op.region is None:
        return EVERYWHERE
    held = [starts(case)] * len(case.layouts)
    return case.op.region(dict(case.attrs), held, EVERYWHERE, case.mesh)


def instance(case: Case, layout: Layout) -> Instance:
    """The case as a step, with the layout that is claimed of its result."""
    held = starts(case)
    given = tuple(
        Piece(lay, held, dtype, i in case.zeros)
        for i, (lay, dtype) in enumerate(zip(case.layouts, case.dtypes, strict=True))
    )
    name = case.op.name
    return Instance(name, name, case.attrs, given, Piece(layout, lands(case)), case.mesh)


def expected(case: Case, placed: Placed, wholes: list[Array], domain: Domain) -> Array:
    """What the claim says the pieces are pieces of."""
    if placed.moves:
        value = wholes[0]
    else:
        attrs = case.op.with_defaults(dict(placed.attrs))
        value = np.asarray(facets(case.op.name).meaning(domain, *wholes, **attrs))
    if placed.scale == 1:
        return value
    return domain.mul(domain.lift(value), domain.const(placed.scale))


def check(case: Case, placed: Placed, domain: Domain, rng: np.random.Generator) -> str | None:
    """Why the claim fails on this domain; None where it holds."""
    (layout,) = placed.layouts
    wholes = draw(case, domain, rng)
    return broken(
        instance(case, layout),
        wholes,
        lambda given, parts: expected(case, placed, list(given), domain),
        domain,
        rng,
    )


def placed_cases(op: Op, limit: int, tries: int, seed: int) -> Iterator[tuple[Case, list[Placed]]]:
    """Applications with the claims made of them (none where refused), `limit` claimed per mesh."""
    for mesh in MESHES:
        rng = np.random.default_rng([seed, mesh.size])
        claimed = 0
        for case in cases(op, mesh, rng, tries):
            try:
                lands(case)
                claims = place(op, case.operands)
            except Refused:
                claims = []
            claimed += bool(claims)
            yield case, claims
            if claimed == limit:
                break


def _domains(case: Case, seed: int) -> list[Domain]:
    """Where a case is tried. Order does not carry over to the field: neither that of integers, nor
    what a function that rises does to it."""
    folded = [
        (i, dtype)
        for i, (layout, dtype) in enumerate(zip(case.layouts, case.dtypes, strict=True))
        if any(fold != "sum" for _, fold in layout.partial)
    ]
    ordered = any(dtype not in FLOATS or i in facets(case.op.name).rises for i, dtype in folded)
    if not ordered:
        return [Floats(), Field(seed), Symbolic(("max",))]
    return [Floats(), Symbolic(("max", "rising"))]


def survey(op: Op, limit: int, seed: int = 0) -> tuple[Tally, list[Broken]]:
    """Check the claims of one op on floats, on the prime field and by Z3."""
    tally = Tally(op.name)
    broken: list[Broken] = []
    begin = time.perf_counter()
    rng = np.random.default_rng(seed)
    for case, claims in placed_cases(op, limit, limit * 125, seed):
        tally.refused += not claims
        for placed in claims:
            tally.claims += 1
            for domain in _domains(case, seed):
                why = check(case, placed, domain, rng)
                tally.proofs += isinstance(domain, Symbolic)
                tally.values += not isinstance(domain, Symbolic)
                if why:
                    broken.append(Broken(case, placed, type(domain).__name__.lower(), why))
    tally.seconds = time.perf_counter() - begin
    return tally, broken


def main() -> int:
    """Print a table of the laws; exit status 1 where one is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.laws.laws", description=main.__doc__)
    parser.add_argument("ops", nargs="*", help="op names; all ops by default")
    parser.add_argument("--limit", type=int, default=12, help="applications per op and mesh")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    lines = [f"{'op':22} {'claims':>7} {'refused':>8} {'values':>7} {'proofs':>7} {'seconds':>8}"]
    failures: list[str] = []
    for name in given.ops or sorted(REGISTRY):
        tally, broken = survey(REGISTRY[name], given.limit, seed=given.seed)
        failures += map(str, broken)
        lines.append(
            f"{name:22} {tally.claims:7} {tally.refused:8} {tally.values:7} {tally.proofs:7} "
            f"{tally.seconds:8.2f}"
        )
    if not given.ops:
        lines += ["", f"{'lemma':34} {'answer':10}"]
        for lemma in LEMMAS.values():
            answer = lemma.prove()
            lines.append(f"{lemma.name:34} {type(answer).__name__.lower():10} {lemma.says}")
            if not isinstance(answer, smt.Valid):
                failures.append(f"lemma {lemma.name}: {answer}")
    sys.stdout.write("\n".join([*lines, "", *failures]) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
