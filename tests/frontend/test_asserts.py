"""What an assert says of the values of tensors is taken for granted, and told."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import math
from pathlib import Path

import pytest
import torch

from shardproof.synthesis.frontends.torch import asserts
from shardproof.synthesis.frontends.torch.asking import only_asks
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest

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


def test_what_distributions_validate_is_left_out_as_asserts_are(user_model):
    top = "from torch.distributions import Categorical\n"
    body = "return Categorical(logits=self.w(x){}).entropy()"
    plain = capture(CaptureRequest(user_model(body.format(", validate_args=False"), top=top)))
    assert not plain.facts.asserts
    found = capture(CaptureRequest(user_model(body.format(""), top=top, name="more.py")))
    assert [a.condition for a in found.facts.asserts] == [asserts.VALID]
    assert [n.op for n in found.program.nodes] == [n.op for n in plain.program.nodes]
    asked = user_model(body.format(", validate_args=True"), top=top, name="asked.py")
    with pytest.raises(CaptureError, match="data-dependent"):
        capture(CaptureRequest(asked))


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


class Box:
    """A user's object: whatever is done to it may change the tensors that it is given."""

    __slots__ = ("held",)

    def __init__(self):
        self.held = torch.ones(2)

    def mean(self, x):
        return x.mul_(2)

    def __getitem__(self, x):
        return x.mul_(2)

    @property
    def size(self):
        return self.held.mul_(2)

    __contains__ = __eq__ = __lt__ = __add__ = __radd__ = mean


class Watched(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Linear(2, 2)
        self.box, self.limit, self.rows = Box(), 3, [torch.ones(2), torch.ones(2)]

    def sum(self):
        return self.w.weight.mul_(2)


def patched():
    x = torch.ones(2)
    x.mean = lambda: torch.zeros(2)  # pyright: ignore[reportAttributeAccessIssue]
    return x


PLACE = {
    "torch": torch,
    "math": math,
    "x": torch.ones(2),
    "box": Box(),
    "self": Watched(),
    "cls": Watched,
    "patched": patched(),
    "f": lambda x: x.mul_(2),
    "t": (torch.ones(2), 3),
    "known": {"f": torch.sin},
    "mean": torch.mean,
    "boxes": [Box()],
}


@pytest.mark.parametrize(
    "acting",
    [
        *("torch.sum(x, 0, out=x[0]) < 9", "self.sum() < 9", "x.sum(**how) < 9", "f(x) < 9"),
        *(
            "box.mean(x).all()",
            "box[x].all()",
            "x in box",
            "box == x",
            "box < 1",
            "(x + box).all()",
        ),
        *(
            "box.size.all()",
            "self.box.mean(x).all()",
            "len(box) > 1",
            "all(box)",
            "x.add_(1).all()",
        ),
        *(
            "(y := x).all()",
            "known['f'](x).all()",
            "patched.mean() > 0",
            "nowhere",
            "cls.sum(self)",
        ),
        *("all(b.mean(x) for b in boxes)", "boxes[0].mean(x)", "x.sum() < box", "x[box].all()"),
    ],
)
def test_a_condition_that_may_change_something_is_kept(acting):
    place = {**vars(builtins), **PLACE}
    assert not only_asks(ast.parse(acting, mode="eval").body, place)


@pytest.mark.parametrize(
    "asking",
    [
        *("x.sum() < 9", "torch.isfinite(x).all()", "not torch.isnan(x).any()", "x[0] == 1"),
        *("self.w.weight.abs().max().item() < 100", "self.limit in (3, 4)", "box is not None"),
        *("all(r.isfinite().all() for r in self.rows)", "math.isfinite(x.sum().item())"),
        *("isinstance(box, torch.nn.Module) or x.any()",),
        *("t[0].mean() > 0 and len(self.rows) == 2", "box.held.sum() > 0", "self.rows[0].all()"),
        *(
            "(x if self.limit else -x).min() >= 0",
            "torch.equal(x, self.rows[1])",
            "-1 < x.min() <= 1",
        ),
    ],
)
def test_a_condition_on_tensors_is_passed_by(asking):
    place = {**vars(builtins), **PLACE}
    assert only_asks(ast.parse(asking, mode="eval").body, place)


def test_a_name_of_python_that_a_file_defines_is_the_file_s():
    place = {**vars(builtins), **PLACE, "all": PLACE["f"]}
    assert not only_asks(ast.parse("all(x).sum() > 0", mode="eval").body, place)


def test_an_assert_is_decided_anew_each_time_it_is_met(user_model):
    """The same line asks a tensor first, and then an object that changes one."""
    top = """
class Watch:
    def mean(self):
        self.x.mul_(2)
        return self.x.sum()
def held(t):
    assert t.mean() < 100
"""
    body = "held(x)\nw = Watch()\nw.x = y = self.w(x)\nheld(w)\nreturn y"
    with pytest.raises(CaptureError, match="data-dependent"):
        capture(CaptureRequest(user_model(body, top=top)))
