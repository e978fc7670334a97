"""The one error of the lifter: what, where, expected, got, what to try."""

from typing import NoReturn

from shardproof.synthesis.frontends.tir.tree import Place
from shardproof.verifier.kernel.program.errors import MalformedError


class TirError(MalformedError):
    """A script that is not understood, or that has no one meaning: `file:line:col: what; ...`."""


def fail(place: Place, what: str, *, expected: str = "", got: str = "", hint: str = "") -> NoReturn:
    """Raise a located TirError."""
    raise TirError(what, where=str(place), expected=expected, got=got, hint=hint)
