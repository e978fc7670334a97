"""Runs a launcher on one device and on every rank of its mesh, and compares what they train."""

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shardproof.synthesis.execute.run.launcher import launcher
from shardproof.synthesis.execute.run.running import (
    NUDGES,
    PATIENCE_S,
    SECONDS,
    Failed,
    Ran,
    Row,
    Side,
    failure,
    of_dtype,
    rounding,
    to_json,
)
from shardproof.synthesis.frontends.torch.homes import FOREIGN
from shardproof.synthesis.frontends.torch.process import owners
from shardproof.verifier.kernel.program.types import Mesh

FLOAT32 = 1e-4
"""What is tolerated of losses and gradient norms of code that runs in float32 alone. Parameters are
not compared there: Adam divides a gradient by its own size, also one that rounding made of 0."""
STEPS = 3
"""Steps before a checkpoint is written."""


@dataclass(frozen=True)
class Training:
    """A run of a launcher."""

    script: Side
    mesh: Mesh
    steps: int = STEPS
    dp: str | None = None
    """The mesh dim of data parallelism."""
    divides: bool = True
    """Whether each micro-batch divides over all ranks."""
    seconds: float = SECONDS
    env: tuple[str, ...] = ()
    """Variables of the environment that the code is given, each `NAME` or `NAME=VALUE`."""
    library: str = ""
    """What the code imports besides PyTorch, if it is `transformers`."""

    @property
    def modes(self) -> tuple[str, ...]:
        """What is run, in words."""
        flat = f"{self.dp or 'dp'}={self.mesh.size}"
        return (
            f"{self.steps} steps",
            "a checkpoint of one device on the ranks",
            f"a checkpoint of the ranks on {flat}",
            "a checkpoint of the ranks on one device",
        )


def train(asked: Training) -> Ran:
    """Take steps on one device and on the ranks; load the checkpoint of each side on the other, and
    that of the ranks on a mesh of one dim; take one more step. Loss, gradient norm, parameters and
    optimizer state are compared after each.

    Raises:
        LaunchError: no processes could be started.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="run-", ignore_cleanup_errors=True) as scratch:
        at, dtype = Path(scratch) / "all", "float64"
        found = _launched(asked, at, dtype)
        if isinstance(found, Failed) and of_dtype(found):
            at, dtype = Path(scratch) / "narrow", "float32"
            found = _launched(asked, at, dtype)
        ran = Ran((), found) if isinstance(found, Failed) else Ran(found)
        if dtype == "float32":
            told = tuple(r for r in ran.rows if r.kind in ("loss", "gradient norm"))
            ran = replace(ran, rows=told, dtype=dtype, tolerance=FLOAT32)
        if ran.worst is not None:
            alone = _launched(asked, Path(scratch) / "one", dtype, NUDGES["float32"], at)
            ran = replace(ran, rounded=() if isinstance(alone, Failed) else rounding(alone))
    taken = time.monotonic() - begun
    return replace(ran, modes=asked.modes, ranks=asked.mesh.size, seconds=taken)


def _launched(
    asked: Training, at: Path, dtype: str, nudge: float = 0.0, against: Path | None = None
) -> tuple[Row, ...] | Failed:
    """Start all processes; with a `nudge` of parameters one device alone, which compares itself
    with what one device did before."""
    order = {
        "script": to_json(asked.script),
        "mesh": list(asked.mesh.dims),
        "steps": asked.steps,
        "dp": asked.dp,
        "divides": asked.divides,
        "modes": asked.modes,
        "dtype": dtype,
        "nudge": nudge,
        "against": str(against or ""),
        "patience": PATIENCE_S,
        "foreign": FOREIGN,
    }
    at.mkdir()
    (at / "order.json").write_text(json.dumps(order))
    count = 1 if nudge else asked.mesh.size + 1
    status = launcher(asked.library).launch(
        at, count, asked.seconds, lambda: None, owners(asked.env), "trained"
    )
    return failure(at, status, asked.modes) or _rows(at, count, asked.modes)


def _rows(at: Path, count: int, modes: Sequence[str]) -> tuple[Row, ...]:
    rows: list[Row] = []
    for process in range(count):
        for found in json.loads((at / f"rank-{process}.json").read_text()):
            fields: dict[str, Any] = {
                **found,
                "at": tuple(found.get("at", ())),
                "mode": modes[found["mode"]],
            }
            rows.append(Row(rank=max(process - 1, 0), **fields))
    return tuple(rows)
