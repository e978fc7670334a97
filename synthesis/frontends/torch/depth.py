"""Traces few layers where many are alike.

The whole model is built without memory; layers are compared by class tree, shapes and scalar
attributes. A model with fewer layers, in which every kind comes several times, is traced instead,
and its layers are compared op by op when they are rolled.
"""

# pyright: basic

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from shardproof.synthesis.frontends.torch.rolling.roll import Stretch
from shardproof.verifier.kernel.program.program import Program

MAX_PERIOD = 8
_NUMBERING = {"layer_idx", "layer_id", "layer_number", "block_idx"}
_TOWERS = ("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers")
"""Fields for the depths of models of two towers."""
_SCALARS = (int, float, str, bool, type(None))


@dataclass(frozen=True)
class Depth:
    """Which layers to trace: `head`, then `traced` periods, then `tail`."""

    prefixes: tuple[str, ...]
    head: int
    period: int
    traced: int
    count: int
    """Periods in the whole model."""
    tail: int

    @property
    def layers(self) -> int:
        return self.head + self.period * self.traced + self.tail

    @property
    def total(self) -> int:
        return self.head + self.period * self.count + self.tail

    @property
    def kept(self) -> list[int]:
        """Numbers of the whole model's layers that the traced layers stand at."""
        stop = self.head + self.period * self.traced
        return [*range(stop), *range(self.total - self.tail, self.total)]

    def whole_path(self, path: str) -> str:
        """What a path of the traced model is called in the whole one."""
        for prefix in self.prefixes:
            if path.startswith(prefix + "."):
                number, dot, rest = path[len(prefix) + 1 :].partition(".")
                if number.isdigit() and int(number) < self.layers:
                    return f"{prefix}.{self.kept[int(number)]}{dot}{rest}"
        return path

    def stretch(self) -> dict[str, Stretch]:
        one = Stretch(self.head, self.period, self.traced, self.count)
        return dict.fromkeys(self.prefixes, one)

    def sentence(self) -> str:
        return (
            f"{self.layers} of the {self.total} layers of {', '.join(self.prefixes)} were traced. "
            f"All {self.total} were built, and compared by class tree, parameter and buffer shapes "
            "and scalar attributes; the traced ones were compared op by op, forward and backward. "
            "Not checked: that the code of an untraced layer does the same as that of a traced "
            "layer of its kind (--full-depth traces them all)."
        )


def fingerprint(module: nn.Module) -> tuple[Any, ...]:
    """Everything that is compared between two layers."""
    scalars = tuple(
        sorted(
            (k, repr(v))
            for k, v in vars(module).items()
            if not k.startswith("_") and k not in _NUMBERING and isinstance(v, _SCALARS)
        )
    )
    params = tuple(
        (k, tuple(p.shape), str(p.dtype)) for k, p in module.named_parameters(recurse=False)
    )
    buffers = tuple(
        (k, tuple(b.shape), str(b.dtype)) for k, b in module.named_buffers(recurse=False)
    )
    children = tuple((k, fingerprint(c)) for k, c in module.named_children())
    return (
        f"{type(module).__module__}.{type(module).__qualname__}",
        scalars,
        params,
        buffers,
        children,
    )


def layer_kinds(model: nn.Module, layers: int, config: Any) -> dict[str, tuple[Any, ...]]:
    """Kind of each entry, for the lists with one entry per layer."""
    out: dict[str, tuple[Any, ...]] = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == layers:
            kinds = list(map(fingerprint, module))
            for value in _by_layer(config, layers).values():
                if list(value) != list(range(layers)):
                    kinds = [(k, repr(v)) for k, v in zip(kinds, value, strict=True)]
            out[path] = tuple(kinds)
    return out


def _by_layer(config: Any, layers: int) -> dict[str, Any]:
    """Config fields with one item per layer: a kind, or, where all are listed, its number."""
    fields = vars(config).items()
    return {k: v for k, v in fields if isinstance(v, (list, tuple)) and len(v) == layers}


def choose(kinds: dict[str, tuple[Any, ...]], margin: int = 0) -> Depth | None:
    """The fewest layers in which every kind comes at its place; None where all are needed.

    `margin` periods more stay outside of the run at either end.
    """
    if not kinds:
        return None
    joint = list(zip(*kinds.values(), strict=True))
    total = len(joint)
    best: Depth | None = None
    for period in range(1, min(MAX_PERIOD, total // 2) + 1):
        traced = 3 if period <= 2 else 2
        for first in range(min(total, 8)):
            stop = first + period
            while stop < total and joint[stop] == joint[stop - period]:
                stop += 1
            head = first + margin * period
            count = (stop - first) // period - 2 * margin
            tail = total - head - count * period
            if count <= traced:
                continue
            found = Depth(tuple(kinds), head, period, traced, count, tail)
            if best is None or found.layers < best.layers:
                best = found
    return best


def shorter_config(config: Any, depth: Depth) -> dict[str, Any]:
    """Config fields for the model to trace: the number of layers, and lists with one item each."""
    names: dict[str, str] = getattr(config, "attribute_map", {})
    out: dict[str, Any] = {names.get("num_hidden_layers", "num_hidden_layers"): depth.layers}
    out |= {k: depth.layers for k in _TOWERS if getattr(config, k, None) == depth.total}
    for key, value in _by_layer(config, depth.total).items():
        numbers = list(value) == list(range(depth.total))
        out[key] = list(range(depth.layers)) if numbers else [value[i] for i in depth.kept]
    return out


def same_kinds(
    whole: dict[str, tuple[Any, ...]], short: dict[str, tuple[Any, ...]], depth: Depth
) -> bool:
    """Whether the shorter model has, layer by layer, the kinds it stands for."""
    return set(whole) == set(short) and all(
        [kinds[i] for i in depth.kept] == list(short[path]) for path, kinds in whole.items()
    )


def build_whole(build: Any) -> nn.Module:
    """The model without memory, buffers included."""
    with torch.device("meta"):
        return build()


def renumber(program: Program, depth: Depth) -> Program:
    """Give the layers of the tail the numbers they have in the whole model."""
    if not depth.tail or depth.total == depth.layers:
        return program
    path = depth.whole_path
    found = program.renamed({v: path(v) for v in program.types})
    return replace(
        found,
        inputs=tuple(replace(i, path=path(i.path)) for i in found.inputs),
        nodes=tuple(
            replace(n, source=replace(n.source, module=path(n.source.module))) for n in found.nodes
        ),
        outputs=tuple(replace(o, path=path(o.path)) for o in found.outputs),
    )
