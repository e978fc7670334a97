"""`python -m benchmarks.layer`: one transformer layer on tp=8 at full size, forward and joint.

The step is written by `benchmarks.steps`; only the verification is timed.
"""

from __future__ import annotations

import platform
import time
from dataclasses import replace
from statistics import median

from benchmarks.steps.model import MODELS, Degrees
from benchmarks.steps.step import training_step
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof

RUNS = 5


def main() -> None:
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    for name in ("llama3-8b", "llama3-405b"):
        model = replace(MODELS[name], layers=1, batch=1)
        step = training_step(model, Degrees(tp=8))
        seconds: list[float] = []
        for _ in range(RUNS):
            begin = time.perf_counter()
            verdict = verify(Problem(step.sequential, step.distributed, step.contract))
            seconds.append(time.perf_counter() - begin)
        assert isinstance(verdict, Proof), verdict
        replayed = check(
            verdict.certificate, Problem(step.sequential, step.distributed, step.contract)
        )
        assert isinstance(replayed, Accepted), replayed
        print(
            f"{name}: one layer with embedding, loss, all gradients, clipping and AdamW, tp=8: "
            f"{median(seconds):.3f} s (relations {verdict.stats['relate_s']:.3f} s), certificate "
            "accepted"
        )


if __name__ == "__main__":
    main()
