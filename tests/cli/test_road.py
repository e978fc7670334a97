"""The whole road on a small model, and what `verify` makes of the directory afterwards."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardproof.agent.patching import describe
from shardproof.agent.run import events, outdir
from shardproof.synthesis.emit.patch import patch
from tests.commands import COMMAND, ROOT, Command, Done, environment

pytestmark = [pytest.mark.torch, pytest.mark.gloo]

MODEL = """import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 8)

    def forward(self, x, target):
        print("a model that prints")
        logits = self.down(torch.relu(self.up(x)))
        return F.cross_entropy(logits, target)


def example_inputs():
    return {"x": torch.zeros(8, 16), "target": torch.zeros(8, dtype=torch.int64)}
"""


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """The folder that a run wrote to, and the run."""
    folder = tmp_path_factory.mktemp("road")
    (folder / "net.py").write_text(MODEL)
    arguments = ["parallelize", "net.py:Net", "--mesh", "tp=2", "--out", "out", "--run", "--json"]
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=environment(), capture_output=True, text=True
    )
    return folder, Done(done.returncode, done.stdout, done.stderr)


def test_a_proved_plan_runs_and_agrees(road: tuple[Path, Done]) -> None:
    _, done = road
    assert done.code == 0, done.out + done.err
    parsed = [events.parse(line) for line in done.out.splitlines()]
    phases = [e.phase for e in parsed if isinstance(e, events.PhaseCompleted)]
    done_first = ["capture", "inspect", "plan", "emit", "read", "check", "run"]
    assert phases == [*done_first, "report"]
    (ran,) = [e for e in parsed if isinstance(e, events.Executed)]
    assert ran.processes == 2
    assert ran.agrees
    assert ran.largest_relative_difference <= 1e-9
    last = parsed[-1]
    assert isinstance(last, events.RunCompleted)
    assert (last.verdict, last.exit_code) == ("proved", 0)


def test_the_directory_holds_what_the_docs_name(road: tuple[Path, Done]) -> None:
    folder, _ = road
    names = {p.name for p in (folder / "out").iterdir()}
    page = (ROOT / "docs" / "getting-started.md").read_text()
    assert all(f"`{name}`" in page for name in names)
    assert {p.name for p in folder.iterdir()} == {"net.py", "out"}
    lines = (folder / "out" / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["event"] == "run.completed"


def test_the_patch_applies_to_the_file(road: tuple[Path, Done], tmp_path: Path) -> None:
    folder, _ = road
    shutil.copy(folder / "net.py", tmp_path)
    patch = folder / "out" / "patch.diff"
    subprocess.run(["git", "apply", str(patch)], cwd=tmp_path, check=True)
    assert "def parallelize(" in (tmp_path / "net.py").read_text()


def test_verify_accepts_it_without_torch_or_z3(road: tuple[Path, Done]) -> None:
    folder, _ = road
    code = (
        "import sys\nsys.argv = ['shardproof', 'verify', 'out', '--json']\n"
        "from shardproof.agent.cli.main import main\ntry:\n    main()\nfinally:\n"
        "    print(sorted({'torch', 'transformers', 'z3'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    *stream, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    assert json.loads(stream[-1])["verdict"] == "accepted"


def test_the_last_lines_and_the_report_say_what_was_done_with_the_patch(
    road: tuple[Path, Done],
) -> None:
    folder, done = road
    (verdict,) = (e for e in done.events if e["event"] == "verdict")
    assert verdict["patch"] == "read again and proved | run on 2 processes, agrees"
    for name in ("report.md", "report.html"):
        text = (folder / "out" / name).read_text().replace("\\|", "|")
        assert verdict["patch"] in text
        assert "o language model was asked" in text


def _patched(road: tuple[Path, Done], tmp_path: Path) -> str:
    """The owner's file as the patch leaves it."""
    folder = tmp_path / "patched"
    folder.mkdir()
    shutil.copy(road[0] / "net.py", folder)
    subprocess.run(["git", "apply", road[0] / "out" / "patch.diff"], cwd=folder, check=True)
    return (folder / "net.py").read_text()


