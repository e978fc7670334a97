"""Captured models, kept for the jobs of one batch that are about the same model."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from agent import pipeline
from agent.run import Run
from synthesis.emit import facts as emitted
from synthesis.frontends.torch import captured as captures
from synthesis.frontends.torch.request import CaptureRequest


@dataclass(frozen=True)
class Shelf:
    """A folder with one folder a model. A model is there whole or not at all."""

    folder: Path

    def has(self, key: str) -> bool:
        return (self.folder / key).is_dir()

    def take(self, run: Run, asked: CaptureRequest, key: str) -> pipeline.Model:
        """The model, captured before or now."""
        if self.has(key):
            return self._kept(run, key)
        model = pipeline.model_in(run, asked)
        self._keep(key, model)
        return model

    def _kept(self, run: Run, key: str) -> pipeline.Model:
        with run.phase("reuse") as phase:
            place = self.folder / key
            captured = captures.load(place)
            facts = emitted.from_json((place / "facts.json").read_text(encoding="utf-8"))
            phase.summary = f"{captured.facts.class_name}: captured before, by another job"
        return pipeline.Model(captured, facts)

    def _keep(self, key: str, model: pipeline.Model) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".", dir=self.folder))
        try:
            captures.save(model.captured, staging)
            text = emitted.to_json(model.facts)
            (staging / "facts.json").write_text(text, encoding="utf-8")
            if not self.has(key):
                staging.replace(self.folder / key)
        except OSError:  # another was faster, or the disk is full: it only saves time
            pass
        finally:
            shutil.rmtree(staging, ignore_errors=True)
