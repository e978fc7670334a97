"""Two reports of runs without a proof: a row-parallel matmul nobody sums, and an unknown op."""

from __future__ import annotations

from shardproof.agent.report.model import (
    Counterexample,
    MeshDim,
    Missing,
    RefuterFacts,
    Report,
    Reproduce,
    TensorView,
)
from shardproof.verifier.kernel.program.types import Source

VERSIONS = {"shardproof": "0.1.0", "python": "3.11.7"}


def refuted() -> Report:
    source = Source("examples/mlp.py", 14, text="        y = h @ self.w2")
    command = "shardproof verify examples/mlp.py:MLP --parallel examples/mlp_tp.py --mesh tp=2"
    return Report(
        title="MLP on tp = 2",
        verdict="refuted",
        headline="Each rank returns its own part of a sum that nobody finishes.",
        command=command,
        created_with=VERSIONS,
        mesh=(MeshDim("tp", 2, "splits the hidden units", True),),
        scope=("y, forward", "x f32[2, 4], hidden 4, mesh tp = 2"),
        not_proved=("Floating-point re-association",),
        counterexample=Counterexample(
            check="no-pending-sum",
            message="The output still waits for a sum over tp: h is split on its columns and w2 on "
            "its rows, so each rank holds one term of y.",
            mesh="tp = 2",
            rank=0,
            coordinates={"tp": 0},
            output="y",
            index=(0, 0),
            expected="2",
            got="1",
            op="%5 = matmul %3, %4",
            source=source,
            relations=(
                ("%3 (h)", "Shard(1)"),
                ("%4 (w2)", "Shard(0)"),
                ("%5 (y)", "Partial(sum)"),
            ),
            tensors=(
                TensorView(name="h", shape=(2, 2), values=(1, 1, 0, 0)),
                TensorView(name="w2", shape=(2, 2), values=(1, 0, 1, 0)),
            ),
            fixes=("all_reduce %5, axis=tp", "reduce_scatter %5, axis=tp, dim=0"),
        ),
        refuter=RefuterFacts(
            result="differs at y[0, 0]",
            prime="2^61 − 1",
            seconds=0.0021,
        ),
        timings={"capture": 1.92, "refute": 0.0021, "shrink": 0.034, "repair": 0.21},
        reproduce=Reproduce(commands=(command,), versions={"torch": "2.13.0+cpu"}),
        exit_code=1,
    )


def unknown() -> Report:
    command = "shardproof parallelize hf:MambaForCausalLM --mesh tp=2 --out out/"
    return Report(
        title="MambaForCausalLM on tp = 2",
        verdict="unknown",
        headline="One operation of the model has no meaning in the language of proofs yet.",
        command=command,
        created_with=VERSIONS,
        scope=("Nothing: the model was captured, not verified",),
        missing=Missing(
            reason="aten.cumsum.default has no rule: nothing can be said about what depends on it.",
            op="aten.cumsum.default(x, dim=-1)",
            source=Source(
                "transformers/models/mamba/modeling_mamba.py",
                412,
                text="cumulative = torch.cumsum(scores, dim=-1)",
            ),
            next_steps=(
                'Add the op: CONTRIBUTING.md, "add an op"',
                "Replace the cumulative sum by a scan in the model",
            ),
        ),
        timings={"capture": 7.4},
        reproduce=Reproduce(commands=(command,)),
        exit_code=1,
    )
