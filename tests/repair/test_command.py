"""`shardproof repair`: a diff of the program's text, the source lines, one JSON event stream."""

from __future__ import annotations

import json
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutation_testing.cases import read_case
from benchmarks.mutation_testing.corpus import ROOT
from shardproof.agent.actions.programs import Repair
from shardproof.agent.chat.models import Asker
from shardproof.agent.repair.repairing import command, patch
from shardproof.agent.repair.sources import suggestion
from shardproof.agent.run.errors import Exit
from shardproof.agent.run.run import Outcome, Run, conduct
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.repair.edits import Edit
from shardproof.synthesis.repair.question import Question
from shardproof.synthesis.repair.search import NotRepaired, Repaired, repair
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.contract import compose, load_contract
from shardproof.verifier.text.files import load
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Proof
from tests.llm.scripted import Scripted
from tests.repair.files import pair, write

Patch = pytest.MonkeyPatch


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    case = read_case(ROOT / "missing_collective" / "MC-01.txt")
    paths = tuple(tmp_path / name for name in ("one.txt", "many.txt", "contract.txt"))
    for path, section in zip(paths, ("one", "wrong", "contract"), strict=True):
        path.write_text(case.sections[section])
    return paths[0], paths[1], paths[2]


def asked(files: tuple[Path, Path, Path], **more: Any) -> Repair:
    named = dict(zip(("sequential", "distributed", "contract"), files, strict=True))
    return Repair(**named, **more)


def run(files: tuple[Path, Path, Path], json: bool, max_edits: int = 3) -> int:
    def work(run: Run) -> Outcome:
        return command(run, asked(files, max_edits=max_edits, seconds=10.0, rounds=2))

    return conduct("repair", [], work, json=json)


