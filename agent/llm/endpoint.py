"""Which endpoint and which model: from the user's environment and the user's own config file.

A project's file is written by whoever wrote the project. It may lower budgets and switch the model
off; it may not say where requests go or which variable holds a key, because a project that could
would be sent the owner's key.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shardproof.agent.llm.answers import NoModel
from shardproof.agent.llm.budget import DEFAULT, UNLIMITED, Limits, Price
from shardproof.agent.llm.format_tiers import RUNGS
from shardproof.agent.llm.secret import Secret
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.files import user_folder

OPENAI = "https://api.openai.com/v1"
BY_DEFAULT = "gpt-5-mini"
"""The model that is asked at OpenAI where none is named."""
PROJECT_FILE = "shardproof.toml"
ANSWER_CACHE = "SHARDPROOF_ANSWER_CACHE"
"""The variable that switches the cache of answers off, with `0`."""
_LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
_BY_DEFAULT = "the default"
_NO_KEY = "none"
"""What is sent to an endpoint that was given no key: the client needs one that is not empty."""


@dataclass(frozen=True)
class Timeouts:
    """Seconds."""

    connect: float = 5.0
    read: float = 120.0
    """Between two pieces of a reply, and before the first."""
    total: float = 600.0
    """One attempt, from request to end of stream."""


@dataclass(frozen=True)
class Endpoint:
    """Where requests go, what they ask for, and what they may cost."""

    base_url: str
    model: str
    key: Secret = field(default_factory=lambda: Secret(""), compare=False)
    structured: str = "auto"
    """`auto`, or one of `RUNGS`."""
    max_tokens: int = 16384
    """Of a reply, thinking included."""
    max_tokens_param: str = "max_completion_tokens"
    temperature: float | None = None
    """None: the model's own."""
    reasoning_effort: str = ""
    """As the endpoint names it; empty: the model's own."""
    extra_body: Mapping[str, object] = field(default_factory=dict[str, object])
    timeouts: Timeouts = Timeouts()
    price: Price | None = None
    limits: Limits = DEFAULT
    answer_cache: bool = True
    """Whether an equal question may be answered by what was answered before."""
    origin: str = ""
    """Where the address came from, for people."""

    @property
    def ambient(self) -> bool:
        """Whether what the environment says for OpenAI is meant for this address too."""
        return self.origin in (_BY_DEFAULT, "OPENAI_BASE_URL")

    @property
    def loopback(self) -> bool:
        """Whether requests stay on this machine, in plain HTTP."""
        parts = urlsplit(self.base_url)
        return parts.scheme == "http" and parts.hostname in _LOCAL

    @property
    def shown(self) -> str:
        """The address without anything but scheme, host, port and path."""
        return shown(self.base_url)


