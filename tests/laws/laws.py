"""The law of placement, checked on values and by Z3, and a table of what was checked.

The law: where `op.place` claims that the results of the ranks are pieces of `scale` times the op
on the whole operands, scattering the operands, running the op on every rank and gathering by the
claimed layout gives exactly that, and ranks that hold the same piece agree.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tests.laws.samples import MESHES, Case, cases
from verifier.domains.base import Array, Domain, is_index
from verifier.domains.field import Field
from verifier.domains.floats import Floats
from verifier.domains.symbolic import Symbolic, equations
from verifier.kernel.ops import REGISTRY
from verifier.kernel.program.program import Node
from verifier.kernel.program.registry import Op, Placed, Refused
from verifier.kernel.program.types import FLOATS
from verifier.kernel.program.where import EVERYWHERE, Where, contains, members, ranks_where
from verifier.kernel.rank_sets import Regions
from verifier.refute.evaluate import Values, run_node
from verifier.refute.scatter import copies, gather, scatter
from verifier.smt import solver as smt
from verifier.smt.lemmas import LEMMAS


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
            out.append(_zeros(shape, dtype, domain))
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


def _zeros(shape: tuple[int, ...], dtype: str, domain: Domain) -> Array:
    if dtype in FLOATS:
        return domain.full(shape, Fraction(0))
    return np.zeros(shape, dtype=bool if dtype == "bool" else np.int64)


def starts(case: Case) -> Where:
    """The ranks that hold the operands: one coordinate alone where the op reads no other."""
    key = case.op.traits.source
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


def run_ranks(case: Case, parts: list[list[Array]], domain: Domain) -> list[Array]:
    """The op on every rank; `parts` holds the pieces of each operand in rank order.

    A rank that the result does not reach has an array of no entries.
    """
    names = tuple(f"i{k}" for k in range(len(parts)))
    coords, held, region = case.mesh.coords(), starts(case), lands(case)
    state: list[Values] = [
        {name: piece[rank] for name, piece in zip(names, parts, strict=True)}
        if contains(held, coords[rank])
        else {}
        for rank in range(case.mesh.size)
    ]
    node = Node(case.op.name, names, ("out",), dict(case.attrs))
    places = Regions({**dict.fromkeys(names, held), "out": region})
    run_node(node, state, case.mesh, coords, domain, places)
    return [local.get("out", np.zeros(0)) for local in state]


def expected(case: Case, placed: Placed, wholes: list[Array], domain: Domain) -> Array:
    """What the claim says the pieces are pieces of."""
    if placed.moves:
        value = wholes[0]
    else:
        attrs = case.op.with_defaults(dict(placed.attrs))
        value = np.asarray(case.op.meaning(domain, *wholes, **attrs))
    if placed.scale == 1:
        return value
    return domain.mul(domain.lift(value), domain.const(placed.scale))


def differs(a: Array, b: Array, domain: Domain) -> str | None:
    """Why two arrays are not shown to be equal; None where they are."""
    if a.shape != b.shape:
        return f"shape {list(a.shape)}, expected {list(b.shape)}"
    if is_index(a) != is_index(b):
        a, b = domain.lift(a), domain.lift(b)
    if isinstance(domain, Symbolic) and not is_index(a):
        goals = equations(a, b)
        answer = smt.prove(smt.conj(*goals), domain.facts) if goals else smt.Valid()
        return None if isinstance(answer, smt.Valid) else str(answer)[:300]
    if isinstance(domain, Floats) and not is_index(a):
        same = np.allclose(a, b, rtol=1e-9, atol=1e-9)
    else:
        same = np.array_equal(a, b)
    return None if same else f"got {a.tolist()}, expected {b.tolist()}"


def check(case: Case, placed: Placed, domain: Domain, rng: np.random.Generator) -> str | None:
    """Why the claim fails on this domain; None where it holds."""
    wholes = draw(case, domain, rng)
    parts = [
        scatter(whole, layout, case.mesh, domain, rng)
        for whole, layout in zip(wholes, case.layouts, strict=True)
    ]
    for i in case.zeros:
        parts[i] = [_zeros(p.shape, case.dtypes[i], domain) for p in parts[i]]
    results, region = run_ranks(case, parts, domain), lands(case)
    (layout,) = placed.layouts
    made = [results[rank] for rank in members(region, case.mesh)]
    wrong = next((r for r in made if r.shape != layout.local_shape), None)
    if wrong is not None:
        return f"a rank holds shape {list(wrong.shape)}, the layout says {list(layout.local_shape)}"
    for rank, origin in copies(layout, case.mesh, region):
        why = differs(results[rank], results[origin], domain)
        if why:
            return f"ranks {rank} and {origin} hold one piece and disagree: {why}"
    return differs(
        gather(results, layout, case.mesh, domain, region),
        expected(case, placed, wholes, domain),
        domain,
    )


def placed_cases(op: Op, limit: int, tries: int, seed: int) -> Iterator[tuple[Case, list[Placed]]]:
    """Applications with the claims made of them (none where refused), `limit` claimed per mesh."""
    for mesh in MESHES:
        rng = np.random.default_rng([seed, mesh.size])
        claimed = 0
        for case in cases(op, mesh, rng, tries):
            try:
                lands(case)
                claims = op.place(op, case.operands)
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
    ordered = any(dtype not in FLOATS or i in case.op.traits.rises for i, dtype in folded)
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
