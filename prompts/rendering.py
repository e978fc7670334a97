"""Loads prompts, fills their holes, and says by hash which text was sent.

A prompt is three files: `NAME.toml` (what it is for, which variables it has), `NAME.system.j2` and
`NAME.user.j2`. A variable that is missing and one that is not declared are errors alike.

Text of others (source, programs, names in them) goes between boundary lines that hold a word its
author cannot guess. It is a value, never a template: braces in it mean nothing.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent
BOUNDARY = "boundary"
"""The variable that every prompt has."""
_PARTS = ("system", "user")


class PromptError(ValueError):
    """A prompt that does not exist, or a rendering with other variables than it declares."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as written."""

    name: str
    version: int
    purpose: str
    variables: Mapping[str, str]
    """Name to what it holds."""
    digest: str
    """SHA-256 of its texts and of those they include."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt with its holes filled."""

    name: str
    system: str
    user: str
    template: str
    """SHA-256 of the prompt as written."""
    rendering: str
    """SHA-256 of the text, the boundary word left out: equal for equal variables."""

    @property
    def messages(self) -> list[dict[str, str]]:
        """As chat messages."""
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": self.user},
        ]


def names() -> tuple[str, ...]:
    """Every prompt."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def load(name: str) -> Prompt:
    """Read a prompt.

    Raises:
        PromptError: there is none of that name, or its files do not fit each other.
    """
    if name not in names():
        raise PromptError(f"no prompt {name!r}; there are {', '.join(names())}")
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    declared = cast(dict[str, str], data["variables"])
    digest, used = _read(name)
    if used != set(declared) | {BOUNDARY}:
        odd = sorted(used ^ (set(declared) | {BOUNDARY}))
        raise PromptError(f"prompt {name}: declared and used variables differ: {', '.join(odd)}")
    whole = hashlib.sha256(f"{text}\0{digest}".encode()).hexdigest()
    return Prompt(name, int(data["version"]), str(data["purpose"]), declared, whole)


def _read(name: str) -> tuple[str, set[str]]:
    """Hash of the templates with all they include, and the variables they use."""
    from jinja2 import meta

    env = _environment()
    todo = [f"{name}.{part}.j2" for part in _PARTS]
    seen: dict[str, str] = {}
    used: set[str] = set()
    while todo:
        file = todo.pop()
        if file in seen:
            continue
        seen[file] = (FOLDER / file).read_text(encoding="utf-8")
        tree = env.parse(seen[file])
        used |= meta.find_undeclared_variables(tree)
        todo += [ref for ref in meta.find_referenced_templates(tree) if ref]
    joined = "\0".join(f"{file}\0{seen[file]}" for file in sorted(seen))
    return hashlib.sha256(joined.encode()).hexdigest(), used


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # Prompts are plain text: nothing is escaped, and nothing of them reaches a browser.
    return Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(name: str, /, *, boundary: str, **variables: object) -> Rendered:
    """Fill a prompt.

    Raises:
        PromptError: no such prompt, a variable missing or not declared, or the boundary word
            inside a value.
    """
    from jinja2 import TemplateError

    prompt = load(name)
    missing = sorted(set(prompt.variables) - set(variables))
    extra = sorted(set(variables) - set(prompt.variables))
    if missing or extra:
        parts = [f"missing {', '.join(missing)}"] if missing else []
        parts += [f"not declared {', '.join(extra)}"] if extra else []
        raise PromptError(f"prompt {name}: {'; '.join(parts)}")
    if len(boundary) < 8:
        raise PromptError(f"prompt {name}: a boundary word of at least 8 characters is needed")
    if any(boundary in text for text in _texts(variables)):
        raise PromptError(f"prompt {name}: the boundary word occurs in a value; choose another")
    env = _environment()
    try:
        system, user = (
            env.get_template(f"{name}.{part}.j2").render(**variables, boundary=boundary).strip()
            + "\n"
            for part in _PARTS
        )
    except TemplateError as error:
        raise PromptError(f"prompt {name}: {error}") from None
    stable = f"{system}\0{user}".replace(boundary, BOUNDARY)
    rendering = hashlib.sha256(stable.encode()).hexdigest()
    return Rendered(name, system, user, prompt.digest, rendering)


def _texts(value: object) -> list[str]:
    """Every string inside a value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        return [text for pair in items for part in pair for text in _texts(part)]
    if isinstance(value, list | tuple):
        return [text for part in cast(list[Any], value) for text in _texts(part)]
    return []
