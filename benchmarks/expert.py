"""`python -m benchmarks.expert`: our plan's estimated step beside the expert plans', one row each.

The expert plans are the column-row plan of Megatron-LM (Shoeybi et al. 2019) and the same with the
residual stream split over the sequence (Korthikanti et al. 2022), as torchtitan writes them down
for llama3 and qwen3: both lowered and priced by the same code as ours. Exits 1 where one is
cheaper than what the search found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardproof.synthesis.hardware import Cluster, load
from shardproof.synthesis.lower import LoweringError
from shardproof.synthesis.planner.planner import Asked, synthesize
from shardproof.synthesis.planner.scoring import Search, prepare
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof

EXPERTS = ("column_row", "sequence_parallel")
MESHES = (Mesh.of(tp=8), Mesh.of(dp=2, tp=4))


@dataclass(frozen=True)
class Model:
    name: str
    target: str
    config: Mapping[str, int]
    seq: int = 8192


def _llama(name: str, hidden: int, ffn: int, layers: int, heads: int) -> Model:
    return Model(
        name,
        "hf:LlamaForCausalLM",
        {
            "hidden_size": hidden,
            "intermediate_size": ffn,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
            "max_position_embeddings": 8192,
        },
    )


MODELS = (
    _llama("llama3-8b", 4096, 14336, 32, 32),
    _llama("llama3-70b", 8192, 28672, 80, 64),
    _llama("llama3-405b", 16384, 53248, 126, 128),
    Model(
        "qwen3-8b",
        "hf:Qwen3ForCausalLM",
        {
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 151936,
            "max_position_embeddings": 40960,
        },
    ),
)


@dataclass(frozen=True)
class Row:
    mesh: str
    ours: float
    """Seconds of a step."""
    origin: str
    """The tactic or the last move of the plan that was chosen."""
    experts: Mapping[str, float]
    """Seconds by tactic; infinite where it cannot be lowered, or needs memory that lacks."""
    proved: bool

    @property
    def ratio(self) -> float:
        return self.ours / min(self.experts.values())


def expert_seconds(state: Search, tactic: str, over: float) -> float:
    """Estimated seconds of a step under a tactic, whether or not it can be emitted; infinite where
    a rank lacks more than `over` bytes for it."""
    mesh = state.mesh
    point = TACTICS[tactic](state.modules, mesh[state.tp] if state.tp else 1)
    try:
        first = state.price(point, tactic)
        again = state.price(point, tactic, first.lowered.moved)
    except LoweringError:
        return float("inf")
    fits = [c.estimate.step_s for c in (first, again) if c.over <= over]
    return min(fits, default=float("inf"))


def compare(program: Program, mesh: Mesh, cluster: Cluster, kinds: Mapping[str, str]) -> Row:
    """Plan a captured program and price the expert plans beside it."""
    made = synthesize(Asked(program, mesh, cluster, kinds))
    lowered = made.lowered
    verdict = verify(Problem(made.sequential, lowered.program, lowered.contract))
    best = made.found.best
    state = prepare(Asked(program, mesh, cluster, kinds))
    experts = {name: expert_seconds(state, name, best.over) for name in EXPERTS}
    return Row(
        str(mesh),
        best.estimate.step_s,
        f"{best.origin}, stream {best.point.stream}",
        experts,
        isinstance(verdict, Proof),
    )


def captured(model: Model, batch: int) -> tuple[Program, Mapping[str, str]]:
    """The joint program of a model in bfloat16, and class names by module path."""
    from shardproof.agent.pipeline.pipeline import kinds
    from shardproof.synthesis.frontends.torch.capture import capture
    from shardproof.synthesis.frontends.torch.request import CaptureRequest

    config: dict[str, Any] = dict(model.config)
    asked = CaptureRequest(model.target, config, batch=batch, seq=model.seq, dtype="bf16")
    made = capture(asked)
    return made.program, kinds(made)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[m.name for m in MODELS])
    wanted: list[str] = parser.parse_args().models
    cluster = load()
    titles = ("model", "mesh", "ours ms", *(f"{e} ms" for e in EXPERTS), "ratio", "proved", "plan")
    print("  ".join(f"{t:>20}" for t in titles))
    worst = 0.0
    for model in MODELS:
        if model.name not in wanted:
            continue
        program, kinds = captured(model, batch=2)
        for mesh in MESHES:
            row = compare(program, mesh, cluster, kinds)
            cells = (
                model.name,
                row.mesh,
                f"{row.ours * 1e3:.2f}",
                *(f"{row.experts[e] * 1e3:.2f}" for e in EXPERTS),
                f"{row.ratio:.4f}",
                "yes" if row.proved else "no",
                row.origin,
            )
            print("  ".join(f"{c:>20}" for c in cells), flush=True)
            worst = max(worst, row.ratio if row.proved else float("inf"))
    return 0 if worst <= 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
