"""What the guard raises, and what it says of errors that nobody caught."""

import sys
from collections.abc import Callable
from types import TracebackType


class GuardError(RuntimeError):
    """A run that cannot go on: what, which ranks, what to look at."""


class FaultError(GuardError):
    """Ranks did not exchange what they should have: the same text on every rank."""


def after_uncaught(
    tell: Callable[[BaseException], None], why: Callable[[BaseException], BaseException]
) -> Callable[[], None]:
    """Have `tell` called with an error that ends this process, and what `why` makes of it said
    after its traceback, where that is another error, until what is returned is called."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        tell(error)
        before(kind, error, trace)
        if (said := why(error)) is not error:
            sys.stderr.write(f"shardproof guard: {said}\n")

    def undo() -> None:
        if sys.excepthook is hook:
            sys.excepthook = before

    sys.excepthook = hook
    return undo
