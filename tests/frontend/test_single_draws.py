"""A number that is drawn decides nothing, in any mode; nor does whether gradients are recorded."""

from __future__ import annotations

import pytest

from synthesis.frontends.torch.errors import CaptureError
from synthesis.frontends.torch.request import CaptureRequest
from synthesis.frontends.torch.session import capture_here

pytestmark = pytest.mark.torch

TOP = "import random, secrets\nimport numpy as np\n"
DECIDE = {
    "above": "random.random() > 0.5",
    "a small part": "0.6 < random.random() < 0.62",
    "in training": "self.training and np.random.rand() > 0.9",
    "an integer": "random.randint(0, 9) == 9",
    "a generator": "np.random.default_rng().random() > 0.7",
    "a secret": "secrets.randbelow(8) > 3",
    "torch": "torch.rand(()).item() > 0.5",
    "two draws": "random.random() < 0.5 and random.random() > 0.5",
    "no gradients": "not torch.is_grad_enabled()",
}
DECIDED = ("draws, at ", "without gradients than with them", "train mode than in eval mode")


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
    "condition", ["random.random() < 0.0", "self.training and torch.rand([]) < 0.0"]
)
def test_a_draw_on_one_side_of_which_all_lie_is_let_through(user_model, condition):
    assert captured(user_model, condition)
