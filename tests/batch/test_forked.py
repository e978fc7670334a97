"""Jobs that are forked, and what becomes of them where the server is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile

import pytest

from shardproof.agent.batch import processes
from shardproof.agent.batch.forked import Warm

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def test_a_killed_server_costs_what_it_ran() -> None:
    warm = Warm(processes.environment(), ())
    with tempfile.TemporaryFile() as log:
        try:
            first = warm.fork("model.py:Net", log)
            assert first is not None
            assert first.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                first.wait(0.0)
            assert warm.server is not None
            os.kill(warm.server.process.pid, signal.SIGKILL)
            assert first.wait(20.0) == -signal.SIGKILL
            warm.server.process.wait(20.0)
            second = warm.fork("model.py:Net", log)
            assert second is not None
            second.stdin.write(b"{}\n")
            second.stdin.flush()
            assert second.wait(60.0) == 1
            third = warm.fork("model.py:Net", log)
            assert third is not None
            third.terminate()
            assert third.wait(20.0) == -signal.SIGTERM
            for process in (first, second, third):
                process.stdin.close()
                process.stdout.close()
        finally:
            warm.close()
        log.seek(0)
        assert b"validation errors for Order" in log.read()
