"""Training steps: parameters, optimizers and what they leave, with twins that are wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Proof

pytestmark = pytest.mark.torch
FOLDER = Path(__file__).parents[2] / "examples" / "steps"
ROWS = ("x=S(0)@dp", "y=S(0)@dp")
RIGHT = [
    ("sgd_sharded", "sgd", "plain_step", "dp=2", ROWS),
    ("sgd_split", "sgd", "plain_step", "tp=2", ()),
    ("sharded", "adamw", "train_step", "dp=2", ROWS),
    ("replicated", "adamw", "train_step", "dp=2", ROWS),
    ("by_hand", "adamw", "train_step", "dp=2", ROWS),
    ("both", "adamw", "train_step", "dp=2,tp=2", ROWS),
    ("averaged", "averaged", "ema_step", "dp=2", ROWS),
]
CLIP = "    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n"
NORM = "    norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])\n"
LOCAL = """    norm = torch.stack([local(p.grad).norm() for p in model.parameters()]).norm()
    for p in model.parameters():
        local(p.grad).mul_(torch.clamp(0.1 / (norm + 1e-6), max=1.0))
"""
WRONG = {
    "micro-batches are not averaged": ("(loss / 2).backward()", "loss.backward()"),
    "the last micro-batch alone": (
        "last = number == len(parts) - 1",
        "last = True\n        model.zero_grad()",
    ),
    "nothing is reduced": ("last = number == len(parts) - 1", "last = False"),
    "no clipping": (CLIP, NORM),
    "another norm": ("model.parameters(), 0.1)", "model.parameters(), 0.2)"),
    "clips by what a rank holds": (CLIP, LOCAL),
    "clips after the step": (
        CLIP + "    optimizer.step()\n",
        "    optimizer.step()\n" + CLIP,
    ),
    "another rate": ("groups(model), lr=1e-3", "groups(model), lr=2e-3"),
    "another schedule": ("CosineAnnealingLR(optimizer, 100)", "CosineAnnealingLR(optimizer, 9)"),
    "decays all": ("groups(model), lr", "model.parameters(), weight_decay=0.1, lr"),
    "two steps": ("    schedule.step()\n", "    schedule.step()\n    optimizer.step()\n"),
    "other moments": ("groups(model), lr=1e-3", "groups(model), lr=1e-3, betas=(0.9, 0.95)"),
    "gradients stay": ("    optimizer.zero_grad()\n", ""),
}  # fmt: skip
LATE = "    loss = F.mse_loss(model(x), y)\n    model.zero_grad()\n"
LOCAL_PIECE = """

def local(t):
    return t.to_local() if isinstance(t, DTensor) else t
