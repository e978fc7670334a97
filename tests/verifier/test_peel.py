"""Repeated blocks with steps written out: the same values, and the same verdicts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.steps.examples import preconditions
from benchmarks.steps.model import TINY, Degrees
from benchmarks.steps.step import training_step
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.training.step import Step
from shardproof.verifier.checker import Accepted, Rejected, check
from shardproof.verifier.checker.certificate import seal
from shardproof.verifier.domains.field import Field, P
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.peeling import Peel, PeelError, peeled
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.rank_sets import regions
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.evaluate import simulate
from shardproof.verifier.refute.scatter import scatter
from shardproof.verifier.text.assemble import well_formed
from shardproof.verifier.text.parser import parse_text, to_text
from shardproof.verifier.verdict import Counterexample, Proof
from tests.verifier.test_random_scans import SHAPES, Case, programs

STEPS = 3


def kept(code: int) -> tuple[tuple[int, int], ...]:
    """Any runs of the steps: a bit for each step that stays, a bit for each cut between two."""
    runs: list[tuple[int, int]] = []
    for step in range(STEPS):
        if not code >> step & 1:
            continue
        if runs and runs[-1][1] == step and not code >> (STEPS + step) & 1:
            runs[-1] = (runs[-1][0], step + 1)
        else:
            runs.append((step, step + 1))
    return tuple(runs)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2 ** (2 * STEPS) - 1), st.booleans())
def test_values_stay_and_types_fit(seed: int, code: int, backward: bool) -> None:
    made = programs(seed)
    if made is None:
        return
    case, one, many = made
    if backward:
        one, many = turned(one), turned(many)
    runs = kept(code)
    wholes = {n: case.rng.integers(0, P, shape, dtype=np.uint64) for n, shape in SHAPES.items()}
    parts = {
        n: scatter(w, case.layouts[n], many.mesh, Field(1), case.rng) for n, w in wholes.items()
    }
    ranks = [{n: p[r] for n, p in parts.items()} for r in range(many.mesh.size)]
    for program, given_ in ((one, [wholes]), (many, ranks)):
        other = well_formed(peeled(program, [Peel(block(program), runs)]))
        assert not regions(other).faults()
        before, after = simulate(program, given_, Field(1)), simulate(other, given_, Field(1))
        for x, y in zip(before, after, strict=True):
            for a, b in zip(program.outputs, other.outputs, strict=True):
                if a.value in x:
                    assert np.array_equal(x[a.value], y[b.value])


def block(program: Program) -> str:
    return next(n.outputs[0] for n in program.nodes if n.body is not None)


def turned(program: Program) -> Program:
    """The program with its blocks run from the last slice to the first."""
    nodes = [replace(n, attrs={**n.attrs, "reverse": True}) if n.body else n for n in program.nodes]
    return program.with_nodes(nodes, program.types)


@pytest.mark.parametrize("steps", [((0, 0),), ((0, 2), (1, 3)), ((0, 4),), ((2, 3), (0, 1))])
def test_steps_that_are_not_there_are_an_error(steps: tuple[tuple[int, int], ...]) -> None:
    program = Case(0).program(Case(0).mesh)
    with pytest.raises(PeelError):
        peeled(program, [Peel(block(program), steps)])
    with pytest.raises(PeelError, match="no repeated block"):
        peeled(program, [Peel("nothing", ((0, 1),))])


# A training step with one step of its repeated blocks written out


@cache
def step() -> Step:
    degrees = Degrees(
        dp=2, tp=2, pp=2, micro_batches=4, scan_layers=True, scan_micro_batches=True,
        sequence_parallel=True,
    )  # fmt: skip
    return training_step(replace(TINY, layers=8, batch=8), degrees)


def one_step(many: Program, name: str, step: int) -> Peel:
    """The peel that writes one step of a block out."""
    scan = next(n for n in many.nodes if n.outputs[0] == name)
    length = scan.attrs["length"]
    assert isinstance(length, int)
    spans = ((0, step), (step + 1, length))
    return Peel(name, tuple((a, b) for a, b in spans if a < b))


def written_out(many: Program, micro_batch: int, stage: int, layer: int | None) -> Program:
    """One micro-batch of all, and one layer of a stage in it, forward and backward."""
    loop = block(many)
    many = peeled(many, [one_step(many, loop, micro_batch)])
    prefix = f"{loop}.{micro_batch}.s{stage}."
    blocks = [n.outputs[0] for n in many.nodes if n.body and n.outputs[0].startswith(prefix)]
    assert len(blocks) == 2
    for name in blocks if layer is not None else ():
        many = peeled(many, [one_step(many, name, layer or 0)])
    return many


@pytest.mark.parametrize(
    ("micro_batch", "stage", "layer"), [(0, 0, None), (2, 1, 2), (0, 1, 0), (3, 0, 3)]
)
def test_steps_written_out_are_proved_and_checked(
    micro_batch: int, stage: int, layer: int | None
) -> None:
    given_ = step()
    many = written_out(given_.distributed, micro_batch, stage, layer)
    said = verify(Problem(given_.sequential, many, given_.contract, consts=preconditions(given_)))
    assert isinstance(said, Proof)
    assert len(said.certificate["peels"]) == (1 if layer is None else 3)
    found = check(said.certificate, Problem(given_.sequential, many, given_.contract))
    assert isinstance(found, Accepted)


# What a certificate says of steps written out is made anew by the checker

SUMS = """
program sums
  input %x: f32[6, 4]
  %zero = full {shape=[4], value=0, dtype=f32}
  %y, %all = scan %zero, %x {length=6, carry=1, xs=1} body block {
    carry %c: f32[4]
    xs %s: f32[4]
    %t = tanh %s
    %d = add %c, %t
    return carry %d, ys %d
  }
  return %y, %all
