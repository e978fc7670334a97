"""Programs written to be proved wrongly, and right ones close to them.

`verdicts.txt` says what comes of each. A verdict may become better, not worse; a wrong program that
is proved stands there as `proved`, and its test is expected to fail until it is not.
"""

from __future__ import annotations

import pytest

from tests.attacks.judge import WORTH, judged, names, stated, table

pytestmark = pytest.mark.torch
SLICE = frozenset(
    {
        *("ranks/buffers/right", "ranks/collectives/noncontig", "ranks/detectors/isfinite_try"),
        *("ranks/modes/clamp_model", "ranks/modes/third_call", "ranks/served/quantized_wrong"),
        *("ranks/served/ids_through_bf16_wrong", "ranks/wrappers/bypass"),
        *("models/asserts/method_writes", "models/draws/min_rand", "models/modes/nograd_path"),
    }
)
"""Programs of every kind that `make test` judges; `make attacks` judges all."""
VERDICTS = table()
OPEN = frozenset(n for n, v in VERDICTS.items() if (stated(n)["TRUE"], v) == ("wrong", "proved"))
"""Wrong programs that are proved, against all that is said here."""
CHANCE = frozenset({"models/draws/clock", "models/draws/nprand", "models/draws/secret_number"})
"""Programs that draw anew at every reading, so that chance decides their verdict."""


def marks(name: str) -> list[pytest.MarkDecorator]:
    campaign = [] if name in SLICE else [pytest.mark.campaign]
    still = pytest.mark.xfail(reason="a wrong program is proved", strict=name not in CHANCE)
    return [*campaign, still] if name in OPEN else campaign


@pytest.mark.parametrize("name", [pytest.param(n, marks=marks(n)) for n in names()])
def test_wrong_ones_are_not_proved_and_right_ones_are_or_told_the_way_on(name):
    found, truth = judged(name), stated(name)["TRUE"]
    if truth == "wrong":
        assert found.verdict != "proved", "a wrong program is proved: verdicts.txt"
    worth = WORTH[truth]
    assert worth[found.verdict] >= worth[VERDICTS[name]], f"{found.verdict}: {found.said}"
    if (truth, found.verdict) == ("right", "refused"):
        assert found.hint, f"no way on: {found.said}"


def test_every_program_has_a_verdict_and_the_slice_is_of_programs():
    assert set(VERDICTS) == set(names())
    assert set(names()) >= SLICE
