"""Checks a certificate of `synthesis.strategy.certificate`: enumerates the space again, prices
again what was opened, bounds again what was not. It shares the price with the search, and no code.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardproof.synthesis.hardware import Cluster, Device, Link
from shardproof.synthesis.price.constants import Constants, Machine
from shardproof.synthesis.price.memory import memory
from shardproof.synthesis.price.model import Model
from shardproof.synthesis.price.plan import Plan
from shardproof.synthesis.price.step import Passes, Terms, passes, terms

SLACK = 1e-9
"""Relative error of two sums of the same seconds."""
Degrees = tuple[int, int, int, int, int]
"""tp, cp, ep, pp, dp."""
Cell = tuple[int, int, int, int, int, int]
"""Degrees and micro-batch."""


def refusal(data: Mapping[str, Any]) -> str:
    """Why the certificate does not hold; empty where it does."""
    try:
        return next(_Check(data).faults(), "")
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        return f"not a certificate: {type(error).__name__} {error}"


def misstated(written: Mapping[str, Any]) -> str:
    """Why a choice that was written is not what its certificate shows; empty where it is."""
    try:
        proof, best = written["certificate"], written["best"]
        shown = proof["best"]
        other = {k for k, v in best["plan"].items() if shown["plan"][k] != v}
        if other or best["step_s"] != shown["step_s"] or written["gpus"] != proof["space"]["gpus"]:
            return "its best plan is not that of its certificate"
    except (AttributeError, KeyError, TypeError) as error:
        return f"not a choice: {type(error).__name__} {error}"
    return refusal(proof)


class _Check:
    def __init__(self, data: Mapping[str, Any]) -> None:
        if data["format"] != 1:
            raise ValueError(f"format {data['format']}, expected 1")
        space = data["space"]
        self.gpus, self.batch, self.seq = (space[k] for k in ("gpus", "global_batch", "seq"))
        self.precision: str = space["precision"]
        self.fixed: dict[str, int | str] = space["fixed"]
        self.model = Model(**space["model"])
        self.machine = _machine(space["machine"])
        self.limit = self.machine.cluster.device.memory_bytes
        self.last: tuple[object, ...] = ()
        self.kept: Passes | None = None
        self.best, self.claimed = data["best"]["plan"], data["best"]["step_s"]
        self.slower: dict[Degrees, float] = {_five(r): r[5] for r in data["slower"]}
        self.opened: dict[Cell, float] = {(*_five(r), r[5]): r[6] for r in data["opened"]}
        self.large: dict[Cell, float] = {(*_five(r), r[5]): r[6] for r in data["too_large"]}

    def faults(self) -> Iterator[str]:
        """What is wrong, as it is found."""
        yield from self._wrong_best()
        left = set(self.opened) | set(self.large)
        for cell in self._cells():
            left.discard(cell)
            if cell in self.opened:
                yield from self._wrong_opened(cell)
            elif cell in self.large:
                yield from self._wrong_large(cell)
            else:
                yield from self._wrong_slower(cell)
        if left:
            yield f"{min(left)} is not in the space"

    def _wrong_best(self) -> Iterator[str]:
        stated: dict[str, Any] = {**self.best, "open": tuple(self.best["open"])}
        plan = Plan(**stated)
        cell = plan.tp, plan.cp, plan.ep, plan.pp, plan.dp, plan.micro_batch
        if cell not in self.opened:
            yield "the best plan lies in no region that was opened"
        if plan not in self._plans(cell):
            yield "the best plan is not in the space"
        step = self._terms(plan).step
        if abs(step - self.claimed) > SLACK * step:
            yield f"the best plan takes {step} s, and {self.claimed} is claimed"
        if memory(self.machine, self._model(plan.tp), plan).total > self.limit:
            yield "the best plan does not fit"

    def _wrong_opened(self, cell: Cell) -> Iterator[str]:
        """Every plan of it is slower, or does not fit."""
        fastest = float("inf")
        for plan in self._plans(cell):
            step = self._terms(plan).step
            if step < fastest and self._fits(plan):
                fastest = step
        if fastest < self.claimed * (1 - SLACK):
            yield f"{cell} has a plan of {fastest} s, faster than the best"
        if abs(fastest - self.opened[cell]) > SLACK * fastest:
            yield f"the best of {cell} takes {fastest} s, and {self.opened[cell]} is claimed"

    def _wrong_large(self, cell: Cell) -> Iterator[str]:
        if any(self._fits(plan) for plan in self._plans(cell)):
            yield f"{cell} has a plan that fits"

    def _wrong_slower(self, cell: Cell) -> Iterator[str]:
        """Its bound is above the best, and not above what its plans take at least."""
        degrees = cell[:5]
        if degrees not in self.slower:
            yield f"nothing is said of {cell}"
            return
        bound = self.slower[degrees]
        if not bound >= self.claimed * (1 - SLACK):
            yield f"the bound {bound} of {degrees} is below the best"
        # What is computed again only adds seconds, and so do the bubble and each exchange.
        z, s = self._zeros(cell)[-1], self._schedules(cell)
        split = max(self._zeros(cell), key=lambda zero: (zero[0] > 0) * zero[1])
        t = self._terms(self._plan(cell, "none", split, s[0]))
        low = t.layers + t.update + t.other + t.sends + self._bubble(cell, z, s)
        if low < bound * (1 - SLACK):
            low = self._exact(cell)
        if low < bound * (1 - SLACK):
            yield f"plans of {cell} may take {low} s, below the bound {bound}"

    def _bubble(self, cell: Cell, zero: tuple[int, int], kinds: list[tuple[str, int]]) -> float:
        if any(kind == "zb-2p" for kind, _ in kinds):
            return 0.0
        return min(self._terms(self._plan(cell, "none", zero, kind)).bubble for kind in kinds)

    def _exact(self, cell: Cell) -> float:
        """Seconds of the fastest plan that computes nothing again, whatever it needs."""
        ways = [(z, s) for z in self._zeros(cell) for s in self._schedules(cell)]
        return min(self._terms(self._plan(cell, "none", z, s)).step for z, s in ways)

    def _is(self, key: str, value: int | str) -> bool:
        return self.fixed.get(key, value) == value

    def _cells(self) -> Iterator[Cell]:
        """The space: cells in which some plan has all that is fixed."""
        names = ("tp", "cp", "ep", "pp", "dp", "micro_batch")
        for cell in self._all_cells():
            held = all(self._is(key, value) for key, value in zip(names, cell, strict=True))
            if held and (not self.fixed or next(self._plans(cell), None)):
                yield cell

    def _all_cells(self) -> Iterator[Cell]:
        """Degrees whose product is the devices, and micro-batches that divide."""
        experts = [e for e in range(1, self.model.experts + 1) if self.model.experts % e == 0]
        ways = [d for d in range(1, self.gpus + 1) if self.gpus % d == 0]
        for tp in (d for d in ways if d <= self.model.heads):
            for cp in (d for d in ways if self.gpus // tp % d == 0 and self.seq % d == 0):
                for pp in (d for d in ways if self.gpus // tp // cp % d == 0):
                    dp = self.gpus // (tp * cp * pp)
                    if self.gpus % (tp * cp * pp) or pp > self.model.layers or self.batch % dp:
                        continue
                    own = self.batch // dp
                    sizes = [b for b in range(1, own + 1) if own % b == 0]
                    for ep in (e for e in experts or [1] if tp * cp * dp % e == 0):
                        yield from ((tp, cp, ep, pp, dp, size) for size in sizes)

    def _zeros(self, cell: Cell) -> list[tuple[int, int]]:
        every = self._all_zeros(cell)
        return [z for z in every if self._is("zero", z[0]) and self._is("shard", z[1])]

    def _all_zeros(self, cell: Cell) -> list[tuple[int, int]]:
        _, cp, _, pp, dp, _ = cell
        if dp * cp == 1:
            return [(0, 1)]
        out = [(0, dp), (1, dp)] + ([(2, dp)] if pp == 1 else [])
        return out + [(3, g) for g in range(1, dp + 1) if dp % g == 0 and g * cp > 1]

    def _schedules(self, cell: Cell, again: str = "none") -> list[tuple[str, int]]:
        ways = self._all_schedules(cell, again)
        return [s for s in ways if self._is("schedule", s[0]) and self._is("vp", s[1])]

    def _all_schedules(self, cell: Cell, again: str) -> list[tuple[str, int]]:
        pp, dp, size = cell[3:]
        if pp == 1:
            return [("1f1b", 1)]
        count, layers = self.batch // (dp * size), -(-self.model.layers // pp)
        out = [("1f1b", 1)]
        for v in range(2, layers + 1):
            if count % pp == 0 and layers % v == 0 and v * pp <= self.model.layers:
                out.append(("1f1b", v))
        if again != "full" and count >= 2 * pp:
            out += [("zb-1p", 1), ("zb-2p", 1), *([] if pp % 2 else [("dualpipe", 1)])]
        return out

    def _plans(self, cell: Cell) -> Iterator[Plan]:
        for again in (a for a in ("none", "selective", "full") if self._is("recompute", a)):
            for zero in self._zeros(cell):
                for schedule in self._schedules(cell, again):
                    yield self._plan(cell, again, zero, schedule)

    def _plan(
        self, cell: Cell, again: str, zero: tuple[int, int], schedule: tuple[str, int]
    ) -> Plan:
        tp, cp, ep, pp, dp, size = cell
        return Plan(
            self.gpus, dp, tp, pp, cp, ep, size, self.batch // (dp * size), self.seq,
            schedule[1], schedule[0], zero[0], zero[1], tp > 1, again, self.precision,
            async_tp=False, trained=True, flash=None,
        )  # fmt: skip

    def _model(self, tp: int) -> Model:
        """Heads that tp does not divide are filled up."""
        m = self.model
        if m.heads % tp == 0:
            return m
        heads = m.heads + tp - m.heads % tp
        keys = m.kv_heads + -m.kv_heads % tp
        return replace(m, heads=heads, kv_heads=min(keys, heads))

    def _terms(self, plan: Plan) -> Terms:
        model = self._model(plan.tp)
        return terms(self.machine, model, plan, self._passes(plan, model))

    def _fits(self, plan: Plan) -> bool:
        return memory(self.machine, self._model(plan.tp), plan).total <= self.limit

    def _passes(self, plan: Plan, model: Model) -> Passes:
        """Kept for the plans of one region: they come one after the other."""
        key = plan.tp, plan.cp, plan.ep, plan.pp, plan.micro_batch, plan.recompute
        if self.last != key or self.kept is None:
            self.last, self.kept = key, passes(self.machine, model, plan)
        return self.kept


def _five(row: list[int]) -> Degrees:
    tp, cp, ep, pp, dp = row[:5]
    return tp, cp, ep, pp, dp


def _machine(data: Mapping[str, Any]) -> Machine:
    cluster = data["cluster"]
    links = {key: Link(**cluster[key]) for key in ("node", "network")}
    parts: dict[str, Any] = {**cluster, **links, "device": Device(**cluster["device"])}
    whole = Cluster(**parts)
    return Machine(whole, Constants(**data["constants"]))


if __name__ == "__main__":
    wrong = refusal(json.loads(Path(sys.argv[1]).read_text("utf-8"))["certificate"])
    sys.stdout.write(f"{wrong or 'accepted'}\n")
    sys.exit(bool(wrong))
