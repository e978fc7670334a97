"""What can go wrong, and the exit code each kind ends in.

ShardproofError
├── InputError      2   an option, a target, a config, an input or a file that cannot be used
└── LimitError      4   the time given was not enough

Anything else that escapes is our own fault and ends in 70.
"""

from enum import IntEnum
from typing import ClassVar


class Exit(IntEnum):
    """Exit codes of every command, with and without `--json`."""

    PROVED = 0
    """Done, and proved where there was something to prove; a directory that was accepted."""
    NOT_PROVED = 1
    """Done: refuted, unknown or rejected."""
    INPUT = 2
    """Usage, config or input."""
    ENDPOINT = 3
    """The model endpoint."""
    LIMIT = 4
    """Budget or time."""
    NOTHING = 5
    """Nothing selected; a proved plan that is not useful, where it has to be."""
    ALARM = 6
    """A run under the guard exchanged something else than it should have."""
    FAULT = 70
    """Our own fault; the traceback was saved."""
    INTERRUPTED = 130


class ShardproofError(Exception):
    """One clear message: what, where, expected, got, what to try."""

    exit: ClassVar[Exit] = Exit.FAULT

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        expected: str = "",
        got: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        """`file:line`, or the option as it was given."""
        self.expected = expected
        self.got = got
        self.hint = hint


class InputError(ShardproofError):
    """Something given to us cannot be used."""

    exit = Exit.INPUT


class LimitError(ShardproofError):
    """The time given was not enough."""

    exit = Exit.LIMIT
