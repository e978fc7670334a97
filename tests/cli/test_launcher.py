"""The launcher that `parallelize --launcher` writes: proved, run with its checkpoints, and wrong
edits of it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from shardproof.agent.run import events
from shardproof.synthesis.execute.run.running import of_file
from shardproof.synthesis.execute.run.training import Training, train
from shardproof.verifier.kernel.program.types import Mesh
from tests.commands import COMMAND, Command, Done, environment

pytestmark = [pytest.mark.torch, pytest.mark.gloo]

MODEL = """import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(12, 72)
        self.down = nn.Linear(24, 8)

    def forward(self, x, target):
        q, k, v = self.qkv(x).split(24, dim=-1)
        return F.cross_entropy(self.down(torch.relu(q) * k + v), target)


class Scores(Net):
    def forward(self, x):
        return self.qkv(x)


def example_inputs():
    return {"x": torch.zeros(8, 12), "target": torch.zeros(8, dtype=torch.int64)}
"""
INPUTS = ("--input", "x=f32[8,12]", "--input", "target=i64[8]<8")
WORDS = ("--launcher", "--micro-batches", "2", "--out", "out")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A folder with the model and what `parallelize` wrote, the patch applied."""
    folder = tmp_path_factory.mktemp("launcher")
    (folder / "net.py").write_text(MODEL)
    words = ("parallelize", "net.py:Net", "--mesh", "dp=2,tp=2", *INPUTS, *WORDS, "--json")
    done = _do(folder, *COMMAND, *words)
    assert done.code == 0, done.out + done.err
    assert _do(folder, *COMMAND, "apply", "out", "--yes", "--no-recapture").code == 0
    return folder, done


def _do(folder: Path, *words: str, **extra: str) -> Done:
    done = subprocess.run(
        words, cwd=folder, env=environment(**extra), capture_output=True, text=True
    )
    return Done(done.returncode, done.stdout, done.stderr)


def _numbers(done: Done) -> list[float]:
    return [float(word) for word in re.findall(r"\d+\.\d+", done.out)]


def _told(done: Done) -> events.LauncherJudged:
    parsed = [events.parse(line) for line in done.out.splitlines()]
    (found,) = [e for e in parsed if isinstance(e, events.LauncherJudged)]
    return found


def test_a_launcher_is_proved_and_run(made: tuple[Path, Done]) -> None:
    folder, done = made
    told = _told(done)
    assert told.verdict == "proved"
    assert "steps and checkpoints run on 4 processes, agrees" in told.standing
    assert "micro=2" in told.message
    assert any("second step is compared" in line for line in told.assumptions)
    assert "# Proved:" in (folder / "out" / "train_parallel.py").read_text()
    for page in ("report.md", "report.html"):
        assert "train_step=one_step" in (folder / "out" / page).read_text()
    ran = [e for e in map(events.parse, done.out.splitlines()) if isinstance(e, events.Executed)]
    assert len(ran) == 2
    assert all(e.agrees and e.largest_relative_difference < 1e-9 for e in ran)
    assert _do(folder, *COMMAND, "verify", "out").code == 0


def test_the_printed_commands_train_and_prove(made: tuple[Path, Done]) -> None:
    folder, done = made
    told = _told(done)
    path, torchrun, *words = shlex.split(told.launch)
    assert (path, torchrun) == ("PYTHONPATH=.", "torchrun")
    start = (sys.executable, "-m", "torch.distributed.run", *words)
    found = environment()
    extra = {"PYTHONPATH": f"{folder}:{found['PYTHONPATH']}", "OMP_NUM_THREADS": "1"}
    ranks = _do(folder, *start, "--steps", "2", "--save", "ranks", **extra)
    assert ranks.code == 0, ranks.err
    alone = (sys.executable, "out/train_parallel.py")
    one = _do(folder, *alone, "--steps", "2", "--save", "one", **extra)
    assert _numbers(ranks) == pytest.approx(_numbers(one), rel=1e-5)
    assert "step 1: loss" in one.out
    again = [
        _do(folder, *how, "--steps", "1", "--load", where, **extra)
        for how, where in ((start, "one"), (alone, "ranks"))
    ]
    assert _numbers(again[0]) == pytest.approx(_numbers(again[1]), rel=1e-5)
    assert "step 2: loss" in again[0].out
    dcp_to_torch_save(folder / "ranks", folder / "whole.pt")
    checked = _do(folder, *COMMAND, *shlex.split(told.check)[2:], "--json", **extra)
    assert checked.last["verdict"] == "proved", checked.out


