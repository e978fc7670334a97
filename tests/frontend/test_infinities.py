"""Infinite numbers that meet a 0, or each other, are told: PyTorch makes NaN of them."""

from __future__ import annotations

import pytest

from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.frontends.torch.session import capture_here

pytestmark = pytest.mark.torch

MASKED = "y = self.w(x)\nt = y.masked_fill(y > 0, float('-inf'))\nreturn "


def told(user_model, use):
    found = capture_here(CaptureRequest(user_model(MASKED + use)), lambda _: None)
    return [a for a in found.assumptions if a.startswith("No infinity")]


@pytest.mark.parametrize("use", ["t * (y <= 0)", "y + (t - t)", "t @ self.w.weight", "y - 0 * t"])
def test_an_infinity_of_which_nan_may_be_made_is_told(user_model, use):
    (line,) = told(user_model, use)
    assert "model.py:" in line


@pytest.mark.parametrize(
    "use", ["t.softmax(-1) @ self.w.weight", "t.amax(-1)", "(t / 2).exp()", "(2 * t + 1).sigmoid()"]
)
def test_an_infinity_that_is_a_mask_is_not_told(user_model, use):
    assert not told(user_model, use)
