"""The words in a reply that comes in pieces: the long strings of its JSON, as they are written."""

from collections.abc import Callable

SPOKEN = frozenset({"answer", "summary", "cause", "advice", "diagnosis"})
_ESCAPED = {"n": "\n", "t": "\t", "r": "", "b": "", "f": ""}


class Spoken:
    """Feeds the string values of some fields on, without the JSON around them."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self.told = ""
        self._inside = self._value = False
        self._escape = ""
        self._key = self._text = ""

    def feed(self, piece: str) -> None:
        """The next piece of a reply."""
        out = "".join(map(self._char, piece))
        if out:
            self.told += out
            self.tell(out)

    def _char(self, char: str) -> str:
        if not self._inside:
            if char == '"':
                self._inside, self._text = True, ""
                if self._value and self._key in SPOKEN and self.told:
                    return "\n"
            elif char == ":":
                self._key, self._value = self._text, True
            elif char in ",{}[]":
                self._value = False
            return ""
        if self._escape:
            return self._escaped(char)
        if char == "\\":
            self._escape = char
            return ""
        if char == '"':
            self._inside = False
            return ""
        return self._say(char)

    def _escaped(self, char: str) -> str:
        self._escape += char
        if self._escape[1] == "u":
            if len(self._escape) < 6:
                return ""
            digits, self._escape = self._escape[2:], ""
            try:
                code = int(digits, 16)
            except ValueError:
                return ""
            return "" if 0xD800 <= code < 0xE000 else self._say(chr(code))
        self._escape = ""
        return self._say(_ESCAPED.get(char, char))

    def _say(self, char: str) -> str:
        self._text += char
        return char if self._value and self._key in SPOKEN else ""
