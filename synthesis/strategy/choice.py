"""The choice of a training configuration: the best of the space, the best that a patch can do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shardproof.synthesis.planner.plan import PassedOver
from shardproof.synthesis.price.memory import Memory
from shardproof.synthesis.price.plan import Plan
from shardproof.synthesis.price.reading import PriceError
from shardproof.synthesis.price.step import Price, Terms, price, terms
from shardproof.synthesis.strategy.certificate import certificate
from shardproof.synthesis.strategy.search import Found, Search
from shardproof.synthesis.strategy.space import Region, Space, divisors
from shardproof.synthesis.strategy.words import TERMS, degrees, short

if TYPE_CHECKING:
    from shardproof.synthesis.strategy.timeline import Step

NEXT = 4
"""Other plans that are kept."""
LEANER, LESS = 5, 0.1
"""Points of the front of time against memory beside the best plan, and by how much memory they
are apart at least."""
MARGIN = 0.01
"""Shares of a step that are not worth a warning."""
MOST = 1 << 20
"""Devices tried where a model fits on none of those given."""
TOKENS = 1 << 22
"""Tokens of a step where none are stated."""


class NoPlanError(PriceError):
    """No plan of the space fits: what is too large, and what would do."""

    def __init__(self, what: str, got: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.got, self.hint = got, hint


@dataclass(frozen=True)
class Priced:
    """A plan with its price, and what its step is spent on."""

    plan: Plan
    price: Price
    terms: Terms

    @property
    def step_s(self) -> float:
        return self.price.step_s


@dataclass(frozen=True)
class Choice:
    """What was chosen for a model on a cluster, and from how many."""

    space: Space
    best: Priced
    emitted: Priced | None
    """What the patch does; None where no patch was asked for or none fits."""
    others: tuple[PassedOver, ...] = ()
    quicker: Priced | None = None
    """What would take less time for the same tokens: fewer devices, or another mesh."""
    front: tuple[Priced, ...] = ()
    """The fastest plans of the space with less and less memory; `best` is the first."""
    plans: int = 0
    """Of the space; 0 where the mesh was given."""
    proof: dict[str, Any] | None = None
    """That no plan of the space is faster than `best`."""

    def in_time(self, plan: Plan) -> Step | None:
        """A step of a plan of the space."""
        from shardproof.synthesis.strategy.timeline import step_in_time

        return step_in_time(self.space.machine, self.space.fitted(plan.tp), plan)

    @cached_property
    def gap(self) -> float:
        """By how much the emitted plan is slower than the best one."""
        return max(self.emitted.step_s / self.best.step_s - 1, 0.0) if self.emitted else 0.0

    def with_sequence(self, *, split: bool) -> Choice:
        """The same where the patch splits activations between blocks along the sequence, or not."""
        if self.emitted is None or self.emitted.plan.sequence_parallel == split:
            return self
        made = priced(self.space, replace(self.emitted.plan, sequence_parallel=split))
        return replace(self, emitted=made, best=self.best if self.proof else made)

    def compared(self) -> Choice:
        """The same for a mesh that was given, and whether another takes less time."""
        return replace(self, quicker=quicker(self.space, self.best.step_s, self.space.gpus))


def priced(space: Space, plan: Plan) -> Priced:
    """The price of one plan. Operations are those of the model, without heads that fill up."""
    model = space.fitted(plan.tp)
    found = price(space.machine, model, plan)
    real = space.model.flops(plan.seq) / model.flops(plan.seq)
    return Priced(plan, replace(found, mfu=found.mfu * real), terms(space.machine, model, plan))


def default_batch(gpus: int, seq: int) -> int:
    """Sequences of a step of about `TOKENS` tokens, such that all devices can take part."""
    odd = gpus
    while odd % 2 == 0:
        odd //= 2
    batch = odd
    while batch * seq < TOKENS:
        batch *= 2
    return batch


def choose(space: Space) -> Choice:
    """The best plan of the space, what a patch can do of it, and the next best.

    Raises:
        NoPlanError: nothing fits.
    """
    search = Search(space)
    ranked = search.plans()
    first = next(ranked, None)
    if first is None:
        raise _nothing(space, search)
    proof, best = certificate(search, first), priced(space, first.plan)
    emitted = next(patches(space), None)
    return Choice(
        space,
        best,
        emitted,
        tuple(_others(space, search, ranked, best, first)),
        quicker(space, best.step_s, space.gpus - 1),
        (best, *_leaner(space, best)),
        space.count(),
        proof,
    )


def patches(space: Space) -> Iterator[Priced]:
    """What can be written, fastest first: one plan for each mesh."""
    return _meshes(replace(space, reach=space.asked))


def steps(space: Space) -> Iterator[Priced]:
    """Plans whose whole training step is proved, fastest first: one for each mesh."""
    return _meshes(replace(space, reach="step"))


def _meshes(small: Space) -> Iterator[Priced]:
    seen: set[tuple[int, ...]] = set()
    for found in Search(small).plans():
        if found.region.degrees not in seen:
            seen.add(found.region.degrees)
            yield priced(small, found.plan)


def on_mesh(space: Space, dp: int, tp: int, cp: int = 1, pp: int = 1) -> Priced:
    """The plan of a given mesh with the fastest micro-batch that fits, or with the smallest;
    nothing is computed again unless that is fixed."""
    small = replace(space, reach="launcher")
    plans = [
        priced(small, small.plan(r, small.recomputes()[0], small.zeros(r)[0]))
        for size in divisors(space.global_batch // dp)
        if size == 1 or size * pp <= space.global_batch // dp
        for r in (Region(tp, cp, small.expert_ranks(tp), pp, dp, size),)
    ]
    return min((p for p in plans if p.price.fits), key=lambda p: p.step_s, default=plans[0])


def leanest(space: Space) -> Priced:
    """What a patch can do with the least memory, fit or not."""
    small = replace(space, reach=space.asked)
    again = small.recomputes()[-1]
    plans = (priced(small, small.plan(r, again, small.zeros(r)[0])) for r in small.regions)
    return min(plans, key=lambda p: p.price.memory.total)


def quicker(space: Space, step_s: float, most: int) -> Priced | None:
    """The fastest patch on at most so many of the devices, where it is faster than that."""
    sizes = (n for n in divisors(space.gpus) if n <= most)
    found = (next(patches(replace(space, gpus=n)), None) for n in sizes)
    less = [p for p in found if p is not None and p.step_s < step_s * (1 - MARGIN)]
    return min(less, key=lambda p: p.step_s, default=None)


def _others(
    space: Space, search: Search, ranked: Iterator[Found], best: Priced, first: Found
) -> Iterator[PassedOver]:
    """Faster ones that do not fit, then the next best: one of each choice of degrees."""
    bounds = {r: search.least(r) for r in search.too_large if r.micro_batch == 1}
    seen = {first.region.degrees}
    for region in sorted(bounds, key=lambda r: bounds[r]):
        if len(seen) > NEXT // 2 or bounds[region] >= best.step_s:
            break
        if region.degrees not in seen:
            seen.add(region.degrees)
            least = search.too_large[region]
            name = degrees(space.plan(region))
            yield PassedOver(name, too_large(least, space.memory_bytes), None, round(least.total))
    for found in ranked:
        if found.region.degrees not in seen:
            seen.add(found.region.degrees)
            other = priced(space, found.plan)
            used = other.price.memory.total
            yield PassedOver(short(other.plan), slower(other, best), other.step_s, round(used))
        if len(seen) > NEXT:
            break


def _leaner(space: Space, best: Priced) -> Iterator[Priced]:
    """The fastest plan with `LESS` of the memory less, and so on."""
    cluster, last = space.machine.cluster, best
    for _ in range(LEANER):
        room = replace(cluster.device, memory_bytes=last.price.memory.total * (1 - LESS))
        machine = replace(space.machine, cluster=replace(cluster, device=room))
        found = next(Search(replace(space, machine=machine)).plans(), None)
        if found is None:
            return
        last = priced(space, found.plan)
        yield last


def too_large(least: Memory, limit: float) -> str:
    return (
        f"needs at least {least.total / 1e9:.1f} GB of {limit / 1e9:.0f}, "
        f"most of it {least.largest}"
    )


def slower(other: Priced, best: Priced) -> str:
    """By how much, and what most of it is spent on."""
    more = {k: getattr(other.terms, k) - getattr(best.terms, k) for k in TERMS}
    worst = max(more, key=lambda k: more[k])
    share = other.step_s / best.step_s - 1
    return f"{share:.1%} slower: {TERMS[worst]} +{more[worst]:.3g} s"


def _nothing(space: Space, search: Search) -> NoPlanError:
    if not search.too_large:
        fixed = ", ".join(f"{key}={value}" for key, value in space.fixed)
        return NoPlanError(
            f"no plan on {space.gpus} devices has {fixed}"
            if fixed
            else f"no degrees of tp, cp, pp and dp make {space.gpus} of this model",
            got=f"{space.global_batch} sequences a step, {space.model.heads} heads, "
            f"{space.model.layers} layers",
            hint="fix less of the plan"
            if fixed
            else "another number of devices, or a --global-batch that it divides",
        )
    region, least = min(search.too_large.items(), key=lambda item: item[1].total)
    shape = degrees(space.plan(region))
    gpus = _enough(space)
    hint = f"{gpus} devices would do" if gpus else "no number of these devices would do"
    return NoPlanError(
        f"no plan fits on {space.gpus} devices of {space.memory_bytes / 1e9:.0f} GB",
        got=f"the leanest ({shape}) {too_large(least, space.memory_bytes)} "
        f"({getattr(least, least.largest) / 1e9:.1f} GB)",
        hint=hint,
    )


def _enough(space: Space) -> int:
    """The first doubling of the devices on which a plan fits; 0 where none does. Every rank holds
    its share of the states, and the reserve."""
    c = space.machine.constants
    room = space.memory_bytes - c.reserve
    states = space.model.parameters * (c.param_bytes + c.grad_bytes + c.state_bytes)
    gpus = space.gpus * 2
    while gpus <= MOST and room > 0:
        if states <= room * gpus and next(Search(replace(space, gpus=gpus)).plans(), None):
            return gpus
        gpus *= 2
    return 0
