"""Rounding to narrow formats.

`round_to` is uninterpreted in a proof: a program that rounds elsewhere, or to another format, or
at another scale, is another program. `cast` between float dtypes is the identity over the reals.
"""

from shardproof.verifier.kernel.program.registry import REQUIRED, Op, Site, register
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import FORMATS, TensorType


def _types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    if not x.is_float:
        raise site.fail("rounds floats")
    if site.attrs["format"] not in FORMATS:
        raise site.fail(f"format {site.attrs['format']!r}; expected one of {', '.join(FORMATS)}")
    return (x,)


round_to = register(
    Op(
        "round_to",
        "map",
        "... -> ...",
        _types,
        attrs={"format": REQUIRED, "ste": False},
        traits=Traits(strict=True),
    )
)
