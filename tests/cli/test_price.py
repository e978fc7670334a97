"""`shardproof price`: one line for each row, and one clear error for a file that cannot be read."""

from __future__ import annotations

from pathlib import Path

from tests.commands import ROOT, Command


def test_every_row_of_the_example_is_answered(here: Command) -> None:
    done = here("price", str(ROOT / "examples" / "price.jsonl"))
    assert done.code == 0
    assert [line["id"] for line in done.events] == ["fsdp", "tp x pp", "too large", "wrong degrees"]
    assert "does_not_fit" in done.events[2]
    assert set(done.last) == {"id", "error"}


def test_models_and_hardware_are_read_by_name(here: Command, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    named = '{"id": 1, "model": "llama3-8B", "hardware": "H100-dgx", "plan": {"n_gpus": 8}}'
    rows.write_text(named + '\n{"id": 2}\n')
    groups = ROOT / "benchmarks" / "tables" / "groups.json"
    done = here("price", str(rows), "--groups", str(groups))
    assert done.code == 0
    assert done.events[0]["step_s"] > 0
    assert done.last == {"id": 2, "error": "plan is missing"}


def test_a_file_that_cannot_be_read_is_one_error(here: Command, tmp_path: Path) -> None:
    done = here("price", str(tmp_path / "none.jsonl"))
    assert done.code == 2
    assert "cannot be read" in done.err
    assert "Traceback" not in done.err
