"""Facts about repeated blocks are true on numbers, wherever the carries start and on what ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from hypothesis import given, settings, strategies as st

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Attr, Mesh, TensorType
from shardproof.verifier.kernel.program.where import Where
from shardproof.verifier.kernel.rank_sets import regions
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.relate.facts import describe
from shardproof.verifier.provers.relate.rules import Rules, initial
from shardproof.verifier.provers.relate.walk import relate
from shardproof.verifier.provers.sequential import as_terms
from shardproof.verifier.refute.evaluate import evaluate, simulate
from shardproof.verifier.refute.scatter import scatter
from shardproof.verifier.verdict import Proof
from tests.verifier.meaning import FLOATS, Meaning, holds

MESHES = (Mesh.of(tp=2), Mesh.of(dp=2, tp=2))
SHAPES = {"a": (4,), "w": (4,), "x": (3, 4)}
KINDS = ("add", "add", "add", "sub", "sub", "mul", "neg", "tanh")
Step = tuple[str, list[str]]


class Case:
    """One random block, on one device and, here and there otherwise, on ranks."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.mesh = MESHES[self.below(len(MESHES))]
        self.carries = 1 + self.below(2)
        names = [*(f"c{k}" for k in range(self.carries)), "x", "w"]
        self.inputs, self.steps = list(names), list[Step]()
        for k in range(2 + self.below(3)):
            kind = KINDS[self.below(len(KINDS))]
            count = 1 if kind in ("neg", "tanh") else 2
            self.steps.append((kind, [self.one_of(names) for _ in range(count)]))
            names.append(f"v{k}")
        self.results = [names[-1 - self.below(2)] for _ in range(self.carries)]
        self.results.append(self.one_of(names))
        self.starts = [("", "", "a", "w")[self.below(4)] for _ in range(self.carries)]
        split = "S(-1)" if self.below(2) else "R"
        self.layouts = {
            name: from_placements(
                shape, [(n, self.mesh[n], split if n == "tp" else "R") for n in self.mesh.names]
            )
            for name, shape in SHAPES.items()
        }

    def below(self, n: int) -> int:
        return int(self.rng.integers(n))

    def one_of(self, names: Sequence[str]) -> str:
        return names[self.below(len(names))]

    def program(self, mesh: Mesh) -> Program:
        b = Builder("p", mesh)
        for name, shape in SHAPES.items():
            local = self.layouts[name].local_shape if mesh.dims else shape
            b.input(name, TensorType(local, "f32"))
        begin = [self.start(b, s) if mesh.dims else self.plain(b, s) for s in self.starts]
        attrs: dict[str, Attr] = {"length": 3, "carry": self.carries, "xs": 1}
        body = self.body(mesh, b.types["a"])
        for k, value in enumerate(b.add_node("scan", [*begin, "x", "w"], attrs, body=body)):
            b.output(b.add("only", value) if mesh.dims else value, path=f"y{k}")
        return b.build()

    def body(self, mesh: Mesh, kind: TensorType) -> Program:
        b = Builder("block", mesh)
        for name in self.inputs:
            role = "carry" if name[0] == "c" else "xs" if name == "x" else "const"
            b.input(name, kind, role)
        made = {name: name for name in self.inputs}
        for k, (op, operands) in enumerate(self.steps):
            given = [self.other(b, made, made[v]) for v in operands]
            made[f"v{k}"] = self.other(b, made, b.add(op, *given))
        for k, name in enumerate(self.results):
            b.output(made[name], "carry" if k < self.carries else "ys")
        return b.build()

    def other(self, b: Builder, made: dict[str, str], value: str) -> str:
        """Mostly the value; else one that may be another on ranks."""
        if not b.mesh.dims or self.below(5):
            return value
        name = self.one_of(b.mesh.names)
        match self.below(5):
            case 0:
                return b.add("all_reduce", value, mesh_dim=name, reduce="sum")
            case 1:
                return b.add("on_coord", value, mesh_dim=name, index=self.below(2))
            case 2:
                return b.add("neg", b.add("neg", value))
            case 3:
                return b.add("ring_shift", value, mesh_dim=name)
            case _:
                return self.one_of(list(made.values()))

    def plain(self, b: Builder, start: str) -> str:
        return start or b.add("full", shape=b.types["a"].shape, value=Fraction(0))

    def start(self, b: Builder, start: str) -> str:
        """Where a carry starts: whole, one share, or another value on some ranks."""
        name, last = b.mesh.names[0], b.mesh.names[-1]
        match self.below(6):
            case 0:
                return b.add("on_coord", self.plain(b, start), mesh_dim=name, index=0)
            case 1:
                return b.add("merge", *(self.piece(b, start, {name: c}) for c in range(2)))
            case 2 if name != last:
                cancel = [self.piece(b, "a", {name: 1, last: c}, c == 1) for c in range(2)]
                rest = self.piece(b, start, {name: 0})
                return b.add("merge", b.add("merge", *cancel), rest)
            case 3:
                return self.piece(b, start, {last: self.below(2)})
            case _:
                return self.plain(b, start)

    def piece(self, b: Builder, start: str, where: dict[str, int], turned: bool = False) -> str:
        with b.on(**where):
            if not start or not self.below(3):
                return self.plain(b, "" if not turned else start)
            return b.add("neg" if turned else "only", start)


