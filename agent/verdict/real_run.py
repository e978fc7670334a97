"""What a run of the owner's code on real processes says of a verdict.

A difference outranks every proof: what differs is refuted, with its numbers. A run that agrees
confirms a proof, and proves nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shardproof.agent.run import events
from shardproof.agent.run.run import Run
from shardproof.synthesis.execute.run.running import Failed, Ran, Row
from shardproof.verifier.kernel.program.types import Mesh, Source
from shardproof.verifier.verdict import (
    Counterexample,
    Location,
    Proof,
    Trace,
    Unknown,
    Verdict,
    Witness,
)

SEEDED = (
    "The generator `{name}` is seeded alike on all ranks: {lines} draw{s} from it, and ranks that "
    "draw differently compute something else."
)
PLAIN = "A run does not compare gradients of inputs: one device fails with inputs that need one."
ROUNDED = "A run differs by {relative}, which is taken for rounding in {narrow}."
UNSUPPORTED = ("does not support", "not supported", "not implemented", "Cannot use ReduceOp")
"""What PyTorch says of an op that gloo, or a CPU, does not have."""


def summary(ran: Ran) -> str:
    """One line of what was run."""
    if ran.unlike:
        return f"not compared: {_first(ran.unlike)}"
    if ran.failed is not None:
        return f"not run to its end: {ran.failed.who}, {_first(ran.failed.message)}"
    seeds = len({r.seed for r in ran.rows})
    calls = len({r.call for r in ran.rows})
    worst = ran.worst
    if worst is not None:
        return f"{worst.kind} {worst.name} differs in {worst.mode}, call {worst.call + 1}"
    rounded = f" as {ran.narrow or 'float32'} is rounded" if ran.largest > ran.tolerance else ""
    return (
        f"{', '.join(ran.modes)}: {seeds} seed{'s' * (seeds > 1)}, "
        f"{calls} call{'s' * (calls > 1)} each{rounded}"
    )


def told(run: Run, ran: Ran, mesh: Mesh) -> None:
    """Emit what came of a run."""
    if ran.failed is None and not ran.unlike:
        run.emit(
            events.Executed(
                processes=mesh.size,
                agrees=ran.worst is None,
                largest_relative_difference=ran.worst.relative if ran.worst else ran.largest,
                tolerance=ran.allowed(ran.worst) if ran.worst else ran.limit,
            )
        )


def judged(verdict: Verdict, ran: Ran, mesh: Mesh, what: str, must_run: bool = False) -> Verdict:
    """The verdict on `what`, the module or the patch, after a run. A patch `must_run`; a module may
    be one that this machine cannot run at all."""
    if ran.worst is not None and _counts(verdict, ran):
        return refuted(ran.worst, mesh, verdict)
    if not isinstance(verdict, Proof):
        return verdict
    if ran.unlike and must_run:
        return Unknown(f"{what} is proved, but its run cannot be compared: {ran.unlike}")
    if ran.failed is not None:
        return _not_run(verdict, ran.failed, what, must_run)
    seeds = tuple(obligations(ran))
    return replace(verdict, assumptions=(*verdict.assumptions, *seeds)) if seeds else verdict


def _counts(verdict: Verdict, ran: Ran) -> bool:
    """Whether a difference says that the ranks are wrong. What PyTorch's generator draws on pieces
    is another draw than on the whole: that alone refutes no module that is not proved."""
    return isinstance(verdict, Proof) or "torch" not in ran.drew


def _not_run(proof: Proof, failed: Failed, what: str, must_run: bool) -> Verdict:
    """What the proof is worth where a process failed: it stands where this machine cannot run the
    code at all."""
    early = failed.stage == "build" or failed.process == 0
    if not must_run and (early or any(words in failed.message for words in UNSUPPORTED)):
        return proof
    how = "waits for others" if failed.stage == "stuck" else f"ends with {failed.kind}"
    said = f"{what} is proved, but in a run {failed.who} {how} in {failed.mode}: {failed.message}"
    return Unknown(said, _place(failed))


def _place(failed: Failed) -> Location | None:
    if not failed.file:
        return None
    at = Source(Path(failed.file).name, failed.line, "", failed.text)
    return Location("", failed.text, f"{failed.who} is here", at)


def refuted(row: Row, mesh: Mesh, verdict: Verdict) -> Counterexample:
    """The counterexample that a run is."""
    how = f"run on {mesh.size} processes in {row.mode}, call {row.call + 1}, seed {row.seed}"
    rank = mesh.coords()[row.rank]
    at = verdict.location if not isinstance(verdict, Proof) else None
    if row.said:
        trace = Trace("a run", f"{row.kind} {row.name} has {row.said}: {how}")
        return Counterexample(str(mesh), trace, at)
    witness = Witness(f"{row.kind}:{row.name}", rank, row.at, row.want, row.got, sizes=how)
    wrong = (f"{row.kind}:{row.name}",)
    return Counterexample(str(mesh), witness, at, wrong)


def obligations(ran: Ran) -> Sequence[str]:
    """Generators that the owner must seed alike, what is taken for rounding, what is left out."""
    rounded = [ROUNDED.format(relative=f"{ran.largest:.0e}", narrow=ran.narrow)]
    return [
        *(rounded if ran.narrow else ()),
        *([PLAIN] if ran.plain else ()),
        *_seeded(ran),
    ]


def _seeded(ran: Ran) -> Sequence[str]:
    return [
        SEEDED.format(
            name=name,
            lines=", ".join(lines) or "code that is not the owner's",
            s="s" if len(lines) < 2 else "",
        )
        for name, lines in ran.seeds
    ]


def _first(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
