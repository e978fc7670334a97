"""What a step's objects hold of a model: parameters under other names, and what nobody reads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.proof import Proof
from tests.commands import Command, command as command

pytestmark = pytest.mark.torch
Make = Callable[[str, str], Any]
TEXT = """
import weakref
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        a, b = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4, 4))
        self.a, self.b = a, b
        self.own = [a, b]

    def forward(self, x):
        return torch.tanh(x @ self.a) @ self.b


class Kept:
    def __init__(self, model):
        self.seen = {n: torch.zeros_like(p) for n, p in model.named_parameters()}

    def take(self, model):
        for n, p in model.named_parameters():
            self.seen[n] = p.detach().clone()


def build():
    model = Net()
    return model, model.own, Kept(model)


def train_step(model, own, kept, x, y):
    model.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    for p in model.parameters():
        dist.is_initialized() and dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
    with torch.no_grad():
        for p in own:
            if p.grad is not None:
                p.sub_(0.1 * p.grad)
    kept.take(model)
    return sum(p.sum() for p in model.parameters())
"""
SET = ("self.own = [a, b]", "self.own = [a, b]\n        self.a.data = torch.ones(4, 4)")
HOOK = ("self.a, self.b = a, b", "a.register_hook(lambda g: 2 * g)\n        self.a, self.b = a, b")
RATE = ("0.1 * p.grad", "0.2 * p.grad")
SHARED = ("self.own = [a, b]", "self.own = [a, b]\n        self.b.data = self.a.data")
SAME = ("a, b = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4, 4))",
        "w = torch.randn(4, 4)\n        a, b = nn.Parameter(w), nn.Parameter(w)")  # fmt: skip
WEAK = ("self.a, self.b = a, b", "self.weak = weakref.ref(a)\n        self.a, self.b = a, b")


def changed(*edits: tuple[str, str]) -> str:
    text = TEXT
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


@pytest.fixture
def made(case: Callable[..., Any]) -> Make:
    def make(one: str, many: str) -> Any:
        step = case(
            mesh=Mesh.of(dp=2),
            target="many.py:build",
            against="one.py:build",
            step="train_step",
            inputs=["x=f32[8,4]", "y=f32[8,4]"],
            input_layouts=["x=S(0)@dp", "y=S(0)@dp"],
        )
        (step.folder / "one.py").write_text(one)
        (step.folder / "many.py").write_text(many)
        return step

    return make


@pytest.mark.parametrize("more", [(), (SET,), (HOOK,)], ids=["plain", "data set", "hook"])
def test_parameters_are_trained_where_else_they_are_held(made: Make, more: Any) -> None:
    found = made(changed(*more), changed(*more)).proved()
    assert "state:a" in {o.path for o in found.question.sequential.outputs}


UNREDUCED = ("dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)", "None")
TAKEN = ("p.detach().clone()", "2 * p.detach()")
WRONG = {
    "another rate": ((), (RATE,)),
    "another rate, data set": ((SET,), (SET, RATE)),
    "not reduced": ((), (UNREDUCED,)),
    "no hook": ((HOOK,), ()),
    "another snapshot": ((), (TAKEN,)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_step_of_what_is_held_is_refuted(made: Make, name: str) -> None:
    one, many = WRONG[name]
    made(changed(*one), changed(*many)).refuted()


UPDATE = "p.sub_(0.1 * p.grad)"
DATA = {
    "new values": "p.data = p.data - {rate} * p.grad",
    "a copy, written": "p.data = p.data.clone()\n                p.data.sub_({rate} * p.grad)",
    "back": "old = p.data.clone()\n                p.add_(1)\n"
    "                p.data = old - {rate} * p.grad",
}


@pytest.mark.parametrize("how", DATA)
def test_a_step_may_set_the_data_of_parameters(made: Make, how: str) -> None:
    right, wrong = (changed((UPDATE, DATA[how].format(rate=r))) for r in (0.1, 0.2))
    made(TEXT, right).proved()
    made(TEXT, wrong).refuted()


def test_memory_that_two_parameters_come_to_share_is_refused(made: Make) -> None:
    both = changed((UPDATE, f"{UPDATE}\n        own[1].data = own[0].data"))
    with pytest.raises(CaptureError, match="a step reads parameter a and parameter b, which share"):
        made(both, both).check()


@pytest.mark.parametrize("alone", ["one", "many"])
def test_what_one_side_alone_changes_is_refused(made: Make, alone: str) -> None:
    less = changed(("    kept.take(model)\n", ""))
    wrong = made(TEXT, less) if alone == "one" else made(less, TEXT)
    with pytest.raises(Exception, match=r"kept\.seen"):
        wrong.check()


@pytest.mark.parametrize("memory", [SHARED, SAME], ids=["data set", "one tensor"])
def test_parameters_of_one_memory_are_refused(made: Make, memory: tuple[str, str]) -> None:
    with pytest.raises(CaptureError, match="the parameters a and b are of one memory"):
        made(TEXT, changed(memory)).check()


def test_a_parameter_that_cannot_stay_the_object_it_is_is_refused(made: Make) -> None:
    with pytest.raises(CaptureError, match="the parameter a is held outside of its module"):
        made(TEXT, changed(WEAK)).check()


AFTER = """

