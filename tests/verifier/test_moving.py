"""Movements that run on fewer ranks than hold their operand, proved and replayed."""

from __future__ import annotations

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.contract import compose, read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof, Verdict

SAME = "%y = relu %c"
ROLLED = (
    "%a = slice %c {dim=0, start=2, stop=4} %b = slice %c {dim=0, start=0, stop=2}"
    " %d = concat %a, %b {dim=0} %y = relu %d"
)
TWICE = "%d = mul_scalar %c {value=2} %y = relu %d"


def judged(one: str, moves: str, held: str, wanted: str) -> Verdict:
    extent = 2 if "S(0)" in held else 4
    sequential = parse_text(f"program one input %c: f32[4] {one} return %y")
    where = held[held.index("on(") :] if "on(" in held else ""
    distributed = parse_text(
        f"program many mesh(pp=2, tp=2) input %c: f32[{extent}] {where} {moves} return %y"
    )
    asked = f"input c {held}\noutput y {wanted}"
    pair = compose(distributed, read_contract(asked, sequential, distributed))
    verdict = verify(Problem(sequential, *pair))
    if isinstance(verdict, Proof):
        assert isinstance(check(verdict.certificate, Problem(sequential, *pair)), Accepted)
    return verdict


@pytest.mark.parametrize(
    ("one", "move", "held", "wanted"),
    [
        (SAME, "broadcast %c {mesh_dim=tp} on(pp=0)", "on(tp=0)", "on(pp=0)"),
        (SAME, "gather %c {mesh_dim=tp, dim=0} on(pp=0)", "tp=S(0)", "on(pp=0, tp=0)"),
        (SAME, "scatter %c {mesh_dim=tp, dim=0} on(pp=0)", "", "tp=S(0) on(pp=0)"),
        (ROLLED, "ring_shift %c {mesh_dim=tp} on(pp=0)", "tp=S(0)", "tp=S(0) on(pp=0)"),
        (TWICE, "reduce_to %c {mesh_dim=tp} on(pp=0)", "", "on(pp=0, tp=0)"),
        (
            SAME,
            "send %c {mesh_dim=tp, src=0, dst=1} on(pp=0) %n = recv %m {mesh_dim=tp, src=0, dst=1}",
            "",
            "on(pp=0, tp=1)",
        ),
    ],
)
def test_a_movement_on_fewer_ranks_is_proved(one: str, move: str, held: str, wanted: str) -> None:
    last = "%n" if "%n" in move else "%m"
    on = wanted[wanted.index("on(") :]
    assert isinstance(judged(one, f"%m = {move} %y = relu {last} {on}", held, wanted), Proof)


def test_a_broadcast_in_part_of_a_group_is_refused() -> None:
    moves = "%m = broadcast %c {mesh_dim=tp} on(pp=0, tp=0) %y = relu %m on(pp=0, tp=0)"
    verdict = judged(SAME, moves, "on(tp=0)", "on(pp=0, tp=0)")
    assert isinstance(verdict, Counterexample)
    assert verdict.location is not None
    assert "never join" in verdict.location.reason
