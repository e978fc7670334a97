"""Layouts from placements, in PyTorch's words."""

import re
from collections.abc import Iterable

from shardproof.verifier.kernel.layout import FOLDS, Layout, split_leading

_SHARD = re.compile(r"(?:S|Shard)\((-?[0-9]{1,9})\)")
_PARTIAL = re.compile(rf"(?:P|Partial)(?:\(({'|'.join(FOLDS)})\))?")


def from_placements(shape: Iterable[int], placements: Iterable[tuple[str, int, str]]) -> Layout:
    """The layout of a tensor from placements in mesh order.

    Args:
        shape: global shape.
        placements: (mesh dim, its size, placement), a placement being `R`, `S(d)`, `P`, `P(max)`,
            or the same spelled out, `Replicate`, `Shard(d)`, `Partial(max)`.

    Raises:
        ValueError: an unknown placement, or an extent that its mesh dims do not divide.
    """
    layout = Layout.replicate(shape)
    for name, size, placement in placements:
        shard, partial = _SHARD.fullmatch(placement), _PARTIAL.fullmatch(placement)
        if shard:
            index = int(shard[1])
            if not -len(layout.dims) <= index < len(layout.dims):
                raise ValueError(f"{placement} on a tensor of {len(layout.dims)} dims")
            index %= len(layout.dims)
            if size == 1:
                continue
            dim = split_leading(layout.dims[index], size, name)
            if dim is None:
                raise ValueError(
                    f"dim {index} of shape {list(layout.global_shape)} is not divisible by "
                    f"{name}={size}"
                )
            layout = layout.with_dim(index, dim)
        elif partial:
            if size > 1:
                layout = layout.with_partial((*layout.partial, (name, partial[1] or "sum")))
        elif placement not in ("R", "Replicate"):
            raise ValueError(f"unknown placement {placement!r}; expected R, S(d), P or P(max)")
    return layout
