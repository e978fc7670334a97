"""What follows from three declarations and two lines of capture; run where the ops were added."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from shardproof.agent.cli.ops_table import markdown
from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.synthesis.frontends.torch.aten.table import TABLE, Emit
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.domains.field import Field
from shardproof.verifier.domains.monomials import difference
from shardproof.verifier.domains.polynomials import Polynomials
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.canonical.keys import Keys
from shardproof.verifier.refute.evaluate import evaluate
from shardproof.verifier.terms import Ref, Terms
from shardproof.verifier.verdict import Counterexample, Proof

TP = Mesh.of(tp=2)
Body = Callable[[Builder, str], str]


def laid(placement: str, *shape: int) -> Layout:
    return from_placements(shape, [("tp", 2, placement)])


def pair(given: Layout, made: Layout, one: Body, many: Body) -> Problem:
    """One operand, laid out as `given`, and one result."""
    programs: list[Program] = []
    sides = ("one", Mesh(), one, given.global_shape), ("many", TP, many, given.local_shape)
    for name, mesh, body, shape in sides:
        b = Builder(name, mesh)
        b.output(body(b, b.input("x", TensorType(shape, "f32"))), path="y")
        programs.append(b.build())
    return Problem(programs[0], programs[1], Contract({"x": given}, {"output:y": made}))


def proved(problem: Problem) -> None:
    verdict = verify(problem)
    assert isinstance(verdict, Proof), verdict
    found = check(
        verdict.certificate, Problem(problem.sequential, problem.distributed, problem.contract)
    )
    assert isinstance(found, Accepted), found
    assert verdict.certificate.get("kind") != "elements"


def by_definition(b: Builder, x: str) -> str:
    s = b.add("add_scalar", b.add("exp", x), value=Fraction(1))
    square = b.add("mul", s, s)
    above = b.add("add_scalar", square, value=Fraction(-1))
    below = b.add("add_scalar", square, value=Fraction(1))
    return b.add("mul", x, b.add("div", above, below))


def mish(b: Builder, x: str) -> str:
    return b.add("mish", x)


def cumprod(dim: int) -> Body:
    return lambda b, x: b.add("cumprod", x, dim=dim)


def least(reduce: str = "") -> Body:
    def body(b: Builder, x: str) -> str:
        made = b.add("amin", x, dims=(1,))
        return b.add("all_reduce", made, mesh_dim="tp", reduce=reduce) if reduce else made

    return body


def of_a_sum(shares: bool = False) -> Body:
    """Of a sum; or of the shares of ranks, which are added up after it."""

    def body(b: Builder, x: str) -> str:
        made = b.add("mish", b.add("sum", x, dims=(1,)))
        return b.add("all_reduce", made, mesh_dim="tp") if shares else made

    return body


def mirror(b: Builder, x: str) -> str:
    return b.add("mirror", x)


def kept(reduce: str = "") -> Body:
    def body(b: Builder, x: str) -> str:
        made = b.add("keep_piece", x, mesh_dim="tp", dim=0)
        return b.add("all_reduce", made, mesh_dim="tp", reduce=reduce) if reduce else made

    return body


SPLIT, ROWS = laid("S(1)", 4, 6), laid("S(0)", 4, 6)
WHOLE, ALL = laid("R", 4), laid("R", 4, 6)
RIGHT = {
    "mish": pair(SPLIT, SPLIT, mish, mish),
    "mish by its definition": pair(SPLIT, SPLIT, mish, by_definition),
    "amin": pair(SPLIT, WHOLE, least(), least("min")),
    "cumprod": pair(ROWS, ROWS, cumprod(1), cumprod(1)),
    "mirror": pair(ALL, ALL, mirror, mirror),
    "keep_piece": pair(ALL, ALL, lambda b, x: x, kept("sum")),
}
WRONG = {
    "mish of shares": pair(SPLIT, WHOLE, of_a_sum(), of_a_sum(shares=True)),
    "amin of ranks added": pair(SPLIT, WHOLE, least(), least("sum")),
    "cumprod of pieces": pair(SPLIT, SPLIT, cumprod(1), cumprod(1)),
    "mirror of pieces": pair(SPLIT, SPLIT, mirror, mirror),
    "a piece alone": pair(ALL, ALL, lambda b, x: x, kept()),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_are_proved_and_the_checker_accepts(name: str) -> None:
    proved(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs_are_refuted(name: str) -> None:
    assert isinstance(verify(WRONG[name]), Counterexample)


def test_large_programs_are_refuted_at_small_extents() -> None:
    wide = laid("S(1)", 4096, 8192), laid("R", 4096)
    assert isinstance(verify(pair(*wide, least(), least("sum"))), Counterexample)
    tall = laid("S(1)", 4096, 8192)
    assert isinstance(verify(pair(tall, tall, cumprod(1), cumprod(1))), Counterexample)


def test_a_fold_that_is_left_out_is_mended() -> None:
    verdict = verify(pair(SPLIT, WHOLE, least(), least()), fixes=True)
    assert isinstance(verdict, Counterexample)
    assert verdict.fixes in (
        ("all_reduce {mesh_dim=tp, reduce=min} after %1",),
        ("all_gather {mesh_dim=tp, dim=1} after %x",),
    )


def test_the_provers_read_the_definition() -> None:
    """In index notation, and entry by entry; the field alone knows the function by name."""
    problem = RIGHT["mish by its definition"]
    one, many = problem.sequential, problem.distributed
    terms = Terms()
    x, found = terms.var("x", (4, 6)), list[Ref]()
    for body in (one, many):
        made = {"x": x}
        for node in body.nodes:
            made[node.outputs[0]] = terms.apply(
                node.op, [made[v] for v in node.inputs], node.attrs, ["f32"] * len(node.inputs)
            )
        found.append(made[body.outputs[0].value])
    assert Keys(terms).same(*found)
    domain, rng = Polynomials(), np.random.default_rng(0)
    a, b = ends(domain, {"x": domain.symbols("x", (4, 6))})
    assert not any(difference(x.terms, y.terms) for x, y in zip(a.flat, b.flat, strict=True))
    a, b = ends(Field(), {"x": Field().random((4, 6), rng)})
    assert not np.array_equal(a, b)


def ends(domain: Domain, given: dict[str, Array]) -> list[Array]:
    """A function by its name, and by its definition."""
    out: list[Array] = []
    for body in (mish, by_definition):
        b = Builder("one")
        name = body(b, b.input("x", TensorType((4, 6), "f32")))
        out.append(evaluate(b.build(), given, domain)[name])
    return out


def test_gradients_are_written() -> None:
    for body in (mish, cumprod(1), least()):
        b = Builder("one")
        made = body(b, b.input("x", TensorType((4, 6), "f32"), "param"))
        b.output(b.add("sum", made, dims=tuple(range(len(b.types[made].shape)))), "loss")
        assert any(o.role == "grad" for o in grad(b.build()).outputs)


def test_the_page_of_ops_and_capture_have_them() -> None:
    assert all(f"`{name}`" in markdown() for name in ("mish", "amin", "cumprod"))
    calls = {"mish": (), "amin": ([1],), "cumprod": (1,)}
    for name, args in calls.items():
        e = Emit(Builder("captured"))
        e.b.input("x", TensorType((4, 6), "f32"))
        TABLE[f"{name}.default"](e, "x", *args)
        assert [n.op for n in e.b.nodes] == [name]