def test_the_patch_is_read_again_where_that_is_asked_for(
    road: tuple[Path, Done], here: Command
) -> None:
    right = here("verify", "out", "--recapture", cwd=road[0])
    assert (right.code, right.out) == (0, "proved\n"), right.err
    assert "2 of 2 ranks traced" in right.err


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("torch.relu(", "2 * torch.relu(", "rejected"),
        ('tp = mesh["tp"]', 'tp = mesh["dp"]', "unknown"),
    ],
    ids=["computes something else", "does not run"],
)
def test_a_forged_patch_is_found_out_where_it_is_read(
    road: tuple[Path, Done], here: Command, tmp_path: Path, old: str, new: str, word: str
) -> None:
    """Its hashes fit: without reading it the directory is accepted, and nothing more is said."""
    out, tree = _copy(road, tmp_path), tmp_path / "tree"
    tree.mkdir()
    shutil.copy(road[0] / "net.py", tree)
    right = _patched(road, tmp_path)
    wrong = right.replace(old, new)
    assert wrong != right
    diff = patch({"net.py": (MODEL, wrong)}, (), "").diff
    (out / "patch.diff").write_text(diff)
    manifest = json.loads((out / outdir.MANIFEST).read_text())
    manifest["patch"] |= describe({"net.py": (MODEL, wrong)}, {}, proved=True, read=diff)
    (out / outdir.MANIFEST).write_text(json.dumps(manifest))
    _reseal(out)
    quick = here("verify", str(out), cwd=tree)
    assert quick.out == "accepted\n"
    assert "not read again" in quick.err
    done = here("apply", str(out), "--yes", "--json", cwd=tree)
    assert (done.code, done.last["verdict"]) == (1, word), done.out
    (verdict,) = (e for e in done.events if e["event"] == "verdict")
    assert verdict["message"].startswith("patch.diff: ") is (word == "rejected")
    assert (tree / "net.py").read_text() == MODEL


@pytest.mark.parametrize(
    ("request_", "what"),
    [(None, "does not say what was captured"), ("other.py:Net", "that the patch does not change")],
)
def test_a_patch_is_read_only_with_the_model_that_it_is_for(
    road: tuple[Path, Done], here: Command, tmp_path: Path, request_: str | None, what: str
) -> None:
    out = _copy(road, tmp_path)
    manifest = json.loads((out / outdir.MANIFEST).read_text())
    if request_ is None:
        del manifest["request"]
    else:
        manifest["request"]["target"] = request_
        (tmp_path / "other.py").write_text("raise SystemExit('it was run')\n")
    (out / outdir.MANIFEST).write_text(json.dumps(manifest))
    shutil.copy(road[0] / "net.py", tmp_path)
    done = here("verify", str(out), "--recapture", cwd=tmp_path)
    assert done.code == 2, done.err
    assert what in done.err


def test_a_file_beside_the_model_hides_no_module_of_python(tmp_path: Path) -> None:
    """A `glob.py` of the owner is his; no process of ours imports it for Python's own."""
    (tmp_path / "net.py").write_text(MODEL)
    for name in ("glob", "random", "tempfile"):
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('{name}.py of the owner')\n")
    arguments = ("parallelize", "net.py:Net", "--mesh", "tp=2", "--out", "out", "--run")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "shardproof", *arguments],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "run on 2 processes, agrees" in done.stdout


def _copy(road: tuple[Path, Done], tmp_path: Path) -> Path:
    return Path(shutil.copytree(road[0] / "out", tmp_path / "out"))


@pytest.mark.parametrize("name", ["patch.diff", "certificate.json", "contract.json", "report.md"])
def test_verify_notices_a_changed_file(
    road: tuple[Path, Done], here: Command, tmp_path: Path, name: str
) -> None:
    out = _copy(road, tmp_path)
    (out / name).write_bytes((out / name).read_bytes() + b" ")
    done = here("verify", str(out), "--json")
    assert done.code == 1
    assert done.last["verdict"] == "rejected"
    assert name in done.out


