"""Routing by the k largest, and lookups by indices that are worked out, as PyTorch does them."""

from __future__ import annotations

import pytest

from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from tests.frontend.test_capture import agrees

pytestmark = pytest.mark.torch

FILE = """import torch
import torch.nn as nn
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(3, 5)
        self.experts = nn.Parameter(torch.randn(5, 3, 4))
    def forward(self, x):
        h = self.w(x)
        {forward}
def example_inputs():
    return {{"x": torch.randn(6, 3)}}
"""
ROUTES = """values = h.softmax(-1).topk(2).values * 3
        ties = (h * 2).floor().topk(3).values + h[:, :3]
        v, i = h.topk(2, dim=0, largest=False)
        smallest = v * 2 + h.gather(0, i)
        v, i = h.softmax(-1).topk(2)
        e = self.experts[i.reshape(-1)]
        y = torch.bmm(x.repeat_interleave(2, 0).unsqueeze(1), e).squeeze(1)
        experts = (y * v.reshape(-1, 1)).view(6, 2, 4).sum(1)
        mask = h * torch.zeros_like(h).scatter(1, i, 1.0)
        number = h.scatter(1, h.topk(1).indices.expand(6, 3), 2.0)
        worked_out = self.experts[i - 3].sum(1) + h[:, :1, None]
        m, j = h.max(-1)
        largest = m.unsqueeze(-1) * h + (h - h.min(0, keepdim=True).values)
        rows = self.experts[j] + self.experts[h.argmin(0)[:1]]
        bounds = torch.clamp(h, x[:, :1], x[:, 1:2] + 2)
        running = h.cumsum(0) * h.cumsum(-1)
        table = h[:, torch.tensor([-1, 0, -2, 3])] * 2
        return (values, ties, smallest, experts, mask, number,
                worked_out, table, largest, rows, bounds, running)"""


def written(folder, forward: str) -> CaptureRequest:
    path = folder / "model.py"
    path.write_text(FILE.format(forward=forward))
    return CaptureRequest(f"{path}:M", dtype="f64")


def test_routes_agree_with_pytorch_and_what_topk_leaves_open_is_said(tmp_path):
    """Ties, either end, negative indices that are constants or depend on values."""
    found = agrees(written(tmp_path, ROUTES))
    assert {o.path for o in found.program.outputs} >= {"ties", "worked_out", "table"}
    assert any("leaves open" in line for line in found.assumptions)


def test_values_scattered_at_any_index_are_refused(tmp_path):
    """Where two meet at one place, PyTorch does not say which stays."""
    forward = "i = h.argmax(-1, keepdim=True).expand(6, 2); return h.scatter(1, i, h[:, :2])"
    with pytest.raises(CaptureError, match="two may meet"):
        capture(written(tmp_path, forward))


def test_bits_of_integers_are_no_truth_values(tmp_path):
    agrees(written(tmp_path, "i = h.topk(2).indices; return h[:, :2] * (~i).to(h.dtype)"))
    bits = "one, m = torch.tensor([1, 0, 0, 1, 1]), h > 0; i = (m & one) | (h > 1).long()[:, :1]"
    agrees(written(tmp_path, f"{bits}; return h * i, h * (i ^ 1), h * h.logical_xor(one)"))
    forward = "i = h.topk(2).indices; return h[:, :2] * (i & (i + 1)).to(h.dtype)"
    with pytest.raises(CaptureError, match="bits of integers"):
        capture(written(tmp_path, forward))
