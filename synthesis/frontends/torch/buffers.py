"""Buffers that a checkpoint fills: what their constructor gives them stands for nothing.

In a trace each of these is a table of its own, whatever it holds: what is computed of it is
computed with ops, not with the values that stand there. A buffer whose values say what is computed
stays what the constructor gives: one that is compared, that is an index, or that is a mask of
infinities.
"""

# pyright: basic

import hashlib
import operator
import re
from collections.abc import Mapping, Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from shardproof.synthesis.frontends.torch.aten.table import TABLE
from shardproof.synthesis.frontends.torch.folding import constant_nodes
from shardproof.synthesis.frontends.torch.ranks.tables import splits_of
from shardproof.synthesis.frontends.torch.ranks.writes import is_view
from shardproof.synthesis.frontends.torch.trace import Traced
from shardproof.verifier.kernel.program.types import Mesh

_CASTS = frozenset(
    ("_to_copy", "to", "convert_element_type", "clone", "detach", "alias", "lift_fresh_copy")
)
_ARITHMETIC = frozenset(("add", "sub", "rsub", "mul", "div"))
"""Ops to which an integer is a number. To any other it may be an index, or a label."""
_MASKED = -1e4
"""From which on an entry masks what it is added to."""


@dataclass(frozen=True)
class Filled:
    """Values of buffers, and which of these are of any value, each with what tells its table from
    those of others."""

    values: Mapping[str, torch.Tensor]
    names: Mapping[str, str] = field(default_factory=dict[str, str])


def persistent(model: nn.Module) -> dict[str, str]:
    """The buffers that a checkpoint has, each with the first name of the same tensor."""
    first: dict[int, str] = {}
    out: dict[str, str] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for own, buffer in module._buffers.items():
            if buffer is not None and own not in module._non_persistent_buffers_set:
                name = f"{path}.{own}" if path else own
                out[name] = first.setdefault(id(buffer), name)
    return out


def filled(
    traced: Traced,
    values: Mapping[str, torch.Tensor],
    kept: Mapping[str, str],
    alike: bool = False,
) -> Filled:
    """The values of buffers with those of any value, of `kept`, replaced. With `alike`, buffers of
    alike layers that their constructor fills alike are one table."""
    names = {n: label(kept[n], alike) for n in sorted(open_to_values(traced, values, kept))}
    new = {n: any_value(kept[n], values[n]) for n in names}
    return Filled({**values, **new}, names)


def label(name: str, alike: bool = False) -> str:
    """What tells the table of a buffer from those of others; with `alike`, from those of others
    than the same of another layer."""
    return re.sub(r"\d+", "#", name) if alike else name


def open_to_values(
    traced: Traced, values: Mapping[str, torch.Tensor], kept: Mapping[str, str]
) -> frozenset[str]:
    """The buffers of `kept` that are numbers to what reads them."""
    constants = constant_nodes(traced)
    return frozenset(
        name
        for node, name in traced.buffers.items()
        if name in kept and name not in traced.taken and name in values
        if not _is_mask(values[name]) and not _decides(node, constants)
    )


def as_numbers(value: torch.Tensor) -> Any:
    """The entries, of types that numpy has."""
    plain = value.detach()
    return (plain.float() if plain.dtype.is_floating_point else plain).numpy()


def pieces_filled(
    traced: Traced,
    values: Mapping[str, torch.Tensor],
    theirs: Mapping[str, str],
    whole: Mapping[str, Any],
    mesh: Mesh,
    at: Mapping[str, int],
) -> tuple[Filled, dict[str, str]]:
    """The values of a rank's buffers, those of any value as its pieces of the model's; and for each
    of these, by the model's name, the placement: empty where it has no such piece.

    Args:
        theirs: the rank's names of buffers that a checkpoint has, with the model's.
        whole: the model's buffers of any value, as its constructor fills them.
        at: the coordinates of the rank.
    """
    open_ = open_to_values(traced, values, theirs)
    read = set(traced.buffers.values())
    new: dict[str, torch.Tensor] = {}
    names: dict[str, str] = {}
    placed: dict[str, str] = {}
    for own, name in theirs.items():
        if own not in read or own in traced.taken:
            continue
        said = placement_of(as_numbers(values[own]), whole[name], mesh, at) if own in open_ else ""
        placed[name] = said
        if said:
            table = any_value(name, torch.from_numpy(np.array(whole[name])).to(values[own].dtype))
            new[own] = piece(table, said, mesh, at).contiguous()
            names[own] = label(name)
    return Filled({**values, **new}, names), placed


