"""An action: what may be asked of shardproof, declared once and rendered at every entrance.

The command line, the Python functions, the commands of a session, MCP and manifests of a batch read
names, types, defaults, bounds and help off the declarations; none has a list of its own.
"""

import difflib
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, get_args

from annotated_types import Ge, GroupedMetadata
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from shardproof.agent.run.errors import InputError

EXITS = (
    "Exit codes: 0 done and proved (a certificate: accepted), 1 refuted, unknown or rejected, "
    "2 usage, config or input, 3 model endpoint, 4 budget or time, 5 nothing selected, or "
    "nothing useful, 6 alarm of the guard, 70 our own fault, 130 interrupted."
)


@dataclass(frozen=True)
class Option(GroupedMetadata):
    """How a parameter is written, and what it is for."""

    help: str
    metavar: str | None = None
    min: float | None = None
    flags: tuple[str, ...] = ()
    """Where it is spelled otherwise than its name."""

    def __iter__(self) -> Iterator[Ge]:
        if self.min is not None:
            yield Ge(self.min)


class Argument(Option):
    """A parameter that is given by its place."""


def option(default: Any, help: str, metavar: str | None = None, **more: Any) -> Any:
    """A parameter with a default, as an `Option`."""
    found = FieldInfo(default=default)
    found.metadata.append(Option(help, metavar, **more))
    return found


@dataclass(frozen=True)
class Command:
    """An action on the command line."""

    name: str
    work: str
    """`room.module:function` below `agent`, which takes the run and the action."""
    exits: str
    limited: bool
    """Whether `--timeout` ends it."""
    json: bool
    formats: bool


class Action(BaseModel):
    """The parameters of one action, or a part of them that several actions have.

    A subclass with `work` is an action: its docstring is the help of its command. Fields that carry
    an `Option` are its parameters.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    command: ClassVar[Command]

    def __init_subclass__(
        cls,
        work: str = "",
        name: str = "",
        exits: str = EXITS,
        limited: bool = False,
        json: bool = True,
        formats: bool = False,
        **config: Any,
    ) -> None:
        super().__init_subclass__(**config)
        if work:
            spelled = name or re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()
            cls.command = Command(spelled, work, exits, limited, json, formats)

    @classmethod
    def parameters(cls) -> dict[str, tuple[FieldInfo, Option]]:
        """Fields by name, with how they are written; arguments first."""
        found = {
            name: (field, option)
            for name, field in cls.model_fields.items()
            for option in field.metadata
            if isinstance(option, Option)
        }
        return dict(sorted(found.items(), key=lambda e: not isinstance(e[1][1], Argument)))

    @classmethod
    def unsaid(cls, but: Container[str]) -> dict[str, Any]:
        """The parameters but for some as fields, with a value for what is not said."""
        return {
            name: (Annotated[(field.annotation | None, *field.metadata)], None)  # pyright: ignore[reportOptionalOperand]
            if field.default != ()
            else (Annotated[(field.annotation, *field.metadata)], ())
            for name, (field, _) in cls.parameters().items()
            if name not in but
        }

    @classmethod
    def of(cls, where: str, given: dict[str, Any]) -> Self:
        """The action with these parameters.

        Raises:
            InputError: a parameter that there is not, or a value that cannot be used.
        """
        try:
            return cls(**given)
        except ValidationError as error:
            first = error.errors()[0]
        name, known = str(first["loc"][0]), cls.parameters()
        if name in known:
            form, got = expected(*known[name]), repr(first["input"])
            raise InputError(f"{name} cannot be used", where=where, expected=form, got=got)
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else ""
        raise InputError(f"no option {name}", where=where, expected=", ".join(known), hint=hint)

    def words(self) -> tuple[str, ...]:
        """The command line that asks for this, after `shardproof`."""
        out, last = [self.command.name], list[str]()
        for name, (field, option) in self.parameters().items():
            value = getattr(self, name)
            if value == field.default:
                continue
            each = [str(v) for v in value] if isinstance(value, tuple) else [str(value)]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            flag = flags(name, option)[0]
            if isinstance(option, Argument):
                (last if isinstance(value, tuple) else out).extend(each)
            elif isinstance(value, bool):
                out.append(flag if value else f"--no-{flag[2:]}")
            else:
                out += [word for text in each for word in (flag, text)]
        return (*out, *(["--"] if any(word.startswith("-") for word in last) else []), *last)


def flags(name: str, option: Option) -> tuple[str, ...]:
    """How an option is spelled."""
    return option.flags or (f"--{name.replace('_', '-')}",)


def expected(field: FieldInfo, option: Option) -> str:
    """What a parameter takes, for people."""
    kinds = get_args(field.annotation) or (field.annotation,)
    if field.default == ():
        return f"a list of {option.metavar or 'words'}: {option.help}"
    if bool in kinds:
        return "true or false"
    number = "a whole number" if int in kinds else "a number" if float in kinds else ""
    return f"{number} of at least {option.min or 0:g}" if number else option.help
