"""Runs jobs in processes of their own, with limits, and reads back what they found.

The user's code may print, fork, hang, exit or eat memory: the caller sees a result or one error.
The processes are forked by a server (`synthesis.frontends.torch.server`) that has imported
PyTorch, so that it is imported once, not once a job.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shardproof.installed import IMPORTED_FROM
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import python_path
from shardproof.synthesis.frontends.torch.request import Limits, Progress, silent

KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""Besides PYTHONPATH, whose folders the owner's code imports from."""
DROPPED = "SHARDPROOF_DROPPED"
"""Of the environment of a job: the names of variables that it is not given."""
KEPT_OUTPUT = 64 * 1024
"""Bytes of the user's output that are kept, from its end."""
NUMBER = struct.Struct("=i")
"""What the server says of a job: its process, then the status it ended with."""
TRACING = (
    "numpy",
    "torch._dynamo",
    "torch.export._trace",
    "torch._inductor.sizevars",
    "torch._inductor.fx_passes.dedupe_symint_uses",
    "shardproof.synthesis.frontends.torch.session",
    "shardproof.synthesis.frontends.torch.decompose:decompositions",
    "shardproof.synthesis.execute.collect",
    "shardproof.synthesis.execute.patched",
    "shardproof.verifier.kernel.ops",
    "pydantic.dataclasses",
)
"""What every capture and every reading of a patch imports."""
LIBRARIES = {
    "transformers": (
        "transformers",
        "transformers.modeling_utils",
        "transformers.generation.utils",
        "transformers.masking_utils",
        "transformers.modeling_layers",
        "transformers.models.auto.modeling_auto",
        "transformers.processing_utils",
    )
}
"""What most models of a library import."""
SHARED = "SHARDPROOF_SERVER"
"""Of the environment: the descriptor of a server that others gave to this process, which has
imported what its job needs."""
_POLL_S = 0.5
_PATIENCE_S = 10.0
"""Seconds for the server to end a job, or itself."""
_VIRTUAL_SLACK = 96 << 30
"""Address space beyond the memory limit: parameters are reserved, never touched."""


@dataclass(frozen=True)
class Job:
    """What a process of the server does."""

    entry: str
    """`module:function` of ours; it is called with the folder."""
    target: str
    """The model it is about: says which libraries are imported beforehand."""
    folder: Path
    wall_s: float
    limits: Limits | None = None
    """Of processor, memory and files; None: none."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the environment, besides those that every job has."""


@dataclass(frozen=True)
class Finished:
    """What a job left behind."""

    returncode: int
    output: str
    """The end of what it printed."""
    stopped: str = ""
    """Why it was ended, where it was."""
    begun: bool = True
    """Whether it had a process at all."""


def environment() -> dict[str, str]:
    """A few harmless variables of ours; no keys, no proxies, no network for model hubs."""
    kept = {k: v for k, v in os.environ.items() if k in KEPT_VARIABLES}
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    return kept | {
        "PYTHONPATH": IMPORTED_FROM,
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
    }


def owners(env: Sequence[str] = ()) -> dict[str, str]:
    """What of the environment the owner's code is given besides: PYTHONPATH, and the variables of
    `env`, each as `NAME` or `NAME=VALUE`.

    Raises:
        CaptureError: no such variable is set.
    """
    out: dict[str, str] = {}
    for item in env:
        name, given, value = item.partition("=")
        if not given and name not in os.environ:
            raise CaptureError(f"{name} is not set", hint=f"--env {name}=VALUE sets it")
        out[name] = value if given else os.environ[name]
    paths = (IMPORTED_FROM, *map(str, python_path()))
    known = {*KEPT_VARIABLES, *environment(), *out, "HOME", "TMPDIR", "OLDPWD", "PWD", "SHLVL", "_"}
    dropped = sorted({*os.environ} - known)
    return {**out, "PYTHONPATH": os.pathsep.join(paths), DROPPED: " ".join(dropped)}


def run_worker(
    task: str, request: dict[str, Any], limits: Limits, progress: Progress, folder: Path
) -> None:
    """Run `task` of `synthesis.frontends.torch.worker`; its results lie in `folder` afterwards.

    Raises:
        CaptureError: the worker failed, hung, or took more than it may.
        KeyboardInterrupt: passed on, after the worker's processes were ended.
    """
    (folder / "request.json").write_text(json.dumps({"task": task, "request": request}))
    entry = "shardproof.synthesis.frontends.torch.worker:main"
    variables = owners(request["env"])
    job = Job(entry, request["target"], folder, limits.wall_s, limits, variables)
    finished = run_job(job, progress)
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


def run_job(job: Job, progress: Progress = silent) -> Finished:
    """Do a job in a session of its own, of which no process is left afterwards.

    `progress` is called with each line that the job adds to the file `progress` in its folder.
    """
    finished = _run_once(job, progress)
    if not finished.begun and not finished.stopped:
        finished = _run_once(job, progress)  # the server was ended, by whomever, as it was asked
    if not finished.begun and not finished.stopped:
        why = f"the process that starts it was ended (exit code {finished.returncode})"
        return replace(finished, stopped=why)
    return finished


def _run_once(job: Job, progress: Progress) -> Finished:
    folder = job.folder.absolute()
    home = folder / "home"
    home.mkdir(exist_ok=True)
    limits = None
    if job.limits is not None:
        limits = {
            "cpu": job.limits.cpu_s,
            "address_space": job.limits.memory_bytes + _VIRTUAL_SLACK,
            "file": job.limits.file_bytes,
            "files": job.limits.open_files,
        }
    order = {
        "entry": job.entry,
        "folder": str(folder),
        "cwd": str(Path.cwd()),
        "variables": {**job.variables, "HOME": str(home), "TMPDIR": str(home)},
        "limits": limits,
    }
    ours, theirs = socket.socketpair()
    output, theirs_output = os.pipe()
    with ours:
        try:
            ours.sendall(json.dumps(order).encode() + b"\n")
            with theirs:
                server = _server(job.target, theirs, theirs_output)
            os.close(theirs_output)
            theirs_output = -1
            return _Watch(job, server, ours, output, progress).until_done()
        finally:
            for fd in (output, theirs_output):
                if fd >= 0:
                    os.close(fd)


class _Watch:
    """Drains output and progress of a job until it ends or breaks a limit."""

    def __init__(
        self,
        job: Job,
        server: Server | Given,
        control: socket.socket,
        output: int,
        progress: Progress,
    ) -> None:
        self.job, self.server, self.progress = job, server, progress
        self.control, self.output = control, output
        self.kept = bytearray()
        self.said = bytearray()
        self.closed = False
        self.told = 0

    def until_done(self) -> Finished:
        os.set_blocking(self.output, False)
        self.server.jobs.add(self.control)
        try:
            stopped = self.follow()
        finally:
            self.end()
            self.server.jobs.discard(self.control)
        while self.read():
            pass
        self.told = _tell(self.job.folder, self.told, self.progress)
        text = self.kept.decode("utf-8", "replace")
        status = self.number(1)
        if status is None:
            code, begun = self.server.code(), self.number(0) is not None
            if begun and not stopped:
                stopped = f"the process that started it was ended (exit code {code})"
            return Finished(code, text, stopped, begun)
        return Finished(os.waitstatus_to_exitcode(status), text, stopped)

    def number(self, index: int) -> int | None:
        """The process (0) or its status (1), once the server said so."""
        at = index * NUMBER.size
        return NUMBER.unpack_from(self.said, at)[0] if len(self.said) >= at + NUMBER.size else None

    def follow(self) -> str:
        """Until the server is done with the job; why it is to be ended, where it is not."""
        deadline = time.monotonic() + self.job.wall_s
        limits = self.job.limits
        with selectors.DefaultSelector() as selector:
            selector.register(self.output, selectors.EVENT_READ)
            selector.register(self.control, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select(_POLL_S)}
                if self.output in ready and not self.read():
                    selector.unregister(self.output)
                if self.control.fileno() in ready:
                    self.hear()
                if self.closed:
                    return ""
                self.told = _tell(self.job.folder, self.told, self.progress)
                if time.monotonic() > deadline:
                    return f"it took more than {self.job.wall_s:g} s"
                session = self.number(0)
                if limits is None or session is None:
                    continue
                if session_memory(session) > limits.memory_bytes:
                    return f"it took more than {limits.memory_bytes / 2**30:g} GiB of memory"

    def read(self) -> bool:
        """Take what was printed; whether there was something."""
        try:
            data = os.read(self.output, 1 << 16)
        except BlockingIOError:
            return False
        self.kept += data
        del self.kept[:-KEPT_OUTPUT]
        return bool(data)

    def hear(self) -> None:
        """Take what the server said."""
        data = b""
        with contextlib.suppress(ConnectionError):
            data = self.control.recv(2 * NUMBER.size)
        self.said += data
        self.closed = not data

    def end(self) -> None:
        """Have the server end what is left of the job, and wait until it has."""
        if not self.closed:
            with contextlib.suppress(OSError):
                self.control.shutdown(socket.SHUT_WR)
            self.control.settimeout(_PATIENCE_S)
            with contextlib.suppress(TimeoutError):
                while not self.closed:
                    self.hear()
        session = self.number(0)
        if self.number(1) is None and session is not None:  # the server was ended: nobody else does
            end_session(session)