def placement_of(part: Any, whole: Any, mesh: Mesh, at: Mapping[str, int]) -> str:
    """How a rank's part is cut out of a whole: `R`, `S(0)@tp`; empty where it is not."""
    if part.shape == whole.shape:
        return "R" if np.array_equal(part, whole) else ""
    return next(iter(splits_of(part, whole, mesh, at)), "")


def piece(whole: Any, placement: str, mesh: Mesh, at: Mapping[str, int]) -> Any:
    """A rank's part of a tensor."""
    kind, _, name = placement.partition("@")
    if not name:
        return whole
    dim = int(kind[2:-1])
    return whole.chunk(mesh[name], dim)[at[name]]


def any_value(name: str, value: torch.Tensor) -> torch.Tensor:
    """A table of the same kind, which stands for any: along no dim are its entries equal. Buffers
    of alike layers that their constructor fills alike have one."""
    plain = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    key = label(name, True).encode() + str(value.dtype).encode() + plain.tobytes()
    seed = int.from_bytes(hashlib.sha256(key).digest()[:8], "little")
    random = np.random.default_rng(seed)
    while True:
        numbers = random.integers(1 << 19, 3 << 19, value.numel())
        drawn = torch.from_numpy(numbers).reshape(value.shape)
        if value.dtype.is_floating_point:
            table = ((2 * drawn + 1) / (1 << 21)).to(value.dtype)
        else:
            table = (drawn % 63 + 1).to(value.dtype)
        wide = [d for d, n in enumerate(table.shape) if n > 1]
        if table.numel() == 0 or all(bool((table != table.narrow(d, 0, 1)).any()) for d in wide):
            return table


def _is_mask(value: torch.Tensor) -> bool:
    if not value.dtype.is_floating_point:
        return value.dtype == torch.bool
    return value.numel() > 0 and (not bool(value.isfinite().all()) or float(value.min()) < _MASKED)


def _decides(buffer: fx.Node, constants: AbstractSet[fx.Node]) -> bool:
    """Whether some op asks what a buffer holds, or looks up what it says. What is computed of
    buffers alone is followed to where inputs come in; an op there must be one that has a meaning,
    since it is not evaluated."""
    waiting, seen = [buffer], {buffer}
    while waiting:
        node = waiting.pop()
        for user in node.users:
            if user.op != "call_function" or user in seen:
                continue
            seen.add(user)
            name = getattr(user.target, "_opname", "")
            if name == "_assert_tensor_metadata":
                continue
            if is_same(user):
                if _is_float(node) and not _is_float(user):
                    return True
                waiting.append(user)
            elif not _is_float(user) or (not _is_float(node) and not _is_number(node, name)):
                return True
            elif user in constants:
                if not _has_meaning(user):
                    return True
                waiting.append(user)
    return False


def is_same(node: fx.Node) -> bool:
    """Whether an op gives entries of what it is given, as they are or in another type."""
    return is_view(node) or getattr(node.target, "_opname", "") in _CASTS


def _has_meaning(node: fx.Node) -> bool:
    target: Any = node.target
    return target is operator.getitem or getattr(target, "__name__", "") in TABLE


def _is_number(node: fx.Node, reader: str) -> bool:
    """Whether an op takes the integers of a node for numbers."""
    is_truth = getattr(node.meta.get("val"), "dtype", None) == torch.bool
    return reader in _ARITHMETIC and not is_truth


def _is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    parts = value if isinstance(value, (list, tuple)) else [value]
    tensors = [t for t in parts if isinstance(t, torch.Tensor)]
    return all(t.dtype.is_floating_point or t.dtype.is_complex for t in tensors)
