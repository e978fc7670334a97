"""Two batches side by side: what broke comes first, and alone makes the exit code."""

from pathlib import Path
from typing import Any

import pytest

from shardproof.agent.batch.comparing import changes, compare
from shardproof.agent.batch.rows import Cause, Row
from shardproof.agent.run.errors import InputError


def row(name: str, **more: Any) -> Row:
    base: dict[str, Any] = {"target": "m.py:M", "mesh": "tp=2", "ranks": 2, "hardware": "h100"}
    return Row(name=name, **{**base, "status": "proved", "useful": True, **more})


def kinds(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [c.kind for c in changes({"a": row("a", **old)}, {"a": row("a", **new)})]


def test_a_proof_that_is_gone_broke() -> None:
    said = {"status": "refused", "useful": None, "cause": Cause(message="no rule")}
    assert kinds({}, said) == ["broke"]
    assert kinds(said, {}) == ["better"]
    (found,) = changes({"a": row("a")}, {"a": row("a", **said)})
    assert found.text == "proved -> refused (no rule)"


def test_a_plan_that_is_useful_no_more_broke() -> None:
    assert kinds({}, {"useful": False}) == ["broke"]
    assert kinds({"agrees": True}, {"agrees": False}) == ["broke"]


def test_what_is_the_same_or_did_not_run_is_no_change() -> None:
    assert kinds({}, {"seconds": 0.9}) == []
    assert kinds({}, {"status": "not run"}) == []
    assert kinds({"seconds": 4}, {"seconds": 7}) == ["slower"]


def test_a_folder_without_a_summary_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no summary"):
        compare(tmp_path, tmp_path)
