"""A choice that guards a function without a value everywhere may not be dropped, at any size."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.analysis.definedness import Needed
from shardproof.verifier.checker import Accepted, Rejected, check
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.contract import read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof, Unknown, Verdict

ZERO = "%z = full {shape=[], value=0}"
SQUARES = """
 %q = mul %x, %x
 %v = sum %q {dims=[1], keepdim=true}"""
ON_RANKS = """
 %q = mul %x, %x
 %p = sum %q {dims=[1], keepdim=true}
 %v = all_reduce %p {mesh_dim=tp}"""


@dataclass(frozen=True)
class Guard:
    """What follows the sum of squares `%v` of the rows of `%x`: with a guard, and without."""

    guarded: str
    bare: str


def where(condition: str, choice: str) -> str:
    return f"{ZERO}\n %c = {condition}\n {choice}"


GUARDS = {
    "rsqrt": Guard(
        "%r = rsqrt %v\n %n = mul %x, %r\n" + where("gt %v, %z", "%y = where %c, %n, %z"),
        "%r = rsqrt %v\n %y = mul %x, %r",
    ),
    "division": Guard(
        "%n = div %x, %v\n" + where("gt %v, %z", "%y = where %c, %n, %z"), "%y = div %x, %v"
    ),
    "reciprocal": Guard(
        "%r = reciprocal %v\n" + where("ne %v, %z", "%k = where %c, %r, %z") + "\n %y = mul %x, %k",
        "%r = reciprocal %v\n %y = mul %x, %r",
    ),
    "logarithm": Guard(
        "%l = log %v\n %n = mul %x, %l\n" + where("le %v, %z", "%y = where %c, %x, %n"),
        "%l = log %v\n %y = mul %x, %l",
    ),
    "power": Guard(
        "%r = pow %v {exponent=-3/2}\n %n = mul %x, %r\n"
        + where("gt %v, %z", "%y = where %c, %n, %z"),
        "%r = pow %v {exponent=-3/2}\n %y = mul %x, %r",
    ),
    "least": Guard(
        "%e = full {shape=[], value=1/100000}\n %m = maximum %v, %e\n %r = rsqrt %m\n"
        " %y = mul %x, %r",
        "%r = rsqrt %v\n %y = mul %x, %r",
    ),
    "most": Guard(
        "%r = rsqrt %v\n %e = full {shape=[], value=1000}\n %m = minimum %r, %e\n %y = mul %x, %m",
        "%r = rsqrt %v\n %y = mul %x, %r",
    ),
    "entries": Guard(
        "%a = sqrt %x\n" + where("ge %x, %z", "%n = where %c, %a, %z") + "\n %y = mul %n, %v",
        "%a = sqrt %x\n %y = mul %a, %v",
    ),
}
MUTED = ("shardproof.verifier.verification.refute", "shardproof.verifier.escalate.refute")
SIZES = {"small": (4, 4), "large": (2048, 8192)}


def judged(one: str, many: str, size: str = "small", muted: bool = False) -> Verdict:
    rows, columns = SIZES[size]
    sequential = parse_text(
        f"program one\n input %x: f32[{rows}, {columns}]\n {SQUARES}\n {one}\n return %y"
    )
    distributed = parse_text(
        f"program many mesh(tp=2)\n input %x: f32[{rows}, {columns // 2}]\n"
        f" {ON_RANKS}\n {many}\n return %y"
    )
    text = "input x tp=S(1)\noutput y tp=S(1)"
    contract = read_contract(text, sequential, distributed).contract
    if not muted:
        return verify(Problem(sequential, distributed, contract))
    with ExitStack() as stack:
        for place in MUTED:
            stack.enter_context(patch(place, return_value=None))
        return verify(Problem(sequential, distributed, contract))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_that_ranks_drop_is_refuted(name: str, size: str) -> None:
    guard = GUARDS[name]
    verdict = judged(guard.guarded, guard.bare, size)
    assert isinstance(verdict, Counterexample), verdict


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_that_ranks_drop_is_not_proved_where_no_number_shows_it(name: str) -> None:
    guard = GUARDS[name]
    assert isinstance(judged(guard.guarded, guard.bare, muted=True), Unknown)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_that_ranks_keep_is_proved(name: str, size: str) -> None:
    guard = GUARDS[name]
    assert isinstance(judged(guard.guarded, guard.guarded, size), Proof)


@pytest.mark.parametrize("name", [n for n in GUARDS if n not in ("least", "most")])
def test_a_guard_that_only_ranks_have_is_proved(name: str) -> None:
    guard = GUARDS[name]
    assert isinstance(judged(guard.bare, guard.guarded), Proof)


GRADIENT = """
 %r3 = pow %v {exponent=-3/2}
 %k = where %c, %x, %z
 %j = mul %k, %r3
 %g = mul %j, %x"""


@pytest.mark.parametrize("muted", [False, True])
def test_an_output_is_in_scope_where_another_is_undefined(muted: bool) -> None:
    """A gradient that is undefined behind the guard of the forward excuses nothing of this one."""
    guard = GUARDS["rsqrt"]
    one = f'{guard.guarded}{GRADIENT}\n return %y, grad %g "g"'
    kept = f"{guard.guarded}{GRADIENT}"
    bare = kept.replace("where %c, %n, %z", "add %n, %z")
    assert isinstance(two_outputs(one, kept, muted), Proof)
    assert isinstance(two_outputs(one, bare, muted), Unknown if muted else Counterexample)


def two_outputs(one: str, many: str, muted: bool) -> Verdict:
    sequential = parse_text(f"program one\n input %x: f32[2, 4]\n {SQUARES}\n {one}")
    distributed = parse_text(
        f"program many mesh(tp=2)\n input %x: f32[2, 2]\n {ON_RANKS}\n {many}\n"
        ' return %y, grad %g "g"'
    )
    text = "input x tp=S(1)\noutput y tp=S(1)\noutput grad:g tp=S(1)"
    contract = read_contract(text, sequential, distributed).contract
    with ExitStack() as stack:
        for place in MUTED if muted else ():
            stack.enter_context(patch(place, return_value=None))
        return verify(Problem(sequential, distributed, contract))


def test_gradients_are_judged_where_outputs_are_defined() -> None:
    """Ranks that multiply and divide by a count need it above 0, as the loss does."""
    head = "input %x: f32[4]\n input %m: f32[4]\n %n = sum %m {dims=[0], keepdim=false}\n"
    mean = f"{head} %s = sum %x {{dims=[0], keepdim=false}}\n %mean = div %s, %n\n %r = relu %x"
    again = f"{mean}\n %a = mul %r, %n\n %b = div %a, %n"
    for loss, gradient, proved in (("mean", "r", True), ("r", "mean", False)):
        ends = [f'return loss %{loss} "y", grad %{gradient} "g"'] * 2
        ends[1] = ends[1].replace("%r", "%b")
        sequential = parse_text(f"program one\n {mean}\n {ends[0]}")
        distributed = parse_text(f"program many mesh(dp=2)\n {again}\n {ends[1]}")
        contract = read_contract("", sequential, distributed).contract
        assert isinstance(verify(Problem(sequential, distributed, contract)), Proof) == proved


GIVEN = "input %x: f32[4]\n input %y: f32[4]"
CHOSEN = f"%l = log %x\n {ZERO}\n %c = gt %x, %z\n %k = where %c, %l, %x"


@pytest.mark.parametrize(
    ("one", "many"),
    [
        (f"{CHOSEN}\n %e = add %k, %y", f"{CHOSEN}\n %f = add %k, %l\n %g = sub %f, %l"),
        ("%l = log %x\n %k = exp %l\n %m = maximum %k, %x\n %e = add %m, %y", "%g = relu %x"),
    ],
    ids=["by-relations", "by-elements"],
)
def test_the_checker_takes_no_word_for_what_outputs_need(one: str, many: str) -> None:
    """A certificate by a prover that assumes everything to be defined is rejected."""
    sequential = parse_text(f"program one\n {GIVEN}\n {one}\n return %e")
    if "relu" in many:
        many = "%m = maximum %x, %x\n %n = log %x\n %o = exp %n\n %g = mul_scalar %o {value=1}"
    distributed = parse_text(
        f"program many mesh(tp=2)\n {GIVEN}\n {many}\n %e = add %g, %y\n return %e"
    )
    contract = read_contract("", sequential, distributed).contract
    with ExitStack() as stack:
        for place in MUTED:
            stack.enter_context(patch(place, return_value=None))
        stack.enter_context(patch("shardproof.verifier.provers.sequential.needed", everything))
        atoms = lambda *_: frozenset(range(1000))  # noqa: E731
        stack.enter_context(patch("shardproof.verifier.checker.identities._needed", atoms))
        found = verify(Problem(sequential, distributed, contract))
        assert isinstance(found, Proof)
        assert isinstance(
            check(found.certificate, Problem(sequential, distributed, contract)), Accepted
        )
    assert isinstance(
        check(found.certificate, Problem(sequential, distributed, contract)), Rejected
    )


def everything(program: Program, outputs: Iterable[str]) -> Needed:
    scopes = [program, *(n.body for _, n in program.walk() if n.body is not None)]
    return {id(scope): frozenset(scope.types) for scope in scopes}
