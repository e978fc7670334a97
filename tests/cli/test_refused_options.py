"""Every option that cannot be read: one error that names it, exit code 2, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command

MODEL = "from torch import nn\nclass Net(nn.Module):\n    pass\n"


def assert_refused(command: Command, tmp_path: Path, arguments: list[str], says: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    plain = command(*arguments)
    assert plain.code == 2
    assert plain.out == ""
    assert says in plain.err
    assert sum(line.startswith("error ") for line in plain.err.splitlines()) == 1
    assert "Traceback" not in plain.err
    machine = command(*arguments, "--json")
    assert machine.code == 2
    assert machine.last["event"] == "run.completed"
    assert machine.last["exit_code"] == 2
    assert machine.last["verdict"] == "unknown"
    assert [e["event"] for e in machine.events].count("error") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("mesh", "says"),
    [
        ("", "cannot read the mesh dim"),
        ("tp", "cannot read the mesh dim 'tp'"),
        ("tp=two", "cannot read the mesh dim 'tp=two'"),
        ("tp=-2", "cannot read the mesh dim 'tp=-2'"),
        ("tp=0", "mesh dim 'tp' has size 0"),
        ("tp=2,tp=2", "mesh dim 'tp' is named twice"),
        ("pp=2", "no strategy for the mesh dim 'pp'"),
        ("dp=2;tp=2", "cannot read the mesh dim"),
    ],
)
def test_mesh(command: Command, tmp_path: Path, mesh: str, says: str) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    arguments = ["parallelize", str(tmp_path / "net.py:Net"), "--mesh", mesh, "--out", "out"]
    assert_refused(command, tmp_path, arguments, says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "cannot read the input"),
        ("x=i64", "cannot read the input"),
        ("x=i64[a]", "cannot read the input"),
        ("x=i64[2,]", "cannot read the input"),
        ("x=int[2]", "unknown dtype 'int'"),
    ],
)
def test_input(command: Command, tmp_path: Path, text: str, says: str) -> None:
    assert_refused(command, tmp_path, ["capture", "net.py:Net", "--input", text], says)


def test_input_given_twice(command: Command, tmp_path: Path) -> None:
    arguments = ["capture", "net.py:Net", "--input", "x=i64[2]", "--input", "x=f32[2]"]
    assert_refused(command, tmp_path, arguments, "input 'x' is given twice")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "config file not found"),
        ("{", "config file is not JSON"),
        ("[1]", "config file holds no object"),
        (b"\xff\xfe", "config file cannot be read"),
    ],
)
def test_config_file(
    command: Command, tmp_path: Path, content: str | bytes | None, says: str
) -> None:
    path = tmp_path / "config.json"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.write_text(content)
    assert_refused(
        command, tmp_path, ["capture", "hf:GPT2LMHeadModel", "--config", str(path)], says
    )


def test_config_item_of_no_form(command: Command, tmp_path: Path) -> None:
    arguments = ["capture", "hf:GPT2LMHeadModel", "--config", "layers"]
    assert_refused(command, tmp_path, arguments, "cannot read the config")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["parallelize"], "TARGET"),
        (["parallelize", "net.py:Net", "--mesh", "tp=2"], "--out"),
        (["nonsense"], "nonsense"),
        (["verify", "--nonsense"], "--nonsense"),
        (["capture", "net.py:Net", "--batch", "0"], "--batch"),
    ],
)
def test_command_line(command: Command, tmp_path: Path, arguments: list[str], says: str) -> None:
    assert_refused(command, tmp_path, arguments, says)
