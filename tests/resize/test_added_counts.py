"""Numbers that are added may count entries: nothing right is refuted where there are fewer."""

from __future__ import annotations

import pytest

from verifier.contract_text import read_contract
from verifier.ir.text import parse_text
from verifier.verdict import Counterexample
from verifier.verify import verify

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
    verdict = verify(one, two, read_contract("", one, two).contract)
    assert not isinstance(verdict, Counterexample), verdict


def test_another_sum_is_refuted() -> None:
    one, two = parse_text(ONE), parse_text(many(1000, 1000).replace("= cos", "= sin"))
    verdict = verify(one, two, read_contract("", one, two).contract)
    assert isinstance(verdict, Counterexample), verdict
