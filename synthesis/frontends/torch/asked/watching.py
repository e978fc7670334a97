"""Whether the user's code is being traced just now, and what it caught that only a trace raises."""

# pyright: basic

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch._subclasses import FakeTensor

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

    found = Watching(places, real, building, importing)
    _now.append(found)
    try:
        with shown_to_nobody(), _in_one_thread(found):
            yield
    finally:
        _now.pop()
    if found.caught:
        raise found.caught[0]


@contextmanager
def _in_one_thread(watched: Watching) -> Iterator[None]:
    """What ops of another thread do would not be recorded: they are refused."""
    kind: Any = FakeTensor
    original, here = vars(kind)["__torch_dispatch__"], threading.get_ident()

    def dispatch(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if threading.get_ident() != here and not watched.caught:
            frame = sys._getframe(1)
            while frame is not None and not watched.places.own(frame.f_code.co_filename):
                frame = frame.f_back
            watched.caught.append(
                watched.refusal(
                    frame or sys._getframe(1),
                    f"{func} runs in a thread of its own, which is not followed",
                    "compute it in the thread that calls forward",
                )
            )
        return original.__func__(cls, func, types, args, kwargs)

    kind.__torch_dispatch__ = classmethod(dispatch)
    try:
        yield
    finally:
        kind.__torch_dispatch__ = original


def caller() -> Any:
    """The frame that called what calls this."""
    return sys._getframe(2)
