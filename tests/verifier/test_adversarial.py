"""Wrong programs that were once accepted, or close to it: each is refused by every decider."""

from __future__ import annotations

from copy import deepcopy
from unittest.mock import patch

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, Rejected, check, prepare
from shardproof.verifier.checker.certificate import seal
from shardproof.verifier.checker.identities import certify
from shardproof.verifier.kernel.contract import ContractError
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.scalars.answers import Undecided
from shardproof.verifier.provers.scalars.closing import close
from shardproof.verifier.text.contract import compose, read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof, Verdict


def judged(one: str, many: str, contract: str = "", silent: bool = False) -> Verdict:
    """The verdict; where `silent`, of the relations alone."""
    sequential, distributed = parse_text(one), parse_text(many)
    stated = read_contract(contract, sequential, distributed)
    program, asked = compose(distributed, stated)
    if not silent:
        return verify(Problem(sequential, program, asked))
    with (
        patch("shardproof.verifier.verification.refute", return_value=None),
        patch("shardproof.verifier.verification.MAX_ELEMENTS", 0),
    ):
        return verify(Problem(sequential, program, asked))


SUMMED = """
program one
  input %x: f32[3, 2]
  input %a: f32[2]
  %c0 = full {shape=[2], value=0}
  %c = scan %c0, %x {length=3, carry=1, xs=1} {
    carry %c: f32[2]
    xs %x: f32[2]
    %m = neg %x
    %n = sub %c, %m
    return carry %n
  }
  %y = tanh %c
  return %y
"""
STARTS_AT_ZERO_ON_SOME_RANKS = """
program many mesh(pp=2, tp=2)
  input %x: f32[3, 2]
  input %a: f32[2]
  %minus = neg %a on(pp=1, tp=1)
  %plus = only %a on(pp=1, tp=0)
  %zero = full {shape=[2], value=0} on(pp=0)
  %cancel = merge %plus, %minus
  %c0 = merge %cancel, %zero
  %c = scan %c0, %x {length=3, carry=1, xs=1} {
    carry %c: f32[2]
    xs %x: f32[2]
    %m = neg %x
    %n = sub %c, %m
    return carry %n
  }
  %w = wait %c
  %y = tanh %w
  return %y
"""


@pytest.mark.parametrize("silent", [False, True])
def test_pieces_that_cancel_are_no_start_at_zero(silent: bool) -> None:
    found = judged(SUMMED, STARTS_AT_ZERO_ON_SOME_RANKS, silent=silent)
    assert not isinstance(found, Proof)


DOUBLED = """
program one
  input %w: f32[4]
  %z = full {shape=[4], value=0}
  %c, %d = scan %z, %w {length=3, carry=2, xs=0} {
    carry %c: f32[4]
    carry %d: f32[4]
    %n = add %d, %d
    return carry %n, carry %n
  }
  return %c
"""
HALF_OF_A_PENDING_ZERO = """
program many mesh(tp=2)
  input %w: f32[4]
  %z = full {shape=[4], value=0} on(tp=1)
  %v = only %w on(tp=0)
  %d0 = merge %v, %z
  %c0 = only %z on(tp=1)
  %c, %d = scan %c0, %d0 {length=3, carry=2, xs=0} {
    carry %c: f32[4]
    carry %d: f32[4]
    %m = neg %d
    %p = neg %m
    %n = add %p, %d
    return carry %n, carry %n
  }
  %o = only %c
  return output %o "c"
"""


@pytest.mark.parametrize("silent", [False, True])
def test_a_carry_on_some_ranks_is_no_share_of_a_pending_sum(silent: bool) -> None:
    found = judged(DOUBLED, HALF_OF_A_PENDING_ZERO, "output c on(tp=1)", silent=silent)
    assert not isinstance(found, Proof)


ODD = """
  %n = neg %x
  %t = tanh %n
  %z = neg %t
"""


def test_an_integer_input_that_only_the_ranks_read_is_not_held_at_zero() -> None:
    one = """
program one
  input %x: f32[2]
  input %ids: i64[2]
  %y = tanh %x
  return %y
"""
    many = f"""
program many mesh(tp=2)
  input %x: f32[2]
  input %ids: i64[2]
  {ODD}
  %seven = full {{shape=[2], value=7, dtype=i64}}
  %m = eq %ids, %seven
  %twice = mul_scalar %z {{value=2}}
  %y = where %m, %twice, %z
  return %y
"""
    assert not isinstance(judged(one, many), Proof)


@pytest.mark.parametrize(
    ("test", "value", "tried"),
    [("eq", -100, "-100"), ("lt", 0, "-1"), ("le", -3, "-4 or -3 or -2")],
)
def test_labels_that_one_device_leaves_out_are_among_the_values_tried(
    test: str, value: int, tried: str
) -> None:
    one = f"""
program one
  input %w: f32[2]
  input %ids: i64[1]
  %ignored = full {{shape=[1], value={value}, dtype=i64}}
  %one = full {{shape=[1], value=1}}
  %m = {test} %ids, %ignored
  %x = take %w, %ids
  %t = tanh %x
  %y = where %m, %one, %t
  return %y
"""
    many = f"""
program many mesh(tp=2)
  input %w: f32[2]
  input %ids: i64[1]
  %x = take %w, %ids
  {ODD}
  return output %z "y"
"""
    right = f"""
program many mesh(tp=2)
  input %w: f32[2]
  input %ids: i64[1]
  %ignored = full {{shape=[1], value={value}, dtype=i64}}
  %one = full {{shape=[1], value=1}}
  %m = {test} %ids, %ignored
  %x = take %w, %ids
  {ODD}
  %y = where %m, %one, %z
  return %y
"""
    assert not isinstance(judged(one, many), Proof)
    found = judged(one, right)
    assert isinstance(found, Proof)
    assert f"integer inputs: %ids in [0, 2) or {tried}" in found.scope


