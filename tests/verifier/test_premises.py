"""Programs are judged on inputs of which their contract speaks: counts that ranks have alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.domains.field import Field
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import Balanced, Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.premises import Premises
from shardproof.verifier.refute.sampling import sample
from shardproof.verifier.refute.scale_down.refuting import SmallDifference, refute_resized
from shardproof.verifier.refute.search import Tried, nowhere_defined, refute
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof, Unknown
from shardproof.verifier.verification import NOWHERE

MEAN = """  %p = mul %x, %k
  %s = sum %p {dims=[0, 1]}
  %n = sum %k {dims=[0, 1]}
  %l = div %s, %n
"""
POSITIONS = """  %p = mul %x, %k
  %s = sum %p {dims=[0]}
  %n = sum %k {dims=[0]}
  %each = div %s, %n
  %l = sum %each {dims=[0]}
"""
SEQUENCES = """  %p = mul %x, %k
  %own = sum %p {dims=[1]}
  %no = neg %k
  %worst = amax %no {dims=[1]}
  %all = neg %worst
  %s = sum %own {dims=[0]}
  %n = sum %all {dims=[0]}
  %l = div %s, %n
"""
LABELS = """  %i = full {value=3, shape=[], dtype=i64}
  %m = ne %t, %i
  %k = cast %m {dtype=f32}
"""
BITS = "  %k = cast %t {dtype=f32}\n"
CLASSES = """  %i = full {value=3, shape=[], dtype=i64}
  %m = ne %t, %i
  %f = cast %m {dtype=f32}
  %g = take %w, %t
  %k = mul %f, %g
"""
BELOW = LABELS.replace("value=3", "value=-100")
ALL = LABELS.replace("value=3", "value=0").replace("ne", "ge")
WEIGHTS = """  %i = full {value=1/2, shape=[]}
  %m = gt %w, %i
  %k = cast %m {dtype=f32}
"""
SIGNS = WEIGHTS.replace("1/2", "0").replace("%w", "%x")
VARIANTS: dict[str, tuple[str, str, dict[str, str]]] = {
    "labels": (LABELS, MEAN, {"t": "i64[B, 6]"}),
    "labels below the classes": (BELOW, MEAN, {"t": "i64[B, 6]"}),
    "labels from 0": (ALL, MEAN, {"t": "i64[B, 6]"}),
    "a mask": (BITS, MEAN, {"t": "bool[B, 6]"}),
    "weights of classes": (CLASSES, MEAN, {"t": "i64[B, 6]", "w": "f32[9]"}),
    "weights above a limit": (WEIGHTS, MEAN, {"w": "f32[B, 6]"}),
    "weights": ("  %k = mul_scalar %w {value=2}\n", MEAN, {"w": "f32[B, 6]"}),
    "signs": (SIGNS, MEAN, {}),
    "positions": (LABELS, POSITIONS, {"t": "i64[B, 6]"}),
    "positions of a mask": (BITS, POSITIONS, {"t": "bool[B, 6]"}),
    "sequences": (LABELS, SEQUENCES, {"t": "i64[B, 6]"}),
}
AVERAGE = "  %out = all_reduce %l {mesh_dim=dp, reduce=avg}\n"
WRONG = {
    "a factor": (AVERAGE, AVERAGE.replace("avg", "sum")),
    "no average": (AVERAGE, "  %out = mul_scalar %l {value=1}\n"),
    "a numerator of all": ("mul %x, %k", "mul_scalar %x {value=1}"),
    "another count": ("  %n = sum %", "  %n = sum %x {dims=[0, 1]}\n  %n.0 = sum %"),
}


def text(name: str, body: str, inputs: dict[str, str], rows: int, out: str, mesh: str = "") -> str:
    given = "".join(f"  input %{n}: {t}\n" for n, t in {"x": "f32[B, 6]", **inputs}.items())
    head = f"program {name}{mesh}\n{given.replace('B', str(rows))}"
    return f'{head}{body}  return loss %{out} "loss"\n'


def triple(
    what: str, wrong: str | None = None, rows: int = 8, assumed: bool = True
) -> tuple[Program, Program, Contract]:
    mask, mean, inputs = VARIANTS[what]
    one = parse_text(text("one", mask + mean, inputs, rows, "l"))
    body = mask + mean + AVERAGE
    if wrong is not None:
        old, new = WRONG[wrong]
        assert old in body
        body = body.replace(old, new)
    many = parse_text(text("many", body, inputs, rows // 2, "out", " mesh(dp=2)"))
    split = from_placements((rows, 6), [("dp", 2, "S(0)")])
    layouts = {i.name: split if i.type.shape == (rows, 6) else None for i in one.inputs}
    return (
        one,
        many,
        Contract(
            {n: found or Layout.replicate((9,)) for n, found in layouts.items()},
            {"loss:loss": Layout.replicate(())},
            (Balanced("n", "dp", "the count"),) if assumed else (),
        ),
    )


@pytest.mark.parametrize("what", VARIANTS)
def test_mean_of_local_means_is_proved_where_counts_are_equal(what: str) -> None:
    given = triple(what)
    found = verify(Problem(*given))
    assert isinstance(found, Proof), found
    assert found.stats["refuter_samples"] >= 2
    assert isinstance(check(found.certificate, Problem(*given)), Accepted)
    tried = Tried()
    assert refute(Problem(*given), seed=5, trials=6, tried=tried) is None
    assert tried.samples >= 6
    assert isinstance(verify(Problem(*triple(what, assumed=False))), Counterexample)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("what", VARIANTS)
def test_other_means_are_refuted_where_counts_are_equal(what: str, wrong: str) -> None:
    given = triple(what, wrong)
    found = verify(Problem(*given))
    assert isinstance(found, Counterexample), found
    difference = refute(Problem(*given))
    assert difference is not None
    one, many, contract = given
    assert Premises(one, contract, many.mesh).hold(difference.inputs, Floats())


TWO = """  %all = all_reduce %n {mesh_dim=sp}
  %part = div %s, %all
  %l = all_reduce %part {mesh_dim=sp}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [("", ""), ("%s, %all", "%s, %n"), ("%l = all_reduce %part {mesh_dim=sp}", "%l = neg %part")],
    ids=["right", "the count of another dim", "no sum"],
)
def test_counts_are_equal_along_the_dim_named_and_no_other(old: str, new: str) -> None:
    mask, mean, inputs = VARIANTS["labels"]
    one = parse_text(text("one", mask + mean, inputs, 4, "l"))
    body = mask + mean.replace("  %l = div %s, %n\n", TWO.replace(old, new)) + AVERAGE
    halves = {n: t.replace("6]", "3]") for n, t in inputs.items()}
    written = text("many", body, halves, 2, "out", " mesh(dp=2, sp=2)").replace("[2, 6]", "[2, 3]")
    many = parse_text(written)
    split = from_placements((4, 6), [("dp", 2, "S(0)"), ("sp", 2, "S(1)")])
    contract = Contract(
        {"x": split, "t": split},
        {"loss:loss": Layout.replicate(())},
        (Balanced("n", "dp", "the count"),),
    )
    found = verify(Problem(one, many, contract))
    assert isinstance(found, Counterexample if old else Proof), found


