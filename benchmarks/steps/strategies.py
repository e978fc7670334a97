"""Named strategies at sizes small enough to simulate every rank."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.steps.model import MODELS, Degrees, Model
from benchmarks.steps.step import training_step
from shardproof.synthesis.training.step import Step


@dataclass(frozen=True)
class Strategy:
    """A model and how it is spread."""

    name: str
    degrees: Degrees
    model: str = "tiny"

    def __str__(self) -> str:
        return self.name

    def step(self) -> Step:
        return training_step(self.size, self.degrees, name=self.name)

    @property
    def size(self) -> Model:
        """The model, with as many layers as there are stages."""
        model = MODELS[self.model]
        return replace(model, layers=max(model.layers, self.degrees.pp))


D = Degrees
STRATEGIES: tuple[Strategy, ...] = (
    Strategy("data parallel", D(dp=2, micro_batches=2)),
    Strategy("tensor parallel", D(tp=2)),
    Strategy("sequence parallel", D(tp=2, sequence_parallel=True)),
    Strategy("data and tensor parallel", D(dp=2, tp=2)),
    Strategy("tied embedding", D(dp=2, tp=2), "tiny-tied"),
    Strategy("zero 1", D(dp=2, zero=1)),
    Strategy("zero 2", D(dp=2, zero=2, micro_batches=2)),
    Strategy("zero 3", D(dp=2, zero=3)),
    Strategy("zero 3 with tensor parallel", D(dp=2, tp=2, zero=3, sequence_parallel=True)),
    Strategy("mixed precision", D(dp=2, tp=2), "tiny-bf16"),
    Strategy("mixed precision with zero 3", D(dp=2, zero=3), "tiny-bf16"),
    Strategy("context parallel", D(cp=2)),
    Strategy("context parallel zigzag", D(cp=2, cp_kind="zigzag")),
    Strategy("ulysses", D(cp=2, cp_kind="ulysses")),
    Strategy("data, context and tensor parallel", D(dp=2, cp=2, tp=2)),
    Strategy("zero 3 over data and context", D(dp=2, cp=2, zero=3)),
    Strategy("pipeline 1f1b", D(pp=2, micro_batches=4)),
    Strategy("pipeline gpipe", D(pp=2, micro_batches=2, schedule="gpipe")),
    Strategy("pipeline with zero bubble", D(pp=2, micro_batches=4, schedule="zero_bubble")),
    Strategy("pipeline of four stages", D(pp=4, micro_batches=2)),
    Strategy("pipeline with tied embedding", D(pp=2, micro_batches=2), "tiny-tied"),
    Strategy(
        "data, tensor and pipeline parallel",
        D(dp=2, tp=2, pp=2, micro_batches=2, sequence_parallel=True),
    ),
    Strategy("expert parallel", D(ep=2), "tiny-moe"),
    Strategy("data and expert parallel", D(dp=2, ep=2, zero=2), "tiny-moe"),
    Strategy("expert and tensor parallel", D(ep=2, tp=2), "tiny-moe-shared"),
    Strategy("balanced experts", D(dp=2, ep=2), "tiny-moe-balanced"),
    Strategy("balanced experts in stages", D(ep=2, pp=2, micro_batches=2), "tiny-moe-balanced"),
    Strategy("balanced experts in repeated layers", D(ep=2, scan_layers=True), "tiny-moe-balanced"),
    Strategy("repeated layers", D(dp=2, tp=2, sequence_parallel=True, scan_layers=True)),
    Strategy("repeated layers in stages", D(tp=2, pp=2, micro_batches=2, scan_layers=True)),
    Strategy("repeated micro-batches", D(dp=2, micro_batches=2, scan_micro_batches=True)),
    Strategy("stages in repeated micro-batches", D(pp=2, micro_batches=4, scan_micro_batches=True)),
    Strategy(
        "stages with tied embedding in repeated micro-batches",
        D(dp=2, tp=2, pp=2, micro_batches=2, scan_layers=True, scan_micro_batches=True),
        "tiny-tied",
    ),
    Strategy(
        "zero 3 in repeated micro-batches",
        D(dp=2, tp=2, zero=3, micro_batches=2, scan_layers=True, scan_micro_batches=True),
    ),
)
"""Right, and proved."""

OPEN: tuple[Strategy, ...] = (
    Strategy("ring attention", D(cp=2, cp_kind="ring")),
    Strategy("zero 1 in flat buckets", D(dp=2, zero=1, zero_kind="flat")),
    Strategy("zero 2 in flat buckets", D(dp=2, tp=2, zero=2, zero_kind="flat")),
)
"""Right, and not proved yet."""