def shown(base_url: str) -> str:
    """An address without user, password, query and fragment."""
    try:
        parts = urlsplit(base_url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(not an address)"
    return f"{parts.scheme}://{host}{port}{parts.path}"


def find(
    environ: Mapping[str, str] | None = None,
    user: Path | None = None,
    project: Path | None = None,
) -> Endpoint | NoModel:
    """The endpoint to use. Later wins: user file, environment; a project file only restricts.

    Environment: `SHARDPROOF_BASE_URL` or `OPENAI_BASE_URL`; `SHARDPROOF_API_KEY` or
    `OPENAI_API_KEY`; `SHARDPROOF_MODEL` or `OPENAI_MODEL`. The key of OpenAI goes to OpenAI and to
    an address given by `OPENAI_BASE_URL`, and nowhere else.

    Raises:
        InputError: a config file that cannot be used, located.
    """
    env = os.environ if environ is None else environ
    settings = read_table(user or user_folder("CONFIG", env) / "config.toml", _User)
    restricted = project_settings(project) if project else {}
    if settings.get("enabled") is False or restricted.get("enabled") is False:
        return NoModel("it is switched off in a config file")
    found = _address(env, settings)
    if isinstance(found, NoModel):
        return found
    base_url, key, origin = found
    model = env.get("SHARDPROOF_MODEL") or env.get("OPENAI_MODEL") or settings.get("model", "")
    if not model and base_url == OPENAI:
        model = BY_DEFAULT
    if not model:
        return NoModel("no model is named; set SHARDPROOF_MODEL, or model in the user's config")
    prices = settings.get("prices", {})
    endpoint = Endpoint(
        base_url,
        model,
        key,
        price=Price(**prices[model]) if model in prices else None,
        limits=Limits(**settings.get("budget", {})).at_most(
            replace(UNLIMITED, **restricted.get("budget", {}))
        ),
        timeouts=Timeouts(**settings.get("timeout", {})),
        answer_cache=env.get(ANSWER_CACHE, "1") != "0"
        and all(each.get("answer_cache", True) for each in (settings, restricted)),
        origin=origin,
    )
    chosen = {k: settings[k] for k in _PASSED if k in settings}
    return replace(endpoint, **chosen)


_PASSED = (
    "structured",
    "max_tokens",
    "max_tokens_param",
    "temperature",
    "reasoning_effort",
    "extra_body",
)


def _address(
    env: Mapping[str, str], settings: Mapping[str, Any]
) -> tuple[str, Secret, str] | NoModel:
    ours, theirs = env.get("SHARDPROOF_BASE_URL", ""), env.get("OPENAI_BASE_URL", "")
    own_key, openai_key = env.get("SHARDPROOF_API_KEY", ""), env.get("OPENAI_API_KEY", "")
    named = str(settings.get("api_key_env", ""))
    if ours:
        base_url, key, origin = ours, own_key, "SHARDPROOF_BASE_URL"
    elif theirs:
        base_url, key, origin = theirs, own_key or openai_key, "OPENAI_BASE_URL"
    elif "base_url" in settings:
        base_url, origin = str(settings["base_url"]), "the user's config"
        key = own_key or env.get(named, "") if named else own_key
    else:
        base_url, key, origin = OPENAI, own_key or openai_key, _BY_DEFAULT
    _check_address(base_url, origin)
    key = key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise InputError("a key with characters that no request can carry", where=origin)
    host = urlsplit(base_url).hostname or ""
    if not key and base_url == OPENAI:
        return NoModel("no key; set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own")
    if named and not key and "base_url" in settings and not (ours or theirs):
        return NoModel(f"the variable {named}, which the user's config names, is not set")
    if not key and host not in _LOCAL:
        return NoModel(f"no key for {shown(base_url)}; set SHARDPROOF_API_KEY")
    return base_url, Secret(key or _NO_KEY), origin


def _check_address(base_url: str, origin: str) -> None:
    try:
        parts = urlsplit(base_url)
        bad = parts.scheme not in ("http", "https") or not parts.hostname
        named, _ = parts.username or parts.password, parts.port
    except ValueError:
        bad, named, parts = True, None, urlsplit("")
    if named or parts.query:
        raise InputError(
            "the address of the model carries a user, a password or a query",
            where=origin,
            expected="http(s)://HOST[:PORT]/PATH, and the key in a variable of its own",
        )
    if bad:
        raise InputError(
            "the address of the model is not one",
            where=origin,
            expected="http(s)://HOST[:PORT]/PATH",
            got=shown(base_url),
        )


Amount = Annotated[float, Field(ge=0, lt=1e12)]


class _Project(BaseModel):
    """What the table `[model]` of a project's file may hold."""

    model_config = ConfigDict(extra="forbid", strict=True)

    enabled: bool = True
    answer_cache: bool = True
    budget: dict[Literal["calls", "tokens", "usd", "seconds"], Amount] = {}


class _Price(BaseModel, extra="forbid", strict=True):
    """USD per million tokens."""

    input: Amount
    output: Amount


class _User(_Project):
    """What that of the user's own file may hold. Only what it says is passed on."""

    base_url: str = ""
    api_key_env: str = ""
    """The name of the variable that holds the key; a key itself stands in no file."""
    model: str = ""
    structured: str = Field("auto", pattern=f"^({'|'.join(('auto', *RUNGS))})$")
    max_tokens: int = 16384
    max_tokens_param: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"
    temperature: float | None = None
    reasoning_effort: str = Field("", pattern=r"^\w{0,20}$")
    extra_body: dict[str, Any] = {}
    timeout: dict[Literal["connect", "read", "total"], Amount] = {}
    prices: dict[str, _Price] = {}


def project_settings(path: Path) -> dict[str, Any]:
    """The table `[model]` of a project's file: `enabled` and `budget`, and nothing else.

    Raises:
        InputError: any other key, located.
    """
    return read_table(path, _Project)


def read_table(path: Path, kind: type[BaseModel], table: str = "model") -> dict[str, Any]:
    """What a table of a file says; empty where there is no file.

    Raises:
        InputError: no TOML, or an entry that `kind` does not have, located.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("a config file cannot be read", where=str(path), got=str(error)) from None
    try:
        found = kind.model_validate(tomllib.loads(text).get(table, {}))
    except tomllib.TOMLDecodeError as error:
        raise InputError("a config file is not TOML", where=str(path), got=str(error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        name = str(next(iter(first["loc"]), table))
        unknown = first["type"] == "extra_forbidden" and len(first["loc"]) == 1
        only_user = unknown and (name in _User.model_fields or "key" in name or "url" in name)
        raise InputError(
            f"{name!r} in a config file cannot be used",
            where=f"{path}:{_line(text, name)}",
            expected=", ".join(kind.model_fields) if unknown else first["msg"],
            hint="only the user's own config or environment may set it, and a key only the latter"
            if only_user
            else "",
        ) from None
    return found.model_dump(exclude_unset=True)


def _line(text: str, name: str) -> int:
    """The first line that sets `name`; 1 where none is found."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.replace('"', "").replace("'", "").strip().startswith((name, f"[model.{name}")):
            return number
    return 1