@pytest.mark.parametrize("what", VARIANTS)
def test_inputs_drawn_have_equal_counts_and_unlike_rows(what: str) -> None:
    one, many, contract = triple(what)
    premises = Premises(one, contract, many.mesh)
    kept: list[bool] = []
    for seed in range(12):
        for domain in (Floats(), Field(seed)):
            rng = np.random.default_rng(seed)
            drawn = sample(one, domain, rng, {})
            found = premises.met(drawn, domain, rng)
            assert found is not None
            assert premises.hold(found, domain)
            kept.append(all(np.array_equal(found[n], a) for n, a in drawn.items()))
            changed = [n for n, a in drawn.items() if not np.array_equal(found[n], a)]
            assert "w" not in changed or one.types["w"].shape == (8, 6)
            assert "x" not in changed or what == "signs"
    assert not all(kept)


def test_counts_that_differ_are_out_of_scope() -> None:
    one, many, contract = triple("labels")
    premises = Premises(one, contract, many.mesh)
    labels = np.full((8, 6), 5)
    x = np.ones((8, 6))
    assert premises.hold({"x": x, "t": labels}, Floats())
    labels[0, 0] = 3
    assert not premises.hold({"x": x, "t": labels}, Floats())
    labels[6, 2] = 3
    assert premises.hold({"x": x, "t": labels}, Floats())
    labels[6, 3] = 3
    assert not premises.hold({"x": x, "t": labels}, Floats())


def test_where_no_inputs_are_in_scope_nothing_was_refuted() -> None:
    one, many, contract = triple("labels", "a factor")
    labels = np.full((8, 6), 5)
    labels[0] = 3
    tried = Tried()
    assert refute(Problem(one, many, contract, {"t": labels}), tried=tried) is None
    assert tried.samples == 0
    one, many, contract = triple("labels")
    found = verify(Problem(one, many, contract, consts={"t": labels}))
    assert isinstance(found, Proof)
    assert found.stats["refuter_ran"] == 0
    found = verify(Problem(one, many, contract))
    assert found.stats["refuter_ran"] == 1


