"""Where a step's optimizer and its own tensors may be kept, and how those of ranks are paired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.same_states import families, pair_families
from shardproof.synthesis.frontends.torch.ranks.session import BEGINS
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Unknown
from tests.commands import command as command

pytestmark = pytest.mark.torch
Make = Callable[..., Any]
NET = """
import copy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def losses(net, x, y):
    loss = F.mse_loss(net(x), y)
    loss.backward()
    for p in net.parameters():
        dist.is_initialized() and dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
    return loss.detach()
"""
SGD = "torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)"
STEP = "    loss = losses(net, x, y)\n    {opt}.step()\n    {opt}.zero_grad()\n    return loss\n"
KEPT = {
    "a global": f"""
KEPT = {{}}


def build():
    net = Net()
    KEPT["sgd"] = {SGD}
    return net


def train_step(net, x, y):
{STEP.format(opt='KEPT["sgd"]')}""",
    "an attribute of the model": f"""
class Trainer:
    def __init__(self, net):
        self.optimizer = {SGD}


def build():
    net = Net()
    net.trainer = [Trainer(net)]
    return net


def train_step(net, x, y):
{STEP.format(opt="net.trainer[0].optimizer")}""",
    "made by the first step": f"""
KEPT = {{}}


def build():
    return Net()


def train_step(net, x, y):
    if not KEPT:
        KEPT["sgd"] = {SGD}
{STEP.format(opt='KEPT["sgd"]')}""",
    "a function around it": f"""
def build():
    global train_step
    net = Net()
    train_step = made(net, {SGD})
    return net


def made(net, optimizer):
    def step(_, x, y):
    {STEP.format(opt="optimizer").replace(chr(10) + "    ", chr(10) + "        ")}
    return step


def train_step(net, x, y):
    raise NotImplementedError
""",
}
BY_HAND = """
def build():
    net = Net()
    return net, [torch.zeros_like(p) for p in net.parameters()]


def train_step(net, momenta, x, y):
    loss = losses(net, x, y)
    with torch.no_grad():
        for p, m in zip(net.parameters(), momenta):
            m.mul_(0.9).add_(p.grad)
            p -= 0.1 * m
            p.grad = None
    return loss
"""
BY_TORCH = f"""
def build():
    net = Net()
    return net, {SGD}


