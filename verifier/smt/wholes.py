"""A table of terms whose terms are arrays: what a rule concludes is computed as it is said."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from shardproof.verifier.domains.base import Array, Domain, is_index
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.registry import ONE
from shardproof.verifier.ops import facets
from shardproof.verifier.terms import Ref, Terms

Shape = tuple[int, ...]


class Wholes(Terms):
    """Every constructor computes. Nothing is brought to a normal form."""

    def __init__(self, domain: Domain, addend: Callable[[int], Array] | None = None) -> None:
        super().__init__()
        self.domain = domain
        self.arrays: list[Array] = []
        self.said: list[tuple[str, dict[str, Any]]] = []
        """The ops that a rule applies to whole operands, with their attributes."""
        self._addend = addend

    def hold(self, array: Array) -> Ref:
        self.arrays.append(array)
        return Ref(ONE, len(self.arrays) - 1)

    def value(self, ref: Ref) -> Array:
        array = self.arrays[ref.id]
        if ref.coef == 1:
            return array
        if is_index(array) and ref.coef.denominator == 1:
            return (array * ref.coef.numerator).astype(array.dtype)
        return self.domain.mul(self.domain.lift(array), self.domain.const(ref.coef))

    def shape(self, ref: Ref) -> Shape:
        return self.arrays[ref.id].shape

    def _op(self, op: str, args: Sequence[Ref], **attrs: Any) -> Ref:
        known = lookup(op)
        values = map(self.value, args)
        made = facets(known.name).meaning(self.domain, *values, **known.with_defaults(attrs))
        return self.hold(np.asarray(made))

    def apply(
        self, op: str, args: Sequence[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]
    ) -> Ref:
        self.said.append((op, dict(attrs)))
        return self._op(op, args, **attrs)

    def combine(self, parts: Sequence[tuple[Fraction, Ref]]) -> Ref:
        total: Array | None = None
        for weight, ref in parts:
            value = self.value(Ref(weight * ref.coef, ref.id))
            total = value if total is None else self.domain.add(total, value)
        assert total is not None
        return self.hold(total)

    def reshape(self, ref: Ref, shape: Shape) -> Ref:
        return self._op("reshape", [ref], shape=shape)

    def permute(self, ref: Ref, dims: tuple[int, ...]) -> Ref:
        return self._op("permute", [ref], dims=dims)

    def expand(self, ref: Ref, shape: Shape) -> Ref:
        return self._op("expand", [ref], shape=shape)

    def reduce(self, op: str, ref: Ref, dims: tuple[int, ...], keepdim: bool) -> Ref:
        return self._op(op, [ref], dims=dims, keepdim=keepdim)

    def full(self, shape: Shape, value: Fraction) -> Ref:
        return self.hold(self.domain.full(shape, value))

    def intern(self, op: str, args: Sequence[Ref], attrs: tuple[Any, ...], shape: Shape) -> Ref:
        """An addend is what the rank at its coordinate holds."""
        assert op == "addend"
        assert self._addend is not None
        return self.hold(self._addend(attrs[2]))
