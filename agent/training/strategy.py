"""Whole training configurations of a run: the space for a model, its choice in events and words."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from shardproof.agent.actions.models import Chosen, Parallelize, Priced as Wanted
from shardproof.agent.report import model as m
from shardproof.agent.run import events
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.captured import Captured
from shardproof.synthesis.hardware import load
from shardproof.synthesis.planner.assign import Point
from shardproof.synthesis.planner.constraints import ConstraintError, read_bytes
from shardproof.synthesis.planner.cost import Estimate
from shardproof.synthesis.planner.groups import SHARD, merged
from shardproof.synthesis.planner.scoring import (
    CAPTURED as AS_CAPTURED,
    Candidate,
    Pricing,
    StepPrice,
)
from shardproof.synthesis.price.constants import Machine, constants_of
from shardproof.synthesis.price.reading import PriceError
from shardproof.synthesis.strategy import choice as choices, words
from shardproof.synthesis.strategy.choice import Choice, Priced
from shardproof.synthesis.strategy.shape import (
    CAPTURED,
    Shape,
    ShapeError,
    mismatch,
    of_config,
    of_program,
)
from shardproof.synthesis.strategy.space import RECOMPUTE, Space
from shardproof.verifier.kernel.program.types import Mesh

if TYPE_CHECKING:
    from shardproof.synthesis.strategy.timeline import Step

PRECISIONS = {
    "bf16": "bf16", "bfloat16": "bf16", "fp8": "fp8", "fp4": "fp4",
    "float32": "bf16", "float16": "bf16", "": "bf16",
}  # fmt: skip
"""What matrix products are priced in, by the dtype that an option or a config names."""
PATCH = "this patch"
STAGES = 6
"""Stages of a plan that are drawn at most."""


def shape_of(captured: Captured) -> Shape:
    """The shape of a model that was captured.

    Raises:
        InputError: it has none.
    """
    facts = captured.facts
    library = facts.target.startswith("hf:")
    try:
        if library:
            try:
                return _agreed(of_config(facts.config, facts.class_name), captured)
            except ShapeError:
                pass
        found = of_program(captured.program, facts.params, facts.modules, facts.tokens)
    except PriceError as error:
        raise InputError(
            "the shape of the model is not known, so no configuration can be chosen",
            got=str(error),
            hint="parallelize it with --mesh tp=2",
        ) from None
    # Sequences of generated inputs say nothing of those that the model is for.
    return replace(found, model=replace(found.model, seq=0)) if library else found


def _agreed(shape: Shape, captured: Captured) -> Shape:
    off = mismatch(shape.model, captured.facts.param_count)
    if off:
        raise ShapeError(off)
    return shape


def space_of(shape: Shape, wanted: Wanted, gpus: int) -> tuple[Space, str]:
    """The space of plans, and for which tokens they are priced, in words.

    Raises:
        InputError: an option that cannot be used, or a sequence length that nothing says.
    """
    seq = wanted.seq or shape.model.seq
    if not seq:
        raise InputError("no sequence length is stated", where="--seq", hint="--seq 4096")
    batch = wanted.global_batch or choices.default_batch(gpus, seq)
    cluster = load(wanted.hardware)
    named = wanted.dtype or ("" if shape.dtype not in PRECISIONS else shape.dtype)
    if wanted.dtype not in (None, "bf16", "fp8", "fp4"):
        raise InputError(
            f"no price for {wanted.dtype}", where="--dtype", expected="bf16, fp8 or fp4"
        )
    precision = PRECISIONS[named]
    if precision not in cluster.device.flops:
        raise InputError(
            f"{wanted.hardware} does not compute in {precision}",
            where="--dtype",
            expected=", ".join(sorted(cluster.device.flops)),
        )
    if wanted.memory is not None:
        limit = min(read_bytes(wanted.memory), cluster.device.memory_bytes)
        cluster = replace(cluster, device=replace(cluster.device, memory_bytes=float(limit)))
    fixed = wanted.fixed if isinstance(wanted, Chosen) else ()
    machine = Machine(cluster, constants_of(wanted.hardware, "patched"))
    written = "launcher" if isinstance(wanted, Parallelize) and wanted.launcher else "patch"
    space = Space(machine, shape.model, gpus, batch, seq, precision, fixed=fixed, asked=written)
    return space, _said(shape, wanted, batch, seq, precision)


def _said(shape: Shape, wanted: Wanted, batch: int, seq: int, precision: str) -> str:
    length = "" if wanted.seq else f" (the length in the {shape.source})"
    total = "" if wanted.global_batch else " (assumed)"
    dtype = "" if wanted.dtype or shape.dtype else " (assumed)"
    if not wanted.dtype and shape.dtype in ("float32", "float16"):
        dtype = f" (the config says {shape.dtype})"
    tokens = f"{batch:,} sequences{total} of {seq:,} tokens{length} a step"
    return f"{tokens}, products in {precision}{dtype}"


def slowed(chosen: Choice) -> str:
    """That fewer devices, another mesh or ZeRO stage take less time; empty where none do."""
    if chosen.quicker is None:
        return ""
    taken, quick = chosen.best, chosen.quicker
    used = quick.plan.gpus
    what = "another mesh" if used == taken.plan.gpus else f"{used} of these devices"
    if words.degrees(quick.plan) == words.degrees(taken.plan):
        what = words.short(quick.plan)
        if what == words.short(taken.plan):
            return ""
    return (
        f"{what} would be faster: {quick.step_s:.3g} s a step ({words.degrees(quick.plan)}) "
        f"against {taken.step_s:.3g} s"
    )


@dataclass(frozen=True)
class Configured(Pricing):
    """The price of the configuration that was given or chosen for a mesh: one for all that is said
    of a step, in the report, in events and to people."""

    choice: Choice
    tokens: str
    """For which it is priced, in words."""

    @property
    def zero(self) -> int:
        return (self.choice.emitted or self.choice.best).plan.zero

    @property
    def recompute(self) -> str:
        return (self.choice.emitted or self.choice.best).plan.recompute

    def taken(self, point: Point, cost: Estimate) -> Priced:
        """As a plan uses the configuration, with states as far as it splits them."""
        split = self.choice.with_sequence(split=point.stream != "R")
        found = split.emitted or split.best
        used, constants = found.price.memory, self.choice.space.machine.constants
        plan = found.plan  # its own program has neither cp nor stages, and one group
        numbers = cost.numbers / plan.cp / plan.pp * (plan.dp // plan.shard)
        more = max(numbers * constants.param_bytes / used.parameters - 1, 0.0)
        states = used.parameters + used.gradients + used.optimizer
        held = replace(
            used,
            parameters=used.parameters * (1 + more),
            gradients=used.gradients * (1 + more),
            optimizer=used.optimizer * (1 + more),
            margin=used.margin + states * more * constants.fragments,
        )
        fits = held.total <= self.choice.space.memory_bytes
        return replace(found, price=replace(found.price, memory=held, fits=fits))

    def of(self, point: Point, cost: Estimate) -> StepPrice:
        return step_price(self.taken(point, cost))

    def one_device(self, cost: Estimate) -> StepPrice:
        return step_price(choices.on_mesh(replace(self.choice.space, gpus=1, fixed=()), 1, 1))

    def applied(self, best: Candidate) -> Choice:
        """The choice with its price as a plan uses it."""
        taken = self.taken(best.point, best.estimate)
        if taken == self.choice.emitted:
            return self.choice
        whole = self.choice.best if self.choice.proof else taken
        return replace(self.choice, emitted=taken, best=whole)


def configured(asked: Wanted, captured: Captured, mesh: Mesh, limit: int | None) -> Pricing:
    """How plans for a mesh that was given are priced: by its configuration, where the model has
    one. A `limit` of memory that the owner sets is one of the program as it is captured, and so
    is the price then."""
    try:
        shape, batch = shape_of(captured), asked.global_batch
        if shape.source == CAPTURED:
            batch = batch or next(iter(captured.facts.tokens), None)
        sizes = dict(merged(mesh).dims)
        dp, tp, cp, pp = (sizes.get(name, 1) for name in ("dp", "tp", "cp", "pp"))
        shard = dict(mesh.dims).get(SHARD, dp)
        space, said = space_of(shape, asked.model_copy(update={"global_batch": batch}), mesh.size)
    except (InputError, PriceError, ConstraintError):
        return AS_CAPTURED
    other = space.global_batch % dp or tp > space.model.heads or space.seq % cp
    other = other or pp > space.model.layers
    if other or limit is not None or mismatch(space.model, captured.facts.param_count):
        return AS_CAPTURED
    fixed = (("shard", shard),) if dp * cp > 1 else ()
    ways = (replace(space, fixed=(*fixed, ("recompute", kind))) for kind in RECOMPUTE)
    found = [choices.on_mesh(way, dp, tp, cp, pp) for way in ways]
    taken = next((plan for plan in found if plan.price.fits), found[0])
    return Configured(Choice(space, taken, taken), said)


def step_price(found: Priced) -> StepPrice:
    """A priced plan as what is said of its step."""
    used, scale = found.price.memory, found.step_s / found.terms.step
    held = {f.name: round(getattr(used, f.name)) for f in fields(used)}
    taken = {said: getattr(found.terms, name) * scale for name, said in words.TERMS.items()}
    spent = {said: seconds for said, seconds in taken.items() if seconds}
    return StepPrice(found.step_s, sum(held.values()), spent, held, found.price.exposed_comm_s)


UNSAID = ("open", "flash", "by_heads", "in_stages")
"""Entries of a plan that no one is told."""


def as_json(found: Priced) -> dict[str, Any]:
    """A priced plan: seconds, bytes, shares."""
    low, high = words.band(found.step_s)
    price = step_price(found)
    return {
        "text": words.short(found.plan),
        "plan": {k: v for k, v in asdict(found.plan).items() if k not in UNSAID},
        "step_s": price.seconds,
        "low_s": low,
        "high_s": high,
        "mfu": found.price.mfu,
        "bubble": found.price.bubble,
        "exposed_comm_s": found.price.exposed_comm_s,
        "hidden_comm_s": found.price.hidden_comm_s,
        "spent_s": {name: getattr(found.terms, name) for name in words.TERMS},
        "memory_bytes": price.bytes,
        "memory_error": words.MEMORY_ERROR,
        "memory": dict(price.held),
        "not_emitted": words.beyond(found.plan),
    }


def event_of(chosen: Choice, said: str, what: str = "patch") -> events.StrategyChosen:
    """The choice as an event; `what` is made of the plan that it has as emitted."""
    space = chosen.space
    return events.StrategyChosen(
        hardware=space.machine.cluster.name,
        gpus=space.gpus,
        tokens=said,
        plans=chosen.plans,
        certified=certified(chosen),
        best=as_json(chosen.best),
        emitted=as_json(chosen.emitted) if chosen.emitted else None,
        emitted_gap=chosen.gap if chosen.emitted else None,
        others=[asdict(other) for other in chosen.others],
        front=[as_json(found) for found in chosen.front],
        quicker=as_json(chosen.quicker) if chosen.quicker else None,
        text=lines(chosen, said, what),
    )


def certified(chosen: Choice) -> str:
    """What the certificate claims, and no more."""
    if chosen.proof is None:
        return ""
    return (
        f"certified: none of the {chosen.plans:,} plans of this space is faster, under this model "
        "of the price"
    )


def strategy_json(chosen: Choice, said: str) -> str:
    """The choice with its certificate, as a file."""
    told = event_of(chosen, said).model_dump(exclude={"event", "schema_version", "at", "text"})
    return json.dumps({**told, "certificate": chosen.proof}, separators=(",", ":")) + "\n"


def lines(chosen: Choice, said: str, what: str = "patch") -> list[str]:
    """The choice for a person."""
    space, best, emitted = chosen.space, chosen.best, chosen.emitted
    out = [f"{space.gpus:,} x {space.machine.cluster.name}: {said}"]
    if chosen.proof is not None:
        out += [f"best plan: {words.short(best.plan)}", *figures(best, space)]
        later = ", ".join(words.beyond(best.plan))
        out += [f"  planned and priced; not yet emitted: {later}"] if later else []
        out.append(f"  {certified(chosen)}")
    if emitted is not None and (chosen.proof is None or emitted.plan != best.plan):
        out += [f"{what}: {words.short(emitted.plan)}", *figures(emitted, space)]
        within = f"  within {chosen.gap:.1%} of any plan in the space, certified"
        out += [within] if chosen.proof is not None else []
    for other in chosen.others:
        out += [f"not: {other.name}", f"  {other.why}"]
    for found in chosen.front[1:]:
        more = found.step_s / best.step_s - 1
        used = found.price.memory.total / 1e9
        out.append(f"in {used:.1f} GB: {more:.1%} slower, {words.short(found.plan)}")
    return out


def in_time(chosen: Choice) -> dict[str, Step]:
    """A step of the best plan, and of the patch, as far as their schedules are generated."""
    named = {"best of the space": chosen.best if chosen.proof else None, PATCH: chosen.emitted}
    steps = {n: chosen.in_time(p.plan) for n, p in named.items() if p is not None}
    return {name: step for name, step in steps.items() if step is not None}


def timeline_json(chosen: Choice) -> str:
    """The same for Perfetto and chrome://tracing."""
    from shardproof.synthesis.strategy.timeline import trace_events

    return json.dumps(trace_events(in_time(chosen)), separators=(",", ":")) + "\n"


