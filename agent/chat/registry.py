"""Slash commands: each declared once, with what it takes, what completes it, and what it says.

Help, completion and the table in docs/chat.md are read off the declarations.
"""

import difflib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from shardproof.agent.actions.action import Action, flags
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.run import Outcome

if TYPE_CHECKING:
    from shardproof.agent.chat.engine import Session

Completes = Literal[
    "target", "path", "module", "style", "command", "session", "mesh", "program", "setting", "value"
]
Effect = Literal["reads", "changes", "writes", "owner"]
"""What running it may do: find something out (its result may stay in the session); change what the
session is about or plans under; write files of the owner; or anything that only the owner types.
A model's command is run at once where it reads, after the owner's Enter where it changes or writes,
and never else."""
GROUPS = ("what it is about", "planning", "verdicts", "changes", "the model", "the session")


@dataclass(frozen=True)
class Words:
    """The words after a command."""

    raw: str
    """As typed."""
    words: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def one(self, name: str) -> str:
        """The last value of an option; empty where it was not given."""
        return self.options[name][-1] if name in self.options else ""

    def given(self, action: type[Action]) -> dict[str, Any]:
        """Parameters of an action that are among the options."""
        found: dict[str, Any] = {}
        for name, (known, option) in action.parameters().items():
            for flag in flags(name, option):
                if (said := self.options.get(flag[2:])) is not None:
                    found[name] = said if known.default == () else said[-1] or True
        return found

    def has(self, name: str) -> bool:
        return name in self.options


Work = Callable[["Session", Words], Outcome]


@dataclass(frozen=True)
class Command:
    """One slash command."""

    name: str
    usage: str
    """What follows the name."""
    group: str
    work: Work
    options: Mapping[str, bool]
    """Name of each option to whether a value follows."""
    completes: tuple[Completes, ...]
    """What each word is; the last one counts for the words after it."""
    examples: tuple[str, ...]
    free: bool
    """What follows its options is plain text: a quote or a dash means nothing in it."""
    machine: bool
    """What it says depends on the machine it runs on; a replay takes it as it was recorded."""
    effect: Effect
    owners: frozenset[str]
    """Options that the owner alone gives."""

    most: int | None = None
    """Most words that it takes; None: it looks itself."""

    @property
    def summary(self) -> str:
        return " ".join((self.work.__doc__ or "").split("\n\n")[0].split())

    @property
    def more(self) -> str:
        """The rest of what the declaration says."""
        rest = (self.work.__doc__ or "").split("\n\n")[1:]
        return "\n".join(" ".join(part.split()) for part in rest)


COMMANDS: dict[str, Command] = {}
ALIASES = {"": "help", "?": "help", "h": "help", "exit": "quit", "q": "quit", "bye": "quit"}
"""Other words for a command."""
BARE = frozenset({"help", "?", "quit", "exit", "q", "bye"})
"""Inputs that are commands without their slash too."""


def options_of(action: type[Action], names: Sequence[str]) -> dict[str, bool]:
    """Parameters of an action as options of a command: which of them take a value."""
    known = action.parameters()
    return {
        flag[2:]: known[name][0].annotation is not bool
        for name in names
        for flag in flags(name, known[name][1])
    }


def command(
    usage: str = "",
    *,
    group: str,
    name: str = "",
    takes: tuple[type[Action], Sequence[str]] | None = None,
    options: Mapping[str, bool] | None = None,
    completes: tuple[Completes, ...] = (),
    examples: tuple[str, ...] = (),
    free: bool = False,
    machine: bool = False,
    effect: Effect = "owner",
    owners: tuple[str, ...] = (),
    most: int | None = None,
) -> Callable[[Work], Work]:
    """Declare a command: its function's name, `_` read as `-`, and its docstring. `takes` are
    parameters of an action that are options of it, besides `options` of its own.

    Raises:
        ValueError: a second one of that name, a group that is none, or one for a model's use that
            depends on the machine.
    """

    def declare(work: Work) -> Work:
        called = name or work.__name__.replace("_", "-")
        bad = group not in GROUPS or not work.__doc__ or (machine and effect != "owner")
        if called in COMMANDS or bad:
            raise ValueError(f"the command {called} is declared twice, or badly")
        COMMANDS[called] = Command(
            called,
            usage,
            group,
            work,
            {**(options_of(*takes) if takes else {}), **(options or {})},
            completes,
            examples,
            free,
            machine,
            effect,
            frozenset(owners),
            0 if most is None and not usage else most,
        )
        return work

    return declare


def registered() -> dict[str, Command]:
    """Every command, by name, in the order of their groups."""
    from shardproof.agent.chat import commands

    commands.declare()
    return dict(sorted(COMMANDS.items(), key=lambda item: GROUPS.index(item[1].group)))


def find(name: str) -> Command:
    """The command of that name.

    Raises:
        InputError: there is none.
    """
    known = registered()
    name = ALIASES.get(name, name)
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 3, 0.5)
    undone = known.get(name.removeprefix("un"))
    raise InputError(
        f"no command /{name}",
        expected=", ".join(f"/{n}" for n in near) if near else "",
        hint=f"/{undone.name} --drop WORDS"
        if undone and "drop" in undone.options
        else "/help lists them; words without a slash go to the model",
    )


def split(command: Command, raw: str) -> Words:
    """The words of a line, quoted as in a shell; options are those that the command declares.

    Raises:
        InputError: an open quote, an unknown option, an option without its value.
    """
    where = f"/{command.name}"
    if command.free:
        return _plain(command, raw)
    try:
        parts = shlex.split(raw)
    except ValueError as error:
        raise InputError(
            "the words cannot be read",
            where=where,
            got=str(error),
            hint="quotes come in pairs, as in a shell",
        ) from None
    words: list[str] = []
    options: dict[str, tuple[str, ...]] = {}
    while parts:
        part = parts.pop(0)
        if not part.startswith("--"):
            words.append(part)
            continue
        name, equals, value = part[2:].partition("=")
        if name not in command.options:
            known = ", ".join(f"--{n}" for n in command.options)
            raise InputError(f"no option --{name}", where=where, expected=known or "no option")
        if command.options[name] and not equals:
            if not parts:
                raise InputError(f"--{name} needs a value", where=where)
            value = parts.pop(0)
        options[name] = (*options.get(name, ()), value)
    most = command.most
    if most is not None and len(words) > most:
        raise InputError(
            "words that mean nothing here",
            where=where,
            expected=usage(command),
            got=" ".join(words[most:])[:200],
        )
    return Words(raw, tuple(words), options)


def _plain(command: Command, raw: str) -> Words:
    options: dict[str, tuple[str, ...]] = {}
    rest = raw.strip()
    while (first := rest.partition(" ")[0]).removeprefix("--") in command.options:
        if first.startswith("--"):
            options[first[2:]] = ("",)
            rest = rest[len(first) :].lstrip()
        else:
            break
    return Words(raw, tuple(rest.split()), options)


def usage(command: Command) -> str:
    return f"/{command.name} {command.usage}".rstrip()
