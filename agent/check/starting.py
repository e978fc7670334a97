"""`check`, begun: its words are read and tracing is started before the rest loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardproof.agent.actions.programs import ALONE, Check
from shardproof.agent.actions.words import read_mesh
from shardproof.agent.check.frameworks import opened
from shardproof.synthesis.frontends.torch.process import warm_up
from shardproof.synthesis.frontends.torch.request import split_target

if TYPE_CHECKING:
    from shardproof.agent.run.run import Outcome, Run


def check(run: Run, asked: Check) -> Outcome:
    """Decide. Raises CaptureError, InputError."""
    read_mesh(asked.mesh)  # a wrong word is answered before anything slow is begun
    with opened(asked) as stated:
        for target in {stated.target, stated.against} - {"", ALONE}:
            split_target(target)
        warm_up(stated.target)
        from shardproof.agent.check.command import run_check

        return run_check(run, stated)
