"""The forms of a reply. They have no field for anything that a model may not decide.

Wire forms are flat and small, in the subset of JSON schema that servers agree on: objects with
every field required and no other, lists, strings, integers, enums.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from shardproof.agent.llm import format_tiers as rungs
from shardproof.agent.llm.hygiene import clean, one_line

MOST_CHARS = 400_000
"""Of one reply."""
Words = Annotated[str, AfterValidator(lambda text: clean(text).strip()[:4000])]
"""Text for people."""
Short = Annotated[str, AfterValidator(lambda text: one_line(text, 500))]
"""One line for people."""


class ReplyError(ValueError):
    """A reply that is not of its form: each problem located, in words a model can act on."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Unsupported(Reply):
    line: int
    why: Short


class Translation(Reply):
    program: str
    unsupported: list[Unsupported]


class Placement(Reply):
    module: str
    style: str


class Proposal(Reply):
    tactic: str
    stream: str
    placements: list[Placement]
    reason: Short


class Proposals(Reply):
    proposals: list[Proposal]


class Configuration(Reply):
    fix: str
    reason: Short


class Configurations(Reply):
    configurations: list[Configuration]


class Edit(Reply):
    edit: str
    value: str
    op: str
    attrs: str
    operands: list[str]
    index: int
    uses: list[str]
    where: str


class Repair(Reply):
    diagnosis: Words
    edits: list[Edit]


class Explanation(Reply):
    summary: Words
    cause: Words
    advice: Words


class Conversation(Reply):
    answer: Words
    commands: list[str]
    proposals: list[Proposal]


FORMS: tuple[type[Reply], ...] = (
    Translation,
    Proposals,
    Configurations,
    Repair,
    Explanation,
    Conversation,
)


R = TypeVar("R", bound=Reply)


def read(form: type[R], text: str) -> R:
    """The reply in a text.

    Raises:
        ReplyError: no JSON object in it, or one of another form.
    """
    if len(text) > MOST_CHARS:
        raise ReplyError([f"a reply of {len(text)} characters; at most {MOST_CHARS}"])
    try:
        body = rungs.extract(text)
        return form.model_validate_json(body)
    except rungs.ExtractError as error:
        raise ReplyError([str(error)]) from None
    except ValidationError as error:
        raise ReplyError([_located(e) for e in error.errors()[:8]]) from None


def read_parts(text: str) -> tuple[dict[str, Any], bool]:
    """The fields of a reply to a person, and whether it is JSON: words alone are its `answer`.

    Nothing that can be read is lost: of JSON that breaks off, what came before counts.

    Raises:
        ReplyError: nothing is there.
    """
    from pydantic_core import from_json

    try:
        body = rungs.extract(text)
    except rungs.ExtractError:
        return {"answer": rungs.without_thought(text)}, False
    for part in (body, body[: body.rfind("}") + 1]):
        try:
            found = from_json(part, allow_partial="trailing-strings")
        except ValueError:
            continue
        if isinstance(found, dict):
            return cast(dict[str, Any], found), True
    raise ReplyError(["JSON that cannot be read"])


def fit(form: type[R], value: Any) -> R:
    """A part of a reply. Raises ReplyError: it is of another form."""
    try:
        return form.model_validate(value)
    except ValidationError as error:
        raise ReplyError([_located(e) for e in error.errors()[:8]]) from None


def _located(error: Mapping[str, Any]) -> str:
    where = ""
    for part in error["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    if error["type"] == "extra_forbidden":
        return f"{one_line(where, 80)}: no such field"
    message = one_line(str(error["msg"]), 200)
    return f"{one_line(where, 80)}: {message}" if where else message


def schema(form: type[Reply], enums: Mapping[str, Sequence[str]] | None = None) -> rungs.Schema:
    """The JSON schema of a reply; `enums` gives the words of a field, by `Class.field`."""
    whole = form.model_json_schema()
    return _plain(whole, cast(dict[str, Any], whole.get("$defs", {})), enums or {})


def _plain(node: Any, defs: dict[str, Any], enums: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    if "$ref" in node:
        return _plain(defs[node["$ref"].rpartition("/")[2]], defs, enums)
    kind: str = node["type"]
    if kind == "array":
        return {"type": kind, "items": _plain(node["items"], defs, enums)}
    if kind != "object":
        return {"type": kind}
    fields: dict[str, Any] = {}
    for name, field in node["properties"].items():
        fields[name] = _plain(field, defs, enums)
        words = enums.get(f"{node['title']}.{name}")
        if words:
            fields[name]["enum"] = list(words)
    return {
        "type": kind,
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }
