"""Rows that values choose are read as all rows: as PyTorch computes them, or refused."""

from __future__ import annotations

import pytest
import torch

from shardproof.synthesis.execute.collect import collect
from shardproof.synthesis.frontends.torch import chosen
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from tests.frontend.chosen_programs import campaign
from tests.frontend.test_capture import agrees

pytestmark = pytest.mark.torch
F = torch.nn.functional

EXPERTS = """
import torch.nn.functional as F
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = (nn.Parameter(torch.randn(3, 4, 4)) for _ in range(2))
    def forward(self, x, which, weights):
        out = torch.zeros_like(x)
        with torch.no_grad():
            mask = F.one_hot(which, num_classes=4).permute(2, 1, 0)
            hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        for e in hit:
            e = e[0]
            with torch.no_grad():
                k, at = torch.where(mask[e])
            if at.numel() == 0:
                continue
            gate, up = (x[at] @ self.up[e]).chunk(2, dim=-1)
            h = (F.silu(gate) * up).repeat_interleave(2, 1) @ self.down[e]
            out.index_add_(0, at, h * weights[at, k, None])
        return out
"""
LOOP = EXPERTS.replace(".repeat_interleave(2, 1) @ self.down[e]", " @ self.down[e, :2]")


def test_a_loop_over_the_experts_that_are_hit_agrees_with_pytorch(user_model, tmp_path):
    """One number of an expert is none that a weight has: it is never hit."""
    body = "w, i = self.w(x).topk(2)\nreturn self.experts(x, i % 3, w.softmax(-1)).sum()"
    target = user_model(body, LOOP)
    path = tmp_path / "model.py"
    made = "        self.w = nn.Linear(4, 4)\n"
    text = path.read_text().replace("randn(2, 4)}", "randn(5, 4)}")
    path.write_text(text.replace(made, made + "        self.experts = Experts()\n"))
    found = agrees(CaptureRequest(target, dtype="f64"))
    assert chosen.SAID in found.assumptions
    assert found.facts.whole


def by_mask(x, w):
    out = torch.zeros_like(x)
    for n in range(3):
        mask = (x[:, 0] * 5).floor().remainder(3) == n
        out[mask] = torch.tanh(x[mask] @ w[n]) * x[mask, 1, None]
    return out


def by_coordinates(x, w):
    out, x = x.new_zeros(2, 3, 4), x.reshape(2, 3, 4)
    for n in range(3):
        at = torch.where(x[..., n] > 0)
        out[at] += x[..., n : n + 1][at] * F.layer_norm(x[at] @ w[n], (4,))
    return out


def skipped(x, w):
    at = (x[:, 0] > 0).nonzero()[:, 0]
    rows = x[at].view(-1, 2, at.ndim * 2).transpose(1, 2).reshape(-1, 4) @ w[0]
    return x.index_add(0, at, rows, alpha=2) + x.index_put(
        (torch.arange(6),), x * 0, accumulate=True
    )


def only_where_hit(x, w):
    """What an entry that is not hit would choose is left out too."""
    out, mask = torch.zeros_like(x), x > 0
    for e in (x[:4, 0] > 0.5).nonzero():
        (at,) = torch.where(mask[:, e[0]])
        out.index_add_(0, at, x[at] @ w[e.item() % 3])
    return out


def only_where_some_are(x, w):
    """Where a mask chooses nothing, the rest of an entry is skipped, with what others choose."""
    out = torch.zeros_like(x)
    for e in (x[:4, 0] > -9).nonzero().flatten():
        (few,) = torch.where(x[:, e] > 1.5)
        (at,) = torch.where(x[:, e] > 0)
        if few.numel() == 0:
            continue
        out.index_add_(0, at, x[at] @ w[0])
    return out


def test_facts_of_experts_that_are_alike_are_of_the_rows_that_each_is_given(monkeypatch):
    monkeypatch.setattr(chosen, "_ON", [])
    facts = collect(CaptureRequest("tests/kinds/models/language.py:Sparse"))
    found = {m.path: m for m in facts.modules}
    assert found["experts.3"].arguments[0].shape == found["experts.0"].arguments[0].shape != ()


@pytest.mark.parametrize(
    "run", [by_mask, by_coordinates, skipped, only_where_hit, only_where_some_are]
)
def test_rows_and_their_gradients_are_those_of_pytorch(run, monkeypatch):
    monkeypatch.setattr(chosen, "_ON", [True])
    torch.manual_seed(1)
    for _ in range(4):
        given = [torch.randn(*shape, dtype=torch.float64) for shape in ((6, 4), (3, 4, 4))]
        ends = []
        for call in (run, lambda *a: chosen.called(lambda: run(*a))):
            leaves = [t.clone().requires_grad_() for t in given]
            y = call(*leaves)
            grads = torch.autograd.grad((y * y.detach().cos()).sum(), leaves, allow_unused=True)
            ends.append([y, *(torch.zeros(()) if g is None else g for g in grads)])
        for want, got in zip(*ends, strict=True):
            torch.testing.assert_close(got, want)


def counted(x, hit, out):
    n = 0
    for e in hit:
        (at,) = torch.where(x[:, e[0]] > 0)
        out.index_add_(0, at, x[at])
        n += 1
    return out / n


