"""A launcher whose ranks split the sequence: proved and run, and wrong edits of it refuted."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from shardproof.agent.run import events
from tests.commands import COMMAND, Done, environment

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.gloo, pytest.mark.campaign]

GPT = Path(__file__).parents[2] / "examples" / "nanogpt.py"
SIZES = (
    ("block_size: int = 64", "block_size: int = 8"),
    ("vocab_size: int = 256", "vocab_size: int = 32"),
    ("n_layer: int = 4", "n_layer: int = 1"),
    ("n_embd: int = 64", "n_embd: int = 16"),
    ("seq: int = 32", "seq: int = 8"),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A folder with the model and what `parallelize` wrote, the patch applied."""
    folder = tmp_path_factory.mktemp("context")
    text = GPT.read_text()
    for old, new in SIZES:
        text = text.replace(old, new)
    (folder / "gpt.py").write_text(text)
    words = ("gpt.py:GPT", "--mesh", "dp=2,cp=2", "--launcher", "--micro-batches", "2")
    done = _do(folder, "parallelize", *words, "--out", "out", "--json")
    assert done.code == 0, done.out + done.err
    assert _do(folder, "apply", "out", "--yes", "--no-recapture").code == 0
    return folder, done


def _do(folder: Path, *words: str, **extra: str) -> Done:
    done = subprocess.run(
        (*COMMAND, *words), cwd=folder, env=environment(**extra), capture_output=True, text=True
    )
    return Done(done.returncode, done.stdout, done.stderr)


def _told(done: Done) -> events.LauncherJudged:
    parsed = [events.parse(line) for line in done.out.splitlines()]
    (found,) = [e for e in parsed if isinstance(e, events.LauncherJudged)]
    return found


def test_three_steps_over_rows_are_proved_and_agree(made: tuple[Path, Done]) -> None:
    told = _told(made[1])
    assert told.verdict == "proved", told.message
    assert "steps and checkpoints run on 4 processes, agrees" in told.standing
    ran = [e for e in map(events.parse, made[1].out.splitlines()) if isinstance(e, events.Executed)]
    assert len(ran) == 2
    assert all(e.agrees and e.largest_relative_difference < 1e-9 for e in ran)
    assert _do(made[0], "verify", "out").code == 0


NORM = "norm = clip_grad_norm_(model.parameters(), CLIP).full_tensor()\n    "
LOCAL = """norm = torch.stack([p.grad.to_local().norm() for p in model.parameters()]).norm()
    dist.all_reduce(norm.square_(), group=cp.get_group())
    norm = norm.sqrt()
    for p in model.parameters():
        p.grad.mul_(CLIP / (norm + CLIP))
    """
WRONG = {
    "norm over the ranks of cp alone": (NORM, LOCAL),
    "loss of own rows": ("    dist.all_reduce(total, group=cp.get_group())\n", ""),
    "loss added up": (" / cp.size()", ""),
    "sequences by the other mesh dim": ("[dp.get_local_rank()]", "[cp.get_local_rank()]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_edit_is_refuted_without_a_run(made: tuple[Path, Done], name: str) -> None:
    folder, done = made
    script = folder / "out" / "train_parallel.py"
    right, (old, new) = script.read_text(), WRONG[name]
    assert old in right
    try:
        script.write_text(right.replace(old, new))
        path = f"{folder}:{environment()['PYTHONPATH']}"
        words = shlex.split(_told(done).check)[2:]
        found = _do(folder, *words, "--no-run", "--repair-seconds", "0", "--json", PYTHONPATH=path)
    finally:
        script.write_text(right)
    assert found.last["verdict"] == "refuted", found.out[-2000:]
