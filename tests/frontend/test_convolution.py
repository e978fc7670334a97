"""Convolutions, norms of groups and writes into tensors are captured as PyTorch computes them."""

from __future__ import annotations

import pytest

from shardproof.synthesis.frontends.torch.request import CaptureRequest
from tests.frontend.test_capture import agrees

pytestmark = pytest.mark.torch

FILE = """import torch
import torch.nn as nn
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = {layer}
        self.w = nn.Linear(3, 3)
    def forward(self, x):
        {forward}
def example_inputs():
    return {{"x": torch.randn({shape})}}
"""
LAYERS = {
    "patches": ("nn.Conv2d(3, 5, 2, stride=2)", "2, 3, 6, 4"),
    "patches that leave a rest": ("nn.Conv2d(3, 5, 2, stride=2, bias=False)", "2, 3, 7, 5"),
    "a stem": ("nn.Conv2d(3, 4, 3, stride=2, padding=1)", "2, 3, 7, 6"),
    "dilated": ("nn.Conv1d(4, 6, 3, dilation=2, padding=2)", "2, 4, 9"),
    "groups": ("nn.Conv1d(4, 6, 2, groups=2)", "2, 4, 6"),
    "two norms of groups": (
        "nn.Sequential(nn.GroupNorm(2, 4), nn.GroupNorm(1, 4, affine=False))",
        "2, 4, 3, 2",
    ),
    "depthwise and causal": ("nn.Conv1d(4, 4, 3, groups=4, padding=2)", "2, 4, 6"),
}
WRITES = {
    "into a slice": "h = self.w(x); y = torch.zeros_like(h); y[:, 1:] = h[:, :-1]; return y + h",
    "into a line": "h = self.w(x); y = h.clone(); y[:, 0] = 2.0; return y * h",
    "by a list": "h = self.w(x).view(2, 2, 3); return h[:, [-1]] * h[:, [0]] + h[[1, 0], :, :]",
    "in place": "h = self.w(x) @ x.transpose(0, 1); h /= 3.0; h += 1; return 2 * h.softmax(-1)",
}


@pytest.mark.parametrize("name", LAYERS)
def test_convolutions_agree_with_pytorch(name, tmp_path):
    layer, shape = LAYERS[name]
    path = tmp_path / "model.py"
    path.write_text(FILE.format(layer=layer, shape=shape, forward="return self.c(x).relu()"))
    agrees(CaptureRequest(f"{path}:M", dtype="f64"))


@pytest.mark.parametrize("name", WRITES)
def test_writes_into_tensors_agree_with_pytorch(name, tmp_path):
    path = tmp_path / "model.py"
    path.write_text(FILE.format(layer="nn.Identity()", shape="4, 3", forward=WRITES[name]))
    agrees(CaptureRequest(f"{path}:M", dtype="f64"))
