"""Gradients in one row of numbers, which something beside the module keeps and reduces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.program.types import Mesh

pytestmark = pytest.mark.torch
ONE = """
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


def build():
    model = Net()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss
"""
MANY = """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from one import Net


class Bucket:
    def __init__(self, params, group):
        self.params, self.group, self.ready = list(params), group, 0
        self.row = torch.zeros(sum(p.numel() for p in self.params))
        first = 0
        for p in self.params:
            last = first + p.numel()
            p.main_grad = self.row[first:last].view(p.shape)
            first = last

    def take(self, p):
        p.main_grad.add_(p.grad)
        p.grad = None
        self.ready += 1
        if self.ready == len(self.params):
            self.row /= dist.get_world_size(self.group)
            self.handle = dist.all_reduce(self.row, group=self.group, async_op=True)

    def finish(self):
        self.handle.wait()
        for p in self.params:
            p.grad = p.main_grad

    def reset(self):
        self.ready = 0
        self.row.zero_()


class Averaged(nn.Module):
    def __init__(self, inner, group):
        super().__init__()
        self.inner, self.bucket = inner, Bucket(inner.parameters(), group)
        for p in inner.parameters():
            p.register_post_accumulate_grad_hook(self.bucket.take)

    def forward(self, x):
        return self.inner(x)


def build(mesh):
    model = Averaged(Net(), mesh.get_group("dp"))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    model.bucket.finish()
    optimizer.step()
    model.bucket.reset()
    return loss
"""
RESET = "    model.bucket.reset()\n"
AHEAD = ("    optimizer.zero_grad()\n", f"{RESET}    optimizer.zero_grad()\n")
WRONG = {
    "not averaged": ("self.row /= dist.get_world_size(self.group)", "pass"),
    "not waited for": ("self.handle.wait()", "pass"),
    "a part alone": ("dist.all_reduce(self.row, ", "dist.all_reduce(self.row[:9], "),
    "rows that overlap": ("first = last", "first = last - 1"),
    "one too large": ("p.main_grad.add_(p.grad)", "p.main_grad.add_(p.grad, alpha=p.dim())"),
}
LEFT = {
    "not cleared": (RESET, "    model.bucket.ready = 0\n"),
    "cleared in part": ("self.row.zero_()", "self.row[:9].zero_()"),
    "made less": ("self.row.zero_()", "self.row.mul_(0.5)"),
}


ROW = "        first = 0\n"
UNSEEN = {
    "numpy has it": (
        ((ROW, f"        self.seen = self.row.numpy()\n{ROW}"),),
        "a tensor whose memory numpy has too",
    ),
    "another order": (
        (
            (ROW, f"        self.even = self.row[::2]\n{ROW}"),
            ("    return loss\n", "    return loss + model.bucket.even.sum()\n"),
        ),
        "in another order, or as another dtype",
    ),
}

OWN = (
    "self.inner, self.bucket = inner, Bucket(inner.parameters(), group)",
    "self.inner, self.bucket = inner, Bucket(inner.parameters(), group)\n"
    "        self.row = self.bucket.row",
)
DOUBLED = ("    model.bucket.finish()\n", "    model.bucket.finish()\n    model.row.mul_(2)\n")
BUFFER = (OWN[0], OWN[1].replace("self.row = ", "self.register_buffer('row', ") + ")")


@pytest.fixture
def made(case: Callable[..., Any]) -> Callable[..., Any]:
    def make(*edits: tuple[str, str]) -> Any:
        text = MANY
        for old, new in edits:
            assert text.count(old) == 1
            text = text.replace(old, new)
        step = case(
            mesh=Mesh.of(dp=2),
            target="many.py:build",
            against="one.py:build",
            step="train_step",
            inputs=["x=f32[8,4]", "y=f32[8,2]"],
            input_layouts=["x=S(0)@dp", "y=S(0)@dp"],
        )
        (step.folder / "one.py").write_text(ONE)
        (step.folder / "many.py").write_text(text)
        return step

    return make


@pytest.mark.parametrize("edits", [(), ((RESET, ""), AHEAD)], ids=["after", "ahead"])
def test_gradients_in_one_row_are_the_parameters_own(made: Any, edits: Any) -> None:
    found = made(*edits).proved()
    assert any(note.endswith("is read by ops alone.") for note in found.captured.ranks[0].notes)


IN_PARTS = (
    ("self.ready == len(self.params)", "self.ready == 2 * len(self.params)"),
    (
        "    loss = F.mse_loss(model(x), y)\n    loss.backward()\n",
        "    total = 0\n"
        "    for part, to in zip(x.chunk(2), y.chunk(2), strict=True):\n"
        "        loss = F.mse_loss(model(part), to) / 2\n"
        "        loss.backward()\n"
        "        total = total + loss.detach()\n"
        "    loss = total\n",
    ),
)


def test_micro_batches_add_up_in_a_row(made: Any) -> None:
    made(*IN_PARTS).proved()
    made(*IN_PARTS, ("p.main_grad.add_(p.grad)", "p.main_grad.copy_(p.grad)")).refuted()


def test_a_row_that_a_module_has_too_is_one_memory(made: Any) -> None:
    made(OWN).proved()
    made(OWN, DOUBLED).refuted()
    with pytest.raises(CaptureError, match="shares memory with a tensor that something else keeps"):
        made(BUFFER, DOUBLED).check()


@pytest.mark.parametrize("name", WRONG)
def test_a_row_that_is_reduced_wrongly_is_refuted(made: Any, name: str) -> None:
    made(WRONG[name]).refuted()


@pytest.mark.parametrize("name", LEFT)
def test_a_row_that_a_step_leaves_gradients_in_is_refused(made: Any, name: str) -> None:
    with pytest.raises(CaptureError, match="memory is read that nothing was written to"):
        made(LEFT[name]).check()


@pytest.mark.parametrize("name", UNSEEN)
def test_what_sees_a_row_otherwise_is_refused(made: Any, name: str) -> None:
    edits, said = UNSEEN[name]
    with pytest.raises(CaptureError, match=said):
        made(*edits).check()
