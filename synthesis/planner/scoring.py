"""What a point of the search costs: it is lowered, priced, and held against what can be written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shardproof.synthesis.hardware import Cluster
from shardproof.synthesis.lower import Ahead, Choices, Lowered, Lowering, LoweringError, Move
from shardproof.synthesis.lower.share import share
from shardproof.synthesis.planner.assign import PlanError, Point, choices
from shardproof.synthesis.planner.constraints import NO_CONSTRAINTS, Constraints
from shardproof.synthesis.planner.cost import Estimate, Prices, estimate, prices
from shardproof.synthesis.planner.expressible import Obstacle, Passed, obstacle, unexpressed
from shardproof.synthesis.planner.groups import REPLICATE, SHARD, merged
from shardproof.synthesis.planner.roles import Module, Param, modules
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.program import Program, live
from shardproof.verifier.kernel.program.types import Mesh, TensorType


@dataclass(frozen=True, slots=True)
class StepPrice:
    """What a step of a plan takes of one rank: all that is said of its time and memory."""

    seconds: float
    bytes: int
    spent: Mapping[str, float]
    """The seconds by what they are spent on."""
    held: Mapping[str, int]
    """The bytes by what they are for."""
    exchange_s: float = 0.0
    """Of the seconds, those of exchange that nothing hides."""


class Pricing:
    """How a step is priced where nothing is known of the configuration that it is run in: by the
    program as it is captured."""

    @property
    def zero(self) -> int:
        """The ZeRO stage over `dp`."""
        return 3

    @property
    def recompute(self) -> str:
        """What backward computes again."""
        return "none"

    def of(self, point: Point, cost: Estimate) -> StepPrice:
        """Of a plan, whose program costs that."""
        return self.one_device(cost)

    def one_device(self, cost: Estimate) -> StepPrice:
        """Of the model on one device, whose program costs that."""
        return StepPrice(cost.step_s, cost.memory_bytes, cost.parts(), cost.memory, cost.comm_s)


CAPTURED = Pricing()


@dataclass(frozen=True)
class Asked:
    """What a plan is asked for."""

    program: Program
    """One-device, forward and backward."""
    mesh: Mesh
    cluster: Cluster
    kinds: Mapping[str, str] | None = None
    """Class names of modules by path; those of a class that no style is emitted for stay whole."""
    split_loss: bool = True
    """Whether the loss may be computed on logits split over the vocabulary."""
    constraints: Constraints = NO_CONSTRAINTS
    """What every candidate keeps."""
    pricing: Pricing = CAPTURED
    """What is said of plans, and held against the limit of memory. Placements are compared by the
    cost of their ops, whatever the price."""
    patched: bool = False
    """Whether plans are judged by their patch alone: only then may the sequence be split."""


@dataclass(frozen=True)
class Candidate:
    """A scored point."""

    point: Point
    price: StepPrice
    over: float
    """Bytes of these that it lacks."""
    estimate: Estimate
    lowered: Lowered
    origin: str = ""
    """The tactic or the move it came from."""
    tactic: str = ""
    """The tactic or seed that it descends from."""

    @property
    def memory_bytes(self) -> int:
        """That a rank needs."""
        return self.price.bytes

    @property
    def score(self) -> tuple[float, float, float]:
        """What candidates are compared by: memory that lacks, then what their ops cost."""
        return self.over, self.estimate.step_s, self.estimate.device_s


@dataclass(frozen=True, slots=True)
class Refusal:
    """A point that is no candidate."""

    point: Point
    origin: str
    kind: Literal["lowering", "emitter"]
    """No distribution was found for an op, or no module style stands for it."""
    reason: str
    module: str
    """Where it was refused."""
    tactic: str = ""
    before: bool = False
    """Whether what makes the operand there is at fault."""
    makers: frozenset[str] = frozenset()
    """The modules that the other operands there come from."""
    piece: tuple[str, int] | None = None
    """The parameter of which a rank would work on its piece, along this dim."""


class _UnwritableError(Exception):
    """A point that no module styles stand for, and why."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.text)
        self.obstacle = obstacle


