"""The words in a reply that comes in pieces: the long strings of its JSON, as they are written."""

from collections.abc import Callable, Iterator
from typing import Any, cast

from pydantic_core import from_json

SPOKEN = frozenset({"answer", "summary", "cause", "advice", "diagnosis"})


class Spoken:
    """Feeds the string values of some fields on, without the JSON around them."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self.told = ""
        self._reply = ""

    def feed(self, piece: str) -> None:
        """The next piece of a reply."""
        self._reply += piece
        start = self._reply.lstrip()[:1]
        if start and start not in "{`<":  # words alone
            self.told, new = self._reply, self._reply[len(self.told) :]
            self.tell(new)
            return
        begin, end = self._reply.find("{"), self._reply.rfind("}") + 1
        for text in (self._reply[begin:], self._reply[begin:end]) if begin >= 0 else ():
            try:
                found = from_json(text, allow_partial="trailing-strings")
            except ValueError:  # what comes after the JSON
                continue
            said = "\n".join(filter(None, _spoken(found)))
            if len(said) > len(self.told):
                new, self.told = said[len(self.told) :], said
                self.tell(new)
            return


def _spoken(value: Any, key: str = "") -> Iterator[str]:
    """Strings of the fields, in order."""
    if isinstance(value, str) and key in SPOKEN:
        yield value
    if isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            yield from _spoken(item, name)
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _spoken(item)
