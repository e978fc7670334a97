"""Findings in the formats of CI, the schemas of events, and the examples for CI."""

# ruff: noqa: N815  (the names are those of the schema)

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pytest
from pydantic import BaseModel, ConfigDict, Field

from benchmarks import schemas
from shardproof.agent.run import events
from shardproof.agent.verdict.formats import FORMATS, Finding, findings

WRONG = Finding("m.py:M", "refuted", "got 2%\nexpected 1", "a b/m.py", 14)
OPEN = Finding("m.py:M", "unknown", "not decided")
RIGHT = Finding("m.py:M", "proved", "mesh tp=2")


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Text(Strict):
    text: str = Field(min_length=1)


class Artifact(Strict):
    uri: str = Field(pattern=r"^[\w./%-]+$")


class Region(Strict):
    startLine: int = Field(ge=1)


class Physical(Strict):
    artifactLocation: Artifact
    region: Region


class Location(Strict):
    physicalLocation: Physical


class Result(Strict):
    ruleId: str
    ruleIndex: int = Field(ge=0)
    level: Literal["none", "note", "warning", "error"]
    message: Text
    locations: list[Location] = []


class Rule(Strict):
    id: str
    shortDescription: Text


class Driver(Strict):
    name: str
    version: str
    rules: list[Rule]


class Tool(Strict):
    driver: Driver


class SarifRun(Strict):
    tool: Tool
    results: list[Result]


class Sarif(Strict):
    """The part of the schema of SARIF 2.1.0 that is written, with its names and bounds."""

    schema_: str = Field(alias="$schema")
    version: Literal["2.1.0"]
    runs: list[SarifRun] = Field(min_length=1)


def test_sarif_is_valid_and_its_rules_are_those_of_its_results() -> None:
    log = Sarif.model_validate_json(FORMATS["sarif"]([WRONG, OPEN, RIGHT]))
    (run,) = log.runs
    assert [r.level for r in run.results] == ["error", "warning"]
    rules = [rule.id for rule in run.tool.driver.rules]
    assert [rules[r.ruleIndex] for r in run.results] == [r.ruleId for r in run.results]
    place = run.results[0].locations[0].physicalLocation
    assert (place.artifactLocation.uri, place.region.startLine) == ("a%20b/m.py", 14)
    assert run.results[1].locations == []


def test_annotations_are_escaped() -> None:
    one, two, three = FORMATS["github"]([WRONG, OPEN, RIGHT]).splitlines()
    title = "title=shardproof%3A refuted"
    assert one == f"::error file=a b/m.py,line=14,{title}::got 2%25%0Aexpected 1"
    assert two.startswith("::warning title=")
    assert three.startswith("::notice ")


def test_diagnostics_have_a_line_each() -> None:
    rows = [json.loads(row) for row in FORMATS["rdjsonl"]([WRONG, OPEN, RIGHT]).splitlines()]
    assert [row["severity"] for row in rows] == ["ERROR", "WARNING"]
    assert rows[0]["location"] == {"path": "a b/m.py", "range": {"start": {"line": 14}}}


def test_every_finding_is_a_test_case() -> None:
    broken = Finding("x", "error", "no \x00 file")
    suite = ElementTree.fromstring(FORMATS["junit"]([WRONG, RIGHT, broken]))
    assert [suite.get(k) for k in ("tests", "failures", "errors")] == ["3", "1", "1"]
    kinds = [[inner.tag for inner in case] for case in suite]
    assert kinds == [["failure"], [], ["error"]]


def test_events_are_found_with_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "m.py").write_text("")
    job = {"job": "a", "status": "failed", "verdict": "unknown", "done": 1, "of": 1, "seconds": 1}
    found = findings(
        [
            events.RunStarted(command="check", arguments=["check", "src/m.py:M"], version="1"),
            events.VerdictReached(verdict="refuted", message="differs", where="m.py:3   mlp   x"),
            events.Problem(kind="input", message="no such file", where="--against n.py"),
            events.JobCompleted.model_validate(job),
        ]
    )
    assert found == [
        Finding("src/m.py:M", "refuted", "differs", "src/m.py", 3),
        Finding("src/m.py:M", "error", "no such file\nwhere: --against n.py"),
        Finding("a", "unknown", "failed"),
    ]


FILES = ["--sequential", "one.txt", "--contract", "contract.txt", "--distributed"]


def shardproof(root: Path, folder: Path, *words: str) -> tuple[int, str]:
    env = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "shardproof", *words]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_commands_write_what_they_found(root: Path, form: str) -> None:
    folder = root / "examples" / "verify"
    code, said = shardproof(root, folder, "verify", *FILES, "wrong.txt", "--format", form)
    assert code == 1
    assert "refuted" in said
    code, said = shardproof(root, folder, "repair", *FILES, "wrong.txt", "--format", form)
    assert code == 0
    assert "repaired" in said
    assert shardproof(root, folder, "verify", *FILES, "right.txt", "--format", "xml") == (2, "")


@pytest.mark.parametrize("name", schemas.schemas())
def test_schemas_of_the_docs_are_those_of_the_code(root: Path, name: str) -> None:
    kept = (root / "docs" / "schema" / name).read_text()
    assert kept == schemas.text(schemas.schemas()[name])


def test_events_are_valid_under_their_schema() -> None:
    check = pytest.importorskip("jsonschema").validators.Draft202012Validator(events.schema())
    good = events.VerdictReached(verdict="proved", message="mesh tp=2").model_dump(mode="json")
    assert check.is_valid(good)
    assert not check.is_valid({**good, "verdict": "maybe"})
    assert not check.is_valid({**good, "more": 1})


def commands(text: str) -> list[str]:
    """What the examples run of ours."""
    return re.findall(r"(?:run|entry): shardproof (.*)", text)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["workflow.yml", pytest.param("pre-commit-config.yaml", marks=pytest.mark.campaign)],
)
def test_the_examples_for_ci_fail_at_the_line(root: Path, tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    (command,) = commands((root / "examples" / "ci" / name).read_text())
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    examples = root / "examples" / "check"
    for file in ("model.py", "parallel.py", "regions.py"):
        shutil.copy(examples / file, tmp_path)
    assert shardproof(root, tmp_path, *command.split())[0] == 0
    right = (tmp_path / "parallel.py").read_text()
    missing = "        y = Reduce.apply(y, self.group)\n"
    assert right.count(missing) == 1
    (tmp_path / "parallel.py").write_text(right.replace(missing, ""))
    code, said = shardproof(root, tmp_path, *command.split())
    assert code == 1
    assert re.search(r"^::error file=parallel\.py,line=\d+,title=shardproof%3A refuted", said, re.M)
