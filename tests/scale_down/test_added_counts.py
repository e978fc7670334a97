"""What holds at the given extents alone: nothing right is refuted where there are fewer entries."""

from __future__ import annotations

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.contract import read_contract
from shardproof.verifier.text.parser import parse_text, to_text
from shardproof.verifier.verdict import Counterexample

N = 1 << 21
ONE = f"""program one
  input %x: f32[{N}]
  %a = slice %x {{dim=0, start=0, stop={N - 100}}}
  %q = cos %a
  %y = sum %q {{dims=[0]}}
  return %y
"""


def many(zeros: int, less: int) -> str:
    """Entries that are left out are zeros, whose cosines count one each."""
    return f"""program many mesh(tp=2)
  input %x: f32[{N}]
  %a = slice %x {{dim=0, start=0, stop={N - 300}}}
  %b = slice %x {{dim=0, start={N - 300}, stop={N - 100}}}
  %z = full {{shape=[{zeros}], value=0}}
  %c = concat %a, %b, %z {{dim=0}}
  %q = cos %c
  %t = sum %q {{dims=[0]}}
  %y = add_scalar %t {{value={-less}}}
  return %y
"""


@pytest.mark.parametrize("zeros", [7, 1000, N - 200, N // 2])
def test_zeros_that_are_counted_and_taken_away_are_no_difference(zeros: int) -> None:
    one, two = parse_text(ONE), parse_text(many(zeros, zeros))
    verdict = verify(Problem(one, two, read_contract("", one, two).contract))
    assert not isinstance(verdict, Counterexample), verdict


@pytest.mark.parametrize(
    "choice",
    [
        "%z = relu %d",
        "%o = full {shape=[], value=0}\n  %z = maximum %d, %o",
        "%m = minimum %t, %k\n  %z = sub %k, %m",
        "%b = gt %k, %t\n  %g = cast %b {dtype=f32}\n  %z = mul %g, %d",
    ],
)
def test_a_choice_that_the_extents_decide_hides_a_difference(choice: str) -> None:
    """A sum of numbers above 1 is above 1000, however many ranks have them; of four it need not."""
    given = f"input %x: f32[{N}]"
    one = parse_text(f"program one\n {given}\n %y = mul_scalar %x {{value=2}}\n return %y")
    two = parse_text(f"""program many mesh(tp=2)
      input %x: f32[{N // 2}]
      %e = exp %x
      %f = add_scalar %e {{value=1}}
      %s = sum %f {{dims=[0]}}
      %t = all_reduce %s {{mesh_dim=tp}}
      %k = full {{shape=[], value=1000}}
      %d = sub %k, %t
      {choice}
      %u = mul_scalar %x {{value=37/100}}
      %v = mul %u, %z
      %w = mul_scalar %x {{value=2}}
      %y = add %w, %v
      return %y
    """)
    contract = read_contract("input x tp=S(0)\noutput y tp=S(0)", one, two).contract
    assert not isinstance(verify(Problem(one, two, contract)), Counterexample)
    both_ways = parse_text(to_text(two).replace("value=1000", f"value={N * 4}"))
    found = verify(Problem(one, both_ways, contract))
    assert isinstance(found, Counterexample) or "gt" in choice, found


def test_another_sum_is_refuted() -> None:
    one, two = parse_text(ONE), parse_text(many(1000, 1000).replace("= cos", "= sin"))
    verdict = verify(Problem(one, two, read_contract("", one, two).contract))
    assert isinstance(verdict, Counterexample), verdict
