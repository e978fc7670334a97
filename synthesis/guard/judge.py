"""What ranks report of the calls they sampled, and which calls cannot have gone well.

Every rank gets the reports of all ranks and judges them alike, so all come to one verdict.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardproof.synthesis.guard.fingerprint.floats import FORMATS
from shardproof.synthesis.guard.fingerprint.mix import MASK
from shardproof.synthesis.guard.fingerprint.sums import lost

OPS = (
    "all_gather", "broadcast", "all_to_all", "scatter", "gather", "p2p", "all_reduce", "reduce",
    "reduce_scatter", "canary",
)  # fmt: skip
EACH = ("all_gather", "broadcast")
"""Every rank receives all that was sent."""
TOTAL = ("all_to_all", "scatter", "gather", "p2p")
"""What was sent is received once."""
SUMS = ("all_reduce", "reduce", "reduce_scatter")
KINDS = ("i1", "i2", "i4", "i8", "f16", "bf16", "f32", "f64", "other")
REDUCED = ("", "sum", "avg", "min", "max", "product", "band", "bor", "bxor", "premul_sum")

GOT = 1
"""The hash of what was received is there."""
RACE = 2
"""The send buffer was written between the call and its wait."""
WRONG = 4
"""The rank itself knows that something is wrong; what, it says when asked."""
UNJUDGED = 8
"""The rank could not look at the result before it may have changed."""

RECORD = np.dtype(
    [
        ("uid", "<u8"), ("desc", "<u8"), ("sent", "<u8"), ("got", "<u8"), ("step", "<u4"),
        ("seq", "<u4"), ("size", "<u4"), ("me", "<u4"), ("n_in", "<u4"), ("n_out", "<u4"),
        ("op", "u1"), ("flags", "u1"), ("kind", "u1"), ("reduce", "u1"),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """One rank's word on one call."""

    rank: int
    row: Any
    inputs: np.ndarray[Any, Any]
    """Sampled terms of a sum."""
    outputs: np.ndarray[Any, Any]
    """The sum at those places, where this rank has it."""

    @property
    def flags(self) -> int:
        return int(self.row["flags"])


@dataclass(frozen=True)
class Suspect:
    """A call that failed a check."""

    uid: int
    check: str
    """`D`, `H`, `pre/post`, `R`, `T2`, `local`."""
    ranks: tuple[int, ...]
    """Global ranks of the members, in the order of the group."""
    odd: tuple[int, ...]
    """Global ranks that the check itself points at; may be empty."""
    op: str
    step: int
    seq: int


def pack(rows: Sequence[tuple[dict[str, int], bytes]]) -> bytes:
    """Records and their samples as bytes: the number of records, the records, the samples."""
    table = np.zeros(len(rows), RECORD)
    for i, (fields, _) in enumerate(rows):
        table[i] = tuple(fields[name] for name in RECORD.names or ())
    tail = b"".join(blob for _, blob in rows)
    return np.array([len(rows)], "<u8").tobytes() + table.tobytes() + tail


def unpack(rank: int, data: bytes) -> list[Report]:
    """What `pack` wrote on that rank. Raises ValueError where it is cut short."""
    count = int(np.frombuffer(data[:8], "<u8")[0])
    end = 8 + count * RECORD.itemsize
    table = np.frombuffer(data[8:end], RECORD)
    tail = np.frombuffer(data[end:], "<f8")
    out: list[Report] = []
    at = 0
    for row in table:
        n, m = int(row["n_in"]), int(row["n_out"])
        out.append(Report(rank, row, tail[at : at + n], tail[at + n : at + n + m]))
        at += n + m
    if len(table) != count or at != len(tail):
        raise ValueError(f"records of rank {rank}: {len(data)} bytes for {count} records")
    return out


class Ledger:
    """Reports that wait for those of the other members: a receive may be judged a step later."""

    def __init__(self, patience: int = 4) -> None:
        self.patience = patience
        self.judged = 0
        self.unjudged = 0
        self._open: dict[int, tuple[int, list[Report]]] = {}

    def take(self, rows: Iterable[bytes]) -> list[Suspect]:
        """Judge what is complete; the suspects, in an order that is the same on all ranks."""
        for rank, data in enumerate(rows):
            for report in unpack(rank, data):
                self._open.setdefault(int(report.row["uid"]), (0, []))[1].append(report)
        suspects: list[Suspect] = []
        for uid, (age, reports) in sorted(self._open.items()):
            if len(reports) < int(reports[0].row["size"]):
                self._open[uid] = (age + 1, reports)
                if age >= self.patience:
                    self.unjudged += 1
                    del self._open[uid]
                continue
            del self._open[uid]
            found = judge(uid, reports)
            if found is None:
                skipped = any(r.flags & UNJUDGED for r in reports)
                self.judged += not skipped
                self.unjudged += skipped
            else:
                self.judged += 1
                suspects.append(found)
        return sorted(suspects, key=lambda s: (s.step, s.seq, s.uid))

    def waiting(self) -> int:
        """How many calls lack the word of a member."""
        return len(self._open)


