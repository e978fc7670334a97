"""The command on the examples of the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Command

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


def test_a_wrong_module_is_refuted_at_its_line_and_mended(here: Command, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = here(
        *("check", "examples/check/wrong.py:WrongMLP", "--against", "examples/check/model.py:MLP"),
        *("--mesh", "tp=2", "--json", "--keep", str(kept)),
        cwd=ROOT,
    )
    assert done.code == 1, done.err
    events = done.events
    assert events[-1]["event"] == "run.completed"
    found = next(e for e in events if e["event"] == "verdict")
    lines = (ROOT / "examples/check/wrong.py").read_text().splitlines()
    wrong = next(n for n, line in enumerate(lines, 1) if "self.down.bias)" in line)
    assert found["verdict"] == "refuted"
    assert found["where"].startswith(f"wrong.py:{wrong} ")
    assert "verified fixes: the all_reduce" in found["message"]
    contract = next(e for e in events if e["event"] == "contract")["lines"]
    assert "parameter up.weight [16, 8]: S(0)@tp (from its shape)" in contract
    files = ("--sequential", "one.txt"), ("--distributed", "ranks.txt")
    again = here(
        "verify",
        *(part for option, name in files for part in (option, str(kept / name))),
        *("--contract", str(kept / "contract.json")),
    )
    assert again.code == 1, again.err


def test_what_cannot_be_used_ends_in_one_error(here: Command) -> None:
    words = ("examples/check/parallel.py:ParallelMLP", "--against", "no.py:MLP", "--mesh=x")
    done = here("check", *words, cwd=ROOT)
    assert done.code == 2
    assert "cannot read the mesh dim 'x'" in done.err
    assert "Traceback" not in done.err
