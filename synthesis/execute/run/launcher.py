"""Starts the processes of runs, each under the same parent, which has imported PyTorch once."""

import atexit
import contextlib
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from synthesis.frontends.torch.process import LIBRARIES, environment
from synthesis.frontends.torch.ranks import arguments

HERE = Path(__file__).parent
FILES = (
    HERE / "launch.py",
    HERE / "rank.py",
    Path(str(arguments.__file__)),
    Path(__file__).parents[2] / "frontends" / "torch" / "results.py",
)
"""What a parent of processes is made of. It imports nothing else of shardproof."""
PATIENCE_S = 4.0
"""Seconds that processes have to end by themselves after one failed."""
_POLL_S = 0.002


class LaunchError(Exception):
    """No processes could be started, or their parent was ended."""


class Launcher:
    """A parent of processes; gone when this process is. One run at a time."""

    def __init__(self, library: str = "") -> None:
        self.home = Path(tempfile.mkdtemp(prefix="run-"))
        for file in FILES:
            shutil.copy(file, self.home)
        names = LIBRARIES[library] if library else ()
        self.environment = environment()
        self.process = subprocess.Popen(
            [sys.executable, str(self.home / "launch.py"), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment | {"HOME": str(self.home), "TMPDIR": str(self.home)},
            start_new_session=True,
        )
        self.busy = threading.Lock()

    def usable(self) -> bool:
        return self.process.poll() is None and self.environment == environment()

    def launch(
        self, folder: Path, processes: int, seconds: float, meanwhile: Callable[[], None]
    ) -> list[int | None]:
        """Run `processes` of them, and call `meanwhile` again and again until all have ended;
        their exit statuses, None of one that had to be ended.

        Raises:
            LaunchError: the parent was ended.
        """
        order = {
            "folder": str(folder),
            "processes": processes,
            "variables": {"GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(folder)},
            "cwd": str(Path.cwd()),
            "seconds": seconds,
            "patience": PATIENCE_S,
        }
        with self.busy:
            try:
                return json.loads(self._answer(json.dumps(order), meanwhile))
            except (OSError, ValueError):
                self.close()
                raise LaunchError("the parent of the processes was ended") from None
            except BaseException:
                self.close()  # its answer would be taken for that to the next order
                raise

    def _answer(self, order: str, meanwhile: Callable[[], None]) -> bytes:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(order.encode() + b"\n")
        self.process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not selector.select(0):
                meanwhile()
                time.sleep(_POLL_S)
        return self.process.stdout.readline()

    def close(self) -> None:
        """End it, and what it runs: its processes are ended with it."""
        self.process.kill()
        with contextlib.suppress(OSError):
            self.process.communicate()
        self.process.wait()
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
            found = _launchers[library] = Launcher(library)
        return found


def _close() -> None:
    for found in _launchers.values():
        found.close()
    _launchers.clear()


atexit.register(_close)
os.register_at_fork(after_in_child=_launchers.clear)
