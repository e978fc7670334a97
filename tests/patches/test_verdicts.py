"""What is said of patches, against what they compute: attacks, their twins, some random models."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.gloo,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("gloo"),
]

ATTACKS = Path(__file__).parent / "attacks"
WRONG, RIGHT = (sorted((ATTACKS / side).glob("*.py")) for side in ("wrong", "right"))
FIRST = 100_000
"""Seeds far from those of `make patches`."""
RANDOM = 12
"""Models drawn."""
EVERY = 12
"""Of how many attacks, of their twins and of the models drawn, one is no campaign."""


def some(values: Sequence[Any]) -> list[Any]:
    """Parameters of which one in `EVERY` is for every run."""
    late = pytest.mark.campaign
    return [pytest.param(v, marks=late if i % EVERY else []) for i, v in enumerate(values)]


@pytest.fixture(scope="module")
def ends(
    root: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """How every case that is asked for ended, by the name of its model."""
    from benchmarks.patches.campaign import read

    asked = [i for i in request.session.items if i.path == Path(__file__)]
    drawn = [i.callspec.params for i in asked if isinstance(i, pytest.Function)]
    files = [str(given["file"]) for given in drawn if "file" in given]
    seeds = [f"--only={given['seed']}" for given in drawn if "seed" in given]
    results = tmp_path_factory.mktemp("patches") / "rows.jsonl"
    command = [sys.executable, "-m", "benchmarks.patches", "--results", str(results)]
    done = subprocess.run([*command, *files, *seeds], cwd=root, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    out: dict[str, list[str]] = {}
    for row in read(results):
        out.setdefault(row.name, []).append(row.end)
    return out


@pytest.mark.parametrize("file", some(WRONG), ids=lambda f: f.stem)
def test_attack_is_not_proved_with_a_wrong_patch(ends: dict[str, list[str]], file: Path) -> None:
    (end,) = ends[f"wrong/{file.stem}"]
    assert end in ("proved", "stopped", "refused")


@pytest.mark.parametrize("file", some(RIGHT), ids=lambda f: f.stem)
def test_twin_is_proved(ends: dict[str, list[str]], file: Path) -> None:
    assert ends[f"right/{file.stem}"] == ["proved"]


@pytest.mark.parametrize("seed", some(range(FIRST, FIRST + RANDOM)))
def test_random_model_is_not_proved_with_a_wrong_patch(
    ends: dict[str, list[str]], seed: int
) -> None:
    assert set(ends[str(seed)]) <= {"proved", "lost", "stopped", "refused"}
