"""Captured models, kept for the jobs of one batch that are about the same model."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from agent import pipeline
from agent.files import write_whole
from agent.run import Run
from synthesis.frontends.torch.captured import dump, load
from synthesis.frontends.torch.request import CaptureRequest


@dataclass(frozen=True)
class Shelf:
    """A folder with one file a model. A model is there whole or not at all."""

    folder: Path

    def has(self, key: str) -> bool:
        return (self.folder / key).is_file()

    def take(self, run: Run, asked: CaptureRequest, key: str) -> pipeline.Model:
        """The model, captured before or now."""
        if self.has(key):
            return self._kept(run, key)
        model = pipeline.model_in(run, asked)
        self._keep(key, model)
        return model

    def _kept(self, run: Run, key: str) -> pipeline.Model:
        with run.phase("reuse") as phase:
            model = load(pipeline.Model, (self.folder / key).read_text(encoding="utf-8"))
            phase.summary = f"{model.facts.class_name}: captured before, by another job"
        return model

    def _keep(self, key: str, model: pipeline.Model) -> None:
        with contextlib.suppress(OSError):  # the disk is full: it only saves time
            write_whole(self.folder / key, dump(pipeline.Model, model).encode())
