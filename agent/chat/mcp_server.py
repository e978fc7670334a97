"""`shardproof mcp`: a session's commands as tools of an MCP server over stdin and stdout.

The tools are the commands that a model in a session may ask for, with the same effects and the same
refusals. What writes files runs only with `confirm: true`: the client's owner says so, not we.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardproof.agent import __version__
from shardproof.agent.chat import acting, tools
from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.headless import GOES_ON
from shardproof.agent.chat.registry import Command
from shardproof.agent.llm.hygiene import clean
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError

if TYPE_CHECKING:
    import mcp_types

CONFIRM = {
    "type": "boolean",
    "description": "true where the user agreed that files are written; without it nothing is",
}
INSTRUCTIONS = (
    "Plans how a PyTorch model runs on a mesh of devices and proves it. In this order: load, mesh, "
    "plan, verify, diff, apply. Each tool takes the words that follow the command of its name. A "
    "verdict is proved, refuted or unknown; only proved is a proof."
)


def serve() -> int:
    """Serve one session until stdin ends. Commands run one after another, in this thread.

    Raises:
        InputError: the package `mcp` is missing, or the session cannot be kept on disk.
    """
    try:
        import anyio
    except ImportError:
        raise _missing() from None
    session = Session.new([])
    try:
        anyio.run(_serve, session)
    finally:
        session.close(Exit.PROVED)
    return int(Exit.PROVED)


def _missing() -> InputError:
    return InputError("the package mcp is not installed", hint="pip install 'shardproof[mcp]'")


async def _serve(session: Session) -> None:
    try:
        import mcp_types as types
        from mcp.server.lowlevel import Server
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise _missing() from None

    async def listed(_context: Any, _params: Any) -> mcp_types.ListToolsResult:
        found = [types.Tool.model_validate(described(c)) for c in tools.offered()]
        return types.ListToolsResult(tools=found)

    async def called(_context: Any, params: Any) -> mcp_types.CallToolResult:
        text, good = call(session, params.name, params.arguments or {})
        said = types.TextContent(type="text", text=text)
        return types.CallToolResult(content=[said], is_error=not good)

    server: Server[Any] = Server(
        "shardproof",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
    )
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


def described(command: Command) -> dict[str, Any]:
    """A command as a tool: one string of words, and `confirm` where it writes."""
    tool = tools.tool(command)
    schema, writes = tool["parameters"], command.effect == "writes"
    if writes:
        schema["properties"]["confirm"] = CONFIRM
    runs = {"reads": "Runs at once.", "writes": "Writes files: needs confirm."}
    told = [command.summary, runs.get(command.effect, "Changes this session alone.")]
    return {
        "name": tool["name"],
        "description": " ".join([*told, f"Examples: {'; '.join(command.examples)}"]),
        "inputSchema": {**schema, "required": []},
        "annotations": {
            "readOnlyHint": command.effect == "reads",
            "destructiveHint": writes,
            "openWorldHint": False,
        },
    }


def call(session: Session, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    """Run a tool; what it says, and whether it could be done."""
    try:
        words, confirm = arguments.get("words", ""), arguments.get("confirm", False)
        if not isinstance(words, str) or not isinstance(confirm, bool):
            raise InputError("arguments of another kind", expected="words: text; confirm: true")
        odd = sorted(set(arguments) - {"words", "confirm"})
        if odd:
            raise InputError(f"no argument {odd[0]!r}", expected="words, confirm")
        line, command, _ = tools.admitted(f"/{name.replace('_', '-')} {words}")
        if command.effect == "writes" and not confirm:
            raise InputError(
                "it writes files, and nobody agreed to that",
                where=f"/{command.name}",
                hint="ask the user, then send confirm: true",
            )
    except InputError as error:
        parts = ("where", error.where), ("expected", error.expected), ("got", error.got)
        more = [f"{name}: {text}" for name, text in (*parts, ("try", error.hint)) if text]
        return "\n".join([f"error: {error}", *more]), False
    session.agree = (lambda _question: confirm) if command.effect == "writes" else None
    try:
        done = session.do(line)
    finally:
        session.agree = None
    return said(session), done.outcome.exit in GOES_ON


def said(session: Session) -> str:
    """What the last step said: verdicts in full, and every diff whole."""
    diffs = [e.diff for e in session.run.seen if isinstance(e, events.PatchShown)]
    return "\n\n".join([acting.short(session, session.run.seen), *map(clean, diffs)])
