"""What a composite op says of ranks and of time holds of its primitives."""

import numpy as np
import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.evaluate import simulate
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof

SHAPE = (4, 4)
WHOLE = Layout.replicate(SHAPE)
CONTRACT = Contract({"x": WHOLE}, {"output:z": WHOLE})


def verdict(op: str, said: str, wait: str = ""):
    read = "%w" if wait else "%y"
    one = parse_text(
        f'program one input %x: f32[4, 4] %y = {op} %x %z = relu %y return %z "z"', "one"
    )
    many = parse_text(
        f"program many mesh(tp=2) input %x: f32[4, 4] %y = {op} %x {said} {wait} "
        f'%z = relu {read} return %z "z"',
        "many",
    )
    return verify(Problem(one, many, CONTRACT))


@pytest.mark.parametrize("op", ["relu", "detach", "softmax"])
def test_a_value_is_there_only_on_the_ranks_that_compute_it(op: str) -> None:
    assert isinstance(verdict(op, "on(tp=0)"), Counterexample)
    assert isinstance(verdict(op, "on(tp=[0, 1])"), Proof)


@pytest.mark.parametrize("op", ["relu", "softmax"])
def test_a_value_on_another_stream_is_waited_for(op: str) -> None:
    assert isinstance(verdict(op, "stream(side)"), Counterexample)
    assert isinstance(verdict(op, "stream(side)", "%w = wait %y"), Proof)


@pytest.mark.parametrize("op", ["softmax", "detach"])
@pytest.mark.parametrize("said", ["async", "into(storage)"])
def test_several_ops_are_not_in_flight_as_one(op: str, said: str) -> None:
    with pytest.raises(IRError, match="write them out"):
        verdict(op, said)


def test_a_run_gives_the_results_of_composites_by_name() -> None:
    """Also where such a result is what the program returns."""
    text = 'program many mesh(tp=2) input %x: f32[2, 3] %y = softmax %x return %y "y"'
    given = [{"x": np.full((2, 3), float(rank))} for rank in range(2)]
    for local in simulate(parse_text(text), given):
        np.testing.assert_allclose(local["y"], np.full((2, 3), 1 / 3))
