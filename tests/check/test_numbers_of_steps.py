"""Numbers that a step reads from tensors and computes with, optimizers that a trainer holds, and
gradients that wait for a sum when the step ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.proof import Proof
from shardproof.verifier.verdict import Counterexample

pytestmark = pytest.mark.torch
TEXT = """
import torch
import torch.distributed as dist
from torch import nn


class Trainer:
    def __init__(self, model, lr):
        self.optimizers = {"all": [torch.optim.AdamW(model.parameters(), lr=lr)]}
        self.last = None


def build(lr=1e-2):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    return model, Trainer(model, lr)


def ranks(mesh):
    return build()


def train_step(model, trainer, x, y):
    for optimizer in trainer.optimizers["all"]:
        optimizer.zero_grad()
    rows = y[:, 0] > 0
    count = rows.sum()
    if dist.is_initialized():
        dist.all_reduce(count)
    number = count.item()
    loss = ((model(x) - y) ** 2 * rows[:, None]).sum()
    loss = loss / number
    loss.backward()
    for p in model.parameters():
        if dist.is_initialized():
            dist.all_reduce(p.grad)
    for optimizer in trainer.optimizers["all"]:
        optimizer.step()
    return {}
"""
Edit = tuple[str, str]
DIVIDE = "loss = loss / number"
COUNTED = (
    "    count = rows.sum()\n    if dist.is_initialized():\n        dist.all_reduce(count)\n"
    "    number = count.item()\n"
)
WRITTEN: Edit = ("number = count.item()", "number = count.item()\n    count.add_(1)")
IN_PLACE: Edit = (DIVIDE, "loss.div_(number)")
TURNED: Edit = (DIVIDE, "loss = loss * (1 / (2 * number / 2))")
CALLED: Edit = (DIVIDE, "loss = torch.div(loss, number)")
ON_GRADS: Edit = (
    "    loss.backward()\n",
    "    loss.backward()\n    torch._foreach_div_([p.grad for p in model.parameters()], number)\n",
)
ALONE: Edit = ("        dist.all_reduce(count)", "        pass")
RATE: Edit = ("def ranks(mesh):\n    return build()", "def ranks(mesh):\n    return build(2e-2)")
ONE_MORE: Edit = (
    "loss = loss / number",
    "loss = loss / (number + (1 if dist.is_initialized() else 0))",
)
KEPT: Edit = (
    DIVIDE,
    "before, trainer.last = trainer.last, number\n    loss = loss / (before or 1.0)",
)
DECIDES: Edit = (DIVIDE, "loss = loss / max(number, 2)")
ROUNDED: Edit = (DIVIDE, "loss = loss / round(number)")


@pytest.fixture
def made(case: Callable[..., Any]) -> Callable[..., Any]:
    def make(*edits: Edit) -> Any:
        step = case(
            mesh=Mesh.of(dp=2),
            target="both.py:ranks",
            against="both.py:build",
            step="train_step",
            inputs=["x=f32[8,4]", "y=f32[8,4]"],
            input_layouts=["x=S(0)@dp", "y=S(0)@dp"],
        )
        text = TEXT
        for old, new in edits:
            assert text.count(old) == 1
            text = text.replace(old, new)
        (step.folder / "both.py").write_text(text)
        return step

    return make


STEPPED = '    for optimizer in trainer.optimizers["all"]:\n        optimizer.step()\n'
CHOSEN: Edit = (
    STEPPED,
    "    for p in model.parameters():\n"
    "        p.grad.copy_(torch.where(p.detach() > 0, p.grad, number * FACTOR))\n"
    f"{STEPPED}",
)
MASKED: Edit = (
    STEPPED,
    "    for p in model.parameters():\n"
    "        p.grad.add_((p.detach() > 0) * (number * FACTOR))\n"
    f"{STEPPED}",
)
ONCE: Edit = ("number * FACTOR", "number")
TWICE: Edit = ("number * FACTOR", "number * (2 if dist.is_initialized() else 1)")
RIGHT: dict[str, tuple[Edit, ...]] = {
    "divides": (),
    "kept to log, of masks": (
        ("rows = y[:, 0] > 0", "rows = (y[:, 0] > 0).float().bool()"),
        ("    return {}\n", "    trainer.logs = {'count': number}\n    return {}\n"),
    ),
    "the tensor is written to afterwards": (WRITTEN,),
    "in place": (IN_PLACE,),
    "among other numbers": (TURNED,),
    "by a function": (CALLED,),
    "divides gradients": ((DIVIDE, "pass"), ON_GRADS),
    "chosen by a mask": (CHOSEN, ONCE),
    "beside a mask": (MASKED, ONCE),
}
WRONG: dict[str, tuple[Edit, ...]] = {
    "of its own rows": (ALONE,),
    "of its own rows, in place": (ALONE, IN_PLACE),
    "another rate": (RATE,),
    "one more": (ONE_MORE,),
    "chosen by a mask, twice": (CHOSEN, TWICE),
    "beside a mask, twice": (MASKED, TWICE),
}


@pytest.mark.parametrize("edits", RIGHT.values(), ids=RIGHT)
def test_a_number_beside_a_tensor_is_the_tensor_it_was_read_from(
    made: Callable[..., Any], edits: tuple[Edit, ...]
) -> None:
    made(*edits).proved()


@pytest.mark.parametrize("edits", WRONG.values(), ids=WRONG)
def test_a_wrong_number_is_refuted(made: Callable[..., Any], edits: tuple[Edit, ...]) -> None:
    found = made(*edits).check().verdict
    assert isinstance(found, Counterexample), found


@pytest.mark.parametrize("edit", [KEPT, DECIDES, ROUNDED], ids=["kept", "decides", "rounded"])
def test_a_number_of_another_call_or_one_that_decides_is_refused(
    made: Callable[..., Any], edit: Edit
) -> None:
    with pytest.raises(CaptureError, match="a number that the step reads"):
        made(edit).check()


ASKED = {
    "of a number": (DIVIDE, "loss = loss / max(number, 1)"),
    "of a tensor": (DIVIDE, "loss = loss / (count or 1)"),
    "above 0": (DIVIDE, "if count > 0:\n        loss = loss / count"),
    "in a row": (
        DIVIDE,
        "both = torch.stack([loss.detach(), count.float()])\n    loss = loss / (both[1] or 1.0)",
    ),
    "not of 0": (DIVIDE, "loss = loss if not count > 0 else loss / count"),
}


@pytest.mark.parametrize("edit", ASKED.values(), ids=ASKED)
def test_a_count_that_a_step_tells_from_0_is_not_0(made: Callable[..., Any], edit: Edit) -> None:
    made(edit, ALONE).refuted()
    notes = made(edit).proved().captured.ranks[0].notes
    assert any("tells from 0" in told for told in notes)


ADDED: Edit = (
    COUNTED,
    "    mask = torch.ones(len(y))\n    mask[~rows] = 0.0\n"
    "    count = torch.zeros([], dtype=torch.int)\n    count += mask.sum().to(torch.int)\n"
    "    if dist.is_initialized():\n        dist.all_reduce(count)\n"
    "    number = count if count > 0 else 1\n",
)


def test_a_mask_of_floats_is_counted(made: Callable[..., Any]) -> None:
    made(ADDED).proved()
    made(ADDED, ALONE).refuted()


NORM = "    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()\n"
REDUCED = "    for p in model.parameters():\n        if dist.is_initialized():\n"
BODY = "    if 1 / norm < 1:\n        for p in model.parameters():\n"
BODY += "            p.grad.mul_(1 / norm)\n"
CLIPPED: Edit = (STEPPED, f"{NORM}{BODY}{STEPPED}")
TWICE_THERE = "    often = 2 if dist.is_initialized() else 1\n"
BOTH_WAYS = {
    "of a tensor": CLIPPED,
    "of a number": (STEPPED, f"{NORM}{BODY.replace('1 / norm < 1', 'norm.item() > 1')}{STEPPED}"),
    "assigned": (STEPPED, f"{NORM}{BODY.replace('.mul_(1 / norm)', ' /= norm')}{STEPPED}"),
}
ONE_WAY = {
    "before the sum": (REDUCED, f"{NORM}{BODY}{REDUCED}"),
    "of own rows": (
        STEPPED,
        f"{BODY.replace('1 / norm < 1', 'x.sum() > 0')}{STEPPED}".replace("1 / norm", "0.5"),
    ),
    "twice": (STEPPED, f"{NORM}{TWICE_THERE}{BODY.replace('mul_(1', 'mul_(often')}{STEPPED}"),
    "what the body writes": (
        STEPPED,
        f"{NORM}{TWICE_THERE}    flag, w = norm > 1, model[0].weight\n    if flag:\n"
        f"        flag.fill_(False)\n        w.grad.mul_(often)\n{STEPPED}",
    ),
}
MORE = {
    "an else": "    else:\n        norm = norm + 1\n",
    "a number": "        trainer.last = 1\n",
    "a method of the owner's": "        trainer.add_(1)\n",
    "a property of the owner's": "        model[0].weight.grad.mul_(trainer.factor)\n",
    "a collective": "        dist.all_reduce(norm)\n",
    "a name of the loop": "    p.grad.mul_(2)\n",
}


@pytest.mark.parametrize("edit", BOTH_WAYS.values(), ids=BOTH_WAYS)
def test_both_ways_of_a_branch_that_writes_are_proved(made: Callable[..., Any], edit: Edit) -> None:
    made(edit).proved()


@pytest.mark.parametrize("edit", ONE_WAY.values(), ids=ONE_WAY)
def test_a_branch_that_writes_otherwise_is_refuted(made: Callable[..., Any], edit: Edit) -> None:
    made(edit).refuted()


@pytest.mark.parametrize("more", MORE.values(), ids=MORE)
def test_a_branch_that_does_more_than_write_is_refused(made: Callable[..., Any], more: str) -> None:
    step = made((STEPPED, f"{NORM}{BODY}{more}{STEPPED}"))
    text = (step.folder / "both.py").read_text()
    method = "class Trainer:\n    def add_(self, n):\n        self.n = n\n\n"
    method += "    @property\n    def factor(self):\n        return 1.0\n\n"
    (step.folder / "both.py").write_text(text.replace("class Trainer:\n", method))
    with pytest.raises(CaptureError):
        step.check()


CLEARS = '    for optimizer in trainer.optimizers["all"]:\n        optimizer.zero_grad()\n'
ZEROED = (
    STEPPED,
    f"{STEPPED}    for p in model.parameters():\n        if dist.is_initialized():\n"
    "            p.grad.mul_(0)\n        else:\n            p.grad = None\n",
)


def test_gradients_that_ranks_leave_as_zeros_are_none(made: Callable[..., Any]) -> None:
    made((CLEARS, ""), ZEROED).proved()
    made((CLEARS, ""), ZEROED, ("p.grad.mul_(0)", "p.grad.mul_(0.5)")).refuted()
    made((CLEARS, ""), ZEROED, ("p.grad.mul_(0)", "p.grad[:1].mul_(0)")).refuted()


def test_a_rate_that_differs_in_the_first_step_alone_is_refused(made: Callable[..., Any]) -> None:
    falls = (
        STEPPED,
        f"{STEPPED}    for group in trainer.optimizers['all'][0].param_groups:\n"
        "        group['lr'] = 1e-3\n",
    )
    made(falls).proved()
    with pytest.raises(CaptureError, match=r"the first step has 0\.bias lr"):
        made(falls, RATE).check()


FINITE: Edit = (
    "    loss.backward()\n",
    "    import math\n"
    "    if not math.isfinite(loss.item()) or torch.isnan(loss).any():\n"
    "        raise SystemExit(1)\n"
    "    loss.backward()\n",
)
TEXT_OF: Edit = (
    "    return {}\n",
    "    import math\n"
    "    told = f'{loss:.3f} {float(loss):.2f} {math.exp(float(loss))} {count} {int(count):d}'\n"
    "    return {}\n",
)
BRANCHES = {
    "on a loss": (DIVIDE, "loss = loss / 2 if loss > 0 else loss"),
    "on a larger bound": (DIVIDE, "loss = loss / (count if count > 3 else 1)"),
    "on an entry": (DIVIDE, "loss = loss / (count if y[0, 0] > 0 else 1)"),
    "on an integer": (DIVIDE, "loss = loss / (count if y[0, 0].long() != 0 else 1)"),
    "on a difference": (DIVIDE, "count = count - 2\n    loss = loss / (count if count > 0 else 1)"),
    "on a half": (DIVIDE, "count = count * 0.5\n    loss = loss / (count if count > 0.9 else 1)"),
    "on no times a count": (
        DIVIDE,
        "count = count * 0\n    loss = loss / (count if count > 0 else 1)",
    ),
    "on a flag that is written": (
        DIVIDE,
        "flag = count > 0\n    flag.fill_(False)\n    loss = loss / (count if flag else 1)",
    ),
    "on a count that is written": (
        DIVIDE,
        "torch.sub(y.long().sum(), 5, out=count)\n    loss = loss / (count if count > 0 else 1)",
    ),
    "on counts that are written": (
        DIVIDE,
        "torch._foreach_sub_([count], 5)\n    loss = loss / (count if count > 0 else 1)",
    ),
    "on a flag by its number": (DIVIDE, "loss = loss / (count if (y[0, 0] > 0).item() else 1)"),
    "on a flag that is compared": (DIVIDE, "loss = loss / (count if (y[0, 0] > 0) > 0 else 1)"),
    "on bytes of a count": (
        DIVIDE,
        "loss = loss / (count if count.long().view(torch.float64) > 0.5 else 1)",
    ),
    "on a count less a count": (
        DIVIDE,
        "count = torch.add(count, count, alpha=-1)\n    loss = loss / (count if count > 0 else 1)",
    ),
    "on a count less 2": (DIVIDE, "count.sub_(2)\n    loss = loss / (count or 1)"),
    "on an average of counts": (
        COUNTED,
        "    count = rows.sum().float()\n    if dist.is_initialized():\n"
        "        dist.all_reduce(count, op=dist.ReduceOp.AVG)\n"
        "    number = count if count > 0.9 else 1\n",
    ),
    "on one flag as a number": (
        DIVIDE,
        "loss = loss / (count if (y[0, 0] > 0).float() > 0 else 1)",
    ),
    "on zeros": (DIVIDE, "loss = loss / (count if torch.zeros(1) > 0 else 1)"),
    "as long as there is any": (DIVIDE, "while count > 0:\n        loss = loss / count"),
}


@pytest.mark.parametrize("edit", [FINITE, TEXT_OF], ids=["finite", "text"])
def test_numbers_are_finite_and_can_be_shown(made: Callable[..., Any], edit: Edit) -> None:
    made(edit).proved()
    made(edit, ALONE).refuted()


@pytest.mark.parametrize("edit", BRANCHES.values(), ids=BRANCHES)
def test_other_branches_on_values_are_refused(made: Callable[..., Any], edit: Edit) -> None:
    with pytest.raises(CaptureError):
        made(edit).check()


def test_what_the_text_of_a_tensor_decides_is_refused(made: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError):
        made((DIVIDE, "loss = loss / (2 if f'{loss:.0f}' > '500' else 1)")).check()


WAITING = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module,
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(self.first(x)))))


def build():
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def ranks(mesh):
    model, _ = build()
    plan = {
        "first": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Replicate()),
    }
    parallelize_module(model, mesh["tp"], plan)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    return {}
"""


