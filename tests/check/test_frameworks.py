"""Steps of frameworks by name: what is asked of the words, before anything slow is imported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardproof.agent.actions.programs import Check
from shardproof.agent.check.frameworks import opened
from shardproof.agent.run.errors import InputError


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with a package of the name."""
    (tmp_path / "torchtitan").mkdir()
    (tmp_path / "torchtitan" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_step_is_written_out_with_its_arguments(installed: Path) -> None:
    job = installed / "job.toml"
    job.write_text("[training]\nlocal_batch_size = 4\nseq_len = 16\n")
    asked = Check(
        target="torchtitan:llama3", mesh="pp=2,rep=2,dp=3", job_config=job, config=("n_layers=4",)
    )
    with opened(asked) as stated:
        file, _, function = stated.target.rpartition(":")
        assert function == "ranks"
        assert stated.against == f"{file}:one"
        assert f"def {stated.step}(" in Path(file).read_text()
        assert stated.inputs == ("tokens=i64[24,16]", "labels=i64[24,16]")
        assert stated.input_layout == ("tokens=S(0)@rep,S(0)@dp", "labels=S(0)@rep,S(0)@dp")
        (given,) = stated.config
        assert json.loads(Path(given).read_text()) == {
            "model": "llama3",
            "job_config": str(job.resolve()),
            "changes": {"n_layers": 4},
        }
    assert not Path(file).exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"mesh": "tp=2,dp=2"}, "in another order"),
        ({"mesh": "rows=2"}, "other dims"),
        ({"mesh": "dp=2", "job_config": Path("no.toml")}, "cannot read the job config"),
    ],
)
def test_what_does_not_fit_is_said(installed: Path, words: dict[str, object], said: str) -> None:
    asked = Check.model_validate({"target": "torchtitan:llama3", **words})
    with pytest.raises(InputError, match=said), opened(asked):
        pass


def test_a_framework_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardproof.agent.actions.words.find_spec", lambda _: None)
    asked = Check(target="torchtitan:llama3", mesh="dp=2")
    with pytest.raises(InputError, match="torchtitan is not installed"), opened(asked):
        pass


def test_a_job_config_is_for_frameworks(tmp_path: Path) -> None:
    asked = Check(target="a.py:A", mesh="dp=2", job_config=tmp_path / "job.toml")
    with pytest.raises(InputError, match="for a framework by name"), opened(asked):
        pass
