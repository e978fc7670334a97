"""The images that a model of a library is captured with."""

from types import SimpleNamespace
from typing import Any

import pytest

from shardproof.synthesis.frontends.torch.inputs import SIDE, find_inputs
from shardproof.synthesis.frontends.torch.request import CaptureRequest


class Seen:
    def forward(self, pixel_values: Any) -> Any: ...


@pytest.mark.parametrize(
    ("config", "image"),
    [
        ({"image_size": 16, "num_channels": 1}, (2, 1, 16, 16)),
        ({"image_size": (16, 8)}, (2, 3, 16, 8)),
        ({"vision_config": SimpleNamespace(image_size=8)}, (2, 3, 8, 8)),
        ({}, (2, 3, SIDE, SIDE)),
    ],
)
def test_images_are_of_the_size_that_a_config_says(config: dict[str, Any], image: Any) -> None:
    target: Any = SimpleNamespace(cls=Seen, module=None, hf_config=SimpleNamespace(**config))
    model: Any = SimpleNamespace(parameters=list, buffers=list)
    (spec,) = find_inputs(CaptureRequest("hf:Seen", batch=2), target, model)
    assert spec.shape == image
