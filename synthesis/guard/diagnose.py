"""After a check failed: which ranks hold what is wrong, which elements, and what is there instead.

Members of the call send what they kept of it; every rank reads all answers and says the same.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from shardproof.synthesis.guard import judge, private
from shardproof.synthesis.guard.alarm import Alarm
from shardproof.synthesis.guard.calls import EVERYONE, Slot
from shardproof.synthesis.guard.fingerprint.outcome import Verdict
from shardproof.synthesis.guard.flights import Flight, kind_of
from shardproof.synthesis.guard.judge import Suspect
from shardproof.synthesis.guard.words import flat_bytes

PARTS = ("sent", "got", "terms", "sums")
MOST = 1 << 24
"""Bytes of a call that a rank sends for a diagnosis; of a larger one hashes alone are compared."""


@dataclass
class Answer:
    """What one member says of the call."""

    rank: int
    data: dict[str, Any]
    tensors: dict[str, list[torch.Tensor]]

    def pieces(self, name: str) -> dict[Slot, tuple[str, torch.Tensor | None]]:
        """{slot: (hash, its data where it was kept)} of what was sent or received."""
        rows: list[Any] = self.data[name]
        kept: list[torch.Tensor | None] = [*self.tensors.get(name, [])]
        kept += [None] * (len(rows) - len(kept))
        return {(r[0], r[1], r[2]): (r[3], t) for r, t in zip(rows, kept, strict=False)}


def answer(flight: Flight | None) -> bytes:
    """What this rank has to say of a call: JSON, a zero byte, then the bytes of its tensors."""
    if flight is None:
        return b"null\0"
    shown = flight.kept if flight.kept_bytes <= MOST else {}
    tensors = [(name, t) for name in PARTS for t in shown.get(name, [])]
    data = {
        "text": flight.call.text(),
        "group": flight.group,
        "me": flight.me,
        "ranks": list(flight.ranks),
        "reduce": flight.call.reduce,
        "sent": [[*s, _hex(v)] for s, v in flight.sent.items()],
        "got": [[*s, _hex(v)] for s, v in flight.got.items()],
        "old": [[*s, _hex(v)] for s, v in flight.old.items()],
        "sums": _hex(flight.sums_hash),
        "local": {k: v for k, v in flight.local.items() if k != "raced"},
        "tensors": [[n, str(t.dtype).removeprefix("torch."), t.numel()] for n, t in tensors],
    }
    raw = b"".join(flat_bytes(t).cpu().numpy().tobytes() for _, t in tensors)
    return json.dumps(data).encode() + b"\0" + raw


def _hex(value: Any) -> str:
    return f"{int(value) & judge.MASK:016x}"


def _read(rank: int, raw: bytes) -> Answer | None:
    head, _, rest = raw.partition(b"\0")
    data = json.loads(head)
    if data is None:
        return None
    tensors: dict[str, list[torch.Tensor]] = {}
    at = 0
    for name, dtype, count in data["tensors"]:
        kind = getattr(torch, dtype)
        size = count * kind.itemsize
        buffer = bytearray(rest[at : at + size])
        t = torch.frombuffer(buffer, dtype=kind) if size else torch.empty(0, dtype=kind)
        tensors.setdefault(name, []).append(t)
        at += size
    return Answer(rank, data, tensors)


def diagnose(suspect: Suspect, rows: Sequence[bytes]) -> Alarm:
    """The alarm for a suspect, from the answers of all ranks."""
    read = [_read(rank, raw) for rank, raw in enumerate(rows)]
    found = {a.rank: a for a in read if a is not None and a.rank in suspect.ranks}
    if suspect.check == "D":
        verdict = _descriptors(suspect, found)
    elif suspect.check == "pre/post":
        verdict = _race(suspect, found)
    elif suspect.check == "local":
        verdict = _local(suspect, found)
    elif suspect.check == "H":
        verdict = _movement(suspect, found)
    else:
        verdict = _sum(suspect, found)
    some = next(iter(found.values()), None)
    group = some.data["group"] if some else "?"
    ranks = tuple(some.data["ranks"]) if some else suspect.ranks
    return Alarm(suspect.step, suspect.seq, group, ranks, verdict)


def _failed(
    s: Suspect,
    expected: str,
    actual: str,
    culprits: Sequence[int],
    span: tuple[int, int] | None,
    fault: str,
    check: str = "",
) -> Verdict:
    who = tuple(sorted(set(culprits)))
    return Verdict("failed", s.op, check or s.check, expected, actual, who, span, fault)


def _descriptors(s: Suspect, found: Mapping[int, Answer]) -> Verdict:
    said = {rank: a.data["text"] for rank, a in found.items()}
    good = next((r for r in s.ranks if r not in s.odd), s.ranks[0])
    bad = s.odd[0] if s.odd else next(r for r in s.ranks if said.get(r) != said.get(good))
    return _failed(
        s, f"{said.get(good)} on rank {good}", f"{said.get(bad)} on rank {bad}", s.odd or s.ranks,
        None, "the ranks are in different calls",
    )  # fmt: skip


def _race(s: Suspect, found: Mapping[int, Answer]) -> Verdict:
    return _failed(
        s, "a buffer left alone until the wait", "other bits at the wait than at the call", s.odd,
        None, f"race: rank {s.odd[0]} wrote its send buffer while it was sent",
    )  # fmt: skip


def _local(s: Suspect, found: Mapping[int, Answer]) -> Verdict:
    bad = found.get(s.odd[0])
    local: dict[str, Any] = bad.data["local"] if bad else {}
    span = tuple(local["span"]) if "span" in local else None
    culprits = local.get("culprits", list(s.odd))
    return _failed(
        s, local.get("expected", "what was known before"), local.get("actual", "other bits"),
        culprits, span, f"rank {s.odd[0]}: {local.get('fault', '')}", local.get("check", "T3"),
    )  # fmt: skip


def _movement(s: Suspect, found: Mapping[int, Answer]) -> Verdict:
    by_place = {a.data["me"]: a for a in found.values()}
    sent = {slot: item for a in found.values() for slot, item in a.pieces("sent").items()}
    wrong: list[tuple[Answer, Slot]] = []
    for _, a in sorted(by_place.items()):
        for slot, (value, _) in a.pieces("got").items():
            if slot not in sent or sent[slot][0] != value:
                wrong.append((a, slot))
    if not wrong:
        return _failed(s, "", "", s.ranks, None, "the pieces are right, their sum is not")
    culprits: list[int] = []
    for slot in dict.fromkeys(slot for _, slot in wrong):
        sender = slot[1]
        others = [a for a in found.values() if slot in a.pieces("got") and a.data["me"] != sender]
        bad = [a for a, at in wrong if at == slot]
        values = {a.pieces("got")[slot][0] for a in bad}
        same = slot[2] == EVERYONE and len(others) > 1 and len(values) == 1
        if same and {a.rank for a in others} <= {a.rank for a in bad} and sender in by_place:
            culprits.append(by_place[sender].rank)
        else:
            culprits += [a.rank for a in bad]
    spans = [_span(a, slot, sent) for a, slot in wrong]
    a, slot = wrong[0]
    expected = sent[slot][0] if slot in sent else "nothing sent"
    return _failed(
        s, f"{expected}", a.pieces("got")[slot][0], culprits,
        (min(x for x, _ in spans), max(y for _, y in spans)), _what_is_there(a, slot, sent, s),
    )  # fmt: skip


Sent = Mapping[Slot, tuple[str, torch.Tensor | None]]


def _offset(pieces: Sent, slot: Slot) -> int:
    """Elements in front of a piece; the order is by part, then by sender."""
    before = [p for p in pieces if (p[0], p[1]) < (slot[0], slot[1])]
    return sum(t.numel() for p in before if (t := pieces[p][1]) is not None)


def _span(a: Answer, slot: Slot, sent: Sent) -> tuple[int, int]:
    """The elements of what rank `a` received that differ; all of it where it was not kept."""
    pieces = a.pieces("got")
    offset = _offset(pieces, slot)
    got, want = pieces[slot][1], sent[slot][1] if slot in sent else None
    if got is None:
        return 0, 0
    at = _differing(got, want) if want is not None else np.arange(got.numel())
    if not len(at):
        return offset, offset + got.numel()
    return offset + int(at[0]), offset + int(at[-1]) + 1


def _differing(a: torch.Tensor, b: torch.Tensor) -> np.ndarray[Any, Any]:
    if a.numel() != b.numel() or a.dtype != b.dtype or not a.numel():
        return np.arange(a.numel())
    rows = (flat_bytes(a) != flat_bytes(b)).reshape(a.numel(), -1).any(1)
    return np.flatnonzero(rows.numpy())


def _what_is_there(a: Answer, slot: Slot, sent: Sent, s: Suspect) -> str:
    sender = a.data["ranks"][slot[1]]
    place = f"rank {a.rank}, where the piece of rank {sender} belongs, has"
    got = a.pieces("got")[slot]
    old = {(r[0], r[1], r[2]): r[3] for r in a.data["old"]}.get(slot)
    if slot not in sent:
        return f"{place} a message that rank {sender} did not send in this call"
    data, want = got[1], sent[slot][1]
    if data is not None:
        for other, (_, theirs) in sent.items():
            if other == slot or theirs is None or theirs.numel() != data.numel():
                continue
            if theirs.dtype == data.dtype and torch.equal(flat_bytes(theirs), flat_bytes(data)):
                return f"{place} the piece of rank {a.data['ranks'][other[1]]}"
        if not torch.any(flat_bytes(data)):
            return f"{place} zeros: the piece was dropped"
    if old is not None and old == got[0]:
        return f"{place} what was there before the call: stale, nothing was written"
    if data is not None and want is not None and want.numel() == data.numel():
        return f"{place} {_flips(data, want)}"
    return f"{place} other bits than were sent"


def _flips(data: torch.Tensor, want: torch.Tensor) -> str:
    bits = np.bitwise_xor(flat_bytes(data).numpy(), flat_bytes(want).numpy())
    count = int(np.sum(np.bitwise_count(bits)))
    at = _differing(data, want)
    if count == 1:
        return f"1 bit flipped, in element {int(at[0])} of the piece"
    return f"{len(at)} of {data.numel()} elements changed ({count} bits): another message, or bits"


def _floats(t: torch.Tensor) -> np.ndarray[Any, Any]:
    if t.dtype.is_floating_point:
        return t.to(torch.float64).numpy()
    return t.to(torch.int64).view(torch.float64).numpy()


def _sum(s: Suspect, found: Mapping[int, Answer]) -> Verdict:
    order = sorted(found.values(), key=lambda a: a.data["me"])
    how = order[0].data["reduce"]
    held = [a for a in order if a.tensors.get("sums")]
    complete = len(order) == len(s.ranks) and all(a.tensors.get("terms") for a in order)
    odd = s.odd or s.ranks
    if not complete or not held:
        return _failed(
            s, "equal copies of the sum", "", odd, None,
            "the ranks' results differ" if s.check == "R" else "no sum of the inputs",
        )  # fmt: skip
    bad: list[tuple[Answer, int, np.ndarray[Any, Any]]] = []
    offset = 0
    for part, first in enumerate(order[0].tensors["terms"]):
        for a in held:
            wrong = _wrong_elements(_terms(s, order, a, part), a.tensors["sums"][part], how)
            if len(wrong):
                bad.append((a, part, wrong + offset))
        offset += first.numel()
    if not bad and s.check == "R":
        return _replicas(s, held)
    if not bad:
        return _failed(s, "", "", odd, None, "no sum of the inputs, at sampled places")
    a, part, wrong = bad[0]
    culprits = [b.rank for b, _, _ in bad]
    fault, named = "", None
    if {b.rank for b in held} <= set(culprits):
        fault, named = _common_cause(s, order, bad)
    if named is not None:
        culprits = [named]
    else:
        fault = _explain_sum(s, order, a, part)
    span = (min(int(w[0]) for _, _, w in bad), max(int(w[-1]) for _, _, w in bad) + 1)
    return _failed(
        s, "the sum of the inputs", f"{len(wrong)} elements that are not, on rank {a.rank}",
        culprits, span, fault,
    )  # fmt: skip


def _wrong_elements(terms: list[torch.Tensor], y: torch.Tensor, how: str) -> np.ndarray[Any, Any]:
    """Elements that no order of addition gives; for two terms, that are not their rounded sum."""
    kind = kind_of([y])
    if how not in judge.SUMMABLE or kind == "other":
        return np.arange(0)
    if len(terms) == 2 and how == "sum":
        return _differing(y + 0, terms[0] + terms[1] + 0)
    x = np.stack([_floats(t) for t in terms])
    return np.flatnonzero(judge.misfits(x, _floats(y), how, kind))


def _replicas(s: Suspect, held: list[Answer]) -> Verdict:
    """Copies that differ by less than rounding: the majority is right."""
    good = next((a for a in held if a.rank not in s.odd), held[0])
    bad = next((a for a in held if a.data["sums"] != good.data["sums"]), held[-1])
    pairs = zip(good.tensors["sums"], bad.tensors["sums"], strict=True)
    at = np.concatenate([_differing(x, y) for x, y in pairs])
    span = (int(at.min()), int(at.max()) + 1) if len(at) else None
    return _failed(
        s, good.data["sums"], bad.data["sums"], s.odd or s.ranks, span,
        "the copies of the ranks differ by less than rounding may",
    )  # fmt: skip


def _terms(s: Suspect, order: list[Answer], a: Answer, part: int) -> list[torch.Tensor]:
    """What each member gave to the sum that rank `a` holds."""
    terms = [b.tensors["terms"][part] for b in order]
    if s.op == "reduce_scatter":
        terms = [t.reshape(len(order), -1)[a.data["me"]] for t in terms]
    return terms


def _shares(s: Suspect, order: list[Answer], a: Answer, part: int) -> np.ndarray[Any, Any]:
    """The same as numbers [members, elements]."""
    return np.stack([_floats(t) for t in _terms(s, order, a, part)])


def _room(x: np.ndarray[Any, Any], y: torch.Tensor) -> np.ndarray[Any, Any]:
    slack = 1e-2 if y.dtype in (torch.bfloat16, torch.float16) else 1e-4
    return slack * np.sum(np.abs(x), axis=0) + 1e-30


Bad = Sequence[tuple[Answer, int, np.ndarray[Any, Any]]]


def _common_cause(s: Suspect, order: list[Answer], bad: Bad) -> tuple[str, int | None]:
    """One rank whose share, left out or counted twice, explains what every member holds."""
    for k, b in enumerate(order):
        for times, what in ((-1, "missing from"), (1, "counted twice in")):
            fits = True
            for a, part, _ in bad:
                y = a.tensors["sums"][part]
                if not y.dtype.is_floating_point:
                    return "", None
                x = _shares(s, order, a, part)
                got = _floats(y) * (len(x) if a.data["reduce"] == "avg" else 1)
                off = np.abs(got - np.sum(x, axis=0) - times * x[k])
                fits = fits and bool(np.all(off <= _room(x, y)))
            if fits:
                return f"the share of rank {b.rank} is {what} the sum of every rank", b.rank
    return "", None


def _explain_sum(s: Suspect, order: list[Answer], a: Answer, part: int) -> str:
    """The one mistake that gives what this rank has."""
    y, where = a.tensors["sums"][part], f"rank {a.rank} has"
    if not y.dtype.is_floating_point:
        return f"{where} no sum of the inputs"
    x = _shares(s, order, a, part)
    share = len(x) if a.data["reduce"] == "avg" else 1
    total, got, room = np.sum(x, axis=0) / share, _floats(y), _room(x, y)

    def close(guess: np.ndarray[Any, Any]) -> bool:
        return bool(np.all(np.abs(got - guess) <= room))

    if not np.any(got):
        return f"{where} zeros: the result was dropped"
    for b, term in zip(order, x, strict=True):
        if np.array_equal(got, term):
            whose = "its own share" if b is a else f"the share of rank {b.rank}"
            return f"{where} {whose}: not reduced"
    for b, term in zip(order, x, strict=True):
        if close(total - term / share):
            return f"{where} a sum without rank {b.rank}"
        if close(total + term / share):
            return f"{where} a sum with rank {b.rank} counted twice"
    for text, guess in (("an average", total / len(x)), ("the sum reduced twice", total * len(x))):
        if close(guess):
            return f"{where} {text}"
    off = np.flatnonzero(_differing(y, private.tensor(total).to(y.dtype)))
    return f"{where} {len(off)} of {len(got)} elements other than the rounded sum"
