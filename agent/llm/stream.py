"""One request over the wire: sent by the openai package, read piece by piece, never left hanging.

The request runs in a thread of its own; the caller looks at its clock and at the call to cancel
ten times a second. What goes wrong comes back as `WireError`, made of words and numbers: nothing
of the request, whose headers hold the key, hangs on it.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from shardproof.agent.llm.answers import Trouble, Usage
from shardproof.agent.llm.endpoint import Endpoint
from shardproof.agent.llm.faults import Heard, WireError, as_wire_error, told
from shardproof.agent.llm.hygiene import clean, one_line
from shardproof.agent.llm.replies import MOST_CHARS
from shardproof.agent.llm.secret import redacted

if TYPE_CHECKING:
    from openai import OpenAI

LOOK_S = 0.1
"""How often the caller looks up from waiting."""
GRACE_S = 2.0
"""How long the count of tokens is waited for, after the reply has ended."""
MOST_BYTES = 16 << 20
"""Of one reply, as it comes over the wire: some 300 a token, where each is an event of its own."""


class Stopped(Exception):  # noqa: N818  (asked for, not a failure)
    """The caller wants no more."""


def connect(endpoint: Endpoint) -> OpenAI:
    """A client that retries nothing and follows no redirect.

    The package adds headers that the environment names for OpenAI (organisation, project, headers
    of a gateway). They go to no address that came from elsewhere.
    """
    import openai

    times = endpoint.timeouts
    # To this machine itself there is no TLS to check, and no proxy knows the way.
    plain: dict[str, Any] = {"verify": False, "trust_env": False} if endpoint.loopback else {}
    bearer = f"Bearer {endpoint.key.reveal()}"
    own: dict[str, Any] = {} if endpoint.ambient else {"Authorization": bearer}
    if not endpoint.ambient:
        ambient = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
        names = [line.partition(":")[0].strip() for line in ambient if ":" in line]
        names += ["OpenAI-Organization", "OpenAI-Project"]
        own |= {n: openai.omit for n in names if n.lower() != "authorization"}
    return openai.OpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.key.reveal(),
        max_retries=0,
        timeout=openai.Timeout(times.read, connect=times.connect),
        default_headers=own,
        http_client=openai.DefaultHttpxClient(follow_redirects=False, **plain),
    )


@dataclass
class _Line:
    """What the thread tells the caller."""

    pieces: queue.Queue[str | WireError | None] = field(
        default_factory=queue.Queue["str | WireError | None"]
    )
    stop: threading.Event = field(default_factory=threading.Event)


def exchange(
    client: OpenAI,
    endpoint: Endpoint,
    request: Mapping[str, Any],
    *,
    heard: Heard,
    seconds: float,
    cancel: threading.Event,
    show: Callable[[str], None] = lambda _: None,
) -> None:
    """Send one request and hear it to its end. `heard` grows with the reply.

    A reply that has said why it ended is heard, whatever the connection does afterwards.

    Raises:
        WireError: no reply, or none that ended.
        Stopped: `cancel` was set.
        KeyboardInterrupt: passed on; the request is abandoned first.
    """
    line = _Line()
    threading.Thread(
        target=_work, args=(client, endpoint, request, heard, line), daemon=True
    ).start()
    deadline = time.monotonic() + seconds
    ended = float("inf")
    try:
        while True:
            if cancel.is_set():
                raise Stopped
            now = time.monotonic()
            ended = min(ended, now) if heard.finish else ended
            if now - ended > GRACE_S:
                return
            if now >= deadline:
                said = "no end of the reply" if heard.chars else "no reply"
                raise WireError(Trouble.TIMEOUT, f"{said} after {seconds:.0f} s", retry=True)
            try:
                piece = line.pieces.get(timeout=min(LOOK_S, deadline - now))
            except queue.Empty:
                continue
            if piece is None or (isinstance(piece, WireError) and heard.finish):
                return
            if isinstance(piece, WireError):
                raise piece from None
            show(clean(piece))
    finally:
        line.stop.set()


def _work(
    client: OpenAI, endpoint: Endpoint, request: Mapping[str, Any], heard: Heard, line: _Line
) -> None:
    try:
        _listen(client, request, heard, line)
        line.pieces.put(None)
    except Stopped:
        pass
    except WireError as error:
        error.message = redacted(one_line(error.message), endpoint.key)
        line.pieces.put(error)
    except Exception as error:  # noqa: BLE001  (whatever a server can provoke ends as one line)
        fault = as_wire_error(error)
        fault.message = redacted(one_line(fault.message), endpoint.key)
        line.pieces.put(fault)


def _listen(client: OpenAI, request: Mapping[str, Any], heard: Heard, line: _Line) -> None:
    stream: Any = client.chat.completions.create(**request, stream=True)
    response = stream.response
    try:
        first, rest = _peeked(_bounded(response.iter_bytes(), line.stop))
        kind = response.headers.get("content-type", "")
        start = first.lstrip()[:200]
        if start.startswith(b"{"):
            _whole(b"".join((first, *rest)), heard, line)
        elif start.startswith((b"data:", b"event:", b"id:", b":", b"retry:")):
            response.iter_bytes = lambda: chain([first], rest)
            for chunk in stream:
                _take(chunk, heard, line)
                if heard.finish and heard.usage:
                    break
        elif not start:
            raise WireError(Trouble.CUT, "an empty body with status 200", retry=True)
        else:
            page = start.decode("utf-8", "replace")
            raise WireError(
                Trouble.NOT_A_REPLY,
                f"status 200 with {kind or 'no content type'} that is not a completion: "
                f"{page[:80]!r}; is the address right (it often ends in /v1)?",
                retry=False,
            )
    finally:
        with suppress(Exception):
            stream.close()


def _bounded(pieces: Iterator[bytes], stop: threading.Event) -> Generator[bytes]:
    size = 0
    for piece in pieces:
        if stop.is_set():
            raise Stopped
        size += len(piece)
        if size > MOST_BYTES:
            raise WireError(
                Trouble.HUGE, f"a reply of more than {MOST_BYTES >> 20} MiB", retry=False
            )
        yield piece


def _peeked(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Enough of the start to tell what it is, and the rest."""
    first = b""
    for piece in pieces:
        first += piece
        if len(first.lstrip()) >= 6:
            break
    return first, pieces


