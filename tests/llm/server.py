"""A server on this machine that answers as it is told to, well or badly, over real HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Way = Callable[[BaseHTTPRequestHandler], None]
"""One way to answer a request."""


class Server:
    """Answers with each way in turn; the last one again and again."""

    def __init__(self) -> None:
        self.ways: list[Way] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()
        self.how = ""
        """For a test to say how it should fail."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                outer.bodies.append(json.loads(self.rfile.read(length)))
                outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                way = outer.ways[min(len(outer.bodies), len(outer.ways)) - 1]
                try:
                    way(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                return None

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                return None

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def calls(self) -> int:
        return len(self.bodies)

    def answers(self, *ways: Way) -> None:
        self.ways = list(ways)

    def close(self) -> None:
        self.released.set()
        self.http.shutdown()
        self.http.server_close()


def send(
    handler: BaseHTTPRequestHandler,
    body: bytes | str,
    *,
    status: int = 200,
    kind: str = "application/json",
    **headers: str,
) -> None:
    data = body.encode() if isinstance(body, str) else body
    handler.send_response(status)
    handler.send_header("content-type", kind)
    handler.send_header("content-length", str(len(data)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


def status(
    number: int, message: str = "no", headers: dict[str, str] | None = None, **error: str
) -> Way:
    """An error as OpenAI writes it."""
    body = json.dumps({"error": {"message": message, **error}})
    return lambda handler: send(handler, body, status=number, **(headers or {}))


def page(body: str | bytes, kind: str = "text/html", code: int = 200) -> Way:
    return lambda handler: send(handler, body, status=code, kind=kind)


def chunk(
    content: str | None = None, finish: str | None = None, **delta: object
) -> dict[str, object]:
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "tiny-1",
        "choices": [{"index": 0, "delta": {"content": content, **delta}, "finish_reason": finish}],
    }


USAGE: dict[str, object] = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 0,
    "model": "tiny-1",
    "choices": [],
    "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
}


def events(*data: object, done: bool = True) -> bytes:
    lines = [d if isinstance(d, bytes) else json.dumps(d).encode() for d in data]
    lines += [b"[DONE]"] if done else []
    return b"".join(b"data: " + line + b"\n\n" for line in lines)


def stream(*data: object, done: bool = True, kind: str = "text/event-stream") -> Way:
    """A stream of these events, closed afterwards."""

    def way(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", kind)
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.wfile.write(events(*data, done=done))
        handler.close_connection = True

    return way


def says(text: str, finish: str = "stop") -> Way:
    """A good reply, in two pieces, with usage."""
    half = len(text) // 2
    return stream(chunk(text[:half]), chunk(text[half:]), chunk(None, finish), USAGE)


def whole(text: str | None, finish: str | None = "stop", **message: object) -> Way:
    """A good reply of a server that does not stream."""
    said = {"role": "assistant", "content": text, **message}
    choice = {"index": 0, "message": said, "finish_reason": finish}
    head = {"id": "c", "object": "chat.completion", "created": 0, "model": "tiny-1"}
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    return lambda h: send(h, json.dumps({**head, "choices": [choice], "usage": usage}))


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """No answer at all."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def nowhere() -> str:
    """An address at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


def slow_headers(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(1.6)


def dripping(handler: BaseHTTPRequestHandler) -> None:
    """Pieces for ever, each in time."""
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.end_headers()
    while True:
        handler.wfile.write(events(chunk("."), done=False))
        time.sleep(0.05)


def silent_body(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.end_headers()
    handler.wfile.write(events(chunk("half"), done=False))
    time.sleep(1.6)


ASK = [{"role": "user", "content": "say something"}]
GOOD = says("fine")
