"""What the process of a job does: collects facts, or reads the ranks of a patch."""

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from shardproof.synthesis.execute.job import Job
from shardproof.synthesis.frontends.torch.captured import load
from shardproof.synthesis.frontends.torch.homes import root_of
from shardproof.synthesis.frontends.torch.worker import explain


def fork(work: Callable[[], None]) -> int:
    """Run `work` in a forked process that ends without teardown; returns its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001  # the child ends here in any case
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(pids: list[int]) -> None:
    """Wait for all; on the first failure end the others at once."""
    left = set(pids)
    while left:
        pid, status = os.wait()
        left.discard(pid)
        if status:
            for other in left:
                os.kill(other, 9)
            raise SystemExit(f"process {pids.index(pid)} of {len(pids)} failed")


def facts(folder: Path) -> None:
    """One forward pass without data; leaves `facts.json`, or `error.json`."""
    from shardproof.synthesis.emit.facts import ModelFacts
    from shardproof.synthesis.execute.collect import collect
    from shardproof.synthesis.frontends.torch.captured import dump

    request = _job(folder).request
    try:
        (folder / "facts.json").write_text(dump(ModelFacts, collect(request)))
    except Exception as problem:  # noqa: BLE001  (the user's code)
        found = explain(problem, root_of(request.target))
        (folder / "error.json").write_text(json.dumps(found))


def read(folder: Path) -> None:
    """Reads the patched model on ranks of the mesh; leaves their program, or `error.json`."""
    from shardproof.synthesis.execute.patched import save_patched

    job = _job(folder)
    try:
        save_patched(job, folder)
    except Exception as problem:  # noqa: BLE001  (the user's code)
        found = explain(problem, str(folder / "tree"))
        (folder / "error.json").write_text(json.dumps(found))


def _job(folder: Path) -> Job:
    torch.set_num_threads(1)
    return load(Job, (folder / "job.json").read_text())
