"""A factor that counts ranks is told from one that both programs hold, and from a wrong one."""

from fractions import Fraction

import pytest

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.scale_down.literals import doubts
from shardproof.verifier.refute.scale_down.mesh_constants import entries
from shardproof.verifier.refute.scale_down.refuting import SmallDifference, refute_resized
from shardproof.verifier.text.parser import parse_text

WHOLE = Layout.replicate((64, 8))


@pytest.mark.parametrize(
    ("factors", "refuted"), [(("1/64", "1/64"), False), (("1/64",), True), (("1/64",) * 3, True)]
)
def test_a_mean_over_ranks_is_not_refuted_on_fewer(factors: tuple[str, ...], refuted: bool) -> None:
    """One device takes a mean over 64 entries; 64 ranks also add what they all have."""
    one = parse_text("""program one input %x: f32[64, 8]
        %y = mul_scalar %x {value=1/64}
        return %y "y"
    """)
    lines, last = list[str](), "r"
    for k, factor in enumerate(factors):
        lines.append(f"%y{k} = mul_scalar %{last} {{value={factor}}}")
        last = f"y{k}"
    many = parse_text(f"""program many mesh(tp=64) input %x: f32[64, 8]
        %r = all_reduce %x {{mesh_dim=tp, reduce=sum}}
        {" ".join(lines)}
        return %{last} "y"
    """)
    contract = Contract({"x": WHOLE}, {"output:y": WHOLE})
    found = refute_resized(Problem(one, many, contract))
    assert isinstance(found, SmallDifference)
    assert (not found.caveats) == refuted, found.caveats


@pytest.mark.parametrize(("factor", "doubted"), [("1/64", True), ("1/32", True), ("1/40", False)])
def test_a_factor_is_in_doubt_where_a_number_that_is_computed_may_be_it(
    factor: str, doubted: bool
) -> None:
    one = parse_text(f"""program one input %x: f32[64, 8]
        %y = mul_scalar %x {{value={factor}}}
        return %y "y"
    """)
    many = parse_text("""program many mesh(tp=2) input %x: f32[64, 8]
        %o = full {shape=[32], value=1}
        %s = sum %o {dims=[0]}
        %n = all_reduce %s {mesh_dim=tp, reduce=sum}
        %y = div %x, %n
        return %y "y"
    """)
    assert bool([d for d in doubts(one, many, False) if "elsewhere" in d]) == doubted


BECAME = {64: {4, 6}, 32: {8}}
MEAN = "%s = sum %x {dims=[1]} %y = mul_scalar %s {value=1/64}"
DERIVATIVE = """%s = sum %x {dims=[1]} %m = mul_scalar %s {value=1/64}
    %r = reshape %m {shape=[32, 1]} %y = expand %r {shape=[32, COUNT]}"""
OF_ROWS = "%s = sum %x {dims=[0]} %y = mul_scalar %s {value=1/64}"


@pytest.mark.parametrize(
    ("text", "ways"),
    [
        (MEAN, [4]),
        (DERIVATIVE, [4]),
        (OF_ROWS, [4, 6]),
        ("%y = mul_scalar %x {value=1/64}", [4, 6]),
        (MEAN + " %z = mul_scalar %x {value=1/64}", [4, 6]),
        (MEAN + " %z = add_scalar %x {value=1/64}", [4, 6]),
    ],
)
def test_a_factor_of_means_alone_counts_what_they_are_of(text: str, ways: list[int]) -> None:
    given, small = (
        parse_text(
            f"program p input %x: f32[32, {count}] {text.replace('COUNT', str(count))} return %y"
        )
        for count in (64, 4)
    )
    found = list(entries(BECAME, (given, small), (given, small)))
    assert found == [{Fraction(1, 64): Fraction(1, n)} for n in ways]
