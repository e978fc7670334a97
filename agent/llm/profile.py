"""What was learnt about an endpoint: its rung, and parameters that it does not know. Kept on disk.

Nothing in the file is secret: endpoints are named by a hash of address and model.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from shardproof.agent.llm.answers import Failed
from shardproof.agent.llm.endpoint import Endpoint
from shardproof.agent.llm.format_tiers import RUNGS
from shardproof.agent.run.files import user_folder, write_whole

_OPTIONAL = ("temperature", "stream_options", "reasoning_effort")
_LIMITS = ("max_completion_tokens", "max_tokens")
_OF_RUNGS = ("response_format", "json_schema", "json_object", "schema", "grammar", "tool")


@dataclass(frozen=True)
class Profile:
    """How to ask one model of one endpoint."""

    rung: Annotated[str, Field(pattern=f"^({'|'.join(RUNGS)})?$")] = ""
    """One of `RUNGS`; empty until it was tried."""
    limit_param: Annotated[str, Field(pattern=f"^({'|'.join(_LIMITS)})?$")] = ""
    """The name under which the limit of tokens is known; empty: as configured."""
    without: frozenset[Annotated[str, Field(pattern=f"^({'|'.join(_OPTIONAL)})$")]] = frozenset()
    """Optional parameters that are left away."""
    tools: bool | None = None
    """Whether tools that are offered are called; None until it was tried."""


class _Kept(BaseModel, extra="forbid"):
    """The file."""

    format: Literal[1] = 1
    endpoints: dict[str, Profile] = {}


def adapted(profile: Profile, failure: Failed, may_climb: bool) -> Profile | None:
    """The profile without what a refusal complains of; None where it complains of nothing of ours.

    Only a refusal that names a parameter counts: the message is the only thing servers agree on.
    """
    if failure.status not in (400, 415, 422, 500, 501):
        return None
    said = failure.message.lower()
    for name in _OPTIONAL:
        if name in said and name not in profile.without:
            return replace(profile, without=profile.without | {name})
    if may_climb and profile.rung in RUNGS[:-1] and any(word in said for word in _OF_RUNGS):
        return replace(profile, rung=RUNGS[RUNGS.index(profile.rung) + 1])
    if profile.tools and "tool" in said:
        return replace(profile, tools=False)
    named = [name for name in _LIMITS if name in said]
    if named and "context" not in said:
        current = profile.limit_param or named[0]
        other = _LIMITS[1 - _LIMITS.index(current)]
        return replace(profile, limit_param=other)
    return None


class Profiles:
    """Profiles by endpoint and model, in one JSON file; without a path, in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._known: dict[str, Profile] = _load(path) if path else {}

    @staticmethod
    def of_user() -> "Profiles":
        """In the user's cache folder."""
        return Profiles(user_folder("CACHE") / "endpoints.json")

    def of(self, endpoint: Endpoint) -> Profile:
        return self._known.get(_name(endpoint), Profile())

    def keep(self, endpoint: Endpoint, profile: Profile) -> None:
        """Remember it; a file that cannot be written is no reason to fail."""
        self._known[_name(endpoint)] = profile
        if self.path is None:
            return
        kept = _Kept(endpoints={**_load(self.path), **self._known})
        with suppress(OSError):
            write_whole(self.path, kept.model_dump_json(indent=1).encode())

    def forget(self, endpoint: Endpoint) -> None:
        """Try anew next time."""
        self._known.pop(_name(endpoint), None)


def _name(endpoint: Endpoint) -> str:
    return hashlib.sha256(f"{endpoint.base_url}\n{endpoint.model}".encode()).hexdigest()[:24]


def _load(path: Path) -> dict[str, Profile]:
    """What the file says; nothing where it is missing, torn or of another form."""
    try:
        return _Kept.model_validate_json(path.read_bytes()).endpoints
    except (OSError, ValueError):
        return {}
