"""Coverage of what ranks claim, from layouts, without processes."""

from __future__ import annotations

import importlib.util
import itertools

import numpy as np
import pytest

from shardproof.synthesis.guard.fingerprint.boxes import box_coverage, whole_coverage
from shardproof.synthesis.guard.fingerprint.mix import MASK

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch", allow_module_level=True)
from shardproof.synthesis.guard.errors import GuardError
from shardproof.synthesis.guard.layouts import expected, parse, shape_of

SIZES = {"dp": 2, "tp": 3}
LAYOUTS = {
    "[6] [4]": 6, "[tp 2] [4]": 2, "[dp 3] [tp 2]": 1, "[tp dp 4] [5]": 1,
    "[3 tp 4] [dp]": 1, "[]": 6, "[2 dp 2]": 3,
}  # fmt: skip


@pytest.mark.parametrize("text", list(LAYOUTS))
def test_claims_of_all_ranks_cover_the_tensor(text: str) -> None:
    """As often as the mesh repeats it, and exactly."""
    dims = parse(text)
    shape = shape_of(dims, SIZES)
    total, seen = 0, np.zeros(shape, np.int64)
    for dp, tp in itertools.product(range(2), range(3)):
        claim = expected(dims, SIZES, {"dp": dp, "tp": tp})
        total += box_coverage(claim, 7)
        seen[np.ix_(*claim)] += 1
    assert (seen == LAYOUTS[text]).all()
    assert total & MASK == whole_coverage(shape, 7) * LAYOUTS[text] & MASK


def test_a_place_claimed_twice_or_by_nobody_shows() -> None:
    halves = [[np.arange(4), np.arange(0, 3)], [np.arange(4), np.arange(3, 6)]]
    whole = whole_coverage((4, 6))
    assert sum(box_coverage(h) for h in halves) & MASK == whole
    moved = [halves[0], [np.arange(4), np.arange(2, 5)]]
    assert sum(box_coverage(h) for h in moved) & MASK != whole
    assert 2 * box_coverage(halves[0]) & MASK != whole
    turned = [[np.arange(0, 2), np.arange(6)], halves[1]]
    assert sum(box_coverage(h) for h in turned) & MASK != whole


@pytest.mark.parametrize("text", ["tp 4", "[tp 4] 4", "[pp 4]"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(GuardError, match=r"one bracket a dim|the mesh has dp, tp"):
        shape_of(parse(text), SIZES)
