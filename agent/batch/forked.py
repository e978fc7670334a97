"""Processes of jobs, forked from one that has imported what every job does."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from shardproof.synthesis.execute.run import launcher
from shardproof.synthesis.frontends.torch.process import NUMBER, Server, end_session, shared

ENTRY = "shardproof.agent.batch.worker:forked"
IMPORTED = (
    "shardproof.agent.batch.worker",
    "shardproof.agent.pipeline.pipeline",
    "shardproof.agent.translation.command",
    "shardproof.agent.report:compile_templates",
    "shardproof.synthesis.frontends.torch.captured",
    "highspy",
    "shardproof.verifier.checker",
    "shardproof.verifier.checker.conclusion",
    "shardproof.verifier.checker.rewritten",
    "shardproof.verifier.provers.cross_entropy",
    "shardproof.verifier.smt.answers",
)
"""What every job imports."""


class Forked:
    """A process that a server forked, in a session of its own; used as `subprocess.Popen` is."""

    def __init__(self, server: Server, target: str, log: IO[bytes]) -> None:
        """`target`: what it is about; it is given a server that has imported what that needs.

        Raises:
            ConnectionError: the server was ended.
        """
        self.args = ENTRY
        self.returncode: int | None = None
        self.control, theirs = socket.socketpair()
        given, stdin = os.pipe()
        stdout, told = os.pipe()
        order: dict[str, object] = {"entry": ENTRY, "folder": "", "cwd": str(Path.cwd())}
        library = "transformers" if target.startswith("hf:") else ""
        order |= {"variables": launcher.shared(library), "limits": None}
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        try:
            with theirs:
                self.control.sendall(json.dumps(order).encode() + b"\n")
                streams = [theirs.fileno(), told, log.fileno(), given, shared(target)]
                with contextlib.suppress(ConnectionError):  # it was ended: the job's socket tells
                    socket.send_fds(server.control, [b"j"], streams)
        finally:
            os.close(given)
            os.close(told)
        data = self.control.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(data) < NUMBER.size:
            self.control.close()
            self.stdin.close()
            self.stdout.close()
            raise ConnectionResetError("the server was ended")
        (self.pid,) = NUMBER.unpack(data)

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        return self._heard(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended. Raises subprocess.TimeoutExpired."""
        code = self._heard(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def terminate(self) -> None:
        """Tell it to end."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def _heard(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self.control], [], [], timeout)[0]:
            data = self.control.recv(NUMBER.size, socket.MSG_WAITALL)
            if len(data) == NUMBER.size:
                self.returncode = os.waitstatus_to_exitcode(NUMBER.unpack(data)[0])
            else:  # the server was ended: nobody else does
                end_session(self.pid)
                self.returncode = -signal.SIGKILL
            self.control.close()
        return self.returncode


class Warm:
    """Forks processes from a server, which is begun when the first is."""

    def __init__(self, variables: Mapping[str, str], held: tuple[int, ...]) -> None:
        self.variables, self.held = variables, held
        self.server: Server | None = None

    def fork(self, target: str, log: IO[bytes]) -> Forked | None:
        """The process of a job, or None where there is no server to fork it."""
        if self.server is not None and not self.server.usable():
            self.close()
        if self.server is None:
            self.server = Server(IMPORTED, lambda: dict(self.variables), self.held)
        try:
            return Forked(self.server, target, log)
        except ConnectionError:
            return None

    def close(self) -> None:
        """End the server, and with it what it runs."""
        if self.server is not None:
            self.server.close()
            self.server = None
