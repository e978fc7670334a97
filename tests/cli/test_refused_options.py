"""Every option that cannot be read: one error that names it, exit code 2, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardproof.agent.actions.models import Parallelize
from shardproof.agent.actions.words import of_dialect
from shardproof.agent.run.errors import InputError
from tests.commands import Command

MODEL = "from torch import nn\nclass Net(nn.Module):\n    pass\n"


def assert_refused(here: Command, tmp_path: Path, arguments: list[str], says: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    done = here(*arguments, "--json")
    assert done.code == 2
    (error,) = [e for e in done.events if e["event"] == "error"]
    assert says in " ".join(error[key] for key in ("message", "where", "got", "hint"))
    assert done.last["event"] == "run.completed"
    assert done.last["exit_code"] == 2
    assert done.last["verdict"] == "unknown"
    assert done.err == ""
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("hf:LlamaForCausalLM --dialect spoken --mesh tp=2", "no such dialect"),
        ("net.py:Net --dialect transformers --mesh tp=2", "classes of transformers alone"),
        ("hf:LlamaForCausalLM --dialect transformers --mesh dp=2,tp=2", "over one mesh dim"),
        ("hf:LlamaForCausalLM --dialect transformers --gpus 8", "over one mesh dim"),
        ("hf:LlamaForCausalLM --dialect transformers --mesh tp=2 --launcher", "not written"),
        ("hf:LlamaForCausalLM --dialect torchtitan --mesh tp=2", "models of your files alone"),
        ("net.py:Net --dialect torchtitan --mesh pp=2", "over dp_replicate, dp and tp"),
        ("net.py:Net --dialect torchtitan --mesh dp=2,cp=2", "over dp_replicate, dp and tp"),
        ("net.py:Net --dialect torchtitan --mesh tp=2,dp=2", "in this order"),
        ("net.py:Net --dialect torchtitan --gpus 8", "over dp_replicate, dp and tp"),
        ("net.py:Net --dialect torchtitan --mesh tp=2 --guard", "not written"),
    ],
)
def test_what_a_dialect_has_no_words_for(
    here: Command, tmp_path: Path, words: str, says: str
) -> None:
    assert_refused(here, tmp_path, ["parallelize", *words.split()], says)


def test_a_dialect_whose_package_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shardproof.agent.actions.words.find_spec", lambda _: None)
    asked = Parallelize(target="net.py:Net", mesh="dp=2,tp=2", dialect="torchtitan")
    with pytest.raises(InputError, match="torchtitan is not installed"):
        of_dialect(asked)


def test_a_person_sees_one_error_on_stderr(here: Command) -> None:
    done = here("parallelize", "net.py:Net", "--mesh", "tp=0", "--out", "out")
    assert done.code == 2
    assert done.out == ""
    lines = done.err.splitlines()
    assert [line.split()[0] for line in lines] == ["error", "where", "expected"]
    assert "mesh dim 'tp' has size 0" in lines[0]


def test_what_the_command_line_lacks_is_shown_by_an_example(here: Command) -> None:
    done = here("check", "x.py:M")
    assert done.code == 2
    assert "Missing option '--mesh'" in done.err
    assert "try       shardproof check examples/check/parallel.py:ParallelMLP --against" in done.err
    assert "shardproof --help" in here("--nope").err


@pytest.mark.parametrize(
    ("mesh", "says"),
    [
        ("", "cannot read the mesh dim"),
        ("tp", "cannot read the mesh dim 'tp'"),
        ("tp=two", "cannot read the mesh dim 'tp=two'"),
        ("tp=-2", "cannot read the mesh dim 'tp=-2'"),
        ("tp=0", "mesh dim 'tp' has size 0"),
        ("tp=2,tp=2", "mesh dim 'tp' is named twice"),
        ("pp=2", "pp=2"),
        ("dp=2;tp=2", "cannot read the mesh dim"),
    ],
)
def test_mesh(here: Command, tmp_path: Path, mesh: str, says: str) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    arguments = ["parallelize", str(tmp_path / "net.py:Net"), "--mesh", mesh, "--out", "out"]
    assert_refused(here, tmp_path, arguments, says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "'x' is not an input"),
        ("x=i64", "'x=i64' is not an input"),
        ("x=i64[a]", "'x=i64[a]' is not an input"),
        ("x=int[2]", "'x=int[2]' is not an input"),
    ],
)
def test_input(here: Command, tmp_path: Path, text: str, says: str) -> None:
    assert_refused(here, tmp_path, ["capture", "net.py:Net", "--input", text], says)


def test_input_given_twice(here: Command, tmp_path: Path) -> None:
    arguments = ["capture", "net.py:Net", "--input", "x=i64[2]", "--input", "x=f32[2]"]
    assert_refused(here, tmp_path, arguments, "input 'x' is given 2 times")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is not JSON"),
        ("[1]", "holds a list, expected an object"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_config_file(here: Command, tmp_path: Path, content: str | bytes | None, says: str) -> None:
    path = tmp_path / "config.json"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.write_text(content)
    assert_refused(here, tmp_path, ["capture", "hf:GPT2LMHeadModel", "--config", str(path)], says)


def test_config_item_of_no_form(here: Command, tmp_path: Path) -> None:
    arguments = ["capture", "hf:GPT2LMHeadModel", "--config", "layers"]
    assert_refused(here, tmp_path, arguments, "is not a config value")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["parallelize"], "TARGET"),
        (["nonsense"], "nonsense"),
        (["verify", "--nonsense"], "--nonsense"),
        (["capture", "net.py:Net", "--batch", "0"], "--batch"),
    ],
)
def test_command_line(here: Command, tmp_path: Path, arguments: list[str], says: str) -> None:
    assert_refused(here, tmp_path, arguments, says)
