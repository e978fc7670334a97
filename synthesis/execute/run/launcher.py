"""Starts the processes of runs, each under the same parent, which has imported PyTorch once."""

import atexit
import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from shardproof.synthesis.frontends.torch.process import LIBRARIES, environment
from shardproof.synthesis.frontends.torch.ranks import arguments

HERE = Path(__file__).parent
FILES = (
    HERE / "launch.py",
    HERE / "rank.py",
    HERE / "trained.py",
    Path(str(arguments.__file__)),
    Path(__file__).parents[2] / "frontends" / "torch" / "logged_loss.py",
    Path(__file__).parents[2] / "frontends" / "torch" / "results.py",
    Path(__file__).parents[2] / "frontends" / "torch" / "ranks" / "stages.py",
    Path(__file__).parents[2] / "frontends" / "torch" / "ranks" / "several_models.py",
)
"""What a parent of processes is made of. It imports nothing else of shardproof."""
PATIENCE_S = 4.0
"""Seconds that processes have to end by themselves after one failed."""
_POLL_S = 0.002
_BEGIN_S = 60.0
"""Seconds that a parent has to begin to listen."""
PLAIN = "plain"
SHARED = "SHARDPROOF_RUNS"
"""Of the environment: a folder with the homes of parents that others share with this process."""


class LaunchError(Exception):
    """No processes could be started, or their parent was ended."""


class Launcher:
    """A parent of processes; gone when this process is, unless it is another's."""

    def __init__(self, library: str = "") -> None:
        self.environment = environment()
        self.process: subprocess.Popen[bytes] | None = None
        self.home = Path(os.environ.get(SHARED, "")) / (library or PLAIN)
        if not (self.home / "orders").exists():
            self._begin(library)

    def _begin(self, library: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="run-"))
        for file in FILES:
            shutil.copy(file, self.home)
        names = LIBRARIES[library] if library else ()
        self.process = subprocess.Popen(
            [sys.executable, str(self.home / "launch.py"), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.environment | {"HOME": str(self.home), "TMPDIR": str(self.home)},
            start_new_session=True,
        )

    def usable(self) -> bool:
        alive = self.process is None or self.process.poll() is None
        return alive and self.home.is_dir() and self.environment == environment()

    def launch(
        self,
        folder: Path,
        processes: int,
        seconds: float,
        meanwhile: Callable[[], None],
        variables: Mapping[str, str],
        work: str = "rank",
    ) -> list[int | None]:
        """Run `processes` of them, and call `meanwhile` again and again until all have ended;
        their exit statuses, None of one that had to be ended. `variables` are set in them;
        `work` is the module whose `main` each of them calls.

        Raises:
            LaunchError: the parent was ended.
        """
        order = {
            "folder": str(folder),
            "processes": processes,
            "work": work,
            "variables": {**variables, "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(folder)},
            "cwd": str(Path.cwd()),
            "seconds": seconds,
            "patience": PATIENCE_S,
        }
        try:
            with self._connected() as asked:
                asked.sendall(json.dumps(order).encode() + b"\n")
                while not select.select([asked], [], [], 0)[0]:
                    meanwhile()
                    time.sleep(_POLL_S)
                with asked.makefile("r") as lines:
                    return json.loads(lines.readline())
        except (OSError, ValueError):
            raise LaunchError("the parent of the processes was ended") from None

    def _connected(self) -> socket.socket:
        """A connection to it; it listens before it has imported PyTorch."""
        until = time.monotonic() + _BEGIN_S
        while True:
            asked = socket.socket(socket.AF_UNIX)
            try:
                asked.connect(str(self.home / "orders"))
                return asked
            except OSError:
                asked.close()
                if time.monotonic() > until or not self.usable():
                    raise
            time.sleep(_POLL_S)

    def close(self) -> None:
        """End it, and what it runs."""
        if self.process is None:
            return
        self.process.kill()
        with contextlib.suppress(OSError):
            self.process.communicate()
        shutil.rmtree(self.home, ignore_errors=True)


_launchers: dict[str, Launcher] = {}
_lock = threading.Lock()


def launcher(library: str = "") -> Launcher:
    """The parent of processes that have imported `library` too; begun where there is none."""
    with _lock:
        found = _launchers.get(library)
        if found is not None and not found.usable():
            found.close()
            found = None
        if found is None:
            atexit.register(_close)
            found = _launchers[library] = Launcher(library)
        return found


def shared(library: str) -> dict[str, str]:
    """What of the environment has another process use this one's parents of processes."""
    home = launcher(library).home
    with _lock:
        if not _links:
            _links.append(Path(tempfile.mkdtemp(prefix="runs-")))
        link = _links[0] / (library or PLAIN)
        if not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(home)
    return {SHARED: str(_links[0])}


_links: list[Path] = []


def _close() -> None:
    for folder in _links:
        shutil.rmtree(folder, ignore_errors=True)
    _links.clear()
    for found in _launchers.values():
        found.close()
    _launchers.clear()


def _forget() -> None:
    """In a forked process: they are those of the process it was forked from."""
    _links.clear()
    for found in _launchers.values():
        if found.process is not None:
            found.process.returncode = 0  # no child of this process: nothing to wait for
    _launchers.clear()


os.register_at_fork(after_in_child=_forget)
