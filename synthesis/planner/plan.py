"""Plans: the decision for one model on one mesh, as data that prints, saves and loads."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any, cast

from shardproof.synthesis.planner.dialects import DIALECTS, PYTORCH
from shardproof.verifier.kernel.program.types import Mesh

STYLES = (
    "column", "row", "fused_column", "vocab", "experts", "channels", "recurrent",
    "sequence", "replicate", "kv_column", "summed", "product", "pieces", "inner",
)  # fmt: skip
FORMAT = 1
CUT = "cut"
"""Into pieces of unequal extents, along the last dim: those that a line cuts."""
ARGUMENT = "argument"
"""What a module is called with."""


@dataclass(frozen=True, slots=True)
class ModulePlan:
    """What one module (or every module that a `*` in its path stands for) does on `tp`."""

    path: str
    """Module path, `*` for a layer index: `model.layers.*.self_attn.q_proj`."""
    kind: str
    """Class name of the module."""
    style: str
    """One of `STYLES`."""
    input: str = "R"
    """Placement of the first activation it takes: `R`, `S(1)`, `S(-1)`, `P`."""
    output: str = "R"
    """Placement of the activation it returns."""
    parts: int = 1
    """Number of weights fused in one (`fused_column`): 3 for q, k, v."""
    reason: str = ""
    """One sentence."""
    splits: tuple[tuple[str, int, int], ...] = ()
    """`experts`, `inner`, `product`, `pieces`, convolutions: (parameter, dim that is split, equal
    parts)."""
    shared: bool = False
    """Whether what it returns, whole, meets split activations: its gradient is a sum over ranks."""
    leaves_shares: bool = False
    """Whether the gradient of what it takes stays a share on each rank: what makes it is `shared`,
    and others read it too."""
    made: bool = False
    """Whether hooks or parametrizations work its weight out of the parameters in `splits`."""
    widths: tuple[tuple[int, int], ...] = ()
    """`fused_column` of weights of several widths: how many of one follow, and their rows."""
    kept: tuple[int, ...] = ()
    """Which of these every rank uses whole."""
    whole: tuple[str, ...] = ()
    """`inner`: parameters that every rank uses whole; of others that are not split it adds a
    share."""


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Attention over a sequence that is split: each rank has all rows of its heads there."""

    path: str
    """Module path, `*` for a layer index."""
    projections: tuple[tuple[str, int], ...]
    """The modules in it that give queries, keys and values, and how many weights each fuses."""
    output: str
    """The one in it that takes what attention gives."""


@dataclass(frozen=True, slots=True)
class LocalExtent:
    """A place in the source whose literal extents hold for one device and must become local."""

    file: str
    line: int
    op: str
    """`reshape`, `expand`, `slice`, `split`, `cut` ..."""
    module: str
    """Path of the module whose forward runs the line."""
    whole: tuple[int, ...]
    """Extents as written for one device."""
    local: tuple[int, ...]
    """Extents on one rank."""
    before: tuple[int, ...] = ()
    """Extents of what is given a shape, as far as they are known, for one device."""