class Server:
    """A fork server with some modules imported; gone when this process is."""

    def __init__(
        self,
        names: Sequence[str],
        variables: Callable[[], dict[str, str]] = environment,
        held: Sequence[int] = (),
    ) -> None:
        self.variables, self.environment = variables, variables()
        self.home = tempfile.mkdtemp(prefix="shardproof-server-")
        self.jobs: set[socket.socket] = set()
        """Under way."""
        self.control, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "shardproof.synthesis.frontends.torch.server"]
        with theirs:
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno()), self.home, *names],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"HOME": self.home, "TMPDIR": self.home} | self.environment,
                pass_fds=(theirs.fileno(), *held),
                cwd="/",
                start_new_session=True,
            )

    def usable(self) -> bool:
        """Whether it lives, and what it gives to jobs is what they would be given now."""
        return self.process.poll() is None and self.environment == self.variables()

    def code(self) -> int:
        """The exit code, of a server that ends by itself or is ended now."""
        self.control.close()
        try:
            return self.process.wait(_PATIENCE_S if self.jobs else 0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def close(self) -> None:
        """End the server, and with it what it runs."""
        self.code()
        shutil.rmtree(self.home, ignore_errors=True)


class Given:
    """A server that another process began, and shares with this one."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.jobs: set[socket.socket] = set()

    def usable(self) -> bool:
        """Whether it took the last job."""
        return self.control.fileno() >= 0

    def code(self) -> int:
        """Give it up: it was ended."""
        self.control.close()
        return -signal.SIGKILL

    def close(self) -> None:
        """Leave it to others."""
        self.control.close()


_servers: dict[tuple[str, ...], Server | Given] = {}
_lock = threading.Lock()


def warm_up(target: str) -> None:
    """Have a server begin to import what a job on `target` needs; does not wait for it."""
    with _lock:
        _usable(target)


def shared(target: str) -> int:
    """The descriptor of a server that a job on `target` can be given (`SHARED`)."""
    with _lock:
        return _usable(target).control.fileno()


def _usable(target: str) -> Server | Given:
    """The server for a target, begun where there is none. `_lock` is held."""
    libraries = ("transformers",) if target.startswith("hf:") else ()
    server = _servers.get(libraries)
    if server is not None and not server.usable():
        server.close()
        server = None
    given = os.environ.pop(SHARED, None)
    if server is None and given is not None:
        server = Given(socket.socket(fileno=int(given)))
    if server is None:
        server = Server((*TRACING, *(m for name in libraries for m in LIBRARIES[name])))
    _servers[libraries] = server
    return server


def _server(target: str, job: socket.socket, output: int) -> Server | Given:
    """The server that a job was handed to."""
    with _lock:
        server = _usable(target)
        with contextlib.suppress(ConnectionError):  # it was ended: the job's socket tells
            socket.send_fds(server.control, [b"j"], [job.fileno(), output, output])
        return server


def _close() -> None:
    with _lock:
        for server in _servers.values():
            server.close()
        _servers.clear()


def _forget() -> None:
    """In a forked process: the servers are those of the process it was forked from."""
    global _lock
    _lock = threading.Lock()
    for server in _servers.values():
        server.control.close()
        if isinstance(server, Server):
            server.process.returncode = 0  # no child of this process: there is nothing to wait for
    _servers.clear()


atexit.register(_close)
os.register_at_fork(after_in_child=_forget)


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


@contextlib.contextmanager
def workspace() -> Generator[Path]:
    """A folder that is removed afterwards, whatever the user's code left in it."""
    with tempfile.TemporaryDirectory(prefix="shardproof-", ignore_cleanup_errors=True) as name:
        yield Path(name)


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
