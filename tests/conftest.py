"""What every test shares: where the project is, and an environment without a model endpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OPEN = "test_open_strategy_computes_the_step_and_is_not_refuted"
PROVED = "test_step_is_proved_and_every_rank_computes_it"
CAMPAIGNS = (
    f"test_strategies.py::{OPEN}[ring attention]",
    f"test_strategies.py::{OPEN}[zero 2 in flat buckets]",
    f"test_deepseek.py::{PROVED}[stages]",
    f"test_deepseek.py::{PROVED}[stages in repeated micro-batches]",
    f"test_deepseek.py::{PROVED}[a first stage without experts]",
    "test_deepseek.py::test_wrong_variant_is_refuted[gates without their factor]",
    "test_deepseek.py::test_wrong_variant_is_refuted[one expert a token]",
    "test_deepseek.py::test_wrong_variant_is_refuted[one group of experts]",
    "test_planted.py::test_bug_in_one_step_and_one_rank_is_found_there[5]",
    "test_planted.py::test_bug_in_one_step_and_one_rank_is_found_there[12]",
    "test_planted.py::test_bug_in_one_step_and_one_rank_is_found_there[14]",
    "test_again.py::test_mutants_are_proved_again_only_where_they_are_proved[written out]",
    "test_torch.py::test_the_same_to_the_bit[compile-float32]",
    "test_malformed.py::test_ten_megabytes_parse_in_seconds",
)
"""Ends of names of tests that take long, and of which others of the same kind are in every run."""
SLOW = frozenset(
    {
        *("batch", "campaign", "chat", "check", "cli", "execute", "frontend", "guard"),
        *("incremental", "laws", "patches", "patching", "planning", "repair", "report"),
        *("resize", "right", "training", "untraceable"),
    }
)
"""Folders that `make test-fast` leaves out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tiers of `make test-fast`, `test` and `test-all`."""
    for item in items:
        if item.nodeid.endswith(CAMPAIGNS):
            item.add_marker(pytest.mark.campaign)
        if item.path.relative_to(ROOT).parts[1] in SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root folder."""
    return ROOT


@pytest.fixture(autouse=True)
def no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may reach a language model by accident."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
