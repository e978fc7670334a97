"""Where rank programs are kept: a folder, zip or tar of files, or one stream, plain or gzip."""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shardproof.synthesis.frontends.rank_programs.findings import InputError, malformed

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


Member = tuple[str, Callable[[], bytes]]
"""A file that is kept: its name, and what reads it."""
UNREADABLE = (
    OSError, EOFError, RuntimeError, zlib.error, tarfile.TarError, zipfile.BadZipFile,
)  # fmt: skip


def open_ranks(path: Path) -> tuple[Section, Iterator[Section]]:
    """The header and the sections of all ranks, in the order in which they stand.

    Raises:
        InputError: nothing that can be read; while it is read, a truncated file.
    """
    try:
        if path.is_dir():
            return _kept(path, _files)
        with path.open("rb") as start:
            magic = start.read(4)
    except OSError as error:
        raise _unreadable(str(path), error) from None
    if magic == b"PK\x03\x04":
        return _kept(path, _zipped)
    if _is_tar(path):
        return _kept(path, _tarred)
    stream = _stream(path, magic[:2] == b"\x1f\x8b")
    first = next(stream, None)
    if first is None:
        raise malformed("the file is empty", f"{path}:1")
    return first, stream


def _unreadable(name: str, error: Exception) -> InputError:
    why = getattr(error, "strerror", None) or str(error)
    return malformed(f"cannot be read: {why}", f"{name}:1")


def _kept(
    path: Path, files: Callable[[Path], Iterator[Member]]
) -> tuple[Section, Iterator[Section]]:
    """The header and the sections of what keeps a file a rank."""
    head = next(_read(path, files, lambda name: name == HEADER), None)
    if head is None:
        expected = "a line `ranks ...` in it"
        raise malformed(f"{HEADER} is missing", f"{path}:1", expected=expected)
    ranks = _read(path, files, lambda name: name.startswith("rank-"))
    return Section(head[1], head[0], 1), (whole(data, name) for name, data in ranks)


def _read(
    path: Path, files: Callable[[Path], Iterator[Member]], wanted: Callable[[str], bool]
) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files whose own name is wanted."""
    name = str(path)
    try:
        for name, content in files(path):
            if wanted(Path(name).name):
                data = content()
                yield name, gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except UNREADABLE as error:
        raise _unreadable(name, error) from None


def _files(path: Path) -> Iterator[Member]:
    for file in sorted(path.iterdir()):
        yield file.name, file.read_bytes


def _zipped(path: Path) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            yield name, lambda name=name: archive.open(name).read(MAX_SECTION + 1)


def _tarred(path: Path) -> Iterator[Member]:
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, lambda file=file: file.read(MAX_SECTION + 1)


def _is_tar(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except (OSError, EOFError, zlib.error):
        return False  # one packed stream, cut short: read as what it is


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
    return malformed("the program is cut short", f"{name}:{at}", expected="a line `end`", got=last)


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
