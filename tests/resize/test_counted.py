"""A factor that counts ranks is told from one that both programs hold, and from a wrong one."""

import pytest

from verifier.kernel.contract import Contract
from verifier.kernel.layout import Layout
from verifier.refute.scale_down import SmallDifference, refute_resized
from verifier.text.parser import parse_text

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
    found = refute_resized(one, many, contract)
    assert isinstance(found, SmallDifference)
    assert (not found.caveats) == refuted, found.caveats
