"""An edited program is proved by what changed, and only where the whole would be proved too."""

from __future__ import annotations

import inspect
import random
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchmarks.mutation_testing.mutants import mutations
from benchmarks.mutation_testing.rewrites import apply, kinds
from benchmarks.steps.examples import preconditions
from benchmarks.steps.model import Degrees
from benchmarks.steps.strategies import Strategy
from synthesis.repair.diagnosis import verify
from synthesis.training.step import Step
from verifier.kernel.contract import Contract
from verifier.kernel.layout import Layout
from verifier.kernel.program.errors import IRError
from verifier.kernel.program.program import Node, Program
from verifier.kernel.program.registry import REGISTRY
from verifier.problem import Problem
from verifier.reuse import Base, proved_again
from verifier.text.parser import parse_text
from verifier.verdict import Counterexample, Proof

WRITTEN = Degrees(tp=2, sequence_parallel=True)
REPEATED = Degrees(
    dp=2,
    tp=2,
    pp=2,
    micro_batches=2,
    scan_layers=True,
    scan_micro_batches=True,
    sequence_parallel=True,
)


@cache
def proved(degrees: Degrees) -> tuple[Step, Base]:
    step = Strategy("step", degrees).step()
    kept: list[Base] = []
    verdict = verify(
        Problem(step.sequential, step.distributed, step.contract, consts=preconditions(step)),
        remember=kept,
    )
    assert isinstance(verdict, Proof)
    return step, kept[0]


def swapped(node: Node) -> Node:
    return replace(node, inputs=node.inputs[::-1])


def edit_first(program: Program, depth: int) -> Program:
    """The first product of two values in a block at some depth, with its factors swapped."""
    nodes = list(program.nodes)
    for at, node in enumerate(nodes):
        if depth and node.body is not None:
            nodes[at] = replace(node, body=edit_first(node.body, depth - 1))
            break
        if not depth and node.op == "mul" and len(set(node.inputs)) == 2:
            nodes[at] = swapped(node)
            break
    else:
        raise AssertionError("no such product")
    return replace(program, nodes=tuple(nodes))


@pytest.mark.parametrize("degrees", [WRITTEN, REPEATED], ids=["written out", "repeated"])
def test_an_unchanged_program_needs_nothing(degrees: Degrees) -> None:
    step, base = proved(degrees)
    found = proved_again(base, step.distributed)
    assert found is not None
    assert found.again == 0


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_an_edit_inside_repeated_blocks_costs_one_op(depth: int) -> None:
    step, base = proved(REPEATED)
    found = proved_again(base, edit_first(step.distributed, depth))
    assert found is not None
    assert found.again == 1
    assert found.assumptions == base.assumptions


def test_renamed_values_behind_an_insertion() -> None:
    step, base = proved(WRITTEN)
    program = step.distributed
    at = next(i for i, n in enumerate(program.nodes) if n.op == "mul")
    names = {v: f"{v}_" for n in program.nodes[at:] for v in n.outputs}
    doubled = Node("mul_scalar", program.nodes[at].inputs[:1], ("twice",), {"value": 2})
    later = [
        replace(
            n,
            inputs=tuple(names.get(v, v) for v in n.inputs),
            outputs=tuple(names[v] for v in n.outputs),
        )
        for n in program.nodes[at:]
    ]
    nodes = (*program.nodes[:at], doubled, *later)
    outputs = tuple(replace(o, value=names.get(o.value, o.value)) for o in program.outputs)
    found = proved_again(base, replace(program, nodes=nodes, outputs=outputs))
    assert found is not None
    assert found.again == 1


