"""What follows the last backward pass: gradient reduction, clipping, AdamW, and the new values.

ZeRO (Rajbhandari et al. 2020): 1 splits the moments over the data ranks, 2 also scatters the
gradients, 3 keeps the parameters themselves split. What is reduced and updated at once is a unit:
one parameter, or a padded flat bucket of alike ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.steps.model import Degrees
from benchmarks.steps.weights import Weight, layout
from shardproof.synthesis.training.captured import over
from shardproof.synthesis.training.optimizer import Optimizer, State, adamw, squares
from shardproof.verifier.kernel.program.builder import Builder


@dataclass(frozen=True)
class Unit:
    """Parameters that are reduced and updated together; alike in all that matters here."""

    weights: tuple[Weight, ...]
    flat: bool = False

    @property
    def first(self) -> Weight:
        return self.weights[0]

    @property
    def name(self) -> str:
        return self.first.name

    @property
    def stages(self) -> tuple[int, ...]:
        return self.first.stages

    def local_shapes(self, degrees: Degrees) -> list[tuple[int, ...]]:
        """Shapes of the parameters on one rank, whole over the data ranks."""
        return [layout(w, degrees, split=False).local_shape for w in self.weights]

    def padding(self, degrees: Degrees) -> int:
        """Zeros at the end of a bucket that make it divide over the data ranks."""
        total = sum(math.prod(s) for s in self.local_shapes(degrees))
        return -total % math.prod(degrees.size(n) for n in self.first.data(degrees))

    def joined(self, b: Builder, values: Sequence[str], degrees: Degrees) -> str:
        """A value per parameter as one flat padded tensor; of one parameter, the value itself."""
        if not self.flat:
            return values[0]
        lines = [b.add("reshape", v, shape=(b.types[v].size,)) for v in values]
        whole = b.add("concat", *lines, dim=0)
        return b.add("pad", whole, dim=0, lo=0, hi=self.padding(degrees))

    def parted(self, b: Builder, value: str, degrees: Degrees) -> list[str]:
        """The other way: what of a whole value belongs to each parameter."""
        if not self.flat:
            return [value]
        out: list[str] = []
        at = 0
        for shape in self.local_shapes(degrees):
            size = math.prod(shape)
            cut = b.add("slice", value, dim=0, start=at, stop=at + size)
            out.append(b.add("reshape", cut, shape=shape))
            at += size
        return out

    def dim(self, degrees: Degrees) -> int:
        """The dim that ZeRO splits."""
        return 0 if self.flat else self.first.zero_dim(degrees)


def units(table: Sequence[Weight], degrees: Degrees) -> list[Unit]:
    """Every parameter alone, or buckets of those with the same owners and the same decay."""
    if not degrees.zero or degrees.zero_kind == "per_param":
        return [Unit((w,)) for w in table]
    buckets: dict[object, list[Weight]] = defaultdict(list)
    for w in table:
        buckets[w.stages, w.decays, w.split(degrees), w.data(degrees)].append(w)
    return [Unit(tuple(group), flat=True) for group in buckets.values()]


def reduced(
    b: Builder, group: Sequence[Unit], grads: Mapping[str, str], degrees: Degrees
) -> dict[str, str]:
    """The summed gradient of each unit: whole, or the piece of this rank from ZeRO 1 on."""
    out: dict[str, str] = {}
    for unit in group:
        data = unit.first.data(degrees)
        shares: list[str] = []
        for w in unit.weights:
            g = grads[w.name]
            if degrees.sequence_parallel and w.sees_part:
                g = b.add("all_reduce", g, mesh_dim="tp", reduce="sum")
            shares.append(g)
        g = unit.joined(b, shares, degrees)
        if data and degrees.zero in (0, 1):
            g = b.add("all_reduce", g, mesh_dim=over(data), reduce="sum")
        if data and degrees.zero == 1:
            g = b.add("shard_slice", g, mesh_dim=over(data), dim=unit.dim(degrees))
        if data and degrees.zero == 2:
            dim = unit.dim(degrees)
            g = b.add("reduce_scatter", g, mesh_dim=over(data), dim=dim, reduce="sum")
        out[unit.name] = g
    return out


def norm_squared(
    b: Builder, group: Sequence[Unit], grads: Mapping[str, str], degrees: Degrees
) -> str:
    """The sum of squares of the whole gradients of these units, each element counted once."""
    by_dims: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for unit in group:
        zero = unit.first.data(degrees) if degrees.zero else ()
        by_dims[(*zero, *unit.first.split(degrees))].append(grads[unit.name])
    out = ""
    for dims, values in by_dims.items():
        share = squares(b, values)
        if dims:
            share = b.add("all_reduce", share, mesh_dim=over(dims), reduce="sum")
        out = b.add("add", out, share) if out else share
    return out


def update(
    b: Builder, unit: Unit, grad: str, factor: str, degrees: Degrees, opt: Optimizer
) -> None:
    """Step the parameters of a unit, and return their new values laid out as the old ones.

    The moments of a flat bucket are given and returned by parameter, as a checkpoint holds them:
    the bucket takes its piece of them and puts the new ones together again.
    """
    data = unit.first.data(degrees)
    scattered = bool(data) and degrees.zero in (1, 2)

    def piece(names: list[str], split: bool) -> str:
        value = unit.joined(b, names, degrees)
        if not split:
            return value
        return b.add("shard_slice", value, mesh_dim=over(data), dim=unit.dim(degrees))

    def back(value: str, gathered: bool) -> list[str]:
        if gathered:
            value = b.add("all_gather", value, mesh_dim=over(data), dim=unit.dim(degrees))
        return unit.parted(b, value, degrees)

    names = [w.name for w in unit.weights]
    moments = [
        piece([f"{n}.{moment}" for n in names], scattered and unit.flat)
        for moment in ("first", "second")
    ]
    state = State(piece(names, scattered), grad, *moments)
    new, first, second = adamw(b, state, factor, opt, decay=unit.first.decays)
    found = (back(new, scattered), *(back(m, scattered and unit.flat) for m in (first, second)))
    for w, param, one, two in zip(unit.weights, *found, strict=True):
        b.output(param, "output", f"{w.path}.new")
        b.output(one, "output", f"{w.path}.first.new")
        b.output(two, "output", f"{w.path}.second.new")