def train_step(net, optimizer, x, y):
{STEP.format(opt="optimizer")}"""


@pytest.fixture
def made(case: Callable[..., Any]) -> Make:
    def make(one: str, many: str, *edits: tuple[str, str]) -> Any:
        step = case(
            mesh=Mesh.of(dp=2),
            target="many.py:build",
            against="one.py:build",
            step="train_step",
            inputs=["x=f32[8,4]", "y=f32[8,4]"],
            input_layouts=["x=S(0)@dp", "y=S(0)@dp"],
        )
        (step.folder / "one.py").write_text(NET + one)
        many = NET + many
        for old, new in edits:
            assert many.count(old) == 1
            many = many.replace(old, new)
        (step.folder / "many.py").write_text(many)
        return step

    return make


@pytest.mark.parametrize("where", KEPT)
def test_an_optimizer_is_found_where_it_is_kept(made: Make, where: str) -> None:
    found = made(KEPT[where], KEPT[where]).proved()
    kept = {i.path for i in found.question.sequential.inputs}
    assert "a.weight.momentum_buffer" in kept
    made(KEPT[where], KEPT[where], ("momentum=0.9", "momentum=0.8")).refuted()


def test_momenta_of_a_list_are_those_of_an_optimizer(made: Make) -> None:
    found = made(BY_TORCH, BY_HAND).proved()
    assert found.captured.ranks[0].renamed["momenta[0]"] == "a.weight.momentum_buffer"
    made(BY_HAND, BY_TORCH).proved()


WRONG = {
    "added twice": (".add_(p.grad)", ".add_(p.grad).add_(p.grad)"),
    "not kept": ("m.mul_(0.9).add_(p.grad)", "m.mul_(0.8).add_(p.grad)"),
    "of the next parameter": ("zip(net.parameters(), momenta)", "zip(net.parameters(), others)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_momenta_are_not_proved(made: Make, name: str) -> None:
    swapped = "    others = [*momenta[2:], *momenta[:2]]\n    loss = losses"
    step = made(
        BY_TORCH.replace("4, 6), nn.Linear(6, 4", "4, 4), nn.Linear(4, 4"),
        BY_HAND.replace("    loss = losses", swapped),
        WRONG[name],
    )
    try:
        verdict = step.check().verdict
    except CaptureError:
        return
    assert isinstance(verdict, Unknown)
    assert "momenta[0], which is taken for a.weight.momentum_buffer" in verdict.reason


def test_what_a_step_keeps_begins_as_that_of_the_model(made: Make) -> None:
    with pytest.raises(CaptureError, match=r"before any step momenta\[0\] is 1, .* 0"):
        made(BY_HAND, BY_HAND, ("zeros_like", "ones_like")).check()
    with pytest.raises(CaptureError, match=r"before any step momenta\[0\] is 1, .* 0"):
        made(BY_TORCH, BY_HAND, ("zeros_like", "ones_like")).check()
    scaled = ("torch.zeros_like(p)", "0.5 * p.detach().clone()")
    found = made(BY_HAND.replace(*scaled), BY_HAND, scaled).proved()
    begins = BEGINS.format(names="momenta[0], momenta[1], momenta[2], momenta[3]")
    assert begins in found.captured.ranks[0].notes


def test_a_warmup_of_ranks_alone_is_refused(made: Make) -> None:
    counts = ("    return net, torch", "    net.steps = 0\n    return net, torch")
    warms = (
        "    optimizer.step()",
        "    net.steps += 1\n"
        "    optimizer.param_groups[0]['lr'] = 0.1 * min(1, net.steps / 2)\n    optimizer.step()",
    )
    with pytest.raises(CaptureError, match=r"the first step has .* lr = 0\.05"):
        made(BY_TORCH, BY_TORCH, counts, warms).check()


def test_states_are_copied_deeply(made: Make) -> None:
    copies = (
        "    optimizer.zero_grad()",
        "    net.load_state_dict(copy.deepcopy(net.state_dict()))\n    optimizer.zero_grad()",
    )
    made(BY_TORCH, BY_TORCH, copies).proved()
    keeps = ("    return net, torch", "    net.first = {}\n    return net, torch")
    first = (
        "    optimizer.zero_grad()",
        "    kept = net.first.setdefault(0, copy.deepcopy(net.state_dict()))\n"
        "    net.load_state_dict(kept)\n    optimizer.zero_grad()",
    )
    with pytest.raises(CaptureError, match="which a step before it made"):
        made(BY_TORCH, BY_TORCH, keeps, first).check()


def test_parameters_that_a_step_makes_are_refused(made: Make) -> None:
    anew = (
        "    loss = losses",
        "    net.a.weight = nn.Parameter(net.a.weight.detach().clone())\n    loss = losses",
    )
    with pytest.raises(CaptureError, match="a step makes a parameter of shape"):
        made(BY_TORCH, BY_TORCH, anew).check()


def test_kinds_of_states_are_paired_by_parameter() -> None:
    params = {"module.a": "a", "module.b": "b"}
    torch_states = ["a.exp_avg", "a.exp_avg_sq", "b.exp_avg", "b.exp_avg_sq"]
    by_number = ["m[0]", "m[1]", "v[0]", "v[1]"]
    assert pair_families(by_number, torch_states, params) == {
        "m[0]": "a.exp_avg",
        "m[1]": "b.exp_avg",
        "v[0]": "a.exp_avg_sq",
        "v[1]": "b.exp_avg_sq",
    }
    by_name = ["M['module.b']", "M['module.a']"]
    assert pair_families(by_name, ["a.m", "b.m"], params) == {
        "M['module.a']": "a.m",
        "M['module.b']": "b.m",
    }
    assert pair_families(["data['a']", "data['b']"], ["a.m", "b.m"], {"a": "a", "b": "b"}) == {
        "data['a']": "a.m",
        "data['b']": "b.m",
    }
    assert not pair_families(["flat"], ["a.m", "b.m"], params)
    assert not pair_families(["m[0]"], ["a.m", "b.m"], params)
    assert families(["ab.m"], {"a": "a"}) == [{"": "ab.m"}]