def programs(seed: int) -> tuple[Case, Program, Program] | None:
    """A case with its two programs; None where the ranks cannot run theirs."""
    case = Case(seed)
    one = case.program(Mesh())
    try:
        many = case.program(case.mesh)
    except IRError:
        return None
    return None if regions(many).faults() else (case, one, many)


def untrue(seed: int) -> tuple[list[str], int]:
    """The facts about a random block that are not true, and how many there are."""
    made = programs(seed)
    if made is None:
        return [], 0
    case, one, many = made
    terms, contract = as_terms(one), Contract(case.layouts, {})
    related = relate(terms, many, initial(contract, terms), contract, Rules(many.mesh))
    wholes = {name: case.rng.standard_normal(shape) for name, shape in SHAPES.items()}
    parts = {n: scatter(w, case.layouts[n], many.mesh, FLOATS, case.rng) for n, w in wholes.items()}
    state = simulate(many, [{n: p[r] for n, p in parts.items()} for r in range(many.mesh.size)])
    meaning, values = Meaning(terms.terms, wholes), evaluate(one, wholes)
    for name, ref in terms.values.items():
        if ref.coef:
            meaning.seen[ref.id] = np.asarray(values[name]) / float(ref.coef)
    wrong: list[str] = []
    for name, facts in related.facts.items():
        for fact in facts:
            why = holds(fact, [local.get(name) for local in state], many.mesh, meaning)
            if why:
                wrong.append(f"%{name}: {describe(terms, fact)}: {why}")
    scans = [n for n in many.nodes if n.op == "scan"]
    return wrong, sum(len(related.facts[v]) for n in scans for v in n.outputs)


def proved(seed: int) -> bool:
    """Whether outputs are proved where some fact says what they are; asserts that they are."""
    made = programs(seed)
    if made is None:
        return False
    case, one, many = made
    terms, contract = as_terms(one), Contract(case.layouts, {})
    related = relate(terms, many, initial(contract, terms), contract, Rules(many.mesh))
    outputs: dict[str, Layout] = {}
    wanted: dict[str, Where] = {}
    for here, there in zip(one.outputs, many.outputs, strict=True):
        for fact in related.facts[there.value]:
            split = fact.layout.sharded & set(dict(fact.where))
            if fact.ref == terms.values[here.value] and not split:
                outputs[f"output:{here.path}"] = fact.layout
                wanted[f"output:{here.path}"] = fact.where
    if not outputs:
        return False
    one, many = (
        replace(p, outputs=tuple(o for o in p.outputs if f"output:{o.path}" in outputs))
        for p in (one, many)
    )
    asked = Contract(case.layouts, outputs, wanted={k: w for k, w in wanted.items() if w})
    verdict = verify(Problem(one, many, asked))
    assert isinstance(verdict, Proof), seed
    assert isinstance(check(verdict.certificate, Problem(one, many, asked)), Accepted), seed
    return True


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_every_fact_about_a_repeated_block_is_true(seed: int) -> None:
    wrong, _ = untrue(seed)
    assert not wrong, "\n".join(wrong)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_known_of_a_repeated_block_is_proved_and_replayed(seed: int) -> None:
    proved(seed)


def test_there_are_facts_about_repeated_blocks_to_test() -> None:
    assert sum(untrue(seed)[1] for seed in range(40)) > 40
    assert sum(proved(seed) for seed in range(40)) > 5