def finish(model):
    for p in model.module.own:
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad.mul_({factor})


def averaged():
    return nn.parallel.DistributedDataParallel(Net())
"""


@pytest.mark.parametrize("factor", ["0.5", "1.0"])
def test_what_follows_a_backward_finds_gradients_where_they_are_held(
    case: Callable[..., Any], factor: str
) -> None:
    loss = TEXT.replace(
        "return torch.tanh(x @ self.a) @ self.b", "return (x @ self.a @ self.b).mean()"
    )
    found = case(
        mesh=Mesh.of(dp=2),
        target="many.py:averaged",
        against="one.py:Net",
        inputs=["x=f32[8,4]"],
        input_layouts=["x=S(0)@dp"],
        after_backward="finish",
    )
    (found.folder / "one.py").write_text(loss)
    (found.folder / "many.py").write_text(loss + AFTER.format(factor=factor))
    if factor == "0.5":
        found.proved()
    else:
        found.refuted()


CARRIED = """import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard


class Inner:
    def __init__(self):
        self.mean = torch.zeros(4)


class Outer:
    def __init__(self):
        self.inner = Inner()


def one(wrap=lambda model: model):
    model = wrap(nn.Linear(4, 4))
    return model, torch.optim.SGD(model.parameters(), lr=1e-2), CARRY


def many(mesh):
    return one(lambda model: fully_shard(model, mesh=mesh))


def step(model, optimizer, carry, x, y):
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    rate = 0.5
    KEEP
"""
KINDS = {
    "dict": ('{"mean": torch.zeros(4)}', 'carry["mean"] = carry["mean"] * rate'),
    "list": ("[torch.zeros(4)]", "carry[0] = carry[0] * rate"),
    "nested": ("Outer()", "carry.inner.mean = carry.inner.mean * rate"),
    "in place": ("[torch.zeros(4)]", "carry[0].mul_(rate)"),
}


def carried(case: Callable[..., Any], folder: Path, carry: str, keep: str, rate: str) -> Any:
    text = CARRIED.replace("CARRY", carry).replace("KEEP", keep)
    (folder / "one.py").write_text(text)
    (folder / "many.py").write_text(text.replace("rate = 0.5", f"rate = {rate}"))
    asked = case(mesh=Mesh.of(dp=2), target="many.py:many", against="one.py:one")
    asked.step, asked.inputs = "step", ["x=f32[8,4]", "y=f32[8,4]"]
    asked.input_layouts = ["x=S(0)@dp", "y=S(0)@dp"]
    return asked


@pytest.mark.parametrize("rate", ["0.5", "0.25"], ids=["right", "wrong"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_step_carries_is_compared(
    case: Callable[..., Any], tmp_path: Path, kind: str, rate: str
) -> None:
    asked = carried(case, tmp_path, *KINDS[kind], rate)
    if rate == "0.5":
        asked.proved()
    else:
        asked.refuted()


def test_what_a_step_adds_to_a_log_is_told_of(case: Callable[..., Any], tmp_path: Path) -> None:
    keep = "carry.append(model.bias.detach() * rate)"
    found = carried(case, tmp_path, "[]", keep, "0.5").proved()
    notes = [n for side in (found.captured.one, *found.captured.ranks) for n in side.notes]
    assert any("What a step adds to carry, as to a log, is not compared." in n for n in notes)


TABLES = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Weighed(nn.Module if {module} else object):
    def __init__(self):
        super().__init__()
        self.weights = {first}
        self.seen = 0

    def __call__(self, out, target):
        rows = out.shape[0]
        if self.weights is None:
            self.weights = {weights}
        return ((out - target).pow(2).mean(1) * self.weights).mean()


def build(wrapped=lambda model: model):
    model = wrapped(nn.Linear(4, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.1), Weighed()


def ranks(mesh):
    return build(DistributedDataParallel)


def train_step(model, optimizer, loss, x, y):
    optimizer.zero_grad()
    total = loss(model(x), y)
    total.backward()
    optimizer.step()
    loss.last = total.detach()
    loss.seen += total.detach()
"""
ALIKE = "torch.full((rows,), 0.5)"
OWN = "torch.arange(rows).float()"
LATE = "torch.tanh(out.detach()).mean(1)"


