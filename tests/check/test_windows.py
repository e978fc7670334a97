"""Lookups among a rank's own classes, in the words of libraries for reinforcement learning: masks
and indices in chunks, one-hot rows, gradients that change one entry of each row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Proof

pytestmark = pytest.mark.torch
ONE = """
from torch import nn
from torch.nn import functional as F


class Chosen(nn.Module):
    def forward(self, logits, target):
        return F.log_softmax(logits, -1).gather(-1, target.unsqueeze(-1)).squeeze(-1)


class Logs(nn.Module):
    def forward(self, logits, target):
        return logits.log().gather(-1, target.unsqueeze(-1)).squeeze(-1)


def example_inputs():
    import torch

    return {"logits": torch.rand(4, 8), "target": torch.randint(8, (4,))}
"""
MANY = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


def log_softmax(x, group):
    most = x.amax(-1, keepdim=True)
    dist.all_reduce(most, dist.ReduceOp.MAX, group=group)
    total = (x - most).exp().sum(-1, keepdim=True)
    dist.all_reduce(total, group=group)
    return x - most - total.log()


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, group):
        n, low = logits.shape[-1], logits.shape[-1] * dist.get_rank(group)
        outside = (target < low) | (target >= low + n)
        index = target - low
        index[outside] = 0
        parts = []
        for at in (0, 2):
            rows = log_softmax(logits[at:at + 2], group)
            found = rows.gather(-1, index[at:at + 2].unsqueeze(-1)).squeeze(-1)
            found[outside[at:at + 2]] = 0
            dist.all_reduce(found, group=group)
            parts.append(found)
        ctx.save_for_backward(log_softmax(logits, group).exp(), outside, index)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        chosen, outside, index = ctx.saved_tensors
        n = chosen.shape[-1]
        BACKWARD
        return out, None, None


class Chosen(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.group = mesh.get_group("tp")

    def forward(self, logits, target):
        return Function.apply(logits, target, self.group)


class Logs(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.group = mesh.get_group("tp")

    def forward(self, logits, target):
        n = logits.shape[-1]
        index = target - n * dist.get_rank(self.group)
        inside = (index >= 0) & (index < n)
        rows = logits.log()
        found = rows.gather(-1, index.clamp(0, n - 1).unsqueeze(-1)).squeeze(-1) * inside.float()
        return dist.nn.functional.all_reduce(found, group=self.group)
"""
BACKWARDS = {
    "one-hot": "out = ((~outside).unsqueeze(-1) * F.one_hot(index, n)).float().sub_(chosen)"
    ".mul_(grad.unsqueeze(-1))",
    "less one": "out = chosen.clone(); out[torch.arange(4), index] -= (~outside).float()"
    "; out = out.mul_(-grad.unsqueeze(-1))",
    "less a hit": "hit = (~outside).to(chosen.dtype).unsqueeze(-1)"
    "; out = -chosen.scatter_add(-1, index.unsqueeze(-1), -hit) * grad.unsqueeze(-1)",
    "more": "out = -chosen * grad.unsqueeze(-1); out[torch.arange(4), index] += ~outside * grad",
}
WRONG = {
    "the mask of other rows": ("outside[at:at + 2]", "outside[2 - at:4 - at]"),
    "the index of other rows": ("index[at:at + 2]", "index[2 - at:4 - at]"),
    "a row too many": ("target >= low + n", "target > low + n"),
    "the window of others": ("index = target - low", "index = target + low"),
    "other columns": ("index[outside] = 0", "index[outside] = 0; index = n - 1 - index"),
    "every rank's first row": ("(~outside).unsqueeze(-1) * ", ""),
    "rows that others hold": ("(~outside).unsqueeze(-1)", "outside.unsqueeze(-1)"),
    "every rank takes one off": ("(~outside).float()", "1.0"),
    "a hit for every rank": ("hit = (~outside)", "hit = torch.ones_like(outside)"),
    "less in place of more": ("+= ~outside", "-= ~outside"),
}


def _proved(case: Callable[..., object], tmp_path: Path, code: str, name: str = "Chosen") -> bool:
    (tmp_path / "one.py").write_text(ONE)
    (tmp_path / "many.py").write_text(code)
    asked = case(mesh=Mesh.of(tp=2), target=f"many.py:{name}", against=f"one.py:{name}")
    asked.input_layouts = ["logits=S(1)@tp"]
    return isinstance(asked.check().verdict, Proof)


@pytest.mark.parametrize("kind", BACKWARDS)
def test_a_lookup_in_chunks_is_one_through_windows(
    case: Callable[..., object], tmp_path: Path, kind: str
) -> None:
    assert _proved(case, tmp_path, MANY.replace("BACKWARD", BACKWARDS[kind]))


@pytest.mark.parametrize("kind", WRONG)
def test_a_lookup_that_goes_wrong_is_not_proved(
    case: Callable[..., object], tmp_path: Path, kind: str
) -> None:
    was, now = WRONG[kind]
    backward = next(b for b in BACKWARDS.values() if was in MANY.replace("BACKWARD", b))
    code = MANY.replace("BACKWARD", backward)
    assert was in code
    assert not _proved(case, tmp_path, code.replace(was, now))


@pytest.mark.parametrize(
    ("index", "right"),
    [
        ("torch.where(~outside, target - low, torch.zeros_like(target))", True),
        ("torch.where(outside, target - low, torch.zeros_like(target))", False),
        ("torch.where(~outside, target, torch.zeros_like(target))", False),
    ],
)
def test_an_index_is_chosen_inside_of_a_window(
    case: Callable[..., object], tmp_path: Path, index: str, right: bool
) -> None:
    code = MANY.replace("BACKWARD", BACKWARDS["one-hot"]).replace("index[outside] = 0", "")
    assert "index = target - low" in code
    assert _proved(case, tmp_path, code.replace("target - low\n", f"{index}\n", 1)) == right


def test_what_a_mask_makes_0_must_have_a_value(case: Callable[..., object], tmp_path: Path) -> None:
    code = MANY.replace("BACKWARD", BACKWARDS["one-hot"])
    assert not _proved(case, tmp_path, code, "Logs")
