"""Lesser guards on real gloo ranks: each is found out, and the guard as it is is not."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch", allow_module_level=True)
pytestmark = [pytest.mark.torch, pytest.mark.gloo]


def test_every_lesser_guard_is_found_out() -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.guard_mutants"],
        env=env, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 mutants" in done.stdout
