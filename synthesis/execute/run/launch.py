"""The parent of the processes of runs: imports PyTorch once, and forks one process for each rank.

`python launch.py NAME...` in a folder of its own, with nothing of shardproof; each NAME is a module
to import besides. It listens on the socket `orders` in that folder. Whoever connects sends a run as
one line of JSON: `folder`, `processes`, `work`, `variables` of the environment, `cwd`, `seconds`,
`patience`. The answer is one line, the exit status of each process, None of one that was ended.
Where the other side closes, the run is ended; where standard input is closed, all are.
"""

# pyright: basic, reportMissingImports=false

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

MODULES = (
    "numpy",
    "torch",
    "torch.distributed",
    "torch.distributed.device_mesh",
    "torch.distributed.tensor.parallel",
    "torch.distributed.fsdp",
    "torch._dynamo",
    "numpy.random",
)
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG."""
_works: dict[str, Callable[[Path, int], None]] = {}
"""What a process does, by the module that does it."""
_LAST_WORDS_S = 0.5
"""Seconds in which a process that is ended writes where it waits."""


def serve(asked: socket.socket) -> None:
    """Do what one client orders."""
    with asked, asked.makefile("r") as lines:
        line = lines.readline()
        if line:
            asked.sendall(json.dumps(launch(json.loads(line), asked)).encode() + b"\n")


def launch(order: dict, asked: socket.socket) -> list:
    """Fork the processes of a run, and wait for all; one that fails ends the others."""
    pids = [_fork(order, index) for index in range(order["processes"])]
    left, status, deadline = dict(zip(pids, range(len(pids)), strict=True)), {}, None
    end = time.monotonic() + order["seconds"]
    while left:
        pid, code = os.waitpid(-1, os.WNOHANG)
        if pid in left:
            status[left.pop(pid)] = os.waitstatus_to_exitcode(code)
            if code:
                deadline = deadline or time.monotonic() + order["patience"]
            continue
        gone = bool(select.select([asked], [], [], 0)[0])
        if gone or time.monotonic() > min(end, deadline or end):
            _end(left)
            left.clear()
        time.sleep(0.002)
    return [status.get(index) for index in range(len(pids))]


def _end(pids: dict) -> None:
    """Have processes write where they wait, and end them with what they started."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGUSR1)
    time.sleep(_LAST_WORDS_S)
    for pid in pids:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork(order: dict, index: int) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        _die_with(parent)
        folder = Path(order["folder"])
        log = os.open(folder / f"{index}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for fd in (1, 2):
            os.dup2(log, fd)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(order["variables"])
        os.chdir(order["cwd"])
        _works[order["work"]](folder, index)
        code = 0
    except BaseException:  # noqa: BLE001  (the process ends here in any case; `rank` told what it was)
        pass
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def main(home: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(home / "orders"))
    listener.listen(256)
    gc.disable()
    for name in (*MODULES, *sys.argv[1:]):
        with contextlib.suppress(Exception):  # the process that needs it meets the error
            importlib.import_module(name)
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that serve
    me = os.getpid()
    while True:
        ready = select.select([listener, sys.stdin], [], [])[0]
        if sys.stdin in ready:
            os._exit(0)
        asked, _ = listener.accept()
        if os.fork() == 0:
            _die_with(me)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            try:
                serve(asked)
            finally:
                os._exit(0)
        asked.close()


if __name__ == "__main__":
    import arguments
    import rank
    import results
    import trained

    _works |= {"rank": rank.main, "trained": trained.main}
    _home = Path(sys.path.pop(0))
    for _own in (
        arguments,
        rank,
        results,
        trained,
    ):  # the owner's code may have modules of these names
        del sys.modules[_own.__name__]
    main(_home)
