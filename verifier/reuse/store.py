"""Proofs kept on disk, so that a program edited since is proved by what changed.

What is kept is found by the bytes of the one-device program and of the contract, and by the version
of the verifier: its files, Python, numpy. An object is named by the SHA-256 of its bytes, written
aside and renamed; an entry that names it is replaced in one step. Who reads sees a whole entry or
none, whoever else writes or was killed. Objects hold data of the listed classes and nothing that
runs. An entry says nothing but which object: the object holds the files that its proof is about,
and they are compared in full. An object that is damaged, or about other files, is no object.

The directory is the owner's: that the facts in an object were once found by the verifier is
believed as far as its owner is. Delete it, or leave it out, and everything is proved anew.
"""

import gc
import hashlib
import io
import json
import os
import pickle
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verifier.reuse.base import Base
from verifier.text.parser import Spans

_NAME = re.compile("[0-9a-f]{64}")
MOST_BYTES = 2**30
"""Older objects go when all together are larger."""
CLASSES = frozenset(
    {
        ("fractions", "Fraction"),
        ("verifier.kernel.contract", "Balanced"),
        ("verifier.kernel.contract", "Contract"),
        ("verifier.reuse.base", "Base"),
        ("verifier.reuse.base", "Names"),
        ("verifier.reuse.store", "Kept"),
        ("verifier.provers.canonical.keys", "Keys"),
        ("verifier.kernel.program.program", "Input"),
        ("verifier.kernel.program.program", "Node"),
        ("verifier.kernel.program.program", "Output"),
        ("verifier.kernel.program.program", "Program"),
        ("verifier.kernel.program.program", "Timing"),
        ("verifier.text.parser", "Spans"),
        ("verifier.kernel.program.types", "Affine"),
        ("verifier.kernel.program.types", "Mesh"),
        ("verifier.kernel.program.types", "Source"),
        ("verifier.kernel.program.types", "TensorType"),
        ("verifier.kernel.layout", "Atom"),
        ("verifier.kernel.layout", "Layout"),
        ("verifier.kernel.program.registry", "Refused"),
        ("verifier.kernel.rank_sets", "Misplaced"),
        ("verifier.kernel.rank_sets", "Regions"),
        ("verifier.provers.relate.facts", "Break"),
        ("verifier.provers.relate.facts", "Fact"),
        ("verifier.provers.relate.facts", "Related"),
        ("verifier.provers.sequential", "Scan"),
        ("verifier.provers.sequential", "Sequential"),
        ("verifier.kernel.peeling", "Peel"),
        ("verifier.terms.refs", "Ref"),
        ("verifier.terms.refs", "Term"),
        ("verifier.terms.table", "Terms"),
    }
)
"""All that an object may be made of, besides Python's own plain values."""


@dataclass(frozen=True)
class Kept:
    """A proof, and all of the three files that it is about."""

    base: Base
    sequential: bytes
    contract: bytes
    text: str
    """Of the distributed program."""
    spans: Spans
    claims: int
    """Of the certificate, which the checker accepted."""


class Store:
    """Proofs in a directory, which is made on the first write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def key(self, sequential: bytes, contract: bytes) -> str:
        """What an entry is found by."""
        parts = (version().encode(), sequential, contract)
        return hashlib.sha256(b"".join(hashlib.sha256(p).digest() for p in parts)).hexdigest()

    def kept(self, sequential: bytes, contract: bytes) -> tuple[Kept, str] | None:
        """What was proved last of a one-device program under a contract, and the name of the object
        that it was read from.

        None where there is nothing, where the object is gone or damaged, or where it is about other
        files. Garbage collection waits meanwhile: with it, reading takes three times as long.
        """
        name = self._named(self.key(sequential, contract))
        try:
            data = self._object(name).read_bytes() if name else b""
        except OSError:
            return None
        if not name or hashlib.sha256(data).hexdigest() != name:
            return None
        collecting = gc.isenabled()
        gc.disable()
        try:
            found = _Reader(io.BytesIO(data)).load()
        except (
            pickle.UnpicklingError,
            ArithmeticError,
            EOFError,
            ImportError,
            LookupError,
            AttributeError,
            ValueError,
            TypeError,
        ):
            return None
        finally:
            if collecting:
                gc.enable()
        if not isinstance(found, Kept):
            return None
        return (
            (found, name) if (found.sequential, found.contract) == (sequential, contract) else None
        )

    def keep(self, kept: Kept) -> None:
        """Write an object, then the entry that names it.

        Raises:
            OSError: the directory cannot be written.
        """
        key = self.key(kept.sequential, kept.contract)
        data = pickle.dumps(kept, protocol=5)
        name = hashlib.sha256(data).hexdigest()
        before = self._named(key)
        target = self._object(name)
        if not target.exists():
            _write(target, data)
        _write(self._entry(key), json.dumps({"object": name}).encode())
        if before and before != name:
            self._object(before).unlink(missing_ok=True)
        self._prune(name)

    def _named(self, key: str) -> str:
        """The object that an entry names; empty where there is none."""
        try:
            name: Any = json.loads(self._entry(key).read_bytes())["object"]
        except (OSError, ValueError, TypeError, KeyError):
            return ""
        return name if isinstance(name, str) and _NAME.fullmatch(name) else ""

    def _prune(self, newest: str) -> None:
        """Remove the oldest objects where there are too many bytes of them."""
        sized: list[tuple[float, int, Path]] = []
        for path in self.directory.glob("objects/*"):
            try:
                found = path.stat()
            except OSError:
                continue
            sized.append((found.st_mtime, found.st_size, path))
        total = sum(size for _, size, _ in sized)
        for _, size, path in sorted(sized, key=lambda item: item[0]):
            if total <= MOST_BYTES:
                return
            if path.name != newest:
                path.unlink(missing_ok=True)
                total -= size

    def _entry(self, key: str) -> Path:
        return self.directory / "entries" / f"{key}.json"

    def _object(self, name: str) -> Path:
        return self.directory / "objects" / name


class _Reader(pickle.Unpickler):
    """Makes objects of the listed classes and of no others."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in CLASSES:
            raise pickle.UnpicklingError(f"{module}.{name} is not data of a proof")
        return super().find_class(module, name)


def version() -> str:
    """Changes with every file of the verifier, with Python and with numpy."""
    root = Path(__file__).resolve().parent.parent
    files = sorted((p, p.stat()) for p in root.rglob("*.py"))
    seen = [f"{p.relative_to(root)} {s.st_size} {s.st_mtime_ns}" for p, s in files]
    return "\n".join([sys.version, np.__version__, *seen])


def _write(path: Path, data: bytes) -> None:
    """Aside, to the disk, then under its name."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
