"""A misbehaving server and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardproof.agent.llm.client import Client
from shardproof.agent.llm.endpoint import Endpoint, Timeouts
from shardproof.agent.llm.profile import Profile, Profiles
from shardproof.agent.llm.retry import Patience
from shardproof.agent.llm.secret import Secret
from tests.llm.server import Server

KEY = "sk-secret-0123456789abcdef"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    started = Server()
    yield started
    started.close()


HASTY = Patience(attempts=3, first_wait_s=0.01, wait_s=0.02, total_s=5.0)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A client of the server that waits for little and knows that schemas hold."""
    endpoint = Endpoint(
        server.url,
        "tiny",
        Secret(KEY),
        timeouts=Timeouts(connect=2, read=1, total=3),
        origin="a test",
    )
    profiles = Profiles()
    profiles.keep(endpoint, Profile("json_schema"))
    made = Client(endpoint, patience=HASTY, profiles=profiles)
    yield made
    made.close()
