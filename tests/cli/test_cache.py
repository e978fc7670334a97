"""A proof that is kept saves the next one; a wrong edit is refused with it as without it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from benchmarks.steps.scale import PLANS
from benchmarks.steps.step import training_step
from benchmarks.steps.warm import collective_edited, op_edited
from tests.cli.conftest import ROOT, Command
from verifier.reuse.store import Store
from verifier.text.parser import to_text


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step of Llama 3 8B at full size, on 512 ranks."""
    root = tmp_path_factory.mktemp("step")
    plan = PLANS[0]
    step = training_step(plan.model, plan.degrees)
    (root / "s.txt").write_text(to_text(step.sequential))
    (root / "d.txt").write_text(to_text(step.distributed))
    (root / "c.json").write_text(json.dumps(step.contract.to_json()))
    return root


def asked(files: Path, distributed: str) -> tuple[str, ...]:
    pairs = (("sequential", "s.txt"), ("distributed", distributed), ("contract", "c.json"))
    return "verify", *(w for name, file in pairs for w in (f"--{name}", str(files / file)))


def test_an_edited_program_is_proved_by_what_changed(
    command: Command, files: Path, tmp_path: Path
) -> None:
    kept = {"XDG_CACHE_HOME": str(tmp_path / "kept")}
    text = (files / "d.txt").read_text()
    first = command(*asked(files, "d.txt"), **kept)
    assert (first.code, first.out) == (0, "proved\n"), first.err
    assert "nothing kept" in first.err
    again = command(*asked(files, "d.txt"), **kept)
    assert again.code == 0
    assert again.out == "remembered\n"
    assert "the same as proved before" in again.err
    edits = {"op": op_edited(text), "collective": collective_edited(text, {"dp": 512})}
    for name, edited in edits.items():
        assert edited is not None
        (files / f"{name}.txt").write_text(edited)
        done = command(*asked(files, f"{name}.txt"), **kept)
        assert done.code == 0, done.err
        assert done.out == "remembered\n"
        assert "ops proved again" in done.err
        assert "verify  " not in done.err
    whole = command(*asked(files, "op.txt"), "--no-cache", **kept)
    assert (whole.code, whole.out) == (0, "proved\n")
    assert "ops proved again" not in whole.err


def test_a_wrong_edit_is_not_proved_by_what_was_kept(
    command: Command, files: Path, tmp_path: Path
) -> None:
    kept = {"XDG_CACHE_HOME": str(tmp_path / "kept")}
    assert command(*asked(files, "d.txt"), **kept).code == 0
    text = (files / "d.txt").read_text()
    wrong = text.replace("reduce=sum}", "reduce=max}", 1)
    assert wrong != text
    (files / "wrong.txt").write_text(wrong)
    done = command(*asked(files, "wrong.txt"), **kept)
    assert done.code == 1
    assert "breaks the proof; proving all of it" in done.err
    assert done.out != "proved\n"


def test_an_entry_without_its_object_is_not_believed(command: Command, tmp_path: Path) -> None:
    """An entry that names the wrong program as proved, in either form, with no object behind it."""
    root, kept = ROOT / "examples" / "verify", tmp_path / "kept"
    one, wrong, contract = (root / f"{n}.txt" for n in ("one", "wrong", "contract"))
    store = Store(kept / "shardproof" / "proofs")
    entry = store.directory / "entries"
    entry.mkdir(parents=True)
    forged = {
        "object": "0" * 64,
        "distributed": hashlib.sha256(wrong.read_bytes()).hexdigest(),
        "claims": 1,
        "scope": ["every mesh"],
        "assumptions": [],
    }
    key = store.key(one.read_bytes(), contract.read_bytes())
    (entry / f"{key}.json").write_text(json.dumps(forged))
    files = ("--sequential", one, "--distributed", wrong, "--contract", contract)
    done = command("verify", *map(str, files), XDG_CACHE_HOME=str(kept))
    assert (done.code, done.out) == (1, "refuted\n"), done.err
    assert "every mesh" not in done.err
    right = ("--sequential", one, "--distributed", root / "right.txt", "--contract", contract)
    assert command("verify", *map(str, right), XDG_CACHE_HOME=str(kept)).out == "proved\n"
