"""A table of terms that remembers what it was asked for, and what it gave."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shardproof.verifier.terms.refs import Ref, Shape
from shardproof.verifier.terms.table import Terms


@dataclass(frozen=True, slots=True)
class Call:
    """An op on operands, `combine` with its weights, or nothing: then the one operand itself."""

    op: str
    args: tuple[Ref, ...]
    attrs: tuple[tuple[str, Any], ...]
    dtypes: tuple[str, ...]
    made: Ref
    """The term that it is said to be."""


class Told(Terms):
    """Remembers calls from without; what a constructor asks for itself is its own affair."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Call, bool] = {}
        """Whether ranks asked for it: what they compute must have values."""
        self._inside = False

    def same(self, a: Ref, b: Ref) -> None:
        """Remember that two terms are taken for equal."""
        self._remember(Call("", (a,), (), (), b))

    def _remember(self, call: Call) -> None:
        self.calls[call] = self.calls.get(call, False) or self.needed is not None

    def _told(
        self,
        op: str,
        args: Sequence[Ref],
        attrs: Mapping[str, Any],
        dtypes: Sequence[str],
        make: Callable[[], Ref],
    ) -> Ref:
        if self._inside:
            return make()
        self._inside = True
        try:
            made = make()
        finally:
            self._inside = False
        self._remember(Call(op, tuple(args), tuple(attrs.items()), tuple(dtypes), made))
        return made

    def apply(
        self, op: str, args: Sequence[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]
    ) -> Ref:
        make = super().apply
        return self._told(op, args, attrs, dtypes, lambda: make(op, args, attrs, dtypes))

    def reshape(self, ref: Ref, shape: Shape) -> Ref:
        make = super().reshape
        return self._told("reshape", [ref], {"shape": shape}, (), lambda: make(ref, shape))

    def permute(self, ref: Ref, dims: tuple[int, ...]) -> Ref:
        make = super().permute
        return self._told("permute", [ref], {"dims": dims}, (), lambda: make(ref, dims))

    def expand(self, ref: Ref, shape: Shape) -> Ref:
        make = super().expand
        return self._told("expand", [ref], {"shape": shape}, (), lambda: make(ref, shape))

    def reduce(self, op: str, ref: Ref, dims: tuple[int, ...], keepdim: bool) -> Ref:
        make, attrs = super().reduce, {"dims": dims, "keepdim": keepdim}
        return self._told(op, [ref], attrs, (), lambda: make(op, ref, dims, keepdim))

    def combine(self, parts: Sequence[tuple[Fraction, Ref]]) -> Ref:
        make, attrs = super().combine, {"weights": tuple(w for w, _ in parts)}
        return self._told("combine", [r for _, r in parts], attrs, (), lambda: make(parts))
