"""Number formats: casts, loss scaling, 8-bit floats with their scales, and what must agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from shardproof.compat.compute import exact
from shardproof.compat.errors import ProgramError
from shardproof.compat.program import IROp
from shardproof.compat.tensor import FLOAT_NAMES, TensorState
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import TensorType

NARROW = {"fp8e4m3": "f8e4m3", "fp8e5m2": "f8e5m2"}
"""8-bit formats, by the core's names."""


def core_dtype(name: str, what: str) -> str:
    """The core's name of a dtype. Raises ProgramError."""
    if name not in FLOAT_NAMES:
        raise ProgramError(f"{what}: dtype {name!r}; expected one of {', '.join(FLOAT_NAMES)}")
    return FLOAT_NAMES[name]


def _expect(what: str, state: TensorState, src: str) -> None:
    if state.dtype is not None and state.dtype != src:
        raise ProgramError(f"{what}: expected src_dtype {src}, {state.name} is {state.dtype}")


@dataclass
class Cast(IROp):
    """Change of dtype. Over the reals, which is what is proved, the identity."""

    x: str
    output: str
    src_dtype: str
    dst_dtype: str

    def one_device(self, b: Builder, *operands: str) -> str:
        return b.add("cast", operands[0], dtype=core_dtype(self.dst_dtype, str(self)))

    def check(self, states: Sequence[TensorState]) -> None:
        core_dtype(self.src_dtype, str(self))
        _expect(str(self), states[0], self.src_dtype)

    def mark(self, result: TensorState, states: Sequence[TensorState]) -> None:
        result.dtype = self.dst_dtype


@dataclass
class LossScale(IROp):
    """Times a number, or with `direction="unscale"` divided by it."""

    x: str
    output: str
    scale: float
    direction: str = "scale"

    def one_device(self, b: Builder, *operands: str) -> str:
        value = exact(self.scale)
        if self.direction not in ("scale", "unscale") or not value:
            raise ProgramError(f"{self}: expected scale or unscale, by a number other than 0")
        value = value if self.direction == "scale" else 1 / value
        return b.add("mul_scalar", operands[0], value=value)


@dataclass
class FP8Quantize(IROp):
    """Times a scale, clamped and rounded to an 8-bit format. The scale is an input of the program,
    named by `scale_expr`."""

    x: str
    output: str
    scale_expr: str
    src_dtype: str = "fp32"
    dst_dtype: str = "fp8e4m3"
    reads: ClassVar[tuple[str, ...]] = ("x", "scale_expr")
    given: ClassVar[tuple[tuple[str, TensorType], ...]] = (("scale_expr", TensorType(())),)

    def one_device(self, b: Builder, *operands: str) -> str:
        if self.dst_dtype not in NARROW:
            raise ProgramError(f"{self}: expected one of {', '.join(NARROW)}")
        return b.add("quantize", *operands, format=NARROW[self.dst_dtype])

    def check(self, states: Sequence[TensorState]) -> None:
        _expect(str(self), states[0], self.src_dtype)

    def mark(self, result: TensorState, states: Sequence[TensorState]) -> None:
        result.dtype, result.fp8_scale_expr = self.dst_dtype, self.scale_expr


@dataclass
class FP8Dequantize(IROp):
    """Divided by the scale that it was quantized with."""

    x: str
    output: str
    scale_expr: str
    src_dtype: str = "fp8e4m3"
    dst_dtype: str = "fp32"
    reads: ClassVar[tuple[str, ...]] = ("x", "scale_expr")
    given: ClassVar[tuple[tuple[str, TensorType], ...]] = (("scale_expr", TensorType(())),)

    def one_device(self, b: Builder, *operands: str) -> str:
        return b.add("dequantize", *operands)

    def check(self, states: Sequence[TensorState]) -> None:
        x = states[0]
        if x.dtype not in NARROW:
            raise ProgramError(f"{self}: expected FP8 input, {x.name} is {x.dtype or 'not cast'}")
        _expect(str(self), x, self.src_dtype)
        if x.fp8_scale_expr not in (None, self.scale_expr):
            raise ProgramError(
                f"{self}: {x.name} was quantized with scale {x.fp8_scale_expr}, "
                f"got {self.scale_expr}"
            )

    def mark(self, result: TensorState, states: Sequence[TensorState]) -> None:
        result.dtype, result.fp8_scale_expr = self.dst_dtype, None


@dataclass
class AmaxUpdate(IROp):
    """The largest magnitude of a tensor, for the scale of the next step."""

    x: str
    output: str
    tensor_name: str
    iteration_expr: str = ""

    def one_device(self, b: Builder, *operands: str) -> str:
        return b.add("abs_max", *operands)


class DtypeGuard:
    """What dtypes must agree on. Each check answers None, or what is wrong."""

    @staticmethod
    def check_allreduce_dtype(t: TensorState) -> str | None:
        if t.is_fp8:
            return f"all-reduce of {t.name} in {t.dtype}: shares are added in a wider format"
        return None

    @staticmethod
    def check_matmul_dtype_match(a: TensorState, b: TensorState) -> str | None:
        if a.dtype and b.dtype and a.dtype != b.dtype:
            return f"product of {a.name} ({a.dtype}) and {b.name} ({b.dtype})"
        return None

    @staticmethod
    def check_collective_preserves_dtype(before: TensorState, after: TensorState) -> str | None:
        if before.dtype != after.dtype:
            return f"{after.name} is {after.dtype}, {before.name} was {before.dtype}"
        return None

    @staticmethod
    def check_fp8_format_usage(t: TensorState, phase: str) -> str | None:
        """Forward values in fp8e4m3, gradients in fp8e5m2 (Micikevicius et al. 2022)."""
        want = "fp8e4m3" if phase == "forward" else "fp8e5m2"
        if t.is_fp8 and t.dtype != want:
            return f"{t.name} is {t.dtype} in the {phase} pass, expected {want}"
        return None

    @staticmethod
    def check_fp8_scale_freshness(quantize_index: int, amax_index: int) -> str | None:
        """The magnitude that a scale is made from is taken before the scale is used."""
        if amax_index >= quantize_index:
            return f"quantized at op {quantize_index}, its magnitude taken at op {amax_index}"
        return None
