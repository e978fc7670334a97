"""shardproof.toml: defaults of the commands that plan; the command line wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardproof.agent.cli.project import PLANNING, defaults
from shardproof.agent.run.errors import InputError
from tests.commands import Command

TABLE = """
[plan]
mesh = "tp=2"
hardware = "a100"
memory = "40GB"
pin = ["up=column"]

[model]
enabled = false
"""


def test_defaults_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "shardproof.toml"
    assert not any(defaults(path, []).values())
    path.write_text(TABLE)
    plan = {"mesh": "tp=2", "hardware": "a100", "memory": "40GB", "pin": ["up=column"]}
    found = defaults(path, [])
    assert {name: found[name] for name in PLANNING} == dict.fromkeys(PLANNING, plan)
    assert found["check"] == {"mesh": "tp=2"}
    for given in (["--gpus", "8"], ["--mesh=dp=2"]):
        assert "mesh" not in defaults(path, given)["parallelize"]


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        ('[plan]\nmehs = "tp=2"\n', ":2", "mesh, gpus"),
        ("[plan]\nmesh = 2\n", ":2", "valid string"),
        ("[plan]\npin = 'a=b'\n", ":2", "list"),
        ("[plan\n", "", ""),
        ('[plan]\nmesh = "tp=2"\ngpus = 2\n', "", "one of the two"),
    ],
)
def test_what_cannot_be_used_is_located(
    tmp_path: Path, text: str, where: str, expected: str
) -> None:
    path = tmp_path / "shardproof.toml"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        defaults(path, [])
    assert raised.value.where.endswith(where)
    assert expected in raised.value.expected


def test_a_command_takes_what_it_is_not_given(here: Command, tmp_path: Path) -> None:
    (tmp_path / "shardproof.toml").write_text('[plan]\nmesh = "tp=0"\n')
    done = here("why-not", "nothing.py:M", "up", "row", cwd=tmp_path)
    assert done.code == 2
    assert "tp=0" in done.err
    done = here("why-not", "nothing.py:M", "up", "row", "--mesh", "tp=2", cwd=tmp_path)
    assert "tp=0" not in done.err
    (tmp_path / "shardproof.toml").write_text("[plan]\nmesh = 2\n")
    done = here("why-not", "nothing.py:M", "up", "row", cwd=tmp_path)
    assert done.code == 2
    assert "shardproof.toml:2" in done.err
    assert "Traceback" not in done.err
