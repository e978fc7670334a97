"""The best plans of a space, and what shows that they are: bounds first, prices where needed.

A region's bound is what its plans cost at least: nothing computed again, no bubble, no exchange of
gradients; then with the cheapest of these exchanges; then the price of its best plan that fits.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from shardproof.synthesis.price.memory import Memory, memory
from shardproof.synthesis.price.plan import Plan
from shardproof.synthesis.price.step import Passes, Terms, passes, terms
from shardproof.synthesis.strategy.space import Region, Space


@dataclass(frozen=True)
class Found:
    """A plan with its price."""

    region: Region
    plan: Plan
    step_s: float


@dataclass
class Search:
    """Plans of a space in order of their price, each region's best; and what became of regions."""

    space: Space
    slower: dict[Region, float] = field(default_factory=dict[Region, float])
    """Regions that were not opened, and what their plans take at least."""
    opened: dict[Region, Found] = field(default_factory=dict[Region, Found])
    too_large: dict[Region, Memory] = field(default_factory=dict[Region, Memory])
    """Regions in which no plan fits, and the least that one needs."""
    _passes: dict[tuple[object, ...], Passes] = field(
        default_factory=dict[tuple[object, ...], Passes]
    )

    def plans(self) -> Iterator[Found]:
        """The best plan of each region, fastest first."""
        heap: list[tuple[float, int, Region]] = []
        for region in self.space.regions:
            self.slower[region] = self._bound(region)
            heap.append((self.slower[region], 0, region))
        heapq.heapify(heap)
        while heap:
            _, known, region = heapq.heappop(heap)
            if known == 2:
                yield self.opened[region]
            elif known == 1:
                self._open(region, heap)
            else:
                self.slower[region] = self.least(region)
                heapq.heappush(heap, (self.slower[region], 1, region))

    def _open(self, region: Region, heap: list[tuple[float, int, Region]]) -> None:
        del self.slower[region]
        found = self._best(region)
        if isinstance(found, Memory):
            self.too_large[region] = found
        else:
            self.opened[region] = found
            heapq.heappush(heap, (found.step_s, 2, region))

    def terms(self, plan: Plan) -> Terms:
        key = plan.tp, plan.cp, plan.micro_batch, plan.recompute, plan.pp > 1
        model = self.space.fitted(plan.tp)
        made = self._passes.get((*key, plan.ep))
        if made is None:
            made = passes(self.space.machine, model, plan, self._passes.get(key))
            self._passes[key] = self._passes[*key, plan.ep] = made
        return terms(self.space.machine, model, plan, made)

    def memory(self, plan: Plan) -> Memory:
        return memory(self.space.machine, self.space.fitted(plan.tp), plan)

    def _bound(self, r: Region) -> float:
        """Without gradients' exchange and bubble; optimizer states are split as far as they go."""
        fastest = max(self.space.schedules(r, "none"), key=_speed)
        split = 1 if r.dp * r.cp > 1 else 0
        t = self.terms(self.space.plan(r, "none", (split, r.dp), fastest))
        return t.step - t.gradients - t.gathers - t.sends * (1 - 1 / fastest[1])

    def least(self, r: Region) -> float:
        """The fastest that a plan of the region could be, were there memory for all."""
        exchange, along = self._choices(r, "none")
        return exchange[0][0] + along[0][0]

    def _choices(
        self, r: Region, recompute: str
    ) -> tuple[list[tuple[float, tuple[int, int]]], list[tuple[float, tuple[str, int]]]]:
        """Seconds by ZeRO stage, and the rest by schedule, cheapest first: the step is the sum."""
        space = self.space
        zeros, schedules = space.zeros(r), space.schedules(r, recompute)
        if not schedules:
            return [], []
        exchange: list[tuple[float, tuple[int, int]]] = []
        for zero in zeros:
            t = self.terms(space.plan(r, recompute, zero, schedules[0]))
            exchange.append((t.gradients + t.gathers + t.update, zero))
        along: list[tuple[float, tuple[str, int]]] = []
        for schedule in schedules:
            t = self.terms(space.plan(r, recompute, zeros[0], schedule))
            along.append((t.step - t.gradients - t.gathers - t.update, schedule))
        return sorted(exchange), sorted(along)

    def _best(self, r: Region) -> Found | Memory:
        """The fastest plan of a region that fits, or what the leanest needs."""
        space = self.space
        lean = min(
            (self.memory(space.plan(r, c, z)) for c in space.recomputes() for z in space.zeros(r)),
            key=lambda m: m.total,
        )
        if lean.total > space.memory_bytes:
            return lean
        options = sorted(
            (a + b, c, zero, schedule)
            for c in space.recomputes()
            for exchange, along in (self._choices(r, c),)
            for a, zero in exchange
            for b, schedule in along
        )
        for _, recompute, zero, schedule in options:
            plan = space.plan(r, recompute, zero, schedule)
            if self.memory(plan).total <= space.memory_bytes:
                return Found(r, plan, self.terms(plan).step)
        return lean


def _speed(schedule: tuple[str, int]) -> float:
    """How far a schedule reduces the bubble, against 1F1B."""
    return {"1f1b": schedule[1], "zb-1p": 3, "dualpipe": 4, "zb-2p": 1e9}[schedule[0]]
