"""`@command`: a function of a run and of options becomes a command of the command line."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import typer

from shardproof.agent.cli.arguments import EXITS, Format, Json, Timeout

if TYPE_CHECKING:
    from shardproof.agent.run.run import Outcome, Run

WIDEST = 75
"""Characters of a line of an example, without its indent and what continues it."""


def command(
    app: typer.Typer,
    name: str = "",
    *,
    epilog: str = EXITS,
    limited: bool = False,
    json: bool = True,
    formats: bool = False,
) -> Callable[[Callable[..., "Outcome"]], Callable[..., "Outcome"]]:
    """Register a function under `name`, or under its own.

    Its first parameter is the run. The others are options as typer reads them, or dataclasses whose
    fields are options; those that are required come first. `limited` adds `--timeout`, `json` adds
    `--json` and `formats` adds `--format`; a function with a parameter `json` of its own is told.
    """

    def register(work: Callable[..., "Outcome"]) -> Callable[..., "Outcome"]:
        _, *taken = inspect.signature(work).parameters.values()
        known = {p.name: p for taker in taken for p in _options(taker)}
        if limited:
            known["timeout"] = _option("timeout", Timeout, None)
        if formats:
            known["format"] = _option("format", Format, "")
        if json:
            known["json"] = _option("json", Json, False)

        @wraps(work)
        def called(**given: Any) -> int:
            from shardproof.agent.run.run import conduct

            def conducted(run: "Run") -> "Outcome":
                return work(run, **{p.name: _value(p, given) for p in taken})

            told, seconds = given.get("json", False), given.get("timeout")
            title = name or work.__name__
            form = given.get("format", "")
            return conduct(title, sys.argv[1:], conducted, json=told, timeout=seconds, form=form)

        required_first = sorted(known.values(), key=lambda p: p.default is not p.empty)
        called.__dict__["__signature__"] = inspect.Signature(required_first)
        called.__annotations__ = {}
        app.command(name or None, epilog=epilog, help=folded(work.__doc__ or ""))(called)
        return work

    return register


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


def _options(taken: inspect.Parameter) -> Iterator[inspect.Parameter]:
    if not is_dataclass(taken.annotation):
        yield taken.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    for entry in fields(taken.annotation):
        default = inspect.Parameter.empty if entry.default is MISSING else entry.default
        if entry.default_factory is not MISSING:
            default = entry.default_factory()
        yield _option(entry.name, entry.type, default)


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _value(taken: inspect.Parameter, given: dict[str, Any]) -> Any:
    if not is_dataclass(taken.annotation):
        return given[taken.name]
    kind: Any = taken.annotation
    return kind(**{entry.name: given[entry.name] for entry in fields(kind)})
