"""What a patch computes: the patched code on gloo processes in float64, against one process.

A patch claims that training with it on data-parallel ranks, each with its part of the batch, gives
every parameter the gradient of the one-device loss on the whole batch, and that this loss is the
mean of the ranks' losses, or their sum where the plan says so. Several draws of weights and inputs
look for a difference. A draw that breaks an obligation which the patch prints is reported, and
says nothing of the patch.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist

from benchmarks.patches.compare import (
    Promote,
    connect,
    named_outputs,
    randomize,
    rank_step,
    reference_step,
)
from shardproof.synthesis.emit.patch import Patch
from shardproof.synthesis.execute.child import fork, wait
from shardproof.synthesis.execute.job import Job, patched_folder, place_of
from shardproof.synthesis.execute.load import make_inputs, open_target
from shardproof.synthesis.frontends.torch.inputs import find_inputs
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.planner.plan import Plan

for _name in ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel"):
    importlib.import_module(_name)  # here, and not in every process that is forked

TOLERANCE = 1e-8
"""Of relative differences: right ones stay below 1e-12, wrong ones above 1e-4 nearly always."""
TIMEOUT = 120.0
IGNORED = re.compile(r"(?:ignore_index=|target\b[\w.()]* != )(-?\d+)")
"""How the files that this judges name a label that does not count."""
EQUAL = re.compile(r"same number of \w+ labels")
"""The obligation that every data-parallel rank has as many counted labels as the others."""


@dataclass(frozen=True, slots=True)
class Draw:
    """How weights and inputs are drawn."""

    seed: int
    weights: float = 1.0
    """How far apart weights lie, of what a fresh model has."""
    rows: float = 0.0
    """How unlike in size the rows of floating inputs are."""
    fitted: bool = False
    """Targets of the first half of the batch are what the model predicts: losses of the ranks lie
    far apart."""
    labels: str = "all"
    """`all` count; `equal` numbers on each half of the batch; `unequal`; `one-sided`: none on the
    first half."""


DRAWS = (
    Draw(1),
    Draw(2, weights=4.0, rows=1.0, labels="equal"),
    Draw(3, weights=8.0, rows=0.5, fitted=True),
    Draw(4, weights=2.0, rows=2.0),
    Draw(5, weights=3.0, labels="unequal"),
    Draw(6, weights=1.0, rows=1.0, labels="one-sided"),
    Draw(7, weights=4.0, fitted=True),
    Draw(8, weights=6.0, rows=1.5, labels="equal"),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """One draw."""

    draw: Draw
    difference: float
    """The largest relative one."""
    where: str
    """Of what: `gradient up.weight`."""
    binding: bool = True
    """Whether the patch answers for such a draw."""


@dataclass(frozen=True, slots=True)
class Truth:
    """`right`, `wrong`, `broken` (a rank fails), or `unjudged` (one device has no result)."""

    word: str
    said: str
    """The worst difference that counts, or what a process said last."""
    draws: tuple[Compared, ...] = ()
    seconds: float = 0.0


def judge(
    request: CaptureRequest, patch: Patch, plan: Plan, loss: str = "mean", timeout: float = TIMEOUT
) -> Truth:
    """Run the patch. `loss` is how the one-device loss follows from the ranks': `mean` or `sum`;
    `token_mean` is a mean that holds for every number of counted labels too.

    The calling process must not have used torch's threads: it is forked.
    """
    start = time.monotonic()
    file, root = place_of(request, patch)
    with patched_folder(patch, root) as folder:
        job = Job(request, plan, "float64", file, str(root or ""), patch.function)
        failed = _in_session(lambda: _run(job, folder, loss == "sum"), folder / "log", timeout)
        seconds = time.monotonic() - start
        done = folder / "references.pt"
        if failed:
            word = "broken" if done.exists() else "unjudged"
            return Truth(word, failed, seconds=seconds)
        tables = [json.loads(path.read_text()) for path in folder.glob("rank*.json")]
    any_number = loss == "token_mean" or not any(map(EQUAL.search, patch.obligations))
    compared = [_worst(rows, any_number) for rows in zip(*tables, strict=True)]
    counted = [c for c in compared if c.binding]
    if not counted:
        return Truth("unjudged", "one device has no finite result", seconds=seconds)
    worst = max(counted, key=lambda c: c.difference)
    word = "right" if worst.difference <= TOLERANCE else "wrong"
    said = f"{worst.where} differs by {worst.difference:.1e}, {describe(worst.draw)}"
    return Truth(word, said, tuple(compared), seconds)


def describe(draw: Draw) -> str:
    """A draw in a few words."""
    labels = f", labels {draw.labels}" if draw.labels != "all" else ""
    return f"draw {draw.seed}{labels}"


def _worst(rows: Sequence[Mapping[str, Any]], any_number: bool) -> Compared:
    """One draw over all ranks."""
    draw = Draw(**rows[0]["draw"])
    table = [d for row in rows for d in row["table"]]
    worst = max(table, key=lambda d: float(d["relative"]))
    binding = any_number or draw.labels in ("all", "equal")
    return Compared(draw, worst["relative"], f"{worst['kind']} {worst['name']}", binding)


def _in_session(work: Any, log: Path, timeout: float) -> str:
    """Do the work in a forked process and session; what it said last where it failed, else ''."""

    def begin() -> None:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        work()

    pid = fork(begin)
    deadline = time.monotonic() + timeout
    ended, status = os.waitpid(pid, os.WNOHANG)
    while not ended and time.monotonic() < deadline:
        time.sleep(0.005)
        ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return f"no result after {timeout:.0f} s"
    if status == 0:
        return ""
    lines = [x for x in log.read_text(errors="replace").splitlines() if x.strip()]
    errors = [x for x in lines if re.match(r"[\w.]*(Error|Exception)\b", x)]
    return (errors or lines or ["no output"])[0]


def _run(job: Job, folder: Path, summed: bool) -> None:
    """One process for the references, then one for each rank."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    wait([fork(lambda: _references(job, folder))])
    size = job.plan.mesh.size
    wait([fork(lambda rank=rank: _rank(job, folder, rank, size, summed)) for rank in range(size)])


