"""What an assert says of the values of tensors is taken for granted, and told."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from synthesis.frontends.torch import asserts
from synthesis.frontends.torch.capture import capture
from synthesis.frontends.torch.errors import CaptureError
from synthesis.frontends.torch.request import CaptureRequest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

CHECKED = """
def bounded(f):
    def inner(self, x):
        assert x.abs().max().item() < 100, "too large"
        return f(self, x)
    return inner
"""


def test_an_assert_on_values_is_left_out_and_told(user_model, tmp_path):
    body = "assert not torch.isnan(x).any()\nassert x.shape[0] == 2\nreturn self.w(x)"
    target = user_model(body, top=CHECKED)
    text = Path(target.removesuffix(":M")).read_text()
    Path(target.removesuffix(":M")).write_text(
        text.replace("    def forward", "    @bounded\n    def forward")
    )
    plain = user_model("return self.w(x)", name="plain.py")
    found = capture(CaptureRequest(target))
    conditions = [a.condition for a in found.facts.asserts]
    assert sorted(conditions) == ["not torch.isnan(x).any()", "x.abs().max().item() < 100"]
    assert any("taken to hold: model.py:" in said for said in found.assumptions)
    ops = [n.op for n in found.program.nodes]
    assert ops == [n.op for n in capture(CaptureRequest(plain)).program.nodes]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("assert x.sum() < 9\nassert x.shape[0] == 3\nreturn self.w(x)", "AssertionError"),
        ("y = self.w(x)\nassert y.add_(1).sum() < 9\nreturn y", "data-dependent"),
        ("assert (y := self.w(x)).sum() < 9\nreturn y", "data-dependent"),
        ("f = lambda t: t.add_(1).sum()\nassert f(x) < 9\nreturn self.w(x)", "data-dependent"),
        ("if x.sum() < 9:\n    return x\nreturn self.w(x)", "data-dependent"),
    ],
)
def test_what_is_more_than_an_assert_on_values_stays(user_model, body, message):
    with pytest.raises(CaptureError, match=message):
        capture(CaptureRequest(user_model(body)))


def test_the_same_assert_is_left_out_of_a_patched_file(tmp_path, monkeypatch):
    path = tmp_path / "m.py"
    body = "# moved\nclass M(nn.Module):\n    def forward(self, x):\n        assert x > 0\n"
    path.write_text(f"from torch import nn\n{body}        assert x > 1\n        return x\n")
    spec = importlib.util.spec_from_file_location("m", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(asserts, "_LEFT", {})
    model = module.M()
    asserts.leave_out_again((asserts.Asserted("other.py", 2, "x > 1"),), model)
    with pytest.raises(AssertionError):
        model(1)
    asserts.leave_out_again((asserts.Asserted("m.py", 7, "x > 1"),), model)
    assert model(1) == 1
    with pytest.raises(AssertionError):
        model(0)


@pytest.mark.parametrize(
    "acting",
    ["torch.sum(y, 0, out=y[0]) < 9", "self.sum() < 9", "x.sum(**how) < 9", "known[0](x) < 9"],
)
def test_a_condition_that_may_change_something_is_kept(tmp_path, acting):
    path = tmp_path / "m.py"
    path.write_text(f"assert {acting}\nassert torch.sum(y, 0) < 9, print(y)\n")
    assert [a.lineno for a in asserts._asserts(str(path))] == [2]