@dataclass(frozen=True, slots=True)
class CollectiveUse:
    """Collectives of one kind at one place, per step and rank."""

    op: str
    """`all_reduce`, `all_gather`, `reduce_scatter` ..."""
    mesh_dim: str
    where: str
    """Module path."""
    phase: str
    """`forward` or `backward`."""
    bytes: int
    """Bytes of the whole tensor, one call."""
    count: int
    """Calls, over all modules that `where` stands for."""
    reason: str = ""

    @property
    def total(self) -> int:
        return self.count * self.bytes


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A plan that was looked at and not chosen."""

    name: str
    why: str
    step_s: float | None = None
    """None where it was refused before it was priced, or where no such plan fits."""
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Mesh, module styles and parameter placements, with what they cost and ask of the caller."""

    mesh: Mesh
    tp: str | None = None
    """Mesh dim of tensor parallelism."""
    dp: str | None = None
    """Mesh dim of data parallelism, whose ranks shard parameters."""
    replicate: str | None = None
    """Mesh dim of groups of such ranks: each group holds all parameters."""
    cp: str | None = None
    """Mesh dim of context parallelism: the sequence of activations is split over it."""
    context: tuple[AttentionPlan, ...] = ()
    """Where the ranks of `cp` exchange rows for heads."""
    data: str = "none"
    """`fsdp` or `none`: over `dp` and `cp`, alike in each group of `replicate`."""
    zero: int = 0
    """What `fsdp` shards: parameters, gradients and optimizer state (3), or parameters only outside
    forward and backward (2); 0 where there is no `dp`."""
    recompute: str = "none"
    """What backward computes again: `none`, `selective` (attention and elementwise ops) or `full`
    (each repeated block)."""
    loss: str = "mean"
    """What the loss of one device is of those of the ranks along `dp`: their `mean` or `sum`."""
    sequence_parallel: bool = False
    loss_parallel: bool = False
    modules: tuple[ModulePlan, ...] = ()
    output: str = "R"
    """Placement of what the model returns before it is gathered."""
    params: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """{parameter path: {mesh dim: placement}}, placement `R`, `S(0)` ..."""
    local_extents: tuple[LocalExtent, ...] = ()
    arguments: tuple[LocalExtent, ...] = ()
    """What modules with heads take whole (`before`), and of which a rank works on its heads."""
    obligations: tuple[str, ...] = ()
    """What the caller must do, one sentence each."""
    estimates: Mapping[str, float] = field(default_factory=dict[str, float])
    """`step_s`, `comm_bytes`, `memory_bytes_before`, `memory_bytes_after` ..."""
    collectives: tuple[CollectiveUse, ...] = ()
    whole_attention: tuple[str, ...] = ()
    """Modules whose attention every rank of `tp` computes in full."""
    dialect: str = PYTORCH.name
    """In whose words it is written."""
    stages: tuple[tuple[str, ...], ...] = ()
    """Paths of the modules that each stage of the launcher's pipeline keeps."""

    def module(self, path: str) -> ModulePlan | None:
        """The entry for `path`, if the plan has one."""
        return next((m for m in self.modules if m.path == path), None)

    @property
    def useful(self) -> bool:
        """Whether at least half of what the mesh could split is split, of the parameters and of the
        compute: of the whole model, and of it without embedding and output projection."""
        return all(self.estimates.get(n, 1.0) >= 0.5 for n in ("split_share", "compute_share"))

    @property
    def tp_size(self) -> int:
        return self.mesh[self.tp] if self.tp else 1

    @property
    def batch_dims(self) -> tuple[str, ...]:
        """The mesh dims whose ranks take rows of the batch each, outermost first."""
        return tuple(n for n, size in self.mesh.dims if n in (self.dp, self.replicate) and size > 1)

    @property
    def batch_ranks(self) -> int:
        return prod(self.mesh[name] for name in self.batch_dims)

    @property
    def data_dims(self) -> tuple[str, ...]:
        """The mesh dims whose ranks work on other tokens, outermost first: of these, the loss is
        that of all, and each parameter's gradient too."""
        of_batch = self.batch_dims
        return tuple(
            n for n, size in self.mesh.dims if n in of_batch or (n == self.cp and size > 1)
        )

    @property
    def data_size(self) -> int:
        return prod(self.mesh[name] for name in self.data_dims)

    @property
    def shard_dims(self) -> tuple[str, ...]:
        """Those of `data_dims` over which parameters are sharded."""
        return tuple(name for name in self.data_dims if name != self.replicate)

    @property
    def shard_size(self) -> int:
        return prod(self.mesh[name] for name in self.shard_dims)


