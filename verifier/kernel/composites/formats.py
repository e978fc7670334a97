"""Narrow float formats."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Format:
    """A binary float format."""

    significand: int
    """Bits after the leading one."""
    smallest: int
    """Exponent of the smallest normal number."""
    largest: float
    """The largest finite value."""
    overflow: float
    """What a value that rounds beyond it becomes, up to sign."""


FORMATS: dict[str, Format] = {
    "f16": Format(10, -14, 65504.0, np.inf),
    "bf16": Format(7, -126, (2 - 2.0**-7) * 2.0**127, np.inf),
    "tf32": Format(10, -126, (2 - 2.0**-10) * 2.0**127, np.inf),
    "f8e4m3": Format(3, -6, 448.0, 448.0),
    "f8e5m2": Format(2, -14, 57344.0, np.inf),
    "e8m0": Format(0, -127, 2.0**127, np.nan),
}
