"""Actions on a model, begun: their words are read and capture is started before the rest loads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shardproof.agent.actions import words
from shardproof.agent.run import outdir
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import is_library

if TYPE_CHECKING:
    from shardproof.agent.actions.models import (
        Candidates,
        Capture,
        Parallelize,
        Plan,
        Step,
        Translate,
        WhyNot,
    )
    from shardproof.agent.run.run import Outcome, Run


def parallelize(run: Run, asked: Parallelize) -> Outcome:
    """Plan, prove and patch: a model as it is captured, or a translation of one that is not.

    Raises ShardproofError, or an error that reads as one.
    """
    words.mesh_for(asked.mesh, asked.gpus)
    if asked.fixed and asked.mesh is not None:
        raise InputError("--mesh leaves nothing to fix", where="--fix", hint="give --gpus")
    words.of_launcher(asked)
    words.of_dialect(asked)
    out = asked.out or words.placed(asked.target)
    outdir.check_free(out, force=asked.force)
    asked.constraints()
    request = asked.warmed()
    from shardproof.agent.pipeline import pipeline

    job = pipeline.job_of(asked, out, request)
    if asked.mesh is None:
        from shardproof.agent.training import choosing

        return choosing.parallelize(run, job)
    if asked.translation is None:
        try:
            return pipeline.parallelize(run, job)
        except CaptureError as refused:
            if asked.llm == "none" or is_library(request.target):
                raise
            run.warn(f"capture refuses it: {refused.message}")
    from shardproof.agent.translation import command

    return command.parallelize(run, job)


def step(run: Run, asked: Step) -> Outcome:
    """Prove a training step. Raises ShardproofError, or an error that reads as one."""
    given = words.mesh_for(asked.mesh, asked.gpus)
    request = asked.warmed()
    from shardproof.agent.training import choosing, stepping
    from shardproof.synthesis import hardware

    if asked.mesh is None and asked.gpus is not None:
        job = replace(choosing.stepped(run, request, asked, asked.gpus), out=asked.out)
    else:
        cluster = hardware.load(asked.hardware)
        job = stepping.Job(request, given, cluster, asked.micro_batches, asked.out, asked.schedule)
    return stepping.prove(run, job)


def capture(run: Run, asked: Capture) -> Outcome:
    """Print the program of a model. Raises CaptureError, InputError."""
    request = asked.warmed(gradients=not asked.forward_only)
    from shardproof.agent.pipeline import pipeline

    return pipeline.show_program(run, request)


def translate(run: Run, asked: Translate) -> Outcome:
    """Translate what capture refuses. Raises CaptureError, InputError."""
    request = asked.warmed()
    from shardproof.agent.translation import command

    return command.translate(run, asked, request)


def candidates(run: Run, asked: Candidates) -> Outcome:
    """List plans, each judged. Raises ShardproofError, or an error that reads as one."""
    question = asked.question()
    from shardproof.agent.pipeline import considering

    return considering.show_candidates(run, question, asked.count)


def why_not(run: Run, asked: WhyNot) -> Outcome:
    """Try a style. Raises ShardproofError, or an error that reads as one."""
    question = asked.question()
    from shardproof.agent.pipeline import considering

    return considering.show_why_not(run, question, asked.path, asked.style, bare=asked.bare)


def plan(run: Run, asked: Plan) -> Outcome:
    """Choose a configuration. Raises ShardproofError, or an error that reads as one."""
    from shardproof.agent.training import choosing

    return choosing.plan(run, asked)
