"""A sampled call from its start to the moment its result may be read: what is hashed and kept."""

import functools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from shardproof.synthesis.guard import judge
from shardproof.synthesis.guard.calls import Call, Slot, Tensors
from shardproof.synthesis.guard.fingerprint.mix import key as make_key
from shardproof.synthesis.guard.words import add, flat_bytes, hash_flat, places, values

_FLOATS = {
    torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
}  # fmt: skip


def kind_of(tensors: Tensors) -> str:
    """How the elements of a sum round, `other` where that is not known here."""
    dtypes = {t.dtype for t in tensors}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.bool
    if dtype in _FLOATS:
        return _FLOATS[dtype]
    whole = not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool
    return f"i{dtype.itemsize}" if whole else "other"


def versions(tensors: Tensors) -> list[int]:
    """How often each was written to by ops; tensors of inference mode do not count that."""
    return [-1 if t.is_inference() else t._version for t in tensors]


@functools.lru_cache(maxsize=65536)
def slot_key(seed: int, slot: Slot) -> int:
    """The key of a piece: part, sender, receiver. A piece in another's place has another hash."""
    return make_key(seed, *slot)


@dataclass
class Flight:
    """One sampled call on this rank."""

    call: Call
    uid: int
    desc: int
    group: str
    me: int
    """This rank in the group."""
    ranks: tuple[int, ...]
    seq: int
    step: int
    seed: int
    work: Any = None
    result: Any = None
    done: bool = False
    task: int = -1
    """The backward pass that it was called in."""
    versions: list[int] = field(default_factory=list[int])
    sent: dict[Slot, Any] = field(default_factory=dict[Slot, Any])
    after: dict[Slot, Any] = field(default_factory=dict[Slot, Any])
    old: dict[Slot, Any] = field(default_factory=dict[Slot, Any])
    got: dict[Slot, Any] = field(default_factory=dict[Slot, Any])
    sums_hash: Any = 0
    inputs: torch.Tensor | None = None
    outputs: torch.Tensor | None = None
    kept: dict[str, Tensors] = field(default_factory=dict[str, Tensors])
    flags: int = 0
    local: dict[str, Any] = field(default_factory=dict[str, Any])
    """What this rank found by itself."""
    expected: Tensors | None = None
    """T3: the sums, known to the bit."""
    samples: int = 64

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def op(self) -> str:
        return "p2p" if self.call.op in ("send", "recv") else self.call.op

    def begin(self, keep: bool) -> None:
        """Hash what is sent and what lies in the places of what is received; sample the terms."""
        call = self.call
        self.versions = versions(call.tensors)
        self.sent = self._hashes(call.sent)
        if not self._overlap():
            self.old = self._hashes(call.got)
        if call.is_sum and kind_of(call.terms) != "other":
            self.inputs = self._sampled(call.terms, spread=call.op == "reduce_scatter")
        if keep:
            self.kept["sent"] = [t.detach().clone() for _, t in call.sent]
            self.kept["terms"] = [t.detach().clone() for t in call.terms]

    def finish(self, keep: bool, seen: bool) -> None:
        """Hash what arrived. `seen`: the wait itself was seen, so nothing can have changed since;
        else versions of the tensors say whether anything wrote to them."""
        if self.done:
            return
        self.done = True
        call = self.call
        still = self.versions == versions(call.tensors)
        if not seen and not still:
            self.flags |= judge.UNJUDGED
            return
        self.got = self._hashes(call.got)
        if call.sums:
            slots = [((part, 0, 0), t) for part, t in enumerate(call.sums)]
            self.sums_hash = functools.reduce(add, self._hashes(slots).values())
            if self.inputs is not None:
                self.outputs = self._sampled(call.sums)
            self._compare_exact()
        self._look_for_race()
        if keep:
            self.kept["got"] = [t.detach().clone() for _, t in call.got]
            self.kept["sums"] = [t.detach().clone() for t in call.sums]

    def give_up(self) -> None:
        """Nobody was seen to wait for it, so its result may not be there, or not any more."""
        self.done = True
        self.flags |= judge.UNJUDGED

    def _look_for_race(self) -> None:
        if not self.call.sent or self._overlap():  # H sees those
            return
        self.after = self._hashes(self.call.sent)
        if all(isinstance(v, int) for v in (*self.after.values(), *self.sent.values())):
            if self.after != self.sent:
                self.flags |= judge.RACE
            return
        pairs = zip(self.sent.values(), self.after.values(), strict=True)
        self.local["raced"] = [(a != b) for a, b in pairs]

    def _compare_exact(self) -> None:
        for t, want in zip(self.call.sums, self.expected or [], strict=False):
            zero = torch.zeros((), dtype=t.dtype, device=t.device)
            differ = flat_bytes(t + zero) != flat_bytes(want + zero)
            wrong = differ.reshape(t.numel(), t.element_size()).any(1)
            # which of two NaNs a sum keeps is open, and depends on the place in a vector register
            wrong &= ~(t.isnan() & want.isnan()).reshape(-1)
            if bool(wrong.any()):
                wrong = wrong.nonzero().reshape(-1)
                self.flags |= judge.WRONG
                first, last = int(wrong[0]), int(wrong[-1])
                self.local["span"] = [first, last + 1]
                self.local["fault"] = (
                    f"T3: {len(wrong)} of {t.numel()} elements are not the sum in the order of "
                    "the ranks"
                )

    def _hashes(self, items: list[tuple[Slot, torch.Tensor]]) -> dict[Slot, Any]:
        return {slot: hash_flat(t, slot_key(self.seed, slot)) for slot, t in items}

    def _overlap(self) -> bool:
        given = {t.untyped_storage().data_ptr() for _, t in self.call.sent}
        return any(t.untyped_storage().data_ptr() in given for _, t in self.call.got)

    def _sampled(self, tensors: Tensors, spread: bool = False) -> torch.Tensor:
        """Values at drawn places; of a reduce-scatter's input, the same places of every chunk."""
        found: list[torch.Tensor] = []
        each = max(1, self.samples // self.size)
        for part, t in enumerate(tensors):
            salt = make_key(self.uid, "samples", part)
            if self.op == "reduce_scatter":
                size = t.numel() // self.size if spread else t.numel()
                at = places(size, salt, each)
                rows = np.arange(self.size if spread else 1)[:, None] * size
                found.append(values(t, (rows + at[None, :]).reshape(rows.size, -1)))
            else:
                found.append(values(t, places(t.numel(), salt, self.samples)[None, :]))
        return torch.cat(found, dim=1).reshape(-1).cpu()

    def record(self) -> tuple[dict[str, int], bytes]:
        """The fields of the record and the samples behind it. Waits for the device."""
        if any(bool(x) for x in self.local.pop("raced", ())):
            self.flags |= judge.RACE
        inputs = b"" if self.inputs is None else self.inputs.numpy().tobytes()
        outputs = b"" if self.outputs is None else self.outputs.numpy().tobytes()
        got = self.sums_hash if self.call.sums else _sum(self.got.values())
        if self.call.got or self.call.sums:
            self.flags |= judge.GOT
        fields = {
            "uid": self.uid, "desc": self.desc, "sent": _sum(self.sent.values()),
            "got": int(got) & judge.MASK, "step": self.step, "seq": self.seq & 0xFFFFFFFF,
            "size": 2 if self.op == "p2p" else self.size, "me": self.me,
            "n_in": len(inputs) // 8, "n_out": len(outputs) // 8,
            "op": judge.OPS.index(self.op), "flags": self.flags,
            "kind": judge.KINDS.index(kind_of(self.call.terms)),
            "reduce": judge.REDUCED.index(self.call.reduce),
        }  # fmt: skip
        return fields, inputs + outputs

    def release(self) -> None:
        """Let go of the tensors and the Work of the call; what was kept stays."""
        self.work = self.result = self.expected = None
        self.call = replace(
            self.call,
            group=None,
            sent=[(slot, torch.empty(0)) for slot, _ in self.call.sent],
            got=[(slot, torch.empty(0)) for slot, _ in self.call.got],
            terms=[torch.empty(0, dtype=t.dtype) for t in self.call.terms],
            sums=[torch.empty(0, dtype=t.dtype) for t in self.call.sums],
        )

    @property
    def kept_bytes(self) -> int:
        return sum(t.nbytes for ts in self.kept.values() for t in ts)


def _sum(found: Any) -> int:
    return sum(int(v) & judge.MASK for v in found) & judge.MASK
