"""What `shardproof parallelize --no-run` says of a model file, and the patch that it hands out."""

from __future__ import annotations

import json
import tempfile
import time
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from shardproof.agent.actions.models import Parallelize
from shardproof.agent.pipeline import pipeline
from shardproof.agent.run import events
from shardproof.agent.run.errors import LimitError
from shardproof.agent.run.run import Run, interruptible
from shardproof.agent.run.translate import as_ours
from shardproof.synthesis.emit import EmitError, Patch, emit
from shardproof.synthesis.emit.patch import apply_diff, write_old
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.planner import plan as plans
from shardproof.synthesis.planner.plan import Plan

TIMEOUT = 180.0


@dataclass(frozen=True, slots=True)
class Said:
    """The end of one run."""

    word: str
    """`proved`, `unknown`, `refuted`, `refused` (a clear error) or `crash`."""
    message: str
    patch: Patch | None = None
    """What was written; where nothing was proved, what the plan would have written."""
    plan: Plan | None = None
    loss: str = "mean"
    """How the loss of one device follows from those of the ranks, as the plan says."""
    seconds: float = 0.0


@dataclass
class _Kept:
    """A sink that holds what was said."""

    said: list[events.Event] = field(default_factory=list[events.Event])

    def show(self, event: events.Event) -> None:
        self.said.append(event)

    def note(self, doing: str) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class Tool:
    """Runs the road of one file for several meshes; the file is captured once."""

    file: Path
    """With the class `M`."""
    _model: pipeline.Model | None = None

    def asked(self, mesh: str) -> Parallelize:
        return Parallelize(target=f"{self.file}:M", mesh=mesh, run=False)

    def say(self, mesh: str, out: Path, timeout: float = TIMEOUT) -> Said:
        """The verdict on `mesh`; `out` is the directory to write."""
        start = time.monotonic()
        kept = _Kept()
        job = pipeline.job_of(self.asked(mesh), out)
        try:
            with interruptible(timeout):
                outcome = pipeline.parallelize(Run([kept]), job, self._take)
        except Exception as error:  # noqa: BLE001  (each ends as a row)
            ours = as_ours(error)
            seconds = time.monotonic() - start
            if ours is None or isinstance(ours, LimitError):
                trace = traceback.extract_tb(error.__traceback__)[-1]
                at = f"{type(error).__name__} at {Path(trace.filename).name}:{trace.lineno}"
                return Said("crash", f"{at}: {error}", seconds=seconds)
            where = f"  [{ours.where}]" if ours.where else ""
            return Said("refused", f"{ours.what}{where}", seconds=seconds)
        ended = [e for e in kept.said if isinstance(e, events.VerdictReached)]
        message = ended[-1].message.split("\n")[0] if ended else ""
        text = (out / "plan.json").read_text()
        plan = plans.from_json(text)
        loss = cast(dict[str, Any], json.loads(text)).get("loss", "mean")
        seconds = time.monotonic() - start
        word = str(outcome.verdict)
        try:
            patch = self._patch(plan, out)
        except EmitError as error:
            return Said(word, f"{message}; not written: {error}", None, plan, loss, seconds)
        return Said(word, message, patch, plan, loss, seconds)

    def _take(self, run: Run, asked: CaptureRequest) -> pipeline.Model:
        if self._model is None:
            self._model = pipeline.model_in(run, asked)
        return self._model

    def _patch(self, plan: Plan, out: Path) -> Patch:
        """The patch of a plan, with the diff that was written, if one was.

        Raises:
            EmitError: the plan cannot be written as a patch.
        """
        assert self._model is not None
        patch = emit(self._model.facts, plan)
        written = out / "patch.diff"
        return with_diff(patch, written.read_text()) if written.exists() else patch


def with_diff(patched: Patch, diff: str) -> Patch:
    """The patch with another diff of its files, and what git makes of them with that.

    Raises:
        EmitError: git refuses the diff.
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        write_old(patched, root)
        apply_diff(diff, root)
        files = {
            path: (old, (root / path).read_bytes().decode("utf-8"))
            for path, (old, _) in patched.files.items()
        }
    return replace(patched, files=files, diff=diff)