"""
NOT_SEEN = {("replicated", "clips by what a rank holds")}
"""What a rank holds is the whole gradient."""
TWINS = [
    (name, of) for of in ("sharded", "replicated") for name in WRONG if (of, name) not in NOT_SEEN
]
Make = Callable[..., Any]


@pytest.fixture
def made(case: Make, tmp_path: Path) -> Make:
    for file in FOLDER.glob("*.py"):
        shutil.copy(file, tmp_path)

    def make(many: str, one: str, step: str, mesh: str, rows: tuple[str, ...]) -> Any:
        sizes = (item.split("=") for item in mesh.split(","))
        return case(
            mesh=Mesh.of(**{name: int(size) for name, size in sizes}),
            target=f"ranks.py:{many}",
            against=f"one.py:{one}",
            step=step,
            inputs=["x=f32[8,8]", "y=f32[8,8]"],
            input_layouts=rows,
        )

    return make


@pytest.mark.parametrize(("many", "one", "step", "mesh", "rows"), RIGHT, ids=[r[0] for r in RIGHT])
def test_a_right_step_is_proved(
    made: Make, many: str, one: str, step: str, mesh: str, rows: tuple[str, ...]
) -> None:
    found = made(many, one, step, mesh, rows).proved()
    outputs = {o.path for o in found.question.sequential.outputs}
    assert {"state:up.weight", "state:norm.bias"} <= outputs
    kept = "momentum_buffer" if one == "sgd" else "exp_avg_sq"
    assert f"state:down.weight.{kept}" in outputs


@pytest.mark.parametrize(("name", "of"), TWINS, ids=[f"{o}: {n}" for n, o in TWINS])
def test_a_wrong_step_is_refuted(made: Make, name: str, of: str) -> None:
    old, new = WRONG[name]
    wrong = made(of, "adamw", "train_step", "dp=2", ROWS)
    file = wrong.folder / "ranks.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new) + LOCAL_PIECE)
    wrong.refuted()


@pytest.mark.parametrize("file", ["one.py", "ranks.py"])
def test_parameters_that_one_side_alone_trains_are_refuted(made: Make, file: str) -> None:
    wrong = made("replicated", "adamw", "train_step", "dp=2", ROWS)
    wrong.edit("AdamW(groups(model), lr", "AdamW(groups(model)[:1], lr", file)
    wrong.refuted()


def test_the_ema_of_another_model_is_refuted(made: Make) -> None:
    wrong = made("averaged", "averaged", "ema_step", "dp=2", ROWS)
    wrong.edit("get_ema_multi_avg_fn(0.99)", "get_ema_multi_avg_fn(0.9)", "ranks.py").refuted()


@pytest.mark.parametrize("wrong", ["", "ranks * ", "        dist.all_reduce(counted)\n"])
def test_tokens_are_counted_on_all_ranks(made: Make, case: Make, wrong: str) -> None:
    folder = made("sharded", "adamw", "train_step", "dp=2", ROWS).folder
    (folder / "twin.py").write_text((folder / "tokens.py").read_text().replace(wrong, "", 1))
    step = case(
        mesh=Mesh.of(dp=2),
        target="twin.py:many",
        against="tokens.py:one",
        step="train_step",
        inputs=["ids=i64[4,6]<32", "labels=i64[4,6]<32"],
        input_layouts=["ids=S(0)@dp", "labels=S(0)@dp"],
    )
    found = step.check().verdict
    assert isinstance(found, Counterexample if wrong else Proof), found


def test_a_step_that_no_file_has_is_an_error(made: Make) -> None:
    with pytest.raises(CaptureError, match=r"one\.py has no function no_step"):
        made("sharded", "adamw", "no_step", "dp=2", ROWS).check()


def test_a_step_that_takes_too_little_is_an_error(made: Make) -> None:
    with pytest.raises(CaptureError, match=r"plain_step has no argument 'x'"):
        made("sharded", "adamw", "plain_step", "dp=2", ROWS).check()


@pytest.mark.parametrize("loss", ["(loss / 2).", "loss."], ids=["right", "not averaged"])
def test_gradients_may_be_averaged_in_each_micro_batch(made: Make, loss: str) -> None:
    """As DistributedDataParallel does without `no_sync`."""
    step = made("replicated", "adamw", "train_step", "dp=2", ROWS)
    step.edit("isinstance(model, DistributedDataParallel) and not last", "False", "ranks.py")
    step.edit("(loss / 2).", loss, "ranks.py")
    found = step.check().verdict
    assert isinstance(found, Proof if "2" in loss else Counterexample), found


@pytest.mark.parametrize("factor", ["", "2 * "], ids=["right", "twice"])
def test_a_loss_without_a_gradient_is_the_mean_of_those_of_ranks(made: Make, factor: str) -> None:
    step = made("sgd_sharded", "sgd", "plain_step", "dp=2", ROWS)
    one, many = step.folder / "one.py", step.folder / "ranks.py"
    one.write_text(one.read_text().replace("    return loss\n", "    return loss.detach()\n"))
    again = f"def plain_step(*args):\n    return {factor}first_step(*args)\n"
    again = again.replace("*args", "model, optimizer, x, y")
    many.write_text(f"{many.read_text()}\n\nfirst_step = plain_step\n\n\n{again}")
    found = step.check().verdict
    assert isinstance(found, Counterexample if factor else Proof), found


@pytest.mark.parametrize(
    ("second", "right"), [("again", True), ("again * 2", False), ("grown", False)]
)
def test_losses_of_a_step_are_what_it_runs_backwards_from(
    made: Make, second: str, right: bool
) -> None:
    step = made("sgd_sharded", "sgd", "plain_step", "dp=2", ROWS)
    two = """

def plain_step(model, optimizer, x, y):
    first = F.mse_loss(model(x), y)
    first.backward()
    again = F.l1_loss(model(x), y)
    again.backward()
    optimizer.step()
    optimizer.zero_grad()
    grown = again.detach() ** 2
    return first.detach(), SECOND.detach()
