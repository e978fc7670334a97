"""Text from a model or from source under translation, made safe to show."""

import re
import unicodedata

_ESCAPES = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)?|\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_SPACE = frozenset("\n\t")


def clean(text: str) -> str:
    """Without terminal escapes, control, bidi and zero-width characters; lines end in newline."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return "".join(c for c in text if c in _SPACE or unicodedata.category(c) not in _HIDDEN)


_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def one_line(text: str, limit: int = 300) -> str:
    """Clean, on one line, cut."""
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."