@dataclass
class Search:
    """What stays the same while points are scored."""

    program: Program
    mesh: Mesh
    cluster: Cluster
    tp: str | None
    dp: str | None
    owners: dict[str, tuple[Module, Param]]
    modules: list[Module]
    loss_parallel: bool
    kinds: Mapping[str, str]
    prices: Prices
    lowering: Lowering
    limit: float = 0.0
    """Bytes of memory per rank; a candidate that needs more comes after all that do not."""
    pricing: Pricing = CAPTURED
    priced: dict[Any, tuple[Lowered, Estimate]] = field(
        default_factory=dict[Any, "tuple[Lowered, Estimate]"]
    )
    """Points that were lowered, also by earlier searches of the same program."""
    seen: dict[Point, Candidate | Refusal] = field(
        default_factory=dict[Point, "Candidate | Refusal"]
    )

    def score(self, point: Point, origin: str, tactic: str = "") -> Candidate | Refusal:
        """A candidate, or why the point is none; `tactic` is what it descends from."""
        known = self.seen.get(point)
        if known is not None:
            return known
        out = self._lowered(point, origin, frozenset())
        if isinstance(out, Candidate):
            again = self._lowered(point, origin, out.lowered.moved)
            if isinstance(again, Candidate) and again.score < out.score:
                out = again
        out = self.seen[point] = replace(out, tactic=tactic)
        return out

    def refusal(self, point: Point, origin: str, tactic: str = "") -> Refusal | None:
        """Why a point is no candidate, as far as the forward pass shows."""
        known = self.seen.get(point)
        if known is not None:
            return known if isinstance(known, Refusal) else None
        found = self._refused(point, origin, lambda: self._ahead(point))
        if found is None:
            return None
        found = self.seen[point] = replace(found, tactic=tactic)
        return found

    def _lowered(self, point: Point, origin: str, paid: frozenset[Move]) -> Candidate | Refusal:
        made: list[Candidate] = []

        def price() -> None:
            made.append(self.price(point, origin, paid, self._admit(point)))
            self._written(point, made[0].lowered)

        return self._refused(point, origin, price) or made[0]

    def _refused(self, point: Point, origin: str, attempt: Callable[[], object]) -> Refusal | None:
        try:
            attempt()
        except LoweringError as error:
            return Refusal(point, origin, "lowering", str(error), error.node.source.module)
        except _UnwritableError as error:
            module, text, before, makers, piece = error.obstacle
            return Refusal(point, origin, "emitter", text, module, "", before, makers, piece)
        return None

    def _admit(self, point: Point) -> Callable[[Ahead], None]:
        return lambda seen: self._written(point, *seen)

    def _written(self, point: Point, lowered: Lowered, since: int = 0, ended: bool = True) -> None:
        """Raise where what was lowered of a point cannot be written as module styles."""
        why = self.obstacle(point, lowered, since, ended)
        if why is not None:
            raise _UnwritableError(why)

    def obstacle(
        self, point: Point, lowered: Lowered, since: int = 0, ended: bool = True
    ) -> Obstacle | None:
        """Why what was lowered of a point cannot be written as module styles, if it cannot. Ops
        before `since` are known to be; more follow where it has not `ended`."""
        if not self.tp:
            return None
        passed = Passed(lowered, since, ended)
        size, styles = self.mesh[self.tp], dict(point.styles)
        gathered = frozenset(path for path, style in point.styles if style == "gathered")
        pieces = {name for name, _ in point.pieces}
        why = obstacle(passed, self.modules, self.kinds, self.tp, size, gathered, pieces)
        if why is not None or not passed.named:
            return why
        stream, program = point.stream, self.program
        return unexpressed(passed, self.modules, styles, stream, self.tp, size, program)

    def price(
        self,
        point: Point,
        origin: str = "",
        paid: frozenset[Move] = frozenset(),
        admit: Callable[[Ahead], None] | None = None,
    ) -> Candidate:
        """Lower a point and price it, whether or not it can be written as module styles, unless
        `admit`, which sees its forward pass first, raises.

        Raises:
            LoweringError: an op for which no distribution was found.
        """
        key = (point, paid, self.loss_parallel)
        if key not in self.priced:
            lowered = self.lowering.whole(self._choices(point), paid, admit)
            cost = estimate(lowered.program, self.prices, lowered.stands_for)
            self.priced[key] = lowered, cost
        lowered, cost = self.priced[key]
        found = self.pricing.of(point, cost)
        return Candidate(point, found, max(0.0, found.bytes - self.limit), cost, lowered, origin)

    def _ahead(self, point: Point) -> None:
        self.lowering.ahead(self._choices(point), admit=self._admit(point))

    def _choices(self, point: Point) -> Choices:
        memo = self.lowering.memo
        return choices(
            self.program, self.owners, point, self.mesh, self.tp, self.dp, self.loss_parallel, memo
        )

    def parameters(self, point: Point) -> int:
        """Bytes of parameters that a rank keeps at a point."""
        laid, total = self._choices(point).inputs, 0
        for item in self.program.inputs:
            if item.role == "param":
                total += TensorType(laid[item.name].local_shape, item.type.dtype).nbytes
        return total


def axes(mesh: Mesh, *, rows: bool = False) -> tuple[str | None, str | None]:
    """The tensor- and data-parallel dims of a search on a mesh, see `within`. Raises PlanError for
    any other dim, but with `rows` not for `cp` and groups of `dp`."""
    for name, size in mesh.dims:
        if name not in ("tp", "dp") and not (rows and name in ("cp", REPLICATE, SHARD)):
            known = f"tp, cp, dp, {REPLICATE} and {SHARD}" if rows else "tp and dp"
            raise PlanError(
                f"mesh dim {name}={size}: only {known} are planned; try --mesh dp=2,tp=2"
            )
    mesh = within(mesh)
    tp = "tp" if "tp" in mesh and mesh["tp"] > 1 else None
    dp = "dp" if "dp" in mesh and mesh["dp"] > 1 else None
    return tp, dp


def within(mesh: Mesh) -> Mesh:
    """The mesh of a search: ranks of `cp` have all parameters alike, and other rows; all ranks that
    share the batch are `dp`.

    Raises:
        PlanError: groups that are not stated as such.
    """
    return Mesh(tuple((name, size) for name, size in merged(mesh).dims if name != "cp"))


def prepare(asked: Asked) -> Search:
    """What a search starts from: the program in primitives, its modules, the dims of the mesh.

    Raises:
        PlanError: a mesh dim that is not planned.
    """
    tp, dp = axes(asked.mesh, rows=asked.patched)
    mesh, cluster = within(asked.mesh), asked.cluster
    lean = share(live(inline(asked.program)))
    found = modules(lean, asked.kinds)
    owners = {p.name: (m, p) for m in found for p in m.params}
    parallel = asked.split_loss and any(o.role == "loss" for o in lean.outputs)
    limit = cluster.device.memory_bytes
    priced = prices(lean, mesh, cluster)
    return Search(
        lean, mesh, cluster, tp, dp, owners, found, parallel, asked.kinds or {}, priced,
        Lowering(lean, mesh, priced), limit, asked.pricing,
    )  # fmt: skip
