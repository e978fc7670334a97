"""The parameters of a model: names, shapes, who holds them and how they are split."""

from __future__ import annotations

from dataclasses import dataclass

from synthesis.training.model import Degrees, Model, TrainingError
from verifier.layout import Layout, from_placements, split_leading


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

    @property
    def decays(self) -> bool:
        """Matrices decay, norms do not."""
        return len(self.shape) - self.stacked > 1

    def zero_dim(self, degrees: Degrees) -> int:
        """The dim that ZeRO splits: the first that is left whole by tp and the data ranks."""
        for dim in range(int(self.stacked), len(self.shape)):
            if self.shape[dim] % (degrees.data_size * (degrees.tp if dim == self.tp else 1)) == 0:
                return dim
        raise TrainingError(
            f"no dim of {self.name} {list(self.shape)} divides over {degrees.data_size} data ranks"
        )

    @property
    def is_norm(self) -> bool:
        return self.name.endswith("norm")


BLOCK = ("attn_norm", "wq", "wk", "wv", "wo", "mlp_norm")


def _block(model: Model) -> dict[str, tuple[tuple[int, ...], int | None]]:
    """Shape and tp dim of the parameters of one layer."""
    m, q, kv = model, model.heads * model.head_dim, model.kv_heads * model.head_dim
    return {
        "attn_norm": ((m.hidden,), None),
        "wq": ((m.hidden, q), 1),
        "wk": ((m.hidden, kv), 1),
        "wv": ((m.hidden, kv), 1),
        "wo": ((q, m.hidden), 0),
        "mlp_norm": ((m.hidden,), None),
        "gate": ((m.hidden, m.ffn), 1),
        "up": ((m.hidden, m.ffn), 1),
        "down": ((m.ffn, m.hidden), 0),
    }


def stage_layers(model: Model, degrees: Degrees, stage: int) -> range:
    """The layers of a stage."""
    each = model.layers // degrees.pp
    return range(stage * each, (stage + 1) * each)


def layer_weights(model: Model, degrees: Degrees, stage: int, layer: int) -> list[Weight]:
    """The parameters of one layer, or of all layers of its stage where they are stacked."""
    out: list[Weight] = []
    for name, (shape, tp) in _block(model).items():
        if degrees.scan_layers:
            count = len(stage_layers(model, degrees, stage))
            out.append(
                Weight(
                    f"stages.{stage}.{name}",
                    (count, *shape),
                    None if tp is None else tp + 1,
                    (stage,),
                    True,
                    f"stages.{stage}.layers.*.{name}",
                )
            )
        else:
            full = f"layers.{layer}.{name}"
            out.append(Weight(full, shape, tp, (stage,), path=full))
    return out


def weights(model: Model, degrees: Degrees) -> list[Weight]:
    """All parameters in the order in which the model uses them."""
    last = degrees.pp - 1
    ends = (0, last) if model.tied and last else (0,)
    out = [Weight("embed", (model.vocab, model.hidden), 0, ends, path="embed")]
    for stage in range(degrees.pp):
        if degrees.scan_layers:
            out += layer_weights(model, degrees, stage, 0)
        else:
            for layer in stage_layers(model, degrees, stage):
                out += layer_weights(model, degrees, stage, layer)
    out.append(Weight("norm", (model.hidden,), None, (last,), path="norm"))
    if not model.tied:
        out.append(Weight("head", (model.hidden, model.vocab), 1, (last,), path="head"))
    return out


def layout(weight: Weight, degrees: Degrees, *, split: bool) -> Layout:
    """How a parameter is laid out; `split` over the data dims too, as ZeRO does."""
    placed = f"S({weight.tp})" if weight.tp is not None else "R"
    out = from_placements(weight.shape, [("tp", degrees.tp, placed)])
    if split:
        at = weight.zero_dim(degrees)
        for name in degrees.data:
            dim = split_leading(out.dims[at], degrees.size(name), name)
            assert dim is not None
            out = out.with_dim(at, dim)
    return out
