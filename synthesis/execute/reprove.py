"""Proves the patch itself: the model as captured before, the patched model as its ranks run it."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from synthesis.emit.patch import Patch, git_apply, write_old
from synthesis.execute.job import Job, run_child
from synthesis.plan import Plan
from verifier.contract import Contract
from verifier.frontend.request import CaptureRequest
from verifier.ir.jsonio import loads
from verifier.ir.program import Program
from verifier.verdict import Verdict
from verifier.verify import verify


def reprove(request: CaptureRequest, patch: Patch, plan: Plan, timeout: float = 300) -> Verdict:
    """Apply the patch in a scratch folder, capture it on each rank of its tp group, and verify.

    The programs are captured in a child process, layer by layer without repetition, forward and
    backward, on fake tensors. Needs a plan for tensor parallelism alone.

    Raises:
        EmitError: git refuses the patch.
        ExecuteError: the patched model was not captured, or its ranks run no common program.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        tree = folder / "tree"
        tree.mkdir()
        write_old(patch, tree)
        git_apply(patch, tree)
        job = Job(request, plan, "float32", next(iter(patch.files)), patch.function)
        run_child("programs", job, folder, timeout)
        sequential, distributed, contract, consts = read_programs(folder)
    verdict = verify(sequential, distributed, contract, consts=consts)
    return replace(verdict, stats={**verdict.stats, "ops": float(len(distributed.nodes))})


def read_programs(
    folder: Path,
) -> tuple[Program, Program, Contract, dict[str, np.ndarray]]:
    """What the child process wrote."""
    sequential, distributed = (
        loads((folder / f"{name}.json").read_text()) for name in ("sequential", "distributed")
    )
    contract = Contract.from_json(json.loads((folder / "contract.json").read_text()))
    with np.load(folder / "consts.npz") as held:
        return sequential, distributed, contract, {k: held[k] for k in held.files}
