"""The batch as a whole, with processes that only act as jobs."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter

from shardproof.agent.batch.folder import held
from shardproof.agent.batch.summary import SORT
from shardproof.agent.report.html import digest
from shardproof.agent.run import events
from tests.batch.conftest import Lab


def test_every_end_is_a_row_and_the_exit_code_says_that_not_all_is_proved(lab: Lab) -> None:
    names = ("ok", "refuted", "crash", "noise", "silent", "refused", "refused-2", "nofit", "hang")
    manifest = lab.jobs(*names)
    manifest.write_text(manifest.read_text() + "timeout = 0.2\n")
    lab.patch.setattr("shardproof.agent.batch.processes.GRACE_S", 0.5)
    done = lab.batch(manifest, workers=6)
    assert done.code == 1
    assert done.outcome.verdict == "refuted"
    assert lab.statuses() == {
        "ok": "proved",
        "refuted": "refuted",
        "crash": "failed",
        "noise": "failed",  # it said that it proved something, and wrote nothing
        "silent": "failed",
        "refused": "refused",
        "refused-2": "refused",
        "nofit": "refused",
        "hang": "timeout",
    }
    summary = lab.summary()
    assert summary["complete"] is True
    groups = {tuple(sorted(g["jobs"])) for g in summary["causes"]}
    assert ("refused", "refused-2") in groups
    rows = {row["name"]: row for row in summary["jobs"]}
    assert "SIGSEGV in capture" in rows["crash"]["cause"]["message"]
    assert (lab.out / rows["noise"]["log"]).with_suffix(".txt").read_text() == (
        "not an event\nnor this\n"
    )
    assert rows["ok"]["step_s"] == 0.002
    for name in ("summary.html", "summary.md"):
        text = (lab.out / name).read_text()
        assert "9 jobs: 1 proved" in text
        assert "jobs/ok/report.html" in text
    last = [e for e in done.events if isinstance(e, events.JobCompleted)]
    assert sorted(e.done for e in last) == list(range(1, 10))
    assert {e.job: e.status for e in last} == lab.statuses()


def test_all_proved_is_zero_and_resume_runs_what_changed(lab: Lab) -> None:
    manifest = lab.jobs("ok-1", "ok-2")
    assert lab.batch(manifest).code == 0
    assert sorted(lab.counted()) == ["ok-1", "ok-2"]
    manifest = lab.jobs("ok-1", "ok-2", "ok-3")
    assert lab.batch(manifest, resume=True).code == 0
    assert lab.counted()[2:] == ["ok-3"]
    assert lab.summary()["kept"] == 2
    (lab.folder / "m.py").write_text("import layer\nclass M: ...\n")
    (lab.folder / "layer.py").write_text("a = 1\n")
    lab.batch(manifest, resume=True)
    assert sorted(lab.counted()[3:]) == ["ok-1", "ok-2", "ok-3"]
    (lab.folder / "layer.py").write_text("a = 2\n")  # imported by the model's file
    lab.batch(manifest, resume=True, only=("ok-2",))
    assert lab.counted()[6:] == ["ok-2"]
    assert lab.statuses() == {"ok-1": "not run", "ok-2": "proved", "ok-3": "not run"}


def test_what_ended_before_stays_in_the_summary_of_a_part(lab: Lab) -> None:
    manifest = lab.jobs("ok-1", "refused", "crash")
    lab.batch(manifest)
    before = lab.statuses()
    lab.batch(manifest, resume=True, only=("ok-1",))
    assert lab.statuses() == before == {"ok-1": "proved", "refused": "refused", "crash": "failed"}
    kept = {row["name"]: (row["kept"], row["cause"] is None) for row in lab.summary()["jobs"]}
    assert kept["refused"] == kept["crash"] == (True, False)
    lab.jobs("ok-1", "refused", "crash", more='[[job]]\nname = "ok-2"\ntarget = "m.py:M"\n')
    (lab.folder / "m.py").write_text("class M: a = 1\n")  # what was refused is of another model
    lab.batch(manifest, resume=True, only=("ok-1",))
    assert lab.statuses()["refused"] == lab.statuses()["ok-2"] == "not run"


def test_resume_does_not_believe_a_directory_that_was_changed(lab: Lab) -> None:
    manifest = lab.jobs("ok-1", "refuted")
    assert lab.batch(manifest).code == 1
    assert lab.batch(manifest, resume=True).code == 1  # a kept refutation still counts
    assert len(lab.counted()) == 2
    plan = lab.out / "jobs" / "ok-1" / "plan.json"
    plan.write_text(plan.read_text() + "\n")
    done = lab.batch(manifest, resume=True)
    assert done.code == 2
    assert "plan.json" in done.problem().got


def test_a_job_that_fails_now_leaves_no_older_result(lab: Lab) -> None:
    manifest = lab.jobs("ok-1")
    assert lab.batch(manifest).code == 0

    def crash(task: object) -> list[str]:
        return [sys.executable, "-c", "import os; os.abort()"]

    assert lab.batch(manifest, force=True, begin=crash).code == 1
    assert lab.statuses() == {"ok-1": "failed"}
    assert not (lab.out / "jobs" / "ok-1").exists()


def test_a_folder_in_use_or_not_ours_is_refused(lab: Lab) -> None:
    manifest = lab.jobs("ok-1")
    lab.out.mkdir()
    (lab.out / "mine.txt").write_text("x")
    for asked in ({}, {"resume": True}, {"force": True}):
        assert lab.batch(manifest, **asked).code == 2
    (lab.out / "mine.txt").unlink()
    lab.patch.setattr("shardproof.agent.batch.folder.PATIENCE_S", 0.2)
    with held(lab.out):
        done = lab.batch(manifest, resume=True)
    assert "another batch" in done.problem().message
    assert lab.batch(manifest).code == 0
    done = lab.batch(manifest)
    assert "--resume" in done.problem().hint


def test_nothing_selected_is_exit_code_5(lab: Lab) -> None:
    done = lab.batch(lab.jobs("ok-1"), only=("llama*",))
    assert done.code == 5
    assert not lab.out.exists()
    assert "ok-1" in done.problem().expected


def test_fail_fast_ends_the_batch_and_says_what_did_not_run(lab: Lab) -> None:
    done = lab.batch(lab.jobs("crash", "ok-1", "ok-2"), fail_fast=True, workers=1)
    assert done.code == 1
    assert lab.statuses() == {"crash": "failed", "ok-1": "not run", "ok-2": "not run"}
    assert lab.summary()["complete"] is False
    assert "Partial" in (lab.out / "summary.md").read_text()


def wait_for(lab: Lab, count: int) -> None:
    deadline = time.monotonic() + 30
    while len(list((lab.out / "jobs").glob("[!.]*"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


NAMES = tuple(f"slow-{n}" for n in range(5))


def test_a_batch_that_was_killed_goes_on_with_exactly_what_is_missing(lab: Lab) -> None:
    manifest = lab.jobs(*NAMES)
    batch = lab.process(manifest)
    wait_for(lab, 2)
    batch.kill()
    batch.communicate()
    whole = {p.name for p in (lab.out / "jobs").glob("[!.]*")}
    assert 2 <= len(whole) < len(NAMES)
    before = Counter(lab.counted())
    again = lab.process(manifest, "--resume")
    out, _ = again.communicate(timeout=60)
    assert again.returncode == 0
    late = {p for p in before if p not in whole}
    assert set(lab.statuses().values()) == {"proved"}
    after = Counter(lab.counted()) - before
    assert set(NAMES) - whole - late <= set(after) <= set(NAMES) - whole
    assert json.loads(out.splitlines()[-1])["event"] == "run.completed"
    assert not list((lab.out / "jobs").glob(".*"))


def test_ctrl_c_keeps_what_is_done_and_exits_130(lab: Lab) -> None:
    batch = lab.process(lab.jobs(*NAMES))
    wait_for(lab, 2)
    batch.send_signal(signal.SIGINT)
    out, err = batch.communicate(timeout=30)
    assert batch.returncode == 130, err
    *_, problem, last = map(events.parse, out.splitlines())
    assert isinstance(problem, events.Problem)
    assert "--resume" in problem.hint
    assert isinstance(last, events.RunCompleted)
    assert last.exit_code == 130
    found = Counter(lab.statuses().values())
    assert found["proved"] >= 2
    assert found["not run"] >= 1
    assert lab.summary()["complete"] is False


def test_names_from_a_manifest_cannot_be_markup_in_the_summary(lab: Lab) -> None:
    path = lab.jobs(
        more='[[job]]\nname="refused"\ntarget="m.py:M"\nconfig={a="<script>|\\u202e"}\n'
    )
    lab.batch(path)
    page = (lab.out / "summary.html").read_text()
    assert page.count("<script") == 1
    assert f"script-src '{digest(SORT)}'" in page
    assert "\u202e" not in (lab.out / "summary.md").read_text()


def test_the_folder_has_a_manifest_and_nothing_that_was_only_passing(lab: Lab) -> None:
    lab.batch(lab.jobs("ok-1"))
    manifest = json.loads((lab.out / "manifest.json").read_text())
    assert manifest["kind"] == "batch"
    assert set(manifest["files"]) == {
        "summary.json",
        "summary.md",
        "summary.html",
        "jobs/ok-1/manifest.json",
    }
    assert not (lab.out / ".work").exists()


FIELDS = """
name target mesh ranks hardware status exit_code kept model_reused seconds phases proof_s strategy
step_s one_device_step_s memory_bytes one_device_memory_bytes comm_bytes collectives agrees
largest_relative_difference assumptions warnings cause directory report patch log inputs command
"""


def test_fields_of_the_summary_are_never_renamed(lab: Lab) -> None:
    lab.batch(lab.jobs("ok-1"))
    summary = lab.summary()
    assert summary["format"] == 1
    assert set(FIELDS.split()) <= set(summary["jobs"][0])