def test_repair_prints_the_edit_its_source_line_and_a_diff(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before = files[1].read_text()
    assert run(files, json=False) == Exit.PROVED
    out = capsys.readouterr().out
    assert "all_reduce {mesh_dim=tp, reduce=sum} after %p  mlp.py:13" in out
    assert "+  %p_all_reduce = all_reduce %p {mesh_dim=tp, reduce=sum}" in out
    assert "+  %z = relu %p_all_reduce" in out
    assert "-  %z = relu %p" in out
    assert files[1].read_text() == before


def test_json_holds_edits_and_diff(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(files, json=True) == Exit.PROVED
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (repaired,) = [e for e in events if e["event"] == "repaired"]
    assert repaired["edits"] == ["all_reduce {mesh_dim=tp, reduce=sum} after %p"]
    assert repaired["sources"][0].startswith("mlp.py:13")
    assert repaired["diff"].startswith("--- a/")
    assert events[-1]["verdict"] == "proved"


def test_program_that_is_not_mended_is_no_success(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files[1].write_text(files[1].read_text().replace("relu %p", "cos %x"))
    assert run(files, json=False, max_edits=1) == Exit.NOT_PROVED
    assert "not repaired" in capsys.readouterr().out


def test_file_without_a_program_is_an_error_of_input(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files[1].write_text("no program")
    assert run(files, json=False) == Exit.INPUT
    assert "many.txt:1" in capsys.readouterr().err


def test_the_diff_is_of_the_file_and_applies_to_it(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Comments and spacing stay; what comes out of `git apply` is proved."""
    text = files[1].read_text().replace("relu %p", "relu   %p  # the activation")
    files[1].write_text(f"# written by hand\n{text}")
    assert run(files, json=True) == Exit.PROVED
    seen = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (repaired,) = [e for e in seen if e["event"] == "repaired"]
    patch = files[1].parent / "repair.diff"
    patch.write_text(repaired["diff"].replace(f"/{files[1]}", "/many.txt") + "\n")
    subprocess.run(["git", "apply", patch.name], cwd=files[1].parent, check=True)
    after = files[1].read_text()
    assert after.startswith("# written by hand\n")
    assert "relu   %p_all_reduce  # the activation" in after
    one, many = load(files[0]), load(files[1])
    contract = load_contract(files[2], one, many).contract
    assert isinstance(verify(Problem(one, many, contract)), Proof)


def test_a_repair_beside_the_programs_of_a_contract_is_one_of_the_file(tmp_path: Path) -> None:
    """The ops that the contract adds are in no diff."""
    files = _given(tmp_path)
    one, own = load(files[0]), load(files[1])
    stated = load_contract(files[2], one, own)
    many, contract = compose(own, stated)
    found = repair(Question(one, many, contract), seconds=20)
    assert isinstance(found, Repaired)
    changed = patch(files[1], own, many, found.program, stated, one)
    assert changed.startswith(f"--- a/{files[1]}\n")
    assert "given" not in changed
    assert "+  %y_all_reduce = all_reduce %y" in changed


def test_values_named_as_those_of_a_contract(
    tmp_path: Path, files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without programs of a contract they are values as any; beside such they are refused."""
    files[1].write_text(files[1].read_text().replace("%p", "%given.p"))
    assert run(files, json=False) == Exit.PROVED
    assert "+  %given.p_all_reduce = all_reduce %given.p" in capsys.readouterr().out
    mixed = _given(tmp_path)
    mixed[1].write_text(mixed[1].read_text().replace("%y", "%given.y"))
    assert run(mixed, json=False) == Exit.INPUT
    assert "names a value %given.y" in capsys.readouterr().err


def _given(folder: Path) -> tuple[Path, Path, Path]:
    texts = {
        "one.txt": "program p\n input %x: f32[4, 8]\n param %w: f32[8, 6]\n"
        " %y = mm %x, %w\n return %y\n",
        "many.txt": "program p mesh(tp=2)\n  input %l: f32[4, 4]  # by hand\n"
        "  param %w: f32[4, 6]\n  %y = mm %l, %w\n  return %y\n",
        "contract.txt": "input x tp=S(1)\ninput w tp=S(0)\ngiven\nprogram given mesh(tp=2)\n"
        "  input %x: f32[4, 4]\n  %t = permute %x {dims=[1, 0]}\n"
        '  %u = permute %t {dims=[1, 0]}\n  return %u "l"\n',
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder / "one.txt", folder / "many.txt", folder / "contract.txt"


SOURCE = """from verifier import AllReduce, MatMul

OPS = [
    MatMul("x", "w", "p"),
    AllReduce("p", "y", "mean", mesh_dim='dp'),  # over the batch
]
"""
SET: dict[str, tuple[dict[str, str], str]] = {
    "the wrong group": ({"mesh_dim": "tp"}, """    AllReduce("p", "y", "mean", mesh_dim='tp')"""),
    "a mean for a sum": ({"reduce": "sum"}, """    AllReduce("p", "y", "sum", mesh_dim='dp')"""),
}


@pytest.mark.parametrize("case", SET)
def test_one_literal_of_the_source_line_is_exchanged(case: str, tmp_path: Path) -> None:
    attrs, expected = SET[case]
    (tmp_path / "ops.py").write_text(SOURCE)
    edit = Edit("set", "y", attrs=tuple(attrs.items()))
    found = suggestion(_sourced(SOURCE.splitlines()[4].strip()), edit, tmp_path)
    assert found is not None
    assert found.place == "ops.py:5"
    assert f"+{expected},  # over the batch" in found.diff
    assert sum(line.startswith("-") for line in found.diff.splitlines()) == 2


def test_a_source_that_is_another_by_now_is_not_changed(tmp_path: Path) -> None:
    program = _sourced(SOURCE.splitlines()[4].strip())
    edit = Edit("set", "y", attrs=(("mesh_dim", "tp"),))
    (tmp_path / "ops.py").write_text(SOURCE.replace("# over the batch", "# changed"))
    found = suggestion(program, edit, tmp_path)
    assert found is not None
    assert found.diff == ""
    assert "mesh_dim=tp in place of mesh_dim=dp" in found.says
    (tmp_path / "ops.py").write_text(SOURCE)
    more = suggestion(program, Edit("after", "y", "all_reduce", edit.attrs), tmp_path)
    assert more is not None
    assert more.diff == ""
    assert "put all_reduce (mesh_dim=tp) after what this line makes" in more.says


def test_a_source_that_is_a_device_is_not_read(tmp_path: Path) -> None:
    text = "program p\n input %x: f32[4]\n %y = relu %x  @ /dev/zero:1 | y = relu(x)\n return %y\n"
    found = suggestion(parse_text(text), Edit("drop", "y"), tmp_path)
    assert found is not None
    assert found.diff == ""


def _sourced(line: str) -> Program:
    return parse_text(f"""
program p mesh(dp=2, tp=2)
  input %x: f32[4, 4]
  %y = all_reduce %x {{mesh_dim=dp, reduce=avg}}  @ ops.py:5 | {line}
  return %y
""")


def test_a_model_is_asked_where_the_search_finds_nothing(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: Patch
) -> None:
    edit: dict[str, object] = {"edit": "after", "value": "p", "op": "all_reduce", "index": 0}
    edit |= {"attrs": "mesh_dim=tp, reduce=sum", "operands": [], "uses": [], "where": ""}
    reply = json.dumps({"diagnosis": "a pending sum", "edits": [edit]})
    asker = Asker(Scripted([reply]))

    def asking(asked: Repair, run: Run) -> Asker:
        assert asked.llm == "auto"
        asker.emit = run.emit
        return asker

    def nothing(*_: object, **__: object) -> NotRepaired:
        return NotRepaired("nothing found", (), 0, 0.0)

    monkeypatch.setattr(Repair, "asker", asking)
    monkeypatch.setattr("shardproof.agent.repair.loop.enumerated.repair", nothing)

    def work(run: Run) -> Outcome:
        return command(run, asked(files, llm="auto"))

    assert conduct("repair", [], work, json=True) == Exit.PROVED
    names = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    kept = [n for n in names if n.startswith(("repair", "model", "verdict"))]
    assert kept == [
        "repair.round", "repair.round", "model.asked", "model.answered", "model.diagnosed",
        "repair.candidate", "repaired", "verdict",
    ]  # fmt: skip


def test_without_a_model_it_is_said_and_the_search_goes_on(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: Patch
) -> None:
    for name in ("SHARDPROOF_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_KEY", "SHARDPROOF_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(files[0].parent))

    def work(run: Run) -> Outcome:
        return command(run, asked(files, llm="auto"))

    assert conduct("repair", [], work, json=False) == Exit.PROVED
    assert "no language model" in capsys.readouterr().err


def test_an_unknown_level_is_an_error_of_input(files: tuple[Path, Path, Path]) -> None:
    def work(run: Run) -> Outcome:
        return command(run, asked(files, feedback="much"))

    assert conduct("repair", [], work, json=True) == Exit.INPUT


CLASS = """from verifier import AllReduce, DeviceMesh, MatMul, Program, Replicate, Shard
from shardproof.verifier import ShardingSpec, TensorState, compute_local_shape

mesh = DeviceMesh((2, 2), ("dp", "tp"))
STATES = {}
for name, shape, dim in (("x", (8, 16), 1), ("w", (16, 32), 0)):
    spec = ShardingSpec((Replicate(), Shard(dim)), mesh)
    STATES[name] = TensorState(name, shape, compute_local_shape(shape, spec), spec)
RIGHT = Program("linear", [MatMul("x", "w", "p"), AllReduce("p", "y", mesh_dim="tp")])
GROUP = Program("linear", [
    MatMul("x", "w", "p"),
    AllReduce("p", "y", mesh_dim="dp"),
])
MISSING = Program("linear", [
    MatMul("x", "w", "y"),
])
"""
RIGHT_WITH = {
    "GROUP": '+    AllReduce("p", "y", mesh_dim="tp"),',
    "MISSING": '+    MatMul("x", "w", "y_part"), AllReduce("y_part", "y", mesh_dim="tp"),',
}


@pytest.mark.parametrize("name", RIGHT_WITH)
def test_a_class_program_is_mended_on_its_source_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the program of the changed source is proved."""
    source = tmp_path / "linear.py"
    source.write_text(CLASS)
    made = runpy.run_path(str(source))
    paths = write(tmp_path, made[name], made["STATES"], made["RIGHT"])
    assert run(paths, json=False) == Exit.PROVED
    out = capsys.readouterr().out
    assert RIGHT_WITH[name] in out
    lines = [line for line in out.splitlines() if line.startswith("-    ")]
    source.write_text(CLASS.replace(lines[-1][1:], RIGHT_WITH[name][1:]))
    again = runpy.run_path(str(source))
    one, many, contract = pair(again[name], again["STATES"], again["RIGHT"])
    assert isinstance(verify(Problem(one, many, contract)), Proof)
