"""What ranks compute must have a value wherever one device has one, and be of the kind it says."""

from __future__ import annotations

from fractions import Fraction

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import ContractError
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.relate.rules import Rules, satisfied
from shardproof.verifier.provers.relate.walk import relate_peeled
from shardproof.verifier.terms import ONE, Ref, Terms
from shardproof.verifier.text.contract import read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Proof

SUM = "%e = add %x, %y"
GIVEN = "input %x: f32[4]\n input %y: f32[4]"


def proved(one: str, many: str, given: str = GIVEN) -> bool:
    sequential = parse_text(f"program one\n {given}\n {one}\n return %e")
    distributed = parse_text(f"program many mesh(tp=2)\n {given}\n {many}\n return %e")
    contract = read_contract("", sequential, distributed).contract
    for wide in (False, True):
        rules = Rules(distributed.mesh, wide=wide)
        terms, related, _ = relate_peeled(sequential, distributed, contract, rules)
        if not satisfied(terms, distributed, related, contract):
            return True
    return isinstance(verify(Problem(sequential, distributed, contract)), Proof)


@pytest.mark.parametrize(
    "many",
    [
        "%l = log %x\n %a = add %x, %l\n %b = add %a, %y\n %e = sub %b, %l",
        "%l = sqrt %x\n %z = mul_scalar %l {value=0}\n %a = add %x, %z\n %e = add %a, %y",
        "%z = full {shape=[4], value=0}\n %r = reciprocal %z\n %m = mul %z, %r\n"
        " %a = add %x, %m\n %e = add %a, %y",
        "%l = log %x\n %r = exp %l\n %e = add %r, %y",
        "%l = log %x\n %m = mul %l, %y\n %p = reshape %l {shape=[2, 2]}\n"
        " %q = reshape %y {shape=[2, 2]}\n %n = mul %p, %q\n %o = reshape %n {shape=[4]}\n"
        " %f = sub %o, %m\n %g = add %x, %f\n %e = add %g, %y",
        "%z = full {shape=[4], value=0}\n %l = log %x\n %i = cast %l {dtype=i64}\n"
        " %r = take %z, %i\n %a = add %x, %r\n %e = add %a, %y",
        "%z = full {shape=[4], value=0}\n %l = log %x\n %i = cast %l {dtype=i64}\n"
        " %r = index_add %z, %i {size=4}\n %a = add %x, %r\n %e = add %a, %y",
        "%z = full {shape=[4], value=0}\n %l = log %x\n %c = gt %l, %z\n"
        " %w = where %c, %x, %x\n %e = add %w, %y",
        "%z = full {shape=[4], value=0}\n %l = log %x\n %c = gt %l, %z\n"
        " %w = where %c, %z, %z\n %a = add %x, %w\n %e = add %a, %y",
    ],
    ids=[
        "cancelled",
        "times-zero",
        "zero-times",
        "undone",
        "cancelled-by-key",
        "taken-of-zeros",
        "zeros-added",
        "chosen-of-equals",
        "chosen-of-zeros",
    ],
)
def test_what_may_be_undefined_is_never_dropped(many: str) -> None:
    assert not proved(SUM, many)


def test_an_exclusive_sum_does_not_use_the_last_entry() -> None:
    given = "input %x: f32[4]"
    one = "%l = log %x\n %e = cumsum %l {dim=0, exclusive=true}"
    last = "%s = slice %l {dim=0, start=3, stop=4}\n %z = sub %s, %s\n %t = reshape %z {shape=[]}"
    many = f"{one.replace('%e', '%c')}\n {last}\n %e = add %c, %t"
    assert not proved(one, many, given)


def test_what_one_device_has_a_value_of_may_cancel_on_ranks() -> None:
    wild = "%l = log %x\n %a = add %x, %l\n %b = add %a, %y\n %e = sub %b, %l"
    beside = "%l = log %x\n %f = add %x, %y\n %g = mul_scalar %l {value=0}\n %e = add %f, %g"
    assert proved(beside, wild)
    assert not proved(f"%l = log %x\n {SUM}", wild), "no output depends on the logarithm"
    assert proved(SUM, wild.replace("log %x", "exp %x\n %k = log %l").replace("%a, %l", "%a, %k"))


@pytest.mark.parametrize(
    ("one", "many"),
    [
        ("%k = where %c, %l, %x\n %e = add %k, %y", "%k = where %c, %l, %x\n %f = add %k, %y"),
        (
            "%s = slice %l {dim=0, start=0, stop=2}\n %t = slice %y {dim=0, start=2, stop=4}\n"
            " %e = concat %s, %t {dim=0}",
        )
        * 2,
        ("%k = maximum %l, %x\n %e = add %k, %y",) * 2,
    ],
    ids=["where", "slice", "maximum"],
)
def test_what_one_device_has_a_value_of_only_by_choice_is_never_dropped(
    one: str, many: str
) -> None:
    head = "%l = log %x\n %z = full {shape=[], value=0}\n %c = gt %x, %z\n "
    many = many.replace("%e", "%f")
    assert proved(f"{head}{one}", head + one)
    assert not proved(f"{head}{one}", f"{head}{many}\n %g = add %f, %l\n %e = sub %g, %l")
    other = "%g = add %f, %y\n %e = sub %g, %y"
    assert proved(f"{head}{one}", f"{head}{many}\n {other}")


