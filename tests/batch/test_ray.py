"""Batches on a Ray cluster of two nodes: jobs are its tasks, and what is lost is run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardproof.agent.batch import cluster
from shardproof.agent.batch.processes import end
from tests.batch.conftest import Lab

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
ROOT = Path(__file__).resolve().parents[2]
PORT = 20000 + os.getpid() % 9000
ADDRESS = f"127.0.0.1:{PORT}"
COUNT = f"import ray; ray.init(address={ADDRESS!r}, log_to_driver=False, logging_level='ERROR'); "
COUNT += "print(sum(n['Alive'] for n in ray.nodes()))"
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "500",
}


class Nodes:
    """A head that takes no jobs, and nodes that have two CPUs each."""

    def __init__(self, folder: str) -> None:
        self.up: list[subprocess.Popen[bytes]] = []
        words = ["--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false"]
        self.head = self.begin(*words, f"--temp-dir={folder}")

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words],
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.up.append(process)
        return process

    def node(self) -> subprocess.Popen[bytes]:
        return self.begin(f"--address={ADDRESS}", "--num-cpus=2")

    def wait(self, count: int) -> None:
        """Until as many nodes are up, the head among them."""
        for _ in range(30):
            done = subprocess.run(
                [sys.executable, "-c", COUNT], env=ENVIRONMENT, capture_output=True, text=True
            )
            if done.stdout.strip() == str(count):
                return
            time.sleep(0.5)
        raise AssertionError(done.stdout + done.stderr)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:  # sockets: short paths
        found = Nodes(folder)
        try:
            found.wait(1)
            for count in (2, 3):  # one by one: they look for free ports
                found.node()
                found.wait(count)
            yield found
        finally:
            for process in found.up:
                end(process)


ON_RAY: dict[str, Any] = {"executor": "ray", "address": ADDRESS, "workers": 4}


def waited(lab: Lab, *names: str) -> None:
    """Until jobs were started."""
    for _ in range(600):
        if set(names) <= set(lab.counted()):
            return
        time.sleep(0.1)
    raise AssertionError(lab.counted())


def kept(lab: Lab, name: str) -> None:
    """Until what a job wrote came back."""
    while not (lab.out / "jobs" / name).is_dir():
        time.sleep(0.1)


def test_jobs_run_on_nodes_and_what_they_wrote_comes_back(nodes: Nodes, lab: Lab) -> None:
    names = ("ok-a", "ok-b", "refuted-c", "crash-d", "refused-e", "hang-f")
    done = lab.batch(lab.jobs(*names), **ON_RAY, timeout=2.0)
    assert done.code == 1
    assert lab.statuses() == dict(
        zip(names, ("proved", "proved", "refuted", "failed", "refused", "timeout"), strict=True)
    )
    assert (lab.out / "jobs" / "ok-a" / "plan.json").is_file()
    assert lab.batch(lab.jobs("ok-a", "ok-g"), **ON_RAY, resume=True).code == 0
    assert sorted(lab.counted()) == sorted([*names, "ok-g"])


def test_a_killed_worker_and_a_killed_node_cost_what_ran_on_them(nodes: Nodes, lab: Lab) -> None:
    manifest = lab.jobs("ok-a", "long-b", "long-c", "long-d")
    batch = lab.process(manifest, "--ray", ADDRESS)
    waited(lab, "long-b", "long-c", "long-d")
    kept(lab, "ok-a")
    end(nodes.up[1])
    nodes.node()
    out, err = batch.communicate(timeout=120)
    assert batch.returncode == 0, out + err
    assert set(lab.statuses().values()) == {"proved"}
    assert lab.counted().count("ok-a") == 1
    assert len(lab.counted()) > 4


def test_a_killed_batch_goes_on_where_it_was(nodes: Nodes, lab: Lab) -> None:
    manifest = lab.jobs("ok-a", "long-b")
    batch = lab.process(manifest, "--ray", ADDRESS)
    waited(lab, "long-b")
    kept(lab, "ok-a")
    batch.send_signal(signal.SIGKILL)
    batch.communicate()
    out, err = lab.process(manifest, "--ray", ADDRESS, "--resume").communicate(timeout=120)
    assert sorted(lab.counted()) == ["long-b", "long-b", "ok-a"], out + err
    assert set(lab.statuses().values()) == {"proved"}


def test_a_job_larger_than_any_node_is_one_error(nodes: Nodes, lab: Lab) -> None:
    done = lab.batch(lab.jobs("ok-a"), **ON_RAY, ram="900TB")
    assert done.code == 2
    assert "no node has 1 CPUs and 900000.0 GB" in done.problem().got


def test_a_cluster_that_is_lost_ends_the_batch_and_keeps_what_is_done(
    nodes: Nodes, lab: Lab
) -> None:
    manifest = lab.jobs("ok-a", "long-b", "ok-c")
    batch = lab.process(manifest, "--ray", ADDRESS)
    waited(lab, "long-b")
    kept(lab, "ok-a")
    end(nodes.head)
    out, err = batch.communicate(timeout=120)
    assert batch.returncode == 1, out + err
    assert "the Ray cluster was lost" in out
    assert lab.statuses()["ok-a"] == "proved"
    out, err = lab.process(manifest, "--resume").communicate(timeout=120)
    assert set(lab.statuses().values()) == {"proved"}, out + err
    assert lab.counted().count("ok-a") == 1


def test_an_address_where_nothing_listens_is_one_error(lab: Lab) -> None:
    done = lab.batch(lab.jobs("ok-a"), executor="ray", address="127.0.0.1:1")
    assert done.code == 2
    assert done.problem().message == "nothing listens there"
    done = lab.batch(lab.jobs("ok-a"), executor="ray", address="ray://x")
    assert done.problem().message == "not an address"


def test_without_ray_is_one_error(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    done = lab.batch(lab.jobs("ok-a"), executor="ray")
    assert done.problem().hint == "pip install 'shardproof[ray]'"
