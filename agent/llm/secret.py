"""Keys: read when a request is made, shown nowhere, given to no child process."""

import os
import re
from typing import NoReturn

_NAMES = re.compile(
    r"(^|_)(API_?KEYS?|KEYS?|TOKENS?|SECRETS?|PASS(WORD|WD|PHRASE)?|CREDENTIALS?|AUTH"
    r"|PAT|BEARER|COOKIES?|DSN|PROXY)(_|$)|^(OPENAI|ANTHROPIC|AZURE|AWS|GOOGLE|GEMINI|HF|WANDB)_",
    re.IGNORECASE,
)
"""Names of variables that may hold a credential, or an address with one in it."""
_LOOKS_LIKE_A_KEY = re.compile(
    r"\b(?:(?:sk|pk|rk|xai|glpat)-[-_A-Za-z0-9]{12,}"
    r"|(?:gsk|hf|ghp|gho|ghs)_[A-Za-z0-9]{16,}|github_pat_\w{16,}"
    r"|AKIA[0-9A-Z]{16}|AIza[-_A-Za-z0-9]{30,}|xox[a-z]-[-A-Za-z0-9]{10,}"
    r"|eyJ[-_A-Za-z0-9]{8,}\.eyJ[-_A-Za-z0-9]{8,})"
)
_HOLDS_A_KEY = re.compile(
    r"(^|_)(API_?KEY|SECRETS?|PASS(WORD|WD|PHRASE)|CREDENTIALS?|(ACCESS|AUTH|API|BEARER)_?TOKEN)"
    r"(_|$)",
    re.IGNORECASE,
)
"""Names in source whose strings are not sent. A `key` or a `token` alone is a word of models."""
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[-._~+/A-Za-z0-9]{8,}=*")
MASK = "***"


class Secret:
    """A key. Its text is had by `reveal()` and by nothing else: not by repr, str, pickle."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not stored")


def redacted(text: str, *secrets: Secret) -> str:
    """Text without these keys and without anything that looks like one."""
    for secret in secrets:
        if len(secret.reveal()) >= 4:
            text = text.replace(secret.reveal(), MASK)
    return _BEARER.sub(rf"\1 {MASK}", _LOOKS_LIKE_A_KEY.sub(MASK, text))


def holds_a_key(name: str) -> bool:
    """Whether a name in source is one that a credential is given to."""
    return bool(_HOLDS_A_KEY.search(name))


def clean_environ(**extra: str) -> dict[str, str]:
    """The environment for a child process: everything but variables that may hold a credential.

    `extra` is added afterwards. A child that runs code of others should rather be given a list of
    what it may have, as capture does.
    """
    return {k: v for k, v in os.environ.items() if not sensitive(k, v)} | extra


def sensitive(name: str, value: str) -> bool:
    """Whether a variable may hold a credential, by its name or by what its value looks like."""
    if _NAMES.search(name) or _LOOKS_LIKE_A_KEY.search(value):
        return True
    return bool(re.search(r"://[^/\s@]+@", value))