def to_json(plan: Plan) -> str:
    """The plan as JSON text: keys in field order, two spaces, a newline at the end."""
    data: dict[str, Any] = {"format": FORMAT, **asdict(plan)}
    data["mesh"] = dict(plan.mesh.dims)
    if plan.output == "R":
        del data["output"]
    if plan.cp is None:
        del data["cp"], data["context"]
    if plan.replicate is None:
        del data["replicate"]
    if plan.dialect == PYTORCH.name:
        del data["dialect"]
    for name in ("stages", "arguments"):
        if not data[name]:
            del data[name]
    for module in data["modules"]:
        for name in ("splits", "shared", "leaves_shares", "made", "widths", "kept", "whole"):
            if not module[name]:
                del module[name]
    return json.dumps(data, indent=2) + "\n"


def _module(data: dict[str, Any]) -> ModulePlan:
    data["splits"] = tuple((str(n), int(d), int(p)) for n, d, p in data.get("splits", ()))
    data["widths"] = tuple((int(n), int(rows)) for n, rows in data.get("widths", ()))
    data["kept"] = tuple(map(int, data.get("kept", ())))
    data["whole"] = tuple(map(str, data.get("whole", ())))
    return ModulePlan(**data)


def _attention(data: dict[str, Any]) -> AttentionPlan:
    data["projections"] = tuple((str(n), int(parts)) for n, parts in data["projections"])
    return AttentionPlan(**data)


def _extent(data: dict[str, Any]) -> LocalExtent:
    data |= {k: tuple(data.get(k, ())) for k in ("whole", "local", "before")}
    return LocalExtent(**data)


def from_json(text: str) -> Plan:
    """Read what `to_json` wrote.

    Raises:
        ValueError: not JSON, another format, an unknown or missing field, an unknown style.
    """
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError(f"a plan is a JSON object, got {type(data).__name__}")
    fields = cast(dict[str, Any], data)
    found = fields.pop("format", None)
    if found != FORMAT:
        raise ValueError(f"plan format {found!r}, expected {FORMAT}")
    try:
        fields["mesh"] = Mesh(tuple(fields["mesh"].items()))
        fields["modules"] = tuple(map(_module, fields.get("modules", ())))
        for name in ("local_extents", "arguments"):
            fields[name] = tuple(_extent(e) for e in fields.get(name, ()))
        fields["context"] = tuple(map(_attention, fields.get("context", ())))
        fields["collectives"] = tuple(CollectiveUse(**c) for c in fields.get("collectives", ()))
        fields["whole_attention"] = tuple(fields.get("whole_attention", ()))
        fields["stages"] = tuple(tuple(map(str, paths)) for paths in fields.get("stages", ()))
        fields["obligations"] = tuple(fields.get("obligations", ()))
        fields.setdefault("zero", 3 if fields.get("data") == "fsdp" else 0)
        plan = Plan(**fields)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError(f"not a plan: {error}") from error
    if plan.dialect not in DIALECTS:
        raise ValueError(f"unknown dialect {plan.dialect!r}, expected {', '.join(DIALECTS)}")
    for module in plan.modules:
        if module.style not in STYLES:
            known = ", ".join(STYLES)
            raise ValueError(f"{module.path}: unknown style {module.style!r}, expected {known}")
    return plan


def table(plan: Plan) -> list[tuple[str, str, str, str, str]]:
    """Rows (module path, class, style, parameters, activation) in the order of the plan."""
    rows: list[tuple[str, str, str, str, str]] = []
    for m in plan.modules:
        widths = (f"{n} x {rows}" if n > 1 else str(rows) for n, rows in m.widths)
        fused = ", ".join(widths) or str(m.parts)
        style = f"{m.style}({fused})" if m.style == "fused_column" else m.style
        prefix = m.path + "." if m.path else ""
        names = {
            path.removeprefix(prefix): placements
            for path, placements in plan.params.items()
            if path.startswith(prefix) and "." not in path.removeprefix(prefix)
        }
        placed = ", ".join(
            f"{name} " + " ".join(f"{p}@{dim}" for dim, p in placements.items())
            for name, placements in names.items()
        )
        rows.append((m.path, m.kind, style, placed, f"{m.input} -> {m.output}"))
    return rows