def judge(uid: int, reports: Sequence[Report]) -> Suspect | None:
    """The first check that fails, cheapest first: D, flags, H or R, T2."""
    reports = sorted(reports, key=lambda r: int(r.row["me"]))
    first = reports[0].row
    op: str = OPS[int(first["op"])]

    def suspect(check: str, odd: Iterable[int] = ()) -> Suspect:
        members = tuple(r.rank for r in reports)
        return Suspect(uid, check, members, tuple(odd), op, int(first["step"]), int(first["seq"]))

    if op == "p2p" and any(r.flags & UNJUDGED for r in reports):
        return None  # the two may speak of different messages
    descs = [int(r.row["desc"]) for r in reports]
    if len(set(descs)) > 1:
        return suspect("D", _minority(reports, descs))
    if raced := [r.rank for r in reports if r.flags & RACE]:
        return suspect("pre/post", raced)
    if wrong := [r.rank for r in reports if r.flags & WRONG]:
        return suspect("local", wrong)
    if any(r.flags & UNJUDGED for r in reports):
        return None
    sent = sum(int(r.row["sent"]) for r in reports) & MASK
    held = [r for r in reports if r.flags & GOT]
    got = reported(held)
    if op in EACH and any(g != sent for g in got):
        return suspect("H")
    if op in TOTAL and sum(got) & MASK != sent:
        return suspect("H")
    if op == "all_reduce" and len(set(got)) > 1:
        return suspect("R", _minority(held, got))
    if op in SUMS and (bad := bad_sums(op, reports)):
        return suspect("T2", bad)
    return None


def reported(held: Sequence[Report]) -> list[int]:
    """The hashes of what these ranks received, as they say themselves."""
    return [int(r.row["got"]) for r in held]


def _minority(reports: Sequence[Report], values: Sequence[int]) -> tuple[int, ...]:
    for value in values:
        if 2 * values.count(value) > len(values):
            return tuple(r.rank for r, v in zip(reports, values, strict=True) if v != value)
    return ()


def bad_sums(op: str, reports: Sequence[Report]) -> tuple[int, ...]:
    """Ranks whose sampled results are no sum of the sampled inputs."""
    row = reports[0].row
    how, kind = REDUCED[int(row["reduce"])], KINDS[int(row["kind"])]
    inputs = [r.inputs for r in reports]
    if how not in SUMMABLE or kind == "other" or len({len(x) for x in inputs}) > 1:
        return ()
    terms = np.stack(inputs)
    bad: list[int] = []
    for place, report in enumerate(reports):
        y, x = report.outputs, terms
        if not len(y):
            continue
        if op == "reduce_scatter":
            x = terms.reshape(len(reports), len(reports), -1)[:, place]
        if np.any(misfits(x, y, how, kind)):
            bad.append(report.rank)
    return tuple(bad)


SUMMABLE = ("sum", "avg", "min", "max")


def misfits(
    x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], how: str, kind: str
) -> np.ndarray[Any, np.dtype[np.bool]]:
    """Where y [places] cannot be the reduction of x [ranks, places].

    For floats |y - sum x| <= (g + (n + 4) 2^-53) sum |x|, g = nu / (1 - nu), whatever the order of
    addition (Higham, Accuracy and Stability, 4.2), the second term for our own sum; an average
    rounds twice more. Sums of integers, minima and maxima are exact. Places with infinities, NaNs
    or a possible overflow are not judged.
    """
    n = len(x)
    with np.errstate(all="ignore"):
        if kind.startswith("i"):
            a, b = x.view(np.int64), y.view(np.int64)
            if how == "avg":
                return np.zeros(y.shape, np.bool)
            exact = {"sum": np.sum, "min": np.min, "max": np.max}[how](a, axis=0)
            if how == "sum" and kind != "i8":  # narrow integers wrap: compare what they keep
                return (exact - b) & ((1 << 8 * int(kind[1])) - 1) != 0
            return exact != b
        form = FORMATS[kind]
        size = np.sum(np.abs(x), axis=0)
        legible = np.isfinite(size) & (size * (1 + form.gamma(n)) < form.largest)
        if how in ("min", "max"):
            exact = np.min(x, axis=0) if how == "min" else np.max(x, axis=0)
            return legible & (exact != y)
        average = how == "avg"
        share = n if average else 1
        wanted = np.sum(x, axis=0) / share
        bound = (form.gamma(n + 2 * average) + (n + 4) * 2.0**-53) * size / share
        bound += lost(form, n, average, flushes=True)
        return legible & ~(np.abs(y - wanted) <= bound)
