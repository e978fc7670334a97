"""What processes do with a model and its patch: collect facts, read it as its ranks run it."""

import json
import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.emit.patch import Patch, git_apply, write_old
from shardproof.synthesis.frontends.torch import process
from shardproof.synthesis.frontends.torch.captured import dump, load
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.planner.plan import Plan
from shardproof.verifier.kernel.program.types import Mesh

Mode = Literal["facts", "read"]
"""Functions of `shardproof.synthesis.execute.child`."""


class ExecuteError(Exception):
    """A run that gave no result: which process, what it said last."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a child process needs, written as JSON beside it."""

    request: CaptureRequest
    plan: Plan
    dtype: str = "float64"
    patched_file: str = ""
    """Path of the file that holds `parallelize`, relative to the scratch folder."""
    parallelize: str = "parallelize"
    seed: int = 0
    train: bool = False
    """Whether the model runs in train mode, with dropout left out."""
    device: str = "cpu"
    """`cpu` or `cuda`: what the reference and the ranks run on."""
    known_ops: str = ""
    """A folder where readings of the model leave what ops give."""


@contextmanager
def patched_folder(patch: Patch) -> Generator[Path]:
    """A scratch folder whose `tree` holds the files of a patch, applied. Raises EmitError where git
    refuses it."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        write_old(patch, tree)
        git_apply(patch, tree)
        yield Path(scratch)


def run_child(mode: Mode, job: Job, folder: Path, timeout: float) -> None:
    """Do `mode` of `shardproof.synthesis.execute.child` in a process, and session, of its own.

    Raises:
        ExecuteError: it failed or ran past `timeout` seconds; every process of it is then killed.
    """
    (folder / "job.json").write_text(dump(Job, job))
    target = job.request.target
    asked = process.Job(
        f"shardproof.synthesis.execute.child:{mode}",
        target,
        folder,
        timeout,
        variables={"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )
    finished = process.run_job(asked)
    if finished.stopped:
        raise ExecuteError(f"{target}: no result after {timeout:.0f} s; killed. {_tail(finished)}")
    if finished.returncode:
        code = finished.returncode
        ended = (
            f"was ended by {signal.Signals(-code).name}"
            if code < 0
            else f"ended with exit code {code}"
        )
        raise ExecuteError(f"{target}: {mode} {ended}\n{_tail(finished)}")


def _tail(finished: process.Finished, lines: int = 30) -> str:
    return "\n".join(finished.output.strip().splitlines()[-lines:])


def collect_facts(request: CaptureRequest, timeout: float = 300) -> ModelFacts:
    """Facts about the model, from one forward pass without data in a child process.

    Raises:
        CaptureError: the user's code raised, with its line.
        ExecuteError: as `run_child`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run_child("facts", Job(request, Plan(Mesh())), folder, timeout)
        error = folder / "error.json"
        if error.is_file():
            raise CaptureError(**json.loads(error.read_text()))
        return load(ModelFacts, (folder / "facts.json").read_text())
