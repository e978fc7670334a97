"""Files of our own on the disk: there whole or not at all, also after the power fails."""

import hashlib
import os
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in one step, in a folder that is made when missing: who reads sees the old one
    or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with temp.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temp.replace(path)
    finally:
        temp.unlink(missing_ok=True)
    sync(path.parent)


def sha256(path: Path) -> str:
    """Of a file, in hex. Raises OSError."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sync(folder: Path) -> None:
    """Make renames in a folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
