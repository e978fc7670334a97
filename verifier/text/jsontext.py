"""Reads untrusted JSON, strictly."""

import json
from typing import Any, NoReturn

from shardproof.verifier.kernel.program.errors import MalformedError


def parse(text: str, filename: str) -> Any:
    """JSON data, without the leniences of `json`: no NaN, no repeated keys.

    Raises:
        MalformedError: with line and column where the text is not JSON.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_constant, parse_float=_constant
        )
    except json.JSONDecodeError as error:
        where = f"{filename}:{error.lineno}:{error.colno}"
        raise MalformedError(f"malformed JSON: {error.msg}", where=where) from None
    except RecursionError:
        raise MalformedError("malformed JSON: nested too deeply", where=f"{filename}:1:1") from None
    except MalformedError as error:
        raise error.at(f"{filename}:1:1") from None
    except ValueError:
        raise MalformedError(
            "malformed JSON: an integer is too long", where=f"{filename}:1:1"
        ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise MalformedError(f"malformed JSON: key {twice!r} is given twice in one object")
    return out


def _constant(text: str) -> NoReturn:
    raise MalformedError(
        "malformed JSON: a number that is not an integer",
        got=text[:40],
        hint='use {"rational": "1/2"}',
    )