"""
    for name, text in (("one.py", "again"), ("ranks.py", f"({second})")):
        file = step.folder / name
        file.write_text(file.read_text() + two.replace("SECOND", text))
    found = step.check().verdict
    assert isinstance(found, Proof if right else Counterexample), found


def _command(folder: Path) -> subprocess.CompletedProcess[str]:
    words = ["ranks.py:sharded", "--against", "one.py:adamw", "--step", "train_step"]
    words += ["--mesh", "dp=2", "--input", "x=f32[8,8]", "--input", "y=f32[8,8]"]
    for row in ROWS:
        words += ["--input-layout", row]
    command = [sys.executable, "-m", "shardproof", "check", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize(
    ("edit", "ends"), [(None, 0), (("    optimizer.zero_grad()\n", ""), 1)], ids=["right", "wrong"]
)
def test_a_step_runs_on_processes(made: Make, edit: tuple[str, str] | None, ends: int) -> None:
    step = made("sharded", "adamw", "train_step", "dp=2", ROWS)
    if edit is not None:
        step.edit(*edit, file="ranks.py")
    done = _command(step.folder)
    assert done.returncode == ends, done.stdout + done.stderr
    assert ("agrees" if edit is None else "refuted") in done.stderr


def test_a_third_step_that_is_another_is_refuted_by_the_run(made: Make) -> None:
    step = made("sharded", "adamw", "train_step", "dp=2", ROWS)
    late = "    if schedule.last_epoch < 2:\n        optimizer.step()\n"
    step.edit("    optimizer.step()\n", late, "ranks.py")
    done = _command(step.folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "call 3" in done.stderr


OWN = """

class Momentum:
    def __init__(self, model):
        self.params, self.held = list(model.parameters()), {}

    def step(self):
        with torch.no_grad():
            for number, p in enumerate(self.params):
                old = self.held.get(number)
                self.held[number] = p.grad.clone() if old is None else 0.9 * old + p.grad
                p.data.sub_(0.1 * self.held[number])
"""
SHARDED = """

def own(mesh):
    model = fully_shard(MLP(), mesh=mesh)
    return model, Momentum(model)
"""
ALONE = """

def own():
    model = MLP()
    return model, Momentum(model)
