"""Reads programs from files, text or JSON by their content."""

from pathlib import Path

from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.text.jsonio import loads
from shardproof.verifier.text.parser import parse_text


def load(path: str | Path) -> Program:
    """The program in a file: JSON where it opens with a brace, else text.

    Raises:
        MalformedError: a file that cannot be read, is no UTF-8, or holds no program.
    """
    name = str(path)
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedError(
            f"byte {error.start} is not UTF-8", where=name, hint="save the file as UTF-8"
        ) from None
    except OSError as error:
        raise MalformedError(f"cannot be read: {error.strerror or error}", where=name) from None
    read = loads if text.lstrip()[:1] in ("{", "[") else parse_text
    return read(text, name)
