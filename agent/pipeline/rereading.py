"""`--recapture`: the patched source of an out-directory and its launcher, read again and proved."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardproof.agent.patching import record, tree
from shardproof.agent.pipeline.launching import step_again
from shardproof.agent.pipeline.writing import read_again, told
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.run import Run
from shardproof.agent.verdict import verdicts
from shardproof.synthesis.emit import Patch
from shardproof.synthesis.emit.launcher import FILE as LAUNCHER
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.request import (
    CaptureRequest,
    Limits,
    is_library,
    split_target,
)
from shardproof.synthesis.planner.plan import Plan
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.program import Program, live
from shardproof.verifier.text.assemble import shared
from shardproof.verifier.verdict import Proof, Unknown, Verdict


def patch_again(
    run: Run,
    directory: Path,
    recorded: Mapping[str, Any],
    plan: Plan,
    sequential: Program,
    planned: Contract,
    root: Path,
) -> tuple[Verdict, str, str]:
    """The verdict on the patch of a directory as its ranks run it, and on the step of its launcher
    where it has one; a sentence on them, and the name of the file that the verdict is about.

    The owner's code is captured again, and must be `sequential`; then the patched code is read.
    Inputs and outputs are laid out as `planned` says.

    Raises:
        InputError: the owner's files are not as they were when the patch was made, the manifest
            does not say what was captured, or names a file that the patch does not change.
        CaptureError: the owner's code cannot be captured.
    """
    request = _request(directory, recorded)
    files = tree.texts(directory, root)
    kind, _ = split_target(request.target)
    changed = [root / path for path, (old, _) in files.items() if old is not None]
    beside = [] if changed else [(root / path).with_name(Path(kind).name) for path in files]
    if not is_library(request.target) and not any(
        p.is_file() and p.samefile(kind) for p in (*changed, *beside)
    ):
        raise InputError(
            "the manifest names a model in a file that the patch does not change",
            where=str(directory),
            expected=", ".join(files),
            got=request.target,
        )
    captured = capture(request)
    if shared(live(inline(captured.program))) != shared(sequential):
        why = "program.json is not what the code computes now"
        return Unknown(why), "not read", record.NAME
    stated = record.read(directory)
    patch = Patch(files, stated.diff.decode("utf-8"), plan.obligations, "", stated.function)
    reading, verdict = read_again(request, captured, plan, sequential, planned, patch)
    said = told(reading, verdict)
    if not isinstance(verdict, Proof):
        return verdict, f"{said}; {verdicts.message(verdict).splitlines()[0]}", record.NAME
    if LAUNCHER not in recorded["files"]:
        return verdict, said, record.NAME
    text = (directory / LAUNCHER).read_text(encoding="utf-8")
    step = step_again(run, request, captured.facts.inputs, patch, text)
    said = f"{said}; {LAUNCHER}: train_step against one_step {verdicts.word(step)}"
    if not isinstance(step, Proof):
        return step, f"{said}: {verdicts.message(step).splitlines()[0]}", LAUNCHER
    assumptions = tuple(dict.fromkeys((*verdict.assumptions, *step.assumptions)))
    return replace(verdict, assumptions=assumptions), said, LAUNCHER


def _request(directory: Path, recorded: Mapping[str, Any]) -> CaptureRequest:
    try:
        found = CaptureRequest.from_json(recorded.get("request", {}))
    except ValueError as error:
        raise InputError(
            "the manifest does not say what was captured",
            where=f"{directory}: request",
            got=" ".join(str(error).split()),
            hint="run parallelize again",
        ) from None
    return replace(found, limits=Limits())
