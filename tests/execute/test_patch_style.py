"""The patch of the example as a reviewer wants it: short, clean, nothing private, proved."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
RUFF = Path(sys.executable).with_name("ruff")


@pytest.fixture(scope="module")
def made(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example, patched, and what the run wrote."""
    folder = tmp_path_factory.mktemp("style")
    (folder / "examples").mkdir()
    shutil.copy(root / "examples" / "nanogpt.py", folder / "examples")
    shutil.copy(root / "pyproject.toml", folder)
    command = [sys.executable, "-m", "shardproof", "parallelize", "examples/nanogpt.py:GPT"]
    options = ["--mesh", "dp=2,tp=2", "--out", "out", "--no-run"]
    env = {"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, *options], cwd=folder, env=env, check=True, capture_output=True)
    shutil.copytree(folder / "out", folder / "kept")
    subprocess.run(["git", "apply", "out/patch.diff"], cwd=folder, check=True)
    return folder


def added(folder: Path) -> list[str]:
    lines = (folder / "kept" / "patch.diff").read_text().splitlines()
    return [line[1:] for line in lines if line.startswith("+") and not line.startswith("+++")]


def test_it_adds_few_lines_and_uses_nothing_private(made: Path) -> None:
    lines = added(made)
    assert len(lines) <= 45
    names = re.findall(r"[\w.]+", "\n".join(lines))
    dunder = {"__init__"}
    assert [n for n in names if re.search(r"(^|\.)_\w", n) and n not in dunder] == []


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]])
def test_ruff_has_nothing_to_say(made: Path, command: list[str]) -> None:
    done = subprocess.run([RUFF, *command, "."], cwd=made, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_it_names_the_certificate_that_proves_it(made: Path) -> None:
    digest = hashlib.sha256((made / "kept" / "certificate.json").read_bytes()).hexdigest()
    line = f"# Proved: certificate {digest[:12]}, checked by `shardproof verify out`."
    assert added(made).count(line) == 1
    manifest = json.loads((made / "kept" / "manifest.json").read_text())
    diff = hashlib.sha256((made / "kept" / "patch.diff").read_bytes()).hexdigest()
    assert (manifest["verdict"], manifest["patch"]["proved"]) == ("proved", diff)
    after = hashlib.sha256((made / "examples" / "nanogpt.py").read_bytes()).hexdigest()
    assert manifest["patch"]["files"]["examples/nanogpt.py"]["after"] == after
