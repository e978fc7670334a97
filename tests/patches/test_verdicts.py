"""What is said of patches, against what they compute: attacks, their twins, some random models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
RANDOM = 12
FIRST = 100_000
"""Seeds far from those of `make patches`."""


@pytest.fixture(scope="module")
def ends(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """How every case ended, by the name of its model."""
    from benchmarks.patches.campaign import read

    results = tmp_path_factory.mktemp("patches") / "rows.jsonl"
    command = [sys.executable, "-m", "benchmarks.patches", "--results", str(results)]
    slices = [[str(f) for f in (*WRONG, *RIGHT)], ["--count", str(RANDOM), "--seed", str(FIRST)]]
    for which in slices:
        done = subprocess.run([*command, *which], cwd=root, capture_output=True, text=True)
        assert done.returncode in (0, 1), done.stderr
    out: dict[str, list[str]] = {}
    for row in read(results):
        out.setdefault(row.name, []).append(row.end)
    return out


@pytest.mark.parametrize("file", WRONG, ids=lambda f: f.stem)
def test_attack_is_not_proved_with_a_wrong_patch(ends: dict[str, list[str]], file: Path) -> None:
    (end,) = ends[f"wrong/{file.stem}"]
    assert end in ("proved", "stopped", "refused")


@pytest.mark.parametrize("file", RIGHT, ids=lambda f: f.stem)
def test_twin_is_proved(ends: dict[str, list[str]], file: Path) -> None:
    assert ends[f"right/{file.stem}"] == ["proved"]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RANDOM))
def test_random_model_is_not_proved_with_a_wrong_patch(
    ends: dict[str, list[str]], seed: int
) -> None:
    assert set(ends[str(seed)]) <= {"proved", "lost", "stopped", "refused"}
