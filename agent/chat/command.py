"""Sessions on the command line: the bare command, `-p`, `chat`, `resume` and `replay`."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from shardproof.agent.actions.action import EXITS
from shardproof.agent.cli.command import Json

app = typer.Typer()
Prompts = Annotated[
    list[str],
    typer.Option(
        "-p",
        "--prompt",
        metavar="TEXT",
        help="Run these inputs of a session and end: slash commands or words, a line each; "
        "repeatable; - reads stdin.",
    ),
]


def _answers(kept: bool) -> bool:
    """Into the environment, where a session looks its endpoint up."""
    if not kept:
        os.environ["SHARDPROOF_ANSWER_CACHE"] = "0"
    return kept


AnswerCache = Annotated[
    bool,
    typer.Option(
        "--answer-cache/--no-answer-cache",
        callback=_answers,
        help="Reuse the model's earlier answer to an equal question.",
    ),
]


def bare(prompts: list[str], json: bool, usage: str) -> int:
    """`shardproof` without a command."""
    from shardproof.agent.run.errors import Exit

    if prompts:
        from shardproof.agent.chat import headless
        from shardproof.agent.chat.engine import Session

        return _guarded(lambda: headless.run(Session.new, prompts, json), json)
    if _terminal() and not json:
        return _chat(None)
    sys.stdout.write(usage + "\n")
    if json or not _terminal():
        sys.stderr.write(
            "shardproof alone needs a terminal; for scripts: -p INPUT, or a command of the list\n"
        )
    return int(Exit.INPUT)


def _terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _chat(folder: Path | None) -> int:
    from shardproof.agent.chat.engine import Session
    from shardproof.agent.chat.terminal import app

    if folder is None:
        return _guarded(lambda: app.run(Session.new), False)
    return _guarded(lambda: app.run(lambda sinks: Session.resumed(folder, sinks)), False)


def _guarded(work: Callable[[], int], json: bool) -> int:
    """Errors before a session is open end like those of any command."""
    from shardproof.agent.run.errors import Exit, ShardproofError
    from shardproof.agent.run.run import refused

    try:
        return work()
    except ShardproofError as error:
        return refused("chat", error, json=json)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)


@app.command(epilog=EXITS)
def chat(prompts: Prompts = [], answer_cache: AnswerCache = True, json: Json = False) -> int:
    """Work on a model in a session: load, plan, ask, prove, apply.

    The same as `shardproof` without a command. /help in it lists what it can do.

    \b
    Examples:
      shardproof chat
      shardproof chat -p "/load examples/mlp.py:MLP" -p "/mesh tp=2" -p "/plan"
    """
    return bare(prompts, json, "Usage: shardproof chat [-p INPUT]...")


@app.command(epilog=EXITS)
def resume(
    session: Annotated[
        str, typer.Argument(metavar="[ID]", help="A session, or a prefix of its name.")
    ] = "",
    prompts: Prompts = [],
    listing: Annotated[bool, typer.Option("--list", help="List the sessions that are kept.")] = (
        False
    ),
    json: Json = False,
) -> int:
    """Go on with a session, by default the newest here.

    One in which nothing was loaded comes last. A step that was cut off, by a crash or a kill, is
    named; everything before it is as it was.

    \b
    Examples:
      shardproof resume
      shardproof resume --list
      shardproof resume 20261121-09 -p /verify
    """
    return _guarded(lambda: _resume(session, prompts, listing, json), json)


def _resume(session: str, prompts: list[str], listing: bool, json: bool) -> int:
    from shardproof.agent.chat import headless, journal
    from shardproof.agent.chat.engine import Session
    from shardproof.agent.run.errors import InputError

    folder = journal.folder_of_all()
    if listing:
        from shardproof.agent.chat.commands.session import sessions
        from shardproof.agent.run.console import Pipe

        Pipe(sys.stdout).line(sessions(journal.listed(folder)))
        return 0
    if session:
        place = journal.place_of(folder, session)
    else:
        here = str(Path.cwd())
        ours = [s for s in journal.listed(folder) if s.root == here]
        found = next((s for s in ours if s.about), ours[0] if ours else None)
        if found is None:
            raise InputError(
                "no session of this folder", where=here, hint="shardproof resume --list"
            )
        place = folder / found.session
    if prompts or json:
        return headless.run(lambda sinks: Session.resumed(place, sinks), prompts, json)
    if not _terminal():
        raise InputError(
            "resume needs a terminal", where="resume", hint="-p INPUT runs inputs without one"
        )
    return _chat(place)


@app.command(epilog=EXITS)
def mcp() -> int:
    """Serve the commands of a session to agents, over MCP.

    On stdin and stdout. What writes files needs `confirm` from the client. Needs the package mcp:
    pip install 'shardproof[mcp]'.

    \b
    Examples:
      shardproof mcp
    """
    from shardproof.agent.chat.mcp_server import serve
    from shardproof.agent.run.errors import ShardproofError
    from shardproof.agent.run.run import refused

    try:
        return serve()
    except ShardproofError as error:
        return refused("mcp", error, json=False)
