"""Whether the user's code is being traced just now, and what it caught that only a trace raises."""

# pyright: basic

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.places import Places


class AskedError(CaptureError):
    """What the code asks, or catches, is another in a run."""


@dataclass
class Watching:
    """One traced call."""

    places: Places
    caught: list[CaptureError] = field(default_factory=list[CaptureError])
    """What the call is refused with, if it comes to its end nevertheless."""

    def refusal(self, frame: Any, message: str, hint: str) -> AskedError:
        file, line, text = self.places.of(frame)
        return AskedError(message, file=file, line=line, text=text, hint=hint)


_now: list[Watching] = []


def now() -> Watching | None:
    """The call that is traced, if one is."""
    return _now[-1] if _now else None


@contextmanager
def watching(places: Places) -> Iterator[None]:
    """What runs inside is traced.

    Raises:
        CaptureError: it came to its end, and the user's code caught what only a trace raises.
    """
    from shardproof.synthesis.frontends.torch.asked.answers import shown_to_nobody

    found = Watching(places)
    _now.append(found)
    try:
        with shown_to_nobody():
            yield
    finally:
        _now.pop()
    if found.caught:
        raise found.caught[0]


def caller() -> Any:
    """The frame that called what calls this."""
    return sys._getframe(2)
