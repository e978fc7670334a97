"""Runs the worker in a process of its own, with limits, and reads back what it found.

The user's code may print, fork, hang, exit or eat memory: the caller sees a result or one error.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifier.frontend.errors import CaptureError
from verifier.frontend.request import Limits, Progress

KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
KEPT_OUTPUT = 64 * 1024
"""Bytes of the user's output that are kept, from its end."""
_POLL_S = 0.2
_VIRTUAL_SLACK = 96 << 30
"""Address space beyond the memory limit: parameters are reserved, never touched."""


@dataclass(frozen=True)
class Finished:
    """What a worker left behind."""

    returncode: int
    output: str
    """The end of what it printed."""
    stopped: str = ""
    """Why it was ended, where it was."""


def environment() -> dict[str, str]:
    """A few harmless variables of ours; no keys, no proxies, no network for model hubs."""
    kept = {k: v for k, v in os.environ.items() if k in KEPT_VARIABLES}
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    root = str(Path(__file__).resolve().parents[2])
    return kept | {
        "PYTHONPATH": root,
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": threads,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
    }


def run_worker(
    task: str, request: dict[str, Any], limits: Limits, progress: Progress, folder: Path
) -> None:
    """Run `task` in a fresh process; its results lie in `folder` afterwards.

    Raises:
        CaptureError: the worker failed, hung, or took more than it may.
        KeyboardInterrupt: passed on, after the worker's processes were ended.
    """
    (folder / "request.json").write_text(json.dumps({"task": task, "request": request}))
    finished = _run(folder, limits, progress)
    report = folder / "report.json"
    if report.is_file():
        found = json.loads(report.read_text())
        if found.get("error") is not None:
            raise CaptureError(**found["error"])
        if found.get("done"):
            return
    raise CaptureError(_why(finished, limits), hint=_last_lines(finished.output))


def _why(finished: Finished, limits: Limits) -> str:
    if finished.stopped:
        return f"capture was ended: {finished.stopped}"
    if finished.returncode == -signal.SIGXCPU:
        return f"capture was ended: it took more than {limits.cpu_s} s of processor time"
    if finished.returncode < 0:
        name = signal.Signals(-finished.returncode).name
        return f"the capturing process was ended by {name} before it had a result"
    code = finished.returncode
    return f"the user's code ended the process (exit code {code}) before capture was done"


def _last_lines(output: str) -> str:
    lines = [line for line in output.strip().splitlines() if line.strip()][-3:]
    return "its last output was: " + " | ".join(lines) if lines else ""


def _limit(limits: Limits) -> str:
    """Limits are set by the worker itself, before it imports anything of the user's."""
    return json.dumps(
        {
            "cpu": limits.cpu_s,
            "address_space": limits.memory_bytes + _VIRTUAL_SLACK,
            "file": limits.file_bytes,
            "files": limits.open_files,
        }
    )


def _run(folder: Path, limits: Limits, progress: Progress) -> Finished:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    variables = environment() | {"HOME": str(home), "TMPDIR": str(home)}
    command = [sys.executable, "-P", "-m", "verifier.frontend.worker", str(folder), _limit(limits)]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=variables,
        start_new_session=True,
    )
    try:
        output, stopped = _watch(child, folder, limits, progress)
    finally:
        end_session(child)
    return Finished(child.returncode, output, stopped)


def _watch(
    child: subprocess.Popen[bytes], folder: Path, limits: Limits, progress: Progress
) -> tuple[str, str]:
    """Drain output and progress until the worker ends or breaks a limit."""
    assert child.stdout is not None
    deadline = time.monotonic() + limits.wall_s
    kept = bytearray()
    told = 0
    os.set_blocking(child.stdout.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            ended = child.poll() is not None
            if selector.select(0 if ended else _POLL_S):
                data = _read(child.stdout.fileno())
                kept += data
                del kept[:-KEPT_OUTPUT]
                if not data and not ended:
                    with contextlib.suppress(KeyError):
                        selector.unregister(child.stdout)
                    time.sleep(_POLL_S / 4)
            elif not selector.get_map():
                time.sleep(_POLL_S / 4)
            told = _tell(folder, told, progress)
            if ended:
                kept += _read(child.stdout.fileno())
                return kept[-KEPT_OUTPUT:].decode("utf-8", "replace"), ""
            if time.monotonic() > deadline:
                return kept.decode("utf-8", "replace"), f"it took more than {limits.wall_s:g} s"
            if session_memory(child.pid) > limits.memory_bytes:
                size = limits.memory_bytes / 2**30
                return kept.decode("utf-8", "replace"), f"it took more than {size:g} GiB of memory"


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except (BlockingIOError, OSError):
        return b""


def _tell(folder: Path, told: int, progress: Progress) -> int:
    """Pass on the lines of the progress file that are new."""
    try:
        lines = (folder / "progress").read_text().splitlines(keepends=True)
    except OSError:
        return told
    for line in lines[told:]:
        if not line.endswith("\n"):
            break
        progress(line.strip())
        told += 1
    return told


def _session_processes(session: int) -> Iterator[int]:
    """Processes of a session, by number."""
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
    for pid in _session_processes(session):
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
    return total


def end_session(child: subprocess.Popen[bytes]) -> None:
    """End the worker and every process it started in its session."""
    others = [pid for pid in _session_processes(child.pid) if pid != child.pid]
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    for pid in others:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


@contextlib.contextmanager
def workspace() -> Generator[Path]:
    """A folder that is removed afterwards, whatever the user's code left in it."""
    with tempfile.TemporaryDirectory(prefix="shardproof-", ignore_cleanup_errors=True) as name:
        yield Path(name)
