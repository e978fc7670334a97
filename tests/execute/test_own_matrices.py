"""Modules that multiply by matrices of their own: planned, written, read again, and faults."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from shardproof.agent.pipeline.pipeline import kinds
from shardproof.agent.pipeline.writing import read_again
from shardproof.synthesis.emit import emit
from shardproof.synthesis.emit.patch import Patch, patch as make_patch
from shardproof.synthesis.execute.job import collect_facts
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.captured import Captured
from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec
from shardproof.synthesis.hardware import load
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Proof, Verdict

pytestmark = pytest.mark.torch
SOURCE = """import torch
from torch import nn


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.w_q = nn.Parameter(torch.randn(4, 8, 6))
        self.w_v = nn.Parameter(torch.randn(4, 8, 6))
        self.b_q = nn.Parameter(torch.randn(4, 6))
        self.w_o = nn.Parameter(torch.randn(4, 6, 8))
        self.b_o = nn.Parameter(torch.randn(8))

    def forward(self, x):
        q = torch.einsum("bpd,ndh->bpnh", x, self.w_q) + self.b_q
        v = torch.einsum("bpd,ndh->bpnh", x, self.w_v)
        z = torch.einsum("bqnh,bknh->bnqk", q, q).softmax(-1) @ v.transpose(1, 2)
        return torch.einsum("bnqh,nhd->bqd", z, self.w_o) + self.b_o


class Square(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = 2
        for name in ("wq", "wk", "wv", "wo"):
            setattr(self, name, nn.Parameter(torch.randn(8, 8)))
        for name in ("gain", "shift", "bias", "scale"):
            setattr(self, name, nn.Parameter(torch.randn(8)))
        self.pace = nn.Parameter(torch.ones(1))

    def forward(self, x):
        b, t, _ = x.shape
        x = x * self.gain + self.shift
        q, k, v = (
            (x @ w).view(b, t, self.heads, 4).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        )
        y = (q @ k.transpose(-2, -1) * self.pace.exp()).softmax(-1) @ v
        return (y.transpose(1, 2).reshape(b, t, 8) @ self.wo + self.bias) * self.scale


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Heads(), Square()

    def forward(self, x):
        x = x + self.first(x)
        return x + self.second(x)
"""


@dataclass
class Made:
    request: CaptureRequest
    captured: Captured
    plan: Synthesis
    patch: Patch

    def judged(self, patch: Patch) -> Verdict:
        made = self.plan
        given = made.plan, made.sequential, made.contract, patch
        return read_again(self.request, self.captured, *given)[1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    path = tmp_path_factory.mktemp("own_matrices") / "own_matrices.py"
    path.write_text(SOURCE)
    request = CaptureRequest(f"{path}:Model", inputs=(InputSpec("x", (2, 3, 8)),))
    captured = capture(request)
    asked = Asked(captured.program, Mesh.of(tp=2), load("h100"), kinds(captured), patched=True)
    plan = synthesize(asked)
    return Made(request, captured, plan, emit(collect_facts(request), plan.plan))


def test_each_rank_has_some_heads_of_every_matrix(made: Made) -> None:
    diff = made.patch.diff
    assert '{"w_q": 0, "w_v": 0, "b_q": 0, "w_o": 0}' in diff
    assert '{"wq": 1, "wk": 1, "wv": 1, "wo": 0}' in diff
    assert 'whole=["gain", "shift", "scale", "pace"]' in diff
    assert isinstance(verdict := made.judged(made.patch), Proof), verdict


WRONG = {
    "the last matrix along its outputs": ('"wo": 0', '"wo": 1'),
    "keys whole": ('"wk": 1, ', ""),
    "a bias that is left a share": ('"b_q": 0, ', ""),
    "a share of what multiplies": ('whole=["gain", ', "whole=["),
    "a share of what is added first": ('"shift", "scale", "pace"]', '"scale", "pace"]'),
    "a share of what multiplies last": ('"scale", "pace"]', '"pace"]'),
    "a whole bias on each rank": ('whole=["gain"', 'whole=["bias", "gain"'),
    "inputs for outputs": ('"wq": 1, "wk": 1', '"wq": 0, "wk": 0'),
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_splits_are_not_proved(made: Made, fault: str) -> None:
    old, new = WRONG[fault]
    lines = made.patch.diff.split("\n")
    assert sum(old in line for line in lines) == 1
    files = {name: (one, many.replace(old, new)) for name, (one, many) in made.patch.files.items()}
    right = made.patch
    other = make_patch(files, right.obligations, right.entry)
    wrong = made.judged(replace(other, function=right.function))
    assert isinstance(wrong, Counterexample) or "RuntimeError" in getattr(wrong, "reason", ""), (
        wrong
    )
