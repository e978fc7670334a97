"""`translate` and `parallelize --translation`: prompts, replies, exit codes, what is written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from shardproof.agent.cli.main import main as cli
from shardproof.agent.translation import command
from shardproof.agent.translation.trial import Trial
from shardproof.synthesis.frontends.torch.observed import Observed
from tests.untraceable.conftest import FILES, ROOT, last_class

pytestmark = pytest.mark.torch

REPLIES = Path(__file__).parent / "replies"


@pytest.fixture
def shardproof(
    trials: dict[str, Trial],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    """Runs a command line on examples that were observed before."""

    def attempt(request, progress) -> Observed:
        del progress
        return trials[Path(request.target.rpartition(":")[0]).stem].observed

    monkeypatch.setattr(command, "attempt", attempt)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: str, first: Sequence[str] = ("translate",)):
        target = f"{FILES / f'{name}.py'}:{last_class(FILES / f'{name}.py')}"
        monkeypatch.setattr(sys, "argv", ["shardproof", *first, target, *arguments])
        with pytest.raises(SystemExit) as ended:
            cli()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


def events(out: str) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for line in out.splitlines():
        event = json.loads(line)
        found.setdefault(event["event"], []).append(event)
    return found


def reply(name: str) -> str:
    return str(REPLIES / f"{name}.txt")


def test_the_prompt_is_shown_and_nothing_is_asked(shardproof) -> None:
    code, out, _ = shardproof("triton_rms_norm", "--show-prompt")
    assert code == 0
    assert "=== system ===" in out
    assert "Only the class RMSNorm is to be translated" in out
    assert "param %weight: f32[8]" in out
    assert "RMS norm by a Triton kernel" not in out


def test_without_a_model_the_reason_is_told(shardproof) -> None:
    code, out, err = shardproof("halving")
    assert code == 3
    assert "data-dependent branch" in out
    assert "halving.py:10" in out
    assert "--show-prompt" in out
    assert "no language model" in err


def test_a_wrong_reply_then_a_right_one(shardproof, tmp_path: Path) -> None:
    code, out, _ = shardproof(
        "squared_relu",
        *("--reply", reply("squared_relu.wrong_scale"), "--reply", reply("squared_relu.right")),
        *("--out", str(tmp_path / "program.txt"), "--json"),
    )
    assert code == 0
    told = events(out)
    (refused,) = told["not.captured"]
    line = "y = torch.from_numpy(x.detach().numpy().clip(0))"
    assert refused["where"] == f"squared_relu.py:10   {line}"
    assert refused["subjects"] == ["act"]
    assert refused["runs"] is True
    (differs,) = told["translation.differs"]
    assert "everywhere 2 times" in str(differs["lines"])
    (ended,) = told["translation"]
    assert (ended["end"], ended["asked"]) == ("bound", 2)
    assert (tmp_path / "program.txt").read_text().startswith("program FeedForward")


@pytest.mark.parametrize(
    ("name", "said", "code"),
    [
        ("apex_norm", "display-only: nothing was compared", 1),
        ("low_memory_gelu", "low_memory_gelu.py:19: the backward of LowMemoryGELU", 1),
    ],
)
def test_what_is_not_bound_does_not_exit_as_done(
    shardproof, name: str, said: str, code: int
) -> None:
    given = ("--input", "x=f32[4,8]") if name == "apex_norm" else ()
    ended, out, _ = shardproof(name, "--reply", reply(f"{name}.right"), *given)
    assert ended == code
    assert said in out


def test_a_wrong_reply_alone_is_not_done(shardproof) -> None:
    code, out, _ = shardproof("flash_import", "--reply", reply("flash_import.wrong_mask"))
    assert code == 1
    assert "%y = sdpa, tagged with line 27" in out


def test_a_bound_program_is_planned_and_proved_without_a_patch(shardproof, tmp_path: Path) -> None:
    program = tmp_path / "program.txt"
    shardproof("squared_relu", "--reply", reply("squared_relu.right"), "--out", str(program))
    code, out, err = shardproof(
        "squared_relu",
        *("--mesh", "tp=2", "--out", "out", "--translation", str(program)),
        first=("parallelize",),
    )
    assert code == 0, err
    assert out.startswith("proved")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["verdict"] == "proved"
    assert any("The translation agrees with FeedForward" in a for a in manifest["assumptions"])
    assert not (tmp_path / "out" / "patch.diff").exists()
    report = (tmp_path / "out" / "report.md").read_text()
    assert "The translation agrees with FeedForward" in report


def test_a_changed_program_is_refuted(shardproof, tmp_path: Path) -> None:
    program = tmp_path / "program.txt"
    shardproof("squared_relu", "--reply", reply("squared_relu.right"), "--out", str(program))
    program.write_text(program.read_text().replace("relu %", "abs %"))
    code, out, _ = shardproof(
        "squared_relu",
        *("--mesh", "tp=2", "--out", "out", "--translation", str(program)),
        first=("parallelize",),
    )
    assert code == 1
    assert out.startswith("not bound to the code:")
    assert "output output[" in out
    assert not (tmp_path / "out").exists()


def test_a_program_of_another_model_is_an_input_error(shardproof, tmp_path: Path) -> None:
    program = tmp_path / "program.txt"
    program.write_text((REPLIES / "squared_relu.right.txt").read_text())
    code, _, err = shardproof(
        "squared_relu",
        *("--mesh", "tp=2", "--out", "out", "--translation", str(program)),
        first=("parallelize",),
    )
    assert code == 2
    assert "another input than the model" in err


def test_display_only_writes_nothing(shardproof, tmp_path: Path) -> None:
    code, out, _ = shardproof(
        "apex_norm",
        *("--mesh", "tp=2", "--out", "out", "--translation", reply("apex_norm.right")),
        first=("parallelize",),
    )
    assert code == 1
    assert out.startswith("display-only: the plan is proved for the translation")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_whole_way_in_a_process_of_its_own(tmp_path: Path) -> None:
    target = f"{FILES / 'squared_relu.py'}:FeedForward"
    words = [sys.executable, "-m", "shardproof", "translate", target]
    words += ["--reply", reply("squared_relu.right"), "--json"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (ended,) = events(done.stdout)["translation"]
    assert ended["end"] == "bound"
