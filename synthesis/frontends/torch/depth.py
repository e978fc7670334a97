"""Traces few layers where many are alike.

The whole model is built without memory; layers are compared by class tree, shapes and scalar
attributes. A model with fewer layers, in which every kind comes several times, is traced instead,
and its layers are compared op by op when they are rolled.
"""

# pyright: basic

from typing import Any

import torch
from torch import nn

from shardproof.synthesis.frontends.torch.rolling.depth import Depth

NUMBERING = {"layer_idx", "layer_id", "layer_number", "block_idx"}
_TOWERS = ("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers")
"""Fields for the depths of models of two towers."""
SCALARS = (int, float, str, bool, type(None))


def members(module: nn.Module) -> list[nn.Module]:
    """The modules of a list, a sequence, or a dict whose keys are 0, 1 and so on; else none."""
    if isinstance(module, nn.ModuleDict):
        numbered = list(module) == [str(n) for n in range(len(module))]
        return [*module.values()] if numbered else []
    return [*module] if isinstance(module, (nn.ModuleList, nn.Sequential)) else []


def fingerprint(module: nn.Module) -> tuple[Any, ...]:
    """Everything that is compared between two layers."""
    scalars = tuple(
        sorted(
            (k, repr(v))
            for k, v in vars(module).items()
            if not k.startswith("_") and k not in NUMBERING and isinstance(v, SCALARS)
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
        found = [] if isinstance(module, nn.Sequential) else members(module)
        if len(found) == layers:
            kinds = list(map(fingerprint, found))
            for value in _by_layer(config, layers).values():
                if list(value) != list(range(layers)):
                    kinds = [(k, repr(v)) for k, v in zip(kinds, value, strict=True)]
            out[path] = tuple(kinds)
    return out


def _by_layer(config: Any, layers: int) -> dict[str, Any]:
    """Config fields with one item per layer: a kind, or, where all are listed, its number."""
    fields = vars(config).items()
    return {k: v for k, v in fields if isinstance(v, (list, tuple)) and len(v) == layers}


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