def _references(job: Job, folder: Path) -> None:
    """Steps of one process, for every draw in which its results are finite."""
    source = Path(job.request.target.rpartition(":")[0]).read_text()
    ignored = IGNORED.search(source)
    kept: list[tuple[Draw, dict[str, Any]]] = []
    target, _ = open_target(job.request)
    for draw in DRAWS:
        if draw.labels.startswith(("unequal", "one")) and not (ignored or "mask" in source):
            continue
        cast(Any, torch).manual_seed(draw.seed)
        model = target.build().double().eval()
        randomize(model, draw.seed, draw.weights)
        found = find_inputs(job.request, target, model)
        inputs = make_inputs(found, draw.seed, torch.float64)
        _uneven(inputs, draw)
        if draw.fitted:
            with torch.no_grad(), Promote(torch.float64):
                _fit(inputs, named_outputs(model(**inputs)))
        _count(inputs, draw, int(ignored[1]) if ignored else None)
        data = reference_step(model, inputs, torch.float64)
        results = [*data["outputs"].values(), *data["gradients"].values()]
        if all(bool(v.isfinite().all()) for v in results if v.is_floating_point()):
            kept.append((draw, data))
    torch.save(kept, folder / "references.pt")


def _uneven(inputs: dict[str, torch.Tensor], draw: Draw) -> None:
    """Make rows of floating inputs unlike in size."""
    generator = torch.Generator().manual_seed(draw.seed)
    for value in inputs.values():
        if value.is_floating_point() and value.ndim:
            sizes = torch.randn(value.shape[0], generator=generator, dtype=value.dtype)
            value *= (draw.rows * sizes).exp().view(-1, *[1] * (value.ndim - 1))


def _fit(inputs: dict[str, torch.Tensor], outputs: Mapping[str, torch.Tensor]) -> None:
    """Have the first half of `target` be what an output predicts, where one fits."""
    if "target" not in inputs:
        return
    target = inputs["target"]
    for output in outputs.values():
        if output.shape[:-1] == target.shape and not target.is_floating_point():
            predicted = output.argmax(-1)
        elif output.shape == target.shape and target.is_floating_point():
            predicted = output + 0.01 * target
        else:
            continue
        half = len(target) // 2
        target[:half] = predicted[:half]


def _count(inputs: dict[str, torch.Tensor], draw: Draw, ignored: int | None) -> None:
    """Have labels of `target` (and places of `mask`) count as the draw says."""
    mask = inputs.get("mask")
    if mask is not None:
        mask.copy_(_counting(mask.shape, draw).to(mask.dtype))
    labels = inputs.get("target")
    if labels is not None and ignored is not None:
        labels[labels == ignored] += 1
        labels[~_counting(labels.shape, draw)] = ignored


def _counting(shape: torch.Size, draw: Draw) -> torch.Tensor:
    """Which labels count, True or False."""
    generator = torch.Generator().manual_seed(draw.seed)
    out = torch.ones(shape, dtype=torch.bool)
    for index, half in enumerate(out.chunk(2)):
        size = half.numel()
        left = {"equal": size // 2, "unequal": (size - 1, 1)[index], "one-sided": index * size}
        gone = torch.randperm(size, generator=generator)[left.get(draw.labels, size) :]
        flat = half.flatten()
        flat[gone] = False
        half.copy_(flat.view(half.shape))
    return out


def _rank(job: Job, folder: Path, rank: int, size: int, summed: bool) -> None:
    """One rank, over all draws."""
    mesh = connect(job.plan, folder, rank, size)
    out: list[dict[str, Any]] = []
    for draw, reference in torch.load(folder / "references.pt", weights_only=False):
        cast(Any, torch).manual_seed(draw.seed)
        rows = rank_step(replace(job, seed=draw.seed), folder / "tree", mesh, reference, summed)
        out.append({"draw": asdict(draw), "table": rows})
    (folder / f"rank{rank}.json").write_text(json.dumps(out))
    cast(Any, dist).barrier()
    dist.destroy_process_group()
    os._exit(0)
