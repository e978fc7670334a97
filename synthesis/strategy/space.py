"""The space of training configurations: which degrees, batches and schedules a plan may have.

Ranks are placed with tp innermost, then cp, dp and pp; experts lie along consecutive ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from shardproof.synthesis.price.constants import Machine
from shardproof.synthesis.price.model import Model
from shardproof.synthesis.price.plan import Plan

RECOMPUTE = ("none", "selective", "full")
FIXED = {
    **dict.fromkeys(("tp", "cp", "ep", "pp", "dp", "micro_batch", "zero", "shard", "vp"), ()),
    "recompute": RECOMPUTE,
    "schedule": ("1f1b", "zb-1p", "zb-2p", "dualpipe"),
}
"""What of a plan can be fixed: a number, or one of these words. `shard`: over how many ranks of dp
ZeRO splits the states; each such group holds one copy."""


class Region(NamedTuple):
    """Plans that differ in recomputation, ZeRO and schedule alone."""

    tp: int
    cp: int
    ep: int
    pp: int
    dp: int
    micro_batch: int

    @property
    def degrees(self) -> tuple[int, ...]:
        return self[:5]


@dataclass(frozen=True)
class Space:
    """All plans for a model on a machine, for the same tokens in a step.

    `global_batch` and micro-batches are in sequences of `seq` tokens.
    """

    machine: Machine
    model: Model
    gpus: int
    global_batch: int
    seq: int
    precision: str = "bf16"
    reach: Literal["all", "step", "patch", "launcher"] = "all"
    """`patch`: only what a patch can do: tp, cp by heads, ZeRO-2 or 3 over all of dp and cp, ZeRO-3
    in groups of dp, and recomputation.
    `launcher`: stages in 1F1B too, without cp, of as many micro-batches at least.
    `step`: as far as whole training steps are proved, tp, ZeRO-3 and stages; what is computed again
    is the same value."""
    fixed: tuple[tuple[str, int | str], ...] = ()
    """Entries of `FIXED` that every plan has."""
    asked: Literal["patch", "launcher"] = "patch"
    """What is to be written."""

    @property
    def written(self) -> bool:
        """Whether all plans of the space can be written."""
        return self.reach in ("patch", "launcher")

    def allows(self, **entries: int | str) -> bool:
        """Whether nothing that is fixed says otherwise."""
        return all(entries.get(key, value) == value for key, value in self.fixed)

    @property
    def memory_bytes(self) -> float:
        return self.machine.cluster.device.memory_bytes

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """Every combination of degrees whose product is the number of devices, with every
        micro-batch that divides the batch of a rank."""
        every = (r for ranks in self._degrees() for r in self._batches(*ranks))
        return tuple(r for r in every if self._possible(r))

    def _possible(self, r: Region) -> bool:
        """Whether what is fixed leaves plans to a region."""
        if not self.fixed:
            return True
        ways = (self.schedules(r, again) for again in self.recomputes())
        return self.allows(**r._asdict()) and bool(self.zeros(r)) and any(ways)

    def _degrees(self) -> Iterator[tuple[int, int, int, int]]:
        """tp, cp, pp and dp."""
        m = self.model
        for tp in divisors(self.gpus):
            if tp > m.heads or (self.reach != "all" and m.heads % tp):
                continue
            for cp in divisors(self.gpus // tp):
                if self.seq % cp or (cp > 1 and not self._exchanges(tp * cp)):
                    continue
                for pp in divisors(self.gpus // tp // cp):
                    dp = self.gpus // tp // cp // pp
                    whole = pp > 1 and (self.reach == "patch" or (self.written and cp > 1))
                    if pp > m.layers or self.global_batch % dp or whole:
                        continue
                    yield tp, cp, pp, dp

    def _exchanges(self, ranks: int) -> bool:
        """Whether attention over cp can be had: as a ring, or by heads that divide."""
        if not self.written:
            return self.reach == "all"
        return self.model.heads % ranks == 0 and self.model.kv_heads % ranks == 0

    def _batches(self, tp: int, cp: int, pp: int, dp: int) -> Iterator[Region]:
        experts = divisors(self.model.experts) if self.reach == "all" else ()
        for ep in experts or (self.expert_ranks(tp),):
            if tp * cp * dp % ep == 0:
                for size in divisors(self.global_batch // dp):
                    if not self.written or pp == 1 or size * pp <= self.global_batch // dp:
                        yield Region(tp, cp, ep, pp, dp, size)

    def expert_ranks(self, tp: int) -> int:
        """Ranks that a patch splits experts over: those of tp."""
        return tp if self.model.experts and self.reach != "all" else 1

    def zeros(self, r: Region) -> tuple[tuple[int, int], ...]:
        """ZeRO stages, each with the number of ranks that share one copy."""
        return tuple(z for z in self._zeros(r) if self.allows(zero=z[0], shard=z[1]))

    def _zeros(self, r: Region) -> tuple[tuple[int, int], ...]:
        if r.dp * r.cp == 1:
            return ((0, 1),)
        if self.reach == "step":
            return ((3, r.dp),)
        second = ((2, r.dp),) if r.pp == 1 else ()  # with stages, gradients are kept whole
        groups = [(3, size) for size in divisors(r.dp) if size * r.cp > 1]
        if not self.written:
            return (0, r.dp), (1, r.dp), *second, *groups
        return *(reversed(groups) if r.cp == 1 else ((3, r.dp),)), *second

    def recomputes(self) -> tuple[str, ...]:
        return tuple(kind for kind in RECOMPUTE if self.allows(recompute=kind))

    def schedules(self, r: Region, recompute: str) -> tuple[tuple[str, int], ...]:
        """Schedules, each with the virtual stages of a rank. Zero bubble and DualPipe need passes
        of equal time, so nothing that is computed again, and two micro-batches for each stage."""
        ways = self._schedules(r, recompute)
        return tuple(w for w in ways if self.allows(schedule=w[0], vp=w[1]))

    def _schedules(self, r: Region, recompute: str) -> tuple[tuple[str, int], ...]:
        if r.pp == 1:
            return (("1f1b", 1),)
        m, layers = self.micro_batches(r), -(-self.model.layers // r.pp)
        out = [("1f1b", 1)]
        if self.written:
            return tuple(out)
        if m % r.pp == 0 and self.reach == "all":
            fits = (v for v in divisors(layers) if v > 1 and v * r.pp <= self.model.layers)
            out += [("1f1b", v) for v in fits]
        if recompute != "full" and m >= 2 * r.pp:
            out += [("zb-1p", 1), ("zb-2p", 1)]
            out += [("dualpipe", 1)] if r.pp % 2 == 0 and self.reach == "all" else []
        return tuple(out)

    def micro_batches(self, r: Region) -> int:
        return self.global_batch // (r.dp * r.micro_batch)

    def count(self) -> int:
        """How many plans there are."""
        return sum(
            len(self.zeros(r)) * sum(len(self.schedules(r, c)) for c in self.recomputes())
            for r in self.regions
        )

    def plan(
        self,
        r: Region,
        recompute: str = "none",
        zero: tuple[int, int] = (0, 1),
        schedule: tuple[str, int] = ("1f1b", 1),
    ) -> Plan:
        return Plan(
            gpus=self.gpus,
            dp=r.dp,
            tp=r.tp,
            pp=r.pp,
            cp=r.cp,
            ep=r.ep,
            micro_batch=r.micro_batch,
            micro_batches=self.micro_batches(r),
            seq=self.seq,
            chunks=schedule[1],
            schedule=schedule[0],
            zero=zero[0],
            shard=zero[1],
            sequence_parallel=r.tp > 1,
            recompute=recompute,
            precision=self.precision,
            async_tp=False,
            trained=True,
            flash=None,
            by_heads=self.written and r.cp > 1,
            in_stages=self.written and r.pp > 1,
        )

    def fitted(self, tp: int) -> Model:
        """The model as tp splits it: heads that do not divide are filled up with empty ones."""
        return fitted(self.model, tp)


def fitted(model: Model, tp: int) -> Model:
    if model.heads % tp == 0:
        return model
    heads = -(-model.heads // tp) * tp
    return replace(model, heads=heads, kv_heads=min(-(-model.kv_heads // tp) * tp, heads))


def divisors(n: int) -> tuple[int, ...]:
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}))