def not_proved(asked: Any) -> None:
    with suppress(CaptureError):
        found = asked.check().verdict
        assert not isinstance(found, Proof)


@pytest.fixture
def tabled(case: Callable[..., Any]) -> Callable[..., Any]:
    def make(weights: str, first: str = "None", module: bool = False) -> Any:
        step = case(
            mesh=Mesh.of(dp=2),
            target="both.py:ranks",
            against="both.py:build",
            step="train_step",
            inputs=["x=f32[8,4]", "y=f32[8,4]"],
            input_layouts=["x=S(0)@dp", "y=S(0)@dp"],
        )
        text = TABLES.format(weights=weights, first=first, module=module)
        (step.folder / "both.py").write_text(text)
        return step

    return make


@pytest.mark.parametrize("module", [False, True])
def test_a_table_that_the_first_step_made_holds_what_it_made(
    tabled: Callable[..., Any], module: bool
) -> None:
    """Beside it, the step keeps its last loss and a sum of losses, which nobody reads."""
    notes = tabled(ALIKE, module=module).proved().captured.ranks[0].notes
    assert any("loss.last, loss.seen" in told for told in notes)


@pytest.mark.parametrize("module", [False, True])
def test_a_table_of_its_own_rows_on_each_rank_is_not_proved(
    tabled: Callable[..., Any], module: bool
) -> None:
    not_proved(tabled(OWN, module=module))


def test_a_table_that_each_rank_is_built_with_is_not_proved(tabled: Callable[..., Any]) -> None:
    own = "torch.arange(4 if dist.is_initialized() and dist.get_world_size() > 1 else 8).float()"
    not_proved(tabled(ALIKE, own))


def test_what_the_first_step_makes_of_its_data_is_refused(tabled: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError, match=r"reads loss\.weights, which a step before it made"):
        tabled(LATE).check()


TWO = """import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def one(wrap=None):
    made, judge = nn.Linear(4, 4), nn.Linear(4, 1)
    made, judge = (wrap(made), wrap(judge)) if wrap else (made, judge)
    return made, judge, torch.optim.SGD(made.parameters(), 0.1), torch.optim.SGD(
        judge.parameters(), 0.1
    )


def many():
    return one(DistributedDataParallel)


def step(made, judge, optimizer, other, x, y):
    fake = made(x)
    other.zero_grad()
    loss = F.softplus(-judge(y)).mean() + F.softplus(judge(fake.detach())).mean()
    loss.backward()
    other.step()
    optimizer.zero_grad()
    F.softplus(-judge(fake)).mean().backward()
    optimizer.step()
    return loss.detach()
"""
TWO_WRONG = {
    "right": ("", ""),
    "not averaged": ("wrap(made), wrap(judge)", "wrap(made), judge"),
    "another rate": ("judge.parameters(), 0.1", "judge.parameters(), 0.2 if wrap else 0.1"),
    "a sum": ("(fake.detach())).mean()", "(fake.detach())).sum() / 8"),
}  # fmt: skip


@pytest.mark.parametrize("name", TWO_WRONG)
def test_a_step_may_train_two_models(case: Callable[..., Any], name: str) -> None:
    found = case(
        mesh=Mesh.of(dp=2),
        target="two_models.py:many",
        against="two_models.py:one",
        step="step",
        inputs=["x=f32[8,4]", "y=f32[8,4]"],
        input_layouts=["x=S(0)@dp", "y=S(0)@dp"],
    )
    (found.folder / "two_models.py").write_text(TWO.replace(*TWO_WRONG[name]))
    if name == "right":
        assert "state:judge.weight" in {o.path for o in found.proved().question.sequential.outputs}
    else:
        found.refuted()


