"""Pages name what the code has: rules, commands and files."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from benchmarks.assumptions_page import written
from benchmarks.declared.assumptions import DECLARED, said, undeclared
from shardproof.agent.cli.main import FIRST, app

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
RULES = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
FIGURES = RULES.split("## Equality of terms")[0]
CHECKER = (
    r"\b(claims|collectives|induction|moves|parts|replay|rewritten|rooted|rows|rules|views)\.(\w+)"
)


@pytest.mark.parametrize(("module", "name"), sorted(set(re.findall(CHECKER, FIGURES))))
def test_rules_name_functions_of_the_checker(module: str, name: str) -> None:
    if name != "py":
        found = importlib.import_module(f"shardproof.verifier.checker.{module}")
        assert hasattr(found, name) or any(hasattr(v, name) for v in vars(found).values())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_of_our_files_exist(page: Path) -> None:
    folders = "agent|benchmarks|examples|prompts|shardproof|synthesis|tests|verifier"
    for path in re.findall(rf"`((?:{folders})/[\w./-]+)", page.read_text(encoding="utf-8")):
        assert (ROOT / path.rstrip("/.")).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_benchmarks_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    known = {c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands}
    known = {name.replace("_", "-") for name in known}
    assert set(FIRST) <= known
    used = re.findall(r"(?:^|`)shardproof ([a-z][a-z-]+)", text, re.MULTILINE)
    assert set(used) <= known
    for module in re.findall(r"python -m (benchmarks[\w.]*\w)", text):
        path = ROOT / Path(*module.split("."))
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make ([a-z-]+)`", text)) <= set(targets)


def test_the_assumptions_of_the_page_are_those_that_are_declared() -> None:
    page = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8")
    assert written(page) == page, "run make docs"


def test_a_sentence_that_is_not_declared_is_told() -> None:
    assert undeclared(["The moon is full."]) == ["The moon is full."]
    assert len({a.name for a in DECLARED}) == len(DECLARED)
    for declared in DECLARED:
        holes = dict.fromkeys(re.findall(r"{(\w+)}", declared.text), "x")
        assert said(declared.says(**holes)) == declared
