"""The process of one job: reads what to do from stdin, and is `parallelize` from there on.

Events go to stdout, as with `--json`. When stdin ends, the batch is gone, and so does the job go.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from pydantic import BaseModel

from shardproof.agent.batch.jobs import Job, asked
from shardproof.agent.batch.shelf import shelved
from shardproof.agent.run.run import Outcome, Run, conduct

PLACE = "SHARDPROOF_BATCH_PLACE"
"""Set on a node of a cluster: the folder that a job writes to and finds captured models in."""
LAST_WORDS_S = 5.0
"""Seconds in which a job that was told to end can clean up."""


class Order(BaseModel, frozen=True, extra="forbid"):
    """What a job's process is told."""

    job: Job
    out: str
    shelf: str
    model: str
    """Hash of all that the capture depends on."""
    inputs: str
    """Hash of all that the result depends on."""


def perform(order: Order) -> int:
    """Do the job. Returns the exit code of `parallelize`."""
    job, out, shelf = order.job, Path(order.out), Path(order.shelf)
    elsewhere = os.environ.get(PLACE)
    if elsewhere is not None:
        out, shelf = Path(elsewhere) / "out" / job.name, Path(elsewhere) / "models"
    place = shelf / order.model

    def work(run: Run) -> Outcome:
        from shardproof.agent.pipeline import pipeline

        known = place.with_name(f"{place.name}.ops").absolute()
        what = replace(asked(job, Path(order.out), order.inputs), out=out, known_ops=known)
        if job.translation is not None:
            from shardproof.agent.translation import command

            return command.parallelize(run, what)
        return pipeline.parallelize(run, what, lambda r, q: shelved(r, q, place))

    return conduct(
        "parallelize", job.arguments(Path(order.out)), work, json=True, timeout=job.timeout
    )


def _end_with_the_batch() -> None:
    """Wait for the end of stdin; then end as on a SIGTERM, and for certain a while later."""
    while os.read(0, 1 << 12):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LAST_WORDS_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _first_to_go() -> None:
    """Where memory runs out, the system ends this process, not the batch."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def main() -> int:
    _first_to_go()
    order = Order.model_validate_json(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_the_batch, daemon=True).start()
    return perform(order)


def forked(folder: Path) -> NoReturn:
    """The same in a process that was forked; it has no folder of its own."""
    del folder
    sys.exit(main())


if __name__ == "__main__":
    sys.exit(main())
