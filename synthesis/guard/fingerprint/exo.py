"""Rings of unequal devices: layers by memory, as exo places them, and what each device reports.

Layers count from 1. Nothing here talks to a network: devices send what `exo_report` gives, as JSON
(`Fp.to_json`), by whatever means they have.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np

from shardproof.synthesis.guard.fingerprint.collectives import verify_pipeline_handoff
from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, expect, integer
from shardproof.synthesis.guard.fingerprint.mix import key as make_key
from shardproof.synthesis.guard.fingerprint.movement import (
    Fp,
    colors,
    common_width,
    fingerprint,
    total,
)
from shardproof.synthesis.guard.fingerprint.outcome import Verdict, compared
from shardproof.synthesis.guard.fingerprint.partition import GAY_SEED
from shardproof.synthesis.guard.fingerprint.region import Array, Region, checked

MODELS = {
    "olmo-7b": (32, 4096),
    "olmo-1b": (16, 2048),
    "llama-3.2-3b": (28, 3072),
    "llama-3.2-1b": (16, 2048),
}
"""Layers and hidden size by name."""


@dataclass(frozen=True)
class ExoPartition:
    """The layers of one device."""

    device_id: int
    device_name: str
    memory_gb: float
    layer_range: range
    weight: float
    """Its share of the memory."""

    def __str__(self) -> str:
        layers = self.layer_range
        span = f"layers {layers[0]}-{layers[-1]}" if layers else "no layers"
        return f"{self.device_name} ({self.memory_gb:g} GB): {span} ({self.weight:.0%})"


def create_exo_partitions(
    devices: Sequence[tuple[str, float]],
    n_layers: int,
    *,
    rule: Literal["rounded", "cumulative"] = "rounded",
) -> tuple[ExoPartition, ...]:
    """Consecutive layers by share of memory; every layer on one device.

    `rounded` gives device i round(n_layers * share_i) layers and the last one the rest; where that
    is more than there are, `cumulative` is taken: device i ends at round(n_layers * share of
    devices 0..i). With more devices than layers some have none.

    Raises:
        FingerprintError: no devices, no layers, memory that is not positive, or no such rule.
    """
    devices = cast("list[tuple[str, float]]", _rows("create_exo_partitions", devices, "name, GB"))
    n_layers = integer(n_layers, "create_exo_partitions: n_layers")
    if not devices or n_layers < 1:
        raise FingerprintError(
            f"create_exo_partitions: {n_layers} layers on {len(devices)} devices; at least 1 each"
        )
    for name, memory in devices:
        if not (isinstance(memory, (int, float, np.integer, np.floating)) and 0 < memory < 1e300):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise FingerprintError(f"create_exo_partitions: {name} has {memory!r} GB of memory")
    whole = sum(memory for _, memory in devices)
    if rule == "rounded":
        sizes = [round(memory / whole * n_layers) for _, memory in devices[:-1]]
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    elif rule == "cumulative":
        ends = [n_layers + 1]
    else:
        raise FingerprintError(f"create_exo_partitions: rule {rule!r}; rounded or cumulative")
    if any(end > n_layers for end in ends):
        parts = [sum(m for _, m in devices[: i + 1]) for i in range(len(devices) - 1)]
        ends = [min(n_layers, round(part / whole * n_layers)) for part in parts]
    ends.append(n_layers)
    starts = [0, *ends[:-1]]
    return tuple(
        ExoPartition(i, name, memory, range(first + 1, end + 1), memory / whole)
        for i, ((name, memory), first, end) in enumerate(zip(devices, starts, ends, strict=True))
    )


def _rows(where: str, devices: object, fields: str) -> list[tuple[Any, ...]]:
    """Devices as tuples of so many fields."""
    if isinstance(devices, str) or not isinstance(devices, Iterable):
        raise FingerprintError(f"{where}: expected a list of ({fields}), got {devices!r:.60}")
    n = len(fields.split(","))
    for row in (rows := list(cast("Iterable[Any]", devices))):
        if isinstance(row, str) or not isinstance(row, Sequence) or len(cast(Any, row)) != n:
            raise FingerprintError(f"{where}: expected ({fields}), got {row!r:.60}")
    return [tuple(row) for row in rows]


class ExoCluster:
    """Devices as (name, GB, address), and the model they run.

    Raises:
        FingerprintError: a model that is not known, where `n_layers` and `hidden_dim` are not said;
            devices or sizes that are none.
    """

    def __init__(
        self,
        devices: Sequence[tuple[str, float, str]],
        model: str,
        *,
        port: int = 52415,
        seed: int = GAY_SEED,
        n_layers: int | None = None,
        hidden_dim: int | None = None,
    ) -> None:
        rows = _rows("ExoCluster", devices, "name, GB, address")
        expect(model, str, "ExoCluster: expected the name of a model")
        if model not in MODELS and (n_layers is None or hidden_dim is None):
            raise FingerprintError(
                f"ExoCluster: model {model!r} is not known ({', '.join(MODELS)}); "
                "say its n_layers and hidden_dim"
            )
        known = MODELS.get(model, (0, 0))
        self.model, self.port, self.seed = model, port, seed
        layers, dims = n_layers or known[0], hidden_dim or known[1]
        self.n_layers = integer(layers, "ExoCluster: n_layers", 1)
        self.hidden_dim = integer(dims, "ExoCluster: hidden_dim", 1)
        self.addresses = tuple(address for _, _, address in rows)
        self.partitions = create_exo_partitions([(n, m) for n, m, _ in rows], self.n_layers)

    def key(self, prompt: str, n_tokens: int) -> int:
        """The key of a run. Raises FingerprintError where there is no prompt or are no tokens."""
        expect(prompt, str, "the prompt: expected text")
        n_tokens = integer(n_tokens, "n_tokens", 1)
        return make_key(self.seed, "exo", self.model, prompt, n_tokens)

    def layer_region(self, layer: int, n_tokens: int) -> Region:
        """The box of a layer in the tensor of all layers' hidden states. Raises FingerprintError
        where the model has no such layer."""
        if not 1 <= layer <= self.n_layers:
            raise FingerprintError(f"{self.model} has layers 1..{self.n_layers}, not {layer}")
        shape = (n_tokens, self.hidden_dim)
        return Region((self.n_layers, *shape), (layer - 1, 0, 0), (1, *shape))

    def word_bytes(self, n_tokens: int, itemsize: int) -> int:
        """The word size that all layers share."""
        layers = range(1, self.n_layers + 1)
        return common_width([self.layer_region(i, n_tokens) for i in layers], itemsize)


def exo_color(
    cluster: ExoCluster, layer: int, prompt: str, n_tokens: int, dtype: np.dtype | str = "float32"
) -> Array:
    """What the hidden states of a layer are in a canary run, shape (n_tokens, hidden_dim)."""
    region = cluster.layer_region(layer, n_tokens)
    width = cluster.word_bytes(n_tokens, np.dtype(dtype).itemsize)
    return colors(region, cluster.key(prompt, n_tokens), dtype, width=width)[0]


def exo_report(
    cluster: ExoCluster, prompt: str, n_tokens: int, hidden_states: Mapping[int, Array]
) -> Fp:
    """What a device reports of a run: the fingerprint of the hidden states it holds, by layer.

    Raises:
        FingerprintError: no layers, or hidden states of another shape.
    """
    salt, fps = cluster.key(prompt, n_tokens), list[Fp]()
    for layer, data in hidden_states.items():
        region = cluster.layer_region(layer, n_tokens)
        data = checked(data, f"exo_report, layer {layer}")
        if data.shape != region.shape[1:]:
            raise FingerprintError(
                f"exo_report, layer {layer}: expected shape {list(region.shape[1:])}, "
                f"got {list(data.shape)}"
            )
        width = cluster.word_bytes(n_tokens, data.dtype.itemsize)
        fps.append(fingerprint(data[None], region, salt, width=width))
    return total(fps)


class ExoVerifier:
    """What every device has to report of a canary run, computed before it.

    Device ids with no layers are not asked. The fingerprint of a device covers its layers, so one
    that ran others, or in another order, does not match.
    """

    def __init__(
        self,
        cluster: ExoCluster,
        n_tokens: int = 128,
        prompt: str = "",
        *,
        dtype: np.dtype | str = "float32",
    ) -> None:
        cluster.key(prompt, n_tokens)
        self.cluster, self.n_tokens, self.prompt = cluster, n_tokens, prompt
        self.expected_fps: dict[int, Fp] = {}

        def report(layer: int) -> Fp:
            held = {layer: exo_color(cluster, layer, prompt, n_tokens, dtype)}
            return exo_report(cluster, prompt, n_tokens, held)

        for part in cluster.partitions:
            if part.layer_range:
                self.expected_fps[part.device_id] = total(map(report, part.layer_range))

    def verify_device(self, device_id: int, reported: Fp | Mapping[str, Any]) -> Verdict:
        """Whether one device's report is what it has to be.

        Raises:
            FingerprintError: no such device, or no fingerprint.
        """
        if device_id not in self.expected_fps:
            raise FingerprintError(
                f"device {device_id} runs no layers; devices {sorted(self.expected_fps)} do"
            )
        want = self.expected_fps[device_id]
        op = f"device {device_id} ({self.cluster.partitions[device_id].device_name})"
        try:
            got = reported if isinstance(reported, Fp) else Fp.from_json(reported)
        except FingerprintError as error:
            raise FingerprintError(f"{op}: {error}") from None
        why = "other layers, or other bits in them"
        if got.key != want.key:
            why = "a report of another run: model, prompt, number of tokens or seed"
        elif got.count != want.count:
            why = f"{got.count} bytes for {want.count}: layers missing or too many"
        return compared(op, "H", want, got, (device_id,), None, why)

    def verify_cluster(self, reported: Mapping[Any, Fp | Mapping[str, Any]]) -> Verdict:
        """Whether all devices' reports are what they have to be, and cover the model together.

        Reports are by device; as in JSON, device 0 may be called "0". A device that reported
        nothing fails; if none did, nothing was checked, and it is skipped.

        Raises:
            FingerprintError: a device that runs no layers, or a report that is no fingerprint.
        """
        expect(reported, Mapping, "reports by device: expected a mapping")
        named = {str(device): device for device in self.expected_fps}
        reported = {named.get(str(device), device): fp for device, fp in reported.items()}
        if not reported:
            why = "no device reported anything"
            return Verdict("skipped", "exo cluster", "H", probable_fault=why)
        absent = sorted(set(self.expected_fps) - set(reported))
        if absent:
            asked = len(self.expected_fps)
            want, got = f"{asked} reports", f"{asked - len(absent)}"
            return compared("exo cluster", "H", want, got, tuple(absent), None, "not reported")
        found = [self.verify_device(d, fp) for d, fp in reported.items()]
        bad = [v for v in found if not v]
        if bad:
            ranks = sorted(rank for v in bad for rank in v.culprit_ranks)
            return replace(bad[0], culprit_ranks=tuple(ranks))
        everything = total(self.expected_fps.values())
        return Verdict("passed", "exo cluster", "H", str(everything), str(everything))


def verify_exo_inference(
    cluster: ExoCluster,
    prompt: str,
    *,
    n_tokens: int = 128,
    reported_fps: Mapping[int, Fp | Mapping[str, Any]] | None = None,
) -> Verdict:
    """Whether what the devices reported of a canary run with this prompt is what it has to be.

    The values are the devices' own (`exo_report`); without any, the verdict is `skipped`, which is
    false: nothing is filled in for them.
    """
    return ExoVerifier(cluster, n_tokens, prompt).verify_cluster(reported_fps or {})


def verify_exo_ring(
    activations: Array,
    partitions: Sequence[ExoPartition],
    current_device: int,
    seed: int = GAY_SEED,
    *,
    sent_fp: Fp | None = None,
    micro_batch: int = 0,
    step: int = 0,
) -> Verdict:
    """Whether a device of a ring received what the one before it sent, for its first layer.

    As `verify_pipeline_handoff`; `exo_ring_route` gives sender and layer. The first device receives
    from the last one, the token that goes round.
    """
    sender, layer = exo_ring_route(partitions, current_device)
    return verify_pipeline_handoff(
        activations,
        sender,
        current_device,
        layer,
        seed=seed,
        sent_fp=sent_fp,
        micro_batch=micro_batch,
        step=step,
    )


def exo_ring_route(partitions: Sequence[ExoPartition], current_device: int) -> tuple[int, int]:
    """Who sends to a device, and for which layer. Devices without layers pass nothing on.

    Raises:
        FingerprintError: no such device, or one that runs no layers.
    """
    at_work = [p for p in partitions if p.layer_range]
    place = next((i for i, p in enumerate(at_work) if p.device_id == current_device), None)
    if place is None:
        raise FingerprintError(
            f"device {current_device} runs no layers; devices {[p.device_id for p in at_work]} do"
        )
    return at_work[place - 1].device_id, at_work[place].layer_range[0]
