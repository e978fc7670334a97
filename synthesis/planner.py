"""From a model to a plan: searches, and writes the winner down as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from synthesis.assign import PlanError, Point
from synthesis.constraints import NO_WISHES, WishError, Wishes, show_bytes
from synthesis.cost import Estimate, Use, estimate, prices
from synthesis.describe import KINDS, describe
from synthesis.emit.styles import supported
from synthesis.hardware import Cluster
from synthesis.lower import Lowered
from synthesis.plan import Plan
from synthesis.roles import Module
from synthesis.scoring import Needs, as_captured
from synthesis.search import Found, Search, prepare, search
from verifier.kernel.inline import inline
from verifier.kernel.live import live
from verifier.kernel.program.program import Program
from verifier.kernel.program.types import Mesh


@dataclass(frozen=True)
class Asked:
    """What a plan was asked for."""

    program: Program
    mesh: Mesh
    cluster: Cluster
    kinds: Mapping[str, str] | None = None
    split_loss: bool = True
    wishes: Wishes = NO_WISHES
    needs: Needs = as_captured
    """The bytes per rank that are held against the limit."""

    def again(
        self,
        wishes: Wishes,
        seeds: Sequence[tuple[str, Point]] = (),
        like: Search | None = None,
    ) -> Synthesis:
        """The same with other wishes. Raises PlanError as `synthesize` does."""
        return synthesize(
            self.program,
            self.mesh,
            self.cluster,
            self.kinds,
            self.split_loss,
            wishes=wishes,
            seeds=seeds,
            like=like,
            needs=self.needs,
        )


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


def synthesize(
    program: Program,
    mesh: Mesh,
    cluster: Cluster,
    kinds: Mapping[str, str] | None = None,
    split_loss: bool = True,
    progress: Callable[[str], None] | None = None,
    wishes: Wishes = NO_WISHES,
    seeds: Sequence[tuple[str, Point]] = (),
    like: Search | None = None,
    needs: Needs = as_captured,
) -> Synthesis:
    """Plan a one-device joint program for a mesh.

    `kinds` gives class names of modules by path; modules of a class that the emitter has no
    style for stay whole. `split_loss` says whether the loss may run on split logits. The plan
    keeps every wish. `seeds` are starting points of the search besides the tactics; `like` is an
    earlier search of the same program, mesh and cluster, to save time; `needs` says what is held
    against the limit of memory.

    Raises:
        PlanError: a mesh the model cannot use; WishError where a wish cannot hold.
    """

    def attempt(asked: Wishes) -> Found:
        return search(
            program,
            mesh,
            cluster,
            kinds,
            can_emit,
            split_loss,
            progress=progress,
            wishes=asked,
            seeds=seeds,
            like=like,
            needs=needs,
        )

    try:
        found = attempt(wishes)
    except WishError:
        raise
    except PlanError as error:
        raise _blamed(wishes, attempt, error) from None
    if wishes.memory_bytes is not None:
        _check_fits(found, wishes.memory_bytes)
    sequential = live(inline(program))
    baseline = estimate(sequential, prices(sequential, mesh, cluster))
    plan = describe(found, mesh, baseline, kinds)
    asked = Asked(program, mesh, cluster, kinds, split_loss, wishes, needs)
    return Synthesis(plan, sequential, found.best.lowered, found, baseline, asked)


def space(asked: Asked) -> Search:
    """The modules and dims that plans are made of, with nothing scored yet."""
    return prepare(asked.program, asked.mesh, asked.cluster, asked.kinds, asked.split_loss)


def can_emit(module: Module, style: str) -> bool:
    """Whether the emitter has the style for a module of its class."""
    if module.own_index and module.kind not in ("", "Embedding") and style != "replicate":
        return False
    return not module.kind or supported(_base(module), style)


def _blamed(wishes: Wishes, attempt: Callable[[Wishes], Found], error: PlanError) -> PlanError:
    """The error of the first wish without which there is a plan; the error itself where none."""
    for words, fewer in wishes.each():
        try:
            attempt(fewer)
        except PlanError:
            continue
        return WishError("no plan keeps it", words, got=str(error), hint="without it there is one")
    return error


def _check_fits(found: Found, limit: int) -> None:
    if found.best.memory_bytes <= limit:
        return
    leanest = min((found.best, *found.others), key=lambda c: c.memory_bytes)
    parts = ", ".join(f"{kind} {show_bytes(getattr(leanest.estimate, kind))}" for kind in KINDS)
    raise WishError(
        "no plan that was found fits",
        f"memory {show_bytes(limit)}",
        got=f"the leanest needs {show_bytes(leanest.memory_bytes)} per rank ({parts})",
        hint="a larger mesh, a smaller batch or a shorter sequence",
    )


def _base(module: Module) -> str:
    """The class whose styles apply: Linear and Embedding subclasses keep their shape of weight."""
    if module.use == "linear":
        return "Conv1D" if module.out_dim == 1 else "Linear"
    return "Embedding" if module.use == "embedding" else module.kind


__all__ = [
    "PlanError",
    "Synthesis",
    "Use",
    "WishError",
    "Wishes",
    "describe",
    "synthesize",
]
