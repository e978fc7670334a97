"""What patches compute is found out: wrong ones beside right ones, by running them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.gloo,
    pytest.mark.slow,
    pytest.mark.xdist_group("gloo"),
]

HERE = Path(__file__).parent
WRONG, RIGHT = (sorted((HERE / "attacks" / side).glob("*.py")) for side in ("wrong", "right"))
LATE = 3
"""Of how many attacks and twins one is no campaign; both that do not run are among them."""
DOES_NOT_RUN = ("mean_of_weight", "weight_used_twice")
"""Their split weight meets a tensor of one rank."""
EQUAL = "Have the same number of unmasked labels on every dp rank: ..."
COUNTED = '''"""The mean over labels that count."""

# mesh: dp=2

from torch import nn, randint, randn
from torch.nn import functional as F


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 8)

    def forward(self, x, target):
        y = self.down(F.relu(self.up(x)))
        return y, F.cross_entropy(y, target, ignore_index=-1)


def example_inputs():
    return {"x": randn(8, 16), "target": randint(0, 8, (8,))}
'''


def truths(root: Path, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In a process of its own: it is forked, and pytest's has threads."""
    command = [sys.executable, str(HERE / "naive.py"), json.dumps(cases)]
    done = subprocess.run(
        command, cwd=root, env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def some(files: Sequence[Path]) -> list[Any]:
    """Parameters of which one in `LATE` is for every run."""
    late = pytest.mark.campaign
    return [pytest.param(file, marks=late if i % LATE != 1 else []) for i, file in enumerate(files)]


@pytest.fixture(scope="module")
def judged(root: Path, request: pytest.FixtureRequest) -> dict[Path, dict[str, Any]]:
    """What is true of every file that is asked for."""
    asked = [i for i in request.session.items if isinstance(i, pytest.Function)]
    here = [
        i.callspec.params for i in asked if i.path == Path(__file__) and "judged" in i.fixturenames
    ]
    files: list[Path] = [cast(Path, given["file"]) for given in here]
    return dict(zip(files, truths(root, [{"file": str(f)} for f in files]), strict=True))


def test_every_attack_has_a_twin() -> None:
    assert [f.name for f in WRONG] == [f.name for f in RIGHT]
    assert len(WRONG) == 18


@pytest.mark.timeout(900)
@pytest.mark.parametrize("file", some(WRONG), ids=lambda f: f.stem)
def test_attack_is_found_wrong(judged: dict[Path, dict[str, Any]], file: Path) -> None:
    expected = "broken" if file.stem in DOES_NOT_RUN else "wrong"
    assert judged[file]["word"] == expected, judged[file]["said"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("file", some(RIGHT), ids=lambda f: f.stem)
def test_twin_is_found_right(judged: dict[Path, dict[str, Any]], file: Path) -> None:
    assert judged[file]["word"] == "right", judged[file]["said"]


def test_unequal_counts_bind_where_no_obligation_forbids_them(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "counted.py"
    file.write_text(COUNTED)
    said = {"file": str(file), "obligations": [EQUAL]}
    claims, every, obliged = truths(
        root, [{**said, "loss": "token_mean"}, {"file": str(file)}, said]
    )
    assert claims["word"] == every["word"] == "wrong"
    assert obliged["word"] == "right"
    broken = [d for d in obliged["draws"] if not d["binding"]]
    assert [d["draw"]["labels"] for d in broken] == ["unequal", "one-sided"]
    assert max(d["difference"] for d in broken) > 0.01


def test_gradients_that_are_summed_are_right_for_a_sum(root: Path) -> None:
    file = str(HERE / "attacks" / "wrong" / "summed_loss.py")
    more = ["model.set_gradient_divide_factor(1.0)"]
    summed, averaged, as_mean = truths(
        root,
        [
            {"file": file, "loss": "sum", "more": more},
            {"file": file, "loss": "sum"},
            {"file": file, "loss": "mean", "more": more},
        ],
    )
    assert summed["word"] == "right", summed["said"]
    assert averaged["word"] == as_mean["word"] == "wrong"