ROWS = "[dp.get_local_rank()]"
LOOP = "enumerate(zip(*whole, strict=True))"
NORM = "norm = clip_grad_norm_(model.parameters(), CLIP).full_tensor()\n    "
STEP = "optimizer.step()\n    "
CLEAR = "optimizer.zero_grad()\n"
LOCAL = """norm = torch.stack([p.grad.to_local().norm() for p in model.parameters()]).norm()
    for p in model.parameters():
        p.grad.mul_(CLIP / (norm + CLIP))
    """
MADE = "return model, make_optimizer(model), mesh"
OTHER = """optimizer = make_optimizer(model)
    optimizer.param_groups[0]%s
    return model, optimizer, mesh"""
WRONG = {
    "micro-batches not averaged": (" / MICRO_BATCHES", ""),
    "micro-batches averaged twice": (" / MICRO_BATCHES", " / MICRO_BATCHES**2"),
    "reduced once": ("number == MICRO_BATCHES - 1", "number == 0"),
    "the same rows on all ranks": (ROWS, "[0]"),
    "rows by the other mesh dim": (ROWS, '[mesh["tp"].get_local_rank()]'),
    "one micro-batch twice": (LOOP, "enumerate([[w[0] for w in whole]] * 2)"),
    "a micro-batch left out": (LOOP, "enumerate([[w[1] for w in whole]], 1)"),
    "loss of a rank": ("dist.all_reduce(total, group=dp.get_group())\n    ", ""),
    "loss reduced over tp": ("group=dp.get_group()", 'group=mesh["tp"].get_group()'),
    "loss added up": ("total / dp.size()", "total"),
    "clipped by the norm of a rank": (NORM, LOCAL),
    "not clipped": (NORM, NORM.replace("CLIP", "1e9")),
    "clipped after the step": (NORM + STEP, STEP + NORM),
    "gradients kept": (CLEAR, "\n"),
    "two steps": (STEP, STEP * 2),
    "gradients doubled": (STEP, "[p.grad.mul_(2) for p in model.parameters()]\n    " + STEP),
    "a learning rate by rank": (MADE, OTHER % '["lr"] *= 1 + mesh.get_local_rank("dp")'),
    "another weight decay": (MADE, OTHER % '["weight_decay"] = 0.0'),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_edit_is_refuted(
    name: str, made: tuple[Path, Done], here: Command, tmp_path: Path
) -> None:
    folder, done = made
    old, new = WRONG[name]
    text = (folder / "out" / "train_parallel.py").read_text()
    parts = re.split("(?=def parallel|def one_step|def train_step|def batch_of)", text)
    assert len(parts) == 5
    assert (parts[1] + parts[3]).count(old) == 1
    parts[1::2] = [part.replace(old, new) for part in parts[1::2]]
    (tmp_path / "wrong.py").write_text("".join(parts))
    words = [w.replace("out/train_parallel.py", "wrong.py") for w in shlex.split(_told(done).check)]
    tried = (*words[2:], "--no-run", "--repair-seconds", "0", "--json")
    checked = here(*tried, cwd=tmp_path, PYTHONPATH=str(folder))
    assert checked.code == 1, checked.out
    assert checked.last["verdict"] == "refuted", checked.out


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "tree_map(contiguous, state_of(model, optimizer))",
            "state_of(model, optimizer)",
            "chunks",
        ),
        ('held["optimizer"]', 'own["optimizer"]', "optimizer state"),
        (ROWS, "[0]", "loss"),
    ],
    ids=["fused weights as they lie", "moments not loaded", "the same rows on all ranks"],
)
def test_a_run_tells_a_wrong_launcher(
    old: str, new: str, says: str, made: tuple[Path, Done]
) -> None:
    folder, _ = made
    text = (folder / "out" / "train_parallel.py").read_text()
    assert text.count(old) == 1
    file = folder / f"wrong_{len(old)}.py"
    file.write_text(text.replace(old, new))
    mesh = Mesh((("dp", 2), ("tp", 2)))
    ran = train(Training(of_file("parallel", file, {}), mesh, 2, "dp", divides=False))
    found = ran.failed.message if ran.failed else ran.worst.kind if ran.worst else ""
    assert not ran.agrees
    assert says in found


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("net.py:Scores", "--input", "x=f32[8,12]", "--launcher"),
            "returns no loss to train with",
        ),
        (("net.py:Net", *INPUTS, "--launcher", "--micro-batches", "3"), "give --batch 12"),
        (("net.py:Net", *INPUTS, "--launcher", "--optimizer", "adamz"), "no such optimizer"),
        (("net.py:Net", *INPUTS, "--run-steps", "5"), "--run-steps is about a launcher"),
    ],
    ids=["no loss", "batch", "optimizer", "no launcher"],
)
def test_what_cannot_be_written_is_one_error(
    words: tuple[str, ...], says: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    done = command("parallelize", *words, "--mesh", "dp=2,tp=2", "--out", "out", cwd=tmp_path)
    assert done.code == 2
    assert says in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()
