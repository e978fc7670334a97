"""Which calls are the guard's own: it lets them through without a look."""

import contextlib
import threading
from collections.abc import Generator

import torch


class _Thread(threading.local):
    on = False


thread = _Thread()
"""Whether this thread is in a call of the guard's own."""


@contextlib.contextmanager
def ours() -> Generator[None]:
    """Calls in here are the guard's own, and go straight through."""
    before = thread.on
    thread.on = True
    try:
        with torch.no_grad():
            yield
    finally:
        thread.on = before
