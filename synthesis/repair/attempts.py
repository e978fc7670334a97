"""The loop of repair: propose, apply, judge. Nothing is a repair but what the judge gives."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Proposed = TypeVar("Proposed")
Judged = TypeVar("Judged")

UNFIT = (ValueError, KeyError)
"""What a proposal raises that does not fit what it changes: all errors of programs are of these."""


def attempts(
    proposed: Iterable[Proposed],
    judge: Callable[[Proposed], Judged | None],
    late: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Proposed, Judged | None]]:
    """Every proposal with what the judge makes of it, until it makes something, or it is late."""
    for edit in proposed:
        if late():
            return
        try:
            found = judge(edit)
        except UNFIT:
            found = None
        yield edit, found
        if found is not None:
            return


def first(
    proposed: Iterable[Proposed],
    judge: Callable[[Proposed], Judged | None],
    late: Callable[[], bool] = lambda: False,
) -> Judged | None:
    """What the judge makes of the first proposal that it makes something of."""
    return next((j for _, j in attempts(proposed, judge, late) if j is not None), None)
