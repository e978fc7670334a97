"""`python -m benchmarks.optimum [NAME ...]`: plans beside the best placement of every op.

For small transformers models, and for Llama 3 8B at full size: the plan of module styles, a
certified bound on every placement per op (without and with weights gathered inside blocks), the
cheapest placement that was found, lowered and verified, and seconds of the processor. Exits 1
where a bound does not hold, or a placement is not proved or costs more than the plan.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.expert import MODELS, captured
from benchmarks.placements import cheapest, lowered
from benchmarks.zoo import fields
from shardproof.synthesis.hardware import load
from shardproof.synthesis.lower import LoweringError
from shardproof.synthesis.optimum.best import Bound, lower_bound
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof

NAMES = (
    "GPT2LMHeadModel",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen3ForCausalLM",
    "GemmaForCausalLM",
    "OPTForCausalLM",
    "GPTNeoXForCausalLM",
    "PhiForCausalLM",
    "BertForMaskedLM",
    "MixtralForCausalLM",
)
LARGE = "llama3-8b"
SMALL = (Mesh.of(tp=2), Mesh.of(dp=2, tp=2))


@dataclass(frozen=True)
class Row:
    """Seconds of a step, and seconds of the processor."""

    plan: float
    unmoved: float
    """Bound where no weight is moved inside a block."""
    bound: float
    optimum: float | None
    """Of the lowered program; None where none was found or it could not be written."""
    proved: bool
    holds: bool
    bounding_s: float
    """To build the space, to solve its relaxation and to check the certificate."""
    solving_s: float
    """To find the placement."""


def program_of(name: str) -> tuple[Any, Any]:
    """The joint program of a model, and class names by module path."""
    from shardproof.agent.pipeline.pipeline import kinds
    from shardproof.synthesis.frontends.torch.capture import capture
    from shardproof.synthesis.frontends.torch.request import CaptureRequest

    if name == LARGE:
        return captured(next(m for m in MODELS if m.name == name), batch=1)
    made = capture(CaptureRequest(f"hf:{name}", fields(name), batch=4, seq=8))
    return made.program, kinds(made)


def row(made: Synthesis) -> Row:
    """Bound and best placement beside a plan."""
    found, state = made.found.bound, made.found.state
    assert found is not None
    assert state is not None
    started = time.process_time()
    again = lower_bound(state, found.space.restriction)
    holds = again is not None and again.holds
    bounding = time.process_time() - started
    still = lower_bound(state, replace(found.space.restriction, weights_move=False))
    started = time.process_time()
    price, proved = _optimum(made, found)
    return Row(
        made.found.best.estimate.step_s,
        still.seconds if still is not None else float("nan"),
        found.seconds,
        price,
        proved,
        holds,
        bounding,
        time.process_time() - started,
    )


def _optimum(made: Synthesis, found: Bound) -> tuple[float | None, bool]:
    placed = cheapest(found, made.found.best.estimate.step_s * (1 + 1e-9))
    if placed is None:
        return None, False
    try:
        program, price = lowered(found.space.state, placed)
    except LoweringError as error:
        print(error, file=sys.stderr)
        return None, False
    verdict = verify(Problem(made.sequential, program.program, program.contract))
    return price.step_s, isinstance(verdict, Proof)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*NAMES, LARGE])
    wanted: list[str] = parser.parse_args().models
    titles = ("plan ms", "no weight moved", "bound", "optimum", "plan / bound", "proved",
              "bound cpu s", "optimum cpu s")  # fmt: skip
    print("  ".join(["model, mesh".ljust(36), *(t.rjust(15) for t in titles)]))
    bad = 0
    for name in wanted:
        program, kinds = program_of(name)
        for mesh in (Mesh.of(tp=8),) if name == LARGE else SMALL:
            found = row(synthesize(Asked(program, mesh, load(), kinds)))
            ok = found.proved and found.holds
            bad += not ok or found.optimum is None or found.optimum > found.plan * (1 + 1e-9)
            best = "-" if found.optimum is None else f"{found.optimum * 1e3:.3f}"
            cells = (
                f"{found.plan * 1e3:.3f}",
                f"{found.unmoved * 1e3:.3f}",
                f"{found.bound * 1e3:.3f}",
                best,
                f"{found.plan / found.bound:.4f}",
                "yes" if ok else "no",
                f"{found.bounding_s:.2f}",
                f"{found.solving_s:.2f}",
            )
            print(
                "  ".join([f"{name} {mesh}".ljust(36), *(c.rjust(15) for c in cells)]), flush=True
            )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
