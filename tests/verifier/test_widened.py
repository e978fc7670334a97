"""Facts that are derived in further ways are true on numbers; what they need is asked for."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import example, given, settings, strategies as st

from shardproof.verifier.domains.base import Array
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.kernel.program.where import ranks_where
from shardproof.verifier.provers.relate.rules import Rules, initial, satisfied
from shardproof.verifier.provers.relate.walk import relate
from shardproof.verifier.provers.sequential import as_terms
from shardproof.verifier.refute.evaluate import simulate
from shardproof.verifier.refute.scatter import gather
from shardproof.verifier.terms import Ref
from shardproof.verifier.text.parser import parse_text
from tests.verifier.meaning import FLOATS, Meaning, Plain, RoundedApartError, holds
from tests.verifier.random_programs import MESHES, Author, grow, inputs, pieces, values


class Parts(Meaning):
    """Terms with parts of folds: these are what the ranks hold."""

    def __init__(self, *given: object, state: list[dict[str, Array]], mesh: Mesh) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.state, self.mesh = state, mesh

    def of(self, ref: Ref) -> Array:
        term = self.terms[ref.id]
        if term.op == "addend" and ref.id not in self.seen:
            value, name, at, layout, where, *_ = term.attrs
            rest = layout.with_partial(p for p in layout.partial if p[0] != name)
            there = ranks_where(self.mesh, {**dict(where), name: (at,)})
            none = np.zeros(rest.local_shape)
            held = [np.asarray(s.get(value, none), dtype=float) for s in self.state]
            whole = gather(held, rest, self.mesh, FLOATS, there)
            self.seen[ref.id] = np.asarray(whole, dtype=float)
        return super().of(ref)


def broken_facts(seed: int, moves: bool) -> tuple[list[str], Counter[str]]:
    try:
        return broken(seed, moves)
    except RoundedApartError:
        return [], Counter()


def broken(seed: int, moves: bool) -> tuple[list[str], Counter[str]]:
    rng = np.random.default_rng(seed)
    mesh = MESHES[int(rng.integers(len(MESHES)))]
    sequential, contract = inputs(mesh, rng)
    b = Builder("many", mesh)
    for item in sequential.inputs:
        b.input(item.name, TensorType(contract.inputs[item.name].local_shape, item.type.dtype))
    author = Author(b, rng)
    author.moves = moves
    grow(author, 30)
    distributed = b.build()
    one = as_terms(sequential)
    related = relate(one, distributed, initial(contract, one), contract, Rules(mesh, wide=True))
    whole = values(sequential, rng)
    rules: Counter[str] = Counter()
    with np.errstate(all="ignore"):
        state = simulate(distributed, pieces(whole, contract, mesh, rng), Plain())
        if not all(np.all(np.isfinite(a)) for local in state for a in local.values()):
            return [], rules
        meaning = Parts(one.terms, whole, state=state, mesh=mesh)
        wrong: list[str] = []
        for name, facts in related.facts.items():
            for fact in facts:
                rules[":".join(fact.rule.split(":")[:2])] += 1
                why = holds(fact, [local.get(name) for local in state], mesh, meaning)
                if why:
                    wrong.append(f"%{name} by {fact.rule}: {why}")
    return wrong, rules


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32), moves=st.booleans())
@example(seed=1434085, moves=False)  # values without entries
def test_every_fact_is_true(seed: int, moves: bool) -> None:
    wrong, _ = broken_facts(seed, moves)
    assert not wrong, "\n".join(wrong)


def test_all_ways_are_taken() -> None:
    rules: Counter[str] = Counter()
    for seed in range(16):
        rules += broken_facts(seed, moves=seed % 2 == 0)[1]
    for rule in ("joined:addend", "joined:piece", "joined:share", "blocks:slice"):
        assert rules[rule], rules


def proves(made: str) -> bool:
    """Whether a sum over ranks is related, each of which squares the root of its own part."""
    one = parse_text(
        f"program one\n input %x: f32[4]\n {made}\n %s = sum %a {{dims=[0]}}\n return %s"
    )
    text = (
        f"program many mesh(tp=2)\n input %x: f32[2]\n {made}\n %p = sum %a {{dims=[0]}}\n"
        " %r = sqrt %p\n %m = mul %r, %r\n %s = all_reduce %m {mesh_dim=tp}\n return %s"
    )
    many = parse_text(text)
    split = from_placements((4,), [("tp", 2, "S(0)")])
    contract = Contract({"x": split}, {output_key(one.outputs[0]): Layout.replicate(())})
    sequential = as_terms(one)
    facts = initial(contract, sequential)
    related = relate(sequential, many, facts, contract, Rules(many.mesh, wide=True))
    return not satisfied(sequential, many, related, contract)


def test_a_part_has_a_root_only_where_it_cannot_be_negative() -> None:
    assert proves("%a = mul %x, %x")
    assert not proves("%a = neg %x")
