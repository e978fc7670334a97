"""Whether a patch is tried on local processes, and the proof of the patch itself."""

from __future__ import annotations

from synthesis.emit import EmitError, Patch
from synthesis.execute import ExecuteError
from synthesis.execute.reprove import reprove
from synthesis.plan import Plan
from verifier.contract import ContractError
from verifier.frontend.captured import Captured
from verifier.frontend.request import CaptureRequest
from verifier.ir.errors import IRError
from verifier.verdict import Counterexample, Proof, Trace, Unknown, Verdict

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


def proved_again(request: CaptureRequest, patch: Patch, plan: Plan) -> tuple[Verdict | None, str]:
    """The verdict on the patched model as its ranks run it, and a sentence for the report.

    None where there is none: that is no fault of the plan, and the sentence says why.
    """
    if plan.dp_size > 1:
        return None, "the patch was not captured again: fully_shard is not covered"
    try:
        verdict = reprove(request, patch, plan)
    except (EmitError, ExecuteError, ContractError, IRError) as error:
        reason = str(error).strip().split("\n")
        last = reason[0] if len(reason) == 1 else f"{reason[0]}: {reason[-1]}"
        return None, f"the patch was not captured again: {last}"
    match verdict:
        case Proof(stats=stats):
            return verdict, (
                f"captured again on each of {plan.tp_size} ranks and proved: "
                f"{stats['outputs']:.0f} outputs and gradients, {stats['ops']:.0f} ops"
            )
        case Unknown(reason=reason, location=location):
            where = f", first at {location.op} {location.source}" if location else ""
            return verdict, f"captured again on each rank, but not proved: {reason}{where}"
        case Counterexample(witness=w):
            if isinstance(w, Trace):
                return verdict, f"captured again, the patch cannot run: {w.message}"
            return verdict, (
                f"captured again, the patch differs from one device: {w.output} is {w.got:.6g}, "
                f"expected {w.expected:.6g}"
            )