"""
SIZES = {"x": (6, 4), "y": (4,), "all": (6, 4)}


def sums() -> tuple[Program, Program, Contract]:
    """Running sums of columns, split over two ranks that write the third of six steps out."""
    split = {n: from_placements(s, [("tp", 2, "S(-1)")]) for n, s in SIZES.items()}
    outputs = {f"output:{n}": split[n] for n in ("y", "all")}
    text = SUMS.replace("program sums", "program sums mesh(tp=2)")
    many = parse_text(text.replace("4]", "2]"))
    return (
        parse_text(SUMS),
        peeled(many, [one_step(many, "y", 2)]),
        Contract({"x": split["x"]}, outputs),
    )


def test_certificate_cut_otherwise_is_rejected() -> None:
    one, many, contract = sums()
    said = verify(Problem(one, many, contract))
    assert isinstance(said, Proof)
    assert said.certificate["peels"] == [["y", [[0, 2], [3, 6]]]]
    assert isinstance(check(said.certificate, Problem(one, many, contract)), Accepted)
    wrong: tuple[object, ...] = (
        [], [["y", [[0, 3], [4, 6]]]], [["z", [[0, 2], [3, 6]]]], [["y", [[0, 2], [3, 7]]]],
        [["y", [[0, 2], [1, 6]]]], [["y"]], [["y", [[0]]]], "y", [[0, [[0, 2]]]],
    )  # fmt: skip
    for peels in wrong:
        document = {**said.certificate, "peels": peels}
        document["seal"] = seal(document)
        assert isinstance(check(document, Problem(one, many, contract)), Rejected), peels


@pytest.mark.parametrize(("value", "other"), [("tanh", "exp"), ("add", "mul")])
def test_a_step_written_out_wrong_is_found(value: str, other: str) -> None:
    one, many, contract = sums()
    index = next(i for i, n in enumerate(many.nodes) if n.op == value)
    nodes = list(many.nodes)
    nodes[index] = replace(nodes[index], op=other)
    said = verify(Problem(one, many.with_nodes(nodes, many.types), contract))
    assert isinstance(said, Counterexample)
    assert said.location is not None
    assert said.location.op == other


def test_written_out_program_reads_back_as_it_was() -> None:
    _, many, _ = sums()
    assert to_text(parse_text(to_text(many))) == to_text(many)


def test_names_that_are_taken_keep_results_apart() -> None:
    """A step written out calls the results of one op apart, whatever is called so before."""
    program = parse_text("""
program p
  input %a: f32[4]
  input %x: f32[2, 4]
  %y.0.v = neg %a
  %y = scan %a, %x {length=2, carry=1, xs=1} body step {
    carry %c: f32[4]
    xs %r: f32[4]
    %s = reshape %r {shape=[1, 4]}
    %v, %v.2 = scan %c, %s {length=1, carry=1, xs=1} body inner {
      carry %d: f32[4]
      xs %q: f32[4]
      %e = add %d, %q
      %f = mul %d, %q
      return carry %e, ys %f
    }
    %z = reshape %v.2 {shape=[4]}
    %w = add %v, %z
    return carry %w
  }
  %o = add %y, %y.0.v
  return %o
""")
    other = well_formed(peeled(program, [one_step(program, "y", 0)]))
    rng = np.random.default_rng(0)
    given_ = {"a": rng.standard_normal(4), "x": rng.standard_normal((2, 4))}
    before, after = (simulate(p, [given_])[0][p.outputs[0].value] for p in (program, other))
    assert np.allclose(before, after)
