"""`shardproof batch` with processes that only act as jobs, for tests that kill or interrupt it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardproof.agent.batch import command, keys
from shardproof.agent.batch.pool import Task
from shardproof.agent.run.run import Outcome, Run, conduct

FAKE = Path(__file__).with_name("fake_job.py")


def start(task: Task) -> Sequence[str]:
    return [sys.executable, str(FAKE), task.name]


def main() -> int:
    manifest, out, *words = sys.argv[1:]
    keys.ours = lambda: {"version": "fixed"}  # others may edit this program meanwhile

    def work(run: Run) -> Outcome:
        where: dict[str, Any] = {"workers": 2}
        if "--ray" in words:
            where = {"workers": 4, "executor": "ray", "address": words[words.index("--ray") + 1]}
        asked = command.Batch(what=(manifest,), out=Path(out), resume="--resume" in words, **where)
        return command.batch(run, asked, start)

    return conduct("batch", sys.argv[1:], work, json=True)


if __name__ == "__main__":
    sys.exit(main())