@pytest.mark.parametrize(("kind", "reduce"), [("bool", "sum"), ("bool", "avg"), ("i64", "avg")])
def test_a_reduction_to_one_rank_refuses_what_all_reduce_refuses(kind: str, reduce: str) -> None:
    many = f"""
program many mesh(tp=2)
  input %x: {kind}[2]
  %r = reduce_to %x {{mesh_dim=tp, index=0, reduce={reduce}}}
  return %r
"""
    with pytest.raises(IRError, match=f"no {reduce} of {kind} values"):
        parse_text(many)


@pytest.mark.parametrize(("own", "why"), [("f32[2]", "one type"), ("f32[4] on(tp=0)", "on tp=0")])
def test_a_given_program_does_not_change_an_input_that_is_also_read_as_it_is(
    own: str, why: str
) -> None:
    one = "program one input %x: f32[4] %y = tanh %x return %y"
    many = f"program many mesh(tp=2) input %x: {own} input %z: f32[4] %y = tanh %x return %y"
    given = 'program give mesh(tp=2) input %x: f32[4] return output %x "z"'
    with pytest.raises(ContractError, match=why):
        judged(one, many, f"output y\ngiven\n{given}")


@pytest.mark.parametrize("rule", ["joined", "joined:same", "joined:concat:tp:x", "joinedx:same:tp"])
def test_a_malformed_rule_is_rejected(rule: str) -> None:
    one = parse_text("program one input %x: f32[4] %y = tanh %x return %y")
    many = parse_text("""
program many mesh(tp=2)
  input %x: f32[4]
  %a = only %x on(tp=0)
  %b = only %x on(tp=1)
  %c = merge %a, %b
  %y = tanh %c
  return %y
""")
    asked = read_contract("", one, many).contract
    proof = verify(Problem(one, many, asked))
    assert isinstance(proof, Proof)
    document = deepcopy(proof.certificate)
    (row,) = [r for r in document["claims"]["values"]["c"] if r["rule"].startswith("joined")]
    assert isinstance(check(document, Problem(one, many, asked)), Accepted)
    row["rule"] = rule
    document["seal"] = seal(document)
    assert isinstance(check(document, Problem(one, many, asked)), Rejected)


def test_a_mask_that_a_condition_lifts_is_no_mask() -> None:
    one = parse_text("""
program one
  input %x: f32[2]
  %zero = full {shape=[], value=0}
  %keep = gt %x, %zero
  %k = cast %keep {dtype=f32}
  %less = add_scalar %k {value=-1}
  %mask = mul_scalar %less {value=1000000000000000000000000000000}
  %z = add %x, %mask
  %y = exp %z
  return %y
""")
    many = parse_text(
        "program many mesh(tp=2) input %x: f32[2] %y = mul_scalar %x {value=0} return %y"
    )
    asked = read_contract("", one, many).contract
    given = prepare(Problem(one, many, asked))
    assert isinstance(certify(given, close, masks=True), Undecided)
    assert isinstance(verify(Problem(one, many, asked)), Counterexample)


BYTES = """
program many mesh(tp=2)
  input %x: {kind}[2]
  %i = cast %x {{dtype=u8}}
  %y = cast %i {{dtype=f32}}
  return %y
"""


@pytest.mark.parametrize("kind", ["f32", "i64"])
def test_a_cast_to_bytes_is_no_cast_to_integers(kind: str) -> None:
    one = BYTES.replace("mesh(tp=2)", "").replace("u8", "i64").format(kind=kind)
    many = BYTES.format(kind=kind)
    assert not isinstance(judged(one, many), Proof)
    assert not isinstance(judged(one, many, silent=True), Proof)
    assert isinstance(judged(many.replace("mesh(tp=2)", ""), many), Proof)


@pytest.mark.parametrize(
    "op", ["add %x, %x", "mul_scalar %x {value=2}", "all_reduce %x {mesh_dim=tp}"]
)
def test_arithmetic_that_wraps_is_refused(op: str) -> None:
    with pytest.raises(IRError, match="u8 wraps at 256"):
        parse_text(f"program many mesh(tp=2) input %x: u8[2] %y = {op} return %y")


@pytest.mark.parametrize("value", [-1, 256])
def test_a_constant_that_does_not_fit_in_a_byte_is_refused(value: int) -> None:
    with pytest.raises(IRError, match=f"{value} does not fit in u8"):
        parse_text(f"program p %y = full {{shape=[2], value={value}, dtype=u8}} return %y")
