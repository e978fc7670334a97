"""Full-size training steps to measure: six published plans, and curves around a base plan.

The plans are those of TrainVerify (SOSP 2025), which proved them in the seconds given here on 30
worker processes. A point is measured in the process that calls `measured`; use a fresh one each.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.steps.examples import preconditions
from benchmarks.steps.model import MODELS, Degrees, Model
from benchmarks.steps.step import training_step
from shardproof.synthesis.schedules import check_schedule, generate
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof
from shardproof.verifier.verification import verify

SEQ = 8192


@dataclass(frozen=True)
class Point:
    """A step to measure."""

    name: str
    model: Model
    degrees: Degrees
    size: str = ""
    """What the model is called."""
    published_s: float | None = None
    target_s: float | None = None

    def __str__(self) -> str:
        d = self.degrees
        many = "" if d.micro_batches == 1 else f", {d.micro_batches} micro-batches"
        word = f"{self.size}, dp={d.dp} tp={d.tp} pp={d.pp}{many}"
        return word + (", sequence parallel" if d.sequence_parallel else "")

    @property
    def unrolled(self) -> Point:
        """The same step with its micro-batches written out, in the order of the schedule."""
        return replace(self, degrees=replace(self.degrees, scan_micro_batches=False))


@dataclass(frozen=True)
class Row:
    """What one point took: seconds of the clock, but for `cpu_s`."""

    name: str
    plan: str
    ranks: int
    nodes: int
    verdict: str
    accepted: bool | None
    """What the checker said of the certificate; None where it was not asked."""
    write_s: float
    structure_s: float
    time_s: float
    relate_s: float
    certificate_s: float
    schedule_s: float
    total_s: float
    """Until the verdict of a first run: writing the programs, verifying, the schedule."""
    cpu_s: float
    """The same in seconds of the processor."""
    """After an edit of one op, or of one collective if that takes longer, in a fresh process."""
    check_s: float | None
    memory_gb: float
    load: float
    """Processes that wanted to run, averaged over the last minute."""
    published_s: float | None = None
    target_s: float | None = None

    @property
    def good(self) -> bool:
        return self.verdict == "proved" and self.accepted is not False


def _degrees(**given: int | bool) -> Degrees:
    many = given.get("micro_batches", 1) > 1
    return replace(Degrees(scan_layers=True, scan_micro_batches=many), **given)


def _plan(name: str, size: str, published: float, target: float, **degrees: int | bool) -> Point:
    chosen = _degrees(**degrees)
    batch = chosen.dp * chosen.ep * chosen.micro_batches
    model = replace(MODELS[size], seq=SEQ, batch=batch)
    return Point(name, model, chosen, size, published, target)


PLANS = (
    _plan("L1", "llama3-8b", 685, 5, dp=512),
    _plan(
        "L2", "llama3-70b", 8532, 8, dp=16, tp=8, pp=4, micro_batches=32, sequence_parallel=True
    ),
    _plan(
        "L3", "llama3-405b", 28786, 10, dp=64, tp=8, pp=16, micro_batches=16,
        sequence_parallel=True,
    ),
    _plan("D1", "deepseek-16b", 1351, 8, dp=16, tp=4, pp=2, micro_batches=16),
    _plan("D2", "deepseek-236b", 8484, 10, dp=16, tp=8, pp=4, micro_batches=16),
    _plan("D3", "deepseek-671b", 32371, 10, dp=32, tp=8, pp=8, micro_batches=16),
)  # fmt: skip
BASE = {"dp": 8, "tp": 4, "pp": 4, "micro_batches": 8}
"""Degrees of the base plan, on a model of 32 layers, hidden 4096, sequences of 8192."""
SIZES = {"layers": 32, "hidden": 4096, "seq": SEQ}
CURVES: dict[str, tuple[int, ...]] = {
    "dp": (2, 8, 32, 128, 512),
    "tp": (1, 2, 4, 8),
    "pp": (1, 2, 4, 8, 16),
    "micro_batches": (1, 2, 4, 8, 16, 32),
    "layers": (8, 16, 32, 64, 128),
    "hidden": (1024, 2048, 4096, 8192, 16384),
    "seq": (1024, 4096, 8192, 16384, 65536),
}
"""What is varied, one at a time."""
FLAT = ("dp", "layers", "micro_batches", "hidden", "seq")
"""Curves that should not grow."""
FLAT_RATIO = 1.3


def curve(name: str) -> list[Point]:
    """The points of one curve: a model of the Llama family with heads of 128.

    Micro-batches are a repeated block at every point, of one micro-batch too.
    """
    points: list[Point] = []
    for value in CURVES[name]:
        chosen, sizes = dict(BASE), dict(SIZES)
        (sizes if name in sizes else chosen)[name] = value
        hidden = sizes["hidden"]
        batch = chosen["dp"] * chosen["micro_batches"]
        model = Model(
            sizes["layers"], hidden, hidden // 128, 8, 128, hidden * 7 // 2, 128256,
            sizes["seq"], batch,
        )  # fmt: skip
        degrees = _degrees(**chosen, scan_micro_batches=True)
        points.append(Point(f"{name}={value}", model, degrees, "llama"))
    return points


def flatness(name: str, seconds: Sequence[float]) -> tuple[float, bool]:
    """The largest over the smallest seconds of a curve, and whether that is as constrained.

    Flat curves may differ by 1.3; the others may grow as fast as what is varied.
    """
    ratio = max(seconds) / max(min(seconds), 1e-9)
    values = CURVES[name]
    return ratio, ratio <= (FLAT_RATIO if name in FLAT else values[-1] / values[0])


def measured(point: Point, *, checked: bool = True) -> Row:
    """Write, prove and check one step."""
    load = os.getloadavg()[0]
    busy, begin = time.process_time(), time.perf_counter()
    step = training_step(point.model, point.degrees)
    wrote = time.perf_counter()
    found = verify(
        Problem(step.sequential, step.distributed, step.contract, consts=preconditions(step))
    )
    proved = time.perf_counter()
    d = point.degrees
    verdict = "proved" if isinstance(found, Proof) else type(found).__name__.lower()
    if d.pp > 1 and check_schedule(generate(d.schedule, d.pp, d.micro_batches)):
        verdict = "schedule refuted"
    done, cpu = time.perf_counter(), time.process_time() - busy
    again_s = accepted = None
    if checked and isinstance(found, Proof):
        start = time.perf_counter()
        said = check(found.certificate, Problem(step.sequential, step.distributed, step.contract))
        again_s, accepted = time.perf_counter() - start, isinstance(said, Accepted)
    stats = found.stats
    unit = 2**30 if sys.platform == "darwin" else 2**20
    return Row(
        name=point.name,
        plan=str(point),
        ranks=step.distributed.mesh.size,
        nodes=sum(1 for _ in step.distributed.walk()),
        verdict=verdict,
        accepted=accepted,
        write_s=wrote - begin,
        structure_s=stats.get("structure_s", 0.0),
        time_s=stats.get("time_s", 0.0),
        relate_s=stats.get("relate_s", 0.0),
        certificate_s=stats.get("certificate_s", 0.0),
        schedule_s=done - proved,
        total_s=done - begin,
        cpu_s=cpu,
        check_s=again_s,
        memory_gb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit,
        load=load,
        published_s=point.published_s,
        target_s=point.target_s,
    )