def test_verify_notices_a_missing_and_an_added_file(
    road: tuple[Path, Done], here: Command, tmp_path: Path
) -> None:
    out = _copy(road, tmp_path)
    (out / "plan.json").unlink()
    (out / "more.txt").write_text("")
    done = here("verify", str(out))
    assert done.code == 1
    assert "more.txt, plan.json" in done.err


def _reseal(out: Path) -> None:
    """What a forger would do: hashes that fit the changed files."""
    manifest = json.loads((out / outdir.MANIFEST).read_text())
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256((out / name).read_bytes()).hexdigest()
    (out / outdir.MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("distributed.json", '"op": "relu"', '"op": "silu"'),
        ("plan.json", '"tp": "S(0)"', '"tp": "R"'),
        ("certificate.json", '"factor":"1/1"', '"factor":"2/1"'),
    ],
)
def test_verify_rejects_a_forged_directory(
    road: tuple[Path, Done], here: Command, tmp_path: Path, name: str, old: str, new: str
) -> None:
    out = _copy(road, tmp_path)
    text = (out / name).read_text()
    assert old in text
    (out / name).write_text(text.replace(old, new, 1))
    _reseal(out)
    done = here("verify", str(out))
    assert (done.code, done.out) == (1, "rejected\n"), done.err


def test_force_replaces_an_earlier_run_but_no_changed_file(
    road: tuple[Path, Done], here: Command, tmp_path: Path
) -> None:
    out = _copy(road, tmp_path)
    outdir.check_free(out, force=True)
    (out / "patch.diff").write_text("edited by hand")
    arguments = ["parallelize", f"{road[0] / 'net.py'}:Net", "--mesh", "tp=2", "--out", str(out)]
    done = here(*arguments, "--force")
    assert done.code == 2
    assert "patch.diff" in done.err
    assert (out / "patch.diff").read_text() == "edited by hand"


def test_verify_of_a_directory_that_is_not_ours(here: Command, tmp_path: Path) -> None:
    done = here("verify", str(tmp_path), "--json")
    assert done.code == 2
    assert done.last["exit_code"] == 2


def test_verify_of_nothing(here: Command) -> None:
    assert here("verify").code == 2


def test_two_programs_under_a_contract(
    road: tuple[Path, Done], here: Command, tmp_path: Path
) -> None:
    out = road[0] / "out"
    files = {"sequential": "program", "distributed": "distributed", "contract": "contract"}
    arguments = [x for k, name in files.items() for x in (f"--{k}", str(out / f"{name}.json"))]
    done = here("verify", *arguments)
    assert done.code == 0, done.err
    wrong = json.loads((out / "distributed.json").read_text())
    reduce = next(n for n in wrong["nodes"] if n["op"] == "all_reduce")
    reduce["op"], reduce["attrs"] = "neg", {}
    arguments[3] = str(tmp_path / "wrong.json")
    Path(arguments[3]).write_text(json.dumps(wrong))
    done = here("verify", *arguments, "--json")
    assert done.code == 1
    assert done.last["verdict"] == "refuted"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupt_during_capture_leaves_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    began = tmp_path_factory.mktemp("began") / "capture"
    wait = f"import time; open({str(began)!r}, 'w').close(); time.sleep(60)"
    text = MODEL.replace('print("a model that prints")', wait)
    (tmp_path / "net.py").write_text(text)
    arguments = ["parallelize", "net.py:Net", "--mesh", "tp=2", "--out", "deep/out", "--json"]
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while not began.exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(getattr(signal, name))
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["exit_code"] == 130
    assert [p.name for p in tmp_path.iterdir()] == ["net.py"]


def test_a_model_that_hangs_ends_in_time(command: Command, tmp_path: Path) -> None:
    text = MODEL.replace('print("a model that prints")', "import time; time.sleep(60)")
    (tmp_path / "net.py").write_text(text)
    target = f"{tmp_path / 'net.py'}:Net"
    done = command(
        "parallelize", target, "--mesh", "tp=2", "--out", "o", "--timeout", "5", "--json"
    )
    assert done.code == 4
    assert done.last["exit_code"] == 4
