"""From a model to a plan: searches, and writes the winner down as data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shardproof.synthesis.emit.styles import supported
from shardproof.synthesis.lower import Lowered
from shardproof.synthesis.planner.assign import PlanError as PlanError, Point
from shardproof.synthesis.planner.constraints import (
    ConstraintError as ConstraintError,
    Constraints as Constraints,
    show_bytes,
)
from shardproof.synthesis.planner.context import rows_apart, split_outputs
from shardproof.synthesis.planner.cost import Estimate, Use as Use, estimate, prices
from shardproof.synthesis.planner.describe import describe as describe
from shardproof.synthesis.planner.fused_weights import contract_of, weights_apart
from shardproof.synthesis.planner.groups import split_groups
from shardproof.synthesis.planner.plan import Plan
from shardproof.synthesis.planner.roles import ATTENTION, LINEAR, LOOKS_UP, Module
from shardproof.synthesis.planner.scoring import Asked as Asked, StepPrice
from shardproof.synthesis.planner.search import Found, Search, search
from shardproof.synthesis.planner.uses import whole_path
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.program import Program, live


@dataclass(frozen=True)
class Synthesis:
    """A plan with the programs it stands for. Nothing is proved yet."""

    plan: Plan
    sequential: Program
    """In primitives, without dead nodes: what the distributed program is compared with."""
    lowered: Lowered
    found: Found
    baseline: Estimate
    """The one-device program."""
    asked: Asked

    @property
    def contract(self) -> Contract:
        """How inputs and outputs of the patch are laid out."""
        whole = contract_of(self.lowered.contract, self.sequential, self.asked)
        split = split_groups(whole, self.plan)
        return split_outputs(split, self.sequential, self.plan)

    @property
    def one_device(self) -> StepPrice:
        """What a step takes of one device, priced as the plan is."""
        return self.asked.pricing.one_device(self.baseline)


def synthesize(
    asked: Asked,
    *,
    progress: Callable[[str], None] | None = None,
    seeds: Sequence[tuple[str, Point]] = (),
    like: Search | None = None,
) -> Synthesis:
    """Plan a one-device joint program for a mesh.

    `seeds` are starting points of the search besides the tactics; `like` is an earlier search of
    the same program, mesh and cluster, to save time.

    Raises:
        PlanError: a mesh the model cannot use; ConstraintError where a constraint cannot hold.
    """
    asked = rows_apart(asked)
    apart = weights_apart(asked)

    def attempt(constraints: Constraints) -> Found:
        wanted = replace(apart, constraints=constraints)
        return search(wanted, can_emit, progress=progress, seeds=seeds, like=like)

    try:
        found = attempt(asked.constraints)
    except ConstraintError:
        raise
    except PlanError as error:
        raise _blamed(asked.constraints, attempt, error) from None
    if asked.constraints.memory_bytes is not None:
        _check_fits(found, asked.constraints.memory_bytes)
    sequential = live(inline(asked.program))
    baseline = estimate(sequential, prices(sequential, asked.mesh, asked.cluster))
    plan = describe(found, asked, asked.pricing.one_device(baseline))
    return Synthesis(plan, sequential, found.best.lowered, found, baseline, asked)


def can_emit(module: Module, style: str) -> bool:
    """Whether the emitter has the style for a module of its class."""
    if style != "replicate" and not module.path:
        return False
    if module.own_index and module.kind not in LOOKS_UP and style != "replicate":
        return False
    if whole_path(module.path) != module.path:
        return style in ("replicate", "column", "fused_column")
    if module.kind == ATTENTION:
        return style == "replicate" or (module.heads > 0 and style == "fused_column")
    if module.made and style in ("row", "fused_column"):
        return style == "row" and module.made_outside
    if module.own:
        return style in ("replicate", "column", "row", "gathered")
    if module.holds and module.use in ("linear", "embedding"):
        return style == "replicate"  # what it does with its product, its style does not know
    if module.use == "linear" and module.kind not in LINEAR:
        return style == "replicate"
    return not module.kind or supported(_base(module), style)


def _blamed(
    constraints: Constraints, attempt: Callable[[Constraints], Found], error: PlanError
) -> PlanError:
    """The error of the first constraint without which there is a plan; else the error itself."""
    for words, fewer in constraints.each():
        try:
            attempt(fewer)
        except PlanError:
            continue
        return ConstraintError(
            "no plan keeps it", words, got=str(error), hint="without it there is one"
        )
    return error


def _check_fits(found: Found, limit: int) -> None:
    if found.best.memory_bytes <= limit:
        return
    leanest = min((found.best, *found.others), key=lambda c: c.memory_bytes)
    parts = ", ".join(f"{kind} {show_bytes(n)}" for kind, n in leanest.price.held.items())
    raise ConstraintError(
        "no plan that was found fits",
        f"memory {show_bytes(limit)}",
        got=f"the leanest needs {show_bytes(leanest.memory_bytes)} per rank ({parts})",
        hint="a larger mesh, a smaller batch or a shorter sequence",
    )


def _base(module: Module) -> str:
    """The class whose styles apply: Linear and Embedding subclasses keep their shape of weight."""
    if module.use == "linear":
        return "Conv1D" if module.out_dim == 1 else "Linear"
    if module.use in ("conv", "channels"):
        return "Conv"
    bag = module.kind == "EmbeddingBag"
    return "Embedding" if module.use == "embedding" and not bag else module.kind
