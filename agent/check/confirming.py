"""Has the owner's code run on real processes, and says what that does to the verdict of a check."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

from shardproof.agent.actions.programs import Check
from shardproof.agent.check.contract import Statements
from shardproof.agent.check.pieces import Pieces
from shardproof.agent.run.run import Run
from shardproof.agent.verdict import real_run
from shardproof.synthesis.execute.run.running import (
    CALLS,
    PARAMETERS,
    PROCESSES,
    LaunchError,
    Order,
    Side,
    of_file,
    run as run_all,
)
from shardproof.synthesis.frontends.torch.ranks.request import RanksRequest
from shardproof.synthesis.frontends.torch.ranks.result import RanksCaptured
from shardproof.synthesis.frontends.torch.request import EXPERTS, NOT_CONFIG, split_target
from shardproof.verifier.verdict import Counterexample, Unknown, Verdict

STEPS = 3
"""Training steps that are run: what is counted is another number in the third."""
INSISTS = "--run insists"


def reason_not_to_run(request: RanksRequest, asked: bool | None, parameters: int) -> str:
    """Empty where the modules are to be run, else why they are not."""
    if asked is False:
        return "--no-run"
    if request.device_free:
        return "--device-free: the code asks for a device"
    if request.meanings:
        return "--op: what the op does is said, not there"
    if asked:
        return ""
    if request.mesh.size > PROCESSES:
        return f"more than {PROCESSES} processes; {INSISTS}"
    if parameters > PARAMETERS:
        return f"more than {PARAMETERS:,} parameters; {INSISTS}"
    return ""


def confirmed(
    run: Run,
    asked: Check,
    request: RanksRequest,
    stated: Statements,
    verdict: Verdict,
    captured: Sequence[RanksCaptured] = (),
    outside: Sequence[str] = (),
) -> Verdict:
    """The verdict after a run of both modules. What is refuted already is not run. Without
    `captured`, nothing could be traced. A loss computed outside is the mean over `outside`."""
    if isinstance(verdict, Counterexample):
        return verdict
    one = captured[0].one if captured else None
    count = sum(t.size for t in one.params.values()) if one is not None else 0
    reason = reason_not_to_run(request, asked.run, count)
    if not reason and one is None and request.against.startswith("hf:"):
        reason = "nothing was traced"
    if reason:
        if asked.run is not False:
            run.warn(f"the modules were not run: {reason}")
        return verdict
    pieces = Pieces(request.mesh, stated, request.names, asked.skip_output)
    with run.phase("run") as phase:
        try:
            order = replace(
                _order(request, asked, captured),
                share=float(prod(request.mesh[dim] for dim in outside)),
            )
            ran = run_all(order, pieces.given, pieces.outputs, count)
        except LaunchError as problem:
            phase.summary = f"not run: {problem}"
            return verdict
        phase.summary = real_run.summary(ran)
    real_run.told(run, ran, request.mesh)
    return real_run.judged(verdict, ran, request.mesh, "the module")


def refused(
    run: Run, asked: Check, request: RanksRequest, stated: Statements, problem: Exception
) -> Verdict:
    """What a run says of modules that could not be followed.

    Raises:
        CaptureError, InputError: `problem`, where they do not differ in a run either.
    """
    found = confirmed(run, asked, request, stated, Unknown(str(problem)))
    if not isinstance(found, Counterexample):
        raise problem
    run.warn(f"not followed: {str(problem).splitlines()[0]}")
    return found


def _order(request: RanksRequest, asked: Check, captured: Sequence[RanksCaptured]) -> Order:
    config = dict(request.config)
    one = _side(request.against, config)
    many = _side(request.target, config)
    if request.target.startswith("hf:"):
        plan = request.tp_plan
        many = Side("hf", many.name, config=many.config, plan=plan)
    elif not request.alone:
        many = replace(many, config=config, model=one)
    inputs = request.inputs
    if not inputs and captured and request.against.startswith("hf:"):
        inputs = captured[0].one.inputs
    sizes = {k: v for k, v in (("batch", request.batch), ("seq", request.seq)) if v is not None}
    return Order(
        one,
        many,
        request.mesh,
        tuple(_input(i) for i in inputs) if inputs else None,
        sizes,
        request.gradients,
        request.no_grad,
        tuple(asked.grad_of_input),
        request.after_backward,
        request.step,
        request.step_of_one or request.step,
        alone=request.alone,
        modes=request.modes,
        env=request.env,
        filled=request.filled,
        calls=STEPS if request.step else CALLS,
        most=0 if captured or asked.run else PARAMETERS,
    )


def _input(spec: object) -> dict[str, object]:
    return {k: getattr(spec, k) for k in ("name", "shape", "dtype", "below", "ignored")}


def _side(target: str, config: dict[str, object]) -> Side:
    kind, name = split_target(target)
    if kind != "hf":
        return of_file(name, Path(kind), config)
    fixed = {"use_cache": False, "attn_implementation": "eager", **EXPERTS}
    fields = {k: v for k, v in config.items() if k not in NOT_CONFIG}
    return Side("hf", name, config={**fields, **fixed})
