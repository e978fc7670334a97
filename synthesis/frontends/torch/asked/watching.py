"""Whether the user's code is being traced just now, and what it caught that only a trace raises."""

# pyright: basic

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from shardproof.synthesis.frontends.torch.asked.threads import Refuse, threads_followed
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.places import Places


class AskedError(CaptureError):
    """What the code asks, or catches, is another in a run."""


@dataclass
class Watching:
    """One traced call, or what leads to it."""

    places: Places
    real: bool = False
    """Whether tensors have memory, as where a module is built."""
    building: bool = False
    """Whether a module is built, or its file imported."""
    importing: bool = False
    """Whether it is imported."""
    answers: Mapping[int, Any] = field(default_factory=dict[int, Any])
    """By functions of Python's: what answers in their place while a training step runs."""
    text: Callable[..., str] | None = None
    """What gives the text of a tensor then."""
    forget: Callable[[Any], None] | None = None
    """Is told there of a tensor that gets numbers of other ranks."""
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
def watching(
    places: Places, real: bool = False, building: bool = False, importing: bool = False
) -> Iterator[None]:
    """What runs inside is traced; with `real`, on tensors that have memory.

    Raises:
        CaptureError: it came to its end, and the user's code caught what only a trace raises.
    """
    from shardproof.synthesis.frontends.torch.asked.answers import shown_to_nobody
    from shardproof.synthesis.frontends.torch.asked.caught import passing

    found = Watching(places, real, building, importing)
    _now.append(found)
    try:
        with shown_to_nobody(), threads_followed(_refusing(found), passing):
            yield
    finally:
        _now.pop()
    if found.caught:
        raise found.caught[0]


def _refusing(watched: Watching) -> Refuse:
    """Notes the first refusal, at the line of the owner's."""

    def refuse(frame: Any, message: str, hint: str) -> None:
        while frame is not None and not watched.places.own(frame.f_code.co_filename):
            frame = frame.f_back
        if not watched.caught:
            watched.caught.append(watched.refusal(frame or sys._getframe(1), message, hint))

    return refuse


def caller() -> Any:
    """The frame that called what calls this."""
    return sys._getframe(2)
