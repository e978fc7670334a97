"""Observations of many targets, made by one process, once for all workers of a test run."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from filelock import FileLock

from shardproof.agent.translation.trial import Trial
from shardproof.synthesis.frontends.torch import captured, observed
from shardproof.synthesis.frontends.torch.request import InputSpec

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = ROOT / "examples" / "untraceable"
NAMES = tuple(sorted(path.stem for path in FILES.glob("*.py")))

Try = Callable[[Sequence[str], Path], list[observed.Observed | str]]


def last_class(path: Path) -> str:
    """The model of an example is the last class in its file."""
    tree = ast.parse(path.read_text())
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)][-1]


def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of a test run have in common."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def try_all(targets: Sequence[str], folder: Path) -> list[observed.Observed | str]:
    """What was observed of each target, or the message of its error.

    The first that asks makes the folder; whoever else does reads it.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "pool.py"), str(folder), *targets]
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
    out: list[observed.Observed | str] = []
    for number in range(len(targets)):
        report = json.loads((folder / str(number) / "report.json").read_text())
        error = report.get("error")
        text = "" if error else (folder / str(number) / captured.RESULT).read_text()
        out.append(error["message"] if error else captured.load(observed.Observed, text))
    return out


@pytest.fixture(scope="session")
def trials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trial]:
    """A trial of every example, by name."""
    paths = [FILES / f"{name}.py" for name in NAMES]
    targets = [f"{path}:{last_class(path)}" for path in paths]
    found = try_all(targets, shared(tmp_path_factory) / "untraceable")
    out: dict[str, Trial] = {}
    for name, path, made in zip(NAMES, paths, found, strict=True):
        assert not isinstance(made, str), f"{name}: {made}"
        out[name] = Trial(made, last_class(path), (InputSpec("x", (4, 8)),))
    return out
