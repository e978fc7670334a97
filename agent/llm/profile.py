"""What was learnt about an endpoint: its rung, and parameters that it does not know. Kept on disk.

Nothing in the file is secret: endpoints are named by a hash of address and model.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from agent.files import write_whole
from agent.llm.answers import Failed
from agent.llm.endpoint import Endpoint
from agent.llm.format_tiers import RUNGS

FORMAT = 1
_OPTIONAL = ("temperature", "stream_options")
_LIMITS = ("max_completion_tokens", "max_tokens")
_OF_RUNGS = ("response_format", "json_schema", "json_object", "schema", "grammar", "tool")


@dataclass(frozen=True, slots=True)
class Profile:
    """How to ask one model of one endpoint."""

    rung: str = ""
    """One of `RUNGS`; empty until it was tried."""
    limit_param: str = ""
    """The name under which the limit of tokens is known; empty: as configured."""
    without: frozenset[str] = frozenset()
    """Optional parameters that are left away."""


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
    def of_user(environ: Mapping[str, str] | None = None) -> Profiles:
        """In the user's cache folder."""
        env = os.environ if environ is None else environ
        home = env.get("XDG_CACHE_HOME") or str(Path(env.get("HOME", "~")) / ".cache")
        return Profiles(Path(home).expanduser() / "shardproof" / "endpoints.json")

    def of(self, endpoint: Endpoint) -> Profile:
        return self._known.get(_name(endpoint), Profile())

    def keep(self, endpoint: Endpoint, profile: Profile) -> None:
        """Remember it; a file that cannot be written is no reason to fail."""
        self._known[_name(endpoint)] = profile
        if self.path is None:
            return
        known = {**_load(self.path), **self._known}
        data = {
            "format": FORMAT,
            "endpoints": {
                name: {
                    "rung": p.rung,
                    "limit_param": p.limit_param,
                    "without": sorted(p.without),
                }
                for name, p in sorted(known.items())
            },
        }
        try:
            write_whole(self.path, json.dumps(data, indent=1).encode())
        except OSError:
            return

    def forget(self, endpoint: Endpoint) -> None:
        """Try anew next time."""
        self._known.pop(_name(endpoint), None)


def _name(endpoint: Endpoint) -> str:
    return hashlib.sha256(f"{endpoint.base_url}\n{endpoint.model}".encode()).hexdigest()[:24]


def _load(path: Path) -> dict[str, Profile]:
    """What the file says; nothing where it is missing, torn or of another form."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            return {}
        found = {name: _read(entry) for name, entry in data["endpoints"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: profile for name, profile in found.items() if profile is not None}


def _read(entry: object) -> Profile | None:
    item = cast(dict[str, Any], entry)
    rung, limit, without = item["rung"], item["limit_param"], frozenset(item["without"])
    if rung not in ("", *RUNGS) or limit not in ("", *_LIMITS) or not without <= {*_OPTIONAL}:
        return None
    return Profile(rung, limit, without)