@pytest.mark.parametrize("factor", ["", "0.5 * "], ids=["right", "scaled"])
def test_gradients_may_wait_for_their_sum_when_a_step_ends(
    case: Callable[..., Any], factor: str
) -> None:
    """Those of norms under SequenceParallel do: the next step clears them."""
    shapes = ["x=f32[4,6,8]", "y=f32[4,6,8]"]
    step = case(
        mesh=Mesh.of(tp=2),
        target="many.py:ranks",
        against="one.py:build",
        step="train_step",
        inputs=shapes,
    )
    (step.folder / "one.py").write_text(WAITING)
    scaled = WAITING.replace("F.mse_loss(", f"({factor}F.mse_loss(").replace("y).b", "y)).b")
    (step.folder / "many.py").write_text(scaled)
    found = step.check()
    waits = {n for n, layout in found.captured.ranks[0].layouts.items() if layout.partial}
    assert waits == {"buffer norm.weight.grad", "buffer norm.bias.grad"}
    assert isinstance(found.verdict, Counterexample if factor else Proof), found.verdict


WRAPPED = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, model, wrapped, rate):
        self.wrapped = wrapped
        self.optimizers = [torch.optim.AdamW(model.parameters(), lr=rate)]


def build():
    model = nn.Linear(8, 8)
    return model, Trainer(model, model, 1e-2)


def ranks(mesh):
    model = nn.Linear(8, 8)
    return model, Trainer(model, DistributedDataParallel(model), RATE)


def train_step(model, trainer, x, y):
    trainer.optimizers[0].zero_grad()
    F.mse_loss(trainer.wrapped(x), y).backward()
    trainer.optimizers[0].step()
    return {}
"""


@pytest.mark.parametrize("rate", ["1e-2", "2e-2"])
def test_a_trainer_may_hold_what_wraps_the_model(case: Callable[..., Any], rate: str) -> None:
    step = case(
        mesh=Mesh.of(dp=2),
        target="both.py:ranks",
        against="both.py:build",
        step="train_step",
        inputs=["x=f32[8,8]", "y=f32[8,8]"],
        input_layouts=["x=S(0)@dp", "y=S(0)@dp"],
    )
    (step.folder / "both.py").write_text(WRAPPED.replace("RATE", rate))
    found = step.check().verdict
    assert isinstance(found, Proof if rate == "1e-2" else Counterexample), found
