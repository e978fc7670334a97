"""A number that is drawn decides nothing, in any mode; nor does whether gradients are recorded."""

from __future__ import annotations

import random

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.frontends.torch.session import capture_here
from shardproof.synthesis.frontends.torch.single_draws import Singles, given

pytestmark = pytest.mark.torch

TOP = """
import random, secrets
from random import random as draw
import numpy as np
KEPT, OTHER, HELD = np.random.default_rng(1), random.Random(1), np.random.RandomState(1)
"""
DECIDE = {
    "above": "random.random() > 0.5",
    "a small part": "0.6 < random.random() < 0.62",
    "in training": "self.training and np.random.rand() > 0.9",
    "an integer": "random.randint(0, 9) == 9",
    "a generator": "np.random.default_rng().random() > 0.7",
    "a secret": "secrets.randbelow(8) > 3",
    "torch": "torch.rand(()).item() > 0.5",
    "two draws": "random.random() < 0.5 and random.random() > 0.5",
    "a name of its own": "draw() > 0.9",
    "one of many": "random.randint(0, 20) == 13",
    "a generator that is kept": "KEPT.random() > 0.9",
    "a generator of Python's that is kept": "OTHER.random() > 0.9",
    "a legacy generator that is kept": "HELD.rand() > 0.9",
    "a function that is not replaced": "np.random.beta(1, 1) > 0.9",
    "no gradients": "not torch.is_grad_enabled()",
}
DECIDED = ("draws, at ", "without gradients than with them", "the second call of M")


def captured(user_model, condition):
    body = f"if {condition}:\n    return self.w(x) * 2\nreturn self.w(x)"
    target = user_model(body, TOP)
    return capture_here(CaptureRequest(target, gradients=True), lambda _: None)


@pytest.mark.parametrize("condition", DECIDE.values(), ids=DECIDE)
def test_what_is_drawn_decides_nothing(user_model, condition):
    with pytest.raises(CaptureError) as caught:
        captured(user_model, condition)
    assert any(part in caught.value.message for part in DECIDED)
    assert caught.value.line


@pytest.mark.parametrize(
    "condition",
    ["random.random() < 0.0", "self.training and torch.rand([]) < 0.0", "KEPT.random() > 2"],
)
def test_a_draw_on_one_side_of_which_all_lie_is_let_through(user_model, condition):
    said = "model.py:13 decides nothing: draws near 0, 1/4, 1/2, 3/4 and 1"
    assert any(said in line for line in captured(user_model, condition).assumptions)


def test_a_seed_says_what_is_drawn(user_model):
    assert captured(user_model, "np.random.default_rng(0).random() > 0.7")


def test_a_loop_that_draws_until_a_number_fits_ends(tmp_path):
    with given(Singles((0.5,), Places(str(tmp_path)))):
        while random.random() < 0.9:
            pass
