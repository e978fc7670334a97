"""Manifests: what they expand to, and what is said of a wrong one, before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardproof.agent.batch import expand
from shardproof.agent.batch.jobs import Job
from shardproof.agent.batch.manifest import Options
from shardproof.agent.run.errors import InputError
from tests.batch.conftest import Lab

NAMED = '[[job]]\nname = "j"\ntarget = "m.py:M"\nmesh = "tp=2"\n'
GOOD = '[[job]]\ntarget = "m.py:M"\nmesh = "tp=2"\n'


def gathered(*what: str | Path, **given: object) -> list[Job]:
    return expand.gather([str(w) for w in what], Options.model_validate(given))


def test_a_matrix_gives_one_job_for_each_combination(lab: Lab) -> None:
    path = lab.write(
        '[defaults]\nmesh = ["tp=2", "dp=2,tp=2"]\nbatch = [2, 4]\nmemory = "80GB"\n'
        '[[job]]\nname = "a"\ntarget = "m.py:M"\n'
        '[[job]]\ntarget = "hf:LlamaForCausalLM"\nmesh = "tp=8"\nbatch = 1\npin = ["x=row"]\n'
    )
    jobs = {job.name: job for job in gathered(path)}
    assert list(jobs) == [
        *("a-tp2-b2", "a-tp2-b4", "a-dp2-tp2-b2", "a-dp2-tp2-b4"),
        "LlamaForCausalLM-tp8",
    ]
    assert jobs["a-dp2-tp2-b4"].batch == 4
    assert jobs["LlamaForCausalLM-tp8"].arguments(Path("o")) == (
        *("parallelize", "hf:LlamaForCausalLM", "--batch", "1", "--memory", "80GB"),
        *("--pin", "x=row", "--mesh", "tp=8", "--out", "o"),
    )


def test_paths_are_relative_to_the_manifest_and_options_replace_defaults(lab: Lab) -> None:
    (lab.folder / "sub").mkdir()
    (lab.folder / "sub" / "m.py").write_text("class M: ...\n")
    (lab.folder / "sub" / "c.json").write_text("{}")
    text = '[defaults]\nmesh="tp=2"\nseq=8\n[[job]]\nname="j"\ntarget="m.py:M"\nconfig="c.json"\n'
    path = lab.write(text, "sub/batch.toml")
    (job,) = gathered(path, mesh="tp=4", hardware="h100")
    assert (job.target, job.config) == ("sub/m.py:M", ("sub/c.json",))
    assert (job.mesh, job.seq, job.hardware) == ("tp=4", 8, "h100")


def test_config_files_name_their_class_and_are_taken_by_a_pattern(lab: Lab) -> None:
    for name in ("a/config.json", "b/config.json", "b/tiny.json"):
        path = lab.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    jobs = gathered("*/config.json", "b/tiny.json", "m.py:M", mesh=["tp=2", "tp=4"])
    assert [j.name for j in jobs] == [f"{n}-tp{k}" for n in ("a", "b", "tiny", "M") for k in (2, 4)]
    assert jobs[0].target == "hf:LlamaForCausalLM"
    assert [j.name for j in gathered("a", "a/config.json", mesh="tp=2")] == ["a-tp2"]


def test_models_of_one_class_get_names_with_their_files(lab: Lab) -> None:
    for folder in ("a", "b"):
        (lab.folder / folder).mkdir()
        (lab.folder / folder / "m.py").write_text("class M: ...\n")
    names = [job.name for job in gathered("a/m.py:M", "b/m.py:M", mesh="tp=2")]
    assert names == ["a-m.py-M-tp2", "b-m.py-M-tp2"]


def test_the_example_gives_ten_jobs_whatever_the_folder(lab: Lab, root: Path) -> None:
    jobs = gathered(root / "examples" / "batch.toml")
    assert len(jobs) == 10
    assert [job.name for job in jobs][-3:] == [f"llama3-{n}b-tp8" for n in (405, 70, 8)]
    assert jobs[0].target == f"{root}/examples/nanogpt.py:GPT"


def test_json_manifests_are_read_too(lab: Lab) -> None:
    data = {"job": [{"target": "m.py:M", "mesh": "tp=2", "config": {"n": 3, "s": "1"}}]}
    (job,) = gathered(lab.write(json.dumps(data), "batch.json"))
    assert job.config == ("n=3", 's="1"')


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("[[job]\n", "batch.toml:1", "not TOML"),
        ('[defaults]\nmesh = "tp=2"\n', "batch.toml", "job is missing"),
        (GOOD + "sek = 3\n", "batch.toml:4: job 1, sek", "did you mean seq?"),
        (GOOD + "[[job]]\n\nmesh = 3\n", "batch.toml:6: job 2, mesh", '"dp=2,tp=2"'),
        (GOOD + 'batch = "4"\n', "batch.toml:4: job 1, batch", "whole number"),
        (GOOD + "seq = [8, 0]\n", "batch.toml:4: job 1, seq", "at least 1"),
        (GOOD + "timeout = -1\n", "batch.toml:4: job 1, timeout", "more than 0"),
        ('[[job]]\ntarget = "m.py:M"\n', "batch.toml:1: job 1", "no mesh"),
        ('[[job]]\nmesh = "tp=2"\n', "batch.toml:1: job 1", "no target"),
        (GOOD.replace("tp=2", "tp"), "batch.toml:3: job 1, mesh", "cannot read the mesh dim"),
        (GOOD.replace("tp=2", "xx=2"), "batch.toml:3: job 1, mesh", "mesh"),
        (GOOD.replace("m.py", "n.py"), "batch.toml:1: job 1", "file n.py not found"),
        (GOOD + 'hardware = "h1"\n', "batch.toml:4: job 1, hardware", "h100"),
        (GOOD + 'pin = ["x=wide"]\n', "batch.toml:4: job 1, pin", "no style 'wide'"),
        (GOOD + 'memory = "many"\n', "batch.toml:4: job 1, memory", "80GB"),
        (GOOD + 'config = "no.json"\n', "batch.toml:1: job 1", "no.json cannot be read"),
        (GOOD + 'input = ["x"]\n', "batch.toml:1: job 1", "is not an input"),
        (GOOD + 'name = "../x"\n', "batch.toml:4: job 1, name", "not a name"),
        (GOOD + 'configs = "none*.json"\n', "none*.json", "no such file"),
        (NAMED + NAMED.replace('"j"', '"J"'), "batch.toml:5: job 2", "two jobs are called J"),
        (GOOD + GOOD, "batch.toml:4: job 2", "two jobs are called m.py-M-tp2"),
        (GOOD + "mesh = []\n", "batch.toml:4", "TOML"),
        ('[[job]]\ntarget = "m.py:M"\nmesh = []\n', "batch.toml:3: job 1, mesh", "empty list"),
    ],
)
def test_a_wrong_manifest_is_one_located_error(lab: Lab, text: str, where: str, says: str) -> None:
    path = lab.write(text)
    with pytest.raises(InputError) as found:
        gathered(path.name)
    error = found.value
    said = " ".join([error.what, error.expected, error.got, error.hint])
    assert error.where.startswith(where), error.where
    assert says in said or says in f"{error.what}; {error.hint}"


def test_nothing_is_started_or_written_where_one_job_is_wrong(lab: Lab) -> None:
    path = lab.jobs("ok-1", "ok-2", more='[[job]]\nname="bad"\ntarget="m.py:M"\nmesh="tp=0"\n')
    done = lab.batch(path)
    assert done.code == 2
    assert "job bad" in done.problem().message
    assert done.problem().where.startswith(f"{path}:14: job 3, mesh")
    assert not lab.out.exists()
    assert lab.counted() == []
