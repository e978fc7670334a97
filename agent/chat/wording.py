"""Errors of what sessions and other commands share, in the words of a session."""

import re

from shardproof.agent.run.errors import InputError
from shardproof.agent.run.translate import as_ours

_WORDS = (
    (re.compile(r"--mesh\b"), "/mesh"),
    (re.compile(r"--hardware\b"), "/settings hardware"),
    (re.compile(r"--out\b"), "/report"),
    (re.compile(r", or pass --force to .*"), ""),
    (re.compile(r"^--root names the folder that was applied to.*"), "/apply writes a change"),
    (re.compile(r"^--root names .*"), "start shardproof in the folder that they are relative to"),
    (re.compile(r"--root (?=\S)"), ""),
    (re.compile(r"\bshardproof resume --list"), "/resume lists them"),
    (re.compile(r"\bshardproof translate\b"), "/translate"),
)
HINTS = {
    "the patch is applied already": "/undo reverts it; /load reads the file as it is now",
}
"""What to try after an error that says nothing of it."""


def in_session(error: Exception) -> Exception:
    """The error with commands of a session where it names options of other commands."""
    ours = as_ours(error)
    if not isinstance(ours, InputError):
        return error
    return InputError(
        _said(ours.what),
        where=_said(ours.where),
        expected=_said(ours.expected),
        got=ours.got,
        hint=_said(ours.hint or HINTS.get(ours.what, "")),
    )


def _said(text: str) -> str:
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text
