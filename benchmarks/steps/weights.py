"""The parameters of a model: names, shapes, who holds them and how they are split."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.steps.model import Degrees, Model
from shardproof.synthesis.training.step import TrainingError
from shardproof.verifier.kernel.layout import Layout, split_leading
from shardproof.verifier.kernel.placements import from_placements


@dataclass(frozen=True)
class Weight:
    """One parameter; under `scan_layers` one of every layer of a stage, stacked."""

    name: str
    shape: tuple[int, ...]
    """Global, stacked."""
    tp: int | None = None
    """The dim that tensor parallelism splits."""
    stages: tuple[int, ...] = (0,)
    """Pipeline stages that hold it; more than one for a tied embedding."""
    stacked: bool = False
    path: str = ""
    ep: int | None = None
    """The dim of experts, which expert parallelism splits."""

    @property
    def decays(self) -> bool:
        """Matrices decay, norms do not."""
        return len(self.shape) - self.stacked > 1

    def data(self, degrees: Degrees) -> tuple[str, ...]:
        """Mesh dims over which the gradient is summed. Experts see the tokens of all of ep."""
        return tuple(n for n in degrees.data if n != "ep" or self.ep is None)

    def split(self, degrees: Degrees) -> tuple[str, ...]:
        """Mesh dims that split the parameter whatever ZeRO does."""
        found = (("ep", self.ep, degrees.ep), ("tp", self.tp, degrees.tp))
        return tuple(name for name, dim, size in found if dim is not None and size > 1)

    def zero_dim(self, degrees: Degrees) -> int:
        """The dim that ZeRO splits: the first that divides over the data ranks and the others."""
        parts = math.prod(degrees.size(n) for n in self.data(degrees))
        for dim in range(int(self.stacked), len(self.shape)):
            others = (degrees.tp if dim == self.tp else 1) * (degrees.ep if dim == self.ep else 1)
            if self.shape[dim] % (parts * others) == 0:
                return dim
        raise TrainingError(
            f"no dim of {self.name} {list(self.shape)} divides over {parts} data ranks"
        )

    @property
    def sees_part(self) -> bool:
        """Whether sequence parallelism runs it on a part of the sequence, as norms are."""
        return self.name.endswith(("norm", "q_down", "kv_down"))


Piece = tuple[tuple[int, ...], int | None, int | None]
"""Shape, tp dim and ep dim."""


def _block(model: Model, dense: bool) -> dict[str, Piece]:
    """The parameters of one layer."""
    m = model
    norm: Piece = ((m.hidden,), None, None)
    attention = {"attn_norm": norm} | _attention(model) | {"mlp_norm": norm}
    if m.moe is None or dense:
        return attention | _gated("", m.hidden, m.ffn)
    e, ffn = m.moe.experts, m.expert_ffn
    experts: dict[str, Piece] = {
        "router": ((m.hidden, e), None, None),
        "gate": ((e, m.hidden, ffn), 2, 0),
        "up": ((e, m.hidden, ffn), 2, 0),
        "down": ((e, ffn, m.hidden), 1, 0),
    }
    shared = _gated("shared_", m.hidden, ffn * m.moe.shared) if m.moe.shared else {}
    return attention | experts | shared


def _attention(model: Model) -> dict[str, Piece]:
    """Heads are split over the ranks of tp; the latents are whole."""
    m, mla = model, model.mla
    if mla is None:
        q, kv = m.heads * m.head_dim, m.kv_heads * m.head_dim
        return {
            "wq": ((m.hidden, q), 1, None),
            "wk": ((m.hidden, kv), 1, None),
            "wv": ((m.hidden, kv), 1, None),
            "wo": ((q, m.hidden), 0, None),
        }
    latent: dict[str, Piece] = {
        "q_down": ((m.hidden, mla.q_rank), None, None),
        "q_norm": ((mla.q_rank,), None, None),
    }
    return (latent if mla.q_rank else {}) | {
        "wq": ((mla.q_rank or m.hidden, m.heads * m.score_dim), 1, None),
        "kv_down": ((m.hidden, mla.kv_rank + mla.rope), None, None),
        "kv_norm": ((mla.kv_rank,), None, None),
        "wkv": ((mla.kv_rank, m.heads * (mla.nope + mla.value)), 1, None),
        "wo": ((m.heads * mla.value, m.hidden), 0, None),
    }


def _gated(prefix: str, hidden: int, ffn: int) -> dict[str, Piece]:
    return {
        f"{prefix}gate": ((hidden, ffn), 1, None),
        f"{prefix}up": ((hidden, ffn), 1, None),
        f"{prefix}down": ((ffn, hidden), 0, None),
    }


def stage_layers(model: Model, degrees: Degrees, stage: int) -> range:
    """The layers of a stage: as many on each; where that does not divide, fewer on the ends.

    Embedding and head make the ends heavier, so the outermost stages go without first.
    """
    pp = degrees.pp
    counts = [-(-model.layers // pp)] * pp
    for k in range(sum(counts) - model.layers):
        counts[k // 2 if k % 2 == 0 else pp - 1 - k // 2] -= 1
    return range(sum(counts[:stage]), sum(counts[: stage + 1]))


def stage_runs(model: Model, degrees: Degrees, stage: int) -> list[range]:
    """The layers of a stage in runs: of alike ones under `scan_layers`, else of one each."""
    layers = stage_layers(model, degrees, stage)
    if not degrees.scan_layers:
        return [range(n, n + 1) for n in layers]
    cut = next((n for n in layers if not model.is_dense(n)), layers.stop)
    return [run for run in (range(layers.start, cut), range(cut, layers.stop)) if run]


def run_weights(model: Model, degrees: Degrees, stage: int, run: range) -> dict[str, Weight]:
    """The parameters of a run by their names in a layer, stacked under `scan_layers`."""
    out: dict[str, Weight] = {}
    dense = model.is_dense(run.start)
    for name, (shape, tp, ep) in _block(model, dense).items():
        if degrees.scan_layers:
            part = "dense." if dense and model.moe is not None else ""
            out[name] = Weight(
                f"stages.{stage}.{part}{name}",
                (len(run), *shape),
                None if tp is None else tp + 1,
                (stage,),
                True,
                f"stages.{stage}.{part}layers.*.{name}",
                None if ep is None else ep + 1,
            )
        else:
            full = f"layers.{run.start}.{name}"
            out[name] = Weight(full, shape, tp, (stage,), path=full, ep=ep)
    return out


def weights(model: Model, degrees: Degrees) -> list[Weight]:
    """All parameters in the order in which the model uses them."""
    last = degrees.pp - 1
    ends = (0, last) if model.tied and last else (0,)
    out = [Weight("embed", (model.vocab, model.hidden), 0, ends, path="embed")]
    for stage in range(degrees.pp):
        for run in stage_runs(model, degrees, stage):
            out += run_weights(model, degrees, stage, run).values()
    out.append(Weight("norm", (model.hidden,), None, (last,), path="norm"))
    if not model.tied:
        out.append(Weight("head", (model.hidden, model.vocab), 1, (last,), path="head"))
    return out


def layout(weight: Weight, degrees: Degrees, *, split: bool) -> Layout:
    """How a parameter is laid out; `split` over the data dims too, as ZeRO does."""
    dims = {"ep": weight.ep, "tp": weight.tp}
    placed = [(n, degrees.size(n), "R" if d is None else f"S({d})") for n, d in dims.items()]
    out = from_placements(weight.shape, placed)
    data = weight.data(degrees)
    if split and data:
        at = weight.zero_dim(degrees)
        for name in data:
            dim = split_leading(out.dims[at], degrees.size(name), name)
            assert dim is not None
            out = out.with_dim(at, dim)
    return out


def state_layout(weight: Weight, degrees: Degrees) -> Layout:
    """How the moments of a parameter are laid out between steps."""
    return layout(weight, degrees, split=degrees.zero > 0 and degrees.zero_kind == "per_param")
