"""What processes do with a model and its patch: collect facts, read it as its ranks run it."""

import contextlib
import json
import os
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
from shardproof.synthesis.frontends.torch.homes import patched_from
from shardproof.synthesis.frontends.torch.request import CaptureRequest, is_library, split_target
from shardproof.synthesis.planner.plan import Plan
from shardproof.verifier.kernel.program.types import Mesh

Mode = Literal["facts", "read"]
SECONDS: dict[Mode, int] = {"facts": 300, "read": 600}
"""Of a process, at most."""
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
    patched_root: str = ""
    """The folder that the scratch folder stands in the place of; empty for a new file."""
    parallelize: str = "parallelize"
    seed: int = 0
    train: bool = False
    """Whether the model runs in train mode, with dropout left out."""
    device: str = "cpu"
    """`cpu` or `cuda`: what the reference and the ranks run on."""
    known_ops: str = ""
    """A folder where readings of the model leave what ops give."""
    patched_new: bool = False
    """Whether the patch makes the file of `parallelize`: that builds the model itself."""


NOT_LINKED = (".git", "__pycache__")
"""What a patched tree does not share with the owner's: git writes in the one, and the other may
hold what a file was compiled to before the patch."""


def place_of(request: CaptureRequest, patch: Patch) -> tuple[str, Path | None]:
    """The file of a patch that holds its function, and the folder that its paths are relative to;
    None where it is a new file beside no others.

    Raises:
        CaptureError: it changes no file of the target.
    """
    kind, _ = split_target(request.target)
    if is_library(request.target):
        return next(iter(patch.files)), None
    file = Path(kind).resolve()
    for path in sorted(patch.files, key=len, reverse=True):
        if file.as_posix().endswith(f"/{path}"):
            return path, Path(file.as_posix().removesuffix(f"/{path}") or "/")
    if all(old is None for old, _ in patch.files.values()):
        return min(patch.files), patched_from(file)
    raise CaptureError("the patch does not change the file of the model", file=kind)


@contextmanager
def patched_folder(patch: Patch, root: Path | None) -> Generator[Path]:
    """A scratch folder whose `tree` stands in the place of `root`: it holds the files of a patch,
    applied, and links to what lies beside them. Raises EmitError where git refuses the patch."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        write_old(patch, tree)
        git_apply(patch, tree)
        if root is not None:
            _link_rest(patch, root, tree)
        yield Path(scratch)


def _link_rest(patch: Patch, root: Path, tree: Path) -> None:
    """Link what lies in the folders of patched files, and in those above, to where it is."""
    folders = {folder for path in patch.files for folder in Path(path).parents}
    for folder in folders:
        with contextlib.suppress(PermissionError), os.scandir(root / folder) as entries:
            for entry in entries:
                link = tree / folder / entry.name
                if entry.name not in NOT_LINKED and not os.path.lexists(link):
                    link.symlink_to(entry.path)


def run_child(mode: Mode, job: Job, folder: Path) -> None:
    """Do `mode` of `shardproof.synthesis.execute.child` in a process, and session, of its own.

    Raises:
        ExecuteError: it failed or ran past `SECONDS`; every process of it is then killed.
    """
    (folder / "job.json").write_text(dump(Job, job))
    target, limit = job.request.target, SECONDS[mode]
    asked = process.Job(
        f"shardproof.synthesis.execute.child:{mode}",
        target,
        folder,
        limit,
        variables={
            **process.owners(job.request.env),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        },
    )
    finished = process.run_job(asked)
    if finished.stopped:
        raise ExecuteError(f"{target}: no result after {limit} s; killed. {_tail(finished)}")
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


def collect_facts(request: CaptureRequest) -> ModelFacts:
    """Facts about the model, from one forward pass without data in a child process.

    Raises:
        CaptureError: the user's code raised, with its line.
        ExecuteError: as `run_child`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run_child("facts", Job(request, Plan(Mesh())), folder)
        error = folder / "error.json"
        if error.is_file():
            raise CaptureError(**json.loads(error.read_text()))
        return load(ModelFacts, (folder / "facts.json").read_text())
