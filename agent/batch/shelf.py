"""Captured models, kept for the jobs of one batch that are about the same model."""

import contextlib
from pathlib import Path

from shardproof.agent.pipeline import pipeline
from shardproof.agent.run.files import write_whole
from shardproof.agent.run.run import Run
from shardproof.synthesis.frontends.torch.captured import dump, load
from shardproof.synthesis.frontends.torch.request import CaptureRequest


def shelved(run: Run, asked: CaptureRequest, place: Path) -> pipeline.Model:
    """The model in a file, captured before by another job; or captured now and kept there, whole or
    not at all."""
    if place.is_file():
        with run.phase("reuse") as phase:
            model = load(pipeline.Model, place.read_text(encoding="utf-8"))
            phase.summary = f"{model.facts.class_name}: captured before, by another job"
        return model
    model = pipeline.model_in(run, asked)
    with contextlib.suppress(OSError):  # the disk is full: it only saves time
        write_whole(place, dump(pipeline.Model, model).encode())
    return model
