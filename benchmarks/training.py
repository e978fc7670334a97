"""`python -m benchmarks.training`: whole training steps at full size, proved.

Forward, backward, gradient accumulation, gradient reduction, clipping by the global norm and
AdamW, at the published extents, on the meshes of the largest plans that were verified before (the
first three are those of TrainVerify, SOSP 2025). Layers are repeated blocks. Each plan runs in a
process of its own. Proving ends with the checker, which replays the certificate. With `--check`
it does so again, as for a certificate from elsewhere. Seconds are of the processor. Exits 1 where
a step is not proved or its certificate is not accepted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from dataclasses import dataclass, replace

from benchmarks.steps.examples import preconditions
from benchmarks.steps.model import MODELS, Degrees
from benchmarks.steps.step import training_step
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof


@dataclass(frozen=True)
class Plan:
    """A model and how it is spread."""

    model: str
    degrees: Degrees

    def __str__(self) -> str:
        d = self.degrees
        extra = [f"{d.micro_batches} micro-batches"] if d.micro_batches > 1 else []
        extra += [f"ZeRO {d.zero}"] if d.zero else []
        extra += ["sequence parallel"] if d.sequence_parallel else []
        return f"{self.model}, {d.mesh}" + "".join(f", {word}" for word in extra)


def plan(model: str, **degrees: int | bool) -> Plan:
    return Plan(model, replace(Degrees(scan_layers=True), **degrees))


PLANS = (
    plan("llama3-8b", dp=512, zero=1),
    plan("llama3-70b", dp=16, tp=8, pp=4, micro_batches=32, sequence_parallel=True),
    plan("llama3-405b", dp=64, tp=8, pp=16, micro_batches=16, sequence_parallel=True),
    plan(
        "llama3-405b",
        dp=64,
        tp=8,
        zero=3,
        micro_batches=16,
        scan_micro_batches=True,
        sequence_parallel=True,
    ),
    plan("llama3-405b", dp=16, cp=8, tp=8, zero=3, micro_batches=16, scan_micro_batches=True),
    plan("mixtral-8x7b", dp=8, ep=8, tp=2, pp=4, micro_batches=4),
)


@dataclass(frozen=True)
class Row:
    """What one plan took."""

    ranks: int
    nodes: int
    verdict: str
    write_s: float
    prove_s: float
    check_s: float
    memory_gb: float
    good: bool


def measured(chosen: Plan, checked: bool) -> Row:
    """Write, prove and check one step."""
    start = time.process_time()
    step = training_step(MODELS[chosen.model], chosen.degrees)
    wrote = time.process_time()
    found = verify(
        Problem(step.sequential, step.distributed, step.contract, consts=preconditions(step))
    )
    proved = time.process_time()
    good = isinstance(found, Proof)
    if isinstance(found, Proof) and checked:
        again = check(found.certificate, Problem(step.sequential, step.distributed, step.contract))
        good = isinstance(again, Accepted)
    done = time.process_time()
    return Row(
        step.distributed.mesh.size,
        sum(1 for _ in step.distributed.walk()),
        "proved" if isinstance(found, Proof) else type(found).__name__.lower(),
        wrote - start,
        proved - wrote,
        done - proved,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        good,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("plans", nargs="*", help="parts of names; all by default")
    parser.add_argument("--check", action="store_true", help="replay the certificates too")
    options = parser.parse_args()
    given: list[str] = options.plans
    heads = ("plan", "ranks", "nodes", "verdict", "write s", "prove s", "check s", "memory GB")
    print("| " + " | ".join(heads) + " |")
    print("|---" * len(heads) + "|")
    good = True
    for chosen in PLANS:
        if given and not any(part in str(chosen) for part in given):
            continue
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            row = pool.apply(measured, (chosen, options.check))
        good &= row.good
        check_s = f"{row.check_s:.2f}" if options.check else "-"
        cells = (
            str(chosen), f"{row.ranks}", f"{row.nodes}", row.verdict, f"{row.write_s:.2f}",
            f"{row.prove_s:.2f}", check_s, f"{row.memory_gb:.2f}",
        )  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
