"""Sharding in groups of data-parallel ranks (HSDP): proved and run, wrong edits refuted, and the
step of a launcher proved once more by `verify --recapture`."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from shardproof.agent.run import events
from shardproof.agent.run.files import sha256
from tests.commands import COMMAND, Command, Done, environment

pytestmark = [pytest.mark.torch, pytest.mark.gloo]

MODEL = """import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 7)

    def forward(self, x, target):
        return F.cross_entropy(self.down(torch.relu(self.up(x))), target)
"""
INPUTS = ("--input", "x=f32[16,12]", "--input", "target=i64[16]<7")
WORDS = ("parallelize", "net.py:Net", *INPUTS, "--launcher", "--micro-batches", "2")
MESH = "dp_replicate=2,dp_shard=2"


def _do(folder: Path, *words: str, **extra: str) -> Done:
    done = subprocess.run(
        (*COMMAND, *words), cwd=folder, env=environment(**extra), capture_output=True, text=True
    )
    return Done(done.returncode, done.stdout, done.stderr)


def _told(done: Done) -> events.LauncherJudged:
    parsed = [events.parse(line) for line in done.out.splitlines()]
    (found,) = [e for e in parsed if isinstance(e, events.LauncherJudged)]
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A folder with the model and what `parallelize` wrote."""
    folder = tmp_path_factory.mktemp("groups")
    (folder / "net.py").write_text(MODEL)
    (folder / "train_parallel.py").write_text("the owner's\n")
    done = _do(folder, *WORDS, "--mesh", MESH, "--out", "out", "--json")
    assert done.code == 0, done.out + done.err
    return folder, done


@pytest.fixture(scope="module")
def applied(made: tuple[Path, Done]) -> tuple[Path, Done]:
    """The same, with the patch applied: the step of the launcher is proved first."""
    folder, done = made
    said = _do(folder, "apply", "out", "--yes")
    assert said.code == 0, said.out + said.err
    return folder, done


@pytest.mark.slow
@pytest.mark.campaign
def test_groups_are_proved_and_run(made: tuple[Path, Done]) -> None:
    folder, done = made
    told = _told(done)
    assert told.verdict == "proved", told.message
    assert "steps and checkpoints run on 4 processes, agrees" in told.standing
    ran = [e for e in map(events.parse, done.out.splitlines()) if isinstance(e, events.Executed)]
    assert len(ran) == 2
    assert all(e.agrees and e.largest_relative_difference < 1e-9 for e in ran)
    assert "is the same on every rank along dp_replicate x dp_shard" in done.out
    text = (folder / "out" / "patch.diff").read_text()
    assert 'mesh=mesh["dp_replicate", "dp_shard"],' in text
    assert 'whole_over(model, mesh, ("dp_replicate", "dp_shard"), "avg")' in text
    assert (folder / "train_parallel.py").read_text() == "the owner's\n"


def _sealed(folder: Path, old: str, new: str) -> Done:
    """What `verify --recapture` says of a launcher that was edited, with its hash."""
    script, manifest = folder / "out" / "train_parallel.py", folder / "out" / "manifest.json"
    right, recorded = script.read_text(), manifest.read_text()
    assert right.count(old) == 1
    try:
        script.write_text(right.replace(old, new))
        facts = json.loads(recorded)
        facts["files"][script.name] = sha256(script)
        manifest.write_text(json.dumps(facts))
        return _do(folder, "verify", "out", "--recapture", "--json")
    finally:
        script.write_text(right)
        manifest.write_text(recorded)


ROWS = "[dp.get_local_rank()]"
PROVED = "# Proved: leaves"


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize(
    ("old", "new", "verdict", "says"),
    [
        ("SEED = 0", "SEED = 1", "proved", "train_step against one_step proved"),
        (ROWS, "[0]", "rejected", "train_parallel.py: "),
        (PROVED, "# Not proved: leaves", "unknown", "did not prove its step"),
        ("MICRO_BATCHES = 2", "MICRO_BATCHES = 2\nMESH = MESH", "unknown", "its mesh once"),
    ],
    ids=["as it is", "the same rows", "not proved before", "two meshes"],
)
def test_the_step_is_proved_once_more(
    made: tuple[Path, Done], old: str, new: str, verdict: str, says: str
) -> None:
    found = _sealed(made[0], old, new)
    assert found.last["verdict"] == verdict, found.out[-2000:]
    assert says in found.out


SCRIPT, PATCHED = "out/train_parallel.py", "net.py"
BOTH = '"dp_replicate", "dp_shard"'
LOSS = "all_reduce(total, group=dp.get_group())"
WRONG = {
    "rows of the first group": (SCRIPT, ROWS, '[mesh["dp_shard"].get_local_rank()]'),
    "loss of a group": (SCRIPT, LOSS, LOSS.replace("dp.", 'mesh["dp_shard"].')),
    "gradients of a group": (PATCHED, BOTH, '"dp_shard"'),
    "gradients of one rank a group": (PATCHED, BOTH, '"dp_replicate"'),
    "whole parameters added up": (PATCHED, '"avg"', '"sum"'),
}


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_edit_is_refuted(
    name: str, applied: tuple[Path, Done], here: Command, tmp_path: Path
) -> None:
    folder, done = applied
    edited, old, new = WRONG[name]
    for file in (SCRIPT, PATCHED):
        text = (folder / file).read_text()
        assert (old in text) or file != edited
        wrong = text.replace(old, new) if file == edited else text
        (tmp_path / Path(file).name).write_text(wrong)
    told = _told(done).check.replace(SCRIPT, Path(SCRIPT).name)
    tried = (*shlex.split(told)[2:], "--no-run", "--repair-seconds", "0", "--json")
    checked = here(*tried, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert checked.code == 1, checked.out
    assert checked.last["verdict"] == "refuted", checked.out


@pytest.mark.parametrize(
    ("mesh", "says"),
    [
        ("dp_replicate=2,dp=2", "do not stand with dp"),
        ("dp_replicate=2,dp_shard=2,cp=2", "do not stand with cp"),
        ("dp_shard=2,dp_replicate=2", "in this order"),
        ("dp_replicate=2,tp=2", "in this order"),
        ("dp_replicate=1,dp_shard=2", "in this order"),
    ],
)
def test_groups_that_are_none_are_one_error(
    mesh: str, says: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    done = command(*WORDS, "--mesh", mesh, "--out", "out", cwd=tmp_path)
    assert done.code == 2
    assert says in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()
