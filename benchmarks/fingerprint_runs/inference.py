"""The collectives of an inference, run by simulated ranks or by gloo processes, each one checked.

The runs move and add tensors as a distributed inference does. Without a plan they hold no model;
with one, its program is computed. What they show is that the checks see the faults that they say
they see, and are silent without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.fault_kinds import SUMS, Fault, FaultInjector
from shardproof.synthesis.guard.fingerprint.collectives import (
    handoff_key,
    verify_allgather,
    verify_pipeline_handoff,
)
from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, integer
from shardproof.synthesis.guard.fingerprint.exact import ordered_sum, sum_canary
from shardproof.synthesis.guard.fingerprint.mix import MASK, key as make_key
from shardproof.synthesis.guard.fingerprint.movement import colors, fingerprint
from shardproof.synthesis.guard.fingerprint.outcome import Verdict, combined
from shardproof.synthesis.guard.fingerprint.partition import (
    GAY_SEED,
    DistributedContext,
    TensorPartition,
)
from shardproof.synthesis.guard.fingerprint.reductions import Level, verify_allreduce
from shardproof.synthesis.guard.fingerprint.region import Array
from shardproof.synthesis.guard.fingerprint.sums import sample

if TYPE_CHECKING:
    from benchmarks.fingerprint_runs.machine import Machine
    from shardproof.verifier.kernel.program.program import Program


@dataclass(frozen=True)
class Run:
    """The verdicts of one run, in order. True where all passed."""

    verdicts: tuple[Verdict, ...]

    def __bool__(self) -> bool:
        return bool(combined(self.verdicts))

    @property
    def alarms(self) -> tuple[Verdict, ...]:
        """Those that found something."""
        return tuple(v for v in self.verdicts if v.alarm)

    def __str__(self) -> str:
        counts = Counter(v.status for v in self.verdicts)
        head = f"{len(self.verdicts)} checks: " + ", ".join(f"{n} {s}" for s, n in counts.items())
        return "\n".join([head, *(f"  {v}" for v in self.alarms)])


def verify_distributed_inference(
    plan: Program | str | None = None,
    *,
    backend: str = "sim",
    n_tokens: int = 128,
    hidden_dim: int = 4096,
    vocab_size: int = 32000,
    n_layers: int = 32,
    n_ranks: int = 4,
    seed: int = GAY_SEED,
    faults: Mapping[str, Fault] | None = None,
    inputs: Sequence[Mapping[str, Array]] | None = None,
) -> Run:
    """An inference whose every collective is checked: of a plan, or on random data.

    `plan` is the program of the ranks (or its text): all of them compute it, and its collectives
    and messages are run by the machine and checked. `inputs` are the values of each rank, by name;
    random ones without. See `verify_plan` for what is checked. Without a plan, `n_ranks` run the
    collectives of tensor and pipeline parallelism:

    | op | is | check |
    |---|---|---|
    | `embeddings` | hidden states gathered along the hidden dim | H, live and on colors |
    | `layer N` | partial sums of a layer all-reduced | canary and T2, R on all ranks |
    | `handoff N` | activations to the rank of the next layers | H, live |
    | `logits` | logits gathered along the vocabulary | H, live and on colors |

    `backend` says who moves and adds: `sim`, numpy in this process; `gloo`, a process a rank with
    torch.distributed on this host. `faults` says what goes wrong, by op (in a plan, by the name of
    the op's result).

    Does not see what is not exchanged: a product that is wrong on a rank.

    Raises:
        FingerprintError: sizes that do not split over the ranks, a fault of no op or no rank, no
            such backend, or ranks that end.
    """
    from benchmarks.fingerprint_runs.machine import start

    if plan is not None:
        from benchmarks.fingerprint_runs.planned import verify_plan

        return verify_plan(plan, backend=backend, seed=seed, faults=faults, inputs=inputs)
    if inputs is not None:
        raise FingerprintError("verify_distributed_inference: inputs are those of a plan; give one")
    sizes = {"n_tokens": n_tokens, "hidden_dim": hidden_dim, "vocab_size": vocab_size}
    sizes |= {"n_layers": n_layers, "n_ranks": n_ranks}
    for name, size in sizes.items():
        integer(size, f"verify_distributed_inference: {name}", 1)
    for name in ("hidden_dim", "vocab_size"):
        if sizes[name] % n_ranks:
            raise FingerprintError(
                f"verify_distributed_inference: {n_ranks} ranks cannot share {name}={sizes[name]} "
                "equally"
            )
    machine = start(backend, n_ranks)
    try:
        run = _Inference(n_tokens, n_ranks, seed, checked_faults(faults), machine)
        run.gather("embeddings", hidden_dim)
        for layer in range(1, n_layers + 1):
            run.reduce(f"layer {layer}", hidden_dim)
            for rank in range(n_ranks - 1):
                last = DistributedContext(rank, n_ranks, seed, n_layers).layer_range
                after = DistributedContext(rank + 1, n_ranks, seed, n_layers).layer_range
                if after and last[-1] == layer:
                    run.handoff(f"handoff {layer}", rank, layer + 1, hidden_dim)
        run.gather("logits", vocab_size)
    finally:
        machine.close()
    none_left(run.faults)
    return Run(tuple(run.verdicts))


def checked_faults(faults: Mapping[str, Fault] | None) -> dict[str, Fault]:
    """Faults by op. Raises FingerprintError where one is none."""
    found = dict(faults or {})
    for op, fault in found.items():
        if not isinstance(fault, Fault):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise FingerprintError(
                f"the fault of {op!r}: expected a Fault(kind, rank, draw), got {fault!r:.60}"
            )
    return found


def none_left(faults: Mapping[str, Fault]) -> None:
    """Raises FingerprintError where a fault is of an op that did not run."""
    if faults:
        op = sorted(faults)[0]
        raise FingerprintError(
            f"no op is named {op!r} in this run, or rank {faults[op].rank} takes no part in it"
        )


def added(
    injector: FaultInjector, fault: Fault, inputs: Sequence[Array], right: Sequence[Array]
) -> list[Array]:
    """What the ranks hold of a sum where this goes wrong."""
    if fault.kind in SUMS:
        out = list(right)
        wrong = injector.inject_sum(fault, inputs, ordered_sum)
        out[fault.rank] = wrong
        return out
    return injector.inject(fault, right)


@dataclass
class _Inference:
    n_tokens: int
    n_ranks: int
    seed: int
    faults: dict[str, Fault]
    machine: Machine
    verdicts: list[Verdict] = field(default_factory=list[Verdict])

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed & MASK)
        self.injector = FaultInjector(self.seed)

    def _draw(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape, np.float32)

    def _run(self, op: str, given: Sequence[Array | None], **attrs: Any) -> list[Any]:
        return self.machine(op, given, range(self.n_ranks), attrs)

    def _transfer(self, fault: Fault | None, pieces: Sequence[Array]) -> list[Array]:
        if fault is None:
            return list(pieces)
        old = [self._draw(*p.shape) for p in pieces] if fault.kind == "stale" else None
        return self.injector.inject(fault, pieces, old)

    def gather(self, op: str, width: int) -> None:
        parts = TensorPartition(1, self.n_ranks, 0, global_shape=(self.n_tokens, width)).siblings()
        salt, fault = make_key(self.seed, op), self.faults.pop(op, None)
        shards = [self._draw(*p.region().shape) for p in parts]
        sent = [fingerprint(s, p, salt) for s, p in zip(shards, parts, strict=True)]
        payload = [colors(p, salt, np.dtype(np.float32)) for p in parts]
        for pieces, fps in ((shards, sent), (payload, None)):
            out = self._run("all_gather", self._transfer(fault, pieces), dim=1)
            verdict = combined(
                verify_allgather(x, parts, shard_fps=fps, key=salt, rank=rank)
                for rank, x in distinct(out)
            )
            self.verdicts.append(replace(verdict, op=f"{op}: all_gather"))

    def reduce(self, op: str, width: int) -> None:
        shape, n, salt = (self.n_tokens, width), self.n_ranks, make_key(self.seed, op)
        fault = self.faults.pop(op, None)
        canaries = [sum_canary(shape, n, r, salt) for r in range(n)]
        partials = [self._draw(*shape) for _ in range(n)]
        levels: tuple[tuple[Level, list[Array]], ...] = (("canary", canaries), ("T2", partials))
        for level, inputs in levels:
            out = self._run("all_reduce", inputs, reduce="sum")
            if fault is not None:
                out = added(self.injector, fault, inputs, out)
            copies = [fingerprint(y, None, salt) for y in out]
            samples = [sample(x, salt) for x in inputs]
            first = verify_allreduce(out[0], n, salt, level=level, samples=samples)
            replicas = verify_allreduce(out[0], n, salt, level="R", replicas=copies)
            self.verdicts += [replace(v, op=f"{op}: all_reduce") for v in (first, replicas)]

    def handoff(self, op: str, rank: int, layer: int, width: int) -> None:
        x = self._draw(self.n_tokens, width)
        sent = fingerprint(x, None, handoff_key(self.seed, rank, rank + 1, layer))
        (given,) = self._transfer(self.faults.pop(op, None), [x])
        pieces = [given if r == rank else None for r in range(self.n_ranks)]
        arrived = self._run("send", pieces, src=rank, dst=rank + 1)[rank + 1]
        self.verdicts.append(
            verify_pipeline_handoff(arrived, rank, rank + 1, layer, self.seed, sent_fp=sent)
        )


def distinct(outputs: Sequence[Array]) -> list[tuple[int, Array]]:
    """The arrays of ranks, without those that are one and the same object."""
    return [
        (rank, x)
        for rank, x in enumerate(outputs)
        if not any(x is other for other in outputs[:rank])
    ]
