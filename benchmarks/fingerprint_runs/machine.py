"""Who moves and adds the pieces of a run: numpy in this process, or processes that talk by gloo.

A machine is called with the name of an op, the pieces of the ranks of one group (None where a rank
holds none), and the op's attributes; it gives what each of them holds afterwards. The ops are those
of programs: all_gather (dim), all_to_all (split_dim, concat_dim), all_reduce and reduce_to
(reduce), reduce_scatter (dim, reduce), send (src, dst), broadcast (index), ring_shift (shift), and
others that move.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, cast

from shardproof.synthesis.frontends.torch.process import environment
from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, integer
from shardproof.synthesis.guard.fingerprint.exact import ordered_sum
from shardproof.synthesis.guard.fingerprint.region import Array
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.ops import facets

Given = Sequence[Array | None]
ROOT = Path(__file__).resolve().parents[2]
WORKER = "benchmarks.fingerprint_runs.gloo"
"""The program of one rank; torch is known there."""


class Machine(Protocol):
    """Anything that runs collectives."""

    def __call__(
        self, op: str, given: Given, group: Sequence[int], attrs: Mapping[str, Any]
    ) -> list[Array | None]:
        """What each rank of the group holds after the op."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...


class Simulated:
    """All ranks in this process: ops do what they mean; sums add in the order of the ranks."""

    def __call__(
        self, op: str, given: Given, group: Sequence[int], attrs: Mapping[str, Any]
    ) -> list[Array | None]:
        terms = [x for x in given if x is not None]
        if op == "all_reduce" and attrs.get("reduce", "sum") == "sum" and len(terms) == len(given):
            return [ordered_sum(terms)] * len(given)
        found = lookup(op)
        return list(facets(op).meaning(Floats(), list(given), **found.with_defaults(dict(attrs))))

    def close(self) -> None:
        """Nothing to end."""


class Processes:
    """One process a rank, which exchange over gloo on this host.

    Raises:
        FingerprintError: the processes do not start (no torch?), or one of them fails; it says
            which and what it said last.
    """

    def __init__(self, n_ranks: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fingerprints-")
        folder = Path(self._folder.name)
        self._said = [folder / f"rank{rank}.log" for rank in range(n_ranks)]
        self._ranks: list[subprocess.Popen[bytes]] = []
        for rank, log in enumerate(self._said):
            command = [sys.executable, "-m", WORKER, str(rank), str(n_ranks), str(folder / "meet")]
            with log.open("wb") as errors:
                self._ranks.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=errors,
                        cwd=ROOT,
                        env=environment() | {"GLOO_SOCKET_IFNAME": "lo"},
                    )
                )
        self._groups: set[tuple[int, ...]] = {tuple(range(n_ranks))}
        try:
            self._answers(range(n_ranks))
        except FingerprintError:
            self.close()
            raise

    def __call__(
        self, op: str, given: Given, group: Sequence[int], attrs: Mapping[str, Any]
    ) -> list[Array | None]:
        members = tuple(group)
        if len(members) == 1:
            return Simulated()(op, given, group, attrs)
        if members not in self._groups:
            self._groups.add(members)
            everyone = range(len(self._ranks))
            self._tell(everyone, [("new group", members)] * len(self._ranks))
            self._answers(everyone)
        like = next(x for x in given if x is not None)
        form = (like.shape, like.dtype.str)
        plain = {k: v for k, v in attrs.items() if isinstance(v, (str, int))}
        self._tell(members, [(op, members, x, form, plain) for x in given])
        return cast("list[Array | None]", self._answers(members))

    def _tell(self, ranks: Sequence[int], messages: Sequence[object]) -> None:
        for rank, message in zip(ranks, messages, strict=True):
            pipe = cast("IO[bytes]", self._ranks[rank].stdin)
            try:
                pickle.dump(message, pipe)
                pipe.flush()
            except OSError:
                raise self._ended(rank) from None

    def _answers(self, ranks: Sequence[int]) -> list[object]:
        found: list[object] = []
        for rank in ranks:
            try:
                good, value = pickle.load(cast("IO[bytes]", self._ranks[rank].stdout))
            except (EOFError, OSError, pickle.UnpicklingError):
                raise self._ended(rank) from None
            if not good:
                raise FingerprintError(f"backend gloo, rank {rank}: {value}")
            found.append(value)
        return found

    def _ended(self, rank: int) -> FingerprintError:
        lines = self._said[rank].read_text(errors="replace").strip().splitlines()
        last = lines[-1] if lines else "it said nothing"
        return FingerprintError(f"backend gloo: rank {rank} ended: {last:.200}")

    def close(self) -> None:
        """Ends the processes, with their calls."""
        for process in self._ranks:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with_no_reader_left(pipe)
        self._folder.cleanup()


def with_no_reader_left(pipe: IO[bytes]) -> None:
    """Closes a pipe whose other end is gone."""
    try:
        pipe.close()
    except OSError:
        return


def start(backend: str, n_ranks: int) -> Machine:
    """A machine by its name, `sim` or `gloo`. Raises FingerprintError on another name."""
    n_ranks = integer(n_ranks, "n_ranks", 1)
    if backend == "sim":
        return Simulated()
    if backend == "gloo":
        return Processes(n_ranks)
    raise FingerprintError(f"backend {backend!r}; sim or gloo")
