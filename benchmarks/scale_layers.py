"""`python -m benchmarks.scale_layers`: seconds to plan and prove Llama 3 405B by layers.

Blocks are lowered and proved once however often they repeat, so the time should not grow. The
shapes are those of the full model; capture is left out: `benchmarks.parallelize` measures it.
Seconds are of the processor.
Exits 1 where a plan is not proved, takes longer than 5 s, or takes three times the least.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from itertools import pairwise

from benchmarks.expert import MODELS, captured
from shardproof.synthesis.hardware import load
from shardproof.synthesis.planner.planner import Asked, synthesize
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof

LAYERS = (2, 4, 8, 16, 32, 64, 126)
LIMIT_S = 5.0
FLAT = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layers", nargs="*", type=int, default=list(LAYERS))
    layers: list[int] = parser.parse_args().layers
    mesh, cluster = Mesh.of(tp=8), load()
    model = next(m for m in MODELS if m.name == "llama3-405b")
    totals: list[float] = []
    print(f"{'layers':>6}  {'plan s':>7}  {'prove s':>7}  {'check s':>7}  verdict")
    for count in layers:
        config = {**model.config, "num_hidden_layers": count}
        program, kinds = captured(replace(model, config=config), batch=1)
        marks = [time.process_time()]
        made = synthesize(Asked(program, mesh, cluster, kinds))
        marks.append(time.process_time())
        lowered = made.lowered
        verdict = verify(Problem(made.sequential, lowered.program, lowered.contract))
        marks.append(time.process_time())
        proved = isinstance(verdict, Proof)
        if isinstance(verdict, Proof):
            checked = check(
                verdict.certificate, Problem(made.sequential, lowered.program, lowered.contract)
            )
            proved = isinstance(checked, Accepted)
        marks.append(time.process_time())
        spent = [b - a for a, b in pairwise(marks)]
        word = "proved and checked" if proved else "not proved"
        print(f"{count:>6}  " + "  ".join(f"{s:>7.2f}" for s in spent) + f"  {word}", flush=True)
        totals.append(sum(spent) if proved else float("inf"))
    return 0 if max(totals) <= min(LIMIT_S, FLAT * min(totals)) else 1


if __name__ == "__main__":
    sys.exit(main())
