"""One program stands for train and eval mode and for every call; where it cannot, it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from shardproof.synthesis.frontends.torch.digest import Digest, Log
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.frontends.torch.session import capture_here
from shardproof.synthesis.frontends.torch.torch_api import fake_mode
from tests.frontend.conftest import SMALL

pytestmark = pytest.mark.torch

TOP = """
import random
import torch.nn.functional as F
COUNT = 0
class Drop(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Dropout(0.25)
    def forward(self, x):
        return self.inner(x)
"""


def captured(target, gradients=True):
    return capture_here(CaptureRequest(target, gradients=gradients), lambda _: None)


REFUSED = {
    "a statistic of training": (
        "h = self.w(x)\nif self.training:\n    h = h - h.mean(0)  # here\nreturn h",
        "train mode than in eval mode: aten.mean.dim",
    ),
    "a number of training": (
        "return self.w(x) * (2 if self.training else 1)  # here",
        "train mode than in eval mode: aten.mul.Tensor",
    ),
    "a gradient that training lacks": (
        "h = self.w(x)\nh = h.detach() if self.training else h\nreturn self.w(h)  # here",
        "train mode than in eval mode: aten.addmm",
    ),
    "a gradient that is not recorded in training": (
        "with torch.set_grad_enabled(not self.training):\n    h = self.w(x)\n"
        "return self.w(h)  # here",
        "train mode than in eval mode: aten.addmm",
    ),
    "a gradient that ends at a leaf of training": (
        "h = self.w(x)\nh = h.detach().requires_grad_() if self.training else h\n"
        "return self.w(h)  # here",
        "train mode than in eval mode: aten.addmm",
    ),
    "another output": (
        "h = self.w(x)\ny = torch.relu(h)\nreturn h if self.training else y",
        "train mode than in eval mode",
    ),
    "layers that are dropped": (
        "h = self.w(x)\nif self.training:\n    if torch.rand([]) < 0.1:\n        h = self.w(h)\n"
        "return h",
        "decides what it computes",
    ),
    "layers that Python drops": (
        "h = self.w(x)\nif self.training and random.uniform(0, 1) < 0.1:\n"
        "    h = self.w(h)  # here\nreturn h",
        "decides what it computes",
    ),
    "a factor that Python draws": (
        "return self.w(x) * random.random()  # here",
        "decides what it computes: aten.mul.Tensor",
    ),
    "a branch of training": (
        "h = self.w(x)\nif self.training and h.sum() > 0:  # here\n    h = 2 * h\nreturn h",
        "in train mode: forward reads the value of a tensor",
    ),
    "a hook of training on a gradient": (
        "h = self.w(x)\nif self.training:\n    h.register_hook(lambda g: 3 * g)  # here\nreturn h",
        "in train mode: a hook on the gradient of a tensor is not followed",
    ),
    "a hook on a gradient": (
        "h = self.w(x)\nif h.requires_grad:\n    h.register_hook(lambda g: 3 * g)  # here\n"
        "return h",
        "a hook on the gradient of a tensor is not followed",
    ),
    "running statistics and a number that is drawn": (
        "h = self.w(self.norm(x)) if random.random() < 0.1 else self.norm(x)\nreturn h",
        "changes the buffer norm.num_batches_tracked and draws a number, at model.py:",
    ),
    "a counter": (
        "self.k = getattr(self, 'k', 0) + 1\nreturn self.w(x) * self.k  # here",
        "the second call of M does something else than the first: aten.mul.Tensor (k changed)",
    ),
    "a buffer that is made of the first argument": (
        "if not hasattr(self, 't'):\n    self.register_buffer('t', x.detach().sum(0))  # here\n"
        "return self.w(x) * self.t",
        "the second call of M does something else than the first: aten.sum",
    ),
    "a global": (
        "global COUNT\nCOUNT += 1\nreturn self.w(x) if COUNT < 2 else 3 * self.w(x)  # here",
        "(the global COUNT changed)",
    ),
}


def written(user_model, forward):
    """A model with this forward, which has a dropout; and a batch norm, where it asks for one."""
    target = user_model(forward, TOP)
    path = file_of(target)
    parts = ["        self.w = nn.Linear(4, 4)\n", "        self.drop = Drop()\n"]
    if "self.norm" in forward:
        parts.append("        self.norm = nn.BatchNorm1d(4)\n")
    path.write_text(path.read_text().replace(parts[0], "".join(parts)))
    return target


def file_of(target):
    return Path(target.rpartition(":")[0])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(user_model, name):
    forward, message = REFUSED[name]
    target = written(user_model, forward)
    with pytest.raises(CaptureError) as caught:
        captured(target)
    assert message in caught.value.message
    if "# here" in forward:
        assert "# here" in caught.value.text
        assert caught.value.file == "model.py"


class Asks(torch.autograd.Function):
    """Its gradient of `w` is another where one of `x` is asked for."""

    @staticmethod
    def forward(ctx: Any, x, w):
        ctx.both = ctx.needs_input_grad[0]
        return x * w

    @staticmethod
    def backward(ctx: Any, g):
        return (g, 2 * g) if ctx.both else (None, g)


def test_a_function_may_ask_for_a_gradient_that_nobody_reads():
    with fake_mode():
        w = torch.ones(4, requires_grad=True)
        digest = Digest(tracked=True)
        logs: list[Log] = []
        for flag in (False, False, True):
            x = torch.ones(4)
            digest.leaf(x, "x")
            digest.leaf(w, "w")
            digest.start()
            with digest:
                Asks.apply(x.detach().requires_grad_(flag), w)
            logs.append(digest.log)
    keys = [[step.key for step in log.steps] for log in logs]
    assert keys[0] == keys[1] != keys[2]


def line_of(target, part):
    lines = file_of(target).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if part in line)


SAME = {
    "plain": "return self.w(x)",
    "a counter that nothing reads": "self.k = getattr(self, 'k', 0) + 1\nreturn self.w(x)",
    "a table that is made once": (
        "if not hasattr(self, 't'):\n    self.t = torch.arange(4.0)\nreturn self.w(x) * self.t"
    ),
    "a buffer that is made once": (
        "if not hasattr(self, 't'):\n    self.register_buffer('t', torch.arange(4.0))\n"
        "return self.w(x) * self.t"
    ),
    "layers that are never dropped": (
        "h = self.w(x)\nif self.training and torch.rand([]) < 0.0:\n    h = self.w(h)\nreturn h"
    ),
    "a leaf of training whose gradient nobody reads": (
        "h = x[:]\nif self.training:\n    h.requires_grad = True\nreturn self.w(torch.relu(h))"
    ),
    "a gradient that is recorded in a way of its own": (
        "with torch.set_grad_enabled(self.training or True):\n    return self.w(x)"
    ),
}


@pytest.mark.filterwarnings("ignore:The tensor attribute")
@pytest.mark.parametrize("name", SAME)
def test_alike(user_model, name):
    told = captured(written(user_model, SAME[name])).assumptions
    assert told[0] == "Train mode runs the ops of eval mode; there is no dropout."
    assert any("changes k" in line for line in told) == ("counter" in name)


@pytest.mark.parametrize(
    "clamp",
    [
        "if self.training:\n    self.w.weight.data.clamp_(-3, 3)\nw = self.w.weight",
        "w = self.w.weight.clamp(-3, 3) if self.training else self.w.weight",
    ],
)
def test_parameters_that_train_mode_clamps_are_taken_to_lie_in_bounds(user_model, clamp):
    target = written(user_model, f"{clamp}\nreturn F.linear(x, w)")
    told = captured(target).assumptions
    line = line_of(target, ".clamp")
    said = f"taken to lie in bounds: w.weight, -3 to 3 (model.py:{line})."
    assert any(a.endswith(said) for a in told)
    both = written(user_model, "return F.linear(x, self.w.weight.clamp(-3, 3))")
    assert not any("bounds" in line for line in captured(both).assumptions)


@pytest.mark.parametrize(
    "change", ["[0].clamp_(-3, 3)", ".mul_(2)", ".clamp_(0, 0)", ".clamp_(x.min(), x.max())"]
)
def test_parameters_that_train_mode_changes_otherwise_are_refused(user_model, change):
    body = f"if self.training:\n    self.w.weight.data{change}\nreturn self.w(x)"
    with pytest.raises(CaptureError, match=r"changes the parameter w\.weight in place"):
        captured(written(user_model, body))


def test_dropout_is_left_out_and_its_lines_are_told(user_model):
    target = written(
        user_model,
        "h = self.drop(self.w(x))\nh = F.dropout(h, 0.5, self.training)  # here\n"
        "return F.scaled_dot_product_attention(h, h, h, dropout_p=0.1 * self.training)  # last",
    )
    parts = ("return self.inner(x)", "# here", "# last")
    lines = ", ".join(f"model.py:{line_of(target, part)}" for part in parts)
    assert captured(target).assumptions[0] == (
        f"Train mode runs the ops of eval mode, with dropout left out at {lines}."
    )


def test_without_gradients_nothing_is_said_of_training(user_model):
    forward, _ = REFUSED["a statistic of training"]
    told = captured(written(user_model, forward), gradients=False).assumptions
    assert told[0] == "The model runs in eval mode: nothing is said of training."


def test_the_config_says_which_dropout_is_set_to_zero():
    request = CaptureRequest(
        "hf:LlamaForCausalLM",
        {**SMALL, "attention_dropout": 0.25},
        batch=2,
        seq=4,
    )
    told = capture_here(request, lambda _: None).assumptions
    assert "Dropout of the config is set to 0: attention_dropout." in told


def test_a_buffer_that_is_assigned_is_state_as_one_that_is_written(user_model):
    ends = {}
    for name, change in (("assigned", "self.b = {}"), ("written", "self.b.copy_({})")):
        forward = change.format("0.9 * self.b + 0.1 * h.detach().mean(0)")
        target = user_model(f"h = self.w(x)\n{forward}\nreturn h - self.b", name=f"{name}.py")
        path = file_of(target)
        held = "        self.w = nn.Linear(4, 4)\n"
        path.write_text(
            path.read_text().replace(held, f"{held}        self.register_buffer('b', x0())\n")
            + "def x0():\n    return torch.zeros(4)\n"
        )
        found = captured(target)
        assert "b" in {i.name for i in found.program.inputs if i.role == "const"}
        ends[name] = {(o.role, o.path) for o in found.program.outputs}
        assert any("read and given back, whatever they hold: b" in a for a in found.assumptions)
    assert ("output", "b") in ends["assigned"]
    assert ends["assigned"] == ends["written"]


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        ("h = self.w(x)\nself.b = h.detach().sum()\nreturn h", "something else of the buffer b"),
        ("self.b = self.w.bias.detach()\nreturn self.w(x)", "b a view of a parameter"),
    ],
)
def test_what_a_buffer_may_not_become(user_model, forward, message):
    target = user_model(forward)
    path = file_of(target)
    held = "        self.w = nn.Linear(4, 4)\n"
    more = "        self.register_buffer('b', torch.zeros(4))\n"
    path.write_text(path.read_text().replace(held, held + more))
    with pytest.raises(CaptureError, match=message):
        captured(target)


DRAWN = {
    "label dropout": (
        "if self.training:\n    x = x * (torch.rand(x.shape[0], 1) < 0.9)\nreturn self.w(x)",
        {"drawn.0": "uniform from 0 to 1"},
        True,
    ),
    "stochastic depth": (
        "if self.training:\n    keep = x.new_empty(x.shape[0], 1).bernoulli_(0.8)\n"
        "    x = x * keep\nreturn self.w(x)",
        {"dropout.0": "kept with probability 0.8"},
        True,
    ),
    "noise in both modes": (
        "return self.w(x + torch.randn_like(x))",
        {"drawn.0": "normal with mean 0 and deviation 1"},
        False,
    ),
    "a step of a schedule": (
        "t = torch.randint(0, 10, (x.shape[0], 1))\nreturn self.w(x * t)",
        {"drawn.0": "integers from 0 to 9"},
        False,
    ),
    "what reaches no output": ("torch.randn(3)\nreturn self.w(x)", {}, False),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_is_an_input_of_any_value(user_model, name):
    forward, laws, train = DRAWN[name]
    found = capture_here(CaptureRequest(written(user_model, forward)), lambda _: None)
    assert {d.name: d.law for d in found.facts.draws} == laws
    assert laws.keys() <= {i.name for i in found.program.inputs if i.role == "input"}
    assert found.facts.train is train
    assert any("Eval mode runs something else" in a for a in found.assumptions) is train


def test_what_a_generator_of_its_own_draws_is_refused(user_model):
    forward = "g = torch.Generator()\nreturn self.w(x + torch.randn(2, 4, generator=g))"
    with pytest.raises(CaptureError, match="draws random numbers"):
        capture_here(CaptureRequest(written(user_model, forward)), lambda _: None)


KEEPING = """
class Kept(torch.autograd.Function):
    made = []
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        Kept.made.append(g)
        return Kept.made[{which}] * 2
"""


def test_a_table_that_is_made_once_is_no_other_call_beside_what_is_drawn(user_model):
    table = "if not hasattr(self, 't'):\n    self.t = torch.arange(4.0).exp()\n"
    body = f"{table}return self.w(x + torch.randn(2, 4)) * self.t"
    assert len(captured(written(user_model, body)).facts.draws) == 1


@pytest.mark.parametrize("which", [0, -1])
def test_a_backward_that_keeps_the_first_gradient_is_refused(user_model, which):
    target = user_model("return Kept.apply(self.w(x))", KEEPING.format(which=which))
    if which:
        captured(target)
        return
    with pytest.raises(CaptureError, match="second backward of M does something else"):
        captured(target)


@pytest.mark.parametrize("kept", ["torch.rand(4)", "self.w.weight[0] * 2", "x[0] * 2"])
def test_what_the_first_call_keeps_of_draws_parameters_and_arguments_is_refused(user_model, kept):
    first = f"if not hasattr(self, 't'):\n    self.t = {kept}\n"
    body = f"{first}return self.w(x + torch.randn(2, 4)) * self.t"
    with pytest.raises(CaptureError, match=r"second|another|the first"):
        captured(written(user_model, body))
