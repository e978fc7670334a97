"""`shardproof mcp`, driven by the official client over stdin and stdout."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from shardproof.agent.chat.mcp_server import described
from shardproof.agent.chat.registry import registered

ROOT = Path(__file__).resolve().parents[2]


def _driven(folder: Path, work: Callable[[Any], Awaitable[None]]) -> None:
    pytest.importorskip("mcp")
    import anyio
    from mcp.client.session import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def drive() -> None:
        paths = os.pathsep.join([str(ROOT), *[p for p in sys.path if p]])
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": paths}
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "shardproof", "mcp"], env=env, cwd=folder
        )
        async with stdio_client(server) as (reads, writes), ClientSession(reads, writes) as client:
            await client.initialize()
            await work(client)
        await anyio.sleep(0.1)  # asyncio closes the pipes of a child a turn after it has ended

    anyio.run(drive)


def _text(found: Any) -> str:
    return "".join(part.text for part in found.content)


def test_a_client_lists_tools_and_nothing_is_written_unconfirmed(tmp_path: Path) -> None:
    async def work(client: Any) -> None:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        offered = {c.name.replace("-", "_") for c in registered().values() if c.effect != "owner"}
        assert set(listed) == offered
        assert listed["plan"].annotations.read_only_hint
        assert "confirm" in listed["apply"].input_schema["properties"]
        refused = await client.call_tool("apply", {"words": ""})
        assert refused.is_error
        assert "confirm: true" in _text(refused)
        mine = await client.call_tool("apply", {"words": "--yes", "confirm": True})
        assert mine.is_error
        assert "--yes is for the owner to give" in _text(mine)
        for name in ("quit", "nothing"):
            gone = await client.call_tool(name, {"words": ""})
            assert gone.is_error

    _driven(tmp_path, work)
    assert [p.name for p in tmp_path.iterdir()] == [".local"]


def test_a_client_loads_plans_proves_and_applies(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples/mlp.py", tmp_path / "mlp.py")
    before = (tmp_path / "mlp.py").read_text()

    async def work(client: Any) -> None:
        for name, words in (("load", "mlp.py:MLP"), ("mesh", "tp=2"), ("plan", "")):
            done = await client.call_tool(name, {"words": words})
            assert not done.is_error, _text(done)
        proved = _text(await client.call_tool("verify", {"words": ""}))
        assert "proved" in proved
        assert "+" in _text(await client.call_tool("diff", {"words": ""}))
        assert (tmp_path / "mlp.py").read_text() == before
        done = await client.call_tool("apply", {"words": "", "confirm": True})
        assert not done.is_error, _text(done)

    _driven(tmp_path, work)
    assert "ColwiseParallel" in (tmp_path / "mlp.py").read_text()


def test_every_tool_says_what_it_may_do() -> None:
    for command in registered().values():
        tool = described(command)
        assert tool["annotations"]["destructiveHint"] == (command.effect == "writes")
        assert ("confirm" in tool["inputSchema"]["properties"]) == (command.effect == "writes")
