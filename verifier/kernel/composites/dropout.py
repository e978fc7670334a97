"""Dropout by a mask that every rank makes for its own part."""

from fractions import Fraction

from shardproof.verifier.kernel.composites.expansion import composite
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import REQUIRED
from shardproof.verifier.kernel.program.types import Affine


@composite("..., seed -> ...", p=REQUIRED, strides=(), offset=0, stream=0)
def dropout(
    b: Builder,
    x: str,
    seed: str,
    p: Fraction,
    strides: tuple[int, ...],
    offset: int | Affine,
    stream: int,
) -> str:
    """Dropout that keeps the mean (Srivastava et al. 2014): `x` times a `dropout_mask`."""
    made = b.types[x]
    mask = b.add(
        "dropout_mask",
        seed,
        shape=made.shape,
        p=p,
        strides=strides,
        offset=offset,
        stream=stream,
        dtype=made.dtype,
    )
    return b.add("mul", x, mask)
