"""Buffers of a captured model, and programs that depend on nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.frontends.torch.session import capture_here

pytestmark = pytest.mark.torch

HAS = "self.w = nn.Linear(4, 4)"


def captured(user_model, use, value, kept=True):
    target = user_model(f"x = self.w(x)\nreturn {use}")
    path = Path(target.rpartition(":")[0])
    more = f"{HAS}; self.register_buffer('b', {value}, persistent={kept})"
    path.write_text(path.read_text().replace(HAS, more))
    return capture_here(CaptureRequest(target), lambda _: None)


def said(found):
    return [a for a in found.assumptions if a.startswith("Buffers")]


@pytest.mark.parametrize(
    ("use", "value"),
    [
        ("x * self.b", "torch.ones(4)"),
        ("x * self.b", "torch.tensor(1.0)"),
        ("x @ self.b.float()", "torch.zeros(4, 4, dtype=torch.int8)"),
    ],
)
def test_a_buffer_of_a_checkpoint_is_a_table_of_any_value(user_model, use, value):
    found = captured(user_model, use, value)
    assert said(found) == ["Buffers hold whatever a checkpoint gives them: b."]
    assert "const" in {i.role for i in found.program.inputs}


@pytest.mark.parametrize(
    ("use", "value", "kept"),
    [
        ("x * self.b", "torch.ones(4)", False),
        ("x.masked_fill(self.b == 0, 0.0)", "torch.tril(torch.ones(4, 4))[:2]", True),
        ("x + self.b", "torch.full((2, 4), float('-inf')).triu(1)", True),
        ("x[:, self.b]", "torch.arange(4)", True),
    ],
)
def test_a_buffer_that_says_what_is_computed_is_the_constructors(user_model, use, value, kept):
    found = captured(user_model, use, value, kept)
    assert said(found) == ["Buffers hold the values their constructor gives them: b."]


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("return self.w(x) @ torch.zeros(4, 4)", "any parameter"),
        ("return x * 2 + self.w(x) * 0", "any parameter"),
    ],
)
def test_outputs_that_depend_on_nothing_are_refused(user_model, code, what):
    with pytest.raises(CaptureError, match=f"no output of M depends on {what}"):
        capture_here(CaptureRequest(user_model(code)), lambda _: None)


def test_a_sparse_buffer_is_left_out_where_forward_does_not_read_it(user_model):
    found = captured(user_model, "x", "torch.eye(4).to_sparse()", kept=False)
    told = "Sparse buffers are left out, and forward does not read them: b."
    assert told in found.assumptions


@pytest.mark.parametrize("use", ["x @ self.b.to_dense()", "torch.sparse.mm(self.b, x.t())"])
def test_a_sparse_buffer_that_forward_reads_is_refused(user_model, use):
    with pytest.raises(CaptureError, match="reads the buffer b, which is sparse") as caught:
        captured(user_model, use, "torch.eye(4).to_sparse()")
    assert "to_dense()" in str(caught.value)
