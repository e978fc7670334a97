"""Commands of the registry as tools: for a model in a session, and for other agents over MCP."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from shardproof.agent.chat import registry
from shardproof.agent.chat.registry import Command, Words
from shardproof.agent.llm.hygiene import one_line
from shardproof.agent.run.errors import InputError

LONGEST = 400
"""Characters of one command."""


def offered(withheld: Container[str] = ()) -> list[Command]:
    """What a model may ask for: all but what only the owner types and what is withheld."""
    known = registry.registered().values()
    return [c for c in known if c.effect != "owner" and c.name not in withheld]


def entries(commands: Iterable[Command]) -> list[dict[str, str]]:
    """Commands for a prompt."""
    return [{"usage": _usage(c), "effect": c.effect, "summary": c.summary} for c in commands]


def _usage(command: Command) -> str:
    """With the options that a model may give."""
    free = (f"--{n}{' VALUE' * takes}" for n, takes in command.options.items())
    options = " ".join(f"[{o}]" for o in free if o.split()[0][2:] not in command.owners)
    return f"{registry.usage(command)} {options}".rstrip()


def tool(command: Command) -> dict[str, Any]:
    """A command as a function with one argument, the words that follow its name."""
    after = _usage(command).partition(" ")[2]
    about = f"What follows /{command.name}: {after}" if after else "Leave it empty."
    words = {"type": "string", "description": about}
    runs = {"reads": "Runs at once."}.get(command.effect, "Runs after the owner has agreed.")
    told = [command.summary, runs, f"Examples: {'; '.join(command.examples)}"]
    return {
        "name": command.name.replace("-", "_"),
        "description": " ".join(told),
        "parameters": {
            "type": "object",
            "properties": {"words": words},
            "required": ["words"],
            "additionalProperties": False,
        },
    }


def admitted(line: str, withheld: Container[str] = ()) -> tuple[str, Command, Words]:
    """A model's command as it will be shown and run: one line, no hidden characters.

    Raises:
        InputError: no command, one that only the owner types, or an option that only they give.
    """
    text = one_line(line, LONGEST + 1)
    if len(text) > LONGEST:
        raise InputError("a command too long", expected=f"at most {LONGEST} characters")
    name, _, raw = text.removeprefix("/").partition(" ")
    found = registry.find(name)
    if found.name in withheld:
        raise InputError(f"no command /{found.name} in this session")
    if found.effect == "owner":
        raise InputError(f"/{name} is for the owner to type", where=f"/{name}")
    words = registry.split(found, raw.strip())
    theirs = sorted(found.owners & set(words.options))
    if theirs:
        raise InputError(f"--{theirs[0]} is for the owner to give", where=f"/{name}")
    return f"/{found.name} {raw.strip()}".rstrip(), found, words
