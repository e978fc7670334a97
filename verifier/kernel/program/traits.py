"""What the kernel believes of an op besides its types: claims for terms, signs and time.

A claim that a declaration does not make is not believed, so a new op is sound before it is known
well. `tests/laws/test_traits.py` tries each claim on values. The rules of the checker read none.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Traits:
    """Every field is a claim; its default claims nothing."""

    # where there is a value
    strict: bool = False
    """A result that is not empty uses every entry of every operand: it has no value where one of
    them has none."""
    needs: Literal["", "positive", "not negative", "not zero", "above -1"] = ""
    """What the last operand must be for there to be a value."""

    # signs, where there is a value
    sign: Literal[0, 1] | None = None
    """Of every entry, whatever the operands are: 1 above 0, 0 not below it."""
    keeps: Literal[0, 1] | None = None
    """Where no operand is below 0 (indices and conditions apart) the result is not: with 1 it is
    above 0 where they all are, unless there are no entries."""

    # dtypes of elementwise ops
    closed: Literal["floats", "integers", "bools"] = "floats"
    """The narrowest values that the op takes to values of their own kind."""
    wraps: bool = False
    """Whether results may not fit in the 8 bits of operands that do."""

    symmetric: bool = False
    """Whether the order of the operands is of no account."""
    index: int | None = None
    """The operand that holds indices."""

    # ranks
    meets: str = ""
    """The call in which ranks wait for one another."""
    alias: bool = False
    """The result is the operand, in its storage."""
    levels: bool = False
    """Ranks along its mesh dim get one value."""


NO_TRAITS = Traits()
