"""`shardproof guard` on scripts that know nothing of it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch", allow_module_level=True)
pytestmark = [pytest.mark.torch, pytest.mark.gloo, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]

UNDER_TORCHRUN = """
import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(20):
    dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
sys.stdout.write("done")
"""
SPAWNED = """
import sys
import torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, place):
    from benchmarks.fault_injection import Fault, Injector
    injector = Injector(rank)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
    injector.arm(Fault("bit_flip", 1, "all_gather", 2, 5))
    for _ in range(4):
        dist.all_gather([torch.empty(4), torch.empty(4)], torch.ones(4) * rank)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, (sys.argv[1],), 2)
"""


def guard(tmp_path: Path, *command: str) -> tuple[int, list[dict[str, Any]], str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, "-m", "shardproof", "guard", "--json", "--every", "1", "--log",
         str(tmp_path / "log.jsonl"), "--patience", "30", "--", *command],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, [json.loads(x) for x in done.stdout.splitlines()], done.stderr


def test_the_exit_code_of_the_script_is_kept(tmp_path: Path) -> None:
    assert guard(tmp_path, sys.executable, "-c", "import sys; sys.exit(3)")[0] == 3


@pytest.mark.campaign
def test_calls_under_torchrun_are_judged(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNDER_TORCHRUN)
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)]
    code, events, said = guard(tmp_path, *run)
    assert code == 0, said
    assert "done" in said
    facts = next(e["facts"] for e in events if e.get("phase") == "guard" and "facts" in e)
    assert facts["calls"] >= 20
    assert facts["judged"] >= 20
    assert facts["alarms"] == 0


def test_an_alarm_in_spawned_ranks_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SPAWNED)
    code, events, said = guard(tmp_path, sys.executable, str(script), str(tmp_path / "meet"))
    assert code == 6, said
    verdict = next(e for e in events if e.get("verdict") == "refuted" and "message" in e)
    assert "all_gather: failed H" in verdict["message"]
    assert "ranks 1; elements" in verdict["message"]
    lines = [json.loads(x) for x in (tmp_path / "log.jsonl").read_text().splitlines()]
    alarm = next(x for x in lines if x["event"] == "alarm")
    assert alarm["culprit_ranks"] == [1]