"""


@pytest.mark.parametrize("factor", ["0.9", "0.8"])
def test_an_optimizer_of_the_owner_has_its_state_compared(made: Make, factor: str) -> None:
    step = made("own", "own", "plain_step", "dp=2", ROWS)
    for name, text in (("one.py", OWN + ALONE), ("ranks.py", OWN + SHARDED)):
        file = step.folder / name
        clears = "    model.zero_grad()\n"
        file.write_text((file.read_text() + text).replace("    optimizer.zero_grad()\n", clears))
    step.edit("0.9 *", f"{factor} *", "ranks.py")
    found = step.check().verdict
    assert isinstance(found, Proof if factor == "0.9" else Counterexample), found


def test_a_parameter_that_is_replaced_is_refused(made: Make) -> None:
    step = made("sgd_sharded", "sgd", "plain_step", "dp=2", ROWS)
    step.edit(
        "    optimizer.step()\n    return loss\n\n\ndef adamw",
        "    model.up.bias = nn.Parameter(model.up.bias * 0.9)\n    return loss\n\n\ndef adamw",
        "one.py",
    )
    with pytest.raises(CaptureError, match=r"another parameter in the place of up\.bias"):
        step.check()


def test_gradients_that_are_cleared_too_late_are_kept(made: Make) -> None:
    """After a forward, `model.parameters()` of fully_shard are those that it gathered."""
    step = made("sgd_sharded", "sgd", "plain_step", "dp=2", ROWS)
    file = step.folder / "one.py"
    early = "    optimizer.zero_grad()\n    loss = F.mse_loss(model(x), y)\n"
    file.write_text(file.read_text().replace(early, LATE))
    step.refuted()


ZEROED = "    optimizer.zero_grad(set_to_none=False)\n    return norm.full"
TIMES_ZERO = "    for p in model.parameters():\n        p.grad.mul_(0)\n    return norm.full"


@pytest.mark.parametrize("cleared", [ZEROED, TIMES_ZERO], ids=["zeros", "times zero"])
def test_gradients_that_ranks_alone_set_to_zero_are_zeros(made: Make, cleared: str) -> None:
    step = made("replicated", "adamw", "train_step", "dp=2", ROWS)
    step.edit("    optimizer.zero_grad()\n    return norm.full", cleared, "ranks.py")
    step.proved()


LOGGED = "    seen = loss.item() + 1\n    print(f'loss {seen:.3f}')\n    optimizer.step()\n"
DECIDED = "    if loss.item() < 1e9:\n        optimizer.step()\n"
KIND = "    if isinstance(loss.item(), float):\n        optimizer.step()\n"


@pytest.mark.parametrize("rate", ["0.1", "0.2"])
def test_a_number_is_of_the_type_that_it_has_in_a_run(made: Make, rate: str) -> None:
    step = made("sgd_sharded", "sgd", "plain_step", "dp=2", ROWS)
    step.edit(
        "    optimizer.step()\n    return loss\n\n\ndef adamw",
        f"{KIND}    return loss\n\n\ndef adamw",
        "one.py",
    )
    step.edit(
        "model.parameters(), lr=0.1, momentum=0.9)\n\n\ndef sgd_split",
        f"model.parameters(), lr={rate}, momentum=0.9)\n\n\ndef sgd_split",
        "ranks.py",
    )
    found = step.check().verdict
    assert isinstance(found, Proof if rate == "0.1" else Counterexample), found


@pytest.mark.parametrize("lines", [LOGGED, DECIDED], ids=["logs", "decides"])
def test_a_step_may_read_numbers_to_log_them(made: Make, lines: str) -> None:
    step = made("sgd_sharded", "sgd", "plain_step", "dp=2", ROWS)
    file = step.folder / "one.py"
    text = file.read_text()
    file.write_text(
        text.replace("    optimizer.step()\n    return loss\n", f"{lines}    return loss\n", 1)
    )
    if lines == LOGGED:
        found = step.proved()
        assert any("reads from tensors to log" in note for note in found.captured.one.notes)
    else:
        with pytest.raises(CaptureError, match="a number that the step reads from a tensor"):
            step.check()


@pytest.mark.parametrize("eps", ["1e-8", "1e-3"])
def test_a_fused_optimizer_is_one_that_is_not(made: Make, eps: str) -> None:
    step = made("sharded", "adamw", "train_step", "dp=2", ROWS)
    step.edit(
        "groups(model), lr=1e-3)", f"groups(model), lr=1e-3, fused=True, eps={eps})", "ranks.py"
    )
    found = step.check()
    assert isinstance(found.verdict, Proof if eps == "1e-8" else Counterexample), found.verdict
    assert any("Fused optimizers" in note for rank in found.captured.ranks for note in rank.notes)


DROPPED = """import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard


