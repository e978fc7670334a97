"""A ring of devices under a nemesis, in numpy, every message checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.fault_kinds import Fault, FaultInjector
from benchmarks.fingerprint_runs.inference import Run
from shardproof.synthesis.guard.fingerprint.collectives import handoff_key
from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, integer
from shardproof.synthesis.guard.fingerprint.exo import (
    create_exo_partitions,
    exo_ring_route,
    verify_exo_ring,
)
from shardproof.synthesis.guard.fingerprint.mix import MASK
from shardproof.synthesis.guard.fingerprint.movement import fingerprint
from shardproof.synthesis.guard.fingerprint.outcome import Verdict, combined
from shardproof.synthesis.guard.fingerprint.partition import GAY_SEED
from shardproof.synthesis.guard.fingerprint.region import Array

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

    Raises:
        FingerprintError: devices without layers or memory, or sizes below 1.
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
        self.seed = integer(seed, "SimulatedCluster: seed")
        self.shape = (
            integer(n_tokens, "SimulatedCluster: n_tokens", 1),
            integer(hidden_dim, "SimulatedCluster: hidden_dim", 1),
        )
        self.history: list[tuple[int, str, Fault | None, Run]] = []
        self._rng = np.random.default_rng(self.seed & MASK)
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

    Raises:
        FingerprintError: no cluster, or no runs.
    """
    if not isinstance(cluster, SimulatedCluster):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FingerprintError(f"expected a SimulatedCluster, got {cluster!r:.60}")
    n_runs = integer(n_runs, "verify_with_fault_injection: n_runs", 1)
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
