"""When a question is asked again, and how long it waits: the one layer of retries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardproof.agent.llm import format_tiers as rungs
from shardproof.agent.llm.answers import Trouble
from shardproof.agent.llm.faults import Heard, WireError
from shardproof.agent.llm.stream import LOOK_S

if TYPE_CHECKING:
    from tenacity import RetryCallState, Retrying


@dataclass(frozen=True)
class Patience:
    """How often and how long a question is asked again."""

    attempts: int = 6
    few: int = 2
    """Attempts where a second one seldom helps: nothing listens, a reply is empty or garbled."""
    first_wait_s: float = 1.0
    wait_s: float = 60.0
    """The longest wait that we choose ourselves; an endpoint may ask for a longer one."""
    total_s: float = 300.0
    """No attempt begins later than this."""


_SELDOM = frozenset({None, Trouble.EMPTY, Trouble.NOT_A_REPLY})


def retrying(
    patience: Patience,
    left: Callable[[], float],
    cancel: threading.Event,
    told: Callable[[float, str], None],
) -> Retrying:
    """Retries of `WireError` that say so, with jitter, or as long as the endpoint asks.

    It gives up at once where the wait would outlast `left()` seconds. A set `cancel` ends a wait;
    the attempt that follows must look at it first.
    """
    from tenacity import Retrying, retry_if_exception, wait_random_exponential

    chosen = wait_random_exponential(multiplier=patience.first_wait_s, max=patience.wait_s)

    def wait(state: RetryCallState) -> float:
        error = _error(state)
        if error.after is not None:
            return error.after
        return max(patience.first_wait_s / 2, chosen(state))

    def stop(state: RetryCallState) -> bool:
        most = patience.few if _error(state).kind in _SELDOM else patience.attempts
        return state.attempt_number >= most or state.upcoming_sleep > left()

    def before_sleep(state: RetryCallState) -> None:
        told(state.upcoming_sleep, _error(state).message)

    return Retrying(
        retry=retry_if_exception(lambda e: isinstance(e, WireError) and e.retry),
        wait=wait,
        stop=stop,
        sleep=lambda seconds: _sleep(seconds, cancel),
        before_sleep=before_sleep,
        reraise=True,
    )


def _sleep(seconds: float, cancel: threading.Event) -> None:
    """In short naps: a signal that another thread takes does not wake a waiting one."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not cancel.wait(min(LOOK_S, left)):
        pass


def _error(state: RetryCallState) -> WireError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, WireError)
    return error


def spoken(heard: Heard, rung: str) -> str:
    """What the model said, of a reply that was heard to its end.

    Raises:
        WireError: it ended too early, it declined, or there is nothing in it.
    """
    first = heard.arguments[:1] if rung == rungs.TOOL else []
    text = first[0] if first and first[0] else heard.text
    if heard.refusal or heard.finish == "content_filter":
        said = heard.refusal or "a content filter ended the reply"
        raise WireError(Trouble.REFUSED, said, retry=False)
    if not heard.finish:
        message = "the reply stopped before its end (no finish_reason)"
        raise WireError(Trouble.CUT, message, retry=True)
    if heard.finish == "length":
        message = "the reply reached the limit of tokens"
        if heard.thought and not text.strip():
            message += " while the model was still thinking"
        message += "; raise max_tokens, or ask for less thinking"
        raise WireError(Trouble.LENGTH, message, retry=False)
    if not text.strip() and not (rung == rungs.TOOLS and heard.calls):
        message = "an empty reply"
        if heard.thought:
            message += ": all of it was thinking; raise max_tokens, or switch thinking off"
        raise WireError(Trouble.EMPTY, message, retry=not heard.thought)
    return text
