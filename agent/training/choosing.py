"""`--gpus`: the mesh and everything else of a training configuration is chosen, then proved."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from shardproof.agent.actions.models import Asking, Chosen as Wanted, Parallelize, Plan
from shardproof.agent.llm.configuring import configure
from shardproof.agent.llm.dialogue import Read
from shardproof.agent.pipeline import launching, pipeline
from shardproof.agent.run import outdir
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome, Run
from shardproof.agent.training import stepping, strategy as strategies
from shardproof.synthesis.emit import EmitError
from shardproof.synthesis.frontends.torch.captured import Captured
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import (
    CaptureRequest,
    read_config_file,
    split_target,
)
from shardproof.synthesis.hardware import load
from shardproof.synthesis.planner.assign import PlanError
from shardproof.synthesis.planner.constraints import ConstraintError, show_bytes
from shardproof.synthesis.planner.groups import REPLICATE, SHARD
from shardproof.synthesis.planner.plan import PassedOver
from shardproof.synthesis.strategy import choice as choices, words
from shardproof.synthesis.strategy.choice import Choice, NoPlanError, Priced
from shardproof.synthesis.strategy.shape import Shape, ShapeError, of_config
from shardproof.synthesis.strategy.timeline import GENERATED
from shardproof.verifier.kernel.program.types import Mesh

WRITTEN = 512
"""Micro-batches of all stages in a step that is proved: each is written out."""
TRIED = 4
"""Meshes for which a patch is tried, fastest first."""


def plan(run: Run, asked: Plan) -> Outcome:
    """`shardproof plan`: choose, say it, and write certificate and timeline to files if given."""
    request, _ = asked.request(), asked.fixed
    shape, _ = shape_in(run, request)
    chosen, said = chosen_in(run, shape, asked, asked.gpus)
    run.emit(strategies.event_of(chosen, said).model_copy(update={"text": []}))
    if asked.out is not None:
        asked.out.write_text(strategies.strategy_json(chosen, said), "utf-8")
    if asked.timeline is not None:
        asked.timeline.write_text(strategies.timeline_json(chosen), "utf-8")
    return Outcome(Exit.PROVED, answer="\n".join(strategies.lines(chosen, said)))


def parallelize(run: Run, job: pipeline.Job) -> Outcome:
    """Choose a configuration, and take the fastest mesh that can be written through the pipeline.

    Raises:
        ShardproofError, or an error of a lower package that reads as one: nothing was written.
    """
    if job.asked.translation is not None:
        raise InputError("a translation needs a mesh", where="--translation", hint="give --mesh")
    outdir.check_free(job.out, force=job.asked.force)
    shape, captured = shape_in(run, job.request)
    chosen, said = chosen_in(run, shape, job.asked, job.asked.gpus or 1)
    chosen, more = _proposed(run, job.asked, chosen, said)
    run.emit(strategies.event_of(chosen, said))
    offered = list(choices.patches(chosen.space))
    plain = [p for p in offered if p.plan.cp == 1 == p.plan.pp][:1]
    found = [*offered[:TRIED], *plain, *more]
    found = sorted({mesh_of(p).dims: p for p in reversed(found)}.values(), key=lambda p: p.step_s)
    if not found and not replace(chosen.space, reach=chosen.space.asked).regions:
        fixed = ",".join(f"{key}={value}" for key, value in chosen.space.fixed)
        raise InputError(
            "no patch can be written for what is fixed",
            where=f"--fix {fixed}",
            expected="dp, cp, tp, micro_batch and recompute; zero=2 or 3, shard with zero=3; pp "
            "with --launcher",
            hint="shardproof plan prices all others",
        )
    if not found:
        found = [choices.leanest(chosen.space)]
        limit = show_bytes(chosen.space.memory_bytes)
        run.warn(f"no patch fits {limit}: that for the leanest mesh is written")
    for at, each in enumerate(found):
        mesh, launched = launching.within(mesh_of(each), job.asked.launcher)
        made = replace(
            job,
            asked=_stepping(job.asked, each),
            mesh=mesh,
            request=request_for(job.request, captured, each, job.asked.launcher),
            choice=replace(chosen, emitted=each),
            tokens=said,
            launched=launched,
        )
        try:
            return _along(run, made, captured, job.request)
        except (PlanError, EmitError) as error:
            if isinstance(error, ConstraintError) or at + 1 == len(found):
                raise
            run.warn(f"{words.degrees(each.plan)} is not possible: {error}")
    raise AssertionError("a mesh was tried")


def _proposed(run: Run, asked: Asking, chosen: Choice, said: str) -> tuple[Choice, list[Priced]]:
    """The choice with what a model proposes among the others, priced as they are; and of that,
    what a patch can do."""
    model = asked.asker(run)
    if model is None:
        return chosen, []
    try:
        with run.phase("ask") as phase:
            reply = configure(model, chosen, said)
            phase.summary = model.spent.words()
    finally:
        model.close()
    if not isinstance(reply, Read):
        run.warn(f"no configurations: {reply}")
        return chosen, []
    others, patches = list(chosen.others), list[Priced]()
    for each in reply.value:
        named = f"the model's {','.join(f'{k}={v}' for k, v in each.fixed)} ({each.reason})"
        small = replace(chosen.space, fixed=each.fixed)
        try:
            found = next(choices.patches(small), None) or choices.choose(small).best
        except NoPlanError as error:
            others.append(PassedOver(named, "; ".join(filter(None, (str(error), error.got)))))
            continue
        used = round(found.price.memory.total)
        why = choices.slower(found, chosen.best)
        others.append(PassedOver(named, f"{words.short(found.plan)}: {why}", found.step_s, used))
        patches += [found] if not words.beyond(found.plan) else []
    return replace(chosen, others=tuple(others)), patches


def stepped(run: Run, asked: CaptureRequest, wanted: Wanted, gpus: int) -> stepping.Job:
    """The fastest configuration whose whole training step is proved.

    Raises:
        InputError: the model has no shape, or no such configuration fits.
    """
    shape, captured = shape_in(run, asked)
    chosen, said = chosen_in(run, shape, wanted, gpus)
    small = (p for p in choices.steps(chosen.space) if p.plan.pp * p.plan.micro_batches <= WRITTEN)
    found = next(small, None)
    if found is None:
        raise InputError(
            "no configuration fits whose whole step is proved",
            where=f"--gpus {gpus}",
            expected=f"tp, dp and pp, ZeRO-3 over dp, pp x micro-batches at most {WRITTEN}",
            hint="more devices, a smaller --global-batch, or --mesh",
        )
    chosen = replace(chosen, emitted=found)
    run.emit(strategies.event_of(chosen, said, "whole step"))
    plan = found.plan
    dims = (("pp", plan.pp), ("dp", plan.dp), ("tp", plan.tp))
    return stepping.Job(
        request_for(asked, captured, found),
        Mesh(tuple(d for d in dims if d[1] > 1) or (("tp", 1),)),
        load(wanted.hardware),
        plan.micro_batches,
        schedule=GENERATED[plan.schedule],
        choice=chosen,
    )


def _along(
    run: Run, job: pipeline.Job, captured: Captured | None, first: CaptureRequest
) -> Outcome:
    """The pipeline; with one sequence a rank, then short ones, where capture lacks memory."""

    def take(run: Run, asked: CaptureRequest) -> pipeline.Model:
        return pipeline.model_in(run, asked, captured if asked == first else None)

    ranks = prod(size for name, size in job.mesh.dims if name in ("dp", REPLICATE, SHARD))
    less = replace(job.request, batch=ranks * job.asked.micro_batches)
    for asked in (job.request, less):
        try:
            return pipeline.parallelize(run, replace(job, request=asked), take)
        except CaptureError as error:
            if "allocate" not in error.message:
                raise
            run.note(error.message)
    return pipeline.parallelize(run, replace(job, request=replace(less, seq=None)))


def mesh_of(chosen: Priced) -> Mesh:
    """The mesh of a plan that can be written; one device is a mesh too."""
    plan = chosen.plan
    data = (("dp", plan.dp),)
    if plan.zero == 3 and plan.shard < plan.dp:
        data = (REPLICATE, plan.dp // plan.shard), (SHARD, plan.shard)
    sizes = (("pp", plan.pp), *data, ("cp", plan.cp), ("tp", plan.tp))
    return Mesh(tuple(d for d in sizes if d[1] > 1) or (("tp", 1),))


def _stepping(asked: Parallelize, chosen: Priced) -> Parallelize:
    """The words with the micro-batches of a plan, where a launcher takes them."""
    count = chosen.plan.micro_batches if asked.launcher else 1
    return asked.model_copy(update={"micro_batches": count})


def request_for(
    asked: CaptureRequest, captured: Captured | None, chosen: Priced, launcher: bool = False
) -> CaptureRequest:
    """What to capture for a mesh: all micro-batches that its ranks run at once, of a launcher those
    of a step, at the sequence length that was priced; for a model of a file, at its own where the
    mesh divides that."""
    if captured is None:
        asked = replace(asked, dtype="bf16")  # of all that products are priced in
    if asked.batch is not None or asked.inputs:
        return asked
    parts = chosen.plan.dp * (chosen.plan.micro_batches if launcher else 1)
    batch = parts * chosen.plan.micro_batch
    if captured is None:
        return replace(asked, batch=batch, seq=asked.seq or chosen.plan.seq)
    fits = all(i.shape and i.shape[0] % parts == 0 for i in captured.facts.inputs)
    return asked if fits else replace(asked, batch=batch)


def shape_in(
    run: Run, asked: CaptureRequest, captured: Captured | None = None
) -> tuple[Shape, Captured | None]:
    """The shape of a model from its config; where that does not say, of what is captured.

    Raises:
        InputError: it has none.
    """
    kind, name = split_target(asked.target)
    own = read_config_file(asked.config_file) if asked.config_file else {}
    try:
        if kind == "hf":
            return of_config({**own, **asked.config}, name), None
    except ShapeError as error:
        run.note(str(error))
    captured = captured or pipeline.captured_in(run, asked)
    return strategies.shape_of(captured), captured


def chosen_in(run: Run, shape: Shape, wanted: Wanted, gpus: int) -> tuple[Choice, str]:
    """Choose, in a phase of its own."""
    space, said = strategies.space_of(shape, wanted, gpus)
    with run.phase("choose") as phase:
        try:
            chosen = choices.choose(space)
        except NoPlanError as error:
            raise InputError(str(error), where="--gpus", got=error.got, hint=error.hint) from None
        phase.summary = f"{chosen.plans:,} plans of {len(space.regions):,} shapes, the best of all"
        phase.facts["plans"] = chosen.plans
    if slower := strategies.slowed(chosen):
        run.warn(slower)
    return chosen, said