def _whole(body: bytes, heard: Heard, line: _Line) -> None:
    """A server that does not stream: one completion as JSON, or an error with status 200."""
    data = json.loads(body)
    if data.get("error"):
        raise told(data["error"])
    if not data.get("choices"):
        raise WireError(Trouble.NOT_A_REPLY, "a completion without choices", retry=True)
    from openai.types.chat import ChatCompletion

    reply = ChatCompletion.model_validate(data)
    choice = reply.choices[0]
    _hear(choice.message, heard, line)
    heard.finish = choice.finish_reason or ""
    heard.model = reply.model
    if reply.usage:
        heard.usage = Usage(reply.usage.prompt_tokens, reply.usage.completion_tokens)


def _take(chunk: Any, heard: Heard, line: _Line) -> None:
    heard.model = heard.model or str(getattr(chunk, "model", "") or "")
    usage = getattr(chunk, "usage", None)
    if usage is not None:
        prompt, written = usage.prompt_tokens, usage.completion_tokens
        if isinstance(prompt, int) and isinstance(written, int) and prompt >= 0 <= written:
            heard.usage = Usage(prompt, written)
    choices: list[Any] = getattr(chunk, "choices", None) or []
    for choice in choices[:1]:
        if choice.delta is not None:
            _hear(choice.delta, heard, line)
        heard.finish = choice.finish_reason or heard.finish


def _hear(message: Any, heard: Heard, line: _Line) -> None:
    """A message, or the next piece of one."""
    text = message.content or ""
    if text:
        heard.text += text
        line.pieces.put(text)
    heard.refusal += message.refusal or ""
    calls: list[Any] = message.tool_calls or []
    for number, call in enumerate(calls):
        at = getattr(call, "index", number)
        _called(heard, number if at is None else at, call)
    more: dict[str, Any] = message.model_extra or {}
    heard.thought += str(more.get("reasoning_content") or more.get("reasoning") or "")
    said = len(heard.text) + sum(map(len, heard.arguments))
    if max(said, len(heard.thought), len(heard.refusal)) > MOST_CHARS:
        raise WireError(Trouble.HUGE, f"a reply of more than {MOST_CHARS} characters", retry=False)
    if heard.chars > heard.most:
        what = f"a reply that went on past the budget, for {heard.chars:,} characters"
        raise WireError(Trouble.HUGE, what, retry=False)


MOST_CALLS = 16
"""Tool calls of one reply; further ones are not heard."""


def _called(heard: Heard, at: int, call: Any) -> None:
    """The next piece of a tool call."""
    if not 0 <= at <= len(heard.calls) or at >= MOST_CALLS:
        return
    if at == len(heard.calls):
        heard.calls.append(["", "", ""])
    kept, function = heard.calls[at], call.function
    kept[0] = kept[0] or str(call.id or "")[:100]
    if function is not None:
        kept[1] = kept[1] or str(function.name or "")[:100]
        kept[2] += function.arguments or ""
