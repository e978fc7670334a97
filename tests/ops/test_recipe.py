"""CONTRIBUTING's recipe is followed: an op is one file, and a line of capture where PyTorch has it.

Three ops are added to a copy of the tree; the laws, the refuter, the provers, the checker, repair,
the page of ops and capture are asked about them there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT, HERE = Path(__file__).parents[2], Path(__file__).parent / "recipe"
FOLDERS = ("agent", "benchmarks", "prompts", "shardproof", "synthesis", "verifier")
OPS = ("mish", "amin", "cumprod")
CAPTURE = """
aten("amin.default")(lambda e, x, dims=(): e.add("amin", x, dims=e.dims(x, list(dims))))
aten("cumprod.default")(lambda e, x, dim: e.add("cumprod", x, dim=e.dim(x, dim)))
"""
"""A line an op; a function of one number needs none."""
COMPOSED = ('"amin.default", ', '@aten("cumprod.default")\n')
"""Capture makes these of other ops, until they are ops of their own."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tree")
    skip = shutil.ignore_patterns("__pycache__", ".venv", "*.pyc")
    for name in (*FOLDERS, "tests/checker", "tests/laws", "tests/ops"):
        shutil.copytree(ROOT / name, out / name, ignore=skip, symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", out)
    for name in OPS:
        shutil.copy(HERE / f"{name}.py", out / "verifier" / "ops")
    views = out / "synthesis/frontends/torch/aten/views.py"
    text = views.read_text(encoding="utf-8")
    for composed in COMPOSED:
        assert text.count(composed) == 1
        text = text.replace(composed, "")
    views.write_text(text + CAPTURE, encoding="utf-8")
    return out


def run(tree: Path, *args: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_the_laws_try_new_ops(tree: Path) -> None:
    run(tree, "tests/laws", "tests/checker/test_rules.py", "-k", " or ".join(OPS))


@pytest.mark.slow
def test_all_else_follows_from_the_declarations(tree: Path) -> None:
    run(tree, "tests/ops/recipe/follows.py")
