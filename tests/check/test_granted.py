"""Asserts on values and rows that values choose are read by `check` as in a patch."""

from __future__ import annotations

from functools import partial

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.request import EVAL, TRAIN

pytestmark = pytest.mark.torch
ASSERTED = """
assert torch.all(x > -1000.0)
h = Copy.apply(self.norm(x), self.group)
y = F.linear(F.relu(self.up(h)), self.down.weight)
{}
return x + y + self.down.bias
"""
ONE = """
import torch
import torch.nn.functional as F
from model import MLP


class Rows(MLP):
    def forward(self, x, keep):
        at = torch.where(keep)[0]
        y = F.linear(F.relu(self.up(x[at])), self.down.weight)
        return x + torch.zeros_like(x).index_add(0, at, y) + self.down.bias
"""
MANY = """
class Wrong(ParallelMLP):
    def forward(self, x, keep):
        at = torch.where({})[0]
        h = Copy.apply(x, self.group)
        y = F.linear(F.relu(self.up(h[at])), self.down.weight)
        y = torch.zeros_like(x).index_add(0, at, y)
        return x + {} + self.down.bias
"""


@pytest.fixture
def case(case):
    return partial(case, modes=(EVAL, TRAIN))


def test_an_assert_is_left_out_and_printed(case):
    found = case().forward(ASSERTED.format("y = Reduce.apply(y, self.group)")).proved()
    notes = {n for rank in found.captured.ranks for n in rank.notes}
    said = "An assert on values of tensors is left out, and taken to hold: wrong.py:"
    assert [n for n in notes if n.startswith(said)]


def test_a_sum_that_is_missing_beside_an_assert_is_refuted(case):
    case().forward(ASSERTED.format("")).refuted()


@pytest.mark.parametrize("added", ["y = Reduce.apply(y, self.group)", ""])
def test_values_that_a_distribution_validates_are_taken_to_be_valid(case, added):
    body = ASSERTED.replace("assert torch.all(x > -1000.0)", "").format(added)
    body = body.replace("return x + y", "p = Normal(x + y, 1.0)\nreturn p.log_prob(x) + y")
    one = "import torch\nfrom torch.distributions import Normal\nfrom model import MLP\n"
    asked = case(against="one.py:One", inputs=("x=f32[4,8]",))
    (asked.folder / "one.py").write_text(
        f"{one}\n\nclass One(MLP):\n    def forward(self, x):\n"
        "        y = super().forward(x) - x - self.down.bias\n"
        "        return Normal(x + y, 1.0).log_prob(x) + y + self.down.bias\n"
    )
    asked = asked.forward("from torch.distributions import Normal\n" + body)
    if not added:
        asked.refuted()
        return
    notes = {n for rank in asked.proved().captured.ranks for n in rank.notes}
    assert any("distribution.py" in n and "taken to hold" in n for n in notes)


def test_a_branch_on_a_value_is_refused(case):
    body = ASSERTED.format("y = Reduce.apply(y, self.group)\nif torch.all(x > 0):\n    y = 2 * y")
    with pytest.raises(CaptureError, match="reads the value of a tensor"):
        case().forward(body).check()


def rows(case, mask: str, added: str):
    asked = case(against="rows.py:Rows", inputs=("x=f32[4,8]", "keep=bool[4]"))
    (asked.folder / "rows.py").write_text(ONE)
    return asked.write(MANY.format(mask, added))


def test_rows_that_a_mask_chooses(case):
    found = rows(case, "keep", "Reduce.apply(y, self.group)").proved()
    notes = {n for rank in found.captured.ranks for n in rank.notes}
    assert [n for n in notes if n.startswith("Rows that values choose are read as all rows")]


@pytest.mark.parametrize("wrong", [("keep", "y"), ("~keep", "Reduce.apply(y, self.group)")])
def test_rows_that_are_not_added_up_or_others_are_refuted(case, wrong):
    rows(case, *wrong).refuted()
