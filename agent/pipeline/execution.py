"""Whether a patch is tried on local processes, and the proof of the patch itself."""

from dataclasses import replace
from pathlib import Path

from shardproof.synthesis.emit import EmitError, Patch
from shardproof.synthesis.execute.job import ExecuteError
from shardproof.synthesis.execute.reading import Reading, read_patch
from shardproof.synthesis.frontends.torch.captured import Captured
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.planner.cost import Estimate
from shardproof.synthesis.planner.plan import Plan
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Contract, ContractError
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Trace, Unknown, Verdict, Witness

PARAMETERS = 50_000_000
PROCESSES = 8
BYTES = 4 << 30
"""A model with more parameters, a mesh with more ranks, or a run with more memory on this machine
is tried only where that is asked for."""
ENOUGH = 1 << 30
"""Bytes that a run takes where it can do with fewer sequences than are planned."""

UNREAD = "the plan is proved; its patch was not read"


def reason_not_to_run(asked: bool | None, captured: Captured, plan: Plan, needed: float = 0) -> str:
    """Empty where the patch is to be run, else why it is not. `needed`: bytes on this machine."""
    if captured.facts.draws and plan.dp_size > 1:
        return f"the patch was not run: its {plan.dp} ranks draw random numbers of their own"
    if asked is not None:
        return "" if asked else "the patch was not run: --no-run"
    if captured.facts.param_count > PARAMETERS:
        return f"the patch was not run: more than {PARAMETERS:,} parameters; --run insists"
    if plan.mesh.size > PROCESSES:
        return f"the patch was not run: more than {PROCESSES} processes; --run insists"
    if needed > BYTES:
        return f"the patch was not run: it takes about {needed / 1e9:.0f} GB here; --run insists"
    return ""


def small(
    request: CaptureRequest, plan: Plan, whole: Estimate, rank: Estimate
) -> tuple[CaptureRequest, float]:
    """What to run, and the bytes it takes here in float64: with fewer sequences where the batch is
    ours to choose and that of the plan is large. `whole` and `rank` are of the captured batch.
    """
    wide = 8 / (4 if request.dtype in ("", "f32") else 2)
    states = wide * max(e.parameters + e.gradients for e in (whole, rank)) * plan.mesh.size
    each = wide * max(whole.activations, rank.activations * plan.mesh.size)
    batch, least = request.batch or 1, plan.mesh.size
    share = batch
    while states + each * share / batch > ENOUGH and share % 2 == 0 and share // 2 % least == 0:
        share //= 2
    smaller = request if request.batch is None else replace(request, batch=share)
    return smaller, states + each * share / batch


def read_again(
    request: CaptureRequest,
    captured: Captured,
    plan: Plan,
    sequential: Program,
    planned: Contract,
    patch: Patch,
    known_ops: Path | None = None,
) -> tuple[Reading | None, Verdict]:
    """What the ranks of the patched source run, and the verdict on that: the word about the patch.

    `sequential` is what was captured, in primitives; inputs and outputs are laid out as `planned`
    says. Unknown, with no reading, where the patched source could not be traced. In `known_ops`
    readings of other patches of the model leave what ops give.
    """
    try:
        reading = read_patch(
            request,
            patch,
            plan,
            captured.facts,
            sequential,
            planned,
            captured.consts,
            known_ops=known_ops,
        )
        verdict = verify(
            Problem(sequential, reading.program, reading.contract, consts=captured.consts)
        )
    except (EmitError, ExecuteError, CaptureError, ContractError, IRError) as error:
        return None, Unknown(f"{UNREAD}: {_last(error)}")
    if isinstance(verdict, Proof):
        assumptions = (*verdict.assumptions, *reading.assumptions)
        verdict = replace(verdict, assumptions=tuple(dict.fromkeys(assumptions)))
    return reading, verdict


def _last(error: Exception) -> str:
    lines = str(error).strip().split("\n")
    return lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[-1]}"


def not_proved(verdict: Verdict, plan: Plan) -> Verdict:
    """The verdict on a patch that is no proof, told as what it is: the plan was proved."""
    match verdict:
        case Proof():
            return verdict
        case Counterexample(witness=Trace(message=message)):
            said = f"cannot run: {message}"
        case Counterexample(witness=Witness(output=output, got=got, expected=expected)):
            said = f"differs from one device: {output} is {got:.6g}, expected {expected:.6g}"
        case Counterexample():
            said = "differs from one device"
        case Unknown(reason=reason):
            if reason.startswith(UNREAD):
                return verdict
            said = f"is not proved: {reason}"
    return Unknown(
        _undivided(verdict, plan) or f"the plan is proved, but its patch {said}",
        verdict.location,
        verdict.wrong_outputs if isinstance(verdict, Counterexample) else (),
        stats=verdict.stats,
    )


def _undivided(verdict: Verdict, plan: Plan) -> str:
    """That the batch is one whole, where all that a patch does is to split it and the values of the
    parts are wrong: the plan gathers over dp within forward, and the owner's code does not."""
    if not isinstance(verdict, Counterexample) or not isinstance(verdict.witness, Witness):
        return ""
    role = verdict.witness.output.partition(":")[0]
    if role not in ("loss", "output") or plan.dp_size == 1 or plan.tp_size > 1:
        return ""
    whole = (
        "the mean of those of its parts" if role == "loss" else "those of its parts side by side"
    )
    return (
        f"the batch cannot be split over {plan.dp}={plan.dp_size}, since samples of it meet here: "
        f"the {role} of all is not {whole}; split the model over tp, or gather over dp here"
    )
