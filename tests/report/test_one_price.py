"""A step has one price: report, events, terminal, files and a session say the same of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.models import Asker, Source
from shardproof.agent.report.text import duration, size
from shardproof.agent.run import events
from tests.chat.conftest import Heard, Talk
from tests.commands import Command

pytestmark = [pytest.mark.torch, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
MODELS = {"nanogpt.py:GPT": "tp=2", "mlp.py:MLP": "tp=2"}
"""One whose configuration has a price, and one that is priced as it is captured."""


@pytest.fixture(params=MODELS)
def ran(
    request: pytest.FixtureRequest, here: Command, tmp_path: Path
) -> tuple[Path, str, str, list[dict[str, Any]]]:
    pytest.importorskip("torch")
    file, _, name = request.param.partition(":")
    text = (ROOT / "examples" / file).read_text()
    (tmp_path / file).write_text(text.replace("n_layer: int = 4", "n_layer: int = 1"))
    mesh, out = MODELS[request.param], tmp_path / "out"
    words = ["parallelize", f"{file}:{name}", "--mesh", mesh, "--no-run", "--out", str(out)]
    done = here(*words, "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    return out, request.param, mesh, done.events


@pytest.fixture
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Talk]:
    for name in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    heard = Heard()
    made = Session.new([heard], Asker(Source.NONE))
    yield Talk(made, heard)
    made.journal.close()


def test_a_step_has_one_price(ran: tuple[Path, str, str, list[dict[str, Any]]], talk: Talk) -> None:
    out, target, mesh, seen = ran
    plan = json.loads((out / "plan.json").read_text())["estimates"]
    step, held = plan["step_s"], plan["memory_bytes_after"]
    (chosen,) = [e for e in seen if e["event"] == "plan"]
    assert chosen["estimates"] == plan
    priced = [e for e in seen if e["event"] == "strategy"]
    assert bool(priced) == target.startswith("nanogpt")
    for event in priced:
        for found in (event["best"], event["emitted"]):
            assert (found["step_s"], found["memory_bytes"]) == (step, held)
            assert sum(found["memory"].values()) == held
        shown = "\n".join(event["text"])
        assert f"step {step:.3g} s" in shown
        assert f"memory {held / 1e9:.1f} GB" in shown
        written = json.loads((out / "strategy.json").read_text())
        assert written["emitted"] == event["emitted"]
    report = (out / "report.md").read_text()
    figures = dict(zip(*rows(report, "| Ranks |"), strict=True))
    assert (figures["Step, estimated"], figures["Memory per rank"]) == (duration(step), size(held))
    totals = re.findall(r"\| total \|(.*)\|", report)
    assert totals[0].split("|")[-1].strip() == size(held)
    assert totals[1].strip() == duration(step)
    for line in re.findall(r"\| this patch \|(.*)\|", report):
        cells = [cell.strip() for cell in line.split("|")]
        assert (cells[1], cells[-1]) == (duration(step), size(held))
    for line in rows(report, "| Candidate |")[2:]:
        assert not re.search(r"[\d.]+ (ms|µs|s)\b", line[-1])

    talk(f"/load {target}")
    talk(f"/mesh {mesh}")
    talk("/plan")
    assert f"estimated step {duration(step)}," in talk.said
    assert f"-> {size(held)}" in talk.said
    talk("/price")
    assert f"step {duration(step)}, " in talk.said
    assert f"{size(held)} per rank" in talk.said
    talk("/candidates 1")
    judged = [e for e in talk.heard.seen if isinstance(e, events.PlanJudged)]
    (row,) = [e for e in judged if e.status.startswith("chosen")]
    assert (row.step_s, row.memory_bytes) == (step, held)


def rows(report: str, head: str) -> list[list[str]]:
    """Cells of a table of the report, its head first, the rule left out."""
    lines = report[report.index(head) :].split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return cells[:1] + cells[2:][: 1 if head == "| Ranks |" else None]
