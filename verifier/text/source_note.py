"""The `@` note at the end of a line of program text: where a node comes from.

`@ file:line from file:line module | source text`, with `-` where no file is known, and `from` for
each line that called it, innermost first. Parts with spaces are quoted; the source text runs to the
end of the line.
"""

import re

from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.types import Source
from shardproof.verifier.text.tokens import quote, unquote

_BARE = re.compile(r'[^\s"|@]+')
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_CALL = rf'(?:{_QUOTED}|[^\s"|@]+?):[0-9]{{1,9}}'
_EACH = re.compile(rf"from\s+({_CALL})(?=\s|$)")
_NOTE = re.compile(
    rf"""@\s*
    (?:-|(?P<file>{_QUOTED}|[^\s"|@]+?) : (?P<line>[0-9]{{1,9}})) (?=\s|$) \s*
    (?P<calls>(?:from\s+{_CALL}(?=\s|$)\s*)*)
    (?P<module>{_QUOTED}|[^\s"|@]+)? \s*
    (?:\|\ (?P<text>.*))?
    """,
    re.VERBOSE,
)


def show(source: Source) -> str:
    """The note, or nothing where the source is unknown."""
    if source == Source():
        return ""
    known = source.file or source.line
    parts = [f"@ {_bare(source.file)}:{source.line}" if known else "@ -"]
    parts += [f"from {_bare(file)}:{line}" for file, line in source.calls]
    if source.module:
        parts.append(_bare(source.module))
    if source.text:
        parts.append(f"| {source.text if _is_plain(source.text) else quote(source.text)}")
    return " ".join(parts)


def read(note: str) -> Source:
    """Raises MalformedError."""
    match = _NOTE.fullmatch(note.strip())
    if match is None:
        raise MalformedError(
            "source note", expected="@ file:line, a module path, | and the source line", got=note
        )
    file, line, module, text = match.group("file", "line", "module", "text")
    calls = tuple(map(_call, _EACH.findall(match["calls"] or "")))
    known = _plain(module or ""), _plain(text or "")
    return Source(_plain(file or ""), int(line or 0), *known, calls)


def _call(text: str) -> tuple[str, int]:
    file, _, line = text.rpartition(":")
    return _plain(file), int(line)


def _is_plain(text: str) -> bool:
    return text.isprintable() and text == text.strip() and not text.startswith('"')


def _bare(text: str) -> str:
    return text if _BARE.fullmatch(text) and text.isprintable() else quote(text)


def _plain(text: str) -> str:
    if not text.startswith('"'):
        return text
    return unquote(text)