def figures(found: Priced, space: Space) -> list[str]:
    """The price of a plan in two lines."""
    price, (low, high) = found.price, words.band(found.step_s)
    used = price.memory
    kinds = ", ".join(
        f"{f.name} {getattr(used, f.name) / 1e9:.1f}"
        for f in fields(used)
        if getattr(used, f.name) >= 5e7
    )
    fits = "" if price.fits else ": does not fit"
    return [
        f"  step {found.step_s:.3g} s ({low:.3g} to {high:.3g}), MFU {price.mfu:.0%}, bubble "
        f"{price.bubble:.0%}, exchange {price.exposed_comm_s:.2g} s exposed and "
        f"{price.hidden_comm_s:.2g} s hidden",
        f"  memory {used.total / 1e9:.1f} GB (± {words.MEMORY_ERROR:.0%}) of "
        f"{space.memory_bytes / 1e9:.0f}{fits}: {kinds}",
    ]


def told(chosen: Choice, said: str) -> m.Strategy:
    """The choice as a section of the report."""
    whole = chosen.proof is not None
    both = [("best of the space", chosen.best)] if whole else []
    both += [(PATCH, chosen.emitted)] if chosen.emitted is not None else []
    claim = f"{certified(chosen)}; the patch is within {chosen.gap:.1%} of it." if whole else ""
    return m.Strategy(
        tokens=said,
        plans={name: as_json(found) for name, found in both},
        steps={name: _shown(step) for name, step in in_time(chosen).items()},
        front=tuple(as_json(found) for found in chosen.front),
        claim=claim[:1].upper() + claim[1:],
        slowed=slowed(chosen),
        others=chosen.others,
    )


def _shown(step: Step) -> m.StepInTime:
    """The step on a few of its stages."""
    stages = sorted({span.stage for span in step.spans})
    kept = stages[:: -(-len(stages) // STAGES)]
    return m.StepInTime(
        stages=len(stages),
        drawn=step.drawn,
        micro_batches=step.micro_batches,
        spans=tuple(
            (s.stage, s.kind, s.name, s.start_s, s.seconds) for s in step.spans if s.stage in kept
        ),
        held=tuple(h for h in step.held if h[0] in kept),
    )