class Dropped(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(8, 8), nn.Linear(8, 8), nn.Dropout(0.25)
        self.factor = factor

    def forward(self, x):
        return self.down(self.drop(torch.relu(self.up(x))) * self.factor)


def one():
    model = Dropped()
    return model, torch.optim.SGD(model.parameters(), lr=1e-2)


def many(mesh, factor=1.0):
    model = fully_shard(Dropped(factor), mesh=mesh)
    return model, torch.optim.SGD(model.parameters(), lr=1e-2)


def other(mesh):
    return many(mesh, 0.5)


def step(model, optimizer, x, y):
    for a, b in zip(x.chunk(PARTS), y.chunk(PARTS)):
        (F.mse_loss(model(a), b) / PARTS).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("parts", [1, 2], ids=["whole batch", "micro-batches"])
@pytest.mark.parametrize("target", ["many", "other"], ids=["right", "wrong"])
def test_what_a_step_drops_is_drawn_for_each_row(
    case: Make, tmp_path: Path, parts: int, target: str
) -> None:
    """Whether one device takes its batch at once or in parts: ranks take it in two."""
    (tmp_path / "many.py").write_text(DROPPED.replace("PARTS", "2"))
    (tmp_path / "one.py").write_text(DROPPED.replace("PARTS", str(parts)))
    inputs = ["x=f32[8,8]", "y=f32[8,8]"]
    asked = case(mesh=Mesh.of(dp=2), target=f"many.py:{target}", against="one.py:one")
    asked.step, asked.inputs, asked.input_layouts = "step", inputs, ROWS
    found = asked.check()
    assert isinstance(found.verdict, Proof if target == "many" else Counterexample)
    assert [p.name for p in found.placed if p.name.startswith("dropout.")] == ["dropout.drop.0"]


SCALED = """import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def one(wrap=lambda model: model):
    model = wrap(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    return model, optimizer, torch.amp.GradScaler("cpu")


def replicated():
    return one(DistributedDataParallel)


def sharded(mesh):
    return one(lambda model: fully_shard(model, mesh=mesh))


def step(model, optimizer, scaler, x, y):
    loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
UNSCALED = "    scaler.unscale_(optimizer)\n"


@pytest.mark.parametrize(
    "edit",
    [("", ""), (UNSCALED, ""), ("scaler.scale(loss).b", "scaler.scale(loss); loss.b")],
    ids=["right", "clips what is scaled", "takes off a scale that is not there"],
)
@pytest.mark.parametrize("target", ["replicated", "sharded"])
def test_a_step_may_scale_its_loss(
    case: Make, tmp_path: Path, target: str, edit: tuple[str, str]
) -> None:
    (tmp_path / "one.py").write_text(SCALED)
    (tmp_path / "many.py").write_text(SCALED.replace(*edit) if edit[0] else SCALED)
    asked = case(mesh=Mesh.of(dp=2), target=f"many.py:{target}", against="one.py:one")
    asked.step, asked.inputs, asked.input_layouts = "step", ["x=f32[8,8]", "y=f32[8,8]"], ROWS
    found = asked.check()
    assert isinstance(found.verdict, Counterexample if edit[0] else Proof)
    assert any("finds all gradients finite" in note for note in found.captured.one.notes)


SPREAD = """import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def network():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


def one():
    model = network()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


class Spread(ZeroRedundancyOptimizer):
    pass


def many():
    model = DistributedDataParallel(network())
    return model, Spread(model.parameters(), torch.optim.AdamW, lr=1e-2)


def step(model, optimizer, x, y):
    F.mse_loss(model(x), y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
"""
KEPT_APART = "class Spread(ZeroRedundancyOptimizer):\n    def _sync_params(self):\n        pass\n"


@pytest.mark.filterwarnings("ignore:.*jit:DeprecationWarning")
@pytest.mark.parametrize(
    "edit",
    [
        ("", ""),
        ("class Spread(ZeroRedundancyOptimizer):\n    pass\n", KEPT_APART),
        ("torch.optim.AdamW, lr=1e-2", "torch.optim.AdamW, lr=1e-2, weight_decay=0.1"),
    ],
    ids=["right", "parts that stay apart", "another decay"],
)
def test_ranks_may_each_keep_the_optimizer_of_some_parameters(
    case: Make, tmp_path: Path, edit: tuple[str, str]
) -> None:
    (tmp_path / "one.py").write_text(SPREAD)
    (tmp_path / "many.py").write_text(SPREAD.replace(*edit) if edit[0] else SPREAD)
    asked = case(mesh=Mesh.of(dp=2), target="many.py:many", against="one.py:one")
    asked.step, asked.inputs, asked.input_layouts = "step", ["x=f32[8,8]", "y=f32[8,8]"], ROWS
    assert isinstance(asked.check().verdict, Counterexample if edit[0] else Proof)


def test_a_loss_that_ranks_alone_scale_is_refused(case: Make, tmp_path: Path) -> None:
    alone = SCALED.replace(', torch.amp.GradScaler("cpu")', "").replace(
        "optimizer, scaler", "optimizer"
    )
    for line in ("    scaler.unscale_(optimizer)\n", "    scaler.update()\n"):
        alone = alone.replace(line, "")
    alone = alone.replace("scaler.scale(loss)", "loss").replace(
        "scaler.step(optimizer)", "optimizer.step()"
    )
    (tmp_path / "one.py").write_text(alone)
    (tmp_path / "many.py").write_text(SCALED)
    asked = case(mesh=Mesh.of(dp=2), target="many.py:sharded", against="one.py:one")
    asked.step, asked.inputs, asked.input_layouts = "step", ["x=f32[8,8]", "y=f32[8,8]"], ROWS
    with pytest.raises(CaptureError, match="a step of the ranks scales its loss"):
        asked.check()
