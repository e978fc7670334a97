"""Whole runs in numpy, every transfer checked, with faults injected on the way.

The runs move and add tensors as a distributed inference does; they hold no model. What they show is
that the checks see the faults that they say they see, and are silent without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from verifier.fingerprint.collectives import (
    handoff_key,
    verify_allgather,
    verify_pipeline_handoff,
)
from verifier.fingerprint.errors import FingerprintError
from verifier.fingerprint.exact import ordered_sum, sum_canary
from verifier.fingerprint.exo import create_exo_partitions, exo_ring_route, verify_exo_ring
from verifier.fingerprint.faults import SUMS, Fault, FaultInjector
from verifier.fingerprint.mix import key as make_key
from verifier.fingerprint.movement import colors, fingerprint
from verifier.fingerprint.outcome import Verdict, combined
from verifier.fingerprint.partition import GAY_SEED, DistributedContext, TensorPartition
from verifier.fingerprint.reductions import Level, verify_allreduce
from verifier.fingerprint.region import Array
from verifier.fingerprint.sums import sample


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
    *,
    n_tokens: int = 128,
    hidden_dim: int = 4096,
    vocab_size: int = 32000,
    n_layers: int = 32,
    n_ranks: int = 4,
    seed: int = GAY_SEED,
    faults: Mapping[str, Fault] | None = None,
) -> Run:
    """A simulated inference on `n_ranks`: the collectives of tensor and pipeline parallelism on
    random data, each checked.

    | op | is | check |
    |---|---|---|
    | `embeddings` | hidden states gathered along the hidden dim | H, live and on colors |
    | `layer N` | partial sums of a layer all-reduced | canary and T2 on rank 0, R on all ranks |
    | `handoff N` | activations to the rank of the next layers | H, live |
    | `logits` | logits gathered along the vocabulary | H, live and on colors |

    `faults` says what goes wrong, by op.

    Raises:
        FingerprintError: sizes that do not split over the ranks, or a fault of no op.
    """
    run = _Inference(n_tokens, n_ranks, seed, dict(faults or {}))
    run.gather("embeddings", hidden_dim)
    for layer in range(1, n_layers + 1):
        run.reduce(f"layer {layer}", hidden_dim)
        for rank in range(n_ranks - 1):
            last = DistributedContext(rank, n_ranks, seed, n_layers).layer_range
            after = DistributedContext(rank + 1, n_ranks, seed, n_layers).layer_range
            if after and last[-1] == layer:
                run.handoff(f"handoff {layer}", rank, layer + 1, hidden_dim)
    run.gather("logits", vocab_size)
    if run.faults:
        raise FingerprintError(f"no op is named {sorted(run.faults)[0]!r} in this run")
    return Run(tuple(run.verdicts))


@dataclass
class _Inference:
    n_tokens: int
    n_ranks: int
    seed: int
    faults: dict[str, Fault]
    verdicts: list[Verdict] = field(default_factory=list[Verdict])

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.injector = FaultInjector(self.seed)

    def _draw(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape, np.float32)

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
        whole = np.concatenate(self._transfer(fault, shards), axis=1)
        self.verdicts.append(verify_allgather(whole, parts, shard_fps=sent, key=salt))
        payload = [colors(p, salt, np.dtype(np.float32)) for p in parts]
        whole = np.concatenate(self._transfer(fault, payload), axis=1)
        self.verdicts.append(verify_allgather(whole, parts, key=salt))

    def reduce(self, op: str, width: int) -> None:
        shape, n, salt = (self.n_tokens, width), self.n_ranks, make_key(self.seed, op)
        fault = self.faults.pop(op, None)
        canaries = [sum_canary(shape, n, r, salt) for r in range(n)]
        partials = [self._draw(*shape) for _ in range(n)]
        levels: tuple[tuple[Level, list[Array]], ...] = (("canary", canaries), ("T2", partials))
        for level, inputs in levels:
            out = [ordered_sum(inputs)] * n
            if fault is not None and fault.kind in SUMS:
                out[fault.rank] = self.injector.inject_sum(fault, inputs, ordered_sum)
            elif fault is not None:
                out = self.injector.inject(fault, out)
            copies = [fingerprint(y, None, salt) for y in out]
            samples = [sample(x, salt) for x in inputs]
            first = verify_allreduce(out[0], n, seed=salt, level=level, samples=samples)
            replicas = verify_allreduce(out[0], n, seed=salt, level="R", replicas=copies)
            self.verdicts += [first, replicas]

    def handoff(self, op: str, rank: int, layer: int, width: int) -> None:
        x = self._draw(self.n_tokens, width)
        sent = fingerprint(x, None, handoff_key(self.seed, rank, rank + 1, layer))
        (arrived,) = self._transfer(self.faults.pop(op, None), [x])
        self.verdicts.append(
            verify_pipeline_handoff(arrived, rank, rank + 1, layer, seed=self.seed, sent_fp=sent)
        )


CLUSTER_FAULTS: dict[str, str] = {
    "bit_flip": "bits of a message change on the way",
    "network_partition": "a link is down: nothing arrives, the buffer is as it was",
    "message_delay": "the message of the step before arrives instead",
    "message_drop": "the receiver reads zeros",
    "message_reorder": "two micro-batches arrive in each other's place",
    "byzantine": "the sender sends other activations than those it hashed",
}


@dataclass
class Detections:
    """What came of a series of runs, half of them with a fault."""

    injected: Counter[str] = field(default_factory=Counter[str])
    detected: Counter[str] = field(default_factory=Counter[str])
    located: Counter[str] = field(default_factory=Counter[str])
    """Of those detected, with the right sender named."""
    unchanged: Counter[str] = field(default_factory=Counter[str])
    """Faults that changed no byte."""
    clean_runs: int = 0
    false_alarms: int = 0

    def __str__(self) -> str:
        rows = [
            f"  {kind:18} {self.detected[kind]:5} of {n:5} detected, {self.located[kind]:5} located"
            for kind, n in sorted(self.injected.items())
        ]
        end = f"  {self.false_alarms} false alarms in {self.clean_runs} clean runs"
        return "\n".join([*rows, end])


class SimulatedCluster:
    """A ring of devices that passes activations on, two micro-batches a step, with a nemesis.

    `inject` arms one fault for the next run. Devices are (name, GB).
    """

    def __init__(
        self,
        devices: Sequence[tuple[str, float]],
        n_layers: int,
        *,
        seed: int = GAY_SEED,
        n_tokens: int = 128,
        hidden_dim: int = 4096,
    ) -> None:
        self.partitions = create_exo_partitions(devices, n_layers)
        self.at_work = [p.device_id for p in self.partitions if p.layer_range]
        self.seed, self.shape = seed, (n_tokens, hidden_dim)
        self.history: list[tuple[int, str, Fault | None, Run]] = []
        self._rng = np.random.default_rng(seed)
        self._injector = FaultInjector(seed)
        self._armed: Fault | None = None
        self._before: dict[tuple[int, int], Array] = {}
        self.changed = False
        """Whether the last run's fault changed a byte."""

    def inject(self, kind: str, device: int | None = None) -> Fault:
        """Arm a fault of the next run, on messages to this device (or one that is drawn).

        Raises:
            FingerprintError: no such kind, or no such device at work.
        """
        if kind not in CLUSTER_FAULTS:
            raise FingerprintError(f"no fault {kind!r}; one of {', '.join(CLUSTER_FAULTS)}")
        if device is not None and device not in self.at_work:
            raise FingerprintError(f"no device {device} at work; devices {self.at_work} are")
        drawn = self._injector.draw(kind, len(self.at_work))
        target = self.at_work[drawn.rank] if device is None else device
        self._armed = Fault(kind, target, drawn.draw)
        return self._armed

    def run_inference(self) -> Run:
        """One step: every device receives two micro-batches from the one before it; each checked
        against what was hashed when it was sent."""
        fault, self._armed, self.changed = self._armed, None, False
        step, verdicts = len(self.history), list[Verdict]()
        for device in self.at_work:
            sender, layer = exo_ring_route(self.partitions, device)
            batches = [self._rng.standard_normal(self.shape, np.float32) for _ in range(2)]
            sent = [
                fingerprint(x, None, handoff_key(self.seed, sender, device, layer, i, step))
                for i, x in enumerate(batches)
            ]
            arrived = batches
            if fault is not None and fault.rank == device:
                arrived = self._spoil(fault, batches, device)
            for i, x in enumerate(arrived):
                self._before[device, i] = x
                verdicts.append(
                    verify_exo_ring(
                        x,
                        self.partitions,
                        device,
                        seed=self.seed,
                        sent_fp=sent[i],
                        micro_batch=i,
                        step=step,
                    )
                )
        run = Run(tuple(verdicts))
        self.history.append((step, fault.kind if fault else "", fault, run))
        return run

    def _spoil(self, fault: Fault, batches: list[Array], device: int) -> list[Array]:
        rng = np.random.default_rng(fault.draw)
        at = int(rng.integers(2))
        empty = np.zeros(self.shape, np.float32)
        kinds = {"message_drop": "drop", "message_reorder": "swap", "bit_flip": "bit_flip"}
        if fault.kind in kinds:
            out = self._injector.inject(Fault(kinds[fault.kind], at, fault.draw), batches)
        else:
            out = list(batches)
            if fault.kind == "byzantine":
                out[at] = rng.standard_normal(self.shape, np.float32)
            elif fault.kind == "message_delay":
                out[at] = self._before.get((device, at), empty)
            else:
                out = [self._before.get((device, i), empty) for i in range(2)]
        self.changed = any(a.tobytes() != b.tobytes() for a, b in zip(batches, out, strict=True))
        return out

    def verify(self) -> Verdict:
        """The verdict of the last run. Raises FingerprintError where there was none."""
        return combined(self.history[-1][3].verdicts if self.history else ())


def verify_with_fault_injection(cluster: SimulatedCluster, n_runs: int = 100) -> Detections:
    """Runs, each second one with a fault of the next kind: how many were seen, and where.

    A sender is located if the first alarm names the one before the device that was hit.
    """
    found, kinds = Detections(), list(CLUSTER_FAULTS)
    for i in range(n_runs):
        if i % 2 == 0:
            found.clean_runs += 1
            found.false_alarms += bool(cluster.run_inference().alarms)
            continue
        fault = cluster.inject(kinds[i // 2 % len(kinds)])
        alarms = cluster.run_inference().alarms
        if not cluster.changed:
            found.unchanged[fault.kind] += 1
            continue
        found.injected[fault.kind] += 1
        found.detected[fault.kind] += bool(alarms)
        sender, _ = exo_ring_route(cluster.partitions, fault.rank)
        found.located[fault.kind] += bool(alarms) and alarms[0].culprit_ranks == (sender,)
    return found
