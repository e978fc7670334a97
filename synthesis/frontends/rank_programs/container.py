"""Where rank programs are kept: a folder, zip or tar of files, or one stream, plain or gzip."""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from synthesis.frontends.rank_programs.findings import Finding, InputError

HEADER = "mesh.sp"
"""The file of a folder or a zip that holds the header."""
CHUNK = 1 << 22
MAX_SECTION = 1 << 28
"""A rank's program is at most so many bytes."""


@dataclass(frozen=True, slots=True)
class Section:
    """The text of one rank, from its line `rank N` to its line `end`."""

    text: bytes
    file: str
    line: int
    """The line of the file on which it starts."""


def open_ranks(path: Path) -> tuple[Section, Iterator[Section]]:
    """The header and the sections of all ranks, in the order in which they stand.

    Raises:
        InputError: nothing that can be read; while it is read, a truncated file.
    """
    try:
        if path.is_dir():
            return _folder(path)
        with path.open("rb") as start:
            magic = start.read(4)
    except OSError as error:
        raise _unreadable(str(path), error) from None
    if magic == b"PK\x03\x04":
        return _zip(path)
    if _is_tar(path):
        return _tar(path)
    stream = _stream(path, magic[:2] == b"\x1f\x8b")
    first = next(stream, None)
    if first is None:
        raise InputError(Finding("malformed", "the file is empty", f"{path}:1"))
    return first, stream


def _unreadable(name: str, error: Exception) -> InputError:
    why = getattr(error, "strerror", None) or str(error)
    return InputError(Finding("malformed", f"cannot be read: {why}", f"{name}:1"))


def _no_header(path: Path) -> InputError:
    what = f"{HEADER} is missing"
    return InputError(Finding("malformed", what, f"{path}:1", expected="a line `ranks ...` in it"))


def _folder(path: Path) -> tuple[Section, Iterator[Section]]:
    head = path / HEADER
    if not head.is_file():
        raise _no_header(path)
    names = sorted(p for p in path.iterdir() if p.name.startswith("rank-"))

    def sections() -> Iterator[Section]:
        for name in names:
            try:
                data = name.read_bytes()
                if data[:2] == b"\x1f\x8b":
                    data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error) as error:
                raise _unreadable(name.name, error) from None
            yield whole(data, name.name)

    return Section(head.read_bytes(), HEADER, 1), sections()


@contextmanager
def _member(archive: zipfile.ZipFile, name: str) -> Generator[BinaryIO]:
    with archive.open(name) as file:
        yield cast(BinaryIO, file)


def _zip(path: Path) -> tuple[Section, Iterator[Section]]:
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise _unreadable(str(path), error) from None
    names = sorted(n for n in archive.namelist() if Path(n).name.startswith("rank-"))
    heads = [n for n in archive.namelist() if Path(n).name == HEADER]
    if not heads:
        raise _no_header(path)

    def read(name: str) -> bytes:
        try:
            with _member(archive, name) as file:
                return file.read(MAX_SECTION + 1)
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
            raise _unreadable(name, error) from None

    def sections() -> Iterator[Section]:
        with archive:
            for name in names:
                yield whole(read(name), name)

    return Section(read(heads[0]), heads[0], 1), sections()


def _is_tar(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except (OSError, EOFError, zlib.error):
        return False  # one packed stream, cut short: read as what it is


def _tar(path: Path) -> tuple[Section, Iterator[Section]]:
    def members() -> Iterator[tuple[str, bytes]]:
        try:
            with tarfile.open(path) as archive:
                for member in archive:
                    name = Path(member.name).name
                    file = archive.extractfile(member) if member.isfile() else None
                    if file is not None and (name == HEADER or name.startswith("rank-")):
                        yield member.name, file.read(MAX_SECTION + 1)
        except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
            raise _unreadable(str(path), error) from None

    head = next((found for found in members() if Path(found[0]).name == HEADER), None)
    if head is None:
        raise _no_header(path)

    def sections() -> Iterator[Section]:
        for name, data in members():
            if Path(name).name != HEADER:
                yield whole(data, name)

    return Section(head[1], head[0], 1), sections()


def whole(data: bytes, name: str) -> Section:
    """A file that holds one rank. Raises InputError where it is cut short or goes on."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    text = data.rstrip()
    if text != b"end" and not text.endswith(b"\nend"):
        raise _cut(data, name, 1)
    return Section(text, name, 1)


def _cut(data: bytes, name: str, line: int) -> InputError:
    at = line + data.rstrip().count(b"\n")
    last = data.rstrip().rpartition(b"\n")[2].decode("utf-8", "replace")[:60]
    what = "the program is cut short"
    return InputError(Finding("malformed", what, f"{name}:{at}", expected="a line `end`", got=last))


def _stream(path: Path, packed: bool) -> Iterator[Section]:
    """The header line as a section, then one section for each rank."""
    name, line, buffer, begun = path.name, 1, b"", False
    with gzip.open(path, "rb") if packed else path.open("rb") as file:
        while True:
            try:
                chunk = file.read(CHUNK)
            except (OSError, EOFError, zlib.error) as error:
                at = line + buffer.count(b"\n")
                raise _unreadable(f"{name}:{at}".removesuffix(":1"), error) from None
            done = not chunk
            buffer += chunk
            if b"\r" in buffer and not buffer.endswith(b"\r"):
                buffer = buffer.replace(b"\r\n", b"\n")
            if done and buffer and not buffer.endswith(b"\n"):
                buffer += b"\n"
            start = 0
            if not begun:
                end = buffer.find(b"\n")
                if end < 0 and not done:
                    continue
                if end >= 0:
                    yield Section(buffer[:end], name, 1)
                    begun, start, line = True, end + 1, 2
            while (end := buffer.find(b"\nend\n", start)) >= 0:
                text = buffer[start : end + 4]
                yield Section(text, name, line)
                line += text.count(b"\n") + 1
                start = end + 5
            buffer = buffer[start:]
            if len(buffer) > MAX_SECTION:
                raise _cut(buffer[:0], name, line)
            if done:
                break
    if buffer.strip():
        raise _cut(buffer, name, line)
