"""An action becomes a command of the command line."""

import inspect
import re
import sys
from importlib import import_module
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

from shardproof.agent.actions.action import Action, Argument, Option, flags

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from shardproof.agent.run.run import Outcome, Run

WIDEST = 75
"""Characters of a line of an example, without its indent and what continues it."""
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on stdout.")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="github|sarif|rdjsonl|junit",
        help="Write findings to stdout in a format that CI reads.",
    ),
]
Timeout = Annotated[
    float | None, typer.Option(min=0.1, metavar="S", help="Time limit of the command, in seconds.")
]


def add(app: typer.Typer, action: type[Action]) -> None:
    """Register the command of an action: its parameters, and `--timeout`, `--format` and `--json`
    as it declares."""
    command = action.command
    known = [_parameter(name, *found) for name, found in action.parameters().items()]
    more = [
        ("timeout", Timeout, None, command.limited),
        ("format", Format, "", command.formats),
        ("json", Json, False, command.json),
    ]
    known += [_keyword(name, kind, default) for name, kind, default, wanted in more if wanted]
    own = frozenset(action.parameters())

    def called(**given: Any) -> int:
        from shardproof.agent.run.run import conduct

        asked = action(**{name: value for name, value in given.items() if name in own})
        timeout = given["timeout"] if command.limited else None
        return conduct(
            command.name,
            sys.argv[1:],
            lambda run: perform(run, asked),
            json=given.get("json", False),
            timeout=timeout,
            form=given.get("format", ""),
        )

    required_first = sorted(known, key=lambda p: p.default is not p.empty)
    called.__dict__["__signature__"] = inspect.Signature(required_first)
    called.__annotations__ = {}
    help = folded(action.__doc__ or "")
    app.command(command.name, epilog=command.exits, help=help)(called)


def perform(run: "Run", asked: Action) -> "Outcome":
    """Do what is asked: by a function that takes the action, or its parameters by their names."""
    room, _, name = asked.command.work.partition(":")
    work = getattr(import_module(f"shardproof.agent.{room}"), name)
    whole = "asked" in inspect.signature(work).parameters
    return work(run, asked) if whole else work(run, **dict(asked))


def _parameter(name: str, field: "FieldInfo", option: Option) -> inspect.Parameter:
    """A field as typer reads it: a tuple is given one by one."""
    kind: Any = field.annotation
    if get_origin(kind) is tuple:
        kind = GenericAlias(list, get_args(kind)[:1])
    default: Any = [] if field.default == () else field.default
    shown: dict[str, Any] = {"help": option.help, "metavar": option.metavar, "min": option.min}
    if isinstance(option, Argument):
        known: Any = typer.Argument(**shown)
    else:
        spelled = flags(name, option)
        both = kind == bool | None or default is True
        spelled = (f"{spelled[0]}/--no-{spelled[0][2:]}",) if both else spelled
        known = typer.Option(*spelled, **shown, show_default=default is not None)
    required = field.is_required()
    return _keyword(name, Annotated[kind, known], inspect.Parameter.empty if required else default)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def folded(doc: str) -> str:
    """A docstring with its examples on lines that fit a screen of 80, as a shell continues them."""
    return re.sub(r"^  shardproof .{67,}$", _fold, inspect.cleandoc(doc), flags=re.MULTILINE)


def _fold(example: re.Match[str]) -> str:
    first, *options = re.split(r" (?=-)", example[0])
    lines = [first]
    for option in options:
        if len(lines[-1]) + len(option) < WIDEST:
            lines[-1] += f" {option}"
        else:
            lines.append(f"    {option}")
    return " \\\n".join(lines)