TWO_RUN = """import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x).tanh()


def build():
    return trained(Net(), Net())


def ranks(mesh):
    group = mesh.get_group()
    made = (DistributedDataParallel(Net(), process_group=group) for _ in range(2))
    return trained(*made)


def trained(q, k):
    return q, k, torch.optim.SGD([*q.parameters(), *k.parameters()], lr=0.1)


def train_step(q, k, optimizer, x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(q(x) * k(y), y)
    loss.backward()
    optimizer.step()
    return loss
"""


@pytest.mark.campaign
def test_processes_of_a_run_hold_the_values_of_both_models(
    command: Command, tmp_path: Path
) -> None:
    """Whatever weights their code draws."""
    file = tmp_path / "two_models_of_a_run.py"
    file.write_text(TWO_RUN)
    given = [
        w for n in "xy" for w in ("--input", f"{n}=f32[4,4]", "--input-layout", f"{n}=S(0)@dp")
    ]
    words = (f"{file}:ranks", "--against", f"{file}:build", "--step", "train_step")
    done = command("check", *words, "--mesh", "dp=2", "--run", *given)
    assert done.out.splitlines()[-1] == "proved", done.out + done.err


SHAPED = """import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Decayed:
    def __init__(self, model):
        rates = [torch.full_like(p, 0.1 if p.ndim > 1 else 0.0) for p in model.parameters()]
        self.rates = [torch.cat([r, 2 * r])[: len(r)] for r in rates]
        self.own = list(model.parameters())

    @torch.no_grad()
    def step(self):
        for p, rate in zip(self.own, self.rates):
            dist.is_initialized() and dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
            p.sub_(0.1 * p.grad + rate * p)


class Plain(Decayed):
    @torch.no_grad()
    def step(self):
        for p in self.own:
            p.sub_(0.1 * p.grad + (0.1 if p.ndim > 1 else 0.0) * p)


def build(kind=Plain):
    model = nn.Linear(4, 4)
    return model, kind(model)


def ranks():
    return build(Decayed)


def train_step(model, optimizer, x, y):
    model.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()
"""
WRONG_TABLES = {
    "another number": ("0.1 if p.ndim > 1 else 0.0) for", "0.2 if p.ndim > 1 else 0.0) for"),
    "of biases too": ("p.ndim > 1 else 0.0) for", "p.ndim > 0 else 0.0) for"),
    "other rows": ("[: len(r)]", "[len(r) :]"),
    "written into later": ("2 * r])[: len(r)]", "2 * r])[: len(r)].fill_(0.3)"),
    "of parameters": ("torch.full_like(p, 0.1 if", "0.1 * p.detach() + (0.1 if"),
    "of what is drawn": ("torch.full_like(p, 0.1 if", "torch.rand_like(p) * (0.1 if"),
    "changed by each step": ("+ rate * p)", "+ rate * p); rate.mul_(2)"),
    "of a rank": (
        "full_like(p, 0.1 if p.ndim > 1",
        "full_like(p, 0.1 * (dist.is_initialized() and dist.get_rank()) if p.ndim > 1",
    ),
}


@pytest.fixture
def shaped(case: Callable[..., Any]) -> Any:
    step = case(
        mesh=Mesh.of(dp=2),
        target="shaped.py:ranks",
        against="shaped.py:build",
        step="train_step",
        inputs=["x=f32[8,4]", "y=f32[8,4]"],
        input_layouts=["x=S(0)@dp", "y=S(0)@dp"],
    )
    (step.folder / "shaped.py").write_text(SHAPED)
    return step


def test_a_table_in_the_shape_of_a_parameter_holds_what_it_was_built_with(shaped: Any) -> None:
    shaped.proved()


@pytest.mark.parametrize("wrong", WRONG_TABLES.values(), ids=WRONG_TABLES)
def test_another_table_in_the_shape_of_a_parameter_is_not_proved(
    shaped: Any, wrong: tuple[str, str]
) -> None:
    not_proved(shaped.edit(*wrong, file="shaped.py"))
