"""Whether a patch is tried on local processes, and the proof of the patch itself."""

from __future__ import annotations

from dataclasses import replace

from synthesis.emit import EmitError, Patch
from synthesis.execute import ExecuteError
from synthesis.execute.reading import Reading, read_patch
from synthesis.plan import Plan
from synthesis.planner import Synthesis
from verifier.contract import ContractError
from verifier.frontend.captured import Captured
from verifier.frontend.errors import CaptureError
from verifier.frontend.request import CaptureRequest
from verifier.ir.errors import IRError
from verifier.verdict import Counterexample, Proof, Trace, Unknown, Verdict
from verifier.verify import verify

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


def read_again(
    request: CaptureRequest, captured: Captured, made: Synthesis, patch: Patch
) -> tuple[Reading | None, Verdict]:
    """What the ranks of the patched source run, and the verdict on that: the word about the patch.

    Unknown, with no reading, where the patched source could not be traced.
    """
    try:
        reading = read_patch(
            request, patch, made.plan, captured.facts, made.sequential, made.lowered.contract
        )
        verdict = verify(
            made.sequential, reading.program, reading.contract, consts=captured.consts
        )
    except (EmitError, ExecuteError, CaptureError, ContractError, IRError) as error:
        return None, Unknown(f"the plan is proved; its patch was not read: {_last(error)}")
    if isinstance(verdict, Proof):
        assumptions = (*verdict.assumptions, *reading.assumptions)
        verdict = replace(verdict, assumptions=tuple(dict.fromkeys(assumptions)))
    return reading, verdict


def _last(error: Exception) -> str:
    lines = str(error).strip().split("\n")
    return lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[-1]}"


def not_proved(verdict: Verdict) -> Verdict:
    """The verdict on a patch that is no proof, told as what it is: the plan was proved."""
    match verdict:
        case Counterexample(witness=w) if isinstance(w, Trace):
            said = f"cannot run: {w.message}"
        case Counterexample(witness=w):
            said = f"differs from one device: {w.output} is {w.got:.6g}, expected {w.expected:.6g}"
        case Unknown(reason=reason):
            if reason.startswith("the plan is proved;"):
                return verdict
            said = f"is not proved: {reason}"
        case Proof():
            return verdict
    return Unknown(
        f"the plan is proved, but its patch {said}",
        verdict.location,
        verdict.wrong_outputs if isinstance(verdict, Counterexample) else (),
        stats=verdict.stats,
    )
