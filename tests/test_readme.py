"""The README's commands do what it says and print what it shows."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from shardproof.agent.run.errors import Exit
from tests.commands import Command, Done

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
START = (ROOT / "docs" / "getting-started.md").read_text()
TARGETS = [line.split("#")[0].strip() for line in README.splitlines() if line.startswith("make ")]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()


def shown(page: str) -> list[tuple[str, str, str]]:
    """Commands with what a page shows of their output."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    return [part.partition("\n") for block in blocks for part in block.split("$ ")[1:]]


SHOWN = shown(README)
PLAIN = [
    line
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("shardproof ")
]


def plain(text: str) -> list[str]:
    """Lines without their numbers, which differ from machine to machine."""
    return [re.sub(r"\d[\d.,e-]*", "#", " ".join(line.split())) for line in text.splitlines()]


def test_it_shows_two_make_targets_and_six_commands() -> None:
    assert TARGETS == ["make demo", "make test"]
    words = [command.split()[1] for command, _, _ in SHOWN]
    assert words == ["parallelize", "diff", "apply", "check"]
    assert [c.split()[1] for c in PLAIN] == ["parallelize", "verify"]


def test_a_verdict_and_a_diff_stand_in_its_first_screen() -> None:
    first = README.splitlines()[:26]
    assert any(line.startswith("proved:") for line in first[:15])
    assert any(line.startswith("+ ") for line in first)
    assert any(line.startswith("$ shardproof apply") for line in first)


@pytest.mark.parametrize("target", TARGETS)
def test_its_make_targets_exist(target: str) -> None:
    subprocess.run([*target.split(), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.torch
@pytest.mark.hf
@pytest.mark.gloo
@pytest.mark.slow
def test_its_commands_do_what_it_shows(here: Command, tmp_path: Path) -> None:
    def ran(command: str) -> Done:
        state = str(tmp_path / "state")
        return here(*shlex.split(command)[1:], cwd=tmp_path, XDG_STATE_HOME=state)

    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for command, _, said in SHOWN:
        done = ran(command)
        assert done.code == (1 if " check " in command else 0), done.err
        printed = plain(done.out + "\n" + done.err)
        assert [line for line in plain(said) if line and line not in printed] == []
    done = ran(PLAIN[-1])
    assert done.code == 0, done.err
    assert done.out.startswith("accepted")


@pytest.mark.torch
@pytest.mark.hf
@pytest.mark.slow
@pytest.mark.campaign
def test_a_library_model_is_proved_at_its_full_size(here: Command, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    done = here(*shlex.split(PLAIN[0])[1:], cwd=tmp_path, XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.code == 0, done.err
    assert done.out.startswith("proved")


@pytest.mark.torch
@pytest.mark.gloo
@pytest.mark.slow
def test_the_three_steps_of_the_tutorial(here: Command, tmp_path: Path) -> None:
    """parallelize, check, repair: what it shows is printed, and the repaired file is proved."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    codes: list[int] = []
    for command, _, said in shown(TUTORIAL):
        done = here(*shlex.split(command)[1:], cwd=tmp_path, XDG_STATE_HOME=str(tmp_path / "s"))
        printed = plain(done.out + "\n" + done.err)
        assert [line for line in plain(said) if line and line not in printed] == [], command
        codes.append(done.code)
    assert codes == CODES


CODES = [0, 0, 1, 0, 0]
"""Parallelized, shown, refuted, repaired, proved."""


def test_the_picture_shows_what_the_readme_says() -> None:
    """and fetches nothing."""
    picture = (ROOT / "docs" / "terminal.svg").read_text()
    for word in ("parallelize", "ColwiseParallel", "refuted", "wrong.py:12"):
        assert word in picture
    assert not re.search(r"url\((?!#)|href=|@import|@font-face", picture)


INDEX = (ROOT / "docs/index.md").read_text()
GUIDE = re.findall(r"^[a-z-]+$", " ".join(INDEX.split("```{toctree}")[1:3]), re.MULTILINE)


@pytest.mark.parametrize("page", GUIDE)
def test_a_page_of_the_guide_opens_with_a_command(page: str) -> None:
    first = (ROOT / "docs" / f"{page}.md").read_text().splitlines()[:30]
    command = r"`?(\$ )?(shardproof|python|make) |shardproof$"
    assert any(re.match(command, line) for line in first)


def test_the_exit_codes_of_the_docs_are_the_code_s() -> None:
    table = re.findall(r"^\| (\d+) \|", START, re.MULTILINE)
    assert [int(code) for code in table] == [int(code) for code in Exit]


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]*)(#[^)]*)?\)", page.read_text())
    for target, anchor in links:
        if "://" in target:
            continue
        there = page.parent / target if target else page
        assert there.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads]
            assert anchor[1:] in slugs, f"{target}{anchor}"


def test_every_page_is_in_the_readme() -> None:
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    assert {p for p in pages if f"({p})" not in README and f"({p}#" not in README} == set()