@pytest.mark.parametrize("what", ["a mask", "labels from 0", "positions of a mask"])
def test_programs_too_large_to_run_are_judged_on_equal_counts(what: str) -> None:
    given = triple(what, rows=1_000_000)
    assert refute_resized(Problem(*given)) is None
    assert isinstance(verify(Problem(*given)), Proof)
    assert isinstance(
        refute_resized(Problem(*triple(what, rows=1_000_000, assumed=False))), SmallDifference
    )
    for wrong in WRONG:
        assert isinstance(verify(Problem(*triple(what, wrong, rows=1_000_000))), Counterexample), (
            wrong
        )


UNDEFINED = """program one
  input %x: f32[4]
  %q = mul %x, %x
  %p = add_scalar %q {value=1}
  %n = neg %p
  %l = log %n
  return output %l "y"
"""


@pytest.mark.parametrize(
    ("last", "proved"),
    [("log %n", False), ("sqrt %n", False), ("log %p", True), ("log %x", True), ("sqrt %x", True)],
)
def test_programs_without_a_value_anywhere_are_not_proved(last: str, proved: bool) -> None:
    one = parse_text(UNDEFINED.replace("log %n", last))
    many = parse_text(
        UNDEFINED.replace("log %n", last).replace("one", "many mesh(dp=2)").replace("[4]", "[2]")
    )
    split = from_placements((4,), [("dp", 2, "S(0)")])
    contract = Contract({"x": split}, {"output:y": split})
    found = verify(Problem(one, many, contract))
    assert nowhere_defined(Problem(one, many, contract)) != proved
    if proved:
        assert isinstance(found, Proof), found
    else:
        assert isinstance(found, Unknown)
        assert found.reason == NOWHERE


def test_one_output_without_a_value_leaves_no_scope_to_the_others() -> None:
    body = UNDEFINED.replace('%l "y"', '%l "y", output %q "z"')
    one = parse_text(body)
    many = parse_text(body.replace("one", "many mesh(dp=2)"))
    whole = Layout.replicate((4,))
    contract = Contract({"x": whole}, {"output:y": whole, "output:z": whole})
    assert isinstance(verify(Problem(one, many, contract)), Unknown)
    right = replace(one, outputs=one.outputs[1:]), replace(many, outputs=many.outputs[1:])
    contract = Contract({"x": whole}, {"output:z": whole})
    assert isinstance(verify(Problem(*right, contract)), Proof)


def grouped(average: str = "rep=avg dp=avg", *over: str) -> tuple[Program, Program, Contract]:
    """The mean of labels that count, over groups of ranks; the counts are balanced over these dims,
    by default over both together."""
    mask, mean, inputs = VARIANTS["labels"]
    one = parse_text(text("one", mask + mean, inputs, 8, "l"))
    body, value = mask + mean, "l"
    for name, _, reduce in (word.partition("=") for word in average.split()):
        body += f"  %{value}{name} = all_reduce %{value} {{mesh_dim={name}, reduce={reduce}}}\n"
        value += name
    many = parse_text(text("many", body, inputs, 2, value, " mesh(rep=2, dp=2)"))
    split = from_placements((8, 6), [("rep", 2, "S(0)"), ("dp", 2, "S(0)")])
    balanced = tuple(Balanced("n", names, "the count") for names in over or ("rep,dp",))
    return (
        one,
        many,
        Contract({"x": split, "t": split}, {"loss:loss": Layout.replicate(())}, balanced),
    )


def test_counts_of_all_ranks_of_two_dims_are_equal() -> None:
    given = grouped()
    found = verify(Problem(*given))
    assert isinstance(found, Proof), found
    assert "the same on every rank along rep x dp" in " ".join(found.assumptions)
    assert isinstance(check(found.certificate, Problem(*given)), Accepted)
    for over in (("rep", "dp"), ("dp",), ("dp,rep",)):
        other = grouped("rep=avg dp=avg", *over)
        assert not isinstance(verify(Problem(*other)), Proof)
        assert not isinstance(check(found.certificate, Problem(*other)), Accepted)


@pytest.mark.parametrize("average", ["rep=avg", "dp=avg", "rep=avg dp=sum", "rep=sum dp=sum"])
def test_other_means_of_two_dims_are_refuted(average: str) -> None:
    assert isinstance(verify(Problem(*grouped(average))), Counterexample)


def test_counts_that_two_dims_have_alike_each_are_not_those_of_all_ranks() -> None:
    labels = np.full((8, 6), 3)
    labels[0] = labels[6] = 4  # of ranks (0, 0) and (1, 1)
    inputs = {"x": np.ones((8, 6)), "t": labels}
    for over, holds in ((("rep", "dp"), True), (("rep,dp",), False)):
        one, many, contract = grouped("rep=avg dp=avg", *over)
        assert Premises(one, contract, many.mesh).hold(inputs, Floats()) == holds
    labels[2] = labels[4] = 4
    one, many, contract = grouped()
    assert Premises(one, contract, many.mesh).hold(inputs, Floats())
