"""What goes wrong on the way to an endpoint, in words and numbers of ours.

An error of the openai package holds the request, whose headers hold the key: it is read here and
let go.
"""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from shardproof.agent.llm.answers import Trouble, Usage
from shardproof.agent.llm.hygiene import one_line

if TYPE_CHECKING:
    from openai import APIStatusError

_QUOTA = ("insufficient_quota", "billing", "quota_exceeded", "credit")


@dataclass
class Heard:
    """What came back so far."""

    text: str = ""
    calls: list[list[str]] = field(default_factory=list[list[str]])
    """Tool calls: id, name and arguments of each."""
    thought: str = ""
    refusal: str = ""
    finish: str = ""
    model: str = ""
    usage: Usage | None = None
    most: float = math.inf
    """Characters after which it is broken off: the budget is used up."""

    @property
    def chars(self) -> int:
        return len(self.text) + sum(map(len, self.arguments)) + len(self.thought)

    @property
    def arguments(self) -> list[str]:
        """Of every tool call."""
        return [arguments for _, _, arguments in self.calls]


class WireError(Exception):
    """A request that gave no reply."""

    def __init__(
        self,
        kind: Trouble | None,
        message: str,
        *,
        retry: bool,
        after: float | None = None,
        status: int = 0,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        """None: the endpoint could not be reached at all."""
        self.message = message
        self.retry = retry
        self.after = after
        """Seconds that the endpoint asks to wait."""
        self.status = status


def told(error: object, status: int = 0) -> WireError:
    """An error that came in a body with status 200, or inside a stream."""
    data = _mapping(error) or {"message": error}
    message = one_line(str(data.get("message", "an error without a message")))
    if _is_quota(data):
        return WireError(Trouble.QUOTA, message, retry=False, status=status)
    return WireError(Trouble.SERVER, message, retry=True, status=status)


def _mapping(body: object) -> Mapping[str, object]:
    return cast(Mapping[str, object], body) if isinstance(body, dict) else {}


def _is_quota(body: Mapping[str, object]) -> bool:
    code = f"{body.get('code', '')} {body.get('type', '')}".lower()
    return any(word in code for word in _QUOTA)


def as_wire_error(error: Exception) -> WireError:
    """What the openai package raised, in our words: it keeps no hold on the request."""
    import openai

    if isinstance(error, openai.APITimeoutError):
        return WireError(Trouble.TIMEOUT, "the endpoint took too long to answer", retry=True)
    if isinstance(error, openai.APIStatusError):
        return _of_status(error)
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__
        if cause is not None and "Protocol" in type(cause).__name__:
            return WireError(Trouble.CUT, "the connection was closed before the end", retry=True)
        if cause is not None and "Read" in type(cause).__name__:
            return WireError(Trouble.CUT, "the connection broke while reading", retry=True)
        return WireError(None, str(cause or "no connection"), retry=True)
    if isinstance(error, openai.APIError):
        return told(_mapping(error.body) or error.message)
    if isinstance(error, UnicodeDecodeError):
        return WireError(Trouble.NOT_A_REPLY, "a reply that is not UTF-8", retry=True)
    if isinstance(error, ValueError):
        return WireError(Trouble.NOT_A_REPLY, "a reply that is not JSON", retry=True)
    if "Protocol" in type(error).__name__ or "Read" in type(error).__name__:
        return WireError(Trouble.CUT, "the connection was closed before the end", retry=True)
    return WireError(
        Trouble.NOT_A_REPLY, f"a reply of another form ({type(error).__name__})", retry=True
    )


def _page(error: APIStatusError) -> str:
    """What the endpoint said, where it is of no known form."""
    if isinstance(error.body, str) and error.body:
        return error.body
    with suppress(Exception):  # a body that was not read, or cannot be
        return error.response.text[:200]
    return ""


_KINDS = {
    400: Trouble.REQUEST,
    401: Trouble.KEY,
    402: Trouble.QUOTA,
    403: Trouble.KEY,
    404: Trouble.NOT_FOUND,
    408: Trouble.TIMEOUT,
    413: Trouble.REQUEST,
    422: Trouble.REQUEST,
    429: Trouble.RATE,
}
_WAITING_HELPS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


def _of_status(error: APIStatusError) -> WireError:
    status = error.status_code
    body = _mapping(error.body)
    message = one_line(str(body.get("message") or _page(error) or error.message))
    if body.get("param"):
        message += f" (param {one_line(str(body['param']), 40)})"
    if 300 <= status < 400:
        target = one_line(error.response.headers.get("location", "elsewhere"), 100)
        return WireError(
            Trouble.REDIRECT,
            f"the endpoint redirects to {target}; not followed, set the right address",
            retry=False,
            status=status,
        )
    if status in (402, 429) and _is_quota(body):
        return WireError(Trouble.QUOTA, message, retry=False, status=status)
    kind = _KINDS.get(status, Trouble.SERVER if status >= 500 else Trouble.REQUEST)
    return WireError(
        kind,
        f"status {status}: {message}",
        retry=status in _WAITING_HELPS,
        after=retry_after(error.response.headers),
        status=status,
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait: `retry-after-ms`, or `retry-after` as seconds or as an HTTP date."""
    with suppress(KeyError, ValueError):
        return _sane(float(headers["retry-after-ms"]) / 1000)
    text = headers.get("retry-after")
    if text is None:
        return None
    with suppress(ValueError):
        return _sane(float(text))
    with suppress(ValueError, TypeError):
        return _sane(email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    return None


def _sane(seconds: float) -> float | None:
    """None for a number that is no time to wait (NaN); a time that is past is 0."""
    return max(0.0, seconds) if seconds == seconds else None
