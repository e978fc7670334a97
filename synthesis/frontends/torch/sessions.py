"""Processes of a session: how much memory they hold, and their end."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path


def _processes(session: int) -> Iterator[int]:
    """Processes of a session, by number; none where the system does not tell."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            yield int(entry.name)


def session_memory(session: int) -> int:
    """Resident bytes of all processes of a session; 0 where that cannot be read."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for pid in _processes(session):
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
    return total


def end_session(leader: int) -> None:
    """Kill the process that began a session, and every process in it."""
    others = [pid for pid in _processes(leader) if pid != leader]
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for pid in (leader, *others):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
