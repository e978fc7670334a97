"""A wheel has one top-level package, and works beside files of the owner's with common names."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
COMMON = ("agent", "prompts", "synthesis", "verifier")
MODEL = """
import torch
from agent import BIAS
from prompts import WIDTH
from synthesis import SLOPE
from torch import nn
from verifier import reward


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, WIDTH, bias=BIAS)
        self.down = nn.Linear(WIDTH, 8, bias=BIAS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return reward(self.down(nn.functional.leaky_relu(self.up(x), SLOPE)))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the sources."""
    copy = tmp_path_factory.mktemp("copy") / "tree"
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in (*COMMON, "shardproof"):
        shutil.copytree(ROOT / name, copy / name, ignore=skip, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    (copy / "shardproof-out").mkdir()  # as `parallelize` leaves it in a checkout
    (copy / "shardproof-out" / "plan.json").write_text("{}")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(copy.parent), str(copy)], check=True, timeout=120)
    (made,) = copy.parent.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def project(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the owner's, with modules whose names are those of our folders."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "agent").mkdir()
    (folder / "agent" / "__init__.py").write_text("BIAS = False\n")
    (folder / "prompts.py").write_text("WIDTH = 16\n")
    (folder / "synthesis.py").write_text("SLOPE = 0.1\n")
    (folder / "verifier.py").write_text("def reward(x):\n    return 2 * x\n")
    (folder / "model.py").write_text(MODEL)
    return folder


def installed(wheel: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the wheel, in a folder; nothing of the checkout is on the path."""
    library = wheel.parent / "installed"
    if not library.is_dir():
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(library)
    return subprocess.run(
        [sys.executable, "-m", "shardproof", *words],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(wheel.parent), "PYTHONPATH": str(library)},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_it_has_one_top_level_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.split("/")[0] for n in names if ".dist-info/" not in n} == {"shardproof"}
    tops = {n.split("/")[1] for n in names}
    assert {*COMMON, "compat", "runtime", "api.py"} <= tops


@pytest.mark.parametrize("command", ["parallelize", "check", "verify", "batch", "chat"])
def test_its_commands_are_there(wheel: Path, project: Path, command: str) -> None:
    done = installed(wheel, project, command, "--help")
    assert done.returncode == 0, done.stderr
    assert command in done.stdout


@pytest.mark.torch
@pytest.mark.gloo
def test_a_model_that_imports_modules_of_common_names_is_proved(wheel: Path, project: Path) -> None:
    words = ("model.py:Net", "--input", "x=f32[4,8]", "--mesh", "tp=2", "--out", "out")
    done = installed(wheel, project, "parallelize", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "patch: read again and proved | run on 2 processes, agrees" in done.stdout


def test_in_a_checkout_there_is_one_copy_of_each_module() -> None:
    code = (
        "import shardproof.verifier.problem as one\n"
        "from verifier.problem import Problem\n"
        "from verifier import *\n"
        "assert Problem is one.Problem and verify is not None"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
