"""Whether a patch is tried on local processes."""

from __future__ import annotations

from synthesis.plan import Plan
from verifier.frontend.captured import Captured

PARAMETERS = 50_000_000
PROCESSES = 8
"""A model with more parameters, or a mesh with more ranks, is run only where that is asked for."""


def reason_not_to_run(asked: bool | None, captured: Captured, plan: Plan) -> str:
    """Empty where the patch is to be run, else why it is not."""
    if asked is not None:
        return "" if asked else "the patch was not run: --no-run"
    if captured.facts.param_count > PARAMETERS:
        return f"the patch was not run: more than {PARAMETERS:,} parameters; --run insists"
    if plan.mesh.size > PROCESSES:
        return f"the patch was not run: more than {PROCESSES} processes; --run insists"
    return ""
