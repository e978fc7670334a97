"""What ranks tell each other, over a process group of the guard's own, and who is left when that
fails."""

import contextlib
import json
import os
import socket
import time
import zlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from shardproof.synthesis.guard import private, wire
from shardproof.synthesis.guard.errors import GuardError

FIRST = 4096
"""Bytes of the one exchange a step that most steps need."""
HEAD = 32
STEPS = " (ranks whose optimizers step differently often: optimizers=False, and guard.step())"
GRACE = 2.0
"""Seconds that the living get to say so when an exchange failed."""


class Exchange:
    """An all-gather of bytes among all ranks. One at a time; every rank has to call it.

    Raises:
        GuardError: a rank did not come within `timeout` seconds, or is gone.
    """

    def __init__(self, timeout: float, note: dict[str, Any]) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.timeout = timeout
        self.number = 0
        self.group: Any = private.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self.store = private.store(f"shardproof-guard/{self.group.group_name}")
        self._digest = 0
        self._note = {"host": socket.gethostname(), "pid": os.getpid(), **note}
        self.people: list[dict[str, Any]] = []
        self.people = [
            json.loads(text) for text in self.gather(json.dumps(self._note).encode(), "the start")
        ]
        self.store = self.room(f"{self.people[0].get('run', 0):x}")

    def gather(self, payload: bytes, what: str) -> list[bytes]:
        """The payloads of all ranks, the same on every rank.

        Two ranks that got different bytes the time before are found out here.
        """
        self.number += 1
        head = np.array([len(payload), self._digest, self.number, 0], np.int64).tobytes()
        first = head + payload[: FIRST - HEAD]
        rows = self._all_gather(first.ljust(FIRST, b"\0"), FIRST, what)
        heads = [np.frombuffer(row[:HEAD], np.int64) for row in rows]
        told = {(int(h[1]), int(h[2])) for h in heads}
        if len(told) > 1:
            raise GuardError(
                f"rank {self.rank}, {what}: the ranks do not agree on what they exchanged before; "
                "the guard's own messages were changed, or ranks take its steps differently often"
            )
        sizes = [int(h[0]) for h in heads]
        rest = max(sizes) - (FIRST - HEAD)
        if rest > 0:
            more = self._all_gather(payload[FIRST - HEAD :].ljust(rest, b"\0"), rest, what)
            rows = [a + b for a, b in zip(rows, more, strict=True)]
        found = [row[HEAD : HEAD + size] for row, size in zip(rows, sizes, strict=True)]
        self._digest = _digest(found)
        return found

    def _all_gather(self, mine: bytes, size: int, what: str) -> list[bytes]:
        source = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        target = torch.empty(size * self.size, dtype=torch.uint8)
        try:
            wire.finish(wire.start_all_gather(target, source, self.group), target)
        except RuntimeError as error:
            raise GuardError(self.explain(f"{what} was not exchanged", error)) from None
        raw = target.numpy().tobytes()
        return [raw[i * size : (i + 1) * size] for i in range(self.size)]

    def close(self) -> None:
        """Destroy the guard's own process group, where the program did not destroy all."""
        if private.alive(self.group):
            dist.destroy_process_group(self.group)
        self.group = None

    def room(self, name: str) -> Any:
        """A part of the store."""
        return private.part(self.store, name)

    def tell(self, why: str) -> None:
        """Leave a reason for the ranks that this one will not speak to any more."""
        with contextlib.suppress(RuntimeError):
            self.store.set(f"why/{self.rank}", why)

    def explain(self, what: str, error: BaseException | None) -> str:
        """What happened, who is gone, and what others said before they went."""
        gone, silent = self._roll_call()
        reasons = self._reasons()
        gone = [r for r in gone if r not in reasons]
        text = f"rank {self.rank}: {what}"
        if gone:
            text += f"; {_ranks(gone)} died"
        elif silent and not reasons:
            text += f"; {_ranks(silent)} did not come within {self.timeout:.0f} s"
            text += STEPS if what.startswith("step ") else ""
        for rank, why in reasons.items():
            text += f"; rank {rank} said: {why}"
        if error is not None:
            text += f" ({str(error).strip().splitlines()[0][:160]})"
        return text

    def _reasons(self) -> dict[int, str]:
        found: dict[int, str] = {}
        with contextlib.suppress(RuntimeError):
            for rank in range(self.size):
                if rank != self.rank and self.store.check([f"why/{rank}"]):
                    found[rank] = self.store.get(f"why/{rank}").decode()
        return found

    def _roll_call(self) -> tuple[list[int], list[int]]:
        """(ranks whose process is gone, ranks that do not answer): the first by their process
        where they run on this host, the second where the store still works. It ends where one of
        them left a reason."""
        people = self.people
        others = [r for r in range(self.size) if r != self.rank]
        silent: list[int] = list(others)
        end = time.monotonic() + GRACE
        with contextlib.suppress(RuntimeError):
            self.store.set(f"here/{self.number}/{self.rank}", "1")
        while time.monotonic() < end and silent:
            gone = [r for r in others if people and _dead(people[r], self._note["host"])]
            if gone or self._reasons():
                return gone, []
            try:
                silent = [r for r in silent if not self.store.check([f"here/{self.number}/{r}"])]
            except RuntimeError:
                break
            time.sleep(0.05)
        return [], silent


def _digest(rows: list[bytes]) -> int:
    value = 0
    for row in rows:
        value = zlib.crc32(row, value)
    return value


def _ranks(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _dead(person: dict[str, Any], host: object) -> bool:
    """Whether a process of this host is gone, or a zombie."""
    if person["host"] != host:
        return False
    try:
        os.kill(int(person["pid"]), 0)
        state = Path(f"/proc/{person['pid']}/stat").read_text().rsplit(")", 1)[-1].split()[0]
    except ProcessLookupError:
        return True
    except (OSError, IndexError):
        return False
    return state in "ZX"
