"""Where infinite numbers of a graph may meet a 0 or each other.

Masks are infinite; the language has a huge number in their place. That is as good where a maximum,
a softmax or a choice takes it, and not where PyTorch makes NaN of it: an infinity times 0, or less
another. Such places are told.
"""

# pyright: basic

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from shardproof.synthesis.frontends.torch.constants import Band, Constant, Full, Ramp
from shardproof.synthesis.frontends.torch.ranks.writes import is_view

_HUGE = 2.0**199
_SWALLOWED = """_softmax _safe_softmax softmax logsumexp exp sigmoid tanh argmax argmin eq ne lt le
gt ge isinf isfinite isnan logical_not zeros_like ones_like full_like empty_like
new_zeros sort_index scaled_dot_product_attention reciprocal relu6 hardtanh clamp
atan nan_to_num any all"""
"""Ops that give a finite number, or truths, for an infinite one."""
_PASSED = """_to_copy clone detach alias contiguous cat stack where masked_fill add neg abs amax
amin max min maximum minimum clamp_min clamp_max relu _log_softmax log_softmax index
gather index_select constant_pad_nd slice_scatter select_scatter copy copy_ repeat
flip roll sum log sqrt topk sort getitem lift_fresh_copy index_put scatter embedding
triu tril full scalar_tensor expand"""
"""Ops that give an infinite number, and no NaN that PyTorch would not give for others too."""
_FINITE, _INFINITE = frozenset(_SWALLOWED.split()), frozenset(_PASSED.split())


class Infinities:
    """Which nodes of a graph may hold infinities, and where these may make NaN."""

    def __init__(
        self, constants: Mapping[fx.Node, Constant], place: Callable[[fx.Node], str]
    ) -> None:
        self.constants, self.place = constants, place
        self.found: set[fx.Node] = set()
        self.met: dict[str, None] = {}

    def notes(self) -> list[str]:
        """What is taken for granted, in sentences."""
        if not self.met:
            return []
        shown = list(self.met)[:4]
        more = f" and {len(self.met) - 4} more" if len(self.met) > 4 else ""
        return [f"No infinity is multiplied by 0, or meets another, at {', '.join(shown)}{more}."]

    def follow(self, node: fx.Node) -> None:
        """Find what a node of the forward holds."""
        name = getattr(node.target, "__name__", "").partition(".")[0]
        if getattr(node.target, "namespace", "aten") != "aten":
            return
        operands = [a for a in tree_leaves((node.args, node.kwargs)) if self._may(a)]
        if not operands or name in _FINITE:
            return
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor) and not val.is_floating_point():
            return
        self.found.add(node)
        if name in _INFINITE or is_view(node):
            return
        if name in ("mul", "div") and self._is_scaled(node, name):
            return
        if name in ("sub", "rsub") and len(operands) == 1:
            return
        self.met[self.place(node)] = None

    def _may(self, value: Any) -> bool:
        if isinstance(value, fx.Node):
            constant = self.constants.get(value)
            return value in self.found or (constant is not None and _is_infinite(constant))
        return isinstance(value, float) and math.isinf(value)

    def _is_scaled(self, node: fx.Node, name: str) -> bool:
        """Whether an infinity is multiplied by one number, or divided by it."""
        left, right = node.args[:2]
        other = right if self._may(left) else left
        if isinstance(other, fx.Node):
            constant = self.constants.get(other)
            values = constant.structure if constant is not None else None
            other = float(values.value) if isinstance(values, Full) else 0.0
        is_divided = name == "mul" or self._may(left)
        return is_divided and isinstance(other, (int, float)) and other != 0


def _is_infinite(constant: Constant) -> bool:
    match constant.structure:
        case Full(value):
            return abs(value) > _HUGE
        case Ramp():
            return False
        case Band(inside=inside, outside=outside):
            return max(abs(inside), abs(outside)) > _HUGE
        case opaque:
            entries = np.asarray(opaque.value)
            return entries.dtype.kind == "f" and bool(np.isinf(entries).any())