@pytest.mark.parametrize("degrees", [WRITTEN, REPEATED], ids=["written out", "repeated"])
def test_mutants_are_proved_again_only_where_they_are_proved(degrees: Degrees) -> None:
    step, base = proved(degrees)
    drawn = list(mutations(step.distributed))
    random.Random(7).shuffle(drawn)
    seen = 0
    for mutation in drawn[:16]:
        try:
            edited = mutation.edit()
        except IRError:
            continue
        if edited is None:
            continue
        seen += 1
        if proved_again(base, edited) is not None:
            verdict = verify(
                Problem(step.sequential, edited, step.contract, consts=preconditions(step))
            )
            assert isinstance(verdict, Proof), (mutation.kind, mutation.text)
    assert seen > 5


def test_rewrites_are_proved_again() -> None:
    step, base = proved(WRITTEN)
    rng = np.random.default_rng(3)
    tried, again = 0, 0
    for kind in kinds():
        edited = apply(step.distributed, kind, step.contract, rng)
        if edited is not None:
            tried += 1
            again += proved_again(base, edited) is not None
    assert tried > 6
    assert again * 2 > tried


def test_no_composite_op_communicates() -> None:
    """What an op that is written in others may hide is no message."""
    meeting = {n for n, op in REGISTRY.items() if op.kind in ("collective", "movement")}
    for op in REGISTRY.values():
        if op.expand is not None:
            words = set(re.findall(r"\w+", inspect.getsource(op.expand)))
            assert not words & meeting, op.name


def test_messages_and_order_are_left_to_the_whole() -> None:
    step, base = proved(Degrees(pp=2, micro_batches=2))
    program = step.distributed
    at = next(i for i, n in enumerate(program.nodes) if n.op == "send")
    dropped = replace(program, nodes=(*program.nodes[:at], *program.nodes[at + 1 :]))
    assert proved_again(base, dropped) is None
    pair = [i for i, n in enumerate(program.nodes) if n.op in ("send", "recv")][:2]
    nodes = list(program.nodes)
    nodes[pair[0]], nodes[pair[1]] = nodes[pair[1]], nodes[pair[0]]
    assert proved_again(base, replace(program, nodes=tuple(nodes))) is None


def test_a_value_defined_twice_or_too_late_is_left_to_the_whole() -> None:
    step, base = proved(WRITTEN)
    nodes = step.distributed.nodes
    twice = replace(step.distributed, nodes=(*nodes, nodes[-1]))
    assert proved_again(base, twice) is None
    late = replace(step.distributed, nodes=(nodes[-1], *nodes[:-1]))
    assert proved_again(base, late) is None


CROSSING = """
program p mesh(pp=2, tp=2)
  input %x: f32[4]
  %a = relu %x ON
  %b = tanh %x on(tp=1)
  %s1 = send %a {mesh_dim=pp, src=0, dst=1}
  %s2 = send %b {mesh_dim=pp, src=1, dst=0}
  %r1 = recv %s1 {mesh_dim=pp, src=0, dst=1}
  %r2 = recv %s2 {mesh_dim=pp, src=1, dst=0}
  %o1 = only %r1 on(pp=1, tp=0)
  return %o1 "a", %r2 "b"
"""


def test_messages_of_other_ranks_than_before_are_judged_in_time_again() -> None:
    """Sent on all ranks, the first message meets the second one: both wait for ever."""
    one = parse_text("""
program p
  input %x: f32[4]
  %a = relu %x
  %b = tanh %x
  return %a, %b
""")
    asked = Contract(
        {"x": Layout.replicate((4,))},
        dict.fromkeys(("output:a", "output:b"), Layout.replicate((4,))),
        wanted={
            "output:a": (("pp", (1,)), ("tp", (0,))),
            "output:b": (("pp", (0,)), ("tp", (1,))),
        },
    )
    kept: list[Base] = []
    before = parse_text(CROSSING.replace("ON", "on(tp=0)"))
    assert isinstance(verify(Problem(one, before, asked), remember=kept), Proof)
    assert proved_again(kept[0], parse_text(CROSSING.replace("ON", "on(tp=[0])"))) is not None
    after = parse_text(CROSSING.replace("ON", ""))
    assert isinstance(verify(Problem(one, after, asked)), Counterexample)
    assert proved_again(kept[0], after) is None
