"""Files of our own on the disk: there whole or not at all, also after the power fails."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from shardproof.agent.run.errors import InputError

_HOMES = {"CONFIG": ".config", "CACHE": ".cache", "STATE": ".local/state"}


def user_folder(kind: str, environ: Mapping[str, str] | None = None) -> Path:
    """Where files of this user lie: `$XDG_CONFIG_HOME/shardproof` for CONFIG, likewise CACHE and
    STATE."""
    env = os.environ if environ is None else environ
    home = env.get(f"XDG_{kind}_HOME") or Path(env.get("HOME", "~")) / _HOMES[kind]
    return Path(home).expanduser() / "shardproof"


def read_text(path: Path, what: str, expected: str = "") -> str:
    """Raises InputError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{what} cannot be read", where=str(path), expected=expected, got=str(error)
        ) from None


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
