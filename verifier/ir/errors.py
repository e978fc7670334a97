"""Errors of the language.

IRError
└── ShapeError      operands whose shapes an op does not accept
"""


class IRError(ValueError):
    """A program that is not well formed: what, where, expected, got."""


class ShapeError(IRError):
    """Operands whose shapes (or dtypes) an op does not accept."""