def test_a_guard_says_where_a_function_has_values() -> None:
    t = Terms()
    t.need([])
    x, v, zero = t.var("x", (4, 3)), t.var("v", (4, 1)), t.full((), Fraction(0))
    least = t.full((), Fraction(1, 2))
    log, root = t.mapped("log", [v], ()), t.mapped("sqrt", [v], ())
    over = t.reciprocal(v)

    def loose(op: str, a: Ref, b: Ref, yes: Ref, no: Ref) -> bool:
        return t.loose(t.apply("where", [t.apply(op, [a, b], {}, []), yes, no], {}, []).id)

    for yes in (log, over, t.product([x, log])):
        assert not loose("gt", v, zero, yes, x)
        assert not loose("ge", v, least, yes, x)
        assert not loose("le", v, zero, x, yes)
        assert loose("gt", v, zero, x, yes)
        assert loose("ge", v, zero, yes, x)
        assert loose("gt", x, zero, yes, x)
    assert not loose("ne", v, zero, over, x)
    assert not loose("eq", zero, v, x, over)
    assert loose("ne", v, zero, log, x)
    assert loose("ne", v, least, over, x)
    assert not loose("ge", v, zero, root, x)
    assert loose("gt", Ref(-v.coef, v.id), zero, log, x)
    across = t.var("s", (4, 4))
    other = t.permute(t.mapped("log", [across], ()), (1, 0))
    assert loose("gt", across, zero, other, zero), "another entry than the one compared"
    both = t.reduce("sum", t.mapped("log", [across], ()), (0,), False)
    assert loose("gt", across, zero, both, zero)


def test_the_sign_of_a_term_says_where_a_function_of_it_has_values() -> None:
    t = Terms()
    t.need([])
    x, eps = t.var("x", (4,)), t.full((), ONE)
    square = t.product([x, x])
    safe = [
        t.combine([(ONE, square), (ONE, eps)]),
        t.reduce("sum", t.mapped("exp", [x], ()), (0,), False),
    ]
    assert not any(t.loose(t.mapped("log", [a], ()).id) for a in safe)
    assert not t.loose(t.mapped("sqrt", [square], ()).id)
    assert not t.loose(t.reciprocal(t.mapped("sqrt", [safe[0]], ())).id)
    assert t.loose(t.reciprocal(t.mapped("sqrt", [square], ())).id)
    for at in (x, square, Ref(-safe[0].coef, safe[0].id)):
        assert t.loose(t.mapped("rsqrt", [at], ()).id)


@pytest.mark.parametrize(
    ("given", "one", "many"),
    [
        (
            "input %x: u8[4]\n input %y: i64[4]",
            "%c = concat %x, %y {dim=0}\n %d = cast %c {dtype=u8}\n %e = cast %d {dtype=i64}",
            "%e = concat %x, %y {dim=0}",
        ),
        (
            "input %x: bool[4]\n input %y: i64[]",
            "%c = mul %x, %y\n %d = cast %c {dtype=bool}\n %e = cast %d {dtype=i64}",
            "%c = mul %x, %y\n %e = cast %c {dtype=i64}",
        ),
        (
            "input %x: i64[4]\n input %y: i64[4]",
            "%c = logical_and %x, %y\n %d = cast %c {dtype=f32}\n %e = exp %d",
            "%c = mul %x, %y\n %d = cast %c {dtype=f32}\n %e = exp %d",
        ),
    ],
)
def test_a_result_has_a_kind_that_its_operands_fit(given: str, one: str, many: str) -> None:
    assert not proved(one, many, given)


def test_bytes_hold_bytes() -> None:
    given = "input %b: bool[4]\n input %x: u8[4]\n input %y: i64[]"
    with pytest.raises(IRError, match="does not fit"):
        parse_text(f"program one\n {given}\n %e = where %b, %x, %y\n return %e")
    one = parse_text("program one\n input %x: i64[4]\n %e = cast %x {dtype=i64}\n return %e")
    many = parse_text(
        "program many mesh(tp=2)\n input %x: u8[4]\n %e = cast %x {dtype=i64}\n return %e"
    )
    with pytest.raises(ContractError, match="gives each rank i64"):
        verify(Problem(one, many, read_contract("", one, many).contract))
