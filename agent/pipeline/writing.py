"""A plan as a patch, and the word about that patch: read again from its source, and judged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shardproof.agent.run.errors import InputError
from shardproof.agent.run.files import sha256
from shardproof.agent.run.run import Run
from shardproof.agent.verdict import verdicts
from shardproof.agent.verdict.certificates import certificate_text
from shardproof.synthesis.emit import EmitError, ModelFacts, Patch, emit
from shardproof.synthesis.emit.guarding import layouts
from shardproof.synthesis.emit.patch import stamped
from shardproof.synthesis.execute.job import ExecuteError
from shardproof.synthesis.execute.reading import Reading, added_up, outputs_alone, read_patch
from shardproof.synthesis.frontends.torch.captured import Captured
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.frontends.torch.rolling.paths import stacked
from shardproof.synthesis.planner.describe import placed_as
from shardproof.synthesis.planner.expressible import of_whole_batch
from shardproof.synthesis.planner.plan import Plan
from shardproof.synthesis.planner.planner import Synthesis
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Contract, ContractError, output_key
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Trace, Unknown, Verdict, Witness

if TYPE_CHECKING:
    from shardproof.agent.pipeline.pipeline import Job


SHORT = 24
"""Characters of a directory's name that a line of a patch has room for."""
UNREAD = "the plan is proved; its patch was not read"
UNDIVIDED = "the batch cannot be split"


@dataclass(frozen=True)
class Written:
    """A patch with what its ranks run."""

    made: Synthesis
    """With the plan as it was written."""
    patch: Patch
    reading: Reading | None
    """None where the patched source could not be traced."""
    judged: Verdict
    """On the program that was read."""

    @property
    def verdict(self) -> Verdict:
        """The word about the patch."""
        return not_proved(self.judged, self.made)


def write(run: Run, job: Job, captured: Captured, facts: ModelFacts, made: Synthesis) -> Written:
    """Write the plan as a patch, read the patch again, and judge it. Where the loss of one device
    is not the mean of those of the ranks, the patch that adds them up is tried as well.

    Raises:
        InputError: the owner's file is no longer what was captured.
        EmitError: a plan that cannot be written.
    """
    written = _attempt(run, job, captured, facts, made)
    if isinstance(written.judged, Proof) or not _added_up(captured, written):
        return written
    summed = replace(made, plan=replace(made.plan, loss="sum"))
    other = _attempt(run, job, captured, facts, summed)
    return other if isinstance(other.judged, Proof) else written


def _added_up(captured: Captured, written: Written) -> bool:
    """Whether the loss of one device is the sum of the losses that the ranks were read to have."""
    reading, plan = written.reading, written.made.plan
    if reading is None or plan.batch_ranks == 1 or plan.loss == "sum":
        return False
    sequential = written.made.sequential
    one = outputs_alone(sequential, "loss")
    ranks = outputs_alone(added_up(reading.program, plan), "loss")
    keys = {output_key(o) for o in one.outputs}
    outputs = {k: v for k, v in reading.contract.outputs.items() if k in keys}
    contract = replace(reading.contract, outputs=outputs)
    return bool(keys) and isinstance(
        verify(Problem(one, ranks, contract, consts=captured.consts)), Proof
    )


def _attempt(run: Run, job: Job, captured: Captured, facts: ModelFacts, made: Synthesis) -> Written:
    with run.phase("emit") as phase:
        _same_code(captured, facts)
        lowered = made.lowered
        watched = layouts(lowered.program, lowered.contract) if job.asked.guard else None
        patch = emit(facts, made.plan, layouts=watched, inline=job.asked.inline)
        added = sum(
            line.startswith("+") and not line.startswith("+++") for line in patch.diff.split("\n")
        )
        phase.summary = f"{added} lines added, git apply --check passes"
    with run.phase("read") as phase:
        reading, judged = read_again(
            job.request,
            captured,
            made.plan,
            made.sequential,
            made.contract,
            patch,
            job.known_ops,
        )
        phase.summary = told(reading, judged)
    if reading is not None:
        made = replace(made, plan=_as_read(made.plan, made.sequential, reading))
    if isinstance(judged, Proof):
        patch = stamped(patch, _comment(judged, job.out))
    return Written(made, patch, reading, judged)


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


def not_proved(verdict: Verdict, made: Synthesis) -> Verdict:
    """The verdict on a patch that is no proof, told as what it is: the plan was proved, where its
    own program is on the whole mesh."""
    plan, patch = made.plan, "the plan is proved, but its patch"
    if plan.cp or plan.replicate:
        patch = "the patch"
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
        _undivided(verdict, made) or f"{patch} {said}",
        verdict.location,
        verdict.wrong_outputs if isinstance(verdict, Counterexample) else (),
        stats=verdict.stats,
    )


def _undivided(verdict: Verdict, made: Synthesis) -> str:
    """That the batch is one whole, where the values of its parts are wrong and all that a patch
    does is to split it, or the plan gathers over dp within forward: the owner's code does not."""
    plan = made.plan
    if not isinstance(verdict, Counterexample) or not isinstance(verdict.witness, Witness):
        return ""
    role = verdict.witness.output.partition(":")[0]
    met = of_whole_batch(made.lowered, plan.dp) if plan.dp else None
    if role not in ("loss", "output") or plan.batch_ranks == 1 or (plan.tp_size > 1 and not met):
        return ""
    at = f"at {met.source}" if met is not None and met.source.line else "here"
    whole = (
        "the mean of those of its parts" if role == "loss" else "those of its parts side by side"
    )
    return (
        f"{UNDIVIDED} over {plan.batch_ranks} ranks, since samples of it meet here: "
        f"the {role} of all is not {whole}; split the model over tp, or gather over dp {at}"
    )


def _comment(proof: Proof, out: Path) -> str:
    """The line of a patch that names its proof, and the command that checks that."""
    text = certificate_text(proof.certificate)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    place = "DIRECTORY" if out.is_absolute() or len(str(out)) > SHORT else out.as_posix()
    return f"# Proved: certificate {digest}, checked by `shardproof verify {place}`."


def _as_read(plan: Plan, sequential: Program, reading: Reading) -> Plan:
    """The plan with its parameters placed as the patched code places them."""
    params = dict(plan.params)
    for item in sequential.inputs:
        if item.role == "param" and item.path in params:
            layout = reading.contract.inputs[item.name]
            layout = Layout(layout.dims[stacked(item.path) :], layout.partial)
            params[item.path] = {n: placed_as(layout, n) for n in plan.mesh.names}
    return replace(plan, params=params)


def told(reading: Reading | None, judged: Verdict) -> str:
    """What came of reading a patch, in a line."""
    if reading is None:
        return judged.reason if isinstance(judged, Unknown) else "not read"
    ranks = f"{len(reading.ranks)} of {reading.size} ranks traced"
    ops = sum(1 for _ in reading.program.walk())
    return f"{ranks}, {ops} ops: {verdicts.word(judged)}"


def _same_code(captured: Captured, facts: ModelFacts) -> None:
    """Raise InputError where the owner's file is no longer what was captured."""
    for file in captured.facts.files:
        if facts.file is None or not file.location:
            continue
        place = Path(file.location)
        if not place.is_file() or sha256(place) != file.sha256:
            raise InputError(
                "the file changed while it was planned", where=file.location, hint="run it again"
            )