def carried(x, hit, out):
    for e in hit:
        (at,) = torch.where(x[:, e[0]] > 0)
        if e[0] > 0:
            out.index_add_(0, at, x[at] * last)  # noqa: F821
        last = x[0]  # noqa: F841
    return out


def listed(x, hit, out):
    found = []
    for e in hit:
        found.append(e[0])
    return out + len(found)


def written(x, hit, out):
    for e in hit:
        out.add_(x[e[0]])
    return out


def written_through_a_view(x, hit, out):
    for _ in hit:
        row = out[0]
        row.mul_(2)
    return out


def left_behind(x, hit, out):
    kept = {}
    for e in hit:
        F.relu_(kept.setdefault("x", x[e[0]] * 2))
    return out + kept["x"]


def ended(x, hit, out):
    for e in hit:
        if e[0] > 1:
            break
    return out


def numbered(x, hit, out):
    for n, e in enumerate(hit):
        (at,) = torch.where(x[:, e[0]] > 0)
        out.index_add_(0, at, x[at] * n)
    return out


def entries(x, hit, out):
    return out + x[hit].sum()


def summed(x, hit, out):
    return out + x[x > 0].sum()


def along_rows(x, hit, out):
    return out.index_add(0, at := torch.where(x[:, 0] > 0)[0], x[at].cumsum(0))


def paired(x, hit, out):
    (at,) = torch.where(x[:, 0] > 0)
    return out.index_add(0, at, x[at] + x[:1, :1].expand(6, 4))


def how_many(x, hit, out):
    (at,) = torch.where(x[:, 0] > 0)
    return out.index_add(0, at, x[at] / at.numel())


def whether_any(x, hit, out):
    (at,) = torch.where(x[:, 0] > 0)
    if at.numel() == 0:
        return out
    return out + 1


def two_masks(x, hit, out):
    (at,), (to,) = torch.where(x[:, 0] > 0), torch.where(x[:, 1] > 0)
    return out.index_add(0, to, x[at])


def put_where_two_meet(x, hit, out):
    at = torch.where(x > 0)
    out[at[0]] = x[at[0]]
    return out


def returned(x, hit, out):
    return x[x > 0]


@pytest.mark.parametrize(
    "run",
    [
        *(counted, carried, listed, written, written_through_a_view, left_behind, ended, numbered),
        *(entries, summed, along_rows, paired, how_many, whether_any, two_masks),
        *(put_where_two_meet, returned),
    ],
)
def test_what_depends_on_the_rows_that_are_not_chosen_is_refused(run, monkeypatch):
    monkeypatch.setattr(chosen, "_ON", [True])
    x = torch.randn(6, 4)
    with pytest.raises(CaptureError) as caught:
        chosen.called(lambda: run(x, (x[:, 0] > 0)[:3].nonzero(), torch.zeros(6, 4)))
    assert caught.value.line > run.__code__.co_firstlineno


def test_random_programs_on_chosen_rows_are_those_of_pytorch_or_refused():
    tally = campaign(300, 1)
    assert tally.differing == []
    assert tally.outcomes["accepted"] > 0.3 * tally.counted


def test_random_programs_find_that_ops_along_the_rows_are_let_through(monkeypatch):
    monkeypatch.setattr(chosen, "_inside", lambda *_: True)
    assert campaign(200, 1).differing


def joined_by_a_list(x, hit, out):
    mask = x[:, 0] > 0
    out[mask, :2] = x[mask, [0, 1], None]
    return out


def turned_by_keywords(x, hit, out):
    mask = x[:, 0] > 0
    r = x[mask].transpose(dim0=0, dim1=1).cumsum(1).transpose(dim0=0, dim1=1)
    out[mask] = r
    return out


def cut_into_as_many_as_there_are(x, hit, out):
    mask = x[:, 0] > 0
    out[mask] = x[mask].view(6, -1).softmax(1).view(-1, 4)
    return out


def largest_of_a_square(x, hit, out):
    y, mask = x[:4], x[:4, 0] > 0
    out[:4][mask] = y[mask].max(0)[0]
    return out


@pytest.mark.parametrize(
    "run",
    [joined_by_a_list, turned_by_keywords, cut_into_as_many_as_there_are, largest_of_a_square],
)
def test_what_is_not_done_to_each_row_alone_is_refused(run, monkeypatch):
    monkeypatch.setattr(chosen, "_ON", [True])
    x = torch.randn(6, 4)
    with pytest.raises(CaptureError, match="data-dependent"):
        chosen.called(lambda: run(x, None, torch.zeros_like(x)))


def turned_inside(x):
    mask, out = x[:, 0] > 0, torch.zeros_like(x)
    r = x[mask].view(-1, 2, 2).transpose(dim0=1, dim1=2).reshape(-1, 4)
    out[mask] = r - r.max(1, keepdim=True)[0] + x[mask, 1, None]
    return out


def test_what_is_done_to_each_row_alone_is_read(monkeypatch):
    monkeypatch.setattr(chosen, "_ON", [True])
    x = torch.randn(6, 4)
    torch.testing.assert_close(chosen.called(lambda: turned_inside(x)), turned_inside(x))
